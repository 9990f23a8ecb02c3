"""An idle table is quiet: what a worker writes on a day when nobody else does."""

from collections import Counter

import anyio

from streamkit.settings import Settings
from streamkit.testing.loop import run_virtually
from streamkit.testing.world import World
from tests.simulation.shop import TABLE, Traffic, create_table, expected, found, make_app

DAY = 24 * 3600
SHARDS = 4


def written(call):
    """Name the kinds of control items that a call writes."""
    if call.operation == "UpdateItem":
        keys = [call.payload["Key"]]
    elif call.operation == "TransactWriteItems":
        actions = [next(iter(entry.values())) for entry in call.payload["TransactItems"]]
        keys = [action.get("Key") or action["Item"] for action in actions]
    else:
        return []
    return [key["PK"]["S"].split("#")[3] for key in keys if key["PK"]["S"].startswith("_sk#")]


async def idle_day(settings):
    world = World.create(3, shards=SHARDS)
    create_table(world)
    traffic = Traffic(world, 3)
    traffic.write(20)
    world.calls.clear()

    async def stop_after_a_day(worker):
        await anyio.sleep(60)
        world.calls.clear()
        await anyio.sleep(DAY)
        worker.stop()

    assert await world.run_worker(
        make_app(), settings=settings, until_idle=False, started=stop_after_a_day
    )
    assert found(world) == expected(traffic)
    closed = sum(1 for shard in world.control.shards(TABLE) if not shard["open"])
    return world.calls, closed


def test_an_idle_day_costs_heartbeats_hourly_positions_and_shard_ends():
    settings = Settings(poll_ceiling=60.0, heartbeat=10.0, lease=25.0)
    calls, closed = run_virtually(idle_day, settings)
    writes, commits, ended = Counter(), 0, 0
    for call in calls:
        kinds = written(call)
        writes.update(kinds)
        if call.operation == "TransactWriteItems":
            commits += 1
            ended += kinds.count("cursor") > 1
            assert kinds, "an own record caused a commit with effects"
            assert len(kinds) == len(call.payload["TransactItems"])
    # A worker that loses a shard to its end, or has made one, says so at once.
    assert writes["members"] <= DAY / settings.heartbeat + 2 + 2 * closed
    assert 4 * SHARDS <= ended <= closed, "each shard's end is one commit, with its child"
    # One position an hour and shard at most, and the last one when the worker stops; a finished
    # cursor is taken off its directory by the leader.
    assert commits - ended <= SHARDS * (24 + 1) + closed
    assert set(writes) <= {"members", "cursor", "dir"}
    operations = Counter(call.operation for call in calls)
    assert not operations.keys() & {"PutItem", "BatchWriteItem"}
    assert operations["DescribeStream"] / DAY < 0.1
