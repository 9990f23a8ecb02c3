"""Move from marks of items to positions in shards; the package's text proves it correct.

In: an app whose consumer Lambda functions run. Out: cursors at which workers continue. On failure:
before the positions are written the functions get their consumer back; afterwards, and after a
crash, the same call finishes the move.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

import anyio

from streamkit.app import App
from streamkit.aws import Aws
from streamkit.aws_lambda.environment import Environment
from streamkit.aws_lambda.invocation import run_records
from streamkit.core.parked.queues import parked_queues
from streamkit.core.parking import LAMBDA_CHUNKS
from streamkit.core.tables import survey
from streamkit.fleet.generation import Generation, newest_generation
from streamkit.fleet.hosting import FUNCTION_SECONDS, LAMBDA, TO_WORKERS, WORKERS, claim
from streamkit.observe.logger import get_logger
from streamkit.operate.moves.fence import MoveFence
from streamkit.operate.moves.moved import Moved, MoveRefused, unfit
from streamkit.operate.moves.passage import Passage
from streamkit.operate.moves.positions import add_cursor, fresh_cursor, replace_cursors
from streamkit.operate.moves.tables import environment_with
from streamkit.progress.clock import Clock, SystemClock
from streamkit.progress.control import Cursor
from streamkit.stream.decode import Record

log = get_logger("streamkit.moving")

_RUN_SECONDS = 60.0
_BLOCKED_TRIES = 30
_BLOCKED_PAUSE = 5.0
"""How often, and after which pause in seconds, a change whose handler blocks is retried."""


async def move_to_workers(
    app: App,
    aws: Aws,
    *,
    since: datetime | None = None,
    in_flight: float = FUNCTION_SECONDS,
    clock: Clock | None = None,
    rng: random.Random | None = None,
) -> Moved:
    """Let workers continue where the functions of an app are.

    Args:
        app: the app whose consumer is moved; its handlers run here for what is not done yet.
        aws: open clients.
        since: everything created before this is known to be done, for example from a mapping's
            iterator age; else all that the stream holds is compared with the marks.
        in_flight: for how many seconds a running invocation may continue: the time-out of the
            function.
        clock: for simulations.
        rng: for simulations, too.

    Raises:
        MoveRefused: the result would be wrong; nothing has changed.
        RetentionLost: the stream was trimmed faster than it was read.
        ConfigurationError: the table is missing or has no stream, or may not be described.
    """
    clock, rng = clock or SystemClock(), rng or random.Random()
    tables = await survey(app, aws)
    store = tables.store(app, aws)
    clock = await store.clock(clock)  # it is compared with when changes were made
    newest = await newest_generation(store)
    # A consumer that is older than the host's name has none; its cursors tell that workers run it.
    hosts = LAMBDA, TO_WORKERS, *(() if await store.names() else ("",))
    MoveRefused.raise_for([*unfit(app, newest, *hosts), *_own_io(app, since)])
    assert newest is not None  # noqa: S101 - it would have been refused
    if newest.host != TO_WORKERS:
        await claim(store, LAMBDA)

    async with environment_with(app, aws, clock, rng) as environment:
        move = _MoveToWorkers(environment, int(since.timestamp()) if since else 0)
        return await move.run(in_flight)


def _own_io(app: App, since: datetime | None) -> Iterator[str]:
    """Yield why a move is refused: handlers that would repeat changes, or a time without zone."""
    if since is not None and since.tzinfo is None:
        yield f"{since.isoformat()} has no time zone; add one, as in +00:00"
    for handler in app.handlers:
        if handler.delivery == "at_least_once" and since is None:
            yield (
                f"{handler.declared}: its own I/O leaves no high-water mark, and would be done"
                " again for a day's changes; say since when changes may not be done (--since)"
            )


@dataclass
class _MoveToWorkers:
    environment: Environment
    since: int

    def __post_init__(self) -> None:
        environment = self.environment
        self.store, self.clock = environment.store, environment.clock
        arn = environment.tables.table.stream_arn or ""
        self.passage = Passage(environment.aws, arn, self.clock, environment.rng, self._process)

    async def run(self, in_flight: float) -> Moved:
        fence = await MoveFence.raised(self.store, self.clock, self._unfit)
        newest = fence.began
        self.environment = replace(self.environment, send=fence.sending(self.environment.tables))
        if newest.host != TO_WORKERS:
            await self.passage.catch_up()
            await fence.turn(TO_WORKERS)
        log.info("consumer.fenced", host=TO_WORKERS)
        try:
            await self._outlast(in_flight)
        except BaseException:
            with anyio.CancelScope(shield=True), anyio.move_on_after(_BLOCKED_PAUSE):
                await fence.turn(LAMBDA)
            raise
        queues = await parked_queues(self.store, {})
        chunks = frozenset(queue.chunk for queue in queues) & frozenset(LAMBDA_CHUNKS)
        cursors = self._cursors(newest, chunks)
        await replace_cursors(fence, cursors, newest.number)
        await fence.turn(WORKERS)
        log.info("consumer.moved", host=WORKERS, shards=len(cursors))
        name = self.environment.app.name
        return Moved(name, WORKERS, len(cursors), self.passage.records, len(queues))

    def _unfit(self, newest: Generation | None) -> Iterator[str]:
        """Yield why the mover must not run the handlers now."""
        app = self.environment.app
        yield from unfit(app, newest, LAMBDA, TO_WORKERS)
        if newest is not None and newest.paused:
            yield f"{app.name} is paused; resume it first"

    async def _outlast(self, in_flight: float) -> None:
        """Process under marks until earlier invocations end, and all that they may have seen."""
        fenced = self.clock.monotonic()
        while True:
            began = self.clock.monotonic()
            await self.passage.catch_up()
            if began - fenced >= in_flight:
                return
            await anyio.sleep(min(1.0, max(0.0, fenced + in_flight - self.clock.monotonic())))

    async def _process(self, records: Sequence[Record]) -> None:
        """Process records as a function does, until all are done.

        Raises:
            MoveRefused: a handler blocks.
        """
        await self.environment.set_aside(records, None)
        takes, since = self.environment.takes, self.since
        left: Sequence[Record] = [r for r in records if r.created_at >= since and takes(r)]
        for _ in range(_BLOCKED_TRIES):
            batch = await run_records(self.environment, left, None, _RUN_SECONDS)
            first = batch.left
            if first is None:
                return
            left = [record for record in left if record.position >= first.position]
            await anyio.sleep(_BLOCKED_PAUSE)
        raise MoveRefused(
            ["a handler blocks its shard; mend it and move again; the functions keep the consumer"]
        )

    def _cursors(self, newest: Generation, chunks: frozenset[str]) -> list[Cursor]:
        """Return a cursor for each shard that was read, parents first."""
        now = int(self.clock.time())
        made: dict[str, Cursor] = {}
        for shard in self.passage.begun():
            reader = self.passage.readers[shard.id]
            cursor = fresh_cursor(shard, made, generation=newest.number, since=newest.since)
            seen, dated = int(reader.seen), int(reader.dated)
            cursor = replace(cursor, position=reader.position, seen=seen, dated=dated)
            cursor = replace(cursor, chunks=chunks)
            if reader.ended:
                cursor = replace(cursor, state="finished", ended=now)
            add_cursor(cursor, made)
        return list(made.values())
