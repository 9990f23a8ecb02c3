"""Keep one record for each item that a migration could not bring into the new shape.

In: an item's key and what went wrong. Out: records, listed by their number in sixteen directories.
A record is deleted when its item is right, or is kept as *waived* when a person said so. The text
never contains item data; the key is needed to try again, and is stored as control items are: in the
table itself.
"""

import hashlib
import random
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

from streamkit.errors import LeaseLost, some_of
from streamkit.model.conditions import Attr, Condition
from streamkit.progress.actions import Action, Wire
from streamkit.progress.control import DIRECTORIES, names_in
from streamkit.progress.cursor import CursorStore
from streamkit.progress.scan.places import place_of, place_text
from streamkit.progress.transaction import transact

KINDS: Final = (
    *("transform", "check", "taken", "invalid", "contended", "ping_pong"),
    *("conflict", "late", "early", "alone"),
)
"""The kinds of errors; see `ItemError`."""
DECIDED: Final = frozenset({"conflict", "early", "alone"})
"""The kinds of errors that end when a person decides for one side, or both sides agree."""


@dataclass(frozen=True, slots=True)
class Reason:
    """Why an item failed: `kind` for programs, `text` for people, `phase` of the migration.

    `detail` is the message of the user's exception, or the values that people decide about; it may
    hold item data. `place` is the file, line and function of the user's code that raised it.
    """

    kind: str
    text: str
    phase: str = ""
    detail: str = ""
    place: str = ""

    @property
    def short_place(self) -> str:
        """The file's name, the line and the function, without the folders."""
        return self.place.replace("\\", "/").rpartition("/")[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemError(Reason):
    """One item that is not in the new shape, and why.

    `kind`: `transform` (the function raised, or returned something impossible), `taken` (another
    item is in a target's place), `invalid` (DynamoDB refuses the item), `contended` (it changed
    each time), `ping_pong` (other code reverts each rewrite; people say when that is over),
    `conflict` (old and new code have written the same), `early` (new code wrote what a rollback
    cannot bring back; `key` is the old item's), `alone` (a part of a split whose item is gone),
    `late` (old code wrote after the end), `check` (a check of the function's result does not hold).

    `shown` is a digest of what a person decides about: a waiver covers only that, and nothing that
    is written later. `since` is when the item first failed, `at` when it did last; the
    reason is that of the last failure. `notes` is how often it was written down.
    """

    id: str
    key: dict[str, Wire]
    at: float
    waived: str = ""
    shown: str = ""
    since: float = 0.0
    notes: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON types, without the key and the message of the exception."""
        names = ("id", "kind", "text", "at", "waived", "since", "phase", "place")
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True, slots=True)
class ErrorGroup:
    """The items that failed for one reason; `example` is the one that failed first."""

    kind: str
    text: str
    place: str
    items: int
    waived: int
    since: float
    example: str


def groups_of(errors: Iterable[ItemError]) -> list[ErrorGroup]:
    """Return failed items by the reason, most items first."""
    found: dict[tuple[str, str, str], list[ItemError]] = {}
    for one in errors:
        found.setdefault((one.kind, one.text, one.short_place), []).append(one)
    groups = [
        ErrorGroup(
            *why,
            items=len(ones),
            waived=sum(bool(one.waived) for one in ones),
            since=min(one.since for one in ones),
            example=min(ones, key=lambda one: one.since).id,
        )
        for why, ones in found.items()
    ]
    return sorted(groups, key=lambda group: -group.items)


async def note_latest(store: CursorStore, action: Action, name: str, at: int) -> None:
    """Write down a moment with an update, unless a later one is known."""
    action.sets[name] = {"N": str(at)}
    with suppress(LeaseLost):
        await store.write(action.only_if(Attr(name).not_exists() | Attr(name).lt(at)))


def error_id(key: Mapping[str, Wire]) -> str:
    """Return the name of an item's record: a hash of its key."""
    return place_id(place_text(key))


def place_id(place: str) -> str:
    """Return the name of the record of the item in a place."""
    return hashlib.blake2b(place.encode(), digest_size=8).hexdigest()


@dataclass(frozen=True)
class ErrorBook:
    """The records of one migration."""

    store: CursorStore
    migration: str

    async def add(
        self,
        key: Mapping[str, Wire],
        reason: Reason,
        at: float,
        *,
        name: str = "",
        shown: str = "",
    ) -> bool:
        """Write down that an item failed, `at` epoch seconds; return whether it is waived.

        The record's `name` is by default the hash of the key. A waiver covers only what is `shown`,
        which is a digest of what a person would decide about.
        """
        name = name or error_id(key)
        action = self.store.space.update("error", self.migration, name)
        action.sets |= {
            "name": {"S": name},
            "what": {"S": reason.kind},
            "text": {"S": reason.text[:500]},
            "phase": {"S": reason.phase},
            "detail": {"S": reason.detail[:1000]},
            "place": {"S": reason.place},
            "item": {"S": place_text(key)},
            "at": {"N": f"{at:.0f}"},
            "shown": {"S": shown},
        }
        action.adds["notes"] = Decimal(1)
        found = await self.store.write(action)
        if "since" not in found:
            # A record with it is listed: `remove` takes both away at once.
            await self.store.write(self.store.space.with_name(name, *self._directory(name)))
            first = self.store.space.update("error", self.migration, name)
            first.sets["since"] = action.sets["at"]
            with suppress(LeaseLost):  # it was removed, or another process has noted the item, too
                await self.store.write(first.only_if(_as_read(_read(found))))
        return bool(_read(found).waived)

    async def remove(self, error: ItemError) -> bool:
        """Delete a record as it was read, because its item is right now; return whether it is gone.

        One that another process has written since stays: it says something newer.
        """
        space = self.store.space
        record = space.delete("error", self.migration, error.id).only_if(_as_read(error))
        actions = [record, space.without_name(error.id, *self._directory(error.id))]
        schemas = {space.schema.name: space.schema}
        sent = await transact(self.store.dynamodb, schemas, actions, random.Random())
        return sent is None or await self.get(error.id) is None

    async def waive(self, name: str, reason: str) -> bool:
        """Waive an item as it is shown now; return whether there is such a record."""
        found = await self.get(name)
        if found is None:
            return False
        action = self.store.space.update("error", self.migration, name)
        action.sets |= {"waived": {"S": reason}, "decided": {"S": found.shown}}
        await self.store.write(action)
        return True

    async def get(self, name: str) -> ItemError | None:
        """Return one record."""
        item = await self.store.item("error", self.migration, name)
        return None if item is None or "item" not in item else _read(item)

    async def all(self) -> list[ItemError]:
        """Return every record, the oldest first."""
        numbers = [("errors", self.migration, str(n)) for n in range(DIRECTORIES)]
        names = names_in(*await self.store.items(numbers))
        items = await self.store.items([("error", self.migration, n) for n in sorted(names)])
        return sorted((_read(item) for item in items if "item" in item), key=lambda e: e.at)

    async def open(self) -> list[ItemError]:
        """Return the records that are not waived."""
        return [error for error in await self.all() if not error.waived]

    async def not_right(self, kinds: Collection[str] | None = None) -> str | None:
        """Return which items are not right, and what people do about it; None if all are.

        Of some `kinds` it returns those alone.
        """
        found = [error for error in await self.open() if kinds is None or error.kind in kinds]
        if not found:
            return None
        items = "1 item is" if len(found) == 1 else f"{len(found)} items are"
        return (
            f"{items} not right ({some_of([error.id for error in found])}); `streamkit migrate"
            f" errors list APP {self.migration}` shows them: mend each and `errors retry`, or"
            " decide with `errors retry ITEM --take old` or `--take new`"
        )

    # -- writes at old keys --------------------------------------------------------------------

    async def written(self, key: Mapping[str, Wire], at: float) -> None:
        """Write down when old code last wrote at an old key, unless a later write is known."""
        action = self.store.space.update("written", self.migration)
        action.sets["name"] = {"S": error_id(key)}
        await note_latest(self.store, action, "at", round(at))

    async def last_written(self) -> tuple[str, float] | None:
        """Return which item old code last wrote at its old key, by its hash, and when."""
        item = await self.store.item("written", self.migration)
        return None if item is None else (item["name"]["S"], float(item["at"]["N"]))

    def _directory(self, name: str) -> tuple[str, ...]:
        return "errors", self.migration, str(int(name[:4], 16) % DIRECTORIES)


def _as_read(error: ItemError) -> Condition:
    """Return the condition that a record is as it was read, but for a waiver since."""
    notes, at = Attr("notes"), Attr("at").eq(round(error.at))
    counted = notes.eq(error.notes) if error.notes else notes.not_exists()
    return counted & at


def _read(item: Mapping[str, Any]) -> ItemError:
    shown, decided = (item.get(name, {"S": ""})["S"] for name in ("shown", "decided"))
    return ItemError(
        id=item["name"]["S"],
        kind=item["what"]["S"],
        text=item["text"]["S"],
        key=place_of(item["item"]["S"]),
        at=float(item["at"]["N"]),
        waived=item.get("waived", {"S": ""})["S"] if shown == decided else "",
        shown=shown,
        since=float(item.get("since", item["at"])["N"]),
        notes=int(item.get("notes", {"N": "0"})["N"]),
        **{name: item.get(name, {"S": ""})["S"] for name in ("phase", "detail", "place")},
    )
