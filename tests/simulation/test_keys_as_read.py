"""An item whose key and fields disagree is changed where it is, by every kind of handler."""

import pytest

from streamkit import (
    Add,
    App,
    Check,
    Delete,
    Entity,
    Inserted,
    Key,
    Modified,
    Put,
    Query,
    Set,
    Table,
    present,
)
from streamkit.aws_lambda.host import process_batch
from streamkit.testing.harness import table_of
from streamkit.testing.loop import run_virtually
from streamkit.testing.world import World
from tests.rigs import Rig
from tests.simulation.lambdas import Stream, environment_of, event


class City(Entity, pk="STATE#{state}", sk="CITY#{city}"):
    state: str
    city: str
    note: str = ""
    visits: int = 0


class State(Entity, pk="STATE#{state}", sk="STATE"):
    state: str
    news: str = ""


STORED = {"PK": {"S": "STATE#CA"}, "SK": {"S": "CITY#LOS_ANGELES"}}
FIELDS = {"state": {"S": "CA"}, "city": {"S": "Los Angeles"}}


def cities_of(state: State) -> Query[City]:
    return City.query(state=state.state)


def on(app):
    @app.on(cycle="bounded")
    def note(change: Inserted[City]) -> Set[City]:
        return Set(change.new.item_key, note="done")


def put(app):
    @app.on(cycle="bounded")
    def note(change: Inserted[City]) -> Put[City] | Check[City]:
        return Put(change.new.model_copy(update={"note": "done"})).only_if(present)


def read(app):
    @app.on
    async def note(change: Inserted[State], table: Table) -> list[Set[City] | Add[City]]:
        found = [c async for c in table.query(City.query(state=change.new.state))]
        scanned = [c async for c in table.scan(City)]
        got = await table.get(found[0].item_key)
        assert got is not None
        return [Set(got.item_key, note="done"), *(Add(c.item_key, visits=1) for c in scanned)]


def fan_out(app):
    def cities(change: Inserted[State]) -> Query[City]:
        return cities_of(change.new)

    @app.fan_out(cities)
    def note(change: Inserted[State], to: City) -> Set[City]:
        return Set(to.item_key, note="done")


def large_fan_out(app):
    def cities(change: Inserted[State]) -> Query[City]:
        return cities_of(change.new)

    @app.fan_out(cities, inline=0)
    def note(change: Inserted[State], to: City) -> Set[City]:
        return Set(to.item_key, note="done")


def mirror(app):
    @app.mirror(copies=cities_of, source=lambda city: State.key(state=city.state))
    def note(state: State, copy: City) -> Set[City]:
        return Set(copy.item_key, note=state.news)


KINDS = [on, put, read, fan_out, large_fan_out, mirror]


@pytest.mark.parametrize("declare", KINDS)
def test_the_item_that_was_read_is_the_one_that_is_written(declare):
    app = App("cities", table="Cities", entities=[City, State])
    declare(app)
    with Rig(app) as harness:
        wire = STORED | FIELDS
        harness.world.engine.call("dynamodb", "PutItem", {"TableName": "Cities", "Item": wire})
        harness.put(State(state="CA", news="done"))
        harness.settle()
        assert not harness.parked()
        (city,) = harness.scan(City)
        assert (city.note, city.city) == ("done", "Los Angeles")
        assert city.item_key == Key(City, "STATE#CA", "CITY#LOS_ANGELES")


def test_an_item_is_deleted_where_it_was_read():
    app = App("cities", table="Cities", entities=[City, State])

    @app.on
    def drop(change: Modified[City]) -> Delete[City]:
        return Delete(change.new.item_key)

    with Rig(app) as harness:
        for note in ("one", "two"):
            wire = STORED | FIELDS | {"note": {"S": note}}
            harness.world.engine.call("dynamodb", "PutItem", {"TableName": "Cities", "Item": wire})
        harness.settle()
        assert not harness.scan(City)


def test_a_function_writes_the_item_that_was_read():
    async def scenario():
        app = App("cities", table="Cities", entities=[City, State])
        on(app)
        world = World.create(1)
        world.engine.call("dynamodb", "CreateTable", table_of(app))
        stream = Stream(world, "Cities")
        world.engine.call("dynamodb", "PutItem", {"TableName": "Cities", "Item": STORED | FIELDS})
        async with environment_of(world, app) as environment:
            assert not (await process_batch(environment, event(stream.records()), 60.0))[
                "batchItemFailures"
            ]
        found = [i for i in world.items("Cities") if i["PK"]["S"] == "STATE#CA"]
        assert [(i["SK"]["S"], i["note"]["S"]) for i in found] == [("CITY#LOS_ANGELES", "done")]

    run_virtually(scenario)
