"""Coverage: what a run has met, so that a suite can name what none of its runs has met.

A suite that claims to survive an event must have met it. `Coverage` counts the events that
sightings show. The driver of a run adds to the same `counts` the events that only it knows (kills,
freezes, faults).
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from streamkit.local.engine import Engine
from streamkit.local.errors import ApiError
from streamkit.local.iterators import ShardIterator
from streamkit.progress.control import Cursor
from streamkit.testing.sightings import SeenCall, moved, taken


@dataclass
class Coverage:
    """Counts, for one engine. A watcher of a `World`.

    Names: `commit`, `change` (the driver counts the application's records that were passed),
    `take`, `handover` (a released cursor taken by another process), `steal` (taken from an owner
    that has not released it), `finish`, `iterator_expiry`, `empty_page` (although records follow),
    `late_child` (a child that exists and is not listed), `open_parent` (a closed shard listed as
    open), `trim` (a shard with all its records), `two_generations` (members of two roll-outs at
    the same time).
    """

    engine: Engine
    counts: Counter[str] = field(default_factory=Counter)
    _last_owners: dict[str, str | None] = field(default_factory=dict)
    _members: dict[str, str] = field(default_factory=dict)
    _shards: set[str] = field(default_factory=set)

    def __call__(self, sighting: SeenCall) -> None:
        """Count the events that one sighting shows."""
        self.counts["call"] += 1
        for before, after in sighting.cursors():
            if before is not None and after is not None:
                self._cursor(before, after)
        for write in sighting.writes:
            if write.kind in ("member", "members"):
                self._member(str(write.keys), (write.new or {}).get("_sk_fingerprint", {}).get("S"))
        operation = sighting.call.operation
        if operation == "GetRecords":
            self._read(sighting)
        elif operation == "DescribeStream" and sighting.call.status == 200:
            self._listed(sighting)

    def missing(self, wanted: Iterable[str]) -> list[str]:
        """Return the names that were never counted."""
        return sorted(name for name in wanted if not self.counts[name])

    def _cursor(self, before: Cursor, after: Cursor) -> None:
        if moved(before, after):
            self.counts["commit"] += 1
            self.counts["finish"] += after.finished and not before.finished
        if taken(before, after):
            self.counts["take"] += 1
            if before.owner is not None:
                self.counts["steal"] += before.owner != after.owner
            elif self._last_owners.get(after.name, after.owner) != after.owner:
                self.counts["handover"] += 1
            self._last_owners[after.name] = after.owner

    def _member(self, name: str, fingerprint: str | None) -> None:
        if fingerprint is None:
            self._members.pop(name, None)
        elif self._members.get(name) != fingerprint:
            self._members[name] = fingerprint
            self.counts["two_generations"] += len(set(self._members.values())) > 1

    def _read(self, sighting: SeenCall) -> None:
        call = sighting.call
        if call.body.get("__type", "").endswith("ExpiredIteratorException"):
            self.counts["iterator_expiry"] += 1
        if call.status != 200 or call.body.get("Records"):
            return
        try:
            iterator = ShardIterator.parse(call.payload["ShardIterator"])
        except ApiError:
            return
        stream = self.engine.streams.find(iterator.arn)
        shard = None if stream is None else stream.shard(iterator.shard_id)
        if stream is not None and shard is not None:
            published = call.at - stream.settings.publish_delay
            self.counts["empty_page"] += bool(shard.page(iterator.after, 1, published))

    def _listed(self, sighting: SeenCall) -> None:
        description = sighting.call.body["StreamDescription"]
        stream = self.engine.streams.find(description["StreamArn"])
        if stream is None:
            return
        closed = {shard.id: shard.closed is not None for shard in stream.shards()}
        listed = {entry["ShardId"] for entry in description["Shards"]}
        self.counts["trim"] += len(self._shards - closed.keys())
        self._shards = set(closed)
        for entry in description["Shards"]:
            is_open = "EndingSequenceNumber" not in entry["SequenceNumberRange"]
            self.counts["open_parent"] += is_open and closed.get(entry["ShardId"], False)
        parent = sighting.call.payload.get("ShardFilter", {}).get("ShardId")
        if (
            "ExclusiveStartShardId" in sighting.call.payload
            or "LastEvaluatedShardId" in description
        ):
            return
        for shard in stream.shards():
            asked = shard.parent_id is not None and parent in (None, shard.parent_id)
            self.counts["late_child"] += asked and shard.id not in listed
