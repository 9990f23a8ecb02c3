"""A throttled operation slows down what needs it, and nothing else; and a hot aggregate keeps up."""

import random
from collections import Counter
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import Annotated

import anyio

from streamkit import Aggregate, App, Count, Key
from streamkit.progress.actions import own_attributes
from streamkit.progress.control import read_cursor
from streamkit.settings import Settings
from streamkit.testing.chance import repeatable
from streamkit.testing.loop import run_virtually
from streamkit.testing.world import Process, World
from tests.simulation.shop import (
    TABLE,
    Sale,
    ShopSales,
    Traffic,
    create_table,
    expected,
    found,
    make_app,
)
from tests.simulation.throttling import (
    Contention,
    Throttle,
    commits,
    heartbeats,
    pages_of,
    reads_of_the_app,
    shard_of,
)


@dataclass
class Running:
    """A fleet that runs, and what it runs in."""

    world: World
    workers: dict = field(default_factory=dict)
    ended: dict = field(default_factory=dict)

    def cursors(self):
        items = self.world.items(TABLE)
        found = [
            read_cursor(own_attributes(i)) for i in items if i.get("_sk_kind") == {"S": "cursor"}
        ]
        return {cursor.name: cursor for cursor in found if cursor.name != "lister"}

    def leases(self):
        return {name: (c.owner, c.epoch) for name, c in self.cursors().items()}

    def parked(self):
        return [i for i in self.world.items(TABLE) if i.get("_sk_kind") == {"S": "parked"}]


@asynccontextmanager
async def fleet(*interceptors, shards=4, app=make_app, settings=None):
    """Run one worker for each interceptor (None: nothing stands in its way), until the end."""
    world = World.create(5, shards=shards)
    create_table(world)
    running = Running(world)

    async def run(name, faults):
        async def started(worker):
            running.workers[name] = worker

        running.ended[name] = await world.run_worker(
            app(),
            process=Process(name, faults=faults),
            settings=settings,
            until_idle=False,
            started=started,
        )

    async with anyio.create_task_group() as group:
        for number, faults in enumerate(interceptors):
            group.start_soon(run, f"worker-{number}", faults)
        await anyio.sleep(20)
        assert all(worker.shards for worker in running.workers.values())
        yield running
        for worker in running.workers.values():
            worker.stop()
    assert all(running.ended.values())


def in_virtual_time(main, *arguments):
    with repeatable(5):
        return run_virtually(main, *arguments)


def watch_beats(world):
    """Return when each worker's heartbeats arrived, by its item."""
    beats = {}

    def saw(call):
        key = str(call.payload.get("Key"))
        if call.operation == "UpdateItem" and call.status == 200 and "#members" in key:
            beats.setdefault(key, []).append(call.at)

    world.engine.observers.append(saw)
    return beats


# -- commits ---------------------------------------------------------------------------------------


async def throttled_commits():
    throttle = Throttle(commits)
    async with fleet(throttle, None) as running:
        world, traffic = running.world, Traffic(running.world, 5)
        leases, beats = running.leases(), watch_beats(world)
        throttle.active = True
        for _ in range(60):
            traffic.write(2)
            await anyio.sleep(1)
        assert throttle.refused > 10
        assert found(world) != expected(traffic), "one worker's shards wait"
        assert running.leases() == leases
        throttle.active = False
        await anyio.sleep(30)
        assert found(world) == expected(traffic)
        assert running.leases() == leases
    return beats


def test_throttled_commits_starve_no_heartbeat_and_lose_no_lease():
    beats = in_virtual_time(throttled_commits)
    assert len(beats) == 2
    for times in beats.values():
        gaps = [later - sooner for sooner, later in pairwise(times)]
        assert max(gaps) <= Settings().heartbeat + 0.5


async def throttled_commits_of_one():
    throttle = Throttle(commits)
    async with fleet(throttle, None, app=counting_app) as running:
        throttle.active = True
        others = running.workers["worker-1"].shards
        there = write_sales(running.world, 200)
        await anyio.sleep(5)
        assert counted(running.world) == sum(there[shard] for shard in others) > 0
        throttle.active = False
        await anyio.sleep(30)
        assert counted(running.world) == 200


def test_a_throttled_worker_does_not_slow_down_the_others():
    in_virtual_time(throttled_commits_of_one)


# -- reads of the stream ---------------------------------------------------------------------------


async def throttled_pages():
    throttle = Throttle(lambda call: False)
    async with fleet(throttle, app=counting_app) as running:
        leases = running.leases()
        slow = min(leases)
        throttle.fits, throttle.active = pages_of(slow), True
        await anyio.sleep(5)
        there = write_sales(running.world, 200)
        await anyio.sleep(3)
        assert counted(running.world) == 200 - there[slow] < 200
        await anyio.sleep(60)
        assert throttle.refused > 10
        throttle.active = False
        await anyio.sleep(30)
        assert counted(running.world) == 200
        assert running.leases() == leases


def test_a_throttled_shard_is_the_only_one_that_waits():
    in_virtual_time(throttled_pages)


# -- heartbeats ------------------------------------------------------------------------------------


async def throttled_beats_alone():
    throttle = Throttle(heartbeats)
    async with fleet(throttle) as running:
        world, traffic = running.world, Traffic(running.world, 5)
        leases = running.leases()
        throttle.active = True
        for _ in range(30):
            traffic.write(3)
            await anyio.sleep(1)
        assert throttle.refused > 5
        await anyio.sleep(5)
        assert running.leases() == leases
        assert found(world) == expected(traffic), "it went on"


def test_a_worker_that_cannot_beat_goes_on_as_long_as_nobody_takes_its_shards():
    in_virtual_time(throttled_beats_alone)


async def throttled_beats_in_company():
    throttle = Throttle(heartbeats)
    async with fleet(throttle, None) as running:
        world, traffic = running.world, Traffic(running.world, 5)
        throttle.active = True
        other = running.workers["worker-1"]
        # Where every worker is late, a lease becomes half a minute long.
        for _ in range(40):
            traffic.write(3)
            await anyio.sleep(1)
        assert {owner for owner, _ in running.leases().values()} == {other.name}
        assert found(world) == expected(traffic), "nothing was counted twice"
        throttle.active = False
        await anyio.sleep(60)
        assert {owner for owner, _ in running.leases().values()} == {
            worker.name for worker in running.workers.values()
        }
        traffic.write(30)
        await anyio.sleep(10)
        assert found(world) == expected(traffic)


def test_others_take_the_shards_of_one_that_cannot_beat_and_nothing_is_done_twice():
    in_virtual_time(throttled_beats_in_company)


# -- reads of handlers -----------------------------------------------------------------------------


async def throttled_reads():
    throttle = Throttle(reads_of_the_app)
    async with fleet(throttle) as running:
        world, traffic = running.world, Traffic(running.world, 5)
        throttle.active = True
        traffic.write(30)
        await anyio.sleep(5)
        assert throttle.refused > 0
        assert found(world) != expected(traffic)
        throttle.active = False
        await anyio.sleep(20)
        assert found(world) == expected(traffic)
        assert running.parked() == []


def test_reads_of_handlers_that_are_throttled_are_repeated_and_park_nothing():
    in_virtual_time(throttled_reads)


# -- a hot aggregate -------------------------------------------------------------------------------

SHARDS, WORKERS = 32, 4
RATE, SECONDS = 320, 2.5
"""Changes a second over all shards, and for how long."""
HELD_SECONDS = 0.01
"""How long a transaction holds its items; DynamoDB answers one in some ten milliseconds."""


@dataclass(frozen=True)
class Heat:
    """What a run of the hot aggregate came to; `seconds` from the last write to the last commit."""

    changes: int
    commits: int
    cancelled: int
    seconds: float

    @property
    def cancelled_part(self):
        return self.cancelled / max(1, self.commits + self.cancelled)

    def __str__(self):
        return (
            f"{self.changes:,} changes in {self.commits} commits, {self.cancelled} cancelled"
            f" ({self.cancelled_part:.0%}), done {self.seconds:.1f} s after the last change"
        )


def counting_app():
    app = App("shop", table=TABLE)
    app.aggregate(ShopSales)
    return app


def write_sale(world, number):
    """Write a new sale; return its shard."""
    key = {"S": f"SALE#{number}"}
    keys = {"PK": key, "SK": key}
    shard = shard_of(world, TABLE, keys)
    item = keys | {"number": {"N": str(number)}, "amount": {"N": "1"}, "poison": {"BOOL": False}}
    item["shop"] = {"S": "a"}
    world.engine.call("dynamodb", "PutItem", {"TableName": TABLE, "Item": item})
    return shard


def write_sales(world, count, first=0):
    """Write so many new sales; return how many there are of each shard."""
    return Counter(write_sale(world, number) for number in range(first, first + count))


def counted(world):
    return sum(
        int(item["sales"]["N"])
        for item in world.items(TABLE)
        if item["SK"]["S"].startswith("SALES")
    )


async def crowded_pages():
    throttle = Throttle(lambda call: False)
    settings = Settings(readers=2)
    async with fleet(throttle, app=counting_app, settings=settings) as running:
        slow = sorted(running.leases())[:2]
        throttle.fits = lambda call: any(pages_of(shard)(call) for shard in slow)
        throttle.active = True
        total = due = 0
        for _ in range(20):
            there = write_sales(running.world, 20, first=total)
            total += 20
            due += 20 - sum(there[shard] for shard in slow)
            await anyio.sleep(2)
            assert counted(running.world) == due
        throttle.active = False
        await anyio.sleep(30)
        assert counted(running.world) == total


def test_throttled_shards_take_no_place_in_the_pool_from_others():
    in_virtual_time(crowded_pages)


async def heat(parts):
    contention = Contention(HELD_SECONDS)
    app = partial(spread_app, parts)
    async with fleet(*[contention] * WORKERS, shards=SHARDS, app=app) as running:
        world, total = running.world, int(RATE * SECONDS)
        sent, cancelled = contention.sent, contention.cancelled
        numbers = random.Random(3).sample(range(1_000_000), total)
        for number in numbers:
            write_sale(world, number)
            await anyio.sleep(1 / RATE)
        wrote = world.clock.monotonic()
        with anyio.fail_after(120):
            while counted(world) < total:
                await anyio.sleep(0.1)
        seconds = world.clock.monotonic() - wrote
        cancelled = contention.cancelled - cancelled
        sent = contention.sent - sent
        await anyio.sleep(5)
        assert counted(world) == total
        return Heat(total, sent - cancelled, cancelled, seconds)


def spread_app(parts):
    class Spread(Aggregate[Sale], pk="SHOP#{shop}", sk="SALES", spread=parts):
        shop: str
        sales: Annotated[int, Count()] = 0

        @classmethod
        def group(cls, sale: Sale) -> Key["Spread"]:
            return cls.key(shop=sale.shop)

    app = App("shop", table=TABLE)
    app.aggregate(Spread)
    return app


HEATS = (1, 8, 32)
"""Parts of the hot group."""


def test_a_hot_aggregate_keeps_up_although_most_commits_are_cancelled_unless_it_is_spread():
    """As commits collide, each carries more changes: what is folded makes up for what is lost."""
    found = [in_virtual_time(heat, parts) for parts in HEATS]
    for parts, result in zip(HEATS, found, strict=True):
        print(f"spread={parts}: {result}")
    hot, some, many = found
    assert 0.3 < hot.cancelled_part < 0.8
    assert hot.seconds < 5.0
    assert hot.changes / hot.commits > 1.5 * many.changes / many.commits
    assert hot.cancelled_part > 1.2 * some.cancelled_part > 1.5 * many.cancelled_part
    assert many.seconds < 1.0
