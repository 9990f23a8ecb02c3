"""Run the workers of one process that follow what is written while a migration runs.

Sources are followed from the beginning to the end; so are targets in another table, if `reverse`
says how their sources follow them: that has to run before the switch, and it needs that table's
stream. The control items of both are where the app's are.

In: an app, its migration, and the functions that take a change. Out: workers of the migration's own
consumers, until they are stopped. On failure: `RetentionLost` if changes may be lost.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

import anyio

from streamkit.app import App
from streamkit.aws import Aws
from streamkit.fleet.catching_up import CatchUp
from streamkit.fleet.generation import newest_generation
from streamkit.fleet.members import Roster
from streamkit.kinds.migration import Migration
from streamkit.migrate.capture import Live, capture_app, target_app
from streamkit.migrate.state import State
from streamkit.migrate.work import Schemas
from streamkit.model.schema import TableSchema
from streamkit.progress.activity import first_error
from streamkit.progress.clock import Clock
from streamkit.progress.control import ControlSpace
from streamkit.progress.cursor import CursorStore
from streamkit.settings import Settings
from streamkit.worker.worker import Worker

CATCH_UP_SECONDS = 30.0
"""How long in seconds `caught_up` waits at most."""


@dataclass(frozen=True)
class Side:
    """One table that is followed: the consumer's app, its control items, and the table."""

    app: App
    store: CursorStore
    table: TableSchema


@dataclass
class Capturing:
    """Follows the changes of one migration; `control` is the table of its control items."""

    app: App
    aws: Aws
    migration: Migration
    schemas: Schemas
    control: TableSchema
    live: Live
    live_target: Live
    clock: Clock
    _workers: list[Worker] = field(default_factory=list)

    def sides(self, state: State) -> list[Side]:
        """Return the tables that are followed in a run."""
        own = capture_app(self.app, self.migration, state, self.live)
        found = [self._side(own, self.schemas.source)]
        if self.migration.follows_target:
            there = target_app(self.app, self.migration, state, self.live_target)
            found.append(self._side(there, self.schemas.target))
        return found

    def _side(self, app: App, table: TableSchema) -> Side:
        label = (table.stream_arn or "").rpartition("/")[2]
        space = ControlSpace.of(self.control, app.name, label)
        return Side(app, CursorStore(self.aws.dynamodb, space), table)

    # -- what is in the table ------------------------------------------------------------------

    async def is_live(self, state: State) -> bool:
        """Return whether the table holds every consumer's start, and a cursor for its shards."""
        for side in self.sides(state):
            if await newest_generation(side.store) is None or not await side.store.names():
                return False
        return True

    async def caught_up(self, state: State, patience: float = CATCH_UP_SECONDS) -> bool:
        """Wait until all that was written before is processed; return whether it is."""
        for side in self.sides(state):
            catch_up = CatchUp(side.app, self.aws, side.store, side.table, patience, self.clock)
            if not await catch_up.with_all_until_now():
                return False
        return True

    @property
    def worker(self) -> str:
        """The name of the worker that follows the migration's own table; empty without one."""
        return self._workers[0].name if self._workers else ""

    async def processes(self, state: State) -> int:
        """Return how many processes follow the changes of the migration's own table."""
        return len((await Roster(self.sides(state)[0].store).look()).members)

    # -- workers -------------------------------------------------------------------------------

    async def run(self, state: State, settings: Settings, rng: random.Random) -> None:
        """Run a worker for each side, until `stop`.

        Raises:
            RetentionLost: changes may have been lost.
        """
        workers = [self._worker(side, settings, rng) for side in self.sides(state)]
        self._workers = workers
        try:
            async with anyio.create_task_group() as group:
                for worker in workers:
                    group.start_soon(self._until_one_ends, worker, workers)
        except BaseExceptionGroup as errors:
            raise first_error(errors) from errors
        finally:
            self._workers = []

    async def _until_one_ends(self, worker: Worker, workers: Sequence[Worker]) -> None:
        await worker.run()
        for other in workers:
            other.stop()

    def _worker(self, side: Side, settings: Settings, rng: random.Random) -> Worker:
        own = random.Random(rng.random())
        return Worker(side.app, self.aws, settings, clock=self.clock, rng=own)

    def stop(self) -> None:
        """Stop the workers that run."""
        for worker in self._workers:
            worker.stop()
