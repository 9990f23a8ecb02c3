"""Clocks: each process of a simulation has its own, minutes off, which steps, forwards and back.

So whatever compares the clocks of two machines, or measures how long something took by the time of
day, fails some seed. Of the times in the table the service's own clock decides where that matters.
"""

from itertools import pairwise

import anyio
import pytest

from streamkit import App, Entity, Inserted, Put
from streamkit.core.tables import survey
from streamkit.fleet.catching_up import CatchUp
from streamkit.fleet.coordinator import Coordinator
from streamkit.operate.status import read_status
from streamkit.progress.cursor import CursorStore
from streamkit.testing.loop import VirtualClock, run_virtually
from streamkit.testing.world import Process, World
from tests.simulation.fleet_run import run
from tests.simulation.plan import Plan, PlannedEvent
from tests.tables import streamed

SEEDS = range(3)
KILLED = Plan(
    {"shards": 2, "seconds": 3.0, "settings": {"heartbeat": 3.0, "lease": 7.0}, "engine": {}},
    (
        PlannedEvent("start", at=0.0, worker=0, version=1),
        PlannedEvent("start", at=0.0, worker=1, version=1),
        PlannedEvent("write", at=1.0, count=6, seed=3, poison=0.0),
        PlannedEvent("kill", at=2.0, worker=0),
    ),
)
"""One of two workers is killed: the other one has to notice. The lease is long enough for a clock to
step meanwhile."""


class WallClock:
    """A clock that measures how long something takes by the time of day."""

    def __init__(self, clock):
        self.time = self.monotonic = clock.time


class Ahead(VirtualClock):
    """The clock of a machine that is some seconds ahead, or behind."""

    def __init__(self, seconds):
        super().__init__()
        self._seconds = seconds

    def time(self):
        return super().time() + self._seconds


class Thing(Entity, pk="THING#{name}", sk="THING#{name}"):
    name: str


class Note(Entity, pk="NOTE#{name}", sk="NOTE#{name}"):
    name: str


def make_app(**named):
    app = App("clocks", table="Clocks", **named)

    @app.on
    def note(change: Inserted[Thing]) -> Put[Note]:
        return Put(Note(name=change.new.name))

    return app


def put(world, name):
    item = {"PK": {"S": f"THING#{name}"}, "SK": {"S": f"THING#{name}"}, "name": {"S": name}}
    status, _ = world.engine.call("dynamodb", "PutItem", {"TableName": "Clocks", "Item": item})
    assert status == 200


def noted(world):
    keys = [item["PK"]["S"] for item in world.items("Clocks")]
    return {key.removeprefix("NOTE#") for key in keys if key.startswith("NOTE#")}


def test_each_process_has_a_clock_of_its_own_that_is_minutes_off_and_steps_both_ways():
    async def scenario():
        world = World.create(1)
        clocks = [world.clock_of(Process(f"worker-{number}")) for number in range(6)]
        errors = [[] for _ in clocks]
        for _ in range(120):
            for clock, found in zip(clocks, errors, strict=True):
                found.append(clock.time() - world.clock.time())
            await anyio.sleep(10)
        assert len({found[0] for found in errors}) == len(clocks)
        for found in errors:
            steps = [after - before for before, after in pairwise(found)]
            assert max(map(abs, found)) > 60
            assert min(steps) < 0 < max(steps)

    run_virtually(scenario)


def test_a_process_keeps_its_clock():
    world, process = World.create(1), Process("worker")
    assert world.clock_of(process) is world.clock_of(process)


def test_a_fleet_that_measures_silence_by_the_time_of_day_fails_a_seed(monkeypatch):
    assert not any(run(seed, KILLED).failed for seed in SEEDS)
    complete = Coordinator.__post_init__

    def on_the_wall(self):
        self.clock = WallClock(self.clock)
        complete(self)

    monkeypatch.setattr(Coordinator, "__post_init__", on_the_wall)
    assert "liveness" in {run(seed, KILLED).invariant for seed in SEEDS}


def test_from_latest_no_change_is_skipped_or_too_much_by_a_machine_whose_clock_is_wrong():
    """Changes are stamped by the service; "now" of another clock is not their now."""

    async def scenario(seconds):
        world, app = World.create(1), make_app(start="latest")
        world.engine.call("dynamodb", "CreateTable", streamed("Clocks", "PK", "SK"))
        put(world, "before")
        await anyio.sleep(5)

        async def write(worker):
            await anyio.sleep(10)
            put(world, "since")
            await anyio.sleep(60)
            worker.stop()

        process = Process("worker", clock=Ahead(seconds))
        await world.run_worker(app, process=process, until_idle=False, started=write)
        assert noted(world) == {"since"}

    for seconds in (-600.0, 0.0, 600.0):
        run_virtually(scenario, seconds)


@pytest.mark.parametrize("reads", [-600.0, 0.0, 600.0])
@pytest.mark.parametrize("asks", [-600.0, 0.0, 600.0])
def test_nothing_counts_as_caught_up_while_a_change_is_unread_whatever_any_clock_says(reads, asks):
    """Neither the clock that asks nor the one that has written the cursors is AWS's."""

    async def scenario():
        world, app = World.create(1), make_app()
        world.engine.call("dynamodb", "CreateTable", streamed("Clocks", "PK", "SK"))
        put(world, "first")
        await world.run_worker(app, process=Process("worker", clock=Ahead(reads)))
        assert noted(world) == {"first"}
        put(world, "unread")
        await anyio.sleep(5)
        async with world.clients() as aws:
            tables = await survey(app, aws)
            store = CursorStore(aws.dynamodb, tables.space(app))
            catch_up = CatchUp(app, aws, store, tables.table, 3.0, Ahead(asks))
            assert not await catch_up.with_all_until_now()
            await world.run_worker(app, process=Process("next", clock=Ahead(reads)))
            assert noted(world) == {"first", "unread"}
            assert await catch_up.with_all_until_now()

    run_virtually(scenario)


@pytest.mark.parametrize("wrong", [-600.0, 0.0, 600.0])
def test_status_says_which_worker_is_silent_whatever_its_clock_says(wrong):
    """A heartbeat is dated by the clock of the table, which each of its replies tells."""

    async def scenario():
        world, app, seen = World.create(1), make_app(), []
        world.engine.call("dynamodb", "CreateTable", streamed("Clocks", "PK", "SK"))
        process = Process("worker", clock=Ahead(wrong))

        async def look():
            async with world.clients() as aws:
                seen.extend((await read_status(app, aws, clock=world.clock)).workers)

        async def watch(_):
            await anyio.sleep(60)
            await look()
            process.kill()

        await world.run_worker(app, process=process, until_idle=False, started=watch)
        await anyio.sleep(60)
        await look()
        running, killed = seen
        assert not running.silent
        assert running.beat_age_seconds < 10
        assert killed.silent
        assert 50 < killed.beat_age_seconds < 70

    run_virtually(scenario)
