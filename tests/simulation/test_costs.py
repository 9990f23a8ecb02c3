"""What a fleet costs: the engine's own accounting, what the page says, and what is estimated.

Three figures for each activity have to agree: what is measured here, what `streamkit cost` computes,
and what docs/costs.md publishes. If a change makes a fleet dearer by more than a tenth, this fails.
"""

import random
from dataclasses import dataclass

import anyio
import pytest

from streamkit import App
from streamkit.observe.pricing import DIRECTORIES_EACH, SHARD_END_WRITES, estimate
from streamkit.settings import PRESETS, Settings
from streamkit.testing.chance import repeatable
from streamkit.testing.loop import run_virtually
from streamkit.testing.world import Process, World
from tests.pages import PAGES, rows
from tests.simulation.bill import Bill, told_apart
from tests.simulation.shop import TABLE, ShopSales, create_table

GROWTH = 1.1
"""By how much the measured units may exceed the published ones."""
SHRINKAGE = 0.6
"""And below which part of them they are published wrongly; a window may miss one reading."""


@dataclass(frozen=True)
class Fleet:
    """What is measured: `seconds`, once `settling` seconds have passed."""

    workers: int
    shards: int
    settings: Settings
    settling: float = 60.0
    seconds: float = 300.0
    changes: float = 0.0

    @property
    def hours(self):
        return self.seconds / 3600

    @property
    def directories_every(self):
        return DIRECTORIES_EACH * self.settings.list_interval

    @property
    def estimate(self):
        return estimate(
            self.settings, shards=self.shards, workers=self.workers, changes=self.changes
        )


FLEETS = {
    "1 x 4": Fleet(1, 4, Settings()),
    "3 x 12": Fleet(3, 12, Settings()),
    "20 x 1,000": Fleet(
        20, 1000, Settings(preset="cost", poll_floor=20, poll_ceiling=20), 40.0, 60.0
    ),
}
BUSY = {
    "1 x 4": Fleet(1, 4, Settings(), seconds=120.0, changes=4.0),
    "3 x 12": Fleet(3, 12, Settings(), 30.0, 60.0, changes=12.0),
}
PURPOSES = {
    "heartbeats": "heartbeats",
    "looks at the others": "looks",
    "directories": "directories",
    "is it still mine": "own cursors",
    "the leader's audit": "leader",
    "polls": "polls",
    "cursors of commits": "cursors",
}
"""What the estimate calls an activity, and what the bill does."""

BUSIER = ("polls", "cursors of commits")
"""What traffic makes dearer."""


def make_app():
    app = App("shop", table=TABLE)
    app.aggregate(ShopSales)
    return app


def put_sale(world, rng):
    number = rng.randrange(1_000_000)
    key = {"S": f"SALE#{number}"}
    item = {"PK": key, "SK": key, "number": {"N": str(number)}, "amount": {"N": "1"}}
    item |= {"shop": {"S": rng.choice("abcdefgh")}, "poison": {"BOOL": False}}
    world.engine.call("dynamodb", "PutItem", {"TableName": TABLE, "Item": item})


async def keep_writing(world, changes, rng):
    while changes:
        put_sale(world, rng)
        await anyio.sleep(1 / changes)


async def run_fleet(fleet):
    """Return the bill of the fleet's window."""
    world = World.create(7, shards=fleet.shards)
    create_table(world)
    bill = Bill(world)
    workers = []

    async def started(worker):
        workers.append(worker)

    async def run(name):
        await world.run_worker(
            make_app(),
            process=Process(name),
            settings=fleet.settings,
            until_idle=False,
            started=started,
        )

    async with anyio.create_task_group() as group:
        for number in range(fleet.workers):
            group.start_soon(run, f"worker-{number}")
        async with anyio.create_task_group() as writers:
            writers.start_soon(keep_writing, world, fleet.changes, random.Random(1))
            await anyio.sleep(fleet.settling)
            assert sum(len(worker.shards) for worker in workers) == fleet.shards
            bill.clear()
            await anyio.sleep(fleet.seconds)
            bill.close()
            writers.cancel_scope.cancel()
        for worker in workers:
            worker.stop()
    return bill


def measured(fleet):
    with repeatable(1), told_apart():
        return run_virtually(run_fleet, fleet)


def units(bill, cost):
    """Return the units an hour and worker, shard or fleet that the bill has of an activity."""
    return bill.units[PURPOSES[cost.what]][cost.kind] / cost.count


def page_row(name, column="units an hour"):
    """Return a row of the page's table that has such a column, by the names of its columns."""
    found = rows(PAGES["docs/costs.md"])
    head = next(row for row in found if column in row)
    return next(dict(zip(head, row, strict=True)) for row in found if row[0] == name)


def compare(name, bill, fleet):
    """Hold what was measured against what is estimated."""
    for cost in fleet.estimate.costs:
        if cost.what not in PURPOSES:
            continue
        found = units(bill, cost) / fleet.hours
        print(f"{name}: {cost.what}: {found:,.0f} {cost.kind} units, {cost.units:,.0f} estimated")
        if cost.what == "directories" and fleet.seconds < fleet.directories_every:
            assert found <= GROWTH * cost.units * fleet.directories_every / fleet.seconds
            continue
        assert SHRINKAGE * cost.units <= found <= GROWTH * cost.units, cost.what


@pytest.mark.parametrize("name", FLEETS)
def test_the_page_publishes_the_units_that_are_estimated(name):
    for cost in FLEETS[name].estimate.costs:
        if cost.what in PURPOSES:
            row = page_row(cost.what)
            assert row[name] == f"{cost.units:,.0f}", cost.what
            assert row["units an hour"] == f"{cost.kind}, for each {cost.per}"
    for cost in BUSY[name].estimate.costs if name in BUSY else ():
        if cost.what in BUSIER:
            assert page_row(f"{cost.what}, busy")[name] == f"{cost.units:,.0f}", cost.what


@pytest.mark.parametrize("name", FLEETS)
def test_an_idle_fleet_costs_what_is_estimated_and_writes_heartbeats_only(name):
    fleet, bill = FLEETS[name], measured(FLEETS[name])
    compare(name, bill, fleet)
    one_heartbeat_a_worker_and_interval(fleet, bill)
    assert bill.total("write") == sum(bill.beats.values()), "a lease or a position was written"
    operations = bill.operations()
    assert operations.keys() <= {
        "UpdateItem",  # the heartbeats
        "Query",  # the members
        "GetItem",  # the leader's lease
        "BatchGetItem",  # directories and cursors
        "DescribeStream",
        "GetRecords",
    }
    listings = fleet.seconds / fleet.settings.list_interval + 1
    assert operations["DescribeStream"] <= listings * (fleet.shards / 100 + 1)


@pytest.mark.parametrize(("workers", "most"), [(1, 15), (2, 75)])
def test_a_quiet_shard_costs_few_table_reads_a_minute(workers, most):
    fleet = Fleet(workers, 1, Settings(), seconds=300.0)
    assert measured(fleet).total("read") / workers / 5 <= most


@pytest.mark.parametrize("name", BUSY)
def test_a_busy_fleet_costs_what_is_estimated_and_writes_no_position_alone(name):
    fleet, bill = BUSY[name], measured(BUSY[name])
    compare(f"{name}, busy", bill, fleet)
    one_heartbeat_a_worker_and_interval(fleet, bill)
    assert bill.units["positions"]["write"] == 0
    assert "Scan" not in bill.operations()


def one_heartbeat_a_worker_and_interval(fleet, bill):
    due = fleet.seconds / fleet.settings.heartbeat
    assert len(bill.beats) == fleet.workers
    assert all(due - 1 <= count <= due for count in bill.beats.values())


async def shard_ends(shards):
    world = World.create(7, shards=shards)
    create_table(world)
    bill = Bill(world)

    async def roll(worker):
        await anyio.sleep(60)
        bill.clear()
        world.control.roll(TABLE)
        await anyio.sleep(60)
        bill.close()
        worker.stop()

    await world.run_worker(make_app(), until_idle=False, started=roll)
    return bill.total("write") - sum(bill.beats.values())


def test_the_end_of_a_shard_costs_what_is_estimated():
    with repeatable(1), told_apart():
        found = run_virtually(shard_ends, 8) / 8
    print(f"{found} write units for the end of a shard")
    assert SHRINKAGE * SHARD_END_WRITES <= found <= GROWTH * SHARD_END_WRITES


async def polls_of_a_quiet_table():
    settings = Settings(poll_floor=0.2, poll_ceiling=10.0)
    bill = await run_fleet(Fleet(1, 4, settings, settling=60.0, seconds=300.0))
    assert sum(bill.beats.values()) >= 99, "own records there are"
    return bill.units["polls"]["stream"]


def test_own_records_keep_no_shard_awake():
    with told_apart():
        assert run_virtually(polls_of_a_quiet_table) <= 4 * (300 / 10 + 1)


@pytest.mark.parametrize("preset", PRESETS)
def test_the_page_says_what_each_preset_costs(preset):
    settings, row = Settings(preset=preset), page_row(preset, "preset")
    quiet = estimate(settings, shards=4, workers=2)
    busy = estimate(settings, shards=4, workers=2, changes=4.0)
    assert row["a quiet shard is polled"] == f"every {settings.poll_ceiling:g} s"
    assert row["a worker looks at the others"] == f"every {settings.look_interval:g} s"
    for column, dollars in (
        ("quiet shard", quiet.each("shard")),
        ("shard with a change a second", busy.each("shard")),
        ("worker", quiet.each("worker")),
        ("fleet", quiet.each("fleet")),
    ):
        assert row[column] == f"${dollars:.2f}", column


def test_a_fleet_of_either_preset_costs_less_than_one_that_asks_more_often():
    dollars = [
        estimate(Settings(preset=preset), shards=12, workers=3).dollars
        for preset in ("cost", "balanced", "latency")
    ]
    assert dollars == sorted(dollars)
    assert len(PRESETS) == len(dollars)
