"""Heartbeat items of dead workers do not pile up, and a paused worker comes back under a new name."""

import anyio

from streamkit import Inserted
from streamkit.testing.loop import run_virtually
from streamkit.testing.world import CrashPoint, Process, World
from tests.simulation.shop import TABLE, Sale, Traffic, create_table, expected, found, make_app


def members(world):
    kinds = [item["_sk_kind"]["S"] for item in world.items(TABLE) if "_sk_kind" in item]
    return kinds.count("member")


async def dead_members():
    world = World.create(1)
    create_table(world)
    traffic = Traffic(world, 1)
    traffic.write(10)
    for n in range(3):
        await world.run_worker(make_app(), process=Process(f"dead-{n}", CrashPoint(25, "after")))
    assert members(world) == 3

    async def stop_later(worker):
        await anyio.sleep(300)
        assert members(world) == 1
        worker.stop()

    assert await world.run_worker(make_app(), until_idle=False, started=stop_later)
    assert members(world) == 0
    assert found(world) == expected(traffic)


def test_heartbeats_of_dead_workers_are_swept():
    run_virtually(dead_members)


async def swept_worker():
    world = World.create(2)
    create_table(world)
    traffic = Traffic(world, 2)

    async def sweep_then_write(workers):
        await anyio.sleep(10)
        first = {worker.name for worker in workers.workers}
        for item in world.items(TABLE):
            if item.get("_sk_kind") == {"S": "member"}:
                key = {name: item[name] for name in ("PK", "SK")}
                world.engine.call("dynamodb", "DeleteItem", {"TableName": TABLE, "Key": key})
        await anyio.sleep(30)
        assert first.isdisjoint({worker.name for worker in workers.workers})
        shared = workers.workers[0]._place.reads
        readers = {len(shard.readers) for shard in shared._shards.values()}
        assert readers == {2}, "those of before are gone"
        traffic.write(20)
        await anyio.sleep(10)
        workers.stop()

    app = make_app()

    @app.listener("beside").on
    def beside(change: Inserted[Sale]) -> None:
        pass

    assert await world.run_worker(app, until_idle=False, started=sweep_then_write)
    assert found(world) == expected(traffic)


def test_a_worker_that_was_swept_goes_on_under_a_new_name():
    run_virtually(swept_worker)
