"""Whoever wants to break the engine: odd mixtures of refusals, races, zombies and late calls.

Each test has a small app of its own, and looks at the table or at the engine's log of calls.
"""

import asyncio
from collections import defaultdict
from decimal import Decimal
from typing import Annotated

import anyio
import msgspec
import pytest

from streamkit import (
    Add,
    Aggregate,
    App,
    Attr,
    Avg,
    Count,
    Entity,
    Inserted,
    Key,
    Modified,
    Put,
    Set,
    Table,
    absent,
    present,
)
from streamkit.errors import RetentionLost
from streamkit.settings import Settings
from streamkit.testing.loop import EPOCH, run_virtually
from streamkit.testing.world import Process, World
from tests.simulation.shop import TABLE, create_table


class Thing(Entity, pk="THING#{name}", sk="THING#{name}"):
    name: str
    n: int = 0


class Note(Entity, pk="NOTE#{name}", sk="NOTE#{name}"):
    name: str
    n: Decimal = Decimal(0)
    text: str = ""


def make_app():
    return App("adversary", table=TABLE, entities=[Note])


def make_world(seed=0, *, shards=1, **settings):
    world = World.create(seed, shards=shards)
    world.control.configure(**settings)
    create_table(world)
    return world


def key(kind, name):
    return {"PK": {"S": f"{kind}#{name}"}, "SK": {"S": f"{kind}#{name}"}}


def put(world, name, kind="THING", **numbers):
    attributes = {name: {"N": str(number)} for name, number in numbers.items()}
    item = {**key(kind, name), "name": {"S": name}, **attributes}
    status, _ = world.engine.call("dynamodb", "PutItem", {"TableName": TABLE, "Item": item})
    assert status == 200


def delete(world, name, kind="NOTE"):
    request = {"TableName": TABLE, "Key": key(kind, name)}
    assert world.engine.call("dynamodb", "DeleteItem", request)[0] == 200


def notes(world):
    found = {
        item["PK"]["S"].removeprefix("NOTE#"): item
        for item in world.items(TABLE)
        if item["PK"]["S"].startswith("NOTE#")
    }
    return {name: int(item.get("n", {"N": "0"})["N"]) for name, item in found.items()}


def control_items(world, kind):
    return [item for item in world.items(TABLE) if item.get("_sk_kind") == {"S": kind}]


def commits(world):
    """Every accepted transaction that moved a cursor: its calls in the engine's order."""
    return [
        call
        for call in world.calls
        if call.operation == "TransactWriteItems" and call.status == 200
    ]


# -- refusals --------------------------------------------------------------------------------------


def test_two_refused_effects_of_one_result_park_it_once():
    async def scenario():
        app = make_app()

        @app.on
        def both(change: Inserted[Thing]) -> list[Put]:
            return [Put(Note(name=n)).only_if(absent) for n in "ab"]

        world = make_world()
        put(world, "a", "NOTE")
        put(world, "b", "NOTE")
        put(world, "x")
        await world.run_worker(app)
        assert len(control_items(world, "parked")) == 1

    run_virtually(scenario)


def test_two_refused_effects_of_one_result_skip_it():
    async def scenario():
        app = make_app()

        @app.on
        def both(change: Inserted[Thing]) -> list[Put]:
            return [Put(Note(name=n)).only_if(absent, otherwise="skip") for n in "abc"]

        world = make_world()
        put(world, "a", "NOTE", n=5)
        put(world, "b", "NOTE", n=5)
        put(world, "x")
        await world.run_worker(app)
        assert notes(world) == {"a": 5, "b": 5}
        assert not control_items(world, "parked")

    run_virtually(scenario)


def test_an_omitted_effect_of_one_run_is_not_left_out_of_the_next():
    async def scenario():
        app, reads = make_app(), []
        world = make_world()

        @app.on
        async def writes(change: Inserted[Thing], table: Table) -> list[Put | Set]:
            source = await table.get(Note.key(name="source"))
            reads.append(source.n)
            if len(reads) == 1:
                put(world, "source", "NOTE", n=2)  # so that what was read is stale
                first = Put(Note(name="taken")).only_if(absent, otherwise="omit")
                return [first, Set(Note.key(name="copy"), n=source.n)]
            return [Set(Note.key(name="copy"), n=source.n)]

        put(world, "source", "NOTE", n=1)
        put(world, "taken", "NOTE", n=9)
        put(world, "x")
        await world.run_worker(app)
        assert notes(world) == {"source": 2, "taken": 9, "copy": 2}

    run_virtually(scenario)


def test_a_reader_of_an_omitted_effect_runs_again():
    async def scenario():
        app = make_app()

        @app.on
        def writes(change: Inserted[Thing]) -> list[Add | Set]:
            note = Note.key(name="sum")
            add = Add(note, n=1).only_if(Attr("open").exists(), otherwise="omit")
            return [add, Set(note, text="seen")]

        @app.on
        async def copies(change: Modified[Thing], table: Table) -> Set[Note]:
            found = await table.get(Note.key(name="sum"))
            return Set(Note.key(name="copy"), n=found.n)

        world = make_world()
        put(world, "sum", "NOTE", n=10)
        put(world, "x")
        put(world, "x", n=1)
        await world.run_worker(app)
        assert notes(world) == {"sum": 10, "copy": 10}

    run_virtually(scenario)


def test_a_stale_read_does_not_drop_an_effect_whose_condition_holds():
    async def scenario():
        app, runs = make_app(), []
        world = make_world()

        @app.on
        def marks(change: Inserted[Thing]) -> Set:
            return Set(Note.key(name="shared"), text="marked").only_if(present, otherwise="skip")

        @app.on
        async def copies(change: Modified[Thing], table: Table) -> Set[Note]:
            found = await table.get(Note.key(name="shared"))
            runs.append(found.n)
            if len(runs) == 1:
                put(world, "shared", "NOTE", n=2)
            return Set(Note.key(name="copy"), n=found.n)

        put(world, "shared", "NOTE", n=1)
        put(world, "x")
        put(world, "x", n=1)
        await world.run_worker(app)
        assert notes(world) == {"shared": 2, "copy": 2}
        (shared,) = [i for i in world.items(TABLE) if i["PK"] == {"S": "NOTE#shared"}]
        assert shared["text"] == {"S": "marked"}

    run_virtually(scenario)


def test_contention_follows_the_handlers_policy():
    async def scenario():
        app, runs = make_app(), []
        world = make_world()

        @app.on(on_failure="block")
        async def copies(change: Inserted[Thing], table: Table) -> Set[Note]:
            found = await table.get(Note.key(name="source"))
            runs.append(found.n)
            if len(runs) < 12:
                put(world, "source", "NOTE", n=len(runs) + 1)
            return Set(Note.key(name="copy"), n=found.n)

        put(world, "source", "NOTE", n=1)
        put(world, "x")
        await world.run_worker(app)
        assert notes(world) == {"source": 12, "copy": 12}
        assert not control_items(world, "parked")

    run_virtually(scenario)


def test_a_pure_handler_that_blocks_holds_up_its_shard():
    async def scenario():
        app, runs = make_app(), []

        @app.on(on_failure="block")
        def fails(change: Inserted[Thing]) -> Put[Note]:
            runs.append(change)
            if len(runs) < 8:
                raise ValueError("not yet")
            return Put(Note(name="done"))

        world = make_world()
        put(world, "x")
        await world.run_worker(app)
        assert notes(world) == {"done": 0}
        assert not control_items(world, "parked")

    run_virtually(scenario)


def test_a_condition_that_cannot_be_written_parks_its_change_alone():
    async def scenario():
        app = make_app()

        @app.on
        def writes(change: Inserted[Thing]) -> Put[Note]:
            note = Put(Note(name=change.new.name))
            return note.only_if(Attr("n") == 3) if change.new.name == "bad" else note

        world = make_world()
        for name in ("a", "bad", "b"):
            put(world, name)
        await world.run_worker(app)
        assert notes(world) == {"a": 0, "b": 0}
        assert len(control_items(world, "parked")) == 1

    run_virtually(scenario)


def test_sums_that_do_not_fit_together_are_committed_one_by_one():
    async def scenario():
        app = make_app()

        @app.on
        def adds(change: Inserted[Thing]) -> Add[Note]:
            amount = Decimal("1e30") if change.new.name == "big" else Decimal("1e-30")
            return Add(Note.key(name="sum"), n=amount)

        world = make_world()
        for name in ("big", "small", "a"):
            put(world, name)
        await world.run_worker(app)
        (total,) = [i for i in world.items(TABLE) if i["PK"] == {"S": "NOTE#sum"}]
        assert total["n"] == {"N": "1" + "0" * 30}
        assert len(control_items(world, "parked")) == 2

    run_virtually(scenario)
