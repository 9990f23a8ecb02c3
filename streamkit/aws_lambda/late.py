"""Process what a mapping that gives up has put into its on-failure destination.

A mapping with `MaximumRetryAttempts` drops a batch that failed so often, and continues after it.
For a change in the batch whose item has no later change done, the high-water mark proves whether it
was done: if not, it is processed now. For any other change it cannot be known whether an invocation
that seemed to be dead has applied it. Such a change is parked as `Late`, in a queue of its own that
delays nothing: a person looks at it and discards it; it is never applied.

In: the event of a queue or topic, or the record itself, with its payload (a file in S3) or without:
then its records are read from the stream, which keeps them for a day. Out: the messages of a queue
that have to be delivered again.

On failure: a message that cannot be processed is logged and comes again, and the others are
processed. How far each batch is done is stored, so that a message that comes twice does not take
for late what it was itself that applied it. Records that the stream has dropped are a loss, for
which the app's `on_loss` decides.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from streamkit.aws import Aws, code_of, patiently
from streamkit.aws_lambda.environment import (
    Environment,
    StreamReplaced,
    become_host,
    check_stream,
)
from streamkit.aws_lambda.event import read_records
from streamkit.aws_lambda.invocation import run_records
from streamkit.core.high_water_mark import KEPT_SECONDS
from streamkit.core.outcome import Outcome, PendingChange
from streamkit.core.parked.payload import records_between
from streamkit.core.parking import (
    LAMBDA_CHUNKS,
    LATE,
    Failure,
    ParkedRecord,
    chunk_of,
    park,
    payload_of,
    queue_name,
    stored,
)
from streamkit.errors import ConfigurationError, RetentionLost, RetryableError, StreamkitError
from streamkit.model.builds import Build
from streamkit.observe.logger import get_logger
from streamkit.progress.transaction import transact
from streamkit.stream.decode import Record

log = get_logger("streamkit.lambda")

_SURE_SECONDS = KEPT_SECONDS - 3600
"""A mark expires: an older record may have had one that has expired."""
_ALL = "~"
"""In a note, the position behind all positions: its batch is done."""
_NOTE = "the mapping gave it up, and a later change of its item is done: it may be applied already"


class GivenUp(msgspec.Struct, frozen=True):
    """What came of a batch that a mapping gave up; `message` is its id, if it is of a queue."""

    body: object
    message: str | None = None

    def read(self) -> "LostBatch":
        """Read the message; a topic may have wrapped it for its queue.

        Raises:
            ConfigurationError: it is no on-failure record of a DynamoDB stream.
        """
        body = _parsed(self.body)
        if isinstance(body, Mapping) and "Message" in body and "DDBStreamBatchInfo" not in body:
            body = _parsed(body["Message"])
        info = body.get("DDBStreamBatchInfo") if isinstance(body, Mapping) else None
        if not isinstance(body, Mapping) or not isinstance(info, Mapping):
            raise ConfigurationError(
                "the message is no record of a DynamoDB mapping's on-failure destination: it has no"
                " DDBStreamBatchInfo"
            )
        missing = [name for name in _INFO if not isinstance(info.get(name), str)]
        if missing:
            raise ConfigurationError(f"its DDBStreamBatchInfo lacks {', '.join(missing)}")
        payload = body.get("payload")
        payload = payload if payload is None else _parsed(payload)
        if payload is not None and not (isinstance(payload, Mapping) and "Records" in payload):
            raise ConfigurationError("its payload is not the event that failed: it has no Records")
        stream, shard, first, last = (info[name] for name in _INFO)
        return LostBatch(stream, shard, first, last, payload["Records"] if payload else None)


_INFO = ("streamArn", "shardId", "startSequenceNumber", "endSequenceNumber")


class LostBatch(msgspec.Struct, frozen=True):
    """A batch that a mapping gave up; `given` are its records, if the destination keeps them."""

    stream: str
    shard: str
    first: str
    last: str
    given: Any = None

    async def records(self, aws: Aws) -> tuple[Record, ...]:
        """Return its records, which are read from the stream if the message has none.

        Raises:
            RetentionLost: the stream does not keep them any more.
        """
        if self.given is not None:
            return read_records(self.given)
        return await records_between(aws, self.stream, self.shard, self.first, self.last)


def _parsed(body: object) -> object:
    if not isinstance(body, str):
        return body
    try:
        return json.loads(body)
    except ValueError:
        raise ConfigurationError("the message is not JSON") from None


async def process_late(
    environment: Environment, event: Mapping[str, Any], seconds: float = 60.0
) -> dict[str, Any]:
    """Process what a mapping gave up; see the module.

    Raises:
        ConfigurationError: the event is of something else, or workers run the consumer.
        StreamReplaced: the table has another stream since the environment was opened.
        RetentionLost: the stream has dropped the records, and `on_loss` says to halt. This and
            other failures are only raised where there is no queue that could deliver again.
        RetryableError: the time was not enough, or the consumer is paused, in the same case.
    """
    hosted = await become_host(environment)
    failures, errors = [], list[Exception]()
    batches = list(_given_up(event))
    share = seconds / max(1, len(batches))
    for given in batches:
        try:
            done = not hosted.paused and await _process(environment, given, share, hosted.builds)
        except Exception as error:
            if isinstance(error, StreamReplaced) and await _has_other_stream(environment):
                raise  # it is of the new stream, perhaps
            why = str(error) if isinstance(error, StreamkitError) else code_of(error)
            log.error("late.failed", message=given.message, error=code_of(error), why=why)  # noqa: TRY400 - a traceback may hold data
            errors.append(error)
            done = False
        if not done:
            failures.append({"itemIdentifier": given.message})
    if any(given.message is None for given in batches) and failures:
        text = "the batch is not done yet; invoke the function again with it"
        raise errors[0] if errors else RetryableError(text)
    return {"batchItemFailures": failures}


def _given_up(event: object) -> Iterator[GivenUp]:
    if not isinstance(event, Mapping) or "Records" not in event:
        yield GivenUp(event)
        return
    for message in event["Records"]:
        if not isinstance(message, Mapping):
            yield GivenUp(message)
        elif "Sns" in message:
            yield GivenUp(message["Sns"]["Message"])
        elif "body" in message:
            yield GivenUp(message["body"], message.get("messageId"))
        else:
            raise ConfigurationError(
                "the event is not from a queue or a topic; for a file in S3, pass its content"
            )


async def _has_other_stream(environment: Environment) -> bool:
    """Return whether the table's stream was replaced since the environment was opened."""
    table = environment.tables.table
    reply = await patiently(lambda: environment.aws.dynamodb.describe_table(TableName=table.name))
    return bool(reply["Table"].get("LatestStreamArn") != table.stream_arn)


async def _process(
    environment: Environment, given: GivenUp, seconds: float, builds: Mapping[str, Build]
) -> bool:
    """Process one batch; return whether it is done."""
    batch = given.read()
    check_stream(environment, batch.stream)
    note = _note_of(environment, batch)
    begun = await environment.store.item(*note)
    upto = begun["next"]["S"] if begun else ""
    try:
        records = await batch.records(environment.aws)
    except RetentionLost as lost:
        if upto == _ALL:
            return True
        if not lost.certain:
            raise
        until = environment.clock.time()
        gone = RetentionLost(str(lost), shard=lost.shard, until=until, certain=True)
        return await environment.losses.settle(gone) is None
    await environment.set_aside(records, batch.shard)
    wanted = [r for r in records if environment.takes(r) and r.position >= upto]
    now = environment.clock.time()
    old = [record for record in wanted if now - record.created_at >= _SURE_SECONDS]
    sure = [record for record in wanted if now - record.created_at < _SURE_SECONDS]
    run = await run_records(environment, sure, batch.shard, seconds, builds)
    for record in (*old, *run.passed):
        await _park(environment, record, batch.shard)
    # Of what is before the note, each change is done or parked by now. If the function dies before
    # it is written, the message comes again, and some of what it has applied is parked as late.
    action = environment.store.space.update(*note)
    action.sets["next"] = {"S": _ALL if run.left is None else run.left.position}
    action.sets["expires"] = {"N": str(int(now) + KEPT_SECONDS)}
    await environment.store.write(action)
    if wanted:
        log.warning("batch.late", records=len(wanted), parked=len(old) + len(run.passed))
    return run.left is None


def _note_of(environment: Environment, batch: LostBatch) -> tuple[str, ...]:
    """Return the path of the note that says how far a batch is done."""
    names = (environment.incarnation, batch.shard, batch.first, batch.last)
    return ("late", *(name for name in names if name))


async def _park(environment: Environment, record: Record, shard: str) -> None:
    """Park a change as late for each of its handlers, in queues of its own, once."""
    failure = Failure(LATE, _NOTE, 0, heals=False)
    for change in environment.dispatcher.unrun(record, failure):
        for outcome in change.outcomes:
            await _park_for(environment, change, outcome, shard)


async def _park_for(
    environment: Environment, change: PendingChange, outcome: Outcome, shard: str
) -> None:
    store, handler = environment.store, outcome.handler
    record, entity = change.seen_by(handler)
    if record is None or entity is None or change.key is None:
        return
    queue = f"{queue_name(handler.name, change.key)}-{change.position}"
    payload = payload_of(record, handler.policy.payload)
    parked = ParkedRecord(
        handler=handler.name,
        entity=entity.__name__,
        shard=shard,
        position=change.position,
        record=stored(record, payload),
        failure=outcome.failure,
        at=int(environment.clock.time()),
        due=None,
        payload=payload,
    )
    actions = park(store.space, queue, parked, chunk_of(queue, LAMBDA_CHUNKS))
    # A refusal means that it is parked already.
    await transact(store.dynamodb, environment.tables.schemas, actions, environment.rng)
