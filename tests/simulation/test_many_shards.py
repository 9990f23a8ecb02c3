"""A wide stream all of whose shards end at once: each child after its parent, nothing lost.

What it costs grows with the number of shards, and no faster: in a wide fleet nobody may look at
everything for each shard that ends.
"""

import anyio

from streamkit.testing.loop import run_virtually
from tests.simulation.crew import TABLE, Fleet
from tests.simulation.fleet_lives import events_seen
from tests.simulation.invariants import Lineage, Referee

WORKERS = ("a", "b", "c")
MOST = 20
"""Calls for each shard: its parent's last pages and end, its cursor, its lease and its first pages."""
SETTINGS = {
    "poll_ceiling": 120.0,
    "heartbeat": 10.0,
    "lease": 30.0,
    "look_interval": 5.0,
    "list_interval": 60.0,
    "checkpoint_interval": 600.0,
}


async def read_by_all(fleet):
    """Wait until every open shard is owned and all is counted; seldom, a look at it is dear."""
    with anyio.fail_after(900):
        while True:
            await anyio.sleep(10)
            held = fleet.held()
            shared = set(held) == set(WORKERS) and held.total() == len(fleet.open_shards())
            if shared and fleet.tallied() == fleet.written:
                return


async def rolled(shards):
    """Let every shard of a stream end at once; return the calls that it took until all is read."""
    fleet = Fleet(shards, refereed=False, **SETTINGS)
    parents = {}
    referee = Referee(Lineage(parents.get))
    fleet.world.watchers.append(referee)
    async with fleet.running(*WORKERS):
        await read_by_all(fleet)
        before, calls = fleet.open_shards(), fleet.calls.total()
        fleet.write(shards // 2)
        fleet.world.control.roll(TABLE)
        parents |= {s["id"]: s["parent"] for s in fleet.world.control.shards(TABLE)}
        fleet.write(shards // 2)
        await read_by_all(fleet)
        calls = fleet.calls.total() - calls
        assert len(fleet.open_shards()) == shards
        assert not before & fleet.open_shards()
        assert all(cursor.parent in before for cursor in fleet.cursors())
    assert not referee.violations, referee.violations[:3]
    return calls / shards


def test_a_thousand_shards_that_end_at_once_cost_as_many_calls_each_as_fifty_do():
    with events_seen(lambda _: None):
        few, many = run_virtually(rolled, 50), run_virtually(rolled, 1_000)
    assert many <= MOST
    assert many <= 1.2 * few, (few, many)
