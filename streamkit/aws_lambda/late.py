"""Process what a mapping that gives up has put into its on-failure destination.

A mapping with `MaximumRetryAttempts` drops a batch that failed so often, and continues after it.
For a change in the batch whose item has no later change done, the high-water mark proves whether it
was done: if not, it is processed now. For any other change it cannot be known whether an invocation
that seemed to be dead has applied it. Such a change is parked as `Late`, in a queue of its own that
delays nothing: a person looks at it and discards it; it is never applied.

In: the event of a queue or topic, or the record itself, with its payload (a file in S3) or without:
then its records are read from the stream, which keeps them for a day. Out: the messages of a queue
that have to be delivered again.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from streamkit.aws import Aws
from streamkit.aws_lambda.environment import Environment, become_host, check_stream
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
from streamkit.errors import ConfigurationError, RetryableError
from streamkit.model.builds import Build
from streamkit.observe.logger import get_logger
from streamkit.progress.transaction import transact
from streamkit.stream.decode import Record

log = get_logger("streamkit.lambda")

_SURE_SECONDS = KEPT_SECONDS - 3600
"""A mark expires: an older record may have had one that has expired."""
_NOTE = "the mapping gave it up, and a later change of its item is done: it may be applied already"


@dataclass(frozen=True, slots=True)
class GivenUp:
    """A batch that a mapping gave up; `message` is the queue's message, if there is one."""

    body: Mapping[str, Any]
    message: str | None = None

    @property
    def info(self) -> Mapping[str, Any]:
        """The shard, sequence numbers and stream of the batch.

        Raises:
            ConfigurationError: it is no on-failure record of a DynamoDB stream.
        """
        info = self.body.get("DDBStreamBatchInfo")
        if not isinstance(info, Mapping):
            raise ConfigurationError(
                "the event is no record of a DynamoDB mapping's on-failure destination: it has no"
                " DDBStreamBatchInfo"
            )
        return info

    @property
    def payload(self) -> Any:
        """The event that failed, if the destination keeps it; else None."""
        found = self.body.get("payload")
        return json.loads(found) if isinstance(found, str) else found


async def process_late(
    environment: Environment, event: Mapping[str, Any], seconds: float = 60.0
) -> dict[str, Any]:
    """Process what a mapping gave up; see the module.

    Raises:
        ConfigurationError: the event is of something else, or workers run the consumer.
        RetryableError: the time was not enough, or the consumer is paused, and there is no queue
            that could deliver the batch again.
    """
    hosted = await become_host(environment)
    failures = []
    batches = list(_given_up(event))
    for given in batches:
        paused = bool(hosted.paused)
        share = seconds / len(batches)
        done = not paused and await _process(environment, given, share, hosted.builds)
        if not done and given.message is None:
            raise RetryableError("the batch is not done yet; invoke the function again with it")
        if not done:
            failures.append({"itemIdentifier": given.message})
    return {"batchItemFailures": failures}


def _given_up(event: Mapping[str, Any]) -> Iterator[GivenUp]:
    if "Records" not in event:
        yield GivenUp(event)
        return
    for message in event["Records"]:
        if "Sns" in message:
            yield GivenUp(json.loads(message["Sns"]["Message"]))
        elif "body" in message:
            yield GivenUp(json.loads(message["body"]), message.get("messageId"))
        else:
            raise ConfigurationError(
                "the event is not from a queue or a topic; for a file in S3, pass its content"
            )


async def _process(
    environment: Environment, given: GivenUp, seconds: float, builds: Mapping[str, Build]
) -> bool:
    info, payload = given.info, given.payload
    check_stream(environment, info.get("streamArn"))
    if payload is not None:
        records = read_records(payload["Records"])
    else:
        records = await _in_stream(environment.aws, info)
    shard: str = info["shardId"]
    wanted = [record for record in records if environment.takes(record)]
    await environment.set_aside(records, shard)
    now = environment.clock.time()
    old = [record for record in wanted if now - record.created_at >= _SURE_SECONDS]
    sure = [record for record in wanted if now - record.created_at < _SURE_SECONDS]
    batch = await run_records(environment, sure, shard, seconds, builds)
    for record in (*old, *batch.passed):
        await _park(environment, record, shard)
    log.warning("batch.late", records=len(wanted), parked=len(old) + len(batch.passed))
    return batch.left is None


async def _in_stream(aws: Aws, info: Mapping[str, Any]) -> tuple[Record, ...]:
    """Read a batch from the stream again."""
    first, last = info["startSequenceNumber"], info["endSequenceNumber"]
    return await records_between(aws, info["streamArn"], info["shardId"], first, last)


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
    if change.record is None or change.entity is None or change.key is None:
        return
    queue = f"{queue_name(handler.name, change.key)}-{change.position}"
    payload = payload_of(change.record, handler.policy.payload)
    parked = ParkedRecord(
        handler=handler.name,
        entity=change.entity.__name__,
        shard=shard,
        position=change.position,
        record=stored(change.record, payload),
        failure=outcome.failure,
        at=int(environment.clock.time()),
        due=None,
        payload=payload,
    )
    actions = park(store.space, queue, parked, chunk_of(queue, LAMBDA_CHUNKS))
    # A refusal means that it is parked already.
    await transact(store.dynamodb, environment.tables.schemas, actions, environment.rng)
