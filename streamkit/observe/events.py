"""Events: the stable names of everything that streamkit logs, for alarms and searches.

The name has the form `thing.what_happened`; the rest of a log line are fields. Names are never
changed, only added.
"""

from collections.abc import Mapping

EVENTS: Mapping[str, str] = {
    "process.started": "the command line starts workers; has version, apps and settings",
    "process.draining": "a first signal came: the process commits what is dispatched, then ends",
    "process.blocked": "the event loop stood still; all stacks are on stderr, and the process ends",
    "process.stalled": "the event loop stood still for seconds, because code blocked it: `at` is"
    " the line of yours that ran, if one did",
    "process.stopped": "all workers have ended, or the grace period is over; errors of the"
    " process stand before it",
    "process.unfinished": "workers are idle, but changes are parked or the consumer is paused",
    "health.listening": "probes, metrics and the status page are served at this address",
    "health.unread": "the status page could not read the table, and shows the rest",
    "health.acted": "somebody with the token has used an action of the status page",
    "health.failed": "a request to the health server failed; other requests are answered",
    "worker.started": "a worker is alive and has checked its table",
    "worker.stands_by": "an older version stands by, because the newest one still runs",
    "worker.unfit": "the stream does not answer this worker; it releases its shards to others",
    "worker.fit": "the stream answers this worker again",
    "stream.silent": "no page was read for long, although the stream answers",
    "stream.disabled": "the table's stream was disabled: no change is recorded, and none can be"
    " read",
    "generation.unknown": "a cursor is in a generation that the consumer's item does not know: its"
    " shard is not read until that item is restored, or the consumer deleted",
    "generation.superseded": "the generation took a step, or is ours again; the worker rejoins",
    "build.state": "a rebuild of an aggregate has taken its next step",
    "shard.live": "a shard went live: it counts rebuilt aggregates without their ledgers",
    "aggregate.overtaken": "a change came so late that a rebuild may have counted it",
    "ledger.swept": "the ledger of a rebuild was deleted",
    "ledger.kept": "the ledger of a rebuild stays for now, because the consumer changed meanwhile",
    "lister.taken": "this worker leads: it lists the stream, and takes shards that no worker reads",
    "lister.cut_off": "the stream does not answer the leader; it gives up the lead",
    "lister.lost": "another worker leads now",
    "worker.stopped": "a worker has released its shards and ended",
    "migration.phase": "a process goes to another phase of a migration, or begins a pause",
    "migration.item_failed": "an item cannot be migrated; `streamkit migrate errors list` shows it",
    "migration.begins_anew": "changes may have been lost: a migration captures and scans again",
    "migration.unreported": "a process could not store its progress",
    "segment.held": "other processes hold all segments; one is taken in `taken_in` seconds, if its"
    " owner is silent until then",
    "segment.lost": "another process has taken a segment; this process dropped its work on it",
    "generation.joined": "the worker joined a generation; has its number and aggregates to rebuild",
    "worker.swept": "another worker deleted this worker's late heartbeat; it joins again",
    "member.swept": "the heartbeat item of a dead worker was deleted",
    "archive.stored": "a writer has stored what it has read of a shard",
    "archive.hole": "records were trimmed before they were archived: they are lost",
    "archive.damaged": "`archive.json` cannot be read; the writer goes on without it, and commands"
    " are refused",
    "archive.full": "the disk of the archive is full; the writer waits, and handlers go on",
    "archive.refused": "the archive refuses a call; its writer and its readers wait, and other"
    " consumers go on",
    "archive.unreadable": "an object is damaged: the stream is asked for its records",
    "archive.followed": "a writer goes on where the chain ends, ahead of its cursor",
    "archive.read": "a position is trimmed: the archive is read from there",
    "archive.undecided": "records are trimmed, and the archive has not said whether they are lost",
    "lister.created": "cursors of new shards were created",
    "lister.swept": "cursors of shards that were trimmed long ago were deleted",
    "shard.taken": "this worker took a shard, and reads it",
    "shard.finished": "a shard was read to its end, and its children's cursors exist",
    "shard.claimed": "this worker asks another one for a shard, to share evenly",
    "shard.given": "another worker asked for a shard; it is released after its commits",
    "shard.lost": "another worker has taken a shard; this worker cancelled its work on it",
    "fleet.starved": "every worker's heartbeat is late; leases are longer until one is in time",
    "shard.unread": "no worker has read a shard for a while; the leader takes it",
    "shard.suspected": "several owners of a shard died in a row; its changes are taken one by one",
    "change.suspected": "a change that ended its host each time is parked without a run",
    "consumer.paused": "an operator paused this consumer: it reads nothing, and keeps its shards",
    "consumer.resumed": "a paused consumer continues",
    "operation.paused": "people have paused a rebuild, a move or a rewind: its processes wait",
    "operation.goes_on": "a rebuild, a move or a rewind is not paused any more",
    "consumer.halted": "a listener may have lost changes and has ended; other consumers go on",
    "consumer.taken": "an app has taken a handler over; its own consumer has ended",
    "handler.taken": "a shard of the app runs handlers that had a consumer of their own",
    "handler.given_back": "a version without the handler leaves it to a consumer of its own again",
    "consumer.apart": "functions do not run a handler that has a start of its own",
    "consumer.not_seen": "the policy allows no look at another consumer of the table",
    "consumer.fenced": "a consumer is being moved: its old host begins nothing any more",
    "consumer.waits": "a move waits for workers to stop",
    "consumer.moved": "a consumer was moved to another host: workers, or Lambda functions",
    "shard.released": "a shard was released",
    "hook.failed": "the app's hook for shards raised; this has no other effect",
    "shard.slowed": "the stream throttled a read or could not be reached; the read is repeated",
    "handler.slow": "a call of a `def` handler held up the event loop; logged once each",
    "handler.raised": "a handler raised: the traceback of your code; only at the level debug",
    "handler.retried": "a handler failed and is tried again",
    "handler.failed": "a handler failed for good: the change is parked, or skipped",
    "handler.shadow": "what a shadow handler would change, or its error; at most 20 a minute",
    "handler.blocks": "a shard waits for a handler that fails, and tries it again after a pause",
    "breaker.opened": "most changes of a handler fail: they wait instead of being parked",
    "breaker.closed": "a handler works again after its breaker was open",
    "queue.stuck": "a parked change was tried as often as its policy allows; it waits for a person",
    "queue.retried": "a parked change was tried again and failed; it is tried later",
    "queue.lifted": "the parked changes of an item are done; its queue is empty",
    "queue.delayed": "a parked queue could not be tried: the table throttles or does not answer",
    "queue.broken": "a parked queue names a change that does not exist; it waits for a person",
    "retention.lost": "records may have been trimmed unread; reading goes on without them",
    "retention.unsettled": "the app's hook for losses failed; its shard waits and calls it again",
    "effect.refused": "the condition of an effect did not hold",
    "effect.invalid": "DynamoDB finds an effect invalid; the change is parked",
    "record.unreadable": "a record cannot be read; it is parked unchanged, and waits for a person",
    "parking.refused": "DynamoDB finds a parking write invalid; its shard or batch waits",
    "sink.failed": "a sink did not take deliveries; they are tried again",
    "sink.slow": "a sink did not take a delivery in time; its change goes on in a queue",
    "function.short": "a handler may take longer than its function, which then cuts it off",
    "listener.apart": "a function of an app does not run the app's listeners",
    "batch.partial": "a Lambda batch is done in part; the rest of it comes again",
    "batch.undone": "an invocation had no time to finish a single change; its batch comes again",
    "batch.paused": "the consumer is paused: a Lambda batch comes again untouched",
    "batch.late": "a change that a Lambda mapping gave up was processed, or parked as late",
    "late.failed": "a message of an on-failure destination could not be processed; it comes again",
    "batch.suspected": "several invocations did not end a batch; its changes are taken one by one",
    "fan_out.served": "every recipient of a change is served",
    "sink.unchecked": "streamkit could not check whether the target of a sink exists",
    "aws.repeated": "a call was throttled, its outcome is unknown, or its signature was refused; it"
    " is repeated (`called` is the operation, or the host that does not answer)",
    "commit.unknown": "the outcome of a commit is unknown; it is sent again",
    "plain.lost": "updates of approximate aggregates failed after their commit; they are lost",
    "commit.adopted": "an earlier commit had been applied after all",
    "transaction.repeated": "a redrive met a conflict or throttling; it is sent again",
}
"""Every event with its meaning."""

ACTIONS: Mapping[str, str] = {
    "process.blocked": "find the handler in the stacks; make it `async def`, or move its long"
    " computation to a thread",
    "process.stalled": "await what that line does (`await anyio.sleep(1)`, not `time.sleep(1)`), or"
    " move it to a thread; after minutes the process is ended",
    "process.unfinished": "`streamkit parked list`, or `streamkit consumers resume`",
    "health.unread": "check the worker's permissions with `streamkit check`",
    "health.acted": "nothing, if you know who it was",
    "health.failed": "report it: it is a defect",
    "worker.stands_by": "nothing in a roll-out; else start the newest version, or let this one take"
    " over with `STREAMKIT_TAKE_OVER=1`",
    "worker.unfit": "check the route to the endpoint of DynamoDB Streams, and its permissions",
    "stream.disabled": "enable a stream; workers then end once, and say what may be lost",
    "stream.silent": "nothing, unless it comes again: then look at the lag of each shard",
    "generation.unknown": "restore the consumer's item, or `streamkit consumers delete`",
    "aggregate.overtaken": "`streamkit aggregate rebuild` for each aggregate that it names",
    "lister.cut_off": "nothing: another worker leads; see `worker.unfit`",
    "migration.item_failed": "`streamkit migrate errors list`; mend the items or the transform",
    "migration.begins_anew": "nothing: it takes longer; find out why the stream was not read",
    "migration.unreported": "nothing, unless it comes again: then look at throttled calls",
    "archive.hole": "find out why the writer was behind for 24 hours; rewinds then need"
    " `--allow-loss`",
    "archive.damaged": "put it back from a copy or an older version, or remove it: with the next"
    " shard, the writer writes it again",
    "archive.full": "make room within 24 hours, or what the stream trims is lost to the archive",
    "archive.refused": "mend what `reason` says, such as a permission, within 24 hours, or what the"
    " stream trims is lost to the archive",
    "archive.unreadable": "put the object back from a copy or an older version: the stream has its"
    " records only for a day",
    "archive.undecided": "check that the archive's place can be read",
    "fleet.starved": "give the workers CPU, or the table capacity if `aws.repeated` says so: until"
    " then a dead worker is replaced after half a minute",
    "shard.unread": "nothing: the leader takes it; find out which worker has died",
    "shard.suspected": "look for what ends the workers: memory, a crash in a library",
    "change.suspected": "`streamkit parked list --error WorkerKilled`, or `FunctionKilled`; find"
    " out why it ends its host, then redrive",
    "consumer.halted": "as for `retention.lost`; start it with `--accept-loss` to go on",
    "consumer.apart": "let workers run that consumer: `streamkit worker deals:app.HANDLER`",
    "consumer.not_seen": "take the policy that `streamkit iam` prints; until then nobody notices if"
    " both count the same aggregate",
    "hook.failed": "mend the hook",
    "shard.slowed": "`ThrottlingException`, `LimitExceededException`: look for other readers of the"
    " stream; AWS allows two",
    "handler.slow": "make the handler `async def`, or let it do less at a time",
    "handler.failed": "look at the error with `streamkit parked show`; when its cause is gone, it"
    " heals by itself",
    "handler.blocks": "mend the handler, or what it calls: its shard waits",
    "breaker.opened": "roll back the release, or mend what the handler calls: changes wait",
    "breaker.closed": "nothing: the handler works again",
    "queue.stuck": "`streamkit parked list --stuck`; mend the cause, then `parked redrive`; in a"
    " process of a migration `migrate status`, then `migrate errors retry`",
    "queue.delayed": "nothing, unless it lasts: then look at the table's capacity",
    "queue.broken": "`streamkit explain` the item; report it: it is a defect",
    "retention.lost": "`streamkit status` names the shards; rebuild the aggregates that it names,"
    " and mend what handlers have missed",
    "retention.unsettled": "mend the app's `on_loss` function: its shard waits",
    "effect.invalid": "`streamkit parked show`: mend the handler, which may have made an item too"
    " large",
    "record.unreadable": "`streamkit parked show` says why; upgrade streamkit, or mend what changes"
    " records",
    "parking.refused": "report it: a shard or a batch waits",
    "sink.failed": "`why` says what the sink answered: look at its service, at its credential if"
    " `status` is 401 or 403, at its address if it is 3xx, 404 or 405; deliveries are tried again",
    "function.short": "give the function a longer time-out, or its handlers a shorter"
    " `timeout_seconds`",
    "listener.apart": "give each listener that it names a function of its own, `handler(search)`"
    ' of `search = app.listener("search")`, or let workers run it',
    "batch.undone": "give the function a longer time-out or more memory, or its mapping a smaller"
    " `BatchSize`; look whether handlers or the table are slow",
    "batch.late": "find out why the mapping gave up: its retries and age must have no limit",
    "late.failed": "`why` says what is wrong with it; give its queue a dead-letter queue",
    "batch.suspected": "look for what ends the function: time-out or memory",
    "sink.unchecked": "allow the call, if you want the target to be checked at the start",
    "aws.repeated": "nothing, unless it lasts: throttling asks for capacity, time-outs for the"
    " network, `InvalidSignatureException` for this machine's clock or the secret key",
    "commit.unknown": "nothing: the commit is sent again, and counts once",
    "plain.lost": "nothing for approximate counts; else rebuild the aggregate",
}
"""What an operator does about an event; other events need no action."""
