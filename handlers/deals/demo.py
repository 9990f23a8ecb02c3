"""The demo: 20,000 writes by several writers, and workers that have a hard life.

Two workers share the shards. While the application writes, shards split and roll, items expire,
and a worker is killed twice in the middle of a commit: one commit has reached the table by then,
the other never does. The other worker takes over, until a new one shares again. At the end
everything the handlers keep is compared with what it must be, computed again from the table.
"""

import logging
import random
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import anyio
import structlog

from handlers.deals.handlers import app
from handlers.deals.schema import create_table
from handlers.deals.traffic import Traffic
from handlers.deals.verify import Check, checks
from handlers.progress import Progress, progress
from handlers.stage import Death, Process, Stage, open_stage
from streamkit.codec import decode_item
from streamkit.local.engine import Engine
from streamkit.local.stream_settings import StreamSettings
from streamkit.preflight import describe
from streamkit.settings import Settings

WORKERS = 2

SETTINGS = Settings(
    # The defaults are 3 and 7 seconds; here nobody wants to wait for a dead worker's lease.
    heartbeat=0.5,
    lease=1.5,
    poll_ceiling=0.3,
)


@dataclass
class Show:
    """What happens besides the writing. `fleet` are the workers that live."""

    stage: Stage
    told: Progress
    fleet: list[Process] = field(default_factory=list)
    splits: int = 0
    rolls: int = 0
    kills: int = 0
    expired: int = 0
    shared: bool = False
    _orphans: frozenset[str] | None = None

    def start_worker(self) -> None:
        """Start a worker: the same command once more."""
        self.fleet.append(self.stage.start_worker(app, SETTINGS))
        self.shared = False
        self.told.say(f"{self.fleet[-1].name} starts")

    async def split(self) -> None:
        """Let one shard become two."""
        shard = self.stage.engine.rng.choice(self._open_shards())
        children = self.stage.control.split(app.table, shard)
        self.splits += 1
        self.told.say(f"a shard splits in {len(children)}: {len(self._open_shards())} open shards")

    async def roll(self) -> None:
        """Let every shard be followed by another, as happens after about four hours."""
        children = self.stage.control.roll(app.table)
        self.rolls += len(children)
        self.told.say(f"{len(children)} shards end, and each goes on in another")

    async def kill_after(self) -> None:
        """Kill the worker when its commit is in the table and it does not know."""
        await self._kill("after", "its last commit is in the table, but nobody has heard")

    async def kill_before(self) -> None:
        """Kill the worker when its commit is on the way, and let that be lost."""
        await self._kill("before", "its last commit never arrives")

    def tick(self) -> None:
        """Delete what is expired, as DynamoDB does now and then, and look at the fleet."""
        self.expired += self.stage.control.expire(app.table)
        if self._orphans is not None:
            read = frozenset().union(*(worker.shards for worker in self.fleet))
            if not (self._orphans & set(self._open_shards())) - read:
                self._orphans = None
                self.told.say(f"its shards are taken over: {self._who_reads_what()}")
                self.start_worker()
        elif not self.shared and all(worker.shards for worker in self.fleet):
            self.shared = True
            self.told.say(f"the shards are shared: {self._who_reads_what()}")

    async def until_shared(self) -> None:
        """Wait until every worker has shards, and nobody's are left behind."""
        while not self.shared:
            await anyio.sleep(0.1)
            self.tick()

    async def stop(self) -> None:
        """Stop every worker politely."""
        async with anyio.create_task_group() as group:
            for worker in self.fleet:
                group.start_soon(worker.stop)

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
        return [shard["id"] for shard in self.stage.control.shards(app.table) if shard["open"]]


SCRIPT: tuple[tuple[float, Callable[[Show], Awaitable[None]]], ...] = (
    (0.15, Show.split),
    (0.30, Show.kill_after),
    (0.45, Show.split),
    (0.55, Show.roll),
    (0.65, Show.kill_before),
    (0.70, Show.split),
    (0.85, Show.roll),
)
"""What happens when which part of the writes is done."""


async def direct(show: Show, traffic: Traffic) -> None:
    """Let everything happen at its time, until the writers are done and it has."""
    script = list(SCRIPT)
    while script or not traffic.done:
        await anyio.sleep(0.1)
        show.told.advance(traffic.ledger.writes)
        show.tick()
        if script and traffic.ledger.writes >= script[0][0] * traffic.total:
            await script.pop(0)[1](show)
    await show.until_shared()


async def play(writes: int, seed: int) -> int:
    """Play the demo, and return its exit code."""
    rng = random.Random(seed)
    # Children are listed late and pages come back empty now and then, as they do on AWS.
    settings = StreamSettings(children_hidden=0.3, empty_page_chance=0.05)
    engine = Engine(rng=rng, shards=2, settings=settings)
    with progress(writes, "writes") as told:
        async with open_stage(engine) as stage, stage.client() as aws:
            await create_table(aws.dynamodb, app.table)
            told.say(f"table {app.table}, with a stream of 2 shards, on the local engine")
            schema = await describe(aws, app.table, type_attribute=app.type_attribute)
            traffic = Traffic(aws, schema, seed=seed, writes=writes)
            show = Show(stage, told)
            for _ in range(WORKERS):
                show.start_worker()
            began = time.monotonic()
            async with anyio.create_task_group() as group:
                group.start_soon(traffic.play)
                await direct(show, traffic)
            told.say("all writes are made; the workers stop, and one more drains the stream")
            await show.stop()
            await stage.start_worker(app, SETTINGS, until_idle=True).ended.wait()
            seconds = time.monotonic() - began
            told.say("the stream is read to its end")
        results = checks(items_of(engine), traffic.ledger, datetime.now(UTC))
    report(show, traffic, results, seconds)
    return int(any(check.differences for check in results))


def items_of(engine: Engine) -> list[dict[str, Any]]:
    """Read the whole table, past every client."""
    request: dict[str, Any] = {"TableName": app.table}
    items = []
    while True:
        _, page = engine.call("dynamodb", "Scan", dict(request))
        items += [decode_item(item) for item in page["Items"]]
        if "LastEvaluatedKey" not in page:
            return items
        request["ExclusiveStartKey"] = page["LastEvaluatedKey"]


def report(show: Show, traffic: Traffic, results: list[Check], seconds: float) -> None:
    """Print what came of it."""
    stage = show.stage
    lines = ["", "Compared with what the table says it must be:"]
    for check in results:
        lines.append(
            f"  {check.title:26}{check.compared:>8,} compared{len(check.differences):>6} different"
        )
        lines += [f"    {difference}" for difference in check.differences[:10]]
    costs, thousands = stage.costs, stage.changes / 1000
    different = sum(len(check.differences) for check in results)
    lines.append(f"{different} differences after {happened(show, traffic)}")
    lines.append(f"{stage.changes:,} changes handled, {stage.changes / seconds:,.0f} a second")
    lines.append(
        f"{costs.write / thousands:,.0f} write and {costs.read / thousands:,.0f} read units "
        f"per 1,000 changes; {costs.pages:,} pages of the stream read"
    )
    sys.stdout.write("\n".join(lines) + "\n")


def happened(show: Show, traffic: Traffic) -> str:
    """Sum up what the workers had to live through."""
    return (
        f"{traffic.ledger.writes:,} writes, {show.expired:,} expiries, {show.splits} splits, "
        f"{show.rolls} rolls and {show.kills} kills"
    )


def main(*, writes: int = 20_000, seed: int = 1) -> int:
    """Run the demo.

    Args:
        writes: how many writes the application makes.
        seed: of everything that is chance.

    Returns:
        0 if the table is as it must be, else 1.
    """
    quiet = structlog.make_filtering_bound_logger(logging.ERROR)
    structlog.configure(wrapper_class=quiet)
    return anyio.run(play, writes, seed)


if __name__ == "__main__":
    sys.exit(main())
