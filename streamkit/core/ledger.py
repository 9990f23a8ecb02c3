"""The ledger of a build: what an aggregate contains of each source item, during a backfill.

    no entry    nothing
    a text      what an image that the scan read contributes, see `kinds.aggregate.counting`
    live        what the change before contributes: its old image says what

There is one control item for each source item. Its name has a hash of the item's key and the
build's number, so that no build reads the ledger of another. On a table with a sort key the entries
share some partitions, from which the sweep reads them; on other tables a scan finds them.

In: a source item's key. Out: its entry, with pending effects applied; it becomes a check in the
result. On failure: a table that does not answer is `Unavailable`, and the handler runs again.
"""

from collections.abc import Mapping
from decimal import Decimal
from hashlib import blake2b
from typing import Any

import msgspec

from streamkit.changes import ItemKey
from streamkit.core.availability import available
from streamkit.core.reading import ReadTracker, applied
from streamkit.core.reads import Read
from streamkit.errors import ConfigurationError
from streamkit.model.conditions import Attr, Condition, absent
from streamkit.progress.actions import Action, ItemRef, Verb, Wire, item_ref, own_attributes
from streamkit.progress.control import ControlSpace

LIVE = "live"
"""The entry of an item whose changes are counted by their old images."""

PARTITIONS = 64
"""The number of partition keys over which the entries of one build are spread."""


def ledger_kind(aggregate: str, build: int, partition: int) -> str:
    """Return the name of one partition of a ledger, on a table with a sort key."""
    return f"ledger#{aggregate}#{build}#{partition:02x}"


def entry_ref(space: ControlSpace, aggregate: str, build: int, key: ItemKey) -> ItemRef:
    """Return the reference of a source item's entry."""
    hashed = blake2b(digest_size=15)
    for value in (key.pk, key.sk):
        text = _text(value)
        hashed.update(b"%d:" % len(text) + text)
    digest = hashed.digest()
    if space.schema.sk is None:
        return space.ref("ledger", aggregate, str(build), digest.hex())
    kind = ledger_kind(aggregate, build, digest[0] % PARTITIONS)
    return item_ref(space.schema, space.row(kind, int.from_bytes(digest)))


def _text(value: object) -> bytes:
    """Return a key's value as bytes; equal values have equal bytes: 100 and 1E+2 are one number."""
    if isinstance(value, bytes):
        return b"B" + value
    if isinstance(value, int | Decimal):
        return f"N{Decimal(value).normalize()}".encode()
    return f"S{value}".encode()


def written(ref: ItemRef, entry: str) -> Action:
    """Return the action that writes an entry."""
    return Action(ref, Verb.PUT, item={"kind": {"S": "ledger"}, "entry": {"S": entry}})


class LedgerEntry(msgspec.Struct, frozen=True):
    """One entry as it was read; `text` is None if there is no entry."""

    ref: ItemRef
    text: str | None

    @property
    def is_live(self) -> bool:
        """Return whether changes of the item are counted by their old images."""
        return self.text == LIVE


class Ledger:
    """Reads entries for one run of a handler; each handler in a build gets one."""

    def __init__(self, dynamodb: Any, space: ControlSpace | None, tracker: ReadTracker) -> None:
        self._dynamodb = dynamodb
        self._space = space
        self._tracker = tracker

    async def entry(self, aggregate: str, build: int, key: ItemKey) -> LedgerEntry:
        """Return the entry of an item; the result is valid only if the commit finds the same entry.

        Raises:
            Unavailable: the table throttles or does not answer.
        """
        if self._space is None:
            raise ConfigurationError("the cursor names no ledger for its build")
        ref = entry_ref(self._space, aggregate, build, key)
        stored = await self._stored(ref)
        versions, actions = self._tracker.pending.of(ref)
        item = applied(actions, stored) or {}
        entry = LedgerEntry(ref, item["entry"]["S"] if "entry" in item else None)
        self._tracker.reads.append(Read(ref, versions, stored, _as_stored))
        return entry

    async def _stored(self, ref: ItemRef) -> dict[str, Any] | None:
        schema = self._space.schema if self._space else None
        assert schema is not None  # noqa: S101 - `entry` has looked
        request = {"TableName": schema.name, "Key": ref.key(schema), "ConsistentRead": True}

        async def read() -> dict[str, Any] | None:
            reply = await available(self._dynamodb.get_item(**request))
            return own_attributes(reply["Item"]) if "Item" in reply else None

        return await self._tracker.pending.uncommitted.items.once(ref, read)


def _as_stored(stored: Mapping[str, Wire] | None) -> tuple[Condition, ...]:
    """Return the condition that an entry is as it was read; a live entry never changes."""
    if stored is None:
        return (absent,)
    entry = stored["entry"]["S"]
    return () if entry == LIVE else (Attr("entry").eq(entry),)
