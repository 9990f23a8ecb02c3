"""A large batch and a function with little time: every invocation does what it has the time for."""

from functools import partial

import anyio
from structlog.testing import capture_logs

from streamkit import App, Entity, Inserted, Modified, Policy, Set
from streamkit.aws_lambda.host import process_batch
from streamkit.core.parked.queues import list_parked
from streamkit.testing.chance import repeatable
from streamkit.testing.loop import run_virtually
from streamkit.testing.world import Process
from tests.simulation.lambdas import Stream, environment_of, event, left_of, number_of, world_of

TABLE = "Shop"


class Order(Entity, pk="ORDER#{order}", sk="ORDER"):
    order: str
    amount: int = 0


class Log(Entity, pk="LOG#{order}", sk="LOG"):
    order: str
    amounts: str = ""


def make_app(fails=lambda order: False):
    """Logs the amounts of each order, in the order of its changes."""
    app = App("shop", table=TABLE, entities=[Log], policy=Policy(attempts=1, breaker=False))

    @app.on
    def log(change: Inserted[Order] | Modified[Order]) -> Set[Log]:
        if fails(change.new):
            raise OSError("down")
        return Set(Log.key(order=change.new.order), amounts=str(change.new.amount))

    return app


def put(world, order, amount=0):
    key = {"S": f"ORDER#{order}"}
    item = {"PK": key, "SK": {"S": "ORDER"}, "order": {"S": order}, "amount": {"N": str(amount)}}
    world.engine.call("dynamodb", "PutItem", {"TableName": TABLE, "Item": item})


def logged(world):
    logs = (item for item in world.items(TABLE) if item["PK"]["S"].startswith("LOG#"))
    return {item["order"]["S"]: item["amounts"]["S"] for item in logs}


class Slow:
    """Lets each call take so many seconds."""

    def __init__(self, seconds):
        self.seconds, self.calls = seconds, []

    async def intercept(self, call, apply):
        self.calls.append(call.operation)
        await anyio.sleep(self.seconds)
        return apply()


def simulated(main):
    with repeatable(1):
        return run_virtually(main)


def test_every_invocation_of_a_large_batch_makes_progress_where_it_has_time_for_its_beginning():
    async def main():
        world, process = world_of(make_app()), Process("function")
        for order in range(1_200):
            put(world, f"o{order}")
        left, sizes = Stream(world, TABLE).traffic(), []
        async with environment_of(world, make_app(), process) as environment:
            process.faults = Slow(0.05)  # all marks of the batch take 0.6 s
            while left and len(sizes) < 30:
                left = left_of(await process_batch(environment, event(left), 0.6), left)
                sizes.append(len(left))
        assert sizes == sorted(set(sizes), reverse=True)
        assert sizes[-1] == 0
        assert len(logged(world)) == 1_200

    simulated(main)


def test_a_batch_that_comes_again_is_looked_through_and_its_marks_are_read_once():
    async def main():
        app, process = make_app(), Process("function")
        world = world_of(app)
        for order in range(500):
            put(world, f"o{order}")
        records = Stream(world, TABLE).traffic()
        async with environment_of(world, app, process) as environment:
            await process_batch(environment, event(records[:450]))
            before = len(world.calls)
            assert await process_batch(environment, event(records)) == {"batchItemFailures": []}
            calls = world.calls[before:]
        reads = [call for call in calls if call.operation == "BatchGetItem"]
        assert sum(call.units["read"] for call in reads) == 500
        assert len(logged(world)) == 500

    simulated(main)


def test_changes_of_one_item_that_are_far_apart_in_a_batch_wait_behind_the_one_that_is_parked():
    async def main():
        app = make_app(lambda order: order.order == "a" and order.amount == 1)
        world = world_of(app)
        put(world, "a", 1)
        for order in range(300):
            put(world, f"o{order}")
        put(world, "a", 2)
        for order in range(300):
            put(world, f"p{order}")
        put(world, "a", 3)
        stream = Stream(world, TABLE)
        records = stream.traffic()
        async with environment_of(world, app) as environment:
            await process_batch(environment, event(records))
            parked = await list_parked(environment.store)
            again = await process_batch(environment, event(records))
            assert again == {"batchItemFailures": []}
            assert len(await list_parked(environment.store)) == 3
            for order in range(250):
                put(world, f"q{order}")
            put(world, "a", 4)
            later = [record for record in stream.traffic() if record not in records]
            await process_batch(environment, event(later))
            assert len(await list_parked(environment.store)) == 4
        of_a = [number_of(record) for record in (records[0], records[301], records[602])]
        assert [int(one.position) for one in parked] == [int(number) for number in of_a]
        assert "a" not in logged(world)
        assert len(logged(world)) == 850

    simulated(main)


def test_what_another_invocation_does_meanwhile_is_found_done_where_marks_are_read_later():
    """Another invocation of the same records commits all of them while this one is at the first."""

    async def main():
        app = make_app()
        world = world_of(app)
        for order in range(450):
            put(world, f"o{order}")
        records = Stream(world, TABLE).traffic()
        other = Process("zombie")
        async with environment_of(world, app) as environment:
            async with environment_of(world, app, other) as second:
                other.faults = Slow(0.01)
                async with anyio.create_task_group() as group:
                    group.start_soon(partial(process_batch, second, event(records)))
                    await anyio.sleep(0.025)
                    await process_batch(environment, event(records))
            assert len(logged(world)) == 450
            assert await list_parked(environment.store) == []
            transactions = other.faults.calls.count("TransactWriteItems")
        assert transactions <= 2, "all but the first was found done, before anything was sent"

    simulated(main)


def test_an_invocation_that_had_no_time_for_anything_says_so():
    async def main():
        app, process = make_app(), Process("function")
        world = world_of(app)
        for order in range(3):
            put(world, f"o{order}")
        records = Stream(world, TABLE).traffic()
        async with environment_of(world, app, process) as environment:
            process.faults = Slow(0.6)
            with capture_logs() as lines:
                response = await process_batch(environment, event(records), 2)
            assert left_of(response, records) == records
            (line,) = [line for line in lines if line["event"] == "batch.undone"]
            assert (line["log_level"], line["records"], line["seconds"]) == ("warning", 3, 2)
            process.faults = None
            with capture_logs() as lines:
                await process_batch(environment, event(records), 2)
            assert [line["event"] for line in lines] == []

    simulated(main)
