"""Sightings: every call that reached the engine, with its process and its writes.

Invariants are checked on sightings: on the engine's own log, not on what a client believes. Writes
are read from the stream's own records, control items among them, so a sighting shows each item
before and after the call.
"""

from dataclasses import dataclass, field
from typing import Any

from streamkit.local.engine import CallRecord, Engine
from streamkit.local.errors import ApiError
from streamkit.local.iterators import ShardIterator
from streamkit.local.records import EngineRecord
from streamkit.local.values import item_size
from streamkit.progress.actions import CONTROL_ATTRIBUTE, CONTROL_PREFIX, own_attributes
from streamkit.progress.control import Cursor, read_cursor

WRITES = frozenset(
    {
        "BatchWriteItem",
        "DeleteItem",
        "PutItem",
        "PutObject",
        "TransactWriteItems",
        "UpdateItem",
    }
)
"""The operations that may change items, or objects of an archive."""

_MANY = 1 << 40
_EVER = float("inf")


@dataclass(frozen=True, slots=True)
class SeenWrite:
    """One change of one item, from its stream record.

    Attributes:
        shard: the shard that its record is in.
        sequence: its sequence number there.
        at: the time of the change, by the engine's clock.
        keys: the item's key, in wire form.
        old, new: the images, in wire form.
        size: the bytes of the item afterwards, by DynamoDB's rules.
    """

    shard: str
    sequence: int
    at: float
    keys: dict[str, Any]
    old: dict[str, Any] | None
    new: dict[str, Any] | None
    size: int = 0

    @property
    def is_control(self) -> bool:
        """Return whether the item is one of streamkit's own."""
        return any(value.get("S", "").startswith(CONTROL_PREFIX) for value in self.keys.values())

    @property
    def kind(self) -> str:
        """Return the kind of a control item; empty for the application's items."""
        image = self.new or self.old or {}
        kind: str = image.get(f"{CONTROL_ATTRIBUTE}kind", {"S": ""})["S"]
        return kind if self.is_control else ""

    @property
    def before(self) -> Cursor | None:
        """Return the cursor before the change, if the item is a cursor and was there."""
        return _cursor(self.old)

    @property
    def after(self) -> Cursor | None:
        """Return the cursor after the change, if the item is a cursor and is there."""
        return _cursor(self.new)


def _cursor(image: dict[str, Any] | None) -> Cursor | None:
    if image is None or image.get(f"{CONTROL_ATTRIBUTE}kind") != {"S": "cursor"}:
        return None
    return read_cursor(own_attributes(image))


@dataclass(frozen=True, slots=True)
class SeenCall:
    """One call, at the time when the engine carried it out.

    Attributes:
        actor: the process that made it; empty for the world outside.
        sent: when the process sent it, by the engine's clock: earlier than `call.at` if the call
            was slow, late or frozen on its way.
        call: the request and the reply.
        writes: the changes that the call made.
    """

    actor: str
    sent: float
    call: CallRecord
    writes: tuple[SeenWrite, ...] = ()

    def cursors(self) -> list[tuple[Cursor | None, Cursor | None]]:
        """Return each cursor that the call wrote, before and after."""
        return [(w.before, w.after) for w in self.writes if w.kind == "cursor"]


def moved(before: Cursor, after: Cursor) -> bool:
    """Return whether a write of a cursor was a commit, not a take or a release."""
    return (before.position, before.state, before.commit, before.done) != (
        after.position,
        after.state,
        after.commit,
        after.done,
    )


def taken(before: Cursor | None, after: Cursor | None) -> bool:
    """Return whether a write of a cursor gave it an owner."""
    if after is None or after.owner is None:
        return False
    return before is None or (before.owner, before.epoch) != (after.owner, after.epoch)


def shard_read(sighting: SeenCall) -> str | None:
    """Return the shard that a `GetRecords` reads; None if its iterator is not valid."""
    try:
        return ShardIterator.parse(sighting.call.payload["ShardIterator"]).shard_id
    except ApiError:
        return None


@dataclass
class RecordLog:
    """Find the records that an engine's streams have taken since the last call."""

    _last: dict[str, int] = field(default_factory=dict)

    def new(self, engine: Engine) -> tuple[SeenWrite, ...]:
        """Return the writes since the last call, shard by shard."""
        found: list[SeenWrite] = []
        for stream in engine.streams.all():
            for shard in stream.open_shards():
                last = self._last.get(shard.id, 0)
                if shard.last == last:
                    continue
                found += [_write(shard.id, r) for r in shard.page(last, _MANY, _EVER)]
                self._last[shard.id] = shard.last
        return tuple(found)


def _write(shard: str, record: EngineRecord) -> SeenWrite:
    keys, new, old = record.images()
    size = 0 if new is None else item_size(new)
    return SeenWrite(shard, record.sequence, record.created, keys, old, new, size)
