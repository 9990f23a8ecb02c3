"""A consumer of functions that is deleted and begins anew, while its functions stay warm."""

from collections import Counter

import anyio
import pytest

from streamkit import Add, App, Entity, Inserted
from streamkit.aws_lambda.environment import ConsumerReplaced
from streamkit.aws_lambda.host import process_batch
from streamkit.aws_lambda.late import process_late
from streamkit.core.parked.queues import parked_queues
from streamkit.operate.deletion import delete_consumer
from streamkit.testing.chance import repeatable
from streamkit.testing.loop import run_virtually
from tests.simulation.lambdas import Deadly, Stream, environment_of, event, own_items, world_of

TABLE = "Orders"
DONE = {"batchItemFailures": []}


class Order(Entity, pk="ORDER#{number}", sk="ORDER"):
    number: int


class Tally(Entity, pk="TALLY#{number}", sk="TALLY"):
    number: int
    times: int = 0


def make_app(*, fails=()):
    app = App("shop", table=TABLE, entities=[Tally])

    @app.on
    def count(change: Inserted[Order]) -> Add[Tally]:
        if change.new.number in fails:
            raise ValueError("not this one")
        return Add(Tally.key(number=change.new.number), times=1)

    return app


def put(world, *numbers):
    for number in numbers:
        key = {"PK": {"S": f"ORDER#{number}"}, "SK": {"S": "ORDER"}}
        item = {**key, "number": {"N": str(number)}}
        status, body = world.engine.call("dynamodb", "PutItem", {"TableName": TABLE, "Item": item})
        assert status == 200, body


def tallies(world):
    items = [item for item in world.items(TABLE) if item["PK"]["S"].startswith("TALLY#")]
    return {int(item["number"]["N"]): int(item["times"]["N"]) for item in items}


def simulated(main):
    with repeatable(1):
        return run_virtually(main)


async def delete(world, app):
    async with world.clients() as aws:
        return await delete_consumer(aws, TABLE, app.name, clock=world.clock)


def test_a_consumer_of_the_same_name_does_again_what_the_deleted_one_had_done():
    async def main():
        app = make_app()
        world = world_of(app)
        put(world, 1, 2)
        records = Stream(world, TABLE).traffic()
        async with environment_of(world, app) as environment:
            assert await process_batch(environment, event(records)) == DONE
        await delete(world, app)
        for _ in range(2):
            async with environment_of(world, app) as environment:
                assert await process_batch(environment, event(records)) == DONE
        assert tallies(world) == {1: 2, 2: 2}, "once by each consumer"

    simulated(main)


def test_a_warm_function_of_a_deleted_consumer_begins_with_nothing():
    async def main():
        app = make_app()
        world = world_of(app)
        put(world, 1, 2)
        records = Stream(world, TABLE).traffic()
        late = {"DDBStreamBatchInfo": {"shardId": "s"}, "payload": event(records)}
        async with environment_of(world, app) as warm:
            assert await process_batch(warm, event(records[:1])) == DONE
            await delete(world, app)
            for begin in (process_batch(warm, event(records)), process_late(warm, late)):
                with pytest.raises(ConsumerReplaced, match="was deleted"):
                    await begin
            async with environment_of(world, app) as fresh:
                assert await process_batch(fresh, event(records[:1])) == DONE
            with pytest.raises(ConsumerReplaced):
                await process_batch(warm, event(records))
        assert tallies(world) == {1: 2}

    simulated(main)


def test_an_invocation_that_outlives_its_consumer_lets_the_new_one_leave_nothing_out():
    async def main():
        app = make_app()
        world = world_of(app)
        put(world, 1, 2)
        records = Stream(world, TABLE).traffic()
        async with environment_of(world, app) as slow:
            transact = slow.aws.dynamodb.transact_write_items

            async def deleted(**request):
                await delete(world, app)
                return await transact(**request)

            slow.aws.dynamodb.transact_write_items = deleted
            assert await process_batch(slow, event(records)) == DONE
        async with environment_of(world, app) as environment:
            assert await process_batch(environment, event(records)) == DONE
        assert tallies(world) == {1: 2, 2: 2}

    simulated(main)


def test_a_deletion_leaves_no_mark_that_does_not_expire():
    async def main():
        app = make_app(fails={1})
        world = world_of(app)
        put(world, 1, 2)
        async with environment_of(world, app) as environment:
            await process_batch(environment, event(Stream(world, TABLE).traffic()))
            assert len(await parked_queues(environment.store)) == 1
        marks = own_items(world, TABLE, "mark")
        assert Counter("_sk_expires" in mark for mark in marks) == {True: 1, False: 1}
        await delete(world, app)
        (left,) = [i for i in world.items(TABLE) if i["PK"]["S"].startswith("_sk#shop#")]
        assert left["_sk_kind"] == {"S": "mark"}
        assert "_sk_expires" in left

    simulated(main)


def test_what_ended_functions_before_is_not_held_against_the_new_consumer():
    async def main():
        bad = [True]
        app = App("shop", table=TABLE, entities=[Tally])

        @app.on
        async def count(change: Inserted[Order]) -> Add[Tally]:
            if bad:
                await function.kill()
            return Add(Tally.key(number=change.new.number), times=1)

        world = world_of(app)
        function = Deadly(world, app)
        put(world, 1)
        records = Stream(world, TABLE).traffic()
        await anyio.sleep(120)
        for _ in range(5):  # the next one would park the change unrun
            assert await function.invoke(records) is None
        await delete(world, app)
        bad.clear()
        assert await function.invoke(records) == DONE
        assert tallies(world) == {1: 1}

    simulated(main)
