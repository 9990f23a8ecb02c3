"""Commands that would undo what others did, or stop in the middle, are refused before they begin."""

import anyio
import pytest

from streamkit import App, Item, Remove, Set
from streamkit.cli.migration_found import describe_verified
from streamkit.core.table_shape import TableShape, entities_of
from streamkit.core.tables import survey
from streamkit.errors import ConfigurationError
from streamkit.migrate.book.limits import Limit
from streamkit.migrate.book.state_book import open_book
from streamkit.migrate.operate import commands, steps
from streamkit.migrate.operate.slices import run_slice
from streamkit.migrate.run.sampling import Wanted
from streamkit.migrate.verify.mending import retry_errors
from streamkit.migrate.verify.verifying import verify_migration
from streamkit.testing.loop import run_virtually
from streamkit.testing.world import World
from tests.simulation.test_migration_old_writers import DAY, Overlap, new, nothing, old, play, rekey
from tests.unit.migrate.test_migration_order import Order, User, at_table, labelled, user


def numbered(item: Item) -> Set[Order]:
    return Set(label=f"#{item['number']}")


def unlabelled(item: Item) -> Remove[Order]:
    return Remove("label")


def shop(**options):
    app = App("shop", table="Shop")
    app.migration("0001", Order, reverse=unlabelled, **options)(labelled)
    app.migration("0002", Order)(numbered)
    return app


def labels(site):
    return sorted(item["label"]["S"] for item in site.world.items("Shop") if "label" in item)


async def verified(site, number, **options):
    migration = site.app.migrations[number]
    return await verify_migration(site.app, site.aws, migration, clock=site.world.clock, **options)


# -- repairs ---------------------------------------------------------------------------------------


def test_a_repair_for_an_earlier_migration_is_refused_once_a_later_one_was_begun():
    async def test(site):
        await site.apply("0001")
        assert (await verified(site, "0001", repair=True)).ok
        await site.apply("0002")
        with pytest.raises(ConfigurationError, match=r"undo.*0002 \(done\).*repair for the later"):
            await verified(site, "0001", repair=True)
        with pytest.raises(ConfigurationError, match="undo"):
            await retry_errors(site.app, site.aws, "0001", clock=site.world.clock)
        assert not (await verified(site, "0001")).ok  # a look is free
        assert (await verified(site, "0002", repair=True)).ok
        return labels(site)

    assert at_table(test, shop()) == ["#0", "#1", "#2"]


def test_a_verification_says_which_later_migration_may_have_made_what_differs(capsys):
    async def test(site):
        await site.apply("0001")
        assert (await verified(site, "0001")).later == ""
        await site.apply("0002")
        return [await verified(site, number) for number in ("0001", "0002")]

    earlier, later = at_table(test, shop())
    assert [(one.ok, one.later) for one in (earlier, later)] == [(False, "0002"), (True, "")]
    assert earlier.to_dict()["later"] == "0002"
    describe_verified(earlier)
    assert "may be the work of migration 0002" in capsys.readouterr().out


def test_a_repair_is_not_refused_for_a_migration_of_other_items():
    app = App("shop", table="Shop")
    app.migration("0001", Order)(labelled)
    app.migration("0002", User)(user)

    async def test(site):
        await site.apply("0001")
        await site.apply("0002")
        assert (await verified(site, "0001", repair=True)).ok

    at_table(test, app)


# -- what a run begins with ------------------------------------------------------------------------


@pytest.mark.parametrize("again", [False, True], ids=["repeated", "after a rollback"])
def test_a_run_begins_without_the_limits_of_the_one_before(again):
    async def test(site):
        limit = Limit(max_errors=2.0, max_writes=700.0, max_reads=800.0)
        await site.begin("0001", limit=limit)
        await site.run("0001")
        if again:
            await site.roll_back("0001")
            await site.run("0001")
        state = await site.begin("0001", again=again)
        return state.max_errors, state.max_writes, state.max_reads

    assert at_table(test, shop(repeat=not again)) == (0.0, None, None)


def test_what_was_rolled_back_is_listed_as_such_also_when_its_function_was_mended():
    async def test(site):
        await site.apply("0001")
        await site.roll_back("0001")
        await site.run("0001")
        site.app = App("shop", table="Shop")
        site.app.migration("0001", Order, reverse=unlabelled)(numbered)
        return [one.standing for one in await commands.list_migrations(site.app, site.aws)]

    assert at_table(test, shop()) == ["rolled back"]


def test_more_segments_than_the_database_reads_are_refused():
    async def test(site):
        with pytest.raises(ConfigurationError, match="1,000,001 segments are too many"):
            await site.begin("0001", segments=1_000_001)
        with pytest.raises(ConfigurationError, match="never begun"):
            await steps.pause(site.app, site.aws, "0001")

    at_table(test, shop())


@pytest.mark.parametrize("share", [0.0001, 0.00001])
def test_a_small_sample_takes_no_more_segments_than_the_database_reads(share):
    async def test(site):
        await site.apply("0001")
        await verified(site, "0001", sample=Wanted(share=share))
        calls = [one.payload for one in site.world.calls]
        return max(one["TotalSegments"] for one in calls if "TotalSegments" in one)

    assert at_table(test, shop()) == min(1_000_000, round(16 / share))


# -- what moves ------------------------------------------------------------------------------------


def test_a_switch_is_refused_by_name_while_people_have_to_decide_about_an_item():
    app = rekey()

    async def main():
        world = World.create(3)
        async with world.clients() as aws:
            await TableShape().create(aws.dynamodb, app.table, entities_of(app))
            site = Overlap(app, world, aws, (await survey(app, aws)).table)
            await site.put(*[old(number) for number in range(3)])
            assert (await site.run("apply")).phase == "ready"
            async with site.lived_in():
                await anyio.sleep(30)
                await site.update(old(1), "SET note = :v", {"S": "a"})
                await site.update(new(1), "SET note = :v", {"S": "b"})
                await anyio.sleep(60)
            assert await site.errors() == ["conflict"]
            with pytest.raises(ConfigurationError, match=r"1 item is not right.*--take new"):
                await site.step("switch")
            book = await open_book(app, aws)
            assert (await book.read("0001")).phase == "ready"
            await site.retry("new")
            assert (await site.run("switch")).phase == "soaking"

    run_virtually(main)


def test_a_slice_says_that_stubs_are_watched_and_ends_at_once():
    async def then(site):
        await anyio.sleep(DAY)
        await site.step("contract")
        book = await open_book(site.app, site.aws)
        async with site.lived_in():
            while (await book.read("0001")).phase != "closing":
                await anyio.sleep(0.05)
            await site.update(old(1), "SET note = :v", {"S": "x"})
            await anyio.sleep(20)
        migration, clock = site.app.migrations["0001"], site.world.clock
        found = [await run_slice(site.app, site.aws, migration, 60.0, clock=clock)]
        await anyio.sleep(DAY)
        while not found[-1].done:
            found.append(await run_slice(site.app, site.aws, migration, 60.0, clock=clock))
        return found

    found = play(rekey(), [old(number) for number in range(3)], nothing, then)
    assert (found[0].phase, found[0].done, found[0].waits) == ("closing", False, True)
    assert found[-1].phase == "done"
    assert not any(one.waits for one in found[1:])
