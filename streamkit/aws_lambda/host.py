"""Build the functions that Lambda calls.

    import streamkit.aws_lambda
    from deals import app

    handler = streamkit.aws_lambda.handler(app)                 # of the event source mapping
    maintenance = streamkit.aws_lambda.maintenance_handler(app)  # of a schedule, every minute
    late = streamkit.aws_lambda.late_handler(app)                # only of an on-failure destination

The mapping of the first needs `ReportBatchItemFailures`. One event loop, one set of clients and one
app serve all invocations of an execution environment. The second continues with parked queues:
parked changes that are due, fan-outs and mirrors of large audiences.
The third takes the batches that a mapping gave up.
"""

from collections.abc import Callable, Mapping
from typing import Any

import anyio

from streamkit.app import App
from streamkit.aws_lambda.environment import Environment, become_host, check_stream
from streamkit.aws_lambda.event import LambdaEvent, read_event
from streamkit.aws_lambda.invocation import run_records
from streamkit.aws_lambda.runtime import Context, Runtime, seconds_of
from streamkit.observe.logger import get_logger
from streamkit.stream.decode import Record
from streamkit.stream.start import RETENTION_SECONDS

__all__ = ["handler", "late_handler", "maintenance_handler", "process_batch"]

log = get_logger("streamkit.lambda")

_PAUSED_SECONDS = 5.0
"""The pause of an invocation of a paused consumer; Lambda delivers the batch again at once."""

Response = dict[str, Any]
"""The response to Lambda.

`batchItemFailures` is empty, or the sequence number from which records are delivered again; with
tumbling windows `state` is returned as it came.
"""


async def process_batch(
    environment: Environment, event: Mapping[str, Any], seconds: float = 60.0
) -> Response:
    """Process one event of the mapping.

    Args:
        environment: the environment of this function.
        event: the event as Lambda passes it.
        seconds: the time within which this returns; Lambda delivers again what is not committed by
            then.

    Raises:
        ConfigurationError: the event is of something else, the table refuses commits, or workers
            run the consumer.
        TimeoutError: the table does not answer at all.
    """
    given = read_event(event)
    check_stream(environment, given.stream)
    wanted = [record for record in given.records if environment.takes(record)]
    flawed = [record for record in given.records if record.flaw]
    if not wanted and not flawed:
        # Return before any write, also for a batch of streamkit's own records: a write would cause
        # another such batch.
        return _response(given, None)
    began = anyio.current_time()
    try:
        with anyio.fail_after(seconds):
            hosted = await become_host(environment)
            await environment.set_aside(flawed, given.shard)
    except TimeoutError:
        raise TimeoutError(
            f"the table did not answer within {max(seconds, 0):.1f} s, and nothing was done: give"
            " the function a longer time-out, or look why the table is slow"
        ) from None
    if not wanted:
        return _response(given, None)
    lag = max(0.0, environment.clock.time() - wanted[0].created_at)
    environment.meters.lag.set(lag)
    environment.meters.time_to_loss.set(max(0.0, RETENTION_SECONDS - lag))
    if hosted.paused:
        log.info("batch.paused", records=len(wanted))
        await anyio.sleep(min(_PAUSED_SECONDS, seconds / 2))
        return _response(given, wanted[0])
    left = seconds - (anyio.current_time() - began)
    batch = await run_records(
        environment, wanted, given.shard, left, hosted.builds, marked=given.marked
    )
    if batch.left is not None:
        log.info("batch.partial", records=len(wanted), left=len(batch.todo))
        if batch.left is wanted[0] and anyio.current_time() >= batch.deadline:
            log.warning("batch.undone", records=len(wanted), seconds=round(seconds, 1))
    return _response(given, batch.left)


def _response(event: LambdaEvent, left: Record | None) -> Response:
    # Empty, missing or unknown identifiers would make the whole batch fail.
    failures = [] if left is None else [{"itemIdentifier": left.sequence_number}]
    response: Response = {"batchItemFailures": failures}
    if event.state is not None:
        response["state"] = event.state
    return response


def handler(app: App) -> Callable[[Mapping[str, Any], Context], Response]:
    """Return the function for a DynamoDB event source mapping with `ReportBatchItemFailures`."""
    runtime = Runtime(app)

    def handle(event: Mapping[str, Any], context: Context) -> Response:
        seconds = seconds_of(context)
        return runtime.run(lambda env: process_batch(env, event, seconds_of(context)), seconds)

    return handle


def maintenance_handler(app: App) -> Callable[[Mapping[str, Any], Context], dict[str, int]]:
    """Return the function for a schedule: it continues parked changes and large audiences."""
    # The function of a mapping starts faster without what retries.
    from streamkit.aws_lambda.maintenance import maintain

    runtime = Runtime(app)

    def handle(event: Mapping[str, Any], context: Context) -> dict[str, int]:  # noqa: ARG001
        return runtime.run(lambda env: maintain(env, seconds_of(context)), seconds_of(context))

    return handle


def late_handler(app: App) -> Callable[[Mapping[str, Any], Context], dict[str, Any]]:
    """Return the function for the on-failure destination of a mapping that gives up.

    It takes the SQS or SNS event, or the record itself, as its file in S3 has it. Changes that were
    never begun are processed; those that may have been applied are parked as `Late`, and never
    applied.
    """
    from streamkit.aws_lambda.late import process_late

    runtime = Runtime(app)

    def handle(event: Mapping[str, Any], context: Context) -> dict[str, Any]:
        seconds = seconds_of(context)
        return runtime.run(lambda env: process_late(env, event, seconds_of(context)), seconds)

    return handle
