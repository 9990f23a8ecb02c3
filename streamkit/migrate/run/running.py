"""Run a migration from phase to phase in one process, together with any number of others.

    follow    the state is read every two seconds: pause, limits, and what other processes reached
    capture   a worker of the migration's own consumer; the processes share its shards
    pass      the segments of the phase, shared as well
    step      a phase that is complete is followed by the next, in one conditional write

In: an app, a migration and its state. Out: a phase in which nothing happens by itself: `done`,
`ready`, `soaking`, `rolled back` or `blocked`. The process may die at any instant; any process that
runs the same command continues. Two processes at once do some work twice, and none of it wrong,
because every write is conditional on what was read.

On failure: an item's failure is an error of the item. A problem of the table, the permissions or
the stream ends the process, and the migration stays where it was.
"""

import random
from dataclasses import dataclass, field, replace
from typing import Any

import anyio

from streamkit.app import App
from streamkit.aws import Aws
from streamkit.changes import Change
from streamkit.errors import ConfigurationError, LeaseLost, RetentionLost
from streamkit.fleet.members import new_worker_name
from streamkit.kinds.migration import Migration
from streamkit.migrate.book.course import PhaseStep, begun_anew, given_up
from streamkit.migrate.book.limits import Share
from streamkit.migrate.book.order import order_of
from streamkit.migrate.book.overlap import broken_word
from streamkit.migrate.book.refusals import require_same
from streamkit.migrate.book.state import ENDED, FOLLOWED, RESTING, State
from streamkit.migrate.book.tallies import TallyBook
from streamkit.migrate.run.capture import Capture
from streamkit.migrate.run.live import LiveWork
from streamkit.migrate.run.opening import (
    Present,
    open_migration,
    source_is_there,
    trouble_of_target,
)
from streamkit.migrate.run.others import Others
from streamkit.migrate.run.passing import Passing, PassPace
from streamkit.migrate.run.phase_pass import PhasePass
from streamkit.migrate.sending.rate import Rate
from streamkit.migrate.sending.view import FOLLOW_SECONDS, PhaseOver
from streamkit.observe.logger import get_logger
from streamkit.progress.activity import task_group
from streamkit.progress.clock import Clock, SystemClock
from streamkit.progress.operation import AuditEntry
from streamkit.settings import Settings

log = get_logger("streamkit.migrate")


@dataclass
class Runner:
    """One process's part of one migration; `run` may be called once.

    `state` is what it knows, `rate` what it uses, `owner` its name.
    """

    app: App
    aws: Aws
    migration: Migration
    settings: Settings = field(default_factory=Settings)
    clock: Clock = field(default_factory=SystemClock)
    rng: random.Random = field(default_factory=lambda: random.Random())  # noqa: PLW0108 - see `repeatable`
    pace: PassPace = field(default_factory=PassPace)
    owner: str = field(default_factory=new_worker_name)
    stopping: anyio.Event = field(default_factory=anyio.Event)

    def __post_init__(self) -> None:
        """Start without any knowledge of the table."""
        self.state = State(self.migration.id)
        self.rate = Rate(self.clock, share=Share(0.0, 0.0))
        self._interrupt, self._changed, self._captured = (anyio.Event() for _ in range(3))
        self._stays = self._catches_up = self._overtaken = False

    def stop(self) -> None:
        """Ask for an end at the next page; leases are given back."""
        self.stopping.set()
        self._interrupt.set()
        self._changed.set()

    async def run(self, *, stay: bool = False) -> State:
        """Work until nothing happens by itself, or with `stay` until stopped; return the state.

        It returns if the migration is paused already, or has stopped for people to look, and waits
        if an operator pauses it later.

        Raises:
            ConfigurationError: never begun; or the table, permissions or definition are wrong.
        """
        self._stays = stay
        await self._open()
        if not stay and self.state.waits:
            return self.state
        self._catches_up = not stay and self.state.phase in FOLLOWED
        async with task_group() as group:
            group.start_soon(self._follow)
            group.start_soon(self._capture)
            others = Others(self.app, self.aws, self.opened.tables, self.clock)
            group.start_soon(others.heed, self.rate, lambda: self.state)
            group.start_soon(self.opened.shares.keep, self.rate)
            await self._operation.run(self._act, self.stopping)
            self.stopping.set()
            self.capture.stop()
            await self._captured.wait()
            group.cancel_scope.cancel()
        return self.state

    async def _open(self) -> None:
        opened = await open_migration(
            self.app, self.aws, self.migration, self.rate, self.clock, self.owner
        )
        self.opened, self.book = opened, opened.book
        if opened.schemas.source.stream_arn is None:
            raise ConfigurationError(
                f"table {self.app.table} has no stream; enable one with NEW_AND_OLD_IMAGES"
            )
        if trouble := trouble_of_target(opened.schemas.target, self.migration):
            raise ConfigurationError(trouble)
        self.present = Present(opened, self._adopting)
        self.tallies = TallyBook(self.book.store)
        self.capture = Capture(opened, self._live)
        operation = self.book.operation(self.migration.id, self._is_held)
        self._operation = replace(operation, read=self.present.read)
        await self.present.begin()

    # -- following -----------------------------------------------------------------------------

    def _adopting(self, state: State) -> None:
        """Interrupt work that belongs to another phase than a state that is taken over."""
        require_same(self.migration, state, accept_change=False)
        before, self.state = self.state, state
        if (before.course, before.paused) != (state.course, state.paused):
            log.info("migration.phase", migration=state.id, phase=state.phase, wanted=state.desired)
            self._interrupt.set()
            self._changed.set()
            if before.course[:2] != state.course[:2]:
                self.capture.stop()

    async def _follow(self) -> None:
        while True:
            await anyio.sleep(FOLLOW_SECONDS)
            state = await self.present.read()
            self._overtaken = self._overtaken or await self._is_overtaken(state)
            if not state.paused and (said := await broken_word(self.opened.errors, state)):
                await self._step(state, given_up(state, said))

    async def _is_overtaken(self, state: State) -> bool:
        """Return whether it is at its end, and a later migration of the same items was begun."""
        order, ended = order_of(self.app), self._stays and state.phase in ENDED
        others = [await self.book.read(one) for one in order.beside(self.migration) if ended]
        return bool(order.begun_on(self.migration, others))

    async def _live(self, change: Change[Any], *, target: bool) -> None:
        """Process a change as the present phase requires; do nothing once that phase is over."""
        await LiveWork(self.present.work, target).count(change, self.opened.old_writes)
        while self._captures(self.state):
            try:
                await LiveWork(self.present.work, target).take(change)
            except PhaseOver:
                continue  # the task that found out has read the new phase
            return

    async def _capture(self) -> None:
        """Run a worker of the migration's consumer; start another one when a run begins again."""
        try:
            while not self.stopping.is_set():
                state = self.state
                if not self._captures(state):
                    await self._next_change()
                    continue
                try:
                    await self.capture.run(state, self.settings, self.rng)
                except RetentionLost:
                    await self._begin_anew(state)
        finally:
            self._captured.set()

    def _captures(self, state: State) -> bool:
        """Return whether changes are followed: to the end; with `stay`, till a later one begins."""
        if state.phase in ENDED:
            return self._stays and not self._overtaken and not self.migration.moves
        return state.phase != "dropping"

    async def _begin_anew(self, state: State) -> None:
        """Capture again from now on, and read the table once more: changes may be lost."""
        log.warning("migration.begins_anew", migration=state.id, run=state.run)

        self._overtaken = state.phase in ENDED
        moment = await self.book.store.time(self.clock)

        def anew(now: State) -> State:
            if now.run != state.run or not self._captures(now):
                return now
            return begun_anew(now, moment, self.owner, pairs=self.migration.is_pairs)

        asked = self.clock.monotonic()
        self.present.take(await self.book.change(state.id, anew), asked)

    def _is_held(self, state: State) -> bool:
        # With a note it is not held, but ends: a person has to look at something, and goes on then.
        return state.waits and (self._stays or not state.note)

    async def _act(self, state: State) -> bool:
        """Do what a phase asks for, or wait at rest; return whether this process goes on."""
        self._interrupt = anyio.Event()
        if self.stopping.is_set() or state.waits:
            return False
        if self._catches_up:
            self._catches_up = not await self.capture.catches_up(state, self._interrupt)
        elif await self._rests(state):
            while self._stays and self.state == state and await self._rests(state):
                await self._next_change()
            return self._stays
        elif state.phase == "capturing":
            await self._capturing(state)
        elif state.phase in ("catching up", "returning"):
            if await self.capture.catches_up(state, self._interrupt):
                back = state.does == "returning"
                await self._step(state, PhaseStep("following" if back else "verifying"))
        else:
            part = Passing(self.present.work, self.tallies, self.pace, self.rng, lambda: self.state)
            about = part, self.opened, self.capture, self._interrupt
            await PhasePass(*about, self._step).run(state)
        return True

    async def _rests(self, state: State) -> bool:
        """Return whether nothing is to be done: stubs are watched for 24 hours after a write."""
        watches = await self.opened.must_watch(state)
        return not self.stopping.is_set() and (watches or state.phase in RESTING)

    async def _next_change(self) -> None:
        self._changed = anyio.Event()
        with anyio.move_on_after(FOLLOW_SECONDS):
            await self._changed.wait()

    async def _step(self, state: State, step: PhaseStep) -> None:
        """Take a step, unless another process has done so."""
        later = replace(state, phase=step.phase, **{"stage": "", **step.facts})
        at = await self.book.store.time(self.clock)
        later = later.noted(AuditEntry(at, self.owner, step.what or step.phase))
        asked = self.clock.monotonic()
        try:
            written = await self.book.write(state, later)
        except LeaseLost:
            await self.present.read()
        else:
            self.present.take(written, asked)

    async def _capturing(self, state: State) -> None:
        """Wait until changes are followed, and the table shows it."""
        while not self._interrupt.is_set():
            if await self.capture.is_live(state):
                if await source_is_there(self.opened, state, self._interrupt):
                    await self._step(state, PhaseStep("scanning"))
                return
            with anyio.move_on_after(0.2):
                await self._interrupt.wait()
