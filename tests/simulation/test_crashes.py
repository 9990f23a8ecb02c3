"""A worker killed at any call, before or after it was applied, changes nothing about the result.

One small scenario runs once to count its calls, then once for every call and both moments with
the worker's process dying there and another one taking over. The table must be what one pass in
order would have made of it.
"""

import pytest

from streamkit.settings import Settings
from streamkit.testing.loop import run_virtually
from streamkit.testing.world import CrashPoint, Process, World
from tests.simulation.shop import TABLE, Traffic, create_table, expected, found, make_app

PARTS = 3
"""The calls are dealt out to so many tests, for runners that share them over processors."""
SELDOM = Settings(look_interval=3, poll_floor=1, poll_ceiling=4)
"""The second worker waits for the first one's lease; what it asks meanwhile is of no interest."""


async def scenario(crash, seed, poison):
    """Some changes, a split, more changes, a roll; the worker dies once and is replaced."""
    world = World.create(seed)
    create_table(world)
    traffic = Traffic(world, seed)
    traffic.write(8, poison=poison)
    shard = world.control.shards(TABLE)[0]["id"]
    world.control.split(TABLE, shard)
    traffic.write(8, poison=poison)
    first = Process("first", crash)
    lived = await world.run_worker(make_app(), process=first, settings=SELDOM)
    traffic.write(5, poison=poison)
    world.control.roll(TABLE)
    traffic.write(5, poison=poison)
    assert await world.run_worker(make_app(), process=Process("second"), settings=SELDOM)
    assert found(world) == expected(traffic)
    return first.calls, lived


def test_a_run_without_crashes_equals_one_pass_in_order():
    for seed in range(5):
        calls, lived = run_virtually(scenario, None, seed, 0.0, seed=seed)
        assert lived
        assert calls > 40


@pytest.mark.parametrize("poison", [0.0, 0.4])
@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("part", range(PARTS))
def test_a_worker_killed_at_any_call_leaves_what_one_pass_would(part, moment, poison):
    calls, _ = run_virtually(scenario, None, 7, poison, seed=7)
    every = 1 if poison == 0.0 else 3
    for call in range(part, calls, every * PARTS):
        _, lived = run_virtually(scenario, CrashPoint(call, moment), 7, poison, seed=7)
        assert not lived, f"the worker made fewer than {call} calls"
