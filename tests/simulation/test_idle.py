"""An idle table is quiet: what a worker writes on a day without other writes."""

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
    settings = Settings(
        poll_ceiling=300, heartbeat=300, lease=750, look_interval=300, list_interval=600
    )
    calls, closed = run_virtually(idle_day, settings)
    writes, commits = Counter(), Counter()
    for call in calls:
        kinds = written(call)
        writes.update(kinds)
        if call.operation == "TransactWriteItems":
            commits[kinds.count("cursor"), "dir" in kinds] += 1
            assert len(kinds) == len(call.payload["TransactItems"]), "an own record had an effect"
    # One an interval, and two when the worker says that it stops. Neither a shard that ends nor its
    # only child is news to anyone: the child is listed by then, and read by its parent's reader.
    assert writes["members"] <= DAY / settings.heartbeat + 2
    # Each shard's end is one commit, with its child; the leader takes the finished cursor off its
    # directory, of several shards at a time.
    assert 4 * SHARDS <= commits[2, True] <= closed
    assert commits[1, True] <= closed
    # One position an hour and shard at most, none for the hours that a shard has only begun, and
    # each shard's last one when the worker stops.
    assert commits[1, False] <= SHARDS * (24 + 1)
    assert commits.keys() == {(2, True), (1, True), (1, False)}
    assert set(writes) <= {"members", "cursor", "dir"}
    operations = Counter(call.operation for call in calls)
    assert not operations.keys() & {"PutItem", "BatchWriteItem"}
    # The leader lists now and then, and each shard that ends is asked for its children once.
    assert operations["DescribeStream"] <= DAY / settings.list_interval + closed + 1
