"""A rewind that drops parked changes: rows V1 to V4 of the archive's model."""

import random
from contextlib import suppress

import anyio
import pytest

from streamkit import App, Entity, Inserted, Modified, Policy, Put
from streamkit.core.parked import head
from streamkit.core.parked.queues import parked_queues, read_head
from streamkit.core.tables import open_store
from streamkit.fleet.generation import newest_generation
from streamkit.fleet.rewinding import begin_rewind, finish_rewind
from streamkit.operate.redrive import redrive
from streamkit.operate.rewind import Despite, RewindRefused, rewind
from streamkit.settings import Settings
from streamkit.testing import Harness, every_crash, every_freeze

SETTINGS = Settings(poll_ceiling=5, heartbeat=10, lease=30, list_interval=20, look_interval=20)
NEVER = Policy(attempts=1, retry_seconds=50_000, retry_seconds_max=50_000, breaker=False)
DROPS = Despite(parked=True)
DOWN, ORDER = set(), []
"""What fails for the moment, and what has run, in order."""


class Thing(Entity, pk="THING#{name}", sk="THING"):
    name: str
    n: int = 0


class Note(Entity, pk="NOTE#{name}", sk="NOTE"):
    name: str
    n: int = 0


def rig():
    DOWN.clear()
    ORDER.clear()
    app = App("copying", table="Things", entities=[Note], policy=NEVER)

    @app.on
    def notes(change: Inserted[Thing] | Modified[Thing]) -> Put[Note]:
        if change.new.n in DOWN:
            raise OSError("down")
        ORDER.append(change.new.n)
        return Put(Note(name=change.new.name, n=change.new.n))

    return Harness(app, shards=1, settings=SETTINGS, lenient=True)


@pytest.fixture
def harness():
    with rig() as found:
        yield found


def stuck(harness):
    """Write one item three times; the second change is parked, and the third waits behind it."""
    DOWN.add(2)
    for n in (1, 2, 3):
        harness.put(Thing(name="x", n=n))
        harness.settle()
    assert len(harness.parked()) == 2
    harness.stop()
    DOWN.clear()
    ORDER.clear()


def rewound(harness, despite=DROPS):
    clock = harness.world.clock

    async def work(aws):
        return await rewind(harness.app, aws, None, lease_seconds=30, clock=clock, despite=despite)

    return harness.operate(work)


def test_v1_parked_changes_are_dropped_and_run_again_in_order(harness):
    stuck(harness)
    with pytest.raises(RewindRefused, match="--drop-parked"):
        rewound(harness, Despite())
    assert rewound(harness).parked == 1
    assert harness.parked() == []
    harness.settle()
    assert ORDER == [1, 2, 3]
    assert harness.get(Note.key(name="x")).n == 3


def test_v1_what_the_new_generation_parks_stays_whoever_finishes_the_rewind(harness):
    """A process that stood still while it finished finds the same change, parked again."""
    stuck(harness)
    newest = harness.operate(lambda aws: decided(aws, harness))
    DOWN.add(2)
    harness.settle()
    assert len(harness.parked()) == 2

    async def late(aws):
        await finish_rewind(await open_store(harness.app, aws), newest)

    harness.operate(late)
    assert len(harness.parked()) == 2


async def decided(aws, harness):
    """Write what decides a rewind, and die."""
    store = await open_store(harness.app, aws)
    now = int(harness.world.clock.time())
    return await begin_rewind(store, await newest_generation(store), 0, now)


def test_v2_no_worker_of_the_new_generation_finds_old_parked_changes(harness):
    """The process that decides dies at once; the next worker drops them before it reads."""
    stuck(harness)
    harness.operate(lambda aws: decided(aws, harness))
    assert len(harness.parked()) == 2
    harness.settle()
    assert (ORDER, harness.parked()) == ([1, 2, 3], [])
    DOWN.add(4)
    harness.put(Thing(name="x", n=4))
    harness.settle()
    assert [one.error for one in harness.parked()] == ["OSError"]
    DOWN.clear()
    harness.redrive()
    assert ORDER == [1, 2, 3, 4]


async def look(aws, harness):
    return await newest_generation(await open_store(harness.app, aws))


@pytest.mark.parametrize("call", range(0, 24, 2))
def test_v3_a_rewind_that_dies_and_is_never_repeated_loses_nothing(harness, call):
    """Dropped before the write that decides, parked changes would be gone for good."""
    stuck(harness)
    clock, runs = harness.world.clock, []

    async def once(aws):
        if not runs:
            runs.append(1)
            await rewind(harness.app, aws, None, lease_seconds=30, clock=clock, despite=DROPS)

    before = harness.operate(lambda aws: look(aws, harness))
    harness.crash(at=call, part="operation")
    harness.operate(once)
    decided = harness.operate(lambda aws: look(aws, harness)).founded != before.founded
    harness.settle()
    if not decided:
        assert ORDER == []
        harness.redrive()
    assert (ORDER, harness.parked()) == ([1, 2, 3] if decided else [2, 3], [])


def test_v4_a_redrive_that_stood_still_runs_nothing_in_the_generation_after_it(harness):
    """It has read the first change of a queue that was dropped since, and begun again by another."""
    stuck(harness)
    clock = harness.world.clock

    async def first(aws):
        store = await open_store(harness.app, aws)
        (queue,) = await parked_queues(store)
        return await read_head(store, queue.name)

    found = harness.operate(first)
    rewound(harness)
    DOWN.add(2)
    harness.settle()
    again = harness.operate(first)
    assert (again[0].name, again[1].position) == (found[0].name, found[1].position)
    assert again[0].generation > found[0].generation

    async def late(aws):
        store = await open_store(harness.app, aws)
        schemas = {harness.app.table: harness.tables.table}
        return await head.take_off(store, schemas, *found, (), random.Random(), clock)

    assert harness.operate(late) is not None
    assert len(harness.parked()) == 2
    DOWN.clear()
    harness.operate(lambda aws: redrive(harness.app, aws))
    assert (ORDER[-2:], harness.parked()) == ([2, 3], [])


def dropped(harness):
    """Rewind with parked changes, killed or frozen anywhere and repeated."""
    stuck(harness)
    clock = harness.world.clock

    async def rewinds(aws):
        for _ in range(3):
            with suppress(RewindRefused):  # the one that was frozen was at it
                return await rewind(
                    harness.app, aws, None, lease_seconds=30, clock=clock, despite=DROPS
                )
            await anyio.sleep(5)
        return None

    harness.operate(rewinds)
    harness.settle()
    assert harness.parked() == []
    assert harness.get(Note.key(name="x")).n == 3
    harness.put(Thing(name="x", n=4))
    harness.settle()
    assert harness.get(Note.key(name="x")).n == 4


def test_a_rewind_that_drops_and_is_killed_at_any_call_is_finished():
    assert list(every_crash(dropped, rig, part="operation", sample=8))


def test_a_rewind_that_drops_and_stands_still_at_any_call_does_no_harm():
    assert list(every_freeze(dropped, rig, part="operation", sample=8))
