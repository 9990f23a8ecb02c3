"""A worker of an older roll-out leaves the shards to the newest, and takes over when it is gone."""

from typing import Annotated

import anyio
import pytest

from streamkit import Aggregate, App, Count, Entity, Key, Sum
from streamkit.fleet.generation import read_generation
from streamkit.kinds.aggregate.rebuild import rebuild_aggregate
from streamkit.testing.loop import run_virtually
from streamkit.testing.world import Process, World
from tests.simulation.rebuilds import Gate
from tests.simulation.shop import TABLE, Traffic, create_table


class Sold(Entity, pk="SALE#{number}", sk="SALE#{number}"):
    number: int
    shop: str
    amount: int


class Sales(Aggregate[Sold], pk="SHOP#{shop}", sk="SALES"):
    shop: str
    sales: Annotated[int, Count()] = 0

    @classmethod
    def group(cls, sale: Sold) -> Key["Sales"]:
        return cls.key(shop=sale.shop)


class Revenue(Aggregate[Sold], pk="SHOP#{shop}", sk="REVENUE"):
    shop: str
    revenue: Annotated[int, Sum("amount")] = 0

    @classmethod
    def group(cls, sale: Sold) -> Key["Revenue"]:
        return cls.key(shop=sale.shop)


def version(number):
    app = App("sales", table=TABLE)
    app.aggregate(Sales)
    if number > 1:
        app.aggregate(Revenue)
    return app


def generation(world):
    (item,) = [i for i in world.items(TABLE) if i.get("_sk_kind") == {"S": "consumer"}]
    return read_generation({k.removeprefix("_sk_"): v for k, v in item.items() if "_sk_" in k})


def leader(world):
    for item in world.items(TABLE):
        if item.get("_sk_name") == {"S": "lister"}:
            return item.get("_sk_owner", {}).get("S")
    return None


class Running:
    """A worker of a version that runs until it is told to stop."""

    def __init__(self, world, number):
        self.world, self.number, self.worker = world, number, None

    async def run(self):
        await self.world.run_worker(
            version(self.number), process=Process("x"), until_idle=False, started=self.remember
        )

    async def remember(self, worker):
        self.worker = worker


async def leads(world, running):
    with anyio.fail_after(120):
        while running.worker is None or leader(world) != running.worker.name:
            await anyio.sleep(0.5)


async def old_stands_by(seed):
    world = World.create(seed)
    create_table(world)
    traffic = Traffic(world, seed)
    traffic.write(10)
    first, old, new, spare = (Running(world, n) for n in (1, 1, 2, 2))
    async with anyio.create_task_group() as group:
        group.start_soon(first.run)
        await leads(world, first)
        first.worker.stop()
        await anyio.sleep(5)
        group.start_soon(new.run)
        await leads(world, new)
        assert generation(world).rebuild == {"Revenue"}
        group.start_soon(old.run)
        group.start_soon(spare.run)
        await anyio.sleep(10)
        new.worker.stop()
        await leads(world, spare)
        assert generation(world).number == 2
        traffic.write(10)
        await anyio.sleep(5)
        spare.worker.stop()
        await leads(world, old)
        assert generation(world).number == 3
        old.worker.stop()


@pytest.mark.parametrize("seed", range(6))
def test_an_older_roll_out_stands_by_while_the_newest_lives_and_then_takes_over(seed):
    run_virtually(old_stands_by, seed, seed=seed)


async def newest_dies():
    world = World.create(9)
    create_table(world)
    traffic = Traffic(world, 9)
    traffic.write(10)
    assert await world.run_worker(version(1))
    process = Process("newest")
    async with anyio.create_task_group() as group:
        newest, old = Running(world, 2), Running(world, 1)

        async def run_newest():
            await world.run_worker(
                version(2), process=process, until_idle=False, started=newest.remember
            )

        group.start_soon(run_newest)
        await leads(world, newest)
        process.kill()
        group.start_soon(old.run)
        await leads(world, old)
        old.worker.stop()
    assert generation(world).number == 3


def test_an_older_roll_out_takes_over_from_newest_workers_that_died():
    run_virtually(newest_dies)


def creates_cursors(call):
    return call.operation == "TransactWriteItems" and b"#cursor#shardId" in call.payload


async def leader_dies_before_a_rebuild():
    world = World.create(4)
    create_table(world)
    Traffic(world, 4).write(10)
    gate = Gate(creates_cursors)
    process = Process("leader", faults=gate)
    async with anyio.create_task_group() as group:
        leading, other = Running(world, 1), Running(world, 1)

        async def run_leader():
            await world.run_worker(
                version(1), process=process, until_idle=False, started=leading.remember
            )

        group.start_soon(run_leader)
        await gate.met.wait()
        group.start_soon(other.run)
        await anyio.sleep(5)
        process.kill()
        async with world.clients() as aws:
            done = await rebuild_aggregate(version(1), aws, "Sales", clock=world.clock)
        assert done.done
        assert leader(world) == leading.worker.name
        await leads(world, other)
        other.worker.stop()


def test_who_could_lead_hears_of_a_generation_that_only_the_dead_leaders_cursor_names():
    run_virtually(leader_dies_before_a_rebuild)
