"""A result that fills its transaction to the last place, in every host and under every fence."""

import random

import anyio
import pytest

from streamkit import (
    Add,
    App,
    Check,
    Entity,
    Inserted,
    PoisonChange,
    Policy,
    Put,
    Query,
    Table,
    present,
)
from streamkit.aws_lambda.host import process_batch
from streamkit.core.parked.queues import list_parked
from streamkit.core.tables import open_store
from streamkit.operate.moves import move_to_workers
from streamkit.operate.redrive import redrive
from streamkit.testing.chance import repeatable
from streamkit.testing.loop import run_virtually
from tests.simulation.lambdas import Stream, environment_of, event, own_items, world_of
from tests.simulation.movers import run_functions

TABLE = "Shop"
MOST = 99
"""Items of a result: a transaction has 100 places, and the fence takes one."""


class Order(Entity, pk="ORDER#{order}", sk="ORDER#{order}"):
    order: str


class Tally(Entity, pk="TALLY#{order}", sk="TALLY#{item}"):
    order: str
    item: int
    times: int = 0
    text: str = ""


class User(Entity, pk="USER", sk="USER#{user}"):
    user: int


def adds(order, count):
    return [Add(Tally.key(order=order, item=item), times=1) for item in range(count)]


def with_check(order, count):
    """The condition that an item is there takes a place, as a write does."""
    there = Check(Order.key(order=order), present)
    return [there, *adds(order, count - 1)]


def large(order, count):
    """Results of 3.8 MB: a transaction holds 4 MB."""
    return [Put(Tally(order=order, item=item, times=1, text="x" * 380_000)) for item in range(10)]


RESULTS = {"writes": (adds, 99), "check": (with_check, 98), "bytes": (large, 10)}


def make_app(result, *, failing=(), policy=None, reads=0):
    """Each order leads to a result of the most items that there may be."""
    app = App("shop", table=TABLE, entities=[Tally], policy=policy)
    if reads:

        @app.on
        async def full(change: Inserted[Order], table: Table) -> list[Add[Tally]]:
            await table.get(Order.key(order=change.new.order))
            return adds(change.new.order, reads)

        return app

    @app.on
    def full(change: Inserted[Order]) -> list[Add[Tally] | Check[Order] | Put[Tally]]:
        if "full" in failing:
            raise PoisonChange("not yet")
        return result(change.new.order, MOST)

    return app


def put(world, order):
    key = {"S": f"ORDER#{order}"}
    item = {"PK": key, "SK": key, "order": {"S": order}}
    world.engine.call("dynamodb", "PutItem", {"TableName": TABLE, "Item": item})


def times(world, order="a"):
    items = world.items(TABLE)
    return [int(i["times"]["N"]) for i in items if i["PK"]["S"] == f"TALLY#{order}"]


async def in_workers(world, app):
    assert await world.run_worker(app)


async def in_functions(world, app):
    records = Stream(world, TABLE).traffic()
    async with environment_of(world, app) as environment:
        assert await process_batch(environment, event(records)) == {"batchItemFailures": []}


HOSTS = {"workers": in_workers, "functions": in_functions}


def trial(main):
    """Run a scenario, for an hour at most: what cannot be committed must not be tried for ever."""

    async def bounded():
        with anyio.fail_after(3600):
            await main()

    with repeatable(1):
        run_virtually(bounded)


@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize("result", RESULTS)
def test_the_largest_result_is_applied_in_each_host_and_from_its_queue(host, result):
    async def main():
        failing = {"full"}
        make, count = RESULTS[result]
        app = make_app(make, failing=failing)
        world = world_of(app)
        put(world, "a")
        await HOSTS[host](world, app)
        failing.clear()
        async with world.clients() as aws:
            (report,) = await redrive(app, aws, clock=world.clock, rng=random.Random(1))
        assert (report.done, report.empty) == (1, True)
        assert times(world) == [1] * count
        assert not own_items(world, TABLE, "parked")
        put(world, "b")
        await HOSTS[host](world, app)
        assert times(world, "b") == [1] * count
        assert not own_items(world, TABLE, "parked")

    trial(main)


@pytest.mark.parametrize("host", HOSTS)
def test_what_a_handler_reads_takes_a_place_of_its_own(host):
    async def main():
        app = make_app(None, reads=MOST - 1)
        world = world_of(app)
        put(world, "a")
        await HOSTS[host](world, app)
        assert times(world) == [1] * (MOST - 1)

    trial(main)


TOO_MUCH = {
    "writes": {"result": lambda order, count: adds(order, count + 1)},
    "check": {"result": lambda order, count: with_check(order, count + 1)},
    "read": {"result": None, "reads": MOST},
    "bytes": {"result": lambda order, count: [*large(order, count), *large(f"{order}2", count)]},
}


@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize("result", TOO_MUCH)
def test_one_place_more_is_parked_with_a_sentence_and_holds_up_nothing(host, result):
    async def main():
        app = make_app(**TOO_MUCH[result], policy=Policy(attempts=1))
        world = world_of(app)
        put(world, "a")
        await HOSTS[host](world, app)
        async with world.clients() as aws:
            (parked,) = await list_parked(await open_store(app, aws))
        assert parked.error == "ValueError"
        assert "does not fit in one transaction" in parked.detail
        assert times(world) == []

    trial(main)


class Wide(Entity, pk="WIDE", sk="WIDE"):
    """Its older shapes may have any attributes, so that a read of it asks for all of them."""


@Wide.upcast
def older(item):
    return item


@pytest.mark.parametrize("host", HOSTS)
def test_a_read_that_cannot_be_checked_is_parked_although_it_leads_to_no_effect(host):
    """DynamoDB takes a condition of 4 KB: this one is longer, and the only part of its commit."""

    async def main():
        app = App("shop", table=TABLE, entities=[Tally])

        @app.on
        async def look(change: Inserted[Order], table: Table) -> None:
            if change.new.order == "a":
                await table.get(Wide.key())

        @app.on
        def count(change: Inserted[Order]) -> list[Add[Tally]]:
            return adds(change.new.order, 1)

        world = world_of(app)
        names = {f"attribute{number}": {"S": "x"} for number in range(280)}
        item = {"PK": {"S": "WIDE"}, "SK": {"S": "WIDE"}, **names}
        world.engine.call("dynamodb", "PutItem", {"TableName": TABLE, "Item": item})
        put(world, "a")
        put(world, "b")
        await HOSTS[host](world, app)
        async with world.clients() as aws:
            (parked,) = await list_parked(await open_store(app, aws))
        assert (parked.handler, parked.error) == ("look", "ValidationException")
        assert [times(world, order) for order in "ab"] == [[1], [1]]

    trial(main)


@pytest.mark.parametrize("reads", [0, MOST - 1])
@pytest.mark.parametrize("on_failure", ["park", "block", "skip"])
def test_a_result_that_has_no_room_beside_a_moves_token_is_parked_and_applied_after_the_move(
    on_failure, reads
):
    async def main():
        app = make_app(adds, policy=Policy(on_failure=on_failure), reads=reads)
        count = reads or MOST
        world = world_of(app)
        put(world, "a")
        await run_functions(world, app)
        put(world, "b")
        async with world.clients() as aws:
            moved = await move_to_workers(app, aws, clock=world.clock)
            (parked,) = await list_parked(await open_store(app, aws))
        assert moved.host == "workers"
        assert parked.error == "TooLarge"
        assert "99 items" in parked.detail
        assert times(world, "b") == []
        put(world, "c")
        await in_workers(world, app)
        assert [times(world, order) for order in "abc"] == [[1] * count] * 3
        assert not own_items(world, TABLE, "parked")

    trial(main)


def fan_out_app(result, **options):
    app = App("shop", table=TABLE, entities=[Tally])

    def users(change: Inserted[Order]) -> Query[User]:
        return User.query()

    @app.fan_out(users, **options)
    async def tell(change: Inserted[Order], to: User, table: Table) -> list[Add[Tally]]:
        await table.get(Order.key(order=f"{change.new.order}{to.user}"))
        return adds(f"{change.new.order}{to.user}", result)

    return app


def with_users(app, count):
    world = world_of(app)
    for user in range(count):
        item = {"PK": {"S": "USER"}, "SK": {"S": f"USER#{user}"}, "user": {"N": str(user)}}
        world.engine.call("dynamodb", "PutItem", {"TableName": TABLE, "Item": item})
    return world


def test_a_recipients_largest_result_has_room_beside_the_fan_outs_place():
    async def main():
        app = fan_out_app(MOST - 1, inline=0)
        world = with_users(app, 3)
        put(world, "a")
        await in_workers(world, app)
        assert [times(world, f"a{user}") for user in range(3)] == [[1] * (MOST - 1)] * 3

    trial(main)


def test_a_fan_out_that_has_no_room_beside_a_moves_token_goes_on_in_its_queue():
    async def main():
        app = fan_out_app(2)
        world = with_users(app, MOST // 3)
        put(world, "a")
        await run_functions(world, app)
        put(world, "b")
        async with world.clients() as aws:
            await move_to_workers(app, aws, clock=world.clock)
        (parked,) = own_items(world, TABLE, "parked")
        assert "_sk_error" not in parked, "it has not failed"
        await in_workers(world, app)
        assert [times(world, f"{o}{user}") for o in "ab" for user in range(33)] == [[1] * 2] * 66

    trial(main)
