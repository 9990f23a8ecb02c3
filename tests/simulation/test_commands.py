"""Every command that changes something: killed at any call, or frozen and thawed, it does no harm.

A command is begun again where it was stopped, as a person does. What it does while it thaws, after
its lease, with the next step, or after the end, changes neither an item nor what the commands after
it have said: `every_freeze` compares the items, the scenarios the rest.
"""

from collections import Counter
from contextlib import suppress
from functools import partial
from typing import Annotated

import anyio
import pytest
from typer.main import get_command

from streamkit import Add, Aggregate, App, Count, Entity, Inserted, Key, Modified, Policy, Put
from streamkit.cli.program import program
from streamkit.errors import ConfigurationError
from streamkit.kinds.aggregate.facts import list_aggregates
from streamkit.kinds.aggregate.rebuild import rebuild_aggregate
from streamkit.operate import fan_outs
from streamkit.operate.consumers import (
    list_consumers,
    pause_consumer,
    pause_operation,
    resume_consumer,
)
from streamkit.operate.deletion import delete_consumer
from streamkit.operate.fan_outs import cancel_fan_out
from streamkit.operate.redrive import discard, redrive
from streamkit.operate.rewind import RewindRefused, rewind
from streamkit.settings import Settings
from streamkit.testing import every_crash, every_freeze
from streamkit.testing.every import Stop
from tests.rigs import Rig
from tests.simulation import (
    migrating,
    operators,
    test_join_deaths,
    test_kcl_import,
    test_replay,
    test_replay_to_end,
    test_restore,
    test_shared_verification,
    test_stops,
)

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


def counting_by_migration():
    app = counting()
    app.migration("0001", Things, mode="aggregate")
    return app


def of(make_app):
    def make():
        DOWN.clear()
        return Rig(make_app(), shards=1, settings=SETTINGS)

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


def paused_rebuild(harness):
    """A rebuild is paused when it has just begun; a process that joins it waits."""
    harness.put(*(Thing(name=name) for name in "abc"))
    harness.settle()
    harness.put(Things(things=77))
    app, clock = harness.app, harness.world.clock

    def build(seconds):
        async def some(aws):
            stopping = anyio.Event()
            async with anyio.create_task_group() as group:

                async def stop():
                    await anyio.sleep(seconds)
                    stopping.set()

                group.start_soon(stop)
                done = await rebuild_aggregate(
                    app, aws, "Things", segments=1, stopping=stopping, clock=clock
                )
                group.cancel_scope.cancel()
            return done

        return harness._run(some(harness._aws))

    assert build(0).state == "emptying"
    pausing = partial(pause_operation, app, operation="rebuild Things", clock=clock)
    harness.operate(pausing)
    assert build(60).state == "emptying"
    harness.operate(partial(pausing, paused=False))
    harness.advance("60s")
    assert build(600).done
    harness.settle()
    assert harness.get(Things.key()).things == 3


class Items:
    """How the scenarios of moves write an item, and what is counted of it."""

    def __init__(self, harness):
        self.harness, self.n = harness, 0
        DOWN["poison"] = 1

    def put(self, name):
        self.n += 1
        self.harness.put(Thing(name=name, n=self.n))

    def counted(self):
        return times(self.harness)

    def heal(self):
        DOWN.clear()


COMMANDS = {
    "consumers pause, consumers resume": (paused_and_resumed, copying),
    "rewind": (rewound, copying),
    "consumers delete": (deleted, counting),
    "consumers to-lambda": (lambda h: operators.moved_to_lambda(h, Items(h)), counting),
    "consumers to-workers": (lambda h: operators.moved_to_workers(h, Items(h)), counting),
    "parked redrive": (redriven, counting),
    "parked discard": (dropped, counting),
    "aggregate rebuild": (rebuilt, counting),
    "aggregate pause, aggregate resume": (paused_rebuild, counting),
    "fan-outs cancel": (
        lambda h: operators.cancelled(h, DOWN),
        lambda: operators.telling(PATIENT, DOWN),
    ),
    "migrate begin, migrate pause, migrate resume, migrate limit,"
    " migrate switch, migrate contract": (
        operators.migrated,
        migrating.rekey,
    ),
    "migrate join": (operators.joined, migrating.in_place),
    "migrate apply": (lambda h: operators.applied(h, Thing, Things), counting_by_migration),
    "migrate rollback": (operators.rolled_back, migrating.in_place),
    "migrate stamp": (operators.stamped, migrating.in_place),
    "migrate errors waive, migrate errors retry": (
        lambda h: operators.mended(h, DOWN),
        lambda: operators.failing(DOWN),
    ),
}
ELSEWHERE = {
    "archive restore": test_restore,
    "replay": (test_replay, test_replay_to_end),
    "consumers import-kcl": test_kcl_import,
    "consumers join": test_join_deaths,
    "migrate verify": test_shared_verification,
    "worker": test_stops,
}
"""Commands that write, and the tests in which they are killed and stand still at their calls."""
READING = """
    aggregate list, aggregate verify, archive verify, check, consumers list, cost, describe, explain, fan-outs list, iam,
    lambda filter, migrate check, migrate errors list, migrate errors show, migrate history,
    migrate new, migrate plan, migrate squash, migrate status, parked list, parked show, status
"""
"""They write nothing into a table. `demo`, `dev` and `local` have no table but their own, `new` has none."""


def commands(found, path=()):
    if not hasattr(found, "commands"):
        yield " ".join(path)
        return
    for name, below in found.commands.items():
        yield from commands(below, (*path, name))


def named(*texts):
    return {name.strip() for text in texts for name in text.split(",")}


def test_every_command_that_writes_is_killed_and_frozen_at_its_calls():
    """A new command belongs into one of these lists, and if it writes, it needs a scenario."""
    known = named(*COMMANDS) | ELSEWHERE.keys() | named(READING) | {"demo", "dev", "local", "new"}
    assert set(commands(get_command(program))) == known


def sample_of(command, most):
    """Return how many stops are tried: a migration takes its time, and so does a move."""
    return most // 2 if command.startswith(("migrate", "consumers to")) else most


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_killed_at_any_call_is_finished_by_the_same_one(command):
    scenario, make_app = COMMANDS[command]
    assert list(every_crash(scenario, of(make_app), part="operation", sample=sample_of(command, 2)))


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_frozen_at_any_call_does_no_harm_when_it_thaws(command):
    scenario, make_app = COMMANDS[command]
    assert list(
        every_freeze(scenario, of(make_app), part="operation", sample=sample_of(command, 10))
    )


@pytest.mark.parametrize("call", range(3, 9))
def test_a_deletion_that_stood_still_about_its_look_for_workers_deletes_no_later_consumer(call):
    Stop("operation", call, "before", "lease").play(deleted, of(counting))


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


def test_an_entry_whose_consumer_is_gone_is_deleted():
    with of(counting)() as harness:
        harness.put(Thing(name="x", n=1))
        harness.settle()
        harness.stop()
        app, world = harness.app, harness.world
        index = [i for i in world.items(app.table) if i["PK"]["S"] == "_sk##consumers#index"]

        async def delete(aws):
            await delete_consumer(aws, app.table, app.name, lease_seconds=LEASE, clock=world.clock)

        harness.operate(delete)
        for item in index:
            world.engine.call("dynamodb", "PutItem", {"TableName": app.table, "Item": item})
        harness.operate(delete)
        assert consumer(harness) == []
        with pytest.raises(ConfigurationError):  # there is none any more
            harness.operate(delete)


def test_a_cancel_that_was_overtaken_leaves_the_next_fan_out_of_its_item_alone(monkeypatch):
    """Another one cancels between its look and its write."""
    look = fan_outs.list_parked
    overtaken = []

    async def faster(store, queues):
        found = await look(store, queues)
        if not overtaken:
            overtaken.append(await harness_cancels())
        return found

    monkeypatch.setattr(fan_outs, "list_parked", faster)
    with of(lambda: operators.telling(PATIENT, DOWN))() as harness:
        app, clock = harness.app, harness.world.clock
        DOWN["fans"] = 1
        harness.put(operators.Fan(fan="ann"))
        for n in (1, 2):
            harness.put(operators.Deal(deal="d", n=n))
        harness.settle()
        (queue,) = {parked.queue for parked in harness.parked()}

        async def harness_cancels():
            overtaken.append("begun")
            return await cancel_fan_out(app, harness._aws, queue, clock=clock)

        assert not harness.operate(lambda aws: cancel_fan_out(app, aws, queue, clock=clock))
        assert overtaken == ["begun", True]
        DOWN.clear()
        harness.redrive()
        harness.settle()
        assert [message.n for message in harness.scan(operators.Message)] == [2]


LIMITS = [operators.step("set_limit", operators.commands.Limit(None, n)) for n in (50.0, 10.0)]
PAUSE, RESUME = operators.step("pause"), operators.step("resume")
LATE = {
    "pause": ([PAUSE, RESUME], 0, lambda state: state.desired == "run"),
    "resume": ([PAUSE, RESUME, PAUSE], 1, lambda state: state.desired == "pause"),
    "limit": (LIMITS, 0, lambda state: state.max_writes == 10.0),
}


def say(harness, command):
    """Give a command once, a second after the one before: theirs are of different moments."""

    async def work(aws):
        await anyio.sleep(1)
        with suppress(ConfigurationError):
            await command(harness.app, aws, clock=harness.world.clock)

    harness.operate(work)


@pytest.mark.parametrize("late", LATE)
def test_a_command_of_a_migration_that_arrives_after_the_next_one_does_nothing(late):
    given, number, holds = LATE[late]
    with of(migrating.in_place)() as harness:
        for command in [operators.begin, *given]:
            say(harness, command)
        writes = harness.operations.writes
        assert len(writes) == 1 + len(given)
    with of(migrating.in_place)() as harness:
        harness.freeze(at=writes[1 + number], thaw="end", part="operation")
        for command in [operators.begin, *given]:
            say(harness, command)
        harness.outlive()
        assert holds(operators.state_of(harness))
