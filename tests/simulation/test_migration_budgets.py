"""Migrations whose limit is below what the application writes: each unit carries something, no item
is called wrong for it, and people see why it is slow."""

import random
from functools import partial
from itertools import count

import anyio
import pytest

from streamkit import App, Entity, Set
from streamkit.core.table_shape import TableShape
from streamkit.core.tables import survey
from streamkit.migrate.book.limits import Limit
from streamkit.migrate.operate import commands, steps
from streamkit.migrate.operate.progress import ProgressReader
from streamkit.migrate.run.reports import Reporter
from streamkit.migrate.run.running import Runner
from streamkit.migrate.verify.mending import list_errors
from streamkit.testing.loop import run_virtually
from streamkit.testing.migrators import SETTINGS
from streamkit.testing.world import World
from tests.simulation.test_migration_old_writers import new, nothing, old, play, rekey

WRITES = 5.0
"""What the application writes a second."""


class Meter(Entity, pk="METER#{number}", sk="METER"):
    number: int
    reading: int = 0
    label: str | None = None


def label(reading: int) -> Set[Meter]:
    return Set(label=f"{reading}")


def runner_of(app, aws, world):
    runner = Runner(app, aws, app.migrations["0001"], SETTINGS, world.clock, random.Random(1))
    return runner, Reporter(runner)


async def looked_at(app, aws, world, write, seconds, then=600):
    """Run a migration while the application writes; return its progress then, and later."""
    runner, reporter = runner_of(app, aws, world)
    reader, stopped = ProgressReader(app, aws, world.clock), False

    async def writes():
        for number in count():
            if stopped:
                return
            await write(number)
            await anyio.sleep(1 / WRITES)

    async with anyio.create_task_group() as group:
        for task in (lambda: runner.run(stay=True), reporter.run, writes):
            group.start_soon(task)
        await anyio.sleep(seconds)
        under = await reader.read("0001", lag=True)
        stopped = True
        await anyio.sleep(then)
        after = await reader.read("0001", lag=True)
        group.cancel_scope.cancel()
    return under, after


@pytest.mark.parametrize("mode", ["in_place", "touch"])
def test_items_that_are_written_often_are_no_errors_however_long_their_writes_wait(mode):
    app = App("shop", table="Shop")
    app.migration("0001", Meter, mode=mode)(label)

    async def main():
        world = World.create(1)
        async with world.clients() as aws:
            await TableShape().create(aws.dynamodb, "Shop", (Meter,), stream=True)
            schema = (await survey(app, aws)).table

            async def write(number):
                item = Meter(number=number % 10, reading=number).attributes(schema)
                await aws.dynamodb.put_item(TableName="Shop", Item=item)

            for number in range(10):
                await write(number)
            said = {"clock": world.clock, "limit": Limit(max_writes=1.0)}
            await commands.begin(app, aws, app.migrations["0001"], segments=2, **said)
            under, after = await looked_at(app, aws, world, write, 300)
            errors = [one.kind for one in await list_errors(app, aws, "0001")]
            items = [i for i in world.items("Shop") if i["PK"]["S"].startswith("METER#")]
            wrong = [i for i in items if i["label"]["S"] != i["reading"]["N"]]
            return errors, wrong, under, after

    errors, wrong, under, after = run_virtually(main, seed=1)
    assert (errors, wrong) == ([], [])
    assert under.short_of == "write"
    assert under.written == pytest.approx(WRITES, rel=0.1)
    assert after.reason != "limit"


async def write_new(site, number):
    """Write one of forty items, as new code does."""
    await site.aws.dynamodb.update_item(
        TableName="Shop",
        Key=new(number % 40).item_key.wire(site.schema),
        UpdateExpression="SET #s = :v",
        ExpressionAttributeNames={"#s": "status"},
        ExpressionAttributeValues={":v": {"S": f"{number}"}},
    )


def test_what_new_code_writes_often_is_carried_although_the_limit_is_small():
    async def then(site):
        app, aws, world = site.app, site.aws, site.world
        await steps.set_limit(app, aws, "0001", Limit(max_writes=10.0))

        under, _ = await looked_at(app, aws, world, partial(write_new, site), 300, then=300)
        pairs = [[await site.get(of(n)) for of in (old, new)] for n in range(40)]
        return under, [one for one, other in pairs if one["status"] != other["status"]]

    under, wrong = play(rekey(), [old(n) for n in range(40)], nothing, then)
    assert under.lag < 120  # the application has written each item every eight seconds
    assert under.writes[""] > 7
    assert wrong == []


def test_a_rollback_goes_on_although_its_consumer_is_always_a_minute_behind():
    async def then(site):
        app, aws, world = site.app, site.aws, site.world
        await steps.set_limit(app, aws, "0001", Limit(max_writes=10.0))

        async def write(number):
            if number == 300:
                await steps.rollback(app, aws, "0001", clock=world.clock)
            await write_new(site, number)

        under, _ = await looked_at(app, aws, world, write, 450, then=0)
        return under

    under = play(rekey(), [old(n) for n in range(40)], nothing, then)
    assert (under.phase, under.desired) == ("following", "pause")
    assert under.lag > 30
