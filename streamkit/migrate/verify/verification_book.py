"""Store the state of a verification, and what its segments have found, in control items.

    reading    a pass over the table under way: segments, shared by all processes that verify
    mending    what is wrong is known, and is repaired, if that was asked for
    over       the report is written, or the verification was given up; all but these two items, the
               state and the report, is deleted

The first pass looks at every item. Later passes, each for a part of the copies, look for those that
have no source; the last ones look at these again. A pass has its own segments, and a segment has an
item of its own for its numbers, and one for each page on which something was found. Both are
written in the commit that moves the segment. So any process can continue at any page, and a page
counts once.

In: what was found on a page. Out: what all pages of a pass have found, and a state that moves by
one conditional write (see `operation`). On failure: `LeaseLost` says that another process took a
step; segments of a pass that is over can be neither made nor moved.
"""

import json
import random
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import msgspec

from streamkit.errors import LeaseLost
from streamkit.migrate.book.state_book import as_read, next_version
from streamkit.migrate.verify.differences import ItemDifference
from streamkit.migrate.verify.findings import Findings, Verified
from streamkit.migrate.verify.orphans import PairBalance
from streamkit.migrate.verify.settling import CaptureState
from streamkit.progress.actions import Action, Wire
from streamkit.progress.clock import Clock
from streamkit.progress.cursor import CursorStore
from streamkit.progress.fenced import Fenced
from streamkit.progress.operation import Operation
from streamkit.progress.scan.scan import TableScan

Stage = Literal["reading", "mending", "over"]
Name = tuple[str, ...]

_TABLES = 2
"""A pass reads the migration's table, and perhaps the one that copies go to."""
_ITEM_BYTES = 300_000
"""Bytes of lines in one item; DynamoDB takes 400 KB."""
_NUMBERS = ("looked_at", "matching", "beyond", "missing")


@dataclass(frozen=True, slots=True)
class VerificationState:
    """The state of a verification; `number` grows with each one, `version` with each step.

    `course` is the migration's when it began, and `chosen` are the segments that are read, of
    `total`. After the first pass come `rounds` that look for copies without a source, and `looks`
    that look at these again, each with the state of the consumer before it. The `report` is without
    its differences, which are stored in `parts` items; it is None if there is none.
    """

    number: int = 0
    version: int = 0
    stage: Stage = "over"
    course: tuple[Any, ...] = ()
    total: int = 0
    chosen: tuple[int, ...] = ()
    rounds: int = 0
    looks: tuple[CaptureState, ...] = ()
    report: dict[str, Any] | None = None
    parts: int = 0

    @property
    def turn(self) -> int:
        """The number of the pass; the first one is 0."""
        return self.rounds + len(self.looks)

    @property
    def is_under_way(self) -> bool:
        """Whether its result is not known yet."""
        return self.stage != "over"


@dataclass(frozen=True)
class VerificationBook:
    """One kind of verification of one migration: whole or of a share, with repair or without."""

    store: CursorStore
    name: str
    paced: Callable[..., AbstractAsyncContextManager[None]]
    clock: Clock
    rng: random.Random

    # -- the state -----------------------------------------------------------------------------

    @property
    def operation(self) -> Operation[VerificationState]:
        """The steps of the verification."""
        return Operation(self.store, self.read, self._writes)

    async def read(self) -> VerificationState:
        """Return the state; the one of the last verification if none is under way."""
        item = await self.store.item("verification", self.name)
        text = "{}" if item is None else item["state"]["S"]
        return msgspec.json.decode(text, type=VerificationState)

    async def step(
        self, before: VerificationState, along: Sequence[Action] = (), **changes: Any
    ) -> VerificationState:
        """Write the next state IF it is as it was read.

        Raises:
            LeaseLost: it is not.
        """
        after = replace(before, version=before.version + 1, **changes)
        return await self.operation.step(before, after, along)

    async def report(self, before: VerificationState, verified: Verified, stage: Stage) -> None:
        """Step to a stage, and write what the verification has found along with it."""
        ones = [*verified.different, *verified.unsettled]
        texts = _packed(json.dumps(one.to_dict()) for one in ones)
        along = [self._lines(self._report_name(before, n), text) for n, text in enumerate(texts)]
        along += self.forgetting(before, len(texts))
        numbers = {**verified.to_dict(), "different": len(verified.different)}
        beside = ("ok", "later", "failed", "compared")
        for name in ("unsettled", *beside, *([] if verified.missing else ["missing"])):
            del numbers[name]
        await self.step(before, along, stage=stage, report=numbers, parts=len(texts))

    async def reported(self, now: VerificationState) -> Verified | None:
        """Return what a verification has found; None if it was given up, or another has begun."""
        names = [self._report_name(now, number) for number in range(now.parts)]
        # One part after the other: a read of several items returns them in any order.
        lines = [line for name in names async for line in self._read_lines([name])]
        if now.report is None or await self.read() != now:
            return None
        ones = tuple(ItemDifference(**json.loads(line), key={}, image="") for line in lines)
        many = now.report["different"]
        found = {**now.report, "different": ones[:many], "unsettled": ones[many:]}
        return Verified(**found)

    def forgetting(self, now: VerificationState, since: int = 0) -> list[Action]:
        """Return the actions that delete the report, or its later parts, for the next step."""
        names = [self._report_name(now, number) for number in range(since, now.parts)]
        return [self.store.space.delete(*name) for name in names]

    def _writes(self, before: VerificationState, after: VerificationState) -> Action:
        action = self.store.space.update("verification", self.name)
        return next_version(action, before.version, after.version, asdict(after))

    # -- passes --------------------------------------------------------------------------------

    def scan(self, now: VerificationState, turn: int, table: int) -> TableScan:
        """Return a pass over one of the tables; its segments are made while the state lasts."""
        return TableScan(
            self.store,
            f"verify.{self.name}.{now.number}.{turn}.{table}",
            now.total,
            self.clock,
            self.rng,
            paced=self.paced,
            fence=self._fence(now),
            chosen=now.chosen,
        )

    async def adding(self, segment: str, page: Findings) -> list[Action]:
        """Return the actions that add what was found on a page to what its segment has found.

        They hold for the owner of the segment, and belong in the commit that moves it.
        """
        item = await self.store.item("found", segment) or {}
        before, parts = _numbers_of(item), _int(item, "parts")
        before.balance.add(page.balance)
        texts = _packed(page.lines())
        action = self.store.space.update("found", segment)
        action.sets |= {
            name: {"N": str(getattr(before, name) + getattr(page, name))} for name in _NUMBERS
        }
        action.sets |= {
            "name": {"S": segment},
            "parts": {"N": str(parts + len(texts))},
            "copies": {"N": str(before.balance.copies)},
            "sums": {"B": before.balance.packed()},
        }
        numbered = enumerate(texts, parts)
        return [action, *(self._lines(("found", segment, str(n)), text) for n, text in numbered)]

    async def found(self, now: VerificationState) -> list[Findings]:
        """Return what each pass has found so far, all its segments together.

        Raises:
            LeaseLost: the state has changed, and some of it may be deleted already.
        """
        found = [await self._found(now, turn) for turn in range(now.turn + 1)]
        if await self.read() != now:
            raise LeaseLost(f"verification {self.name} was continued by another process")
        return found

    async def _found(self, now: VerificationState, turn: int) -> Findings:
        found = Findings()
        for item in await self._items(now, turn):
            part = _numbers_of(item)
            for name in _NUMBERS:
                setattr(found, name, getattr(found, name) + getattr(part, name))
            found.balance.add(part.balance)
            found.read([line async for line in self._read_lines(_parts(item))])
        return found

    async def clear(self, now: VerificationState) -> None:
        """Delete the segments of all passes, and what they have found.

        Raises:
            LeaseLost: the state has changed.
        """
        fence, space = self._fence(now), self.store.space
        for turn in range(now.turn + 1):
            # Without their segments no process adds to what was found.
            for table in range(_TABLES):
                await self.scan(now, turn, table).delete()
            items = await self._items(now, turn)
            parts = [name for item in items for name in _parts(item)]
            owners = [("found", item["name"]["S"]) for item in items]
            await fence.delete([space.key(*name) for name in (*parts, *owners)])

    async def _items(self, now: VerificationState, turn: int) -> list[dict[str, Wire]]:
        scans = [self.scan(now, turn, table) for table in range(_TABLES)]
        items = await self.store.items([("found", name) for one in scans for name in one.names])
        return sorted(items, key=lambda item: str(item["name"]["S"]))

    def _fence(self, now: VerificationState) -> Fenced:
        return Fenced(self.store, as_read(now.version), self.rng, ("verification", self.name))

    # -- lines ---------------------------------------------------------------------------------

    def _report_name(self, now: VerificationState, number: int) -> Name:
        return "found", f"{self.name}.{now.number}", str(number)

    def _lines(self, name: Name, text: str) -> Action:
        action = self.store.space.update(*name)
        action.sets |= {"lines": {"S": text}}
        return action

    async def _read_lines(self, names: Iterable[Name]) -> AsyncIterator[str]:
        for item in await self.store.items(names):
            for line in item["lines"]["S"].splitlines():
                yield line


def _numbers_of(item: dict[str, Any]) -> Findings:
    balance = PairBalance(item.get("sums", {"B": b""})["B"], _int(item, "copies"))
    looked_at, matching, beyond, missing = (_int(item, name) for name in _NUMBERS)
    return Findings(looked_at, matching, beyond, missing, balance)


def _parts(item: dict[str, Any]) -> list[Name]:
    return [("found", item["name"]["S"], str(n)) for n in range(_int(item, "parts"))]


def _int(item: dict[str, Any], name: str) -> int:
    return int(item.get(name, {"N": "0"})["N"])


def _packed(lines: Iterable[str]) -> list[str]:
    """Return lines in texts that fit into an item each."""
    packed: list[str] = []
    for line in lines:
        if packed and len(packed[-1]) + len(line) < _ITEM_BYTES:
            packed[-1] += f"\n{line}"
        else:
            packed.append(line)
    return packed
