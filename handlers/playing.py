"""Playing: the demo of a system. Workers with a hard life, in real time, and a checked result.

Two workers share the shards. While the application writes, shards split and roll, items expire, and
a worker is killed twice in the middle of a commit: one commit has reached the table by then, the
other never does. The other worker takes over, until a new one shares again. At the end everything
that handlers keep is compared with what it must be, computed again from the table.
"""

import logging
import random
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

import anyio
import anyio.lowlevel
import structlog

from handlers.progress import Progress, progress
from handlers.stage import Death, Process, Stage, open_stage
from handlers.system import System
from streamkit.aws import Aws
from streamkit.core.table_shape import entities_of
from streamkit.core.tables import AppTables, survey
from streamkit.local.engine import Engine
from streamkit.local.stream_settings import StreamSettings
from streamkit.settings import Settings
from streamkit.table import Table
from streamkit.testing.final import Comparison, Final, Written
from streamkit.testing.recording import Recorder, recording
from streamkit.testing.traffic import Traffic, Writer

WORKERS = 2
WRITERS = 8
_SHOWN = 10

SETTINGS = Settings(
    # Shorter than the defaults of 2 and 4.25 seconds: a demo should not wait long for a dead lease.
    heartbeat=0.5,
    lease=1.5,
    poll_ceiling=0.3,
)


@dataclass
class Show:
    """What happens besides the writing. `fleet` are the workers that live."""

    stage: Stage
    told: Progress
    system: System
    fleet: list[Process] = field(default_factory=list)
    splits: int = 0
    rolls: int = 0
    kills: int = 0
    expired: int = 0
    shared: bool = False
    _orphans: frozenset[str] | None = None

    def start_worker(self) -> None:
        """Start a worker: the same command once more."""
        self.fleet.append(self.stage.start_worker(self.system.app, SETTINGS))
        self.shared = False
        self.told.say(f"{self.fleet[-1].name} starts")

    async def split(self) -> None:
        """Let one shard become two."""
        shard = self.stage.engine.rng.choice(self._open_shards())
        children = self.stage.control.split(self.system.app.table, shard)
        self.splits += 1
        self.told.say(f"a shard splits in {len(children)}: {len(self._open_shards())} open shards")

    async def roll(self) -> None:
        """End every shard and open a child for each, as AWS does about every four hours."""
        children = self.stage.control.roll(self.system.app.table)
        self.rolls += len(children)
        self.told.say(f"{len(children)} shards end, and each goes on in another")

    async def kill_after(self) -> None:
        """Kill the worker after its commit is applied, before it reads the answer."""
        await self._kill("after", "its last commit is in the table, but it never learned so")

    async def kill_before(self) -> None:
        """Kill the worker while it sends a commit; the commit is lost."""
        await self._kill("before", "its last commit never arrives")

    def tick(self) -> None:
        """Delete what is expired, as DynamoDB does now and then, and look at the fleet."""
        self.sweep()
        if self._orphans is not None:
            read = frozenset[str]().union(*(worker.shards for worker in self.fleet))
            if not (self._orphans & set(self._open_shards())) - read:
                self._orphans = None
                self.told.say(f"its shards are taken over: {self._who_reads_what()}")
                self.start_worker()
        elif not self.shared and all(worker.shards for worker in self.fleet):
            self.shared = True
            self.told.say(f"the shards are shared: {self._who_reads_what()}")

    def sweep(self) -> int:
        """Delete what is expired, and return how much that was."""
        swept = self.stage.control.expire(self.system.app.table)
        self.expired += swept
        return swept

    async def until_shared(self) -> None:
        """Wait until every worker has shards, and every shard has a worker."""
        while not self.shared:
            await anyio.sleep(0.1)
            self.tick()

    async def stop(self) -> None:
        """Stop every worker politely."""
        async with anyio.create_task_group() as group:
            for worker in self.fleet:
                group.start_soon(worker.stop)

    async def drain(self) -> datetime:
        """Let new workers read the stream to its end, until nothing is left that has expired.

        Returns:
            When nothing was left that had expired.
        """
        while True:
            await self.stage.start_worker(self.system.app, SETTINGS, until_idle=True).ended.wait()
            now = datetime.now(UTC)
            if not self.sweep():
                return now

    async def _kill(self, death: Death, how: str) -> None:
        await self.until_shared()
        dead = self.fleet.pop(0)
        self.shared, self._orphans = False, dead.shards
        in_commit = await dead.kill(death)
        self.kills += 1
        self.told.say(f"{dead.name} is killed{': ' + how if in_commit else ''}")

    def _who_reads_what(self) -> str:
        return ", ".join(f"{worker.name} reads {len(worker.shards)}" for worker in self.fleet)

    def _open_shards(self) -> list[str]:
        shards = self.stage.control.shards(self.system.app.table)
        return [shard["id"] for shard in shards if shard["open"]]


SCRIPT: tuple[tuple[float, Callable[[Show], Awaitable[None]]], ...] = (
    (0.15, Show.split),
    (0.30, Show.kill_after),
    (0.45, Show.split),
    (0.55, Show.roll),
    (0.65, Show.kill_before),
    (0.70, Show.split),
    (0.85, Show.roll),
)
"""What happens, and after which part of the writes."""


@dataclass
class Writers:
    """The application: several writers at once, until together they have made enough writes."""

    traffic: Traffic
    tables: AppTables
    aws: Aws
    seed: int
    total: int
    log: list[Written] = field(default_factory=list)
    _opening: int | None = None

    @property
    def made(self) -> int:
        """Return how many writes are made, without those that fill the table at the beginning."""
        return 0 if self._opening is None else len(self.log) - self._opening

    @property
    def done(self) -> bool:
        """Return whether all writes are made."""
        return self.made >= self.total

    async def play(self) -> None:
        """Fill the table with what is there before anything happens, then let all writers loose."""
        await self.traffic.open(self._writer("opening"))
        self._opening = len(self.log)
        async with anyio.create_task_group() as group:
            for number in range(WRITERS):
                group.start_soon(self._write, self._writer(str(number)))

    async def _write(self, writer: Writer) -> None:
        while not self.done:
            await self.traffic.act(writer)
            await anyio.lowlevel.checkpoint()  # an act may have written nothing

    def _writer(self, name: str) -> Writer:
        table = Table(self.aws.dynamodb, self.tables.table, tables=self.tables.schemas)
        rng = random.Random(f"{self.seed}/{name}")
        return Writer(table, self.aws.dynamodb, rng, time.time, self.log)


async def direct(show: Show, writers: Writers) -> None:
    """Play the script while the writers write, until both are done and the shards are shared."""
    script = list(SCRIPT)
    while script or not writers.done:
        await anyio.sleep(0.1)
        show.told.advance(writers.made)
        show.tick()
        if script and writers.made >= script[0][0] * writers.total:
            await script.pop(0)[1](show)
    await show.until_shared()


async def perform(system: System, writes: int, seed: int, sent: Mapping[str, Recorder]) -> int:
    """Play a demo, and return its exit code."""
    # Children are listed late and pages come back empty now and then, as they do on AWS.
    settings = StreamSettings(children_hidden=0.3, empty_page_chance=0.05)
    engine = Engine(rng=random.Random(seed), shards=2, settings=settings)
    app = system.app
    with progress(writes, "writes") as told:
        async with open_stage(engine) as stage, stage.client() as aws:
            tables = await set_up(system, aws)
            told.say(f"table {app.table}, with a stream of 2 shards, on the local engine")
            traffic = system.traffic()
            writers = Writers(traffic, tables, aws, seed, writes)
            show = Show(stage, told, system)
            for _ in range(WORKERS):
                show.start_worker()
            began = time.monotonic()
            async with anyio.create_task_group() as group:
                group.start_soon(writers.play)
                await direct(show, writers)
            told.say("all writes are made; the workers stop, and one more drains the stream")
            await show.stop()
            for recorder in sent.values():
                recorder.trouble = 0.0
            now = await show.drain()
            seconds = time.monotonic() - began
            told.say("the stream is read to its end")
        items = {name: items_of(engine, name) for name in (app.table, *system.others)}
        final = Final(now, writers.log, sent, tables.schemas, items)
        results = list(traffic.expected(await final.read(entities_of(app))))
    report(show, writers.made, results, seconds)
    return int(not results or not all(comparison.holds for comparison in results))


async def set_up(system: System, aws: Aws) -> AppTables:
    """Create the tables of a system."""
    app = system.app
    await system.shape.create(aws.dynamodb, app.table, entities_of(app))
    for name, shape in system.others.items():
        await shape.create(aws.dynamodb, name, (), stream=False)
    return await survey(app, aws)


def items_of(engine: Engine, table: str) -> list[dict[str, object]]:
    """Read a whole table, past every client."""
    request: dict[str, object] = {"TableName": table}
    items: list[dict[str, object]] = []
    while True:
        _, page = engine.call("dynamodb", "Scan", dict(request))
        items += page["Items"]
        if "LastEvaluatedKey" not in page:
            return items
        request["ExclusiveStartKey"] = page["LastEvaluatedKey"]


def report(show: Show, writes: int, results: list[Comparison], seconds: float) -> None:
    """Print the comparisons, and what was done at which cost."""
    stage = show.stage
    lines = ["", "Compared with what the table says it must be:"]
    for result in results:
        compared = f"{result.compared:>8,} compared{len(result.differences):>6} different"
        nothing = "" if result.compared else "  NOTHING WAS COMPARED"
        lines.append(f"  {result.title:32}{compared}{nothing}")
        lines += [f"    {difference}" for difference in result.differences[:_SHOWN]]
    costs, thousands = stage.costs, max(stage.changes, 1) / 1000
    different = sum(len(result.differences) for result in results)
    lines.append(
        f"{different} differences after {writes:,} writes, {show.expired:,} expiries,"
        f" {show.splits} splits, {show.rolls} rolls and {show.kills} kills"
    )
    lines.append(f"{stage.changes:,} changes handled, {stage.changes / seconds:,.0f} a second")
    lines.append(
        f"{costs.write / thousands:,.0f} write and {costs.read / thousands:,.0f} read units "
        f"per 1,000 changes; {costs.pages:,} pages of the stream read"
    )
    if any(not result.compared for result in results):
        lines.append("so few writes leave nothing to compare in some lines: leave out --writes")
    sys.stdout.write("\n".join(lines) + "\n")


def play(system: System, *, writes: int, seed: int = 1) -> int:
    """Play a system's demo.

    Args:
        system: which one.
        writes: how many writes the application makes, beside those that fill the table first.
        seed: decides what the writers do; how calls interleave depends on the machine.

    Returns:
        0 if the table is as it must be, and something was compared for each claim; else 1.
    """
    quiet = structlog.make_filtering_bound_logger(logging.ERROR)
    structlog.configure(wrapper_class=quiet)
    with recording(system.app, trouble=0.05, rng=random.Random(seed)) as sent:
        return anyio.run(perform, system, writes, seed, sent)
