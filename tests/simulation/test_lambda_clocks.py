"""The Lambda host with calls that arrive a quarter of an hour late, and with clocks that are wrong.

A client token lasts ten minutes: a request that arrives later is a new one, sent by an invocation
that ended long ago. Each environment has a clock of its own, minutes off, which steps.
"""

import random
from contextlib import asynccontextmanager, suppress
from typing import Annotated

import anyio
import pytest

from streamkit import Aggregate, App, Count, Inserted, Key, Modified, Policy, Set, Sum
from streamkit.aws import AwsError
from streamkit.aws_lambda import high_water_marks
from streamkit.aws_lambda.environment import open_environment
from streamkit.aws_lambda.maintenance import maintain
from streamkit.effects import Guard
from streamkit.model.conditions import Attr, absent, any_of
from streamkit.testing.chance import repeatable
from streamkit.testing.harness import table_of
from streamkit.testing.loop import SkewedClock, run_virtually
from streamkit.testing.mapping import EventSourceMapping, Habits
from streamkit.testing.world import CrashPoint, Process, World
from tests.simulation.lambdas import own_items
from tests.simulation.planned_faults import LateCalls
from tests.simulation.test_lambda import (
    TABLE,
    Function,
    Log,
    Order,
    expected,
    final_orders,
    kept,
    logs,
    write,
)

SEEDS = (1, 2)
SOME = range(1, 6)
"""Seeds, in most of which a late request finds its token forgotten."""
LATEST = 900.0


class Wrong(Function):
    """A function whose environments have wrong clocks, and writes that come late."""

    def __init__(self, world, app, rng, kill=0.0):
        super().__init__(world, app, rng, kill)
        self.late = LateCalls(rng, request=0.3, reply=0.02, seconds=LATEST)

    @asynccontextmanager
    async def opened(self):
        process = Process("function", faults=self.late)
        async with open_environment(
            self.app,
            connect_with=lambda: self.world.clients(process),
            clock=SkewedClock(self.rng),
            rng=random.Random(self.rng.random()),
        ) as environment:
            if self.rng.random() < self.kill:
                moment = self.rng.choice(["before", "after"])
                process.crash = CrashPoint(process.calls + self.rng.randrange(5), moment)
            yield process, environment

    async def maintain(self):
        """Go on with queues, as the schedule does; killed, if the environment dies."""
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as group, self.opened() as (process, environment):

                async def die():
                    await process.dead.wait()
                    scope.cancel()

                group.start_soon(die)
                await maintain(environment, 60)
                group.cancel_scope.cancel()


def make_app(outage):
    """Sums what customers spend, and logs each order; not those of an outage, while it lasts."""
    app = App("shop", table=TABLE, entities=[Log], policy=Policy(retry_seconds=30, breaker=False))

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
        if change.new.order in outage:
            raise ValueError("not now")
        return Set(Log.key(order=change.new.order), text=f"{change.new.amount}")

    return app


async def scenario(seed, kill):
    """Traffic, functions that are killed, and queues that are retried meanwhile."""
    rng, outage, parked = random.Random(seed), {"o0", "o1"}, False
    world = World.create(seed, shards=2)
    app = make_app(outage)
    world.engine.call("dynamodb", "CreateTable", table_of(app))
    function = Wrong(world, app, rng, kill)
    habits = Habits(parallel=3, repeated=0.2, abandoned=0.2)
    mapping = EventSourceMapping(world, TABLE, function.invoke, rng, habits)
    for _ in range(3):
        write(world, TABLE, rng, 9)
        await mapping.run()
        with suppress(RuntimeError, *AwsError):
            await function.maintain()
        await anyio.sleep(rng.random() * 2 * LATEST)
        parked = parked or bool(own_items(world, TABLE, "lane"))
        outage.clear()
    function.late.active, function.kill = False, 0.0
    await anyio.sleep(LATEST + 1)  # what is still on its way arrives
    await mapping.run()
    while own_items(world, TABLE, "lane"):
        await anyio.sleep(600)
        await function.maintain()
    orders = final_orders(world)
    assert kept(world) == expected(orders)
    there = {order: str(amount) for order, (_, amount) in orders.items()}
    assert {order: text for order, text in logs(world).items() if order in there} == there
    assert not own_items(world, TABLE, "parked")
    return function, parked


def trial(seed, kill):
    with repeatable(seed):
        return run_virtually(scenario, seed, kill)


@pytest.mark.parametrize("kill", [0.0, 0.25])
@pytest.mark.parametrize("seed", SEEDS)
def test_effects_happen_once_however_late_calls_arrive_and_however_wrong_clocks_are(seed, kill):
    function, parked = trial(seed, kill)
    assert function.late.taken["late request"]
    assert parked


def test_the_trial_finds_marks_that_are_not_compared(monkeypatch):
    unchecked = any_of(absent, Attr("kind").exists())
    monkeypatch.setattr(high_water_marks, "_before", lambda now, first: unchecked)
    monkeypatch.setattr(high_water_marks, "_BARE", Guard(unchecked))

    def search():
        for seed in SOME:
            trial(seed, 0.0)

    with pytest.raises(AssertionError, match="=="):
        search()
