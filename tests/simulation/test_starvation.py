"""A fleet that is short of CPU keeps its shards where they are, and goes on; what died is replaced.

Each worker gets the CPU in turn: for some seconds it runs, then it stands still for longer than a
lease. The rule and what simpler ones break are in `tests/models/starved_fleet.py`.
"""

import random

import anyio
import pytest

from streamkit.fleet.starvation import longest
from streamkit.settings import Settings
from streamkit.testing.loop import run_virtually
from tests.simulation.crew import Fleet

NAMES = ("a", "b", "c")
LEASE, HEARTBEAT = Settings().lease, Settings().heartbeat
WARM = 45.0
"""Until every worker has seen each of the others late."""


async def starve(fleet, name, rng):
    """Let a worker run now and then."""
    process = fleet.lives[name].process
    while True:
        await anyio.sleep(rng.uniform(3, 8))
        process.freeze()
        await anyio.sleep(rng.uniform(8, 10))
        process.thaw()


async def write_on(fleet):
    while True:
        fleet.write(10)
        await anyio.sleep(1)


async def begun(fleet, group, seed):
    """Starve a fleet that has settled, for so long that each has been seen to be late."""
    for name in NAMES:
        await fleet.lives[name].up.wait()
    await fleet.until_even(*NAMES)
    group.start_soon(write_on, fleet)
    for number, name in enumerate(NAMES):
        group.start_soon(starve, fleet, name, random.Random(10 * seed + number))
    await anyio.sleep(WARM)


@pytest.mark.parametrize("seed", range(2))
def test_workers_that_are_short_of_cpu_in_turn_take_no_shards_from_each_other_and_go_on(seed):
    async def scenario():
        fleet = Fleet(6)
        async with fleet.running(*NAMES), anyio.create_task_group() as group:
            await begun(fleet, group, seed)
            since, counted = fleet.now, fleet.tallied()
            await anyio.sleep(120)
            assert fleet.moves(since) == []
            assert fleet.tallied() > counted + 600
            group.cancel_scope.cancel()
            for life in fleet.lives.values():
                life.process.thaw()
            await fleet.until_even(*NAMES)
            await fleet.until_tallied()

    run_virtually(scenario, seed=seed)


@pytest.mark.parametrize("seed", range(2))
def test_a_worker_that_dies_in_a_starved_fleet_is_replaced_within_the_longest_lease(seed):
    async def scenario():
        fleet = Fleet(6)
        async with fleet.running(*NAMES), anyio.create_task_group() as group:
            await begun(fleet, group, seed)
            since = fleet.now
            fleet.lives["b"].process.kill()
            took = await fleet.until(lambda: fleet.all_read(since + 0.01, without=("b",)))
            assert took <= longest(LEASE) * LEASE + HEARTBEAT + 11, (
                "and as long as the taker stands still"
            )
            assert {take.before for take in fleet.moves(since)} == {fleet.lives["b"].worker.name}
            group.cancel_scope.cancel()

    run_virtually(scenario, seed=seed)


def test_a_worker_that_dies_is_replaced_in_the_normal_time_beside_one_that_is_starved():
    async def scenario():
        fleet = Fleet(6)
        async with fleet.running(*NAMES), anyio.create_task_group() as group:
            for name in NAMES:
                await fleet.lives[name].up.wait()
            await fleet.until_even(*NAMES)
            group.start_soon(write_on, fleet)
            await anyio.sleep(WARM)
            group.start_soon(starve, fleet, "a", random.Random(1))
            await anyio.sleep(WARM)
            since, names = fleet.now, [s for s, who in fleet.owners().items() if who == "b"]
            fleet.lives["b"].process.kill()
            owner = fleet.lives["b"].worker.name
            mine = lambda: {t.shard for t in fleet.moves(since) if t.before == owner}  # noqa: E731
            took = await fleet.until(lambda: mine() >= set(names))
            assert took <= 2 * LEASE + HEARTBEAT
            group.cancel_scope.cancel()

    run_virtually(scenario)
