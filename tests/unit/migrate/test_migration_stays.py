"""A process that stays after the end of a migration leaves alone what comes later."""

import random
from functools import partial

import anyio

from streamkit import App, Item, Remove, Set
from streamkit.migrate.book.state_book import open_book
from streamkit.migrate.operate import steps
from streamkit.migrate.run.running import Runner
from tests.unit.migrate.test_migration_order import SETTINGS, Order, at_table


def one(item: Item) -> Set[Order]:
    return Set(label=f"{item['number']}")


def two(item: Item) -> Set[Order]:
    return Set(label=f"#{item['number']}")


def without(item: Item) -> Remove[Order]:
    return Remove("label")


ASKED = []


def failing(item: Item) -> Set[Order]:
    ASKED.append(item["number"])
    if int(item["number"]) == 1:
        raise KeyError("x")
    return one(item)


def app_of(*functions, **options):
    app = App("shop", table="Shop")
    for number, function in enumerate(functions, 1):
        app.migration(f"{number:04}", Order, **options)(function)
    return app


def stays(site):
    migration, clock = site.app.migrations["0001"], site.world.clock
    return Runner(site.app, site.aws, migration, SETTINGS, clock, random.Random(2)).run(stay=True)


async def state_of(site, number="0001"):
    return await (await open_book(site.app, site.aws)).read(number)


def labels(site):
    items = [item for item in site.world.items("Shop") if item["PK"]["S"].startswith("ORDER")]
    return sorted(item.get("label", {}).get("S", "") for item in items)


def test_a_process_that_stays_after_the_end_leaves_the_next_migration_alone():
    async def play(site):
        await anyio.sleep(1200)
        async with anyio.create_task_group() as group:
            await site.begin("0001")
            group.start_soon(partial(stays, site))
            while (await state_of(site)).phase != "done":
                await anyio.sleep(1)
            await anyio.sleep(60)
            await site.begin("0002")
            await site.run("0002")
            await anyio.sleep(60)
            group.cancel_scope.cancel()
        return (await state_of(site, "0002")).phase, labels(site)

    assert at_table(play, app_of(one, two)) == ("done", ["#0", "#1", "#2"])


def long_after(app, *before):
    """Run a process that stays thirty hours after the last step: the stream has lost its place."""

    async def play(site):
        await anyio.sleep(1200)
        for step in before:
            await step(site)
        await anyio.sleep(30 * 3600)
        with anyio.move_on_after(600):
            await stays(site)
        state = await state_of(site)
        return state.phase, state.run, labels(site)

    return at_table(play, app, patience=2 * 86400)


def apply(number):
    return lambda site: site.apply(number)


def test_a_process_that_stays_long_after_the_end_begins_nothing_anew():
    done = long_after(app_of(one, two), apply("0001"), apply("0002"))
    assert done == ("done", 1, ["#0", "#1", "#2"])


async def roll_back(site):
    await steps.rollback(site.app, site.aws, "0001", clock=site.world.clock)
    await site.run("0001")


async def write(site):
    key = {"PK": {"S": "ORDER#1"}, "SK": {"S": "ORDER"}}
    item = {**key, "number": {"N": "1"}, "label": {"S": "mine"}}
    await site.aws.dynamodb.put_item(TableName="Shop", Item=item)


def test_what_is_written_after_a_rollback_stays_as_it_is():
    steps_before = apply("0001"), roll_back, write
    assert long_after(app_of(one, reverse=without), *steps_before) == (
        "rolled back",
        2,
        ["", "", "mine"],
    )


def test_what_is_blocked_stays_blocked_until_people_have_decided():
    asked = []

    async def note(_site):
        asked.append(len(ASKED))

    assert long_after(app_of(failing), apply("0001"), note)[0] == "blocked"
    assert asked == [len(ASKED)]  # nothing was read again
