"""Trial: an app runs under traffic and trouble in virtual time, and its result is checked.

    @pytest.mark.parametrize("seed", range(5))
    def test_likes_are_exact_whatever_happens(seed):
        trial(app, Likes(), seed=seed)

One seed gives one run. During it shards split and roll, items expire, and workers die at some call,
which the engine has applied or not, and are replaced. At the end all expired items are deleted, the
workers come to rest, and the table is compared with what the traffic says must be there.
"""

import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

import anyio
import anyio.abc

from streamkit.app import App
from streamkit.aws import Aws
from streamkit.core.parked.queues import Selection, list_parked
from streamkit.core.parking import Parked
from streamkit.core.table_shape import TableShape, entities_of
from streamkit.core.tables import AppTables, survey
from streamkit.observe.frames import user_traceback, watching
from streamkit.operate.redrive import redrive
from streamkit.progress.activity import task_group
from streamkit.progress.cursor import CursorStore
from streamkit.table import Table
from streamkit.testing.chance import repeatable
from streamkit.testing.crew import Host, MakeHost, TrialCrew
from streamkit.testing.faults import Faults
from streamkit.testing.final import Comparison, Final
from streamkit.testing.loop import run_virtually
from streamkit.testing.recording import Recorder, recording
from streamkit.testing.traffic import Traffic, Writer
from streamkit.testing.world import World

_SUSPECTED = ("WorkerKilled", "FunctionKilled")
"""Changes that ran when a process was killed by chance are parked with these errors."""


class Different(AssertionError):
    """The table is not as it must be; the message lists the differences."""


@dataclass(frozen=True)
class Trouble:
    """The chance, from 0 to 1, that something happens at each act of the application.

    A crash, a split and a roll happen at least once each, unless their chance is 0.

    Attributes:
        crash: a worker is told to die at one of its next calls, or in its next commit.
        split: a shard splits.
        roll: every shard is closed and followed by a child.
        sweep: items that have expired are deleted.
        pause: seconds that pass between two acts, at most; often none.
        slow: the share of a worker's calls that take up to a second.
        broken: the share of its calls whose connection breaks, before or after they are applied.
        sinks: the share of deliveries to sinks that fail.
    """

    crash: float = 0.03
    split: float = 0.01
    roll: float = 0.005
    sweep: float = 0.05
    pause: float = 2.0
    slow: float = 0.1
    broken: float = 0.01
    sinks: float = 0.1


@dataclass
class Ran:
    """What a trial met and compared, by name, and its end; tests check that they met an event.

    `parked` are the changes that are parked at the end, and `raised` is the last error of each
    handler. Printed, it is a summary of a few lines.
    """

    seed: int = 0
    acts: int = 0
    met: Counter[str] = field(default_factory=Counter)
    comparisons: list[Comparison] = field(default_factory=list)
    final: Final | None = None
    parked: list[Parked] = field(default_factory=list)
    raised: dict[str, BaseException] = field(default_factory=dict)

    def __str__(self) -> str:
        """Return the summary: what was done, met, sent and compared, and what is parked."""
        written = len(self.final.log) if self.final else 0
        met = ", ".join(f"{name} {count}" for name, count in sorted(self.met.items()) if count)
        sent = self.final.sent if self.final else {}
        lines = [f"seed {self.seed}: {self.acts} acts, {written} writes; met {met or 'nothing'}"]
        for name, recorder in sent.items():
            again = len(recorder.deliveries) - len(recorder.once)
            lines.append(f"sent to {name}: {len(recorder.once)}, and {again} again")
        lines += [
            f"{one.title}: {one.compared} compared, {len(one.differences)} differ"
            for one in self.comparisons
        ]
        return "\n".join([*lines, *map(self._told, self.parked), *self._nothing_parked()])

    def _nothing_parked(self) -> list[str]:
        return [] if self.parked else ["nothing is parked"]

    def _told(self, parked: Parked) -> str:
        error = self.raised.get(parked.handler)
        text = f"parked for {parked.handler}: {parked.error}: {parked.detail}"
        return text if error is None else f"{text}\n{user_traceback(error)}"


def trial(  # noqa: PLR0913 - each sets one thing of the run
    app: App,
    traffic: Traffic,
    *,
    shape: TableShape | None = None,
    others: Mapping[str, TableShape] | None = None,
    seed: int = 0,
    acts: int = 150,
    workers: int = 2,
    trouble: Trouble | None = None,
    host: MakeHost = TrialCrew,
) -> Ran:
    """Run an app under traffic, and compare the table at the end.

    Args:
        app: the app to run; its listeners run along.
        traffic: the application.
        shape: the shape of the app's table, if `App(shape=...)` does not say it.
        others: the shapes of other tables, by name, if `App(tables=...)` does not say them.
        seed: the seed of all chance.
        acts: how often the application acts.
        workers: how many workers run at a time.
        trouble: the trouble during the run.
        host: what runs the app: workers, or `Functions` for Lambda.

    Raises:
        Different: the table is not as it must be.
        TimeoutError: the host does not come to rest within hours of virtual time.
    """
    rng = random.Random(f"trial/{seed}")
    trouble = trouble or Trouble()
    shapes = {name: app.shape_of(name) for name in (app.table, *app.tables)} | dict(others or {})
    shapes |= {app.table: shape or shapes[app.table]}
    with repeatable(seed), recording(app, trouble=trouble.sinks, rng=rng) as sent:

        async def main() -> Ran:
            world = World.create(seed)
            async with world.clients() as aws:
                play = _Play(app, traffic, world, aws, rng, trouble, sent, host)
                play.ran.seed, play.ran.acts = seed, acts
                with watching(play.ran.raised.__setitem__):
                    return await play.run(shapes, acts, workers)

        return run_virtually(main, seed=seed)


@dataclass
class _Play:
    app: App
    traffic: Traffic
    world: World
    aws: Aws
    rng: random.Random
    trouble: Trouble
    sent: Mapping[str, Recorder]
    make_host: MakeHost
    ran: Ran = field(default_factory=Ran)

    async def run(self, shapes: Mapping[str, TableShape], acts: int, workers: int) -> Ran:
        entities = entities_of(self.app)
        for name, shape in shapes.items():
            own = name == self.app.table
            await shape.create(self.aws.dynamodb, name, entities if own else (), stream=own)
        tables = await survey(self.app, self.aws)
        writer = _writer(tables, self.aws, self.world, self.rng)
        broken = self.trouble.broken / 2
        faults = Faults(self.rng, slow=self.trouble.slow, lost_request=broken, lost_reply=broken)
        crew = self.make_host(self.app, self.world, self.ran.met, faults)
        await self.traffic.open(writer)
        async with task_group() as group:
            crew.start(group, workers)
            for act in range(acts):
                await self.traffic.act(writer)
                await self._happen(crew, 4 * act // acts if 4 * act % acts < 4 else 0)
            await self._end(crew)
            crew.close()
            group.cancel_scope.cancel()
        final = Final(
            datetime.fromtimestamp(self.world.clock.time(), UTC),
            writer.log,
            self.sent,
            tables.schemas,
            {name: self.world.items(name) for name in shapes},
        )
        self.ran.final = await final.read(entities)
        self.ran.comparisons = list(self.traffic.expected(final))
        for consumer in (self.app, *self.app.listeners.values()):
            store = CursorStore(self.aws.dynamodb, tables.space(consumer))
            self.ran.parked += await list_parked(store)
        require_same(self.ran.comparisons, summary=str(self.ran))
        return self.ran

    async def _happen(self, crew: Host, quarter: int) -> None:
        """Make trouble by chance after an act; crash, split, roll are sure after a `quarter`."""
        control, table = self.world.control, self.app.table

        dice = self.rng.random

        def due(chance: float, sure: int) -> bool:
            return dice() < chance or (chance > 0 and quarter == sure)

        if due(self.trouble.crash, 1):
            crew.crash(self.rng)
        if due(self.trouble.split, 2):
            control.split(table, self.rng.choice(open_shards(self.world, table)))
            self.ran.met["split"] += 1
        if due(self.trouble.roll, 3):
            control.roll(table)
            self.ran.met["roll"] += 1
        if dice() < self.trouble.sweep:
            self.ran.met["expired"] += control.expire(table)
        if dice() < 0.5:
            await anyio.sleep(dice() * self.trouble.pause)

    async def _end(self, crew: Host) -> None:
        """Bring the run to rest: no expired items are left, and no change waits for an operator.

        A change that ran when workers were killed by chance is suspected, and parked without a run.
        """
        for recorder in self.sent.values():
            recorder.trouble = 0.0
        await crew.settle()
        for consumer in (self.app, *self.app.listeners.values()):
            for error in _SUSPECTED:
                await redrive(consumer, self.aws, Selection(error=error))
        await crew.settle()
        while expired := self.world.control.expire(self.app.table):
            self.ran.met["expired"] += expired
            await crew.settle()


def _writer(tables: AppTables, aws: Aws, world: World, rng: random.Random) -> Writer:
    table = Table(aws.dynamodb, tables.table, tables=tables.schemas)
    return Writer(table, aws.dynamodb, random.Random(rng.random()), world.clock.time)


def open_shards(world: World, table: str) -> list[str]:
    """Return the shards of a table's stream that take records."""
    return [shard["id"] for shard in world.control.shards(table) if shard["open"]]


def require_same(comparisons: list[Comparison], most: int = 20, summary: str = "") -> None:
    """Raise an error if there are differences.

    Raises:
        Different: there are differences; the message lists the first ones, then the summary.
    """
    lines = [f"{c.title}: {text}" for c in comparisons for text in c.differences]
    if lines:
        shown = lines[:most] + ([f"and {len(lines) - most} more"] if len(lines) > most else [])
        raise Different("\n".join([f"{len(lines)} differences", *shown, summary]).rstrip())


__all__ = ["Different", "Ran", "Trouble", "require_same", "trial"]
