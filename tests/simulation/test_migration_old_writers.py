"""Old code goes on writing at old keys after the switch, as it does in every rolling deploy.

Whatever it writes there is carried over, or is an open error that no retry removes; `contract`
deletes nothing of it. Which of two writers is right is for a person to say.
"""

from functools import partial

import anyio
import pytest

from streamkit import App, TableShape
from streamkit.core.table_shape import entities_of
from streamkit.core.tables import survey
from streamkit.errors import ConfigurationError
from streamkit.migrate import commands, steps
from streamkit.migrate.mending import list_errors, retry_errors, waive_errors
from streamkit.migrate.tallies import Tally
from streamkit.migrate.verifying import verify_migration
from streamkit.model.copies import BASE, COPY, FROM, MOVED, SOURCE
from streamkit.testing.loop import run_virtually
from streamkit.testing.world import Process, World
from tests.simulation import migrating
from tests.simulation.migrating import OldOrder, Order, Profile, Stats
from tests.simulation.test_migration_adversary import work_of
from tests.simulation.test_migration_freezes import Site
from tests.simulation.test_migration_rows import Site as Parts
from tests.simulation.test_migration_rows import run, site_of

DAY = 24 * 3600.0
UPDATED, DELETED = range(5), range(5, 8)
ITEMS = 10


def rekey(*, reverse=True, to=None):
    app = App("shop", table="Shop", entities=[Order, OldOrder])
    named = {"reverse": migrating.moved_back} if reverse else {}
    app.migration("0001", OldOrder, mode="rekey", to=to, **named)(migrating.moved)
    return app


def split(*, reverse=True):
    if reverse:
        return migrating.split()
    app = App("chat", table="Chat", entities=[Profile, Stats])
    app.migration("0001", Profile, mode="split")(migrating.stats)
    return app


class Overlap(Site):
    """A migration that was switched, and an application of which some processes run old code."""

    @property
    def there(self):
        """Where new items are."""
        return self.app.migrations["0001"].to or self.app.table

    async def run(self, name):
        """Do a step, and run it to its rest."""
        await self.step(name)
        with anyio.fail_after(1800):
            return await self.live(Process(name), stay=False)

    async def update(self, entity, text, value, *, table=""):
        await self.aws.dynamodb.update_item(
            TableName=table or self.app.table,
            Key=entity.item_key.wire(self.schema),
            UpdateExpression=text,
            ExpressionAttributeValues={":v": value},
        )

    async def delete(self, entity, *, table=""):
        key = entity.item_key.wire(self.schema)
        await self.aws.dynamodb.delete_item(TableName=table or self.app.table, Key=key)

    async def put_there(self, entity):
        item = entity.attributes(self.schema)
        await self.aws.dynamodb.put_item(TableName=self.there, Item=item)

    async def get(self, entity, *, table=""):
        key = entity.item_key.wire(self.schema)
        reply = await self.aws.dynamodb.get_item(TableName=table or self.app.table, Key=key)
        return reply.get("Item")

    async def errors(self):
        """Return the kinds of the open errors."""
        return sorted(e.kind for e in await list_errors(self.app, self.aws, "0001") if not e.waived)

    async def retry(self):
        return await retry_errors(self.app, self.aws, "0001", clock=self.world.clock)

    async def waive(self):
        names = {error.id for error in await list_errors(self.app, self.aws, "0001")}
        return await waive_errors(self.app, self.aws, "0001", names, "new is right")

    async def run_until_paused(self):
        """Run the migration until it waits for people."""
        book = await commands.open_book(self.app, self.aws)
        with anyio.fail_after(600):
            async with anyio.create_task_group() as group:
                group.start_soon(partial(self.live, Process("waits"), stay=False))
                while not (await book.read("0001")).waits:
                    await anyio.sleep(1)
                group.cancel_scope.cancel()

    async def meanwhile(self, write, *, following):
        """Let the application write, while a process follows or none does."""
        if not following:
            await write(self)
            return
        async with anyio.create_task_group() as group:
            process = Process("follower")
            group.start_soon(partial(self.live, process, stay=True))
            await anyio.sleep(30)
            await write(self)
            await anyio.sleep(30)
            group.cancel_scope.cancel()


def play(app, items, write, then, *, following=False):
    """Migrate and switch, let the application write, and go on with `then`; return what it does."""

    async def main():
        world = World.create(3)
        async with world.clients() as aws:
            for table in {app.table, app.migrations["0001"].to or app.table}:
                await TableShape().create(aws.dynamodb, table, entities_of(app))
            site = Overlap(app, world, aws, (await survey(app, aws)).table)
            await site.put(*items)
            await anyio.sleep(900)
            assert (await site.run("apply")).phase == "ready"
            assert (await site.run("switch")).phase == "soaking"
            await site.meanwhile(write, following=following)
            return await then(site)

    return run_virtually(main)


def old(number):
    return OldOrder(user="ann", order_id=f"{number}")


def new(number):
    return Order(user="ann", order_id=f"{number}")


OLD_ORDERS = [old(number) for number in range(ITEMS)]


async def updates_and_deletes(site):
    for number in UPDATED:
        await site.update(old(number), "SET note = :v", {"S": "by old code"})
    for number in DELETED:
        await site.delete(old(number))


WAYS = {
    "reverse": rekey(),
    "no way back": rekey(reverse=False),
    "to": rekey(to="New"),
    "to, no way back": rekey(reverse=False, to="New"),
    "split": split(),
    "split, no way back": split(reverse=False),
}


def ways(*chosen):
    """Try these ways, each with or without a process that follows the changes."""
    return pytest.mark.parametrize(
        ("app", "following"),
        [(WAYS[way], following == "followed") for way, following in chosen],
        ids=[f"{way}, {following}" for way, following in chosen],
    )


@ways(
    ("reverse", "unseen"),
    ("reverse", "followed"),
    ("no way back", "unseen"),
    ("to", "followed"),
    ("to, no way back", "unseen"),
)
def test_updates_and_deletes_of_old_code_after_the_switch_stay_open_until_a_person_decides(
    app, following
):
    async def then(site):
        if following:
            assert await site.errors() == 3 * ["deleted"] + 5 * ["late"]
            assert await site.retry() == (0, 8)
            with pytest.raises(ConfigurationError, match=r"8 items.*errors list"):
                await site.step("contract")
        else:
            state = await site.run("contract")
            assert state.phase == "soaking"
            assert "8 items" in state.note
            assert "errors list" in state.note
            assert await site.retry() == (0, 8)
        assert await site.errors() == 3 * ["deleted"] + 5 * ["late"]
        for number in UPDATED:
            assert (await site.get(old(number)))["note"] == {"S": "by old code"}
        for number in range(ITEMS):
            assert await site.get(new(number), table=site.there) is not None
        # A person decides for what is at the new keys, but old code wrote minutes ago.
        assert await site.waive() == 8
        with pytest.raises(ConfigurationError, match="24 h"):
            await site.step("contract")
        await anyio.sleep(DAY)
        state = await site.run("contract")
        assert (state.phase, state.note) == ("done", "")
        left = {i["SK"]["S"] for i in (*site.left(), *site.world.items(site.there))}
        left = {sk for sk in left if "ORDER" in sk}
        assert left == {f"#ORDER#{number}" for number in range(ITEMS)}
        for item in site.world.items(site.there):
            assert not {COPY, FROM, SOURCE, BASE} & item.keys()

    play(app, OLD_ORDERS, updates_and_deletes, then, following=following)


async def puts(site):
    await site.put(old(1).model_copy(update={"status": "PAID"}), old(2), old("fresh"))


@ways(("reverse", "followed"), ("to, no way back", "unseen"))
def test_a_put_of_old_code_is_carried_where_nothing_contradicts_it_and_else_stays_open(
    app, following
):
    async def then(site):
        if not following:
            assert (await site.run("contract")).phase == "soaking"
        assert await site.errors() == ["late"]
        assert await site.retry() == (0, 1)
        assert (await site.get(old(1)))["status"] == {"S": "PAID"}
        assert (await site.get(new(1), table=site.there))["status"] == {"S": "NEW"}
        fresh = await site.get(new("fresh"), table=site.there)
        assert FROM in fresh
        # What a person writes at the new key as it is at the old one is agreed, and no error.
        await site.update(new(1), "SET #s = :v".replace("#s", "note"), {"S": "x"}, table=site.there)
        assert await site.retry() == (0, 1)
        await site.put_there(new(1).model_copy(update={"status": "PAID"}))
        assert await site.retry() == (1, 0)
        assert BASE in await site.get(old(1))

    play(app, OLD_ORDERS, puts, then, following=following)


async def both_write(site):
    await site.delete(new(1), table=site.there)
    await site.put(old(1).model_copy(update={"status": "PAID"}))  # against a delete
    await site.update(new(2), "SET note = :v", {"S": "by new code"}, table=site.there)
    await site.update(old(2), "SET note = :v", {"S": "by old code"})
    await site.delete(old(3))
    await site.update(new(3), "SET note = :v", {"S": "by new code"}, table=site.there)
    await site.delete(old(4))
    await site.put_there(new(4).model_copy(update={"status": "PAID"}))


@ways(("reverse", "unseen"), ("to", "followed"), ("no way back", "unseen"))
def test_of_two_writers_none_wins(app, following):
    async def then(site):
        if not following:
            await site.run("contract")
        await site.retry()
        assert await site.errors() == ["deleted", "deleted", "late", "late"]
        assert await site.get(new(1), table=site.there) is None
        assert (await site.get(old(1)))["status"] == {"S": "PAID"}
        assert (await site.get(old(2)))["note"] == {"S": "by old code"}
        assert (await site.get(new(2), table=site.there))["note"] == {"S": "by new code"}
        assert await site.get(old(3)) is None
        assert await site.get(old(4)) is None
        with pytest.raises(ConfigurationError, match="4 items"):
            await site.step("contract")

    play(app, OLD_ORDERS, both_write, then, following=following)


PROFILES = [Profile(name=f"u{number}", click=number) for number in range(4)]


async def clicks(site):
    await site.update(PROFILES[1], "ADD click :v", {"N": "7"})
    await site.update(PROFILES[2], "SET city = :v", {"S": "both write it"})
    await site.update(PROFILES[3], "REMOVE click SET city = :v", {"S": "x"})


@ways(("split", "unseen"), ("split", "followed"), ("split, no way back", "unseen"))
def test_what_old_code_writes_to_fields_that_were_moved_out_stays_open(app, following):
    async def then(site):
        if not following:
            assert (await site.run("contract")).phase == "soaking"
        assert await site.errors() == ["late", "late"]
        assert await site.retry() == (0, 2)
        found = await verify_migration(
            site.app, site.aws, site.app.migrations["0001"], clock=site.world.clock
        )
        assert sorted(one.kind for one in found.different) == ["late", "late"]
        assert (await site.get(PROFILES[1]))["click"] == {"N": "8"}
        # It is written at its new place by hand: both agree.
        await site.update(Stats(name="u1"), "SET click = :v", {"N": "8"})
        assert (await site.retry())[0] == 1
        assert await site.waive() == 1
        await anyio.sleep(DAY)
        assert (await site.run("contract")).phase == "done"
        clicks = {i["name"]["S"]: i["click"]["N"] for i in site.left() if "#STATS" in i["SK"]["S"]}
        assert clicks == {"u0": "0", "u1": "8", "u2": "2", "u3": "3"}
        assert not [i for i in site.left() if {"click", MOVED} & i.keys() and BASE in i]

    play(app, PROFILES, clicks, then, following=following)


async def deletes(site):
    for number in DELETED:
        await site.delete(old(number))


@pytest.mark.parametrize("to", [None, "New"])
def test_a_delete_of_old_code_that_the_stream_has_forgotten_is_found_by_comparing(to):
    async def then(site):
        await anyio.sleep(26 * 3600)
        assert (await site.run("contract")).phase == "soaking"
        assert await site.errors() == 3 * ["deleted"]
        assert len(site.left()) == (10 - 3) + (0 if to else 10)

    play(rekey(reverse=False, to=to), OLD_ORDERS, deletes, then)


async def updates(site):
    await site.update(old(1), "SET note = :v", {"S": "by old code"})


def test_a_decision_is_about_what_was_shown_and_about_nothing_that_old_code_writes_later():
    async def then(site):
        assert (await site.run("contract")).phase == "soaking"
        assert await site.waive() == 1
        assert await site.errors() == []
        await site.update(old(1), "SET note = :v", {"S": "once more"})
        await anyio.sleep(DAY + 7200)
        assert (await site.run("contract")).phase == "soaking"
        assert await site.errors() == ["late"]
        assert (await site.get(old(1)))["note"] == {"S": "once more"}
        # Set back to what it was when both agreed: nothing is left to decide.
        await site.update(old(1), "REMOVE note ADD nothing :v", {"N": "0"})
        await site.update(old(1), "REMOVE nothing SET order_id = :v", {"S": "1"})
        assert await site.retry() == (1, 0)

    play(rekey(), OLD_ORDERS, updates, then)


def test_a_rollback_keeps_what_old_code_wrote_at_old_keys_where_new_code_wrote_nothing():
    async def then(site):
        await site.step("rollback")
        await site.run_until_paused()
        assert await site.errors() == 3 * ["deleted"]
        assert await site.waive() == 3
        await steps.resume(site.app, site.aws, "0001", by="op", clock=site.world.clock)
        assert (await site.live(Process("on"), stay=False)).phase == "rolled back"
        left = {i["SK"]["S"]: i.get("note", {"S": ""})["S"] for i in site.left()}
        assert left == {
            f"ORDER#{number}": "by old code" if number in UPDATED else "" for number in range(ITEMS)
        }
        assert not [i for i in site.left() if {COPY, FROM, SOURCE, BASE} & i.keys()]

    play(rekey(), OLD_ORDERS, updates_and_deletes, then)


# -- between a look and the act --------------------------------------------------------------------


async def written_between(monkeypatch, app, source, write):
    async with site_of(app) as site:
        await site.put(source)
        await site.pairs.forward(source.item_key.wire(site.schema), Tally(), switch=True)
        site.meanwhile(monkeypatch, "transact", lambda: write(site))
        tally = Tally()
        await work_of(site, "contracting").visit(await site.get(source), tally)
        return tally, await site.get(source)


def test_contract_deletes_an_old_item_only_while_it_is_exactly_what_was_carried(monkeypatch):
    async def write(site):
        await site.set_status(old(1), "PAID")

    tally, there = run(written_between, monkeypatch, rekey(), old(1), write)
    assert tally.errors == 1
    assert there["status"] == {"S": "PAID"}


def test_contract_takes_fields_of_a_split_item_only_while_they_are_exactly_what_was_carried(
    monkeypatch,
):
    async def write(site):
        await site.aws.dynamodb.update_item(
            TableName="Chat",
            Key=PROFILES[1].item_key.wire(site.schema),
            UpdateExpression="ADD click :v",
            ExpressionAttributeValues={":v": {"N": "7"}},
        )

    tally, there = run(written_between, monkeypatch, split(), PROFILES[1], write)
    assert tally.errors == 1
    assert there["click"] == {"N": "8"}


async def deleted_while_contracting():
    async with site_of(rekey(reverse=False)) as site:
        for number in (1, 2):
            await site.put(old(number))
            key = old(number).item_key.wire(site.schema)
            await site.pairs.forward(key, Tally(), switch=True)
        await site.delete(old(1))
        await work_of(site, "contracting").visit(await site.get(old(2)), Tally())
        tally = Tally()
        for number in (1, 2):
            await work_of(site, "contracting", stage="closing").visit(
                await site.get(new(number)), tally
            )
        return tally, [await site.get(new(number)) for number in (1, 2)], await site.get(old(2))


def test_what_old_code_deleted_while_old_items_went_is_told_from_what_contract_deleted():
    tally, (bereft, rid), gone = run(deleted_while_contracting)
    assert tally.errors == 1
    assert gone is None
    assert SOURCE in bereft
    assert SOURCE not in rid


async def put_and_deleted_by_new_code(site):
    site.paired = await site.get(new(1), table=site.there)
    await site.put_there(new(1))
    await site.delete(new(1), table=site.there)


async def contracted_after_a_change_was_followed_twice(site):
    key = new(1).item_key.wire(site.schema)
    tables = await survey(site.app, site.aws)
    work = work_of(Parts(site.app, site.world, site.aws, tables), "soaking")
    follow = partial(work.switched.backward, key, Tally(), old=site.paired)
    await follow()
    assert await site.get(old(1)) is None
    await site.put_there(new(1))
    await site.step("contract")
    await follow()  # a process was killed before it wrote down that it had
    found = await site.errors()
    with anyio.fail_after(1800):
        state = await site.live(Process("contract"), stay=False)
    return found, state.phase, await site.errors()


def test_contract_believes_an_error_only_once_all_that_was_written_is_followed():
    """What a change raises that is followed twice, the deletion behind it takes back."""
    write, then = put_and_deleted_by_new_code, contracted_after_a_change_was_followed_twice
    found, phase, left = play(rekey(), [old(1), old(2)], write, then)
    assert (found, phase, left) == (["deleted"], "done", [])
