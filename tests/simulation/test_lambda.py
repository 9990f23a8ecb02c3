"""The Lambda host: table effects exactly once, whatever a mapping does."""

import random
from contextlib import asynccontextmanager
from typing import Annotated

import anyio
import pytest

from streamkit import (
    Aggregate,
    App,
    Change,
    Count,
    Entity,
    Inserted,
    Key,
    Modified,
    PoisonChange,
    Policy,
    Put,
    Set,
    Sum,
)
from streamkit.aws_lambda.environment import open_environment
from streamkit.aws_lambda.host import process_batch
from streamkit.aws_lambda.maintenance import maintain
from streamkit.testing.chance import repeatable
from streamkit.testing.harness import table_of
from streamkit.testing.loop import run_virtually
from streamkit.testing.mapping import EventSourceMapping, Habits
from streamkit.testing.world import CrashPoint, Process, World

TABLE = "Shop"


class Order(Entity, pk="ORDER#{order}", sk="ORDER#{order}"):
    order: str
    customer: str
    amount: int
    poison: bool = False


class Log(Entity, pk="LOG#{order}", sk="LOG#{order}"):
    order: str
    text: str = ""


def make_app(policy=None):
    app = App("shop", table=TABLE, entities=[Log], policy=policy)

    @app.aggregate
    class Spent(Aggregate[Order], pk="SPENT#{customer}", sk="SPENT#{customer}"):
        customer: str
        orders: Annotated[int, Count()] = 0
        spent: Annotated[int, Sum("amount")] = 0

        @classmethod
        def group(cls, order: Order) -> Key["Spent"]:
            return cls.key(customer=order.customer)

    @app.on
    def log(change: Inserted[Order] | Modified[Order]) -> Set[Log]:
        if change.new.poison:
            raise PoisonChange("never")
        return Set(Log.key(order=change.new.order), text=f"{change.new.amount}")

    return app


class Latency:
    """Lets every call take its time, so that invocations come between each other's calls."""

    def __init__(self, rng):
        self.rng = rng

    async def intercept(self, call, apply):
        await anyio.sleep(self.rng.random() * 0.2)
        response = apply()
        await anyio.sleep(self.rng.random() * 0.2)
        return response


class Function:
    """Execution environments of one function; one that dies is replaced."""

    def __init__(self, world, app, rng, kill=0.0):
        self.world, self.app, self.rng, self.kill = world, app, rng, kill
        self.kills = 0

    @asynccontextmanager
    async def opened(self):
        process = Process("function", faults=Latency(self.rng))
        async with open_environment(
            self.app,
            connect_with=lambda: self.world.clients(process),
            clock=self.world.clock,
            rng=random.Random(self.rng.random()),
        ) as environment:
            if self.rng.random() < self.kill:
                moment = self.rng.choice(["before", "after"])
                process.crash = CrashPoint(process.calls + self.rng.randrange(5), moment)
            yield process, environment

    async def invoke(self, event):
        """Each invocation has an environment of its own: the worst case."""
        result = None
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as group:

                async def die(process):
                    await process.dead.wait()
                    self.kills += 1
                    scope.cancel()

                async with self.opened() as (process, environment):
                    group.start_soon(die, process)
                    result = await process_batch(environment, event)
                    group.cancel_scope.cancel()
        if result is None:
            raise RuntimeError("the function was killed")
        return result


def write(world, app_table, rng, count, poison=0):
    """Write orders, change and delete some; return what is there in the end."""
    orders = {}
    for number in range(count):
        order = f"o{rng.randrange(count // 3)}"
        key = {"S": f"ORDER#{order}"}
        if order in orders and rng.random() < 0.2:
            del orders[order]
            request = {"TableName": app_table, "Key": {"PK": key, "SK": key}}
            world.engine.call("dynamodb", "DeleteItem", request)
            continue
        orders[order] = (f"c{rng.randrange(3)}", rng.randrange(100))
        customer, amount = orders[order]
        item = {
            "PK": key,
            "SK": key,
            "order": {"S": order},
            "customer": {"S": customer},
            "amount": {"N": str(amount)},
            "poison": {"BOOL": number < poison},
        }
        world.engine.call("dynamodb", "PutItem", {"TableName": app_table, "Item": item})
    return orders


def kept(world):
    found = {}
    for item in world.items(TABLE):
        if item["PK"]["S"].startswith("SPENT#"):
            numbers = tuple(int(item.get(name, {"N": "0"})["N"]) for name in ("orders", "spent"))
            if any(numbers):
                found[item["customer"]["S"]] = numbers
    return found


def expected(orders):
    found = {}
    for customer, amount in orders.values():
        count, spent = found.get(customer, (0, 0))
        found[customer] = (count + 1, spent + amount)
    return found


def logs(world):
    items = [item for item in world.items(TABLE) if item["PK"]["S"].startswith("LOG#")]
    return {item["order"]["S"]: item["text"]["S"] for item in items}


async def scenario(seed, habits, kill=0.0, splits=0, count=80):
    rng = random.Random(seed)
    world = World.create(seed, shards=2)
    app = make_app()
    world.engine.call("dynamodb", "CreateTable", table_of(app))
    function = Function(world, app, rng, kill)
    mapping = EventSourceMapping(world, TABLE, function.invoke, rng, habits)
    write(world, TABLE, rng, count)
    for _ in range(splits):
        world.control.split(TABLE)
        write(world, TABLE, rng, 30)
    await mapping.run()
    await mapping.run()
    return world, function, mapping


def final_orders(world):
    orders = {}
    for item in world.items(TABLE):
        if item["PK"]["S"].startswith("ORDER#"):
            orders[item["order"]["S"]] = (item["customer"]["S"], int(item["amount"]["N"]))
    return orders


@pytest.mark.parametrize(("seed", "queues"), [(0, 1), (2, 4)])
def test_effects_happen_once_under_redelivery_bisecting_timeouts_and_kills(seed, queues):
    habits = Habits(parallel=queues, repeated=0.2, abandoned=0.1)

    async def main():
        world, function, mapping = await scenario(seed, habits, kill=0.25, splits=1)
        orders = final_orders(world)
        assert kept(world) == expected(orders)
        there = {order: str(amount) for order, (_, amount) in orders.items()}
        assert {o: text for o, text in logs(world).items() if o in there} == there
        return function.kills

    with repeatable(seed):
        assert run_virtually(main) is not None


def test_a_poison_change_is_parked_and_holds_up_only_its_own_item():
    async def main():
        rng = random.Random(1)
        world, app = World.create(1, shards=1), make_app()
        world.engine.call("dynamodb", "CreateTable", table_of(app))
        function = Function(world, app, rng)
        write(world, TABLE, rng, 40, poison=2)
        mapping = EventSourceMapping(world, TABLE, function.invoke, rng, Habits(repeated=0.3))
        await mapping.run()
        orders = final_orders(world)
        assert kept(world) == expected(orders)
        async with function.opened() as (_, environment):
            counts = await maintain(environment, 30)
        assert counts["queues"] in (1, 2)
        behind = {order for order, (_, amount) in orders.items()} - logs(world).keys()
        assert len(behind) <= 2

    with repeatable(1):
        run_virtually(main)


def test_a_batch_of_own_records_leads_to_no_write():
    async def main():
        rng = random.Random(1)
        world, app = World.create(1, shards=1), make_app()
        world.engine.call("dynamodb", "CreateTable", table_of(app))
        function = Function(world, app, rng)
        write(world, TABLE, rng, 10)
        calm = Habits(repeated=0, abandoned=0)
        mapping = EventSourceMapping(world, TABLE, function.invoke, rng, calm)
        await mapping.run()
        before = len(world.items(TABLE)), mapping.invocations
        writes = [call for call in world.calls if call.units["write"]]
        await mapping.run()
        assert mapping.invocations > before[1], "own records were delivered"
        assert [call for call in world.calls if call.units["write"]] == writes

    with repeatable(1):
        run_virtually(main)


def test_a_blocking_handler_lets_the_batch_come_again_from_its_change():
    async def main():
        rng = random.Random(1)
        world = World.create(1, shards=1)
        app = make_app(Policy(on_failure="block", attempts=1))
        world.engine.call("dynamodb", "CreateTable", table_of(app))
        function = Function(world, app, rng)
        write(world, TABLE, rng, 6, poison=1)
        events = []

        async def invoke(event):
            async with function.opened() as (_, environment):
                events.append(await process_batch(environment, event, 3))
            return {"batchItemFailures": []}

        calm = Habits(repeated=0, abandoned=0)
        await EventSourceMapping(world, TABLE, invoke, rng, calm).run()
        assert any(event["batchItemFailures"] for event in events)

    with repeatable(1):
        run_virtually(main)


def test_handlers_see_every_kind_of_change():
    seen = []
    app = App("shop", table=TABLE, entities=[Log])

    @app.on
    def note(change: Change[Order]) -> Put[Log]:
        seen.append(type(change).__name__)
        item = change.new or change.old
        return Put(Log(order=item.order))

    async def main():
        rng = random.Random(3)
        world = World.create(3, shards=1)
        world.engine.call("dynamodb", "CreateTable", table_of(app))
        function = Function(world, app, rng)
        write(world, TABLE, rng, 60)
        await EventSourceMapping(world, TABLE, function.invoke, rng).run()

    with repeatable(3):
        run_virtually(main)
    assert set(seen) == {"Inserted", "Modified", "Removed"}
