"""The events that streamkit logs: stable names, for alarms and searches.

An event says what happened as `thing.what_happened`; the rest of its line are fields. Names are
never changed, only added.
"""

from collections.abc import Mapping

EVENTS: Mapping[str, str] = {
    "process.started": "the command line starts workers: version, apps, settings",
    "process.draining": "a first signal came: what is dispatched is committed",
    "process.blocked": "the event loop stood still; all stacks are on stderr, and the process ends",
    "process.stopped": "all workers ended, or the time for it was over",
    "worker.started": "a worker is alive and has looked at its table",
    "worker.stands_by": "this worker is of an older roll-out, and the newest still runs",
    "worker.unfit": "the stream does not answer this worker; it gives its shards to the others",
    "worker.fit": "the stream answers this worker again",
    "stream.silent": "no page was read for long, although the stream answers: throttled, or wedged",
    "lister.taken": "this worker leads: it lists the stream and looks after shards nobody reads",
    "lister.cut_off": "the stream does not answer the leader; it leaves the lead to others",
    "lister.lost": "another worker leads now",
    "worker.stopped": "a worker has released everything",
    "generation.joined": "which roll-out of the handlers runs, and which aggregates need a rebuild",
    "worker.swept": "others swept this worker's heartbeat as a dead one's; it joins again",
    "member.swept": "the heartbeat item of a dead worker was deleted",
    "lister.created": "cursors of new shards were created",
    "lister.swept": "cursors of shards that are long gone were deleted",
    "shard.taken": "a shard is read from now on",
    "shard.finished": "a shard was read to its end, and its children's cursors exist",
    "shard.claimed": "a shard that another worker reads is asked for, to share evenly",
    "shard.given": "another worker claimed a shard; it is released once its commits are through",
    "shard.lost": "another worker has taken a shard; what went on here for it was cancelled",
    "shard.unread": "nobody has read a shard for a while; the leader takes it",
    "shard.suspected": "owners of a shard vanished in a row; its changes are taken one by one",
    "change.suspected": "a change whose workers ended while they ran it is parked unrun",
    "shard.released": "a shard was given back",
    "shard.slowed": "the stream asked for patience or was not to be reached",
    "handler.retried": "a handler failed and is tried again",
    "handler.failed": "a handler failed for good: the change is parked, or skipped",
    "handler.blocks": "a shard waits for a handler that fails, and tries it again after a pause",
    "breaker.opened": "most changes of a handler fail: they wait now instead of being parked",
    "breaker.closed": "a handler works again after its breaker was open",
    "lane.stuck": "a parked change was tried as often as its policy says: a person is needed",
    "lane.retried": "a parked change was tried again on its own and failed; it is due later",
    "lane.lifted": "the parked changes of an item are done; nothing of it waits any more",
    "lane.delayed": "a lane could not be tried: the table throttles or does not answer",
    "lane.broken": "a lane names a change that is not there; it is left to a person",
    "retention.lost": "records may have been trimmed unread; the app's policy goes on without them",
    "retention.unsettled": "the app's hook for losses failed; its shard waits and calls it again",
    "effect.refused": "the condition of an effect did not hold",
    "effect.invalid": "DynamoDB finds an effect invalid: the change is parked",
    "aws.repeated": "a call was throttled or its fate is unknown; it is made again",
    "commit.unknown": "the fate of a commit is unknown; it is sent again",
    "commit.adopted": "an earlier commit had won after all",
    "transaction.repeated": "a redrive met a conflict or throttling and is sent again",
}
"""Every event with what it means."""
