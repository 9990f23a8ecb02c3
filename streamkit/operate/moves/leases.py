"""Translate the leases of a KCL into cursors. Pure, except for the read of the lease table.

Each lease is an item `leaseKey` (the shard, after the stream's name if the KCL read several) with a
`checkpoint`, the same in versions 1, 2 and 3. Version 3 may keep more in the same table, such as
its workers' metrics: an item that is not a lease has an `entityType`. The checkpoint is the last
record that was processed:

    SHARD_END       the shard is finished
    a number        reading continues after that record
    TRIM_HORIZON    nothing was processed: from the oldest record, once its parent is finished
    LATEST          nothing was processed, and the KCL would begin at "now": from a given moment
    no lease        finished if a younger shard of its line has one, because a KCL deletes the
                    leases of shards whose children it has begun; else it was never begun

In: leases, and the stream's shards. Out: cursors, remarks, and reasons against the import.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from streamkit.aws import Aws, AwsError, ErrorKind, trouble_of
from streamkit.errors import ConfigurationError
from streamkit.operate.moves.positions import add_cursor, fresh_cursor
from streamkit.progress.control import Cursor
from streamkit.progress.fetch import pages_of
from streamkit.stream.decode.envelope import POSITION_DIGITS
from streamkit.stream.lineage import Shard, parents_first

SHARD_END, TRIM_HORIZON, LATEST = "SHARD_END", "TRIM_HORIZON", "LATEST"


@dataclass(frozen=True, slots=True)
class Lease:
    """One lease; its `counter` grows while a KCL worker holds the lease."""

    shard: str
    checkpoint: str
    counter: int = 0
    parent: str | None = None


@dataclass(frozen=True)
class LeasePositions:
    """The cursors, parents first; `notes`, and `reasons` against the import, are for people."""

    cursors: tuple[Cursor, ...]
    notes: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()


async def read_leases(aws: Aws, table: str, stream_arn: str) -> dict[str, Lease]:
    """Read the leases of one stream, by shard.

    Raises:
        ConfigurationError: the table is missing, may not be read, or holds no leases.
    """
    leases: dict[str, Lease] = {}
    items = 0
    try:
        async for reply in pages_of(aws.dynamodb.scan, TableName=table, ConsistentRead=True):
            found = [item for item in reply["Items"] if _is_lease(item)]
            items += len(found)
            leases |= {lease.shard: lease for item in found for lease in _read(item, stream_arn)}
    except AwsError as error:
        if trouble_of(error) is not ErrorKind.MISSING:
            raise
        raise ConfigurationError(
            f"there is no table {table!r}: name the KCL's lease table"
        ) from error
    if not items:
        raise ConfigurationError(f"table {table} has no leases: items with leaseKey and checkpoint")
    return leases


def _is_lease(item: Mapping[str, Any]) -> bool:
    return {"leaseKey", "checkpoint"} <= item.keys() and "entityType" not in item


def _read(item: Mapping[str, Any], stream_arn: str) -> Iterable[Lease]:
    """Yield a lease, unless it belongs to another stream."""
    stream, _, shard = item["leaseKey"]["S"].rpartition(":")
    table, label = stream_arn.rpartition(":table/")[2].split("/stream/")
    # A KCL of several streams writes account:region$account$table$label:1:shard.
    if stream and f"${table}${label.replace(':', '_')}:" not in f"{stream}:":
        return
    parents = item.get("parentShardId", {}).get("SS", [])
    counter = int(item.get("leaseCounter", {"N": "0"})["N"])
    yield Lease(shard, item["checkpoint"]["S"], counter, next(iter(parents), None))


@dataclass
class _CursorMaker:
    """Makes cursors from leases."""

    shards: dict[str, Shard]
    leases: Mapping[str, Lease]
    gone: frozenset[str]
    generation: int
    caught_up: int
    now: int
    passed: set[str] = field(default_factory=set)
    made: dict[str, Cursor] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)

    def finished(self, shard: str | None) -> bool:
        lease = self.leases.get(shard or "")
        return shard in self.passed if lease is None else lease.checkpoint == SHARD_END

    def note_passed(self) -> None:
        """Find shards without a lease that were read, because later shards were begun."""
        for lease in self.leases.values():
            shard = self.shards.get(lease.shard)
            while shard is not None and shard.parent in self.shards:
                shard = self.shards[shard.parent]
                if shard.id not in self.leases:
                    self.passed.add(shard.id)

    def look_at(self, shard: Shard) -> None:
        """Make the cursor of a shard, if it may have one; its parents come first."""
        lease = self.leases.get(shard.id)
        if lease is None and shard.id not in self.passed:
            if not self.finished(shard.parent):
                self.notes.append(f"{shard.id} has no lease: it is read from its oldest record")
            return
        checkpoint = SHARD_END if lease is None else lease.checkpoint
        waits = shard.parent in self.shards and not self.finished(shard.parent)
        if waits and checkpoint not in (TRIM_HORIZON, LATEST):
            self.reasons.append(
                f"{shard.id} was begun before {shard.parent} was finished; let a KCL finish that"
            )
            return
        if shard.id in self.gone and checkpoint != SHARD_END:
            self.reasons.append(
                f"{shard.id} is gone, and was not read to its end: changes are lost; delete its"
                " lease to go on without them"
            )
            return
        if waits:
            return  # it is found when its parent is finished
        cursor = self._cursor(shard, checkpoint)
        if cursor is not None:
            add_cursor(cursor, self.made)

    def _cursor(self, shard: Shard, checkpoint: str) -> Cursor | None:
        cursor = fresh_cursor(shard, self.made, generation=self.generation)
        cursor = replace(cursor, seen=self.caught_up)
        if checkpoint == SHARD_END:
            return replace(cursor, state="finished", ended=self.now)
        if checkpoint == TRIM_HORIZON:
            return cursor
        if checkpoint == LATEST and self.caught_up:
            return replace(cursor, since=self.caught_up)
        if checkpoint == LATEST:
            self.reasons.append(
                f"{shard.id} is at LATEST, and the KCL has processed nothing of it: say since when"
                " changes count (--caught-up-at)"
            )
            return None
        if not checkpoint.isdecimal() or len(checkpoint) > POSITION_DIGITS:
            self.reasons.append(f"{shard.id}: {checkpoint!r} is no checkpoint of a DynamoDB stream")
            return None
        return replace(cursor, position=checkpoint.zfill(POSITION_DIGITS))


def positions(
    listed: Sequence[Shard],
    leases: Mapping[str, Lease],
    *,
    gone: frozenset[str],
    generation: int,
    caught_up: int,
    now: int,
) -> LeasePositions:
    """Return the cursors that the leases mean.

    Args:
        listed: the shards of one complete listing.
        leases: the leases by shard.
        gone: shards of leases that are not listed and do not exist any more.
        generation: the generation of the cursors.
        caught_up: when the KCL was known to be at the tip of every shard (epoch seconds, or 0).
        now: epoch seconds.
    """
    shards = {shard.id: shard for shard in listed}
    unlisted = [lease for lease in leases.values() if lease.shard not in shards]
    parents = {shard.parent for shard in listed}
    for lease in unlisted:
        over = lease.checkpoint == SHARD_END and lease.shard in gone
        if not over or lease.shard in parents:
            shards[lease.shard] = Shard(lease.shard, lease.parent)
    reading = _CursorMaker(shards, leases, gone, generation, caught_up, now)
    if not any(shard.id in leases for shard in listed):
        reading.reasons.append("none of the leases is of a shard of this stream")
    reading.note_passed()
    for shard in parents_first(shards.values()):
        reading.look_at(shard)
    old = sum(lease.shard not in shards for lease in unlisted)
    if old:
        reading.notes.append(f"{old} leases are of finished shards that are gone")
    return LeasePositions(
        tuple(reading.made.values()), tuple(reading.notes), tuple(reading.reasons)
    )
