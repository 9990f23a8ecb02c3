"""Process one batch within the time that Lambda gives.

    some records at a time: marks read ─► processed ─► …   in the end, what is left comes again
                  one by one, if functions were killed here before; the one that does it is parked

In: records, and seconds. Out: the batch's run; its `left` is the record from which they are
delivered again. Handlers are cancelled some time before the end, everything else at the end.
"""

from collections import deque
from collections.abc import Iterable, Mapping
from types import MappingProxyType

import anyio

from streamkit.aws_lambda.attempts import DEADLY, AttemptCounts
from streamkit.aws_lambda.batch import BatchRun
from streamkit.aws_lambda.counting import Counting
from streamkit.aws_lambda.environment import Environment
from streamkit.aws_lambda.high_water_marks import HighWaterMarks
from streamkit.core.parking import LAMBDA_CHUNKS, Failure
from streamkit.core.planning import Planner
from streamkit.model.builds import Build
from streamkit.observe.logger import get_logger
from streamkit.progress.transaction import ACTIONS_MAX
from streamkit.stream.decode import Record

log = get_logger("streamkit.lambda")

NO_BUILDS: Mapping[str, Build] = MappingProxyType({})
"""The builds of a consumer whose aggregates were never rebuilt."""
TOGETHER = 200
"""Records whose handlers run before the first of them is committed; a transaction holds 99.

For async handlers it is at most the number that runs at once, so that some records are committed
however long the handlers take.
"""
_MARKS = 100
"""The marks that one call reads."""
_COMMIT_SECONDS = 2.0
"""The time in seconds that is reserved for commits after handlers are cancelled."""
_COMMIT_SHARE = 0.25
"""The largest share of the time for that, for functions with a short time-out."""
_LAST_SECONDS = 0.3
"""The time in seconds to take back an attempt when the rest was not enough."""


def seconds_for_handlers(seconds: float) -> float:
    """Return after how many seconds of an invocation handlers are cancelled."""
    return seconds - min(_COMMIT_SECONDS, seconds * _COMMIT_SHARE)


def check_time(environment: Environment, seconds: float) -> None:
    """Log which handlers may take longer than an invocation of so many seconds lets them."""
    left = seconds_for_handlers(seconds)
    needs = {
        handler.name: handler.policy.timeout_seconds
        for handler in environment.dispatcher.handlers
        if handler.is_async and handler.policy.timeout_seconds > left
    }
    if needs:
        log.warning(
            "function.short",
            handlers=sorted(needs),
            seconds=round(left, 1),
            timeout_seconds=max(needs.values()),
        )


async def run_records(
    environment: Environment,
    records: Iterable[Record],
    shard: str | None,
    seconds: float,
    builds: Mapping[str, Build] = NO_BUILDS,
    *,
    marked: bool = True,
) -> BatchRun:
    """Process records under the high-water marks of their items.

    Args:
        environment: the environment of this function.
        records: records that a handler listens to, in the order of each item's changes.
        shard: the records' shard, if it is known.
        seconds: the time after which this returns.
        builds: the builds of the consumer's aggregates, as they were when this began.
        marked: whether an item in them may name the handler that wrote it, or say that it is a
            copy.

    Raises:
        ConfigurationError: the table refuses commits.
    """
    invocation = _Invocation(environment, records, shard, seconds, builds, marked=marked)
    try:
        with anyio.move_on_after(seconds):
            await invocation.run()
    finally:
        await invocation.end()
    return invocation.batch


class _Invocation:
    """One invocation; `counted` is the attempt that it began, while no record of it is done."""

    def __init__(
        self,
        environment: Environment,
        records: Iterable[Record],
        shard: str | None,
        seconds: float,
        builds: Mapping[str, Build],
        *,
        marked: bool,
    ) -> None:
        self._environment = environment
        store, clock = environment.store, environment.clock
        self.deadline = anyio.current_time() + seconds_for_handlers(seconds)
        self.attempts = AttemptCounts(store, clock, environment.incarnation)
        self.counted: Record | None = None
        self.counting = Counting(builds, clock.time())
        self.batch = BatchRun(
            environment.dispatcher,
            Planner(
                store.space,
                clock,
                shard or environment.shard,
                chunks=LAMBDA_CHUNKS,
                room=ACTIONS_MAX - (environment.send is not None),
                marks=True,
            ),
            HighWaterMarks(store, clock, environment.incarnation),
            self.deadline,
            deque(records),
            self.counting.as_run,
            environment.send,
            marked=marked,
        )

    async def run(self) -> None:
        """Process what is not done yet, until the time is over or a change has to be repeated."""
        dispatcher = self._environment.dispatcher
        wait = any(handler.is_async for handler in dispatcher.handlers)
        together = min(TOGETHER, dispatcher.concurrency) if wait else TOGETHER
        careful, more = None, True
        while more and await self._look(together) and anyio.current_time() < self.deadline:
            if careful is None:
                careful = await self._is_suspected()
            more = await (self._one() if careful else self.batch.advance(together))
            if more and not careful:
                self.counted = None
        environment = self._environment
        shadows = environment.dispatcher.shadows
        await shadows.compare(environment.aws.dynamodb, environment.tables.schemas)

    async def _look(self, together: int) -> bool:
        """Read the marks of some more records, if needed; return whether any record is left."""
        if not self.batch.looked_at:
            await self.batch.look(max(together, _MARKS))
            environment, records = self._environment, self.batch.looked_at
            await self.counting.settle(environment.dispatcher, environment.store, records)
        return self.batch.left is not None

    async def end(self) -> None:
        """Take the attempt back, unless a handler did not return: then its changes run alone soon.

        The breakers count such handlers: if nearly all do not return, changes wait for them.
        """
        if self.counted is None:
            return
        if self.batch.stalled:
            self.batch.note_stalled()
        else:
            with anyio.move_on_after(_LAST_SECONDS):
                await self.attempts.end(self.counted)

    async def _is_suspected(self) -> bool:
        """Count this invocation, if it may be a repetition; return whether too many were killed."""
        first = self.batch.left
        if first is None or not self.attempts.counts(first):
            return False
        suspected = await self.attempts.begin(first)
        self.counted = first
        if suspected:
            log.warning("batch.suspected", records=len(self.batch.todo))
        return suspected

    async def _one(self) -> bool:
        """Process the next record alone; park it unrun if it has killed several functions."""
        batch, record = self.batch, self.batch.todo[0]
        before = await self.attempts.begin_alone(record)
        self.counted = record
        if before >= DEADLY:
            text = f"{before} invocations in a row ended while they ran this change"
            done = await batch.park(Failure("FunctionKilled", text, before, heals=False))
            log.error("change.suspected", position=record.position, tries=before)
        else:
            done = await batch.advance(1)
            if not done and batch.stalled:
                # The process lives: the handler has failed, as it does at a time-out of its own.
                done = await batch.time_out()
        if done:
            self.counted = None
        return done
