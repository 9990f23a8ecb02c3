"""A worker killed at any call, before or after it was applied, changes nothing about the result.

One small scenario runs once to count its calls, then once for every call and both moments with
the worker's process dying there and another one taking over. The table must be what one pass in
order would have made of it.
"""

import pytest

from streamkit.settings import Settings
from streamkit.testing.every import chosen
from streamkit.testing.loop import run_virtually
from streamkit.testing.sightings import WRITES
from streamkit.testing.world import CrashPoint, Process, World
from tests.simulation.shop import TABLE, Traffic, create_table, expected, found, make_app

PARTS = 3
"""The calls are dealt out to so many tests, for runners that share them over processors."""
SAMPLE = 3
SELDOM = Settings(look_interval=3, poll_floor=1, poll_ceiling=4)
"""The second worker waits for the first one's lease; what it asks meanwhile is of no interest."""


class Wire:
    """Lets every call through, and keeps what they asked for, by their numbers."""

    def __init__(self):
        self.operations = []

    async def intercept(self, call, apply):
        self.operations.append(call.operation)
        return apply()


async def scenario(crash, seed, poison):
    """Some changes, a split, more changes, a roll; the worker dies once and is replaced."""
    world = World.create(seed)
    create_table(world)
    traffic = Traffic(world, seed)
    traffic.write(8, poison=poison)
    shard = world.control.shards(TABLE)[0]["id"]
    world.control.split(TABLE, shard)
    traffic.write(8, poison=poison)
    wire = Wire()
    first = Process("first", crash, wire)
    lived = await world.run_worker(make_app(), process=first, settings=SELDOM)
    traffic.write(5, poison=poison)
    world.control.roll(TABLE)
    traffic.write(5, poison=poison)
    assert await world.run_worker(make_app(), process=Process("second"), settings=SELDOM)
    assert found(world) == expected(traffic)
    return wire.operations, lived


def test_a_run_without_crashes_equals_one_pass_in_order():
    for seed in range(5):
        calls, lived = run_virtually(scenario, None, seed, 0.0, seed=seed)
        assert lived
        assert len(calls) > 40


@pytest.mark.parametrize("poison", [0.0, 0.4])
@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("part", range(PARTS))
def test_a_worker_killed_at_any_call_leaves_what_one_pass_would(part, moment, poison):
    """At every call that writes: a death at a read leaves what one before the next write does.

    Without poison some of the reads are tried as well, so that this is not only believed. Each test
    plays a sample of its own; EVERY_CALL=1 plays all calls.
    """
    operations, _ = run_virtually(scenario, None, 7, poison, seed=7)
    numbers = [
        n for n, name in enumerate(operations) if name in WRITES or (not poison and n % 5 == 0)
    ]
    assert len(numbers) > 20
    for number in chosen(numbers[part::PARTS], SAMPLE, seed=part):
        _, lived = run_virtually(scenario, CrashPoint(number, moment), 7, poison, seed=7)
        assert not lived, f"the worker made fewer than {number} calls"
