"""Running: a process that takes a migration from phase to phase, with any number of others.

    follow    the state is read every two seconds: pause, limits, and what other processes reached
    capture   a worker of the migration's own consumer; the processes share its shards
    pass      the segments of the phase, shared as well
    step      a phase that is complete is followed by the next, in one conditional write

In: an app, a migration and its state. Out: a phase in which nothing happens by itself: `done`,
`ready`, `soaking`, `rolled back` or `blocked`. It may die at any instant; whoever runs the same
command goes on. Two that run at once do some work twice, and none of it wrong, because every write
is conditional on what was read.

On failure: an item's failure is an error of the item. What is wrong with the table, the permissions
or the stream ends the process, and the migration stays where it was.
"""

import random
from dataclasses import dataclass, field, replace
from typing import Any

import anyio

from streamkit.activity import first_error
from streamkit.app import App
from streamkit.aws import Aws
from streamkit.clock import Clock, SystemClock
from streamkit.control import ControlSpace
from streamkit.cursor import CursorStore
from streamkit.errors import ConfigurationError, RetentionLost
from streamkit.fleet.generation import newest_generation
from streamkit.fleet.members import Roster, new_worker_name
from streamkit.kinds.migration import Migration
from streamkit.migrate.calls import Calls
from streamkit.migrate.capture import capture_app
from streamkit.migrate.errors import ErrorBook
from streamkit.migrate.in_place import Tally
from streamkit.migrate.others import Others
from streamkit.migrate.passing import ERRORS_MAX, Pace, Passing, TooManyErrors
from streamkit.migrate.rate import Limits, Rate
from streamkit.migrate.segments import Segments
from streamkit.migrate.state import PASSES, RESTING, SWITCHED, Phase, State, StateBook
from streamkit.migrate.tallies import TallyBook
from streamkit.migrate.work import Schemas, Work
from streamkit.observe.logger import get_logger
from streamkit.running.catching_up import CatchUp
from streamkit.running.preflight import describe, survey
from streamkit.settings import Settings
from streamkit.worker import Worker

log = get_logger("streamkit.migrate")

_FOLLOW_SECONDS = 2.0
_SETTLE_SECONDS = 3 * _FOLLOW_SECONDS
"""Until every process knows of a phase; who does not may write what the phase deletes."""
_LAG_SECONDS = 15.0
_LAG_MAX = 60.0
"""Seconds that other consumers may fall behind before a migration holds back."""
_CATCH_UP_SECONDS = 30.0
_ATTEMPTS_MAX = 5
"""Passes of one phase, each of which still found something."""

_DELETING = frozenset({"unturning", "dropping", "contracting"})
_NEXT: dict[str, Phase] = {
    "scanning": "catching up",
    "switching": "soaking",
    "contracting": "done",
    "unturning": "dropping",
    "dropping": "rolled back",
}


_LEFT = "{} items could not be migrated; see `streamkit migrate errors list`"
_TURNING = frozenset({"switching", "contracting", "unturning"})
"""The phases that go on to the next one only when every item is right, or waived."""


@dataclass
class Runner:
    """One process's part of one migration. `run` may be called once.

    `state` is what it knows, `rate` what it takes, `owner` its name.
    """

    app: App
    aws: Aws
    migration: Migration
    settings: Settings = field(default_factory=Settings)
    clock: Clock = field(default_factory=SystemClock)
    rng: random.Random = field(default_factory=random.Random)
    pace: Pace = field(default_factory=Pace)
    owner: str = field(default_factory=new_worker_name)
    stopping: anyio.Event = field(default_factory=anyio.Event)

    def __post_init__(self) -> None:
        """Begin with nothing known."""
        self.state = State(self.migration.id)
        self.rate = Rate(self.clock)
        self._interrupt = anyio.Event()
        self._changed = anyio.Event()
        self._captured = anyio.Event()
        self._stays = False
        self._worker: Worker | None = None
        self._work: Work | None = None

    def stop(self) -> None:
        """Ask for an end at the next page; leases are given back."""
        self.stopping.set()
        self._interrupt.set()
        self._changed.set()

    async def run(self, *, stay: bool = False) -> State:
        """Work until nothing happens by itself; with `stay`, follow changes until stopped.

        Returns:
            The state then.

        Raises:
            ConfigurationError: the table, the permissions or the definition are wrong.
        """
        self._stays = stay
        await self._open()
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(self._follow)
                group.start_soon(self._capture)
                group.start_soon(self._heed_others)
                await self._phases(stay=stay)
                await self._end_capture()
                group.cancel_scope.cancel()
        except BaseExceptionGroup as errors:
            raise first_error(errors) from errors
        return self.state

    async def _open(self) -> None:
        self.around = await survey(self.app, self.aws)
        if self.around.table.stream_arn is None:
            raise ConfigurationError(
                f"table {self.app.table} has no stream; enable one with NEW_AND_OLD_IMAGES"
            )
        target = self.around.table
        if self.migration.to is not None:
            target = await describe(
                self.aws, self.migration.to, type_attribute=self.app.type_attribute
            )
        self.schemas = Schemas(self.around.table, target, self.app.entities)
        self.book = StateBook(self.aws.dynamodb, self.around.control, self.app.name)
        self.error_book = ErrorBook(self.book.store, self.migration.id)
        self.tallies = TallyBook(self.book.store, self.migration.id)
        self._adopt(await self.book.read(self.migration.id))
        if self.state.phase == "new":
            raise ConfigurationError(f"migration {self.migration.id} was not begun")

    # -- following -----------------------------------------------------------------------------

    def _adopt(self, state: State) -> None:
        """Take up a state; whatever belongs to another phase is interrupted."""
        before, self.state = self.state, state
        self.rate.limits = Limits(state.max_reads, state.max_writes)
        same = (before.phase, before.run, before.desired, before.direction) == (
            state.phase,
            state.run,
            state.desired,
            state.direction,
        )
        if not same or self._work is None:
            calls = Calls(self.aws.dynamodb, self.rate)
            self._work = Work(
                self.app.name,
                self.migration,
                state,
                self.schemas,
                calls,
                self.error_book,
                self.clock,
            )
        if not same:
            log.info("migration.phase", migration=state.id, phase=state.phase, wanted=state.desired)
            self._interrupt.set()
            self._changed.set()
            if self._worker is not None and (before.run, before.direction) != (
                state.run,
                state.direction,
            ):
                self._worker.stop()

    async def _follow(self) -> None:
        while True:
            await anyio.sleep(_FOLLOW_SECONDS)
            self._adopt(await self.book.read(self.migration.id))
            self.rate.processes = await self._processes()

    async def _processes(self) -> int:
        members = await Roster(self.capture_store()).look()
        return max(1, len(members.members))

    async def _heed_others(self) -> None:
        others = Others(self.app, self.aws, self.around, self.clock)
        while True:
            await anyio.sleep(_LAG_SECONDS)
            if self.state.phase in PASSES and await others.lag(self.state) > _LAG_MAX:
                self.rate.ease("lag")

    # -- capturing -----------------------------------------------------------------------------

    def capture_store(self) -> CursorStore:
        """Return the control items of the capture's consumer."""
        label = (self.around.table.stream_arn or "").rpartition("/")[2]
        name = f"{self.app.name}.{self.state.consumer}"
        return CursorStore(self.aws.dynamodb, ControlSpace.of(self.around.control, name, label))

    async def _live(self, change: Any) -> None:
        if self._work is not None:
            await self._work.live(change)

    def _capture_app(self) -> App:
        return capture_app(self.app, self.migration, self.state, self._live)

    async def _capture(self) -> None:
        """Run a worker of the migration's consumer; another one when a run begins anew."""
        try:
            await self._capture_until_stopped()
        finally:
            self._captured.set()

    async def _capture_until_stopped(self) -> None:
        while not self.stopping.is_set():
            state = self.state
            if not self._captures(state):
                await self._next_change()
                continue
            worker = self._worker = Worker(
                self._capture_app(),
                self.aws,
                self.settings,
                clock=self.clock,
                rng=random.Random(self.rng.random()),
            )
            try:
                await worker.run()
            except RetentionLost:
                await self._begin_anew(state)
            finally:
                self._worker = None

    def _captures(self, state: State) -> bool:
        """Say whether changes are followed: to the end, and for who stays, as long as it does."""
        if state.phase in ("done", "rolled back"):
            return self._stays and not self.migration.moves
        return state.phase != "dropping"

    async def _end_capture(self) -> None:
        self.stopping.set()
        if self._worker is not None:
            self._worker.stop()
        await self._captured.wait()

    async def _begin_anew(self, state: State) -> None:
        """Changes may be lost: capture from now on, and read the table once more."""
        log.warning("migration.begins_anew", migration=state.id, run=state.run)

        def anew(now: State) -> State:
            if now.run != state.run:
                return now
            moment = self.clock.time()
            turned = now.phase in SWITCHED or now.direction == "back"
            stays = self.migration.is_pairs and turned  # what a rollback does depends on it
            phase: Phase = now.phase if stays else "capturing"
            again = replace(now, run=now.run + 1, phase=phase, began=moment)
            return again.noted(moment, self.owner, "changes may have been lost: begun anew")

        self._adopt(await self.book.change(state.id, anew))

    # -- phases --------------------------------------------------------------------------------

    async def _phases(self, *, stay: bool) -> None:
        while not self.stopping.is_set():
            self._interrupt = anyio.Event()
            state = self.state
            if state.desired == "pause" and state.phase not in RESTING:
                await self._next_change()
            elif state.phase in RESTING:
                if not stay:
                    return
                await self._next_change()
            elif state.phase == "capturing":
                await self._capturing(state)
            elif state.phase in ("catching up", "returning"):
                await self._catching_up(state)
            else:
                await self._pass(state)

    async def _next_change(self) -> None:
        self._changed = anyio.Event()
        with anyio.move_on_after(_FOLLOW_SECONDS):
            await self._changed.wait()

    async def _step(self, state: State, phase: Phase, what: str = "", **facts: Any) -> None:
        """Go on to a phase, if nobody has meanwhile."""
        later = replace(state, phase=phase, **facts)
        later = later.noted(self.clock.time(), self.owner, what or phase)
        written = await self.book.write(state, later)
        self._adopt(written or await self.book.read(state.id))

    async def _capturing(self, state: State) -> None:
        """Wait until the consumer's beginning, and a cursor for its shards, are in the table."""
        store = self.capture_store()
        while not self._interrupt.is_set():
            if await newest_generation(store) is not None and await store.names():
                await self._step(state, "scanning")
                return
            await self._pause(0.2)

    async def _pause(self, seconds: float) -> None:
        with anyio.move_on_after(seconds):
            await self._interrupt.wait()

    async def _catching_up(self, state: State) -> None:
        catch_up = CatchUp(
            self._capture_app(),
            self.aws,
            self.capture_store(),
            self.around.table,
            _CATCH_UP_SECONDS,
            self.clock,
        )
        while not self._interrupt.is_set():
            if await catch_up.with_all_until_now():
                returning = state.phase == "returning"
                await self._step(state, "unturning" if returning else "verifying")
                return

    # -- passes --------------------------------------------------------------------------------

    async def _pass(self, state: State) -> None:
        if state.phase == "contracting" and (left := await self._left()):
            await self._give_up(state, _LEFT.format(left))
            return
        if state.phase in ("contracting", "dropping") and not state.attempt:
            await self._pause(_SETTLE_SECONDS)
        segments = Segments(self.book.store, state.pass_name, state.segments, self.clock, self.rng)
        if state.phase in _DELETING and not state.attempt:
            await self._pause(3 * _FOLLOW_SECONDS)  # until every process has taken up the phase
        assert self._work is not None  # noqa: S101 - a state was adopted
        calls = Calls(self.aws.dynamodb, self.rate)
        serve = Passing(self._work, calls, self.tallies, self.pace, self.rng).serve
        try:
            complete = await segments.run(
                serve, self.owner, at_once=self.pace.segments, stopping=self._interrupt
            )
        except TooManyErrors:
            await self._give_up(state, f"more than {ERRORS_MAX} items failed")
            return
        if not complete or self.state != state:
            return
        if state.phase == "verifying":
            await self._verified(state)
        elif state.phase in _TURNING and (left := await self._left()):
            await self._give_up(state, _LEFT.format(left))
        elif await self._must_repeat(state):
            await self._step(state, state.phase, "once more", attempt=state.attempt + 1)
        else:
            await self._step(state, _NEXT[state.phase], note="")
        await segments.delete()

    async def _must_repeat(self, state: State) -> bool:
        """Say whether what a pass deletes or turns may have come up behind it."""
        if state.phase == "scanning" or state.attempt >= _ATTEMPTS_MAX:
            return False
        return (await self.tallies.read(state.pass_name)).changed > 0

    async def _left(self) -> int:
        """Try once more what has failed; return how many items are still not right."""
        assert self._work is not None  # noqa: S101 - a state was adopted
        for error in await self.error_book.open():
            tally = Tally()
            await self._work.retry(error.key, tally)
            if not tally.errors:
                await self.error_book.remove(error.id)
        return len(await self.error_book.open())

    async def _give_up(self, state: State, note: str, **facts: Any) -> None:
        """Leave it to people. While pairs are turned the phase stays: a rollback must know it."""
        if state.phase in ("scanning", "verifying"):
            await self._step(state, "blocked", note, note=note, **facts)
            return
        again = state.attempt + 1
        await self._step(state, state.phase, note, note=note, desired="pause", attempt=again)

    async def _verified(self, state: State) -> None:
        """Go on after the verification: to the end, or to people."""
        left = await self._left()
        found = (await self.tallies.read(state.pass_name)).to_dict() | {"errors": left}
        if left:
            await self._give_up(state, _LEFT.format(left), verified=found)
            return
        phase: Phase = "ready" if self.migration.moves else "done"
        if state.direction == "back":
            phase = "rolled back"
        await self._step(state, phase, note="", verified=found)
