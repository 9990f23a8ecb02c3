"""The functions that Lambda calls.

    import streamkit.aws_lambda
    from deals import app

    handler = streamkit.aws_lambda.handler(app)                 # of the event source mapping
    maintenance = streamkit.aws_lambda.maintenance_handler(app)  # of a schedule, every minute

The first needs `ReportBatchItemFailures`. One event loop, one set of clients and one app serve all
invocations of an execution environment. The second goes on with what is in lanes: parked changes
that are due, fan-outs and mirrors of large audiences.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

import anyio

from streamkit.app import App
from streamkit.aws_lambda.batch import BatchRun
from streamkit.aws_lambda.environment import Environment, check_stream, open_environment
from streamkit.aws_lambda.event import read_records, stream_of
from streamkit.aws_lambda.marks import Marks
from streamkit.aws_lambda.trials import DEADLY, SUSPICIOUS, Trials
from streamkit.decode import Record
from streamkit.observe.logger import get_logger
from streamkit.parked import held_lanes
from streamkit.parking import Failure
from streamkit.planning import Planner

log = get_logger("streamkit.lambda")

T = TypeVar("T")

_RESERVE_SECONDS = 2.0
"""What is left for ending in an orderly way, of the time that Lambda gives."""
_RESERVE_SHARE = 0.25
"""At most this part of it, for functions with a short time-out."""
_DEFAULT_SECONDS = 60.0


class Context(Protocol):
    """What is used of Lambda's context."""

    def get_remaining_time_in_millis(self) -> int:
        """Return how long the invocation may still take."""


Response = dict[str, list[dict[str, str]]]
"""`batchItemFailures`: empty, or the sequence number from which on records come again."""


async def process_batch(
    environment: Environment, event: Mapping[str, Any], seconds: float = _DEFAULT_SECONDS
) -> Response:
    """Process one event of the mapping.

    Args:
        environment: of this function.
        event: as Lambda gives it.
        seconds: after which what is not committed is asked for again.

    Raises:
        ConfigurationError: the event is of something else, or the table refuses commits.
    """
    check_stream(environment, stream_of(event))
    dispatcher = environment.dispatcher
    records = [record for record in read_records(event) if dispatcher.wants(record)]
    if not records:  # also of a batch of streamkit's own, which must not lead to another one
        return {"batchItemFailures": []}
    trials = Trials(environment.store, environment.clock)
    first = records[0].position
    careful = await trials.begin("batch", first) >= SUSPICIOUS
    out_of_time = anyio.Event()
    async with anyio.create_task_group() as group:
        group.start_soon(_set_after, seconds, out_of_time)
        if careful:
            left = await _one_by_one(environment, records, trials, out_of_time)
        else:
            left = await _run(environment, out_of_time).run(records)
        group.cancel_scope.cancel()
    if left is None:
        return {"batchItemFailures": []}
    await trials.end("batch", left.position)
    log.info("batch.partial", records=len(records), from_record=records.index(left))
    return {"batchItemFailures": [{"itemIdentifier": left.sequence_number}]}


def _run(environment: Environment, out_of_time: anyio.Event) -> BatchRun:
    space, clock = environment.store.space, environment.clock
    return BatchRun(
        environment.dispatcher,
        Planner(space, clock, environment.shard),
        Marks(environment.store, clock),
        environment.around.schemas,
        environment.rng,
        out_of_time,
    )


async def _one_by_one(
    environment: Environment, records: Sequence[Record], trials: Trials, out_of_time: anyio.Event
) -> Record | None:
    """Take records alone, and park one unrun that has ended its function several times."""
    log.warning("batch.suspected", records=len(records))
    for record in records:
        run = _run(environment, out_of_time)
        before = await trials.begin("change", record.position)
        if before >= DEADLY:
            text = f"{before} invocations in a row ended while they ran this change"
            left = await run.park(record, Failure("FunctionKilled", text, before, heals=False))
        else:
            left = await run.run([record])
        await trials.end("change", record.position)
        if left is not None:
            return left
    return None


async def maintain(environment: Environment, seconds: float = _DEFAULT_SECONDS) -> dict[str, int]:
    """Go on with what is in lanes, each as far as it is due, for some seconds.

    Returns:
        How many lanes there are, how many changes left them, and how many failed again.
    """
    redriver = environment.redriver()
    counts = {"lanes": 0, "done": 0, "failed": 0}
    with anyio.move_on_after(seconds):
        lanes = await held_lanes(environment.store)
        counts["lanes"] = len(lanes)
        todo = [lane.name for lane in lanes]
        while todo:
            again = []
            for lane in todo:
                report = await redriver.redrive(lane)
                counts["done"] += report.done
                counts["failed"] += report.failed
                if report.serving:
                    again.append(lane)
            todo = again
    return counts


def handler(app: App) -> Callable[[Mapping[str, Any], Context], Response]:
    """Return the function for a DynamoDB event source mapping with `ReportBatchItemFailures`."""
    loop = _Loop(app)

    def handle(event: Mapping[str, Any], context: Context) -> Response:
        seconds = _seconds(context)
        return loop.run(lambda environment: process_batch(environment, event, seconds))

    return handle


def maintenance_handler(app: App) -> Callable[[Mapping[str, Any], Context], dict[str, int]]:
    """Return the function for a schedule: it goes on with parked changes and large audiences."""
    loop = _Loop(app)

    def handle(event: Mapping[str, Any], context: Context) -> dict[str, int]:  # noqa: ARG001
        seconds = _seconds(context)
        return loop.run(lambda environment: maintain(environment, seconds))

    return handle


class _Loop:
    """One event loop and one environment for all invocations; both last as long as the process."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._runner: asyncio.Runner | None = None
        self._keeper: asyncio.Task[None] | None = None
        self._environment: Environment | None = None

    def run(self, work: Callable[[Environment], Awaitable[T]]) -> T:
        """Do something in the environment.

        Raises:
            ConfigurationError: the environment cannot be opened; the next call tries again.
        """
        if self._runner is None:
            self._runner = asyncio.Runner()
        return self._runner.run(self._within(work))

    async def _within(self, work: Callable[[Environment], Awaitable[T]]) -> T:
        if self._environment is None:
            opened = asyncio.Event()
            self._keeper = asyncio.create_task(self._keep(opened))
            waiting = asyncio.create_task(opened.wait())
            await asyncio.wait((self._keeper, waiting), return_when=asyncio.FIRST_COMPLETED)
            if self._environment is None:
                waiting.cancel()
                await self._keeper  # it has failed, and raises why
        assert self._environment is not None  # noqa: S101 - the keeper has set it
        return await work(self._environment)

    async def _keep(self, opened: asyncio.Event) -> None:
        """Hold the environment open, in a task that does not end with an invocation."""
        async with open_environment(self._app) as self._environment:
            opened.set()
            await asyncio.Event().wait()


async def _set_after(seconds: float, event: anyio.Event) -> None:
    await anyio.sleep(seconds)
    event.set()


def _seconds(context: Context) -> float:
    left = context.get_remaining_time_in_millis() / 1000
    return left - min(_RESERVE_SECONDS, left * _RESERVE_SHARE)
