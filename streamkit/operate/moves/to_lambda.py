"""Move from positions in shards to marks of items; the package's text proves it correct.

In: an app whose consumer workers run. Out: marks, and no cursors. A mark costs one write unit for
each item that was changed within the retention. On failure: marks that were raised stay true; the
same call again finishes the move.
"""

import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from streamkit.app import App
from streamkit.aws import Aws
from streamkit.aws_lambda.environment import Environment
from streamkit.core.high_water_mark import item_of
from streamkit.core.parked.queues import ParkedQueue, parked_queues, show
from streamkit.core.parking import LAMBDA_CHUNKS, chunk_of
from streamkit.core.tables import survey
from streamkit.effects import Guard
from streamkit.errors import LeaseLost
from streamkit.fleet.capture import capture
from streamkit.fleet.cursors import drop_cursors, every_cursor
from streamkit.fleet.generation import Generation, begin_move, newest_generation
from streamkit.fleet.hosting import LAMBDA, TO_LAMBDA, WORKERS
from streamkit.fleet.liveness import live_workers
from streamkit.model.conditions import Attr, present
from streamkit.observe.logger import get_logger
from streamkit.operate.moves.fence import MoveFence
from streamkit.operate.moves.marking import Marking
from streamkit.operate.moves.moved import OVERTAKEN, Moved, MoveRefused, unfit
from streamkit.operate.moves.tables import environment_with
from streamkit.progress.actions import QUEUE, Action, GuardSource, Verb
from streamkit.progress.clock import Clock, SystemClock
from streamkit.progress.control import Cursor
from streamkit.progress.operation import said_of
from streamkit.progress.verdicts import Invalid
from streamkit.stream.start import RETENTION_SECONDS

log = get_logger("streamkit.moving")

_BEHIND_SECONDS = RETENTION_SECONDS - 3600


async def move_to_lambda(
    app: App,
    aws: Aws,
    *,
    wait: float = 0.0,
    lease_seconds: float = 7.0,
    accept_loss: bool = False,
    ask_to_stop: Callable[[], object] = lambda: None,
    clock: Clock | None = None,
    rng: random.Random | None = None,
) -> Moved:
    """Let the functions of an app continue where its workers are; then enable the mapping.

    Args:
        app: the app whose consumer is moved.
        aws: open clients.
        wait: for how many seconds to wait for the last worker to stop, once most is done.
        lease_seconds: how long silent workers are watched before they count as dead.
        accept_loss: finish a move that was interrupted for so long that records may have been
            trimmed unread; the app's aggregates then need a rebuild.
        ask_to_stop: is called once it waits for workers that are alive, and nothing else is known
            that would refuse the move.
        clock: for simulations.
        rng: for simulations, too.

    Raises:
        MoveRefused: the result would be wrong, or workers are still alive; nothing has changed.
        ConfigurationError: the table is missing or has no stream, or may not be described.
    """
    clock, rng = clock or SystemClock(), rng or random.Random()
    tables = await survey(app, aws)
    store = tables.store(app, aws)
    newest = await newest_generation(store)
    # A consumer that is older than the host's name has none; its cursors tell that workers run it.
    hosts = WORKERS, TO_LAMBDA, *(("",) if await store.names() else ())
    MoveRefused.raise_for(unfit(app, newest, *hosts))
    assert newest is not None  # noqa: S101 - it would have been refused

    async with environment_with(app, aws, clock, rng) as environment:
        mover = _MoveToLambda(environment, newest, accept_loss, ask_to_stop)
        return await mover.run(wait, lease_seconds)


@dataclass
class _MoveToLambda:
    environment: Environment
    newest: Generation
    accept_loss: bool
    ask_to_stop: Callable[[], object]

    def __post_init__(self) -> None:
        self.store, self.clock = self.environment.store, self.environment.clock
        self.marking = Marking(self.environment)

    async def run(self, wait: float, lease_seconds: float) -> Moved:
        await self.marking.raise_all(await every_cursor(self.store))
        if self.newest.host == TO_LAMBDA:
            missed = await self._missed()
        else:
            missed = frozenset[str]()
            await self._until_stopped(wait, lease_seconds)
            try:
                said = said_of(self.clock, f"move: {TO_LAMBDA}")
                await begin_move(self.store, self.newest, TO_LAMBDA, said)
            except LeaseLost:
                raise MoveRefused(["another generation began meanwhile; try again"]) from None
        fence = await MoveFence.raised(self.store, self.clock, self._unfit, needs_rebuild=missed)
        newest = fence.began
        log.info("consumer.fenced", host=TO_LAMBDA)
        # Without workers in its generation, the positions of all cursors are final.
        await capture(self.store, newest, read=False)
        cursors = await every_cursor(self.store)
        await self.marking.raise_all(cursors)
        for cursor in cursors.values():
            if cursor.done and not cursor.finished:
                await self.marking.name_done(cursor, fence)
        queues = await self._list_anew(cursors, fence)
        for queue in queues:
            await self._hold(queue, fence)
        await drop_cursors(self.store, below=newest.number + 1, send=fence.transact)
        await fence.turn(LAMBDA)
        log.info("consumer.moved", host=LAMBDA, shards=len(cursors))
        name = self.environment.app.name
        return Moved(name, LAMBDA, len(cursors), self.marking.records, len(queues))

    def _unfit(self, newest: Generation | None) -> Iterable[str]:
        """Return why this mover must not continue, now that no worker may begin."""
        if newest is None or newest.host != TO_LAMBDA:
            return [OVERTAKEN]
        return unfit(self.environment.app, newest, TO_LAMBDA)

    async def _until_stopped(self, wait: float, lease_seconds: float) -> None:
        until, asked = self.clock.monotonic() + wait, wait <= 0
        await self._refuse_behind()  # workers that were stopped could not catch up
        while alive := await live_workers(self.store, self.clock, lease_seconds):
            if not asked:
                self.ask_to_stop()
                asked = True
            if self.clock.monotonic() >= until:
                raise MoveRefused([f"workers are alive, stop them first: {', '.join(alive)}"])
            log.info("consumer.waits", workers=len(alive))
        await self._refuse_behind()

    async def _refuse_behind(self) -> None:
        MoveRefused.raise_for(
            f"{late}; let the workers catch up first"
            for late in (*await self._late(), *await self._joining())
        )

    async def _late(self) -> list[str]:
        """Return what the mapping would miss, because it will be trimmed before.

        That is also what follows a shard that has ended, where no cursor follows it yet: a consumer
        reads an archive so, shard by shard. There a shard may not have been read at all; then
        `since` says from when on it is to be.
        """
        now, cursors = self.clock.time(), await every_cursor(self.store)
        followed = {c.parent for c in cursors.values()}
        last = {c.name: max(c.seen, c.since) for c in cursors.values()}
        return [
            f"shard {c.name} was last read to its tip {(now - last[c.name]) / 3600:.0f} hours ago,"
            " and the mapping would miss what is trimmed"
            for c in cursors.values()
            if not (c.finished and c.name in followed)
            and last[c.name]
            and now - last[c.name] > _BEHIND_SECONDS
        ]

    async def _joining(self) -> list[str]:
        """Return where a handler that has joined is ahead: no mark of an item could say so."""
        cursors = (await every_cursor(self.store)).values()
        return [
            f"shard {c.name} is not past the point where {mark.partition(':')[2]} has joined"
            for c in cursors
            for mark in sorted(c.joined_after(c.position))
            if not c.finished
        ]

    async def _missed(self) -> frozenset[str]:
        """Return the aggregates that miss changes if an interrupted move is finished.

        No worker can catch up any more: their consumer is between two hosts. So a person has to
        accept that a day of changes may be incomplete.

        Raises:
            MoveRefused: no person has accepted it.
        """
        late = await self._late()
        if not late:
            return frozenset()
        if not self.accept_loss:
            raise MoveRefused(
                f"{one}; --accept-loss finishes the move nevertheless" for one in late
            )
        log.error("retention.lost", shards=len(late), certain=False)
        return frozenset(h.name for h in self.environment.app.handlers if h.is_aggregate)

    async def _hold(self, queue: ParkedQueue, fence: MoveFence) -> None:
        """Name a parked queue in its item's mark, IF it is still parked."""
        first = await show(self.store, queue.name)
        key = None if first is None else item_of(first)
        if key is None:
            return
        still = Action(self.store.space.ref("lane", queue.name), Verb.CHECK)
        still.guards.append((Guard(present), GuardSource("", queue.name, QUEUE)))
        await self.marking.add(key, "lanes", frozenset({queue.name}), fence, still)

    async def _list_anew(
        self, cursors: Mapping[str, Cursor], fence: MoveFence
    ) -> list[ParkedQueue]:
        """List every parked queue where functions look for it, and return the queues.

        This is repeated until no queue is listed elsewhere, because a fan-out under way may have
        parked changes for recipients.
        """
        while True:
            queues = await parked_queues(self.store, cursors)
            elsewhere = [queue for queue in queues if queue.chunk not in LAMBDA_CHUNKS]
            for queue in elsewhere:
                await self._list_one(queue, fence)
            if not elsewhere:
                return queues

    async def _list_one(self, queue: ParkedQueue, fence: MoveFence) -> None:
        chunk = chunk_of(queue.name, LAMBDA_CHUNKS)
        space = self.store.space
        move = space.update("lane", queue.name)
        leave = space.without_name(queue.name, "holds", queue.chunk, among="lanes")
        enter = space.with_name(queue.name, "holds", chunk, among="lanes")
        move.sets["chunk"] = {"S": chunk}
        source = GuardSource("", queue.name, QUEUE)
        move.guards.append((Guard(Attr("chunk").eq(queue.chunk)), source))
        enter.sets["chunk"] = {"S": chunk}
        sent = await fence.transact([move, leave, enter], self.environment.rng)
        if isinstance(sent, Invalid):  # a refused queue has changed meanwhile, and is read again
            reason = f"functions have no room left for queue {queue.name} ({sent.code})"
            raise MoveRefused([f"{reason}; redrive or discard parked changes, then try again"])
