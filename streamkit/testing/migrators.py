"""Migrators: the processes that run a migration under fire; dead ones are replaced."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field

import anyio
import anyio.abc

from streamkit.app import App
from streamkit.migrate.book.order import migration_of
from streamkit.migrate.run.passing import PassPace
from streamkit.migrate.run.running import Runner
from streamkit.settings import Settings
from streamkit.testing.faults import Faults
from streamkit.testing.world import Process, World

SETTINGS = Settings(heartbeat=6, lease=15, look_interval=3, poll_floor=1.0, poll_ceiling=3.0)
"""The settings of every process of a run."""


@dataclass
class Migrators:
    """The processes that run a migration in a world; `faults` makes the trouble of one of them."""

    app: App
    number: str
    world: World
    rng: random.Random
    faults: Callable[[], Faults]
    pace: PassPace
    _alive: dict[str, Process] = field(default_factory=dict)
    _count: int = 0

    @property
    def alive(self) -> list[Process]:
        """Return the processes that have not died, in the order in which they were started."""
        return list(self._alive.values())

    def fill(self, group: anyio.abc.TaskGroup, processes: int) -> None:
        """Start processes until so many are alive."""
        while len(self._alive) < processes:
            self.start(group)

    def start(self, group: anyio.abc.TaskGroup) -> None:
        """Start one more process."""
        self._count += 1
        process = Process(f"migrator-{self._count}", faults=self.faults())
        self._alive[process.name] = process
        group.start_soon(self._live, process)

    async def _live(self, process: Process) -> None:
        """Run the migration in one process repeatedly, until the process dies."""
        migration = migration_of(self.app, self.number)
        try:
            async with self.world.clients(process) as aws, anyio.create_task_group() as group:
                group.start_soon(_cancel_at, process.dead, group.cancel_scope)
                while True:
                    runner = Runner(
                        self.app,
                        aws,
                        migration,
                        SETTINGS,
                        self.world.clock_of(process),
                        random.Random(self.rng.random()),
                        self.pace,
                    )
                    await runner.run(stay=True)
                    await anyio.sleep(1)
        finally:
            self._alive.pop(process.name, None)


async def _cancel_at(event: anyio.Event, scope: anyio.CancelScope) -> None:
    await event.wait()
    scope.cancel()
