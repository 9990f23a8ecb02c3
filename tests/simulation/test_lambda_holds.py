"""What an item's high-water mark says about its queued keys, as long as they are queued."""

import anyio
import pytest

from streamkit import App, Entity, Inserted, Modified, PoisonChange, Policy, Set
from streamkit.aws_lambda.host import process_batch
from streamkit.aws_lambda.maintenance import maintain
from streamkit.operate.redrive import discard, redrive
from streamkit.testing.chance import repeatable
from streamkit.testing.loop import run_virtually
from streamkit.testing.world import Process
from tests.simulation.lambdas import Stream, environment_of, event, own_items, world_of

TABLE = "Deals"
DONE = {"batchItemFailures": []}


class Deal(Entity, pk="DEAL#{deal}", sk="DEAL#{deal}"):
    deal: str
    brand: str


class Copy(Entity, pk="COPY#{deal}", sk="{number}"):
    deal: str
    number: str
    brand: str = "old"


class Down:
    """A downstream that two handlers write to; `brands` is what the first has done, in order."""

    def __init__(self):
        self.down = {"follow", "echo"}
        self.brands = []

    def app(self, *, echo=True, heals=False):
        app = App("deals", table=TABLE, entities=[Copy], policy=Policy(attempts=1))
        error = OSError if heals else PoisonChange

        @app.on
        async def follow(change: Inserted[Deal] | Modified[Deal]) -> Set[Copy]:
            if "follow" in self.down:
                raise error("down")
            self.brands.append(change.new.brand)
            return Set(Copy.key(deal=change.new.deal, number="0"), brand=change.new.brand)

        if echo:

            @app.on
            async def echo(change: Inserted[Deal] | Modified[Deal]) -> Set[Copy]:
                if "echo" in self.down:
                    raise error("down")
                return Set(Copy.key(deal=change.new.deal, number="1"), brand=change.new.brand)

        return app


def put(world, brand):
    item = {
        "PK": {"S": "DEAL#d1"},
        "SK": {"S": "DEAL#d1"},
        "deal": {"S": "d1"},
        "brand": {"S": brand},
    }
    status, body = world.engine.call("dynamodb", "PutItem", {"TableName": TABLE, "Item": item})
    assert status == 200, body


def copies(world):
    return [item for item in world.items(TABLE) if item["PK"]["S"].startswith("COPY#")]


def failed(report):
    return report.failed


def expiring(app):
    """A world whose table has a TTL, and its stream."""
    world = world_of(app)
    spec = {"Enabled": True, "AttributeName": "ttl"}
    request = {"TableName": TABLE, "TimeToLiveSpecification": spec}
    status, body = world.engine.call("dynamodb", "UpdateTimeToLive", request)
    assert status == 200, body
    return world, Stream(world, TABLE)


def simulated(main):
    with repeatable(1):
        return run_virtually(main)


def test_what_another_invocation_queues_meanwhile_stays_in_its_queue():
    """Both queue the second change; the one that comes second goes on behind what is there now."""

    async def main():
        downstream = Down()
        app = downstream.app(echo=False)
        world = world_of(app)
        for brand in "abc":
            put(world, brand)
        records = Stream(world, TABLE).traffic()
        async with environment_of(world, app) as environment:
            await process_batch(environment, event(records[:1]))
            transact = environment.aws.dynamodb.transact_write_items

            async def overtaken(**request):
                environment.aws.dynamodb.transact_write_items = transact
                await process_batch(environment, event(records[:2]))
                return await transact(**request)

            environment.aws.dynamodb.transact_write_items = overtaken
            assert await process_batch(environment, event(records)) == DONE
            downstream.down.clear()
            assert [report.done for report in await redrive(app, environment.aws)] == [3]
        assert downstream.brands == ["a", "b", "c"]
        assert own_items(world, TABLE, "parked") == []

    simulated(main)


# -- a mark that names queues ----------------------------------------------------------------------


def queues_of(world):
    """The queues that the item's mark names; None if there is no mark."""
    found = own_items(world, TABLE, "mark")
    return len(found[0].get("_sk_lanes", {"SS": []})["SS"]) if found else None


async def days(world, number):
    """Let days pass, with expiry by TTL."""
    for _ in range(number):
        await anyio.sleep(86_400)
        world.control.expire(TABLE)


async def deliver(environment, stream):
    assert await process_batch(environment, event(stream.traffic())) == DONE


def test_a_queue_is_held_for_longer_than_marks_are_kept_and_the_week_begins_at_its_end():
    async def main():
        downstream = Down()
        app = downstream.app()
        world, stream = expiring(app)
        async with environment_of(world, app) as environment:
            put(world, "a")
            await deliver(environment, stream)
            assert queues_of(world) == 2
            await days(world, 9)
            downstream.down.remove("follow")
            put(world, "b")
            await deliver(environment, stream)
            assert downstream.brands == [], "the second change waits behind the first"
            (report, _) = sorted(await redrive(app, environment.aws, clock=world.clock), key=failed)
            assert report.done == 2
            assert queues_of(world) == 1
            await days(world, 9)
            put(world, "c")
            await deliver(environment, stream)
            assert downstream.brands == ["a", "b", "c"]
            assert [c["number"]["S"] for c in copies(world)] == ["0"], (
                "the other queue is held still"
            )
            downstream.down.clear()
            assert [r.done for r in await redrive(app, environment.aws, clock=world.clock)] == [3]
            assert queues_of(world) == 0
            await days(world, 9)
            assert queues_of(world) is None

    simulated(main)


@pytest.mark.parametrize("how", ["discarded", "maintained"])
def test_whoever_ends_a_queue_lets_its_items_mark_end(how):
    async def main():
        downstream = Down()
        app = downstream.app(echo=False, heals=how == "maintained")
        world, stream = expiring(app)
        async with environment_of(world, app) as environment:
            put(world, "a")
            await deliver(environment, stream)
            downstream.down.clear()
            if how == "discarded":
                await discard(app, environment.aws, clock=world.clock)
            else:
                await anyio.sleep(60)
                assert (await maintain(environment))["done"] == 1
            assert queues_of(world) == 0
            await days(world, 6)
            assert queues_of(world) == 0
            await days(world, 2)
            assert queues_of(world) is None

    simulated(main)


def test_a_change_whose_effects_fill_a_transaction_lets_its_items_mark_end_too():
    async def main():
        down, app = [True], App("deals", table=TABLE, entities=[Copy], policy=Policy(attempts=1))

        @app.on
        async def follow(change: Inserted[Deal]) -> list[Set[Copy]]:
            if down:
                raise PoisonChange("down")
            return [
                Set(Copy.key(deal=change.new.deal, number=f"{n}"), brand="a") for n in range(99)
            ]

        world, stream = expiring(app)
        async with environment_of(world, app) as environment:
            put(world, "a")
            await deliver(environment, stream)
            down.clear()
            assert [r.done for r in await redrive(app, environment.aws, clock=world.clock)] == [1]
        assert len(copies(world)) == 99
        assert queues_of(world) == 0
        await days(world, 8)
        assert queues_of(world) is None

    simulated(main)


def test_a_redrive_and_a_function_that_meet_at_a_mark_do_not_hurt_each_other():
    """The function moves the mark between the redrive's look at it and its transaction."""

    async def main():
        downstream = Down()
        app = downstream.app()
        world, stream = expiring(app)
        async with environment_of(world, app) as environment:
            put(world, "a")
            await deliver(environment, stream)
            downstream.down.clear()
            transact = environment.aws.dynamodb.transact_write_items

            async def overtaken(**request):
                environment.aws.dynamodb.transact_write_items = transact
                await redrive(app, environment.aws, clock=world.clock)
                return await transact(**request)

            environment.aws.dynamodb.transact_write_items = overtaken
            await redrive(app, environment.aws, clock=world.clock)
            assert queues_of(world) == 0
            put(world, "b")
            downstream.down.add("echo")
            await deliver(environment, stream)
            assert queues_of(world) == 1
            put(world, "c")
            environment.aws.dynamodb.transact_write_items = overtaken
            downstream.down.clear()
            await deliver(environment, stream)
            await redrive(app, environment.aws, clock=world.clock)
            assert queues_of(world) == 0
            assert own_items(world, TABLE, "parked") == []
        assert {c["brand"]["S"] for c in copies(world)} == {"c"}
        assert downstream.brands == ["a", "b", "c"]

    simulated(main)


def test_the_queue_of_a_handler_that_a_release_does_not_have_is_still_held_when_it_is_back():
    async def main():
        downstream = Down()
        with_echo, without = downstream.app(), downstream.app(echo=False)
        downstream.down.remove("follow")
        world, stream = expiring(with_echo)
        for app, brand in ((with_echo, "a"), (without, "b"), (with_echo, "c")):
            async with environment_of(world, app) as environment:
                put(world, brand)
                await deliver(environment, stream)
            if app is without:
                downstream.down.clear()
        async with environment_of(world, with_echo) as environment:
            assert [r.done for r in await redrive(with_echo, environment.aws)] == [2]
        assert {c["brand"]["S"] for c in copies(world)} == {"c"}

    simulated(main)


class Meanwhile(Process):
    """Lets something happen before its first transaction."""

    async def intercept(self, call, apply):
        if call.operation == "TransactWriteItems" and self.happens is not None:
            happens, self.happens = self.happens, None
            await happens()
        return await super().intercept(call, apply)


def test_a_queue_that_begins_while_another_one_of_its_item_ends_is_still_held():
    """The mark that was read names one queue, and the last one takes the others along."""
    broken, seen = {"first", "second"}, []  # only what async handlers see: others run ahead
    app = App("deals", table=TABLE, entities=[Copy], policy=Policy(attempts=1))

    @app.on
    async def first(change: Inserted[Deal]) -> None:
        if "first" in broken:
            raise PoisonChange("not yet")

    @app.on
    async def second(change: Modified[Deal]) -> None:
        if "second" in broken:
            raise PoisonChange("not yet")
        seen.append(change.new.brand)

    async def main():
        world = world_of(app)
        stream = Stream(world, TABLE)

        async def batch():
            async with environment_of(world, app) as environment:
                assert await process_batch(environment, event(stream.traffic())) == DONE

        put(world, "a")
        await batch()
        put(world, "b")
        broken.discard("first")
        redriver = Meanwhile("redriver")
        redriver.happens = batch
        async with world.clients(redriver) as aws:
            (report,) = await redrive(app, aws, clock=world.clock)
        assert report.done == 1
        broken.clear()
        put(world, "c")
        await batch()
        assert seen == [], "it waits behind the one before it"
        async with world.clients() as aws:
            (report,) = await redrive(app, aws, clock=world.clock)
        assert (report.done, seen) == (2, ["b", "c"])

    simulated(main)
