"""A migration and the table's other consumers, which have to read each change that it makes."""

import random
from functools import cache

import anyio
import pytest

from streamkit import App, Change
from streamkit.core.table_shape import TableShape
from streamkit.core.tables import survey
from streamkit.migrate.book.state import State
from streamkit.migrate.book.state_book import open_book
from streamkit.migrate.operate import commands
from streamkit.migrate.operate.progress import ProgressReader
from streamkit.migrate.run.others import Others
from streamkit.migrate.run.reports import Reporter
from streamkit.migrate.run.running import Runner
from streamkit.progress.actions import CONTROL_PREFIX
from streamkit.settings import Settings
from streamkit.testing.chance import repeatable
from streamkit.testing.loop import run_virtually
from streamkit.testing.world import Process, World
from tests.simulation import migrating
from tests.simulation.migrating import Order
from tests.simulation.test_process_clocks import Ahead

LIMIT = 10.0
AWAY, BACK = 60.0, 360.0
"""From when on no worker of the other consumer runs, and when it comes back, in seconds."""


def followed(order: Change[Order]) -> None:
    """Follow orders, as the app's own handler."""


def shop():
    app = App("shop", table="Shop", entities=[Order])
    app.on(followed)
    app.migration("0001", Order)(migrating.status_day)
    return app


async def beside_a_consumer():
    """Run a migration while another consumer is away for a time; return what it wrote, and when."""
    app, world, writes, reasons = shop(), World.create(1), [], {}
    async with world.clients() as aws, world.clients(Process("migrator")) as mine:
        await TableShape().create(aws.dynamodb, "Shop", (Order,), stream=True)
        schema = (await survey(app, aws)).table
        for number in range(2300):
            item = Order(user=f"u{number % 7}", order_id=f"{number}").attributes(schema)
            await aws.dynamodb.put_item(TableName="Shop", Item=item)
        await anyio.sleep(1200)
        clock = world.clock

        async def work(seconds):
            with anyio.move_on_after(seconds):
                await world.run_worker(app, settings=Settings(poll_ceiling=3), until_idle=False)

        await work(150)  # it has read all that there is, and its positions say so
        began = clock.monotonic()

        def saw(sighting):
            call = sighting.call
            one = call.operation == "UpdateItem" and sighting.actor == "migrator"
            if one and CONTROL_PREFIX not in str(call.payload):
                writes.append(clock.monotonic() - began)

        world.watchers.append(saw)
        limit = commands.Limit(max_writes=LIMIT)
        migration = app.migrations["0001"]
        await commands.begin(app, aws, migration, limit=limit, segments=16, clock=clock)

        async with anyio.create_task_group() as group:
            runner = Runner(app, mine, migration, clock=clock, rng=random.Random(1))
            group.start_soon(Reporter(runner).run)
            group.start_soon(runner.run)
            await work(AWAY)
            for name, seconds in (("away", BACK - AWAY), ("back", 200.0)):
                if name == "away":
                    await anyio.sleep(seconds)
                else:
                    await work(seconds)
                now = await ProgressReader(app, aws, clock).read("0001")
                reasons[name] = now.reason, now.behind
            group.cancel_scope.cancel()
    return writes, reasons


@cache
def run():
    with repeatable(1):
        return run_virtually(beside_a_consumer, seed=1)


def speed(begin, end):
    writes, _ = run()
    return sum(begin <= at < end for at in writes) / (end - begin)


def test_a_migration_holds_back_while_another_consumer_is_behind_and_goes_on_after():
    _, reasons = run()
    before = speed(20, AWAY)
    assert LIMIT / 2 <= before <= LIMIT
    assert speed(AWAY + 240, BACK) <= 0.25 * before
    assert speed(BACK + 180, BACK + 200) >= 0.85 * before
    assert reasons["away"] == ("lag", "shop")
    assert reasons["back"][0] != "lag"
    assert not reasons["back"][1]


def test_its_own_lag_does_not_hold_a_migration_back():
    app = migrating.rekey()  # it rests in `ready`, and so has not ended

    async def main():
        world = World.create(1)
        async with world.clients() as aws:
            await TableShape().create(aws.dynamodb, "Shop", (Order,), stream=True)
            schema = (await survey(app, aws)).table
            migration, clock = app.migrations["0001"], world.clock
            await commands.begin(app, aws, migration, segments=2, clock=clock)
            await Runner(app, aws, migration, clock=clock, rng=random.Random(1)).run()
            item = migrating.OldOrder(user="u", order_id="1").attributes(schema)
            await aws.dynamodb.put_item(TableName="Shop", Item=item)
            await anyio.sleep(600)  # its consumer is behind, and nothing else is
            state = await (await open_book(app, aws)).read("0001")
            others = Others(app, aws, await survey(app, aws), clock)
            own = (await ProgressReader(app, aws, clock).read("0001", lag=True)).lag
            return own, await others.lag(state)

    own, others = run_virtually(main, seed=1)
    assert own == pytest.approx(600, abs=20)
    assert others == 0.0


@pytest.mark.parametrize("ended", [True, False])
def test_the_consumer_of_a_migration_that_has_ended_holds_no_later_one_back(ended):
    app = shop()
    app.migration("0002", Order)(migrating.status_day)

    async def main():
        world = World.create(1)
        async with world.clients() as aws:
            await TableShape().create(aws.dynamodb, "Shop", (Order,), stream=True)
            schema = (await survey(app, aws)).table
            migration, clock = app.migrations["0001"], world.clock
            await commands.begin(app, aws, migration, segments=2, clock=clock)
            runner = Runner(app, aws, migration, clock=clock, rng=random.Random(1))
            with anyio.move_on_after(600 if ended else 3):  # else it is killed in the middle
                await runner.run()
            book = await open_book(app, aws)
            assert ((await book.read("0001")).phase == "done") == ended
            item = Order(user="u", order_id="1").attributes(schema)
            await aws.dynamodb.put_item(TableName="Shop", Item=item)
            await anyio.sleep(600)
            others = Others(app, aws, await survey(app, aws), clock)
            return await others.lag(await book.read("0002"))

    lag = run_virtually(main, seed=1)
    assert lag == (0.0 if ended else pytest.approx(600, abs=60))


@pytest.mark.parametrize("wrong", [-600.0, 600.0])
def test_how_far_a_consumer_is_behind_does_not_depend_on_the_clock_of_the_process_that_asks(wrong):
    app = shop()

    async def main():
        world = World.create(1)
        async with world.clients() as aws:
            await TableShape().create(aws.dynamodb, "Shop", (Order,), stream=True)
            schema = (await survey(app, aws)).table
            await world.run_worker(app)
            item = Order(user="u", order_id="1").attributes(schema)
            await aws.dynamodb.put_item(TableName="Shop", Item=item)
            await anyio.sleep(200)
            others = Others(app, aws, await survey(app, aws), Ahead(wrong))
            return await others.lag(State("0001"))

    assert run_virtually(main, seed=1) == pytest.approx(200, abs=3)
