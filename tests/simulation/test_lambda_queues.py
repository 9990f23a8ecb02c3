"""A deployment of Lambda functions alone: what is in queues goes on by the scheduled function."""

from typing import Annotated

import anyio
import pytest

from streamkit import (
    Aggregate,
    App,
    Entity,
    Inserted,
    Key,
    Max,
    Modified,
    PoisonChange,
    Policy,
    Put,
    Query,
    Set,
    absent,
)
from streamkit.aws_lambda.host import process_batch
from streamkit.aws_lambda.maintenance import maintain
from streamkit.core.parked.queues import parked_queues
from streamkit.testing.chance import repeatable
from streamkit.testing.loop import run_virtually
from tests.simulation.lambdas import Stream, environment_of, event, own_items, world_of

TABLE = "Deals"


class Deal(Entity, pk="DEAL#{deal}", sk="DEAL#{deal}"):
    deal: str
    brand: str


class Watch(Entity, pk="WATCH#{brand}", sk="{username}"):
    brand: str
    username: str


class Message(Entity, pk="MESSAGE#{username}", sk="{deal}"):
    username: str
    deal: str


class Copy(Entity, pk="COPY#{deal}", sk="{number}"):
    deal: str
    number: str
    brand: str = "old"


def fan_out_app(**options):
    app = App("deals", table=TABLE, entities=[Message])

    def watchers(change: Inserted[Deal]) -> Query[Watch]:
        return Watch.query(brand=change.new.brand)

    @app.fan_out(watchers, **options)
    async def notify(change: Inserted[Deal], to: Watch) -> Put[Message]:
        message = Message(username=to.username, deal=change.new.deal)
        return Put(message).only_if(absent)  # parks the recipient if it is served twice

    return app


def put(world, entity):
    spec = type(entity).__name__.upper()
    values = {name: {"S": value} for name, value in entity.model_dump().items()}
    key = entity.item_key
    item = {"PK": {"S": key.pk}, "SK": {"S": key.sk}, **values}
    status, body = world.engine.call("dynamodb", "PutItem", {"TableName": TABLE, "Item": item})
    assert status == 200, (spec, body)


def begin_with(world, prefix):
    return [item for item in world.items(TABLE) if item["PK"]["S"].startswith(prefix)]


def simulated(main):
    with repeatable(1):
        return run_virtually(main)


async def deliver(environment, stream):
    response = await process_batch(environment, event(stream.traffic()))
    assert response == {"batchItemFailures": []}


def test_a_large_audience_is_served_over_several_runs_each_within_its_time():
    async def main():
        app = fan_out_app(rate=50)
        world = world_of(app)
        for number in range(600):
            put(world, Watch(brand="x", username=f"u{number:03}"))
        put(world, Deal(deal="d1", brand="x"))
        stream, served = Stream(world, TABLE), []
        async with environment_of(world, app) as environment:
            await deliver(environment, stream)
            while await parked_queues(environment.store):
                began = anyio.current_time()
                counts = await maintain(environment, 3)
                assert anyio.current_time() - began <= 3
                served.append(len(begin_with(world, "MESSAGE#")))
                await anyio.sleep(57)
                assert len(served) < 9
        assert counts == {"queues": 1, "stuck": 0, "done": 1, "failed": 0}
        assert len(served) >= 3
        assert served == sorted(set(served))
        assert served[-1] == 600

    simulated(main)


def test_a_slow_fan_out_waits_between_its_recipients_instead_of_asking():
    async def main():
        app = fan_out_app(rate=0.1, inline=1)
        world = world_of(app)
        for number in range(4):
            put(world, Watch(brand="x", username=f"u{number}"))
        put(world, Deal(deal="d1", brand="x"))
        async with environment_of(world, app) as environment:
            await deliver(environment, Stream(world, TABLE))
            before = len(world.calls)
            await maintain(environment, 60)
            assert len(world.calls) - before < 60
        assert len(begin_with(world, "MESSAGE#")) == 4

    simulated(main)


def test_every_queue_that_one_batch_begins_is_found_again():
    async def main():
        app = fan_out_app(inline=1)
        world = world_of(app)
        for brand in range(110):
            put(world, Watch(brand=f"b{brand}", username="ann"))
            put(world, Watch(brand=f"b{brand}", username="bob"))
            put(world, Deal(deal=f"d{brand}", brand=f"b{brand}"))
        async with environment_of(world, app) as environment:
            await deliver(environment, Stream(world, TABLE))
            assert len(await parked_queues(environment.store)) == 110
            assert (await maintain(environment))["done"] == 110
            assert await parked_queues(environment.store) == []
        assert len(begin_with(world, "MESSAGE#")) == 220
        chunks = own_items(world, TABLE, "holds")
        assert max(len(c.get("_sk_lanes", {"SS": []})["SS"]) for c in chunks) == 0

    simulated(main)


def test_parked_changes_heal_in_order_and_their_items_flow_again():
    async def main():
        app = App("deals", table=TABLE, policy=Policy(attempts=1))
        down, seen = [True], []

        @app.on
        async def follow(change: Inserted[Deal] | Modified[Deal]) -> Set[Copy]:
            if down[0]:
                raise OSError("down")
            seen.append(change.new.brand)
            return Set(Copy.key(deal=change.new.deal, number="0"), brand=change.new.brand)

        world, stream = world_of(app), None
        stream = Stream(world, TABLE)
        async with environment_of(world, app) as environment:
            for brand in ("a", "b"):
                put(world, Deal(deal="d1", brand=brand))
            await deliver(environment, stream)
            assert (await maintain(environment))["done"] == 0  # not due yet
            await anyio.sleep(10)
            assert (await maintain(environment))["failed"] == 1
            down[0] = False
            put(world, Deal(deal="d1", brand="c"))
            await deliver(environment, stream)
            assert seen == []
            await anyio.sleep(60)
            assert await maintain(environment) == {"queues": 1, "stuck": 0, "done": 3, "failed": 0}
            put(world, Deal(deal="d1", brand="d"))
            await deliver(environment, stream)
        assert seen == ["a", "b", "c", "d"]
        (mark,) = own_items(world, TABLE, "mark")
        assert "_sk_lanes" not in mark

    simulated(main)


@pytest.mark.parametrize("begins", [0, 1])
def test_what_another_invocation_parks_meanwhile_is_not_overtaken(begins):
    """Both see an item whose first change is not done; the other one fails with it, and is first."""

    async def main():
        app = App("deals", table=TABLE, policy=Policy(attempts=1))
        down = [False]

        @app.on
        async def follow(change: Inserted[Deal] | Modified[Deal]) -> Set[Copy]:
            if down[0]:
                raise OSError("down")
            return Set(Copy.key(deal=change.new.deal, number="0"), brand=change.new.brand)

        world = world_of(app)
        for brand in ("a", "b"):
            put(world, Deal(deal="d1", brand=brand))
        records = Stream(world, TABLE).traffic()
        async with environment_of(world, app) as environment:
            transact = environment.aws.dynamodb.transact_write_items

            async def overtaken(**request):
                environment.aws.dynamodb.transact_write_items = transact
                down[0] = True
                await process_batch(environment, event(records[:1]))
                down[0] = False
                return await transact(**request)

            environment.aws.dynamodb.transact_write_items = overtaken
            assert await process_batch(environment, event(records[begins:])) == {
                "batchItemFailures": []
            }
            assert begin_with(world, "COPY#") == []
            assert len(own_items(world, TABLE, "parked")) == 2
            await anyio.sleep(10)
            assert (await maintain(environment))["done"] == 2
        assert [copy["brand"]["S"] for copy in begin_with(world, "COPY#")] == ["b"]

    simulated(main)


def test_stuck_and_broken_queues_stop_no_other_one():
    async def main():
        app = App("deals", table=TABLE, policy=Policy(attempts=1))
        down = [True]

        @app.on
        async def follow(change: Inserted[Deal]) -> Set[Copy]:
            if change.new.brand == "poison":
                raise PoisonChange("never")
            if down[0]:
                raise OSError("down")
            return Set(Copy.key(deal=change.new.deal, number="0"), brand=change.new.brand)

        world = world_of(app)
        for number in range(10):
            put(world, Deal(deal=f"d{number}", brand="poison" if number == 3 else "x"))
        async with environment_of(world, app) as environment:
            await deliver(environment, Stream(world, TABLE))
            broken = next(item for item in own_items(world, TABLE, "parked") if "_sk_error" in item)
            key = {name: broken[name] for name in ("PK", "SK")}
            world.engine.call("dynamodb", "DeleteItem", {"TableName": TABLE, "Key": key})
            down[0] = False
            await anyio.sleep(20)
            counts = await maintain(environment)
            assert counts["queues"] == 10
            assert counts["stuck"] == 1
            assert counts["done"] in (8, 9)
            assert len(await parked_queues(environment.store)) == 10 - counts["done"]

    simulated(main)


def test_the_copies_of_a_source_follow_in_lambda_functions_alone():
    async def main():
        app = App("deals", table=TABLE)

        @app.mirror(
            copies=lambda deal: Copy.query(deal=deal.deal),
            source=lambda copy: Deal.key(deal=copy.deal),
        )
        def brand(deal: Deal, copy: Copy) -> Set[Copy]:
            return Set(copy.item_key, brand=deal.brand)

        world = world_of(app)
        stream = Stream(world, TABLE)
        put(world, Deal(deal="d1", brand="a"))
        for number in range(80):
            put(world, Copy(deal="d1", number=f"{number:03}"))
        async with environment_of(world, app) as environment:
            for new in ("a", "b"):
                put(world, Deal(deal="d1", brand=new))
                await deliver(environment, stream)
                await maintain(environment)
                await deliver(environment, stream)
                assert {c["brand"]["S"] for c in begin_with(world, "COPY#")} == {new}
            assert await parked_queues(environment.store) == []

    simulated(main)


class Bid(Entity, pk="LOT#{lot}", sk="BID#{number}"):
    lot: str
    number: int


class Best(Aggregate[Bid], pk="BEST#{lot}", sk="BEST"):
    lot: str
    number: Annotated[int | None, Max("number")] = None

    @classmethod
    def group(cls, bid: Bid) -> Key["Best"]:
        return cls.key(lot=bid.lot)

    @classmethod
    def members(cls, lot: str) -> Query[Bid]:
        return Bid.query(lot=lot)


def bid(world, number):
    key = {"PK": {"S": "LOT#x"}, "SK": {"S": f"BID#{number}"}}
    item = {**key, "lot": {"S": "x"}, "number": {"N": f"{number}"}}
    world.engine.call("dynamodb", "PutItem", {"TableName": TABLE, "Item": item})


def test_changes_of_one_group_still_go_together_when_another_invocation_was_faster():
    async def main():
        app = App("deals", table=TABLE)
        app.aggregate(Best)
        world = world_of(app)
        stream = Stream(world, TABLE)
        async with environment_of(world, app) as environment:
            bid(world, 0)
            await deliver(environment, stream)
            for number in range(1, 50):
                bid(world, number)
            first, *others = stream.traffic()[1:]
            transact, sent = environment.aws.dynamodb.transact_write_items, []

            async def overtaken(**request):
                sent.append(len(request["TransactItems"]))
                if len(sent) == 1:
                    await process_batch(environment, event([first]))
                return await transact(**request)

            environment.aws.dynamodb.transact_write_items = overtaken
            assert await process_batch(environment, event(others)) == {"batchItemFailures": []}
            assert sent == [49, 2, 49]  # refused; the other one's; all together again
        (best,) = begin_with(world, "BEST#")
        assert best["number"] == {"N": "49"}

    simulated(main)
