"""Every command that changes something: killed at any call, or frozen and thawed, it does no harm.

A command is begun again where it was stopped, as a person does. What it does while it thaws, after
its lease, with the next step, or after the end, changes neither an item nor what the commands after
it have said: `every_freeze` compares the items, the scenarios the rest.
"""

from collections import Counter
from contextlib import suppress
from typing import Annotated

import anyio
import pytest

from streamkit import Add, Aggregate, App, Count, Entity, Inserted, Key, Modified, Policy, Put
from streamkit.aggregates.listing import list_aggregates
from streamkit.aggregates.rebuilding import rebuild_aggregate
from streamkit.errors import ConfigurationError
from streamkit.operating.consumers import (
    delete_consumer,
    list_consumers,
    pause_consumer,
    resume_consumer,
)
from streamkit.operating.rewind import RewindRefused, rewind
from streamkit.parked.redrive import discard, redrive
from streamkit.settings import Settings
from streamkit.testing import Harness, every_crash, every_freeze

SETTINGS = Settings(poll_ceiling=5, heartbeat=10, lease=30, list_interval=20, look_interval=20)
PATIENT = Policy(attempts=1, retry_seconds=50_000, retry_seconds_max=50_000, breaker=False)
LEASE = 30.0


class Thing(Entity, pk="THING#{name}", sk="THING"):
    name: str
    n: int = 0


class Note(Entity, pk="NOTE#{name}", sk="NOTE"):
    name: str
    n: int = 0
    times: int = 0


class Things(Aggregate[Thing], pk="THINGS", sk="THINGS"):
    things: Annotated[int, Count()] = 0

    @classmethod
    def group(cls, _: Thing) -> Key["Things"]:
        return cls.key()


DOWN: Counter[str] = Counter()
"""Names whose changes fail, for the moment."""


def copying():
    app = App("copying", table="Things", entities=[Note], policy=PATIENT)

    @app.on
    def notes(change: Inserted[Thing] | Modified[Thing]) -> Put[Note]:
        if DOWN[change.new.name]:
            raise OSError("down")
        return Put(Note(name=change.new.name, n=change.new.n))

    return app


def counting():
    app = App("counting", table="Things", entities=[Note], policy=PATIENT)
    app.aggregate(Things)

    @app.on
    def times(change: Inserted[Thing] | Modified[Thing]) -> Add[Note]:
        if DOWN[change.new.name]:
            raise OSError("down")
        return Add(Note.key(name=change.new.name), times=1)

    return app


def of(make_app):
    def make():
        DOWN.clear()
        return Harness(make_app(), shards=1, settings=SETTINGS)

    return make


def noted(harness):
    return {note.name: note.n for note in harness.scan(Note)}


def times(harness):
    return {note.name: note.times for note in harness.scan(Note)}


def consumer(harness):
    return harness._run(list_consumers(harness._aws, harness.app.table))


# -- one scenario for each command -----------------------------------------------------------------


def paused_and_resumed(harness):
    harness.put(Thing(name="x", n=1))
    harness.settle()
    app, clock = harness.app, harness.world.clock
    harness.operate(lambda aws: pause_consumer(app, aws, clock=clock))
    harness.advance("30s")
    harness.put(Thing(name="x", n=2))
    harness.advance("60s")
    assert noted(harness) == {"x": 1}
    harness.operate(lambda aws: resume_consumer(app, aws))
    harness.advance("60s")
    harness.settle()
    assert noted(harness) == {"x": 2}
    assert not consumer(harness)[0].paused


def rewound(harness):
    for n in (1, 2):
        harness.put(Thing(name="x", n=n))
        harness.settle()
    harness.stop()
    harness.delete(Note.key(name="x"))
    app, clock = harness.app, harness.world.clock

    async def rewinds(aws):
        for _ in range(2):
            with suppress(RewindRefused):  # the one that was frozen was at it
                return await rewind(app, aws, None, lease_seconds=LEASE, clock=clock)
            await anyio.sleep(5)
        return await rewind(app, aws, None, lease_seconds=LEASE, clock=clock)

    harness.operate(rewinds)
    harness.put(Thing(name="x", n=3))
    harness.settle()
    assert noted(harness) == {"x": 3}


def deleted(harness):
    harness.put(Thing(name="x", n=1))
    harness.settle()
    DOWN["x"] = 1
    harness.put(Thing(name="x", n=2))
    harness.settle()
    harness.stop()
    app, clock = harness.app, harness.world.clock

    async def delete(aws):
        with suppress(ConfigurationError):  # another one has deleted it
            await delete_consumer(aws, app.table, app.name, lease_seconds=LEASE, clock=clock)

    harness.operate(delete)
    assert consumer(harness) == []
    control = [i for i in harness.world.items(app.table) if i["PK"]["S"].startswith("_sk#")]
    assert {item["PK"]["S"] for item in control} <= {"_sk##consumers#index"}
    DOWN.clear()
    harness.put(Thing(name="y", n=3))
    harness.settle()
    assert times(harness) == {"x": 3, "y": 1}, "x 1, and all of it again for the new consumer"


def redriven(harness):
    DOWN["x"] = 1
    for n in (1, 2, 3):
        harness.put(Thing(name="x", n=n))
    harness.settle()
    DOWN.clear()
    app, clock = harness.app, harness.world.clock
    harness.operate(lambda aws: redrive(app, aws, clock=clock))
    assert times(harness) == {"x": 3}
    assert not harness.parked()
    harness.put(Thing(name="x", n=4))
    harness.settle()
    assert times(harness) == {"x": 4}


def dropped(harness):
    DOWN["x"] = 1
    for n in (1, 2, 3):
        harness.put(Thing(name="x", n=n))
    harness.settle()
    app, clock = harness.app, harness.world.clock
    harness.operate(lambda aws: discard(app, aws, whole=True, clock=clock))
    assert not harness.parked()
    harness.put(Thing(name="x", n=4))
    harness.settle()
    DOWN.clear()
    harness.operate(lambda aws: redrive(app, aws, clock=clock))
    assert times(harness) == {"x": 1}


def rebuilt(harness):
    harness.put(*(Thing(name=name) for name in "abc"))
    harness.settle()
    harness.put(Things(things=77))
    app, clock = harness.app, harness.world.clock

    async def rebuild(aws):
        done = await rebuild_aggregate(
            app, aws, "Things", segments=1, lease_seconds=LEASE, clock=clock
        )
        assert done.done

    harness.operate(rebuild)
    assert harness.get(Things.key()).things == 3
    harness.put(Thing(name="d"))
    harness.delete(Thing.key(name="a"))
    harness.settle()
    assert harness.get(Things.key()).things == 3
    (facts,) = harness._run(list_aggregates(app, harness._aws))
    assert facts.state == "live"


COMMANDS = {
    "pause and resume": (paused_and_resumed, copying),
    "rewind": (rewound, copying),
    "consumers delete": (deleted, counting),
    "parked redrive": (redriven, counting),
    "parked drop": (dropped, counting),
    "aggregate rebuild": (rebuilt, counting),
}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_killed_at_any_call_is_finished_by_the_same_one(command):
    scenario, make_app = COMMANDS[command]
    assert list(every_crash(scenario, of(make_app), part="operation", sample=6))


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_frozen_at_any_call_does_no_harm_when_it_thaws(command):
    scenario, make_app = COMMANDS[command]
    assert list(every_freeze(scenario, of(make_app), part="operation", sample=10))


@pytest.mark.parametrize("late", ["pause", "resume"])
def test_a_pause_or_resume_that_arrives_after_the_next_command_does_nothing(late):
    make = of(copying)
    with make() as harness:
        paused_and_resumed(harness)
        pauses, resumes = harness.operations.writes
    with make() as harness:
        harness.freeze(at=pauses if late == "pause" else resumes, thaw="end", part="operation")
        paused_and_resumed(harness)
        if late == "resume":
            app, clock = harness.app, harness.world.clock
            harness.operate(lambda aws: pause_consumer(app, aws, clock=clock))
        harness.outlive()
        assert bool(consumer(harness)[0].paused) == (late == "resume")
