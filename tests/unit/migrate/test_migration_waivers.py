"""What one run has noted: a waiver covers no later run, and the last old write stays the last."""

import anyio

from streamkit import App, Item, Remove, Set
from streamkit.migrate.book.old_writes import OldWrites
from streamkit.migrate.book.state import State
from streamkit.migrate.book.state_book import open_book
from streamkit.migrate.operate import steps
from streamkit.migrate.verify.mending import waive_errors
from tests.unit.migrate.test_migration_order import Order, at_table


def app_with(bad, bad_back=()):
    def labelled(item: Item) -> Set[Order]:
        if int(item["number"]) in bad:
            raise KeyError("x")
        return Set(label=f"{item['number']}")

    def unlabelled(item: Item) -> Remove[Order]:
        if int(item["number"]) in bad_back:
            raise KeyError("y")
        return Remove("label")

    app = App("shop", table="Shop")
    app.migration("0001", Order, reverse=unlabelled)(labelled)
    return app


async def waived(site):
    await anyio.sleep(1200)
    await site.apply("0001")
    return await waive_errors(site.app, site.aws, "0001", None, "it is a test order")


async def rolled_back(site):
    await steps.rollback(site.app, site.aws, "0001", clock=site.world.clock)
    await site.run("0001")


async def phase_of(site):
    return (await (await open_book(site.app, site.aws)).read("0001")).phase


def test_what_was_waived_before_a_rollback_is_looked_at_in_the_next_run():
    async def play(site):
        assert await waived(site) == 2
        await rolled_back(site)
        site.app = app_with({2})  # mended, as it seems
        await site.begin("0001", again=True)
        await site.run("0001")
        return await phase_of(site)

    assert at_table(play, app_with({1, 2})) == "blocked"


def test_a_waiver_does_not_cover_a_failure_of_the_rollback():
    async def play(site):
        assert await waived(site) == 1
        await steps.resume(site.app, site.aws, "0001")
        await site.run("0001")
        key = {"PK": {"S": "ORDER#1"}, "SK": {"S": "ORDER"}}
        labelled = {**key, "number": {"N": "1"}, "label": {"S": "1"}}
        await site.aws.dynamodb.put_item(TableName="Shop", Item=labelled)
        await rolled_back(site)
        return await phase_of(site)

    assert at_table(play, app_with({1}, {1})) == "blocked"


def test_the_last_old_write_does_not_become_older_and_counts_in_a_run_that_began_anew():
    async def play(site):
        book = await open_book(site.app, site.aws)
        one, two = (OldWrites(book.store, "0001") for _ in range(2))
        state = State("0001", phase="ready", run=1)
        two.count(state, 1_000.0)
        one.count(state, 90_000.0)
        await one.flush()
        await two.flush()
        (rate,) = await one.read(1)
        later = OldWrites(book.store, "0001")
        return rate.last, rate.writes, await later.last_before_switch(2)

    assert at_table(play, app_with(())) == (90_000.0, 2, 90_000.0)
