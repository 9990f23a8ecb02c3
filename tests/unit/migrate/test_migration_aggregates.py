"""An aggregate as a migration: counted anew by `apply`, paused like any other, and done once."""

import random
from typing import Annotated

import anyio
import pytest

from streamkit import Aggregate, App, ConfigurationError, Count, Entity, Key
from streamkit.core.table_shape import TableShape, entities_of
from streamkit.core.tables import survey
from streamkit.migrate.operate import commands, steps
from streamkit.migrate.plan.planning import plan_migration
from streamkit.migrate.run import aggregates
from streamkit.migrate.run.aggregates import run_aggregate
from streamkit.migrate.run.sampling import Wanted
from streamkit.settings import Settings
from streamkit.table import Table
from streamkit.testing.loop import run_virtually
from streamkit.testing.world import World


class Order(Entity, pk="ORDER#{number}", sk="ORDER"):
    number: int
    status: str = "NEW"


def app_of():
    app = App("shop", table="Shop", start="latest")

    @app.aggregate
    class PerStatus(Aggregate[Order], pk="PER#{status}", sk="PER"):
        status: str
        orders: Annotated[int, Count()] = 0

        @classmethod
        def group(cls, order: Order) -> Key["PerStatus"]:
            return cls.key(status=order.status)

    app.migration("0001", PerStatus, mode="aggregate")
    return app, PerStatus


def beside_workers(test):
    """Run a test on a table that holds orders, while a worker counts what comes."""
    app, aggregate = app_of()

    async def main():
        world = World.create(1)
        async with world.clients() as aws, anyio.create_task_group() as group:
            await TableShape().create(aws.dynamodb, "Shop", entities_of(app), stream=True)
            schema = (await survey(app, aws)).table
            for number in range(30):
                item = Order(number=number).attributes(schema)
                await aws.dynamodb.put_item(TableName="Shop", Item=item)
            await anyio.sleep(60)
            quick = Settings(poll_ceiling=0.5)
            group.start_soon(lambda: world.run_worker(app, settings=quick, until_idle=False))
            await anyio.sleep(20)

            async def count():
                found = await Table(aws.dynamodb, schema).get(aggregate.key(status="NEW"))
                return found.orders if found else 0

            with anyio.fail_after(3600):
                answer = await test(app, aws, world, count)
            group.cancel_scope.cancel()
        return answer

    return run_virtually(main, seed=1)


def test_what_is_there_already_is_counted_once():
    async def test(app, aws, world, count):
        migration, clock = app.migrations["0001"], world.clock
        before = await count()
        await commands.begin(app, aws, migration, segments=4, clock=clock)
        states = [
            await run_aggregate(app, aws, migration, clock=clock, rng=random.Random(1))
            for _ in range(2)
        ]
        return before, await count(), [state.phase for state in states]

    assert beside_workers(test) == (0, 30, ["done", "done"])


def test_a_paused_one_is_left_alone_and_counted_when_it_is_resumed():
    async def test(app, aws, world, count):
        migration, clock = app.migrations["0001"], world.clock
        await commands.begin(app, aws, migration, segments=4, clock=clock)
        await steps.pause(app, aws, "0001")
        joined = await run_aggregate(app, aws, migration, clock=clock)
        waiting = await count()
        await steps.resume(app, aws, "0001")
        await run_aggregate(app, aws, migration, clock=clock)
        return joined.phase, waiting, await count()

    assert beside_workers(test) == ("capturing", 0, 30)


def test_one_that_is_paused_meanwhile_is_waited_for_and_then_counted_once(monkeypatch):
    real, runs = aggregates.rebuild_aggregate, []

    async def rebuild(*args, stopping, **given):
        runs.append(stopping)
        if len(runs) == 1:
            await stopping.wait()  # a large table: it is under way when it is paused
        return await real(*args, stopping=stopping, **given)

    monkeypatch.setattr(aggregates, "rebuild_aggregate", rebuild)

    async def test(app, aws, world, count):
        migration, clock, ends = app.migrations["0001"], world.clock, []
        await commands.begin(app, aws, migration, segments=4, clock=clock)

        async def run():
            state = await run_aggregate(app, aws, migration, clock=clock, rng=random.Random(1))
            ends.append(state.phase)

        async with anyio.create_task_group() as group:
            group.start_soon(run)
            await anyio.sleep(10)
            await steps.pause(app, aws, "0001")
            await anyio.sleep(120)
            paused = list(ends), await count(), len(runs)
            await steps.resume(app, aws, "0001")
        return paused, ends, await count()

    assert beside_workers(test) == (([], 0, 1), ["done"], 30)


def test_one_that_was_never_begun_is_refused():
    async def test(app, aws, world, _count):
        with pytest.raises(ConfigurationError, match="never begun"):
            await run_aggregate(app, aws, app.migrations["0001"], clock=world.clock)

    beside_workers(test)


def test_a_plan_counts_what_the_ledger_takes():
    async def test(app, aws, world, _count):
        given = {"clock": world.clock, "rng": random.Random(1), "sample": Wanted(share=1.0)}
        return await plan_migration(app, aws, app.migrations["0001"], **given)

    plan = beside_workers(test)
    assert plan.ok
    rewrite = {step.step: step for step in plan.forecast.steps}["rewrite"]
    assert rewrite.writes[""].value == 30 * 5
