"""Retention: a check that only trimmed records are passed over, and never without a report.

In: sightings, and the engine, which alone knows what it has trimmed. Out: texts of violations; the
lost records; and what was met, in `counts`:

    loss            a cursor says that records may be lost, and some of its shard are
    possible_loss   it says so, and none are
    shard_gone      it says so of a shard that is not there any more

A *report* is a write of `lost` into a cursor, made before its shard is read further. Every record
that a position passes was served to the process that commits, or is trimmed and under a report.
The reverse is not a rule, because trimmed records cannot be looked at. A report of a shard that
lost nothing is allowed where no process can know that, which is so in two cases only:

    the shard is gone, and no reader was ever told that it had reached its end
    nothing shows that the shard was read to its tip, or any record of it, within the retention less
    the hour that a reader keeps as a margin

A *certain* loss means that a record is gone whose processing had begun; it must never be false.
"""

from collections import Counter, defaultdict, deque
from collections.abc import Iterator
from dataclasses import dataclass

from streamkit.local.engine import Engine
from streamkit.local.shards import EngineShard, HashRange
from streamkit.progress.control import START, Cursor
from streamkit.stream.start import RETENTION_SECONDS
from streamkit.testing.sightings import SeenCall, SeenWrite, shard_read, taken

_KNOWN_SECONDS = RETENTION_SECONDS - 3600
_SECOND = 1.0
"""Times that streamkit stores are cut to the second."""


@dataclass(frozen=True, slots=True)
class _Report:
    """Records of a shard that were created before `until` may be lost."""

    shard: str
    until: float


class Retention:
    """Check the records of a consumer that starts at the oldest record."""

    def __init__(self, engine: Engine, counts: Counter[str] | None = None) -> None:
        self.counts: Counter[str] = Counter() if counts is None else counts
        self._engine = engine
        self._founded = 0.0
        self._hashes: dict[str, HashRange] = {}
        self._unread: dict[str, deque[SeenWrite]] = defaultdict(deque)
        self._readers: dict[str, str] = {}
        self._served: dict[str, dict[int, float]] = defaultdict(dict)  # to the present reader
        self._reports: list[_Report] = []
        self._missed: dict[tuple[str, int], SeenWrite] = {}

    # -- results -------------------------------------------------------------------------------

    def is_missed(self, write: SeenWrite) -> bool:
        """Return whether a position has passed a record that was not processed."""
        return (write.shard, write.sequence) in self._missed

    def lost(self) -> list[SeenWrite]:
        """Return the records that were trimmed and never processed, passed by a position or not."""
        return [*self._missed.values(), *self._trimmed(*self._unread)]

    def silent(self) -> list[str]:
        """Return the losses without a report, including those of shards that were never read."""
        lost = self._trimmed(*self._unread)
        return [f"{_text(write)} is lost in silence" for write in lost if not self._told(write)]

    def certain(self, shard: str) -> list[str]:
        """Check that a record of a shard is lost, as a worker reports a certain loss."""
        return [] if self._trimmed(shard) else [f"{shard}: a certain loss, and nothing is lost"]

    # -- sightings -----------------------------------------------------------------------------

    def see(self, sighting: SeenCall) -> Iterator[str]:
        """Check one sighting."""
        for write in sighting.writes:
            self._note(write)
        if sighting.call.operation == "GetRecords" and sighting.call.status == 200:
            self._serve(sighting)
        for before, after in sighting.cursors():
            if after is not None:
                self._learn(after.name)
            if before is not None and after is not None:
                yield from self._judge(sighting, before, after)

    def _note(self, write: SeenWrite) -> None:
        self._learn(write.shard)
        self._unread[write.shard].append(write)
        if write.kind == "consumer" and write.old is None:
            self._founded = write.at

    def _learn(self, name: str) -> None:
        """Keep a shard's hashes, because the shard may be gone later."""
        if name not in self._hashes and (shard := self._shard(name)) is not None:
            self._hashes[name] = shard.hashes

    def _serve(self, sighting: SeenCall) -> None:
        shard = shard_read(sighting) or ""
        if self._readers.get(shard) != sighting.actor:
            return
        served = self._served[shard]
        for entry in sighting.call.body["Records"]:
            record = entry["dynamodb"]
            served[int(record["SequenceNumber"])] = record["ApproximateCreationDateTime"]

    def _judge(self, sighting: SeenCall, before: Cursor, after: Cursor) -> Iterator[str]:
        if taken(before, after):
            self._readers[after.name] = sighting.actor
            self._served[after.name] = {}  # records that were read and not committed are dropped
        if after.lost != before.lost:
            yield from self._report(sighting, before, after)
        position = 0 if after.position == START else int(after.position)
        unread, served = self._unread[after.name], self._served[after.name]
        while unread and (after.finished or unread[0].sequence <= position):
            write = unread.popleft()
            if self._readers.get(after.name) != sighting.actor or write.sequence not in served:
                yield from self._miss(write)
            served.pop(write.sequence, None)

    def _miss(self, write: SeenWrite) -> Iterator[str]:
        self._missed[write.shard, write.sequence] = write
        if not self._is_trimmed(write):
            yield f"{_text(write)} was passed over, and is still there"
        elif not self._told(write):
            yield f"{_text(write)} was passed over in silence"

    def _report(self, sighting: SeenCall, before: Cursor, after: Cursor) -> Iterator[str]:
        self._reports.append(_Report(after.name, after.seen + _SECOND))
        gone = self._shard(after.name) is None
        self.counts["shard_gone"] += gone
        if self._trimmed(after.name):
            self.counts["loss"] += 1
            return
        self.counts["possible_loss"] += 1
        known = max(before.seen, before.since, *self._served[after.name].values(), 0)
        if before.position == START:
            known = max(known, self._founded)
        if not gone and sighting.call.at - known < _KNOWN_SECONDS - _SECOND:
            yield f"{after.name}: a loss is reported, but all that is trimmed is known to be read"

    # -- what the engine knows -----------------------------------------------------------------

    def _shard(self, name: str) -> EngineShard | None:
        found = (stream.shard(name) for stream in self._engine.streams.all())
        return next((shard for shard in found if shard is not None), None)

    def _trimmed(self, *names: str) -> list[SeenWrite]:
        """Return the application's trimmed records that are neither committed nor with a reader."""
        return [
            write
            for name in names
            for write in self._unread[name]
            if not write.is_control
            and write.sequence not in self._served[name]
            and self._is_trimmed(write)
        ]

    def _is_trimmed(self, write: SeenWrite) -> bool:
        shard = self._shard(write.shard)
        return shard is None or write.sequence <= shard.trimmed

    def _told(self, write: SeenWrite) -> bool:
        """Return whether a report covers a record, or it is older than the consumer could read."""
        mine = self._hashes[write.shard]
        return write.at < self._founded - _KNOWN_SECONDS or any(
            write.at < report.until and _overlap(mine, self._hashes.get(report.shard, mine))
            for report in self._reports
        )


def _overlap(one: HashRange, other: HashRange) -> bool:
    return one.low < other.high and other.low < one.high


def _text(write: SeenWrite) -> str:
    return f"record {write.sequence} of {write.shard}"
