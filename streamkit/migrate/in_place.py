"""In place: one item brought into the new shape, IF all that was read of it still holds.

    reconcile(image):  T(image) = image: done
                       update the item IF what T read, sets and removes is as in the image
                       refused: the reply holds the item as it is now; reconcile that

The pass and the stream both call this, so that whoever comes first does the work, and nothing that
an application writes meanwhile is lost: what its write did to the attributes that T reads makes the
condition fail, and the others are not touched. So does what it wrote to those that T sets: a
process that stood still would overwrite it after the end, and nobody would bring it back. The
condition is on what was read and not on a version, because an old writer leaves a version as it is.

In: an item. Out: what was done, as a count in a `Tally`. On failure: what the function raises, and
what DynamoDB finds invalid, is written down as an error of the item; it is in nobody's way.
"""

from collections import Counter, OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import anyio

from streamkit.actions import Wire
from streamkit.clock import Clock
from streamkit.errors import ConfigurationError, LeaseLost, Unavailable
from streamkit.migrate.calls import DONE, Calls, Outcome
from streamkit.migrate.errors import ErrorBook, error_id
from streamkit.migrate.transform import Image, Rewrite, Transform, plain, wire
from streamkit.migrate.writes import delete, mark_text, unchanged, update
from streamkit.model.conditions import Attr, Condition
from streamkit.model.origin import MARK
from streamkit.model.schema import TableSchema
from streamkit.observe.logger import get_logger
from streamkit.processing.verdicts import Invalid, Refused

log = get_logger("streamkit.migrate")

_TRIES = 20
"""Of one item that changes each time; its last change is in the stream, too."""
_REWRITES, _WINDOW_SECONDS = 30, 60.0
"""Rewrites of one item by the stream within the window: more, and each may be turned back."""
_HOLD_SECONDS = 5.0
"""For which such an item is left alone; what answers rewrites as fast as that is faster."""
_SILENCES = 3
"""Holds in a row in which nothing wrote it: it is written in answer to rewrites."""
_REMEMBERED = 10_000


@dataclass(slots=True)
class Tally:
    """What was done, in items: `scanned` were read, `changed` were rewritten.

    Of the `errors` so many are of items that are `waived`.
    """

    scanned: int = 0
    changed: int = 0
    skipped: int = 0
    gone: int = 0
    conflicts: int = 0
    errors: int = 0
    waived: int = 0

    def add(self, other: "Tally") -> None:
        """Add another's numbers."""
        for item in fields(self):
            setattr(self, item.name, getattr(self, item.name) + getattr(other, item.name))

    def to_dict(self) -> dict[str, int]:
        """Return the numbers by name."""
        return {item.name: getattr(self, item.name) for item in fields(self)}


class Budget:
    """How often the stream has made one rewrite one item, so that a ping-pong ends."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._seen: OrderedDict[str, list[float]] = OrderedDict()
        self._silences: Counter[str] = Counter()

    def spent(self, name: str) -> bool:
        """Count a rewrite; return whether there were too many lately."""
        now = self._clock.monotonic()
        times = [at for at in self._seen.pop(name, []) if now - at < _WINDOW_SECONDS]
        self._seen[name] = [*times, now]
        if len(self._seen) > _REMEMBERED:
            self.forget(next(iter(self._seen)))
        return len(times) >= _REWRITES

    def is_silent_again(self, name: str) -> bool:
        """Count a hold in which nothing wrote an item; return whether there were enough."""
        self._silences[name] += 1
        return self._silences[name] >= _SILENCES

    def forget(self, name: str) -> None:
        """Begin anew with an item."""
        self._seen.pop(name, None)
        self._silences.pop(name, None)


class InPlace:
    """Rewrites items where they are."""

    def __init__(
        self, transform: Transform, calls: Calls, book: ErrorBook, clock: Clock, writer: str
    ) -> None:
        self.transform = transform
        self._calls = calls
        self._book = book
        self._clock = clock
        self._writer = writer
        self._budget = Budget(clock)

    async def reconcile(self, item: Mapping[str, Wire], tally: Tally, *, live: bool) -> None:
        """Bring one item, as it was read, into the new shape.

        Args:
            item: in wire form.
            tally: is added to.
            live: it comes from the stream, and is not read for the first time.
        """
        key = {name: item[name] for name in self.transform.schema.key_attributes}
        image: Image = plain(item)
        for _ in range(_TRIES):
            try:
                rewrite = self.transform.of(image)
                if not rewrite.changes_item:
                    tally.skipped += 1
                    return
                if live and await self._is_turned_back(key):
                    await self._fail(key, tally, "ping_pong", "it is turned back again and again")
                    return
                outcome = await self._write(key, image, rewrite)
            except Exception as error:
                if ends_run(error):
                    raise
                await self._fail(key, tally, "transform", describe(error))
                return
            if outcome is DONE:
                tally.changed += 1
                return
            if isinstance(outcome, Invalid):
                await self._fail(key, tally, "invalid", outcome.text)
                return
            now = outcome.items.get(0) if isinstance(outcome, Refused) else None
            if now is None:
                tally.gone += 1
                return
            tally.conflicts += 1
            image = plain(now)
        await self._fail(key, tally, "contended", f"it changed {_TRIES} times in a row")

    async def _is_turned_back(self, key: Mapping[str, Wire]) -> bool:
        """Say whether each rewrite of an item is answered by one that turns it back.

        An item that is only written often looks the same, until it is left alone for a while: what
        answers rewrites has nothing to answer then, and what writes by itself goes on.
        """
        name, table = error_id(key), self.transform.schema.name
        if not self._budget.spent(name):
            return False
        before = await self._calls.get(table, key)
        await anyio.sleep(_HOLD_SECONDS)
        if await self._calls.get(table, key) != before:
            self._budget.forget(name)
            return False
        return self._budget.is_silent_again(name)

    async def stays(self, keys: Sequence[Mapping[str, Wire]]) -> list[bool]:
        """Say for each item whether it stays in the new shape, and is not brought there again."""
        table = self.transform.schema.name
        before = [await self._calls.get(table, key) for key in keys]
        await anyio.sleep(_HOLD_SECONDS)
        after = [await self._calls.get(table, key) for key in keys]
        return [
            now is None
            or (now.get(MARK) == then.get(MARK) and not self.transform.of(plain(now)).changes_item)
            for then, now in zip((one or {} for one in before), after, strict=True)
        ]

    async def _write(self, key: Mapping[str, Wire], image: Image, rewrite: Rewrite) -> Any:
        schema = self.transform.schema
        held = unchanged(schema, image, rewrite.reads | rewrite.sets.keys() | rewrite.removes)
        if rewrite.delete:
            return await delete_marked(self._calls, schema, key, held, self._writer)
        sets, removes = wire(rewrite.sets), rewrite.removes
        action = update(schema, key, held, self._writer, sets=sets, removes=removes)
        return await self._calls.write(action)

    async def _fail(self, key: Mapping[str, Wire], tally: Tally, kind: str, text: str) -> None:
        tally.errors += 1
        known: dict[str, Any] = {"migration": self._writer, "kind": kind, "item": error_id(key)}
        log.often("migration.item_failed", level="warning", by=kind, **known)
        tally.waived += await self._book.add(key, kind, text, self._clock.time())


async def delete_marked(
    calls: Calls,
    schema: TableSchema,
    key: Mapping[str, Wire],
    held: Sequence[Condition],
    writer: str,
    *,
    first: Sequence[Condition] = (),
) -> Outcome:
    """Delete an item, which says in its last image that a migration did it.

    Args:
        calls: send the two writes.
        schema: of its table.
        key: of the item.
        held: what holds when it is marked, and still when it is deleted.
        writer: the migration's name in marks.
        first: what holds in addition when it is marked.
    """
    text = mark_text(writer, deleting=True)
    marked = await calls.write(update(schema, key, [*held, *first], writer, mark=text))
    if marked is not DONE:
        return marked
    return await calls.write(delete(schema, key, [*held, Attr(MARK).eq(text)]))


def describe(error: BaseException) -> str:
    """Return an error's class, and its text if it is one of ours, which never hold item data."""
    own = type(error).__module__.startswith("streamkit.")
    return f"{type(error).__name__}: {error}" if own else type(error).__name__


def ends_run(error: BaseException) -> bool:
    """Say whether an error ends the run: it is not about this item."""
    return isinstance(error, ConfigurationError | LeaseLost | Unavailable)
