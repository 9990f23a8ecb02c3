"""What becomes of items that fail: turned back each time, written often, failed by the thousand."""

import random
from itertools import count

import anyio
import pytest

from streamkit.migrate.book.state_book import open_book
from streamkit.migrate.operate import commands, steps
from streamkit.migrate.operate.progress import ProgressReader
from streamkit.migrate.run import passing
from streamkit.migrate.run.passing import PassPace
from streamkit.migrate.run.reports import Reporter
from streamkit.migrate.run.running import Runner
from streamkit.migrate.verify import mending
from streamkit.settings import Settings
from streamkit.testing.world import Process
from tests.unit.migrate.test_migration_slices import at_table, labels

PROMPT = Settings(poll_floor=0.1, poll_ceiling=0.2, checkpoint_interval=1.0)


def key_of(number):
    return {"PK": {"S": f"ORDER#{number}"}, "SK": {"S": "ORDER"}}


async def begin(app, aws, world, **options):
    options = {"segments": 4, "clock": world.clock} | options
    await commands.begin(app, aws, app.migrations["0001"], **options)


def runner_of(app, aws, world, **options):
    migration, rng = app.migrations["0001"], random.Random(1)
    return Runner(app, aws, migration, PROMPT, world.clock, rng, **options)


async def answer(aws, stopped):
    """Turn an item back as soon as it is in the new shape, as another system might."""
    while not stopped.is_set():
        found = (await aws.dynamodb.get_item(TableName="Shop", Key=key_of(1)))["Item"]
        if "label" in found:
            await aws.dynamodb.update_item(
                TableName="Shop",
                Key=key_of(1),
                UpdateExpression="SET turned = :at REMOVE label",
                ExpressionAttributeValues={":at": {"S": f"{random.random()}"}},
            )
        await anyio.sleep(0.2)


def test_an_item_that_is_turned_back_each_time_ends_as_an_error_and_blocks():
    async def test(app, aws, world):
        stopped = anyio.Event()
        await begin(app, aws, world)
        await steps.pause(app, aws, "0001")
        async with anyio.create_task_group() as group:
            group.start_soon(answer, aws, stopped)
            runner = runner_of(app, aws, world)
            group.start_soon(lambda: runner.run(stay=True))
            await anyio.sleep(5)
            await aws.dynamodb.update_item(
                TableName="Shop",
                Key=key_of(1),
                UpdateExpression="SET begun = :yes",
                ExpressionAttributeValues={":yes": {"BOOL": True}},
            )
            await anyio.sleep(120)
            found = await mending.list_errors(app, aws, "0001")
            await steps.resume(app, aws, "0001")
            await anyio.sleep(120)
            blocked = await ProgressReader(app, aws, world.clock).read("0001")
            still = await mending.retry_errors(app, aws, "0001", clock=world.clock)
            stopped.set()
            await anyio.sleep(1)
            mended = await mending.retry_errors(app, aws, "0001", clock=world.clock)
            await steps.resume(app, aws, "0001")
            await anyio.sleep(120)
            runner.stop()
        return found, blocked, still, mended, runner.state.phase, labels(world)

    found, blocked, still, mended, end, after = at_table(test, orders=3)
    assert [error.kind for error in found] == ["ping_pong"]
    assert (blocked.phase, blocked.open_errors) == ("blocked", 1)
    assert (still, mended) == ((0, 1), (1, 0))
    assert (end, None in after) == ("done", False)


@pytest.mark.parametrize("every", [0.3, 1.0, 1.9])
def test_an_item_that_is_only_written_often_is_no_ping_pong(every):
    async def test(app, aws, world):
        await begin(app, aws, world)
        await steps.pause(app, aws, "0001")
        async with anyio.create_task_group() as group:
            runner = runner_of(app, aws, world)
            group.start_soon(lambda: runner.run(stay=True))
            await anyio.sleep(5)
            numbers = count()
            for _ in range(round(150 / every)):  # whole puts by code that knows no label
                item = key_of(1) | {"number": {"N": "1"}, "shown": {"N": f"{next(numbers)}"}}
                await aws.dynamodb.put_item(TableName="Shop", Item=item)
                await anyio.sleep(every)
            await anyio.sleep(30)
            errors = await mending.list_errors(app, aws, "0001")
            found = (await aws.dynamodb.get_item(TableName="Shop", Key=key_of(1)))["Item"]
            runner.stop()
        return errors, found

    errors, found = at_table(test, orders=2)
    assert errors == []
    assert found["label"] == {"S": "1"}


# -- many ------------------------------------------------------------------------------------------


def test_a_migration_ends_however_many_items_are_waived(monkeypatch):
    monkeypatch.setattr(passing, "ERRORS_MAX", 10)

    async def test(app, aws, world):
        for number in range(100, 145):
            item = key_of(number) | {"number": {"S": "no number"}}
            await aws.dynamodb.put_item(TableName="Shop", Item=item)
        await anyio.sleep(1200)
        await begin(app, aws, world)
        stored = []
        for _ in range(6):
            await runner_of(app, aws, world, pace=PassPace(1, 5, 5)).run()
            state = await (await open_book(app, aws)).read("0001")
            if state.phase == "done":
                break
            stored.append(len(await mending.list_errors(app, aws, "0001")))
            assert state.phase == "blocked"
            waived = await mending.waive_errors(app, aws, "0001", None, "known", clock=world.clock)
            assert waived
            await steps.resume(app, aws, "0001")
        segments = [i for i in world.items("Shop") if "#cursor#0001." in i["PK"]["S"]]
        return state, stored, labels(world), segments

    state, stored, after, segments = at_table(test, orders=5)
    assert (state.phase, segments) == ("done", [])
    assert stored == sorted(stored)
    assert stored[0] <= 10 + 5  # a page is finished
    assert stored[-1] == after.count(None) == 45


# -- processes -------------------------------------------------------------------------------------


def test_killed_processes_are_not_counted():
    async def test(app, aws, world):
        await begin(app, aws, world, limit=commands.Limit(max_writes=4.0))
        shown = []

        async def live(process):
            async with world.clients(process) as mine:
                runner = runner_of(app, mine, world)
                async with anyio.create_task_group() as group:
                    group.start_soon(Reporter(runner).run)
                    group.start_soon(runner.run)
                    await process.dead.wait()
                    group.cancel_scope.cancel()

        async with anyio.create_task_group() as group:
            for round_ in range(2):
                processes = [Process(f"p{round_}-{number}") for number in range(3)]
                for process in processes:
                    group.start_soon(live, process)
                await anyio.sleep(15)
                found = await ProgressReader(app, aws, world.clock).read("0001", lag=True)
                shown.append((found.phase, found.processes))
                if not round_:
                    for process in processes:
                        process.kill()
            group.cancel_scope.cancel()
        return shown

    assert at_table(test, orders=300) == [("scanning", 3), ("scanning", 3)]
