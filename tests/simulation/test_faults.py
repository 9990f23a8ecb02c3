"""Under any mixture of faults, splits, rolls and crashes, the table is what one pass would make.

Each seed is one run: its traffic, its faults, its lineage and the order of its tasks follow from
it. Together the seeds must meet every kind of fault, or the test fails.
"""

import random
from collections import Counter

import anyio
import pytest

from streamkit.settings import Settings
from streamkit.testing.faults import Faults
from streamkit.testing.loop import run_virtually
from streamkit.testing.world import CrashPoint, Process, World
from tests.simulation.shop import TABLE, Traffic, create_table, expected, found, make_app

SEEDS = 48
PARTS = 4


async def writes(world, traffic, rng, faults):
    """Write for some virtual minutes while shards split and roll, then let the faults end."""
    for _ in range(12):
        await anyio.sleep(rng.random() * 20)
        traffic.write(rng.randrange(1, 8), poison=0.1)
        dice = rng.random()
        shards = [s for s in world.control.shards(TABLE) if s["open"]]
        if dice < 0.15 and len(shards) < 8:
            world.control.split(TABLE, rng.choice(shards)["id"])
        elif dice < 0.3:
            world.control.roll(TABLE, rng.choice(shards)["id"])
    faults.active = False


async def one_seed(seed):
    rng = random.Random(seed)
    world = World.create(seed, shards=rng.randrange(1, 4))
    world.control.configure(
        empty_page_chance=rng.choice([0.0, 0.3]),
        children_hidden=rng.choice([0.0, 8.0]),
        parents_open=rng.choice([0.0, 30.0]),
        publish_delay=rng.choice([0.0, 0.5]),
        ignore_shard_filter=rng.random() < 0.3,
        unordered_listing=True,
        spread_collections=True,
    )
    create_table(world)
    traffic = Traffic(world, seed)
    faults = Faults(
        rng, throttle=0.03, server_error=0.03, lost_request=0.03, lost_reply=0.03, late=0.02,
        conflict=0.1, expired=0.05, slow=0.1,
    )  # fmt: skip
    app = make_app()
    async with anyio.create_task_group() as group:
        group.start_soon(writes, world, traffic, rng, faults)
        lives = 0
        while faults.active:
            crash = CrashPoint(rng.randrange(20, 400), rng.choice(["before", "after"]))
            process = Process(f"worker-{lives}", crash, faults)
            lives += 1
            await world.run_worker(app, process=process, settings=Settings(), until_idle=True)
    assert await world.run_worker(app, process=Process("last"))
    assert found(world) == expected(traffic)
    return faults.taken


@pytest.mark.parametrize("part", range(PARTS))
def test_the_table_equals_one_pass_in_order_under_every_kind_of_fault(part):
    taken = Counter()
    for seed in range(part, SEEDS, PARTS):
        try:
            taken += run_virtually(one_seed, seed, seed=seed)
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
    kinds = {"throttle", "server_error", "lost_request", "lost_reply", "late", "conflict"}
    assert taken.keys() >= kinds | {"expired", "slow"}
