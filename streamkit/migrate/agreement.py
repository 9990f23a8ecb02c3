"""Detect what was written to either side of a pair since both sides last agreed.

When a pair is switched, its old item takes a digest of itself (`BASE`), and its new one the old
one's key (`SOURCE`). An update by old code leaves the digest and changes the item; a put by old
code removes the digest; a deletion by old code leaves a new item whose old one is gone. So the
items themselves show everything that old code does at an old key, whether or not a process followed
the changes. The two sides have no common order: what only one of them has is carried over or is an
error, and neither wins by time.

In: items as they were read. Out: transactions that check them completely. On failure: `Late` and
`Deleted`, which only a person's decision on what is there now, or an agreement, removes.
"""

import hashlib
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from streamkit.kinds.migration import Migration
from streamkit.migrate.calls import Calls, Outcome
from streamkit.migrate.errors import ErrorBook, error_id
from streamkit.migrate.marks import mark_of
from streamkit.migrate.transform import Rewrite, Transform, alike, plain, visible
from streamkit.migrate.writes import Key, WireItem, check, update, whole
from streamkit.model.codec import NUMBERS
from streamkit.model.conditions import Attr
from streamkit.model.copies import BASE, COPY, FROM, MOVED, SOURCE
from streamkit.model.origin import ORIGIN
from streamkit.model.schema import TableSchema
from streamkit.progress.actions import Action, Wire
from streamkit.progress.scan.places import place_text


class Conflict(Exception):
    """Another item is in a target's place; `kind` is the name of that in its record.

    `key` is the key of the item it is about, if that is not the attempted one; `name` is the
    record's name, and `shown` is a digest of what a person would decide about.
    """

    kind = "conflict"

    def __init__(
        self, text: str, *, key: Key | None = None, name: str = "", shown: str = ""
    ) -> None:
        super().__init__(text)
        self.key = key
        self.name = name
        self.shown = shown


class Late(Conflict):
    """An old item was written after its pair had been switched."""

    kind = "late"


class Deleted(Conflict):
    """An old item was deleted after its pair had been switched."""

    kind = "deleted"


def is_ours(migration: Migration, source: WireItem) -> bool:
    """Return whether an old item is one whose pair this migration has switched."""
    copy = str(source.get(COPY, {}).get("S", ""))
    return copy.startswith(f"{migration.id}:") or source.get(MOVED) == {"S": migration.id}


def digest_of(item: WireItem) -> str:
    """Return a digest of an item's own attributes, the same for all forms of its values."""
    return image_digest(visible(item))


def image_digest(item: WireItem) -> str:
    """Return a digest of all that an item holds, streamkit's own attributes included."""
    return hashlib.blake2b(repr(_canonical(plain(item))).encode(), digest_size=8).hexdigest()


def base_of(transform: Transform, source: WireItem, rewrite: Rewrite | None = None) -> str:
    """Return the digest of the part of an old item that the end of the migration removes."""
    if transform.migration.mode == "rekey":
        return digest_of(source)
    rewrite = rewrite or transform.of(plain(source))
    return digest_of({name: source[name] for name in _taken(rewrite) if name in source})


def _taken(rewrite: Rewrite) -> AbstractSet[str]:
    return rewrite.removes | rewrite.sets.keys()


def key_of(schema: TableSchema, item: WireItem) -> dict[str, Wire]:
    """Return an item's key."""
    return {name: item[name] for name in schema.key_attributes}


@dataclass(frozen=True)
class Agreement:
    """The agreements of one migration's pairs; `writer` is its name in origins."""

    transform: Transform
    calls: Calls
    book: ErrorBook
    writer: str

    def holds(self, source: WireItem) -> bool:
        """Return whether an old item is exactly what its new ones have taken over."""
        if not is_ours(self.transform.migration, source) or BASE not in source:
            return False
        try:
            return source[BASE] == {"S": base_of(self.transform, source)}
        except Exception:  # noqa: BLE001 - a later, closer look reports what the function raises
            return False

    def is_written(self, source: WireItem) -> bool:
        """Return whether other code has written an old item since both sides agreed.

        For an item that was switched by a release without digests this is not known before the end.
        """
        known = BASE in source or not is_ours(self.transform.migration, source)
        return known and not self.holds(source)

    def when_switched(self, source: WireItem, rewrite: Rewrite) -> dict[str, Wire]:
        """Return the attributes that an old item gets when its new ones become the truth."""
        base = {BASE: {"S": base_of(self.transform, source, rewrite)}}
        if self.transform.migration.mode == "split":
            return {MOVED: {"S": self.transform.migration.id}, **base}
        return {COPY: self._copy(rewrite.targets[0].key), **base}

    def of_copy(self, item: WireItem, target: Key) -> dict[str, Wire]:
        """Return the attributes that an old item gets when it is written as its new one says."""
        return {COPY: self._copy(target), BASE: {"S": digest_of(item)}}

    def _copy(self, target: Key) -> Wire:
        return {"S": f"{self.transform.migration.id}:{error_id(target)}"}

    def origin(self, source: Key) -> dict[str, Wire]:
        """Return the attributes by which new items name their old one while both exist."""
        mark = mark_of(self.transform.migration, self.transform.schema, source)[1]
        return {FROM: mark, SOURCE: {"S": place_text(source)}}

    def comes_from(self, target: WireItem | None, source: Key) -> bool:
        """Return whether an item says that it comes from an old one."""
        return target is not None and target.get(FROM) == self.origin(source)[FROM]

    def stamped(self, source: Key, key: Key, target: WireItem) -> Action:
        """Return the action that checks a new item as it was read, and writes its old one's key."""
        schema, origin = self.transform.target, self.origin(source)
        if origin.items() <= target.items():
            return check(schema, key, target)
        return self._mark(schema, key, target, origin)

    def unstamped(self, key: Key, target: WireItem) -> Action:
        """Return the action that removes the name of the old one, which goes, from a new item."""
        held, names = [Attr(FROM).eq(target[FROM]["S"])], (FROM, SOURCE)
        return update(self.transform.target, key, held, self.writer, removes=names)

    def _mark(
        self, schema: TableSchema, key: Key, item: WireItem, sets: Mapping[str, Wire]
    ) -> Action:
        """Return the action that sets attributes of our own, IF an item is exactly as read."""
        return update(schema, key, whole(schema, item), self.writer, sets=sets)

    # -- what old code wrote -------------------------------------------------------------------

    async def settle(
        self, key: Key, source: WireItem, rewrite: Rewrite, there: Mapping[str, WireItem | None]
    ) -> Outcome | None:
        """Accept an old item that was written since the switch, if its new ones say the same.

        Args:
            key: the key of the old item.
            source: the item as it was read.
            rewrite: what the migration makes of it.
            there: the items in the places of its targets, by `place_text` of their keys.

        Returns:
            The outcome of the transaction; None if a person has decided for the new items.

        Raises:
            Late: they differ.
        """
        actions = []
        for target in rewrite.targets:
            found = there[place_text(target.key)]
            if found is None or COPY in found or not alike(found, target.item):
                await self.report_late(key, source)
                return None
            actions.append(self.stamped(key, target.key, found))
        if not actions:
            await self.report_late(key, source)
            return None
        schema = self.transform.schema
        switched = self._mark(schema, key, source, self.when_switched(source, rewrite))
        return await self.calls.transact([switched, *actions])

    async def report_late(self, key: Key, source: WireItem) -> None:
        """Do nothing if a person has decided for the new items, with the old one as it is now.

        Raises:
            Late: no person has decided so.
        """
        if not await self.is_decided(key, source):
            text = "it was written at its old key after the switch, and is not as its new one"
            raise Late(text, key=key, name=error_id(key), shown=digest_of(source))

    async def is_decided(self, key: Key, source: WireItem | None) -> bool:
        """Return whether a person has decided to keep the new items instead of this old one.

        A decision on what old code wrote does not cover its deletion, and the other way around.
        """
        found = await self.book.get(error_id(key))
        if found is None or not found.waived:
            return False
        if source is None:
            return found.kind == Deleted.kind
        return found.shown == digest_of(source)

    async def is_open(self, source: Key) -> bool:
        """Return whether what old code did to an old item is an error without a decision."""
        found = await self.book.get(error_id(source))
        return found is not None and found.kind in ("late", "deleted") and not found.waived

    async def report_deleted(self, source: Key, target: Key) -> None:
        """Do nothing if a person has decided that a new item stays whose old one was deleted.

        Raises:
            Deleted: no person has decided so.
        """
        if not await self.is_decided(source, None):
            text = "it was deleted at its old key after the switch, and is still at its new one"
            raise Deleted(text, key=target, name=error_id(source))

    async def look_for(self, key: Key, old: WireItem) -> None:
        """Look for the new items of an old one that is gone.

        Raises:
            Deleted: one is there; without `reverse` only old code deletes old items.
        """
        migration, schema = self.transform.migration, self.transform.target
        for target in self.transform.of(plain(visible(old))).targets:
            there = await self.calls.get(schema.name, target.key)
            if there is None or COPY in there:
                continue
            if migration.reverse is not None and not self.comes_from(there, key):
                continue  # it was put again; its own changes show what became of it
            gone = await self.calls.get(self.transform.schema.name, key) is None
            if gone and await self.is_as_read(target.key, there):
                await self.report_deleted(key, target.key)

    async def is_as_read(self, key: Key, target: WireItem) -> bool:
        """Return whether a new item is the one that was read before its old one was found gone.

        Both may have been deleted and written again in between; each write has a different origin.
        """
        now = await self.calls.get(self.transform.target.name, key)
        return now is not None and all(now.get(n) == target.get(n) for n in (FROM, ORIGIN))

    async def both_are_gone(self, source: Key) -> None:
        """Forget that an old item was deleted, because its new item is deleted too."""
        found = await self.book.get(error_id(source))
        if found is not None and found.kind == "deleted":
            await self.book.remove(found.id)


def _canonical(value: Any) -> Any:
    """Return a value that has the same text for all forms of it."""
    if isinstance(value, Mapping):
        return [(name, _canonical(value[name])) for name in sorted(value)]
    if isinstance(value, AbstractSet):
        return "set", sorted((_canonical(one) for one in value), key=repr)
    if isinstance(value, list | tuple):
        return "list", [_canonical(one) for one in value]
    if isinstance(value, int | Decimal) and not isinstance(value, bool):
        return "number", str(NUMBERS.create_decimal(value).normalize(NUMBERS))
    return value
