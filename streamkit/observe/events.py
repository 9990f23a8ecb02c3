"""The events that streamkit logs: stable names, for alarms and searches.

An event says what happened as `thing.what_happened`; the rest of its line are fields. Names are
never changed, only added.
"""

from collections.abc import Mapping

EVENTS: Mapping[str, str] = {
    "process.started": "the command line starts workers: version, apps, settings",
    "process.draining": "a first signal came: what is dispatched is committed",
    "process.stopped": "all workers ended, or the time for it was over",
    "worker.started": "a worker is alive and has looked at its table",
    "worker.waiting": "another worker has the shards; this one watches its heartbeat",
    "worker.stands_by": "this worker is of an older roll-out, and the newest still runs",
    "worker.abandoned": "another worker was silent for a lease; its shards are taken",
    "worker.lost": "another worker took over; this one waits again",
    "worker.stopped": "a worker has released everything",
    "generation.joined": "which roll-out of the handlers runs, and which aggregates need a rebuild",
    "worker.swept": "others swept this worker's heartbeat as a dead one's; it joins again",
    "member.swept": "the heartbeat item of a dead worker was deleted",
    "lister.created": "cursors of new shards were created",
    "lister.swept": "cursors of shards that are long gone were deleted",
    "shard.taken": "a shard is read from now on",
    "shard.finished": "a shard was read to its end, and its children's cursors exist",
    "shard.released": "a shard was given back",
    "shard.slowed": "the stream asked for patience or was not to be reached",
    "handler.retried": "a handler failed and is tried again",
    "handler.failed": "a handler failed for good: the change is parked, or skipped",
    "effect.refused": "the condition of an effect did not hold",
    "effect.invalid": "DynamoDB finds an effect invalid: the change is parked",
    "aws.repeated": "a call was throttled or its fate is unknown; it is made again",
    "commit.unknown": "the fate of a commit is unknown; it is sent again",
    "commit.adopted": "an earlier commit had won after all",
    "transaction.repeated": "a redrive met a conflict or throttling and is sent again",
}
"""Every event with what it means."""
