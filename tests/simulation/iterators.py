"""Iterators: a check of where readers open their shards, from the log of calls alone.

A reader opens a shard after the last record that it has read, or after its cursor's position when
it has just taken the shard, or at the horizon if it has neither; never at the tip. From outside it
is not quite known what a process has read, because a reply may be lost on its way. The process has
read all pages before the iterator that it used last, and perhaps the pages served since. So it may
continue after any of these pages, but neither before the first nor past the last.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from streamkit.local.errors import ApiError
from streamkit.local.iterators import ShardIterator
from streamkit.progress.control import START, Cursor
from streamkit.testing.sightings import SeenCall, taken


@dataclass
class _Reader:
    """A process's progress in a shard: it has read up to `sure`, perhaps up to one of `served`."""

    sure: int
    served: set[int] = field(default_factory=set)

    def reached(self, number: int) -> None:
        """Note that the process has shown that it has read to the end of a page."""
        if number in self.served:
            self.sure = number
            self.served = {later for later in self.served if later > number}


@dataclass
class Iterators:
    """A reader opens after the last record it has read, or at the horizon if there is none."""

    _cursors: dict[str, Cursor] = field(default_factory=dict)
    _readers: dict[tuple[str, str], _Reader] = field(default_factory=dict)
    _takers: dict[str, str] = field(default_factory=dict)
    _trimmed: set[tuple[str, str]] = field(default_factory=set)

    def see(self, sighting: SeenCall) -> Iterator[str]:
        """Check one sighting."""
        for before, after in sighting.cursors():
            if after is not None:
                self._cursors[after.name] = after
                if taken(before, after):
                    self._readers[sighting.actor, after.name] = _Reader(_number(after))
                    self._takers[after.name] = sighting.actor
        if sighting.call.operation == "GetRecords":
            self._read(sighting)
        elif sighting.call.operation == "GetShardIterator":
            yield from self._open(sighting)

    def _read(self, sighting: SeenCall) -> None:
        call = sighting.call
        try:
            iterator = ShardIterator.parse(call.payload["ShardIterator"])
        except ApiError:
            return
        reader = self._readers.get((sighting.actor, iterator.shard_id))
        if reader is None:
            return
        reader.reached(iterator.after)
        if records := call.body.get("Records"):
            reader.served.add(int(records[-1]["dynamodb"]["SequenceNumber"]))

    def _open(self, sighting: SeenCall) -> Iterator[str]:
        call = sighting.call
        kind, shard = call.payload["ShardIteratorType"], call.payload["ShardId"]
        cursor, place = self._cursors.get(shard), (sighting.actor, shard)
        if kind == "AFTER_SEQUENCE_NUMBER" and sighting.sent == call.at:
            yield from self._after(sighting.actor, shard, int(call.payload["SequenceNumber"]))
        if call.status != 200:
            self._trimmed.add(place)
            return
        if kind not in ("AFTER_SEQUENCE_NUMBER", "TRIM_HORIZON"):
            yield f"{sighting.actor} opened {shard} at {kind}"
        elif cursor is None or sighting.sent < call.at:
            return
        elif kind == "TRIM_HORIZON" and self._knows(place, cursor) and place not in self._trimmed:
            yield f"{sighting.actor} opened {shard} at the horizon, its position is known"
        self._trimmed.discard(place)

    def _knows(self, place: tuple[str, str], cursor: Cursor) -> bool:
        """Return whether a process knows a position; without its lease only its own."""
        reader = self._readers.get(place)
        if reader is not None and self._takers.get(cursor.name) != place[0]:
            return reader.sure > 0
        return cursor.position != START

    def _after(self, actor: str, shard: str, number: int) -> Iterator[str]:
        reader = self._readers.get((actor, shard))
        if reader is None:
            return
        reader.reached(number)
        if number < reader.sure:
            yield f"{actor} opened {shard} before {reader.sure}, which it had read"
        elif number > reader.sure:
            yield f"{actor} opened {shard} past {reader.sure}, which is all that it had read"


def _number(cursor: Cursor) -> int:
    return 0 if cursor.position == START else int(cursor.position)
