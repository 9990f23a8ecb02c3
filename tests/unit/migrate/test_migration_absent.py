"""A release that lacks the file of a migration that is under way is told so, and not "no migration"."""

import json
from dataclasses import replace

from streamkit import App
from streamkit.core.tables import survey
from streamkit.migrate.book.state_book import TO_DO, open_book
from streamkit.migrate.operate import commands
from streamkit.migrate.operate.squashing import stamp
from streamkit.migrate.operate.status import list_migrations
from streamkit.operate.operations import operations
from tests.unit.migrate.test_migration_order import Site, at_table


async def standings(site):
    found = await commands.list_migrations(site.app, site.aws)
    return {one.id: (one.standing, one.phase) for one in found}


def rolled_back_release(site):
    """Return the same table as a release sees it that has no migration."""
    return Site(App("shop", table="Shop"), site.aws, site.world)


def test_a_migration_under_way_is_named_by_a_release_without_its_file():
    async def test(site):
        before = rolled_back_release(site)
        assert await standings(before) == {}
        assert await list_migrations(before.app, site.aws) == []
        await site.begin("0001")
        assert await standings(before) == {"0001": ("no file", "capturing")}
        (line,) = await list_migrations(before.app, site.aws, clock=site.world.clock)
        assert (line.migration, line.phase, line.note) == ("0001", "capturing", TO_DO)
        tables = await survey(before.app, site.aws)
        (shown,) = await operations(before.app, site.aws, tables, None, 0.0)
        assert (shown.name, shown.phase) == ("0001", "capturing")

    at_table(test)


def test_what_has_ended_is_not_missed_and_neither_is_what_is_known():
    async def test(site):
        before = rolled_back_release(site)
        await site.apply("0001")
        await stamp(site.app, site.aws, "0002", "by a script")
        await site.begin("0003")
        await site.roll_back("0003")
        await site.run("0003")
        assert await standings(before) == {}
        assert {one for one, _ in (await standings(site)).values()} == {"applied", "rolled back"}
        book = await open_book(site.app, site.aws)
        assert await book.begun() == {"0001", "0002", "0003"}

    at_table(test)


def test_a_migration_that_an_earlier_version_began_is_known_from_its_next_step_on():
    async def test(site):
        await site.begin("0001")
        book = await open_book(site.app, site.aws)
        fields = (await book.read("0001")).to_dict()
        del fields["listed"]
        written = book.store.space.update("migration", "0001")
        written.sets["state"] = {"S": json.dumps(fields)}
        await book.store.write(written)
        await book.store.write(book.store.space.delete("begun"))
        assert await standings(rolled_back_release(site)) == {}
        await book.change("0001", lambda state: replace(state, note="a step"))
        assert await standings(rolled_back_release(site)) == {"0001": ("no file", "capturing")}

    at_table(test)


def test_the_name_is_there_whenever_the_state_is(monkeypatch):
    async def test(site):
        book = await open_book(site.app, site.aws)
        sent = []

        async def counted(**request):
            sent.append(request["TransactItems"])
            return await send(**request)

        send = site.aws.dynamodb.transact_write_items
        monkeypatch.setattr(site.aws.dynamodb, "transact_write_items", counted)
        await site.begin("0001")
        (first,) = sent
        keys = [str(one.popitem()[1].get("Key", "")) for one in first]
        assert (
            sum("#begun" in key for key in keys) == sum("#migration#0001" in k for k in keys) == 1
        )
        await book.change("0001", lambda state: replace(state, note="a step"))
        assert len(sent) == 1  # it costs a transaction once

    at_table(test)
