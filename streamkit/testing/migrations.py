"""Migrations under fire: a migration in virtual time, with writers, processes and deaths.

    ran = migrate(app, "0003", Orders(), seed=3)
    for item in ran.items(Order): ...

Several processes run the migration. They die at some call, which the engine has applied or not, and
are started again. Shards split and roll, and an application writes all the time. One seed gives one
run. When the migration rests and all writes are processed, the table can be compared.

The application may be old code that does not know the new shape, and it may read items before it
changes them: `Writer` is in `streamkit.testing.traffic`.
"""

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, Protocol, TypeVar

import anyio
import anyio.abc

from streamkit.app import App
from streamkit.aws import Aws
from streamkit.core.matching import Matcher
from streamkit.core.table_shape import TableShape, entities_of
from streamkit.core.tables import AppTables, survey
from streamkit.entity import Entity
from streamkit.migrate.book.order import migration_of
from streamkit.migrate.book.overlap import QUIET_SECONDS
from streamkit.migrate.book.state import RESTING, State
from streamkit.migrate.book.state_book import StateBook, open_book
from streamkit.migrate.items.rewrites import visible
from streamkit.migrate.operate import commands, steps
from streamkit.migrate.run.passing import PassPace
from streamkit.model.schema import TableSchema
from streamkit.progress.actions import CONTROL_PREFIX
from streamkit.progress.activity import task_group
from streamkit.table import Table
from streamkit.testing.chance import repeatable
from streamkit.testing.faults import Faults
from streamkit.testing.loop import run_virtually
from streamkit.testing.migrators import SETTINGS, Migrators
from streamkit.testing.trial import open_shards
from streamkit.testing.world import CrashPoint, World

E = TypeVar("E", bound=Entity)

Step = Literal["apply", "switch", "contract", "rollback"]

_PATIENCE = 6 * 3600.0
_DAY = QUIET_SECONDS + 60
_LAST_SECONDS = 60.0
_ACTS_AT_REST = 10


class Application(Protocol):
    """The writers of a run."""

    async def open(self, aws: Aws, schema: TableSchema, rng: random.Random) -> None:
        """Write the items that are there before the migration begins."""

    async def act(self, aws: Aws, schema: TableSchema, rng: random.Random, phase: str) -> None:
        """Write something while the migration is in this phase."""


@dataclass(frozen=True)
class Fire:
    """The chance, from 0 to 1, that something happens at each act of the application.

    Attributes:
        crash: a process that runs the migration is told to die at one of its next calls.
        freeze: a process is frozen; it thaws some thirty acts later, on average.
        split: a shard splits.
        roll: every shard is closed and followed by a child.
        pause: seconds between two acts, at most.
        slow: how often a call takes up to a second.
        broken: how often a call's connection breaks, before or after it is applied.
        acts: after this number of acts in a step, no process dies or is frozen any more.
    """

    crash: float = 0.1
    freeze: float = 0.03
    acts: int = 40
    split: float = 0.02
    roll: float = 0.01
    pause: float = 1.0
    slow: float = 0.1
    broken: float = 0.01

    def faults(self, rng: random.Random) -> Faults:
        """Return the faults of one process's calls."""
        lost = self.broken / 2
        return Faults(rng, slow=self.slow, lost_request=lost, lost_reply=lost)


@dataclass
class MigrationRan:
    """The end of a run: the tables, the migration's states, and what the run met."""

    world: World
    schema: TableSchema
    tables: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    states: list[State] = field(default_factory=list)
    met: Counter[str] = field(default_factory=Counter)

    def raw(self, entity: type[Entity] | None = None, *, table: str = "") -> list[dict[str, Any]]:
        """Return items in wire form, with streamkit's own attributes but without its own items."""
        items = self.tables[table or self.schema.name]
        pk = self.schema.pk
        items = [i for i in items if not str(i[pk].get("S", "")).startswith(CONTROL_PREFIX)]
        if entity is None:
            return items
        matcher = Matcher(entity, self.schema)
        return [item for item in items if matcher.matches(item)]

    def items(self, entity: type[E]) -> list[E]:
        """Return the items of an entity, decoded."""
        table = Table(None, self.schema)
        return [table.entity_of(entity, visible(item)) for item in self.raw(entity)]


def migrate(  # noqa: PLR0913 - each sets one thing of the run
    app: App,
    number: str,
    application: Application,
    *,
    steps: Sequence[Step] = ("apply",),
    seed: int = 0,
    acts: int = 60,
    processes: int = 2,
    segments: int = 4,
    page: int = 10,
    fire: Fire | None = None,
    shape: TableShape | None = None,
    others: Sequence[tuple[str, TableShape]] = (),
    worker: bool = False,
    applied: Sequence[str] = (),
) -> MigrationRan:
    """Run a migration step by step while an application writes, and return the end of the run.

    Args:
        app: the app of the migration.
        number: the migration's number.
        application: the application that writes.
        steps: the commands of operators, in order; each begins when the migration rests. A day
            without writes comes before `contract`, and `rollback` is `--new-code none`.
        seed: the seed of all chance.
        acts: how often the application acts in each step, at least; ten of these acts, or all if
            there are fewer, come while the migration rests.
        processes: how many processes run the migration.
        segments: the number of segments of the table.
        page: the number of items in a page.
        fire: the trouble meanwhile.
        shape: the shape of the app's table.
        others: other tables, and their shapes.
        worker: whether to run the app's own handlers as well.
        applied: earlier migrations that are done already.

    Raises:
        TimeoutError: the migration does not rest within hours of virtual time.
    """
    shapes = {name: app.shape_of(name) for name in (app.table, *app.tables)} | dict(others)
    shapes |= {app.table: shape or shapes[app.table]}
    with repeatable(seed):

        async def main() -> MigrationRan:
            world = World.create(seed, calls=10_000)
            async with world.clients() as aws:
                tables = await _open(app, aws, shapes, applied)
                rng, trouble = random.Random(f"migrate/{seed}"), fire or Fire()
                pace = PassPace(segments=2, page=page, items=4)
                migrators = Migrators(app, number, world, rng, partial(trouble.faults, rng), pace)
                ran = MigrationRan(world, tables.table)
                about = app, number, application, aws, rng, trouble, ran, migrators
                blaze = _Blaze(*about, await open_book(app, aws))
                with anyio.fail_after(_patience_for(steps)):
                    await blaze.run(steps, acts, processes, segments, worker=worker)
                ran.tables.update({name: world.items(name) for name in shapes})
                return ran

        return run_virtually(main, seed=seed)


def _patience_for(steps: Sequence[Step]) -> float:
    return _PATIENCE * max(1, len(steps)) + _DAY * steps.count("contract")


@dataclass
class _Blaze:
    app: App
    number: str
    application: Application
    aws: Aws
    rng: random.Random
    fire: Fire
    ran: MigrationRan
    migrators: Migrators
    book: StateBook
    _troubles: int = 0

    async def run(
        self, steps: Sequence[Step], acts: int, processes: int, segments: int, *, worker: bool
    ) -> None:
        await self.application.open(self.aws, self.ran.schema, self.rng)
        async with task_group() as group:
            if worker:
                run = self.ran.world.run_worker
                group.start_soon(partial(run, self.app, settings=SETTINGS, until_idle=False))
            for step in steps:
                if step == "contract":
                    await self._settle(group)
                    for _ in range(2):  # in one jump the stream would forget what is unread
                        self.ran.world.clock.spend(_DAY / 2)
                        await anyio.sleep(_LAST_SECONDS)
                await self._begin(step, segments)
                self.migrators.fill(group, processes)
                await self._act(group, acts, processes)
                self.ran.states.append(await self.book.read(self.number))
            await self._settle(group)
            for process in self.migrators.alive:
                process.kill()
            group.cancel_scope.cancel()

    async def _settle(self, group: anyio.abc.TaskGroup) -> None:
        """Let the migration follow the last writes; nothing kills or freezes its processes now."""
        for process in self.migrators.alive:
            process.thaw()
            process.crash = None
        self.migrators.start(group)
        await anyio.sleep(_LAST_SECONDS)

    async def _begin(self, step: Step, segments: int) -> None:
        said: Any = {"clock": self.ran.world.clock}
        if step == "apply":
            migration = migration_of(self.app, self.number)
            said |= {"segments": segments, "again": True}
            await commands.begin(self.app, self.aws, migration, **said)
        else:
            said |= {"new_code": False} if step == "rollback" else {}
            await getattr(steps, step)(self.app, self.aws, self.number, **said)

    async def _act(self, group: anyio.abc.TaskGroup, acts: int, processes: int) -> None:
        """Write and make trouble until the migration rests, at least `acts` times.

        Some of the writes come while it rests, because these must not be lost either.
        """
        self._troubles = 0
        acted = rested = 0
        while True:
            state = await self.book.read(self.number)
            rested += state.phase in RESTING
            if acted >= acts and rested > min(acts, _ACTS_AT_REST):
                return
            await self.application.act(self.aws, self.ran.schema, self.rng, state.phase)
            acted += 1
            self._trouble()
            self.migrators.fill(group, processes)
            await anyio.sleep(self.rng.random() * self.fire.pause)

    def _trouble(self) -> None:
        chance, fire = self.rng.random, self.fire
        alive = self.migrators.alive
        self._troubles += 1
        if alive and chance() < fire.crash and self._troubles < fire.acts:
            process = self.rng.choice(alive)
            moment: Literal["before", "after"] = self.rng.choice(["before", "after"])
            process.crash = CrashPoint(process.calls + self.rng.randrange(20), moment)
            self.ran.met["crash"] += 1
        if alive and chance() < fire.freeze and self._troubles < fire.acts:
            self.rng.choice(alive).freeze()
            self.ran.met["freeze"] += 1
        for process in alive:
            if process.frozen is not None and chance() < 0.03:
                process.thaw()
        there = open_shards(self.ran.world, self.app.table)
        if there and len(there) < 6 and chance() < fire.split:
            self.ran.world.control.split(self.app.table, self.rng.choice(there))
            self.ran.met["split"] += 1
        if chance() < fire.roll:
            self.ran.world.control.roll(self.app.table)
            self.ran.met["roll"] += 1


async def _open(
    app: App, aws: Aws, shapes: Mapping[str, TableShape], numbers: Sequence[str]
) -> AppTables:
    """Create the tables, and record that these migrations are done."""
    for name, shape in shapes.items():
        own = name == app.table
        streamed = own or any(one.to == name for one in app.migrations.values())
        await shape.create(aws.dynamodb, name, entities_of(app) if own else (), stream=streamed)
    tables = await survey(app, aws)
    book = await open_book(app, aws)
    for number in numbers:
        digest = migration_of(app, number).digest
        await book.write(State(number), State(number, digest=digest, phase="done"))
    return tables
