"""Old and new code write side by side after the switch, as in every rolling deploy.

What one side alone has written is carried to the other, field by field, whether or not a process
followed. The same field with two values waits for a person, and `contract` takes nothing of it.
"""

from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial

import anyio
import pytest

from streamkit import App, Entity, TableShape
from streamkit.core.table_shape import entities_of
from streamkit.core.tables import survey
from streamkit.errors import ConfigurationError
from streamkit.migrate.book.errors import Reason, error_id
from streamkit.migrate.book.state import State
from streamkit.migrate.book.state_book import StateBook, open_book
from streamkit.migrate.verify.mending import list_errors, retry_errors, waive_errors
from streamkit.migrate.verify.verifying import verify_migration
from streamkit.model.copies import COPY, PAIR
from streamkit.testing.loop import run_virtually
from streamkit.testing.world import Process, World
from tests.simulation import migrating
from tests.simulation.migrating import OldOrder, Order, Profile, Stats
from tests.simulation.test_migration_adversary import (
    Padded,
    alike,
    turned,
    visited,
    work_of,
)
from tests.simulation.test_migration_freezes import Site
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

    async def retry(self, take=""):
        clock = self.world.clock
        return await retry_errors(self.app, self.aws, "0001", take=take, clock=clock)

    async def waive(self):
        names = {error.id for error in await list_errors(self.app, self.aws, "0001")}
        return await waive_errors(self.app, self.aws, "0001", names, "new is right")

    async def run_until_paused(self):
        """Run the migration until it waits for people."""
        book = await open_book(self.app, self.aws)
        with anyio.fail_after(600):
            async with anyio.create_task_group() as group:
                group.start_soon(partial(self.live, Process("waits"), stay=False))
                while not (await book.read("0001")).waits:
                    await anyio.sleep(1)
                group.cancel_scope.cancel()

    @asynccontextmanager
    async def lived_in(self):
        """Let a process stay."""
        async with anyio.create_task_group() as group:
            group.start_soon(partial(self.live, Process("stays"), stay=True))
            yield
            group.cancel_scope.cancel()

    async def meanwhile(self, write, *, following):
        """Let the application write, while a process follows or none does."""
        if not following:
            await write(self)
            return
        async with self.lived_in():
            await anyio.sleep(30)
            await write(self)
            await anyio.sleep(30)


def play(app, items, write, then, *, following=False, until="soaking"):
    """Migrate and switch, let the application write, and go on with `then`; return what it does.

    With `until="ready"` it is not switched.
    """

    async def main():
        world = World.create(3)
        async with world.clients() as aws:
            for table in {app.table, app.migrations["0001"].to or app.table}:
                await TableShape().create(aws.dynamodb, table, entities_of(app))
            site = Overlap(app, world, aws, (await survey(app, aws)).table)
            await site.put(*items)
            await anyio.sleep(900)
            assert (await site.run("apply")).phase == "ready"
            if until == "soaking":
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
def test_what_old_code_alone_writes_and_deletes_after_the_switch_is_carried(app, following):
    async def then(site):
        if following:
            with pytest.raises(ConfigurationError, match="24 h"):
                await site.step("contract")
        else:
            state = await site.run("contract")
            assert (state.phase, "24 h" in state.note) == ("soaking", True)
        assert await site.errors() == []
        for number in range(ITEMS):
            there = await site.get(new(number), table=site.there)
            assert (there is None) == (number in DELETED)
            assert there is None or ("note" in there) == (number in UPDATED)
        await anyio.sleep(DAY)
        state = await site.run("contract")
        assert (state.phase, state.note) == ("done", "")
        left = {i["SK"]["S"] for i in (*site.left(), *site.world.items(site.there))}
        left = {sk for sk in left if "ORDER" in sk}
        assert left == {f"#ORDER#{number}" for number in range(ITEMS) if number not in DELETED}
        assert not any(COPY in item for item in site.world.items(site.there))
        assert not any("#pair#" in i["PK"]["S"] for i in site.world.items(app.table))

    play(app, OLD_ORDERS, updates_and_deletes, then, following=following)


async def different_fields(site):
    await site.update(old(1), "SET note = :v", {"S": "by old code"})
    await site.update(new(1), "SET extra = :v", {"S": "by new code"}, table=site.there)


@ways(("reverse", "unseen"), ("to", "followed"), ("no way back", "unseen"))
def test_different_fields_of_one_item_are_carried_both_ways(app, following):
    async def then(site):
        await site.run("contract") if not following else None
        assert await site.errors() == []
        there, here = await site.get(new(1), table=site.there), await site.get(old(1))
        assert (there["note"]["S"], there["extra"]["S"]) == ("by old code", "by new code")
        assert here["note"] == {"S": "by old code"}

    play(app, OLD_ORDERS, different_fields, then, following=following)


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
@pytest.mark.parametrize("side", ["old", "new"])
def test_of_two_writers_none_wins_until_a_person_decides(app, following, side):
    async def then(site):
        if not following:
            await site.run("contract")
        assert await site.retry() == (0, 4)
        assert await site.errors() == 4 * ["conflict"]
        assert await site.get(new(1), table=site.there) is None
        assert (await site.get(old(1)))["status"] == {"S": "PAID"}
        assert (await site.get(old(2)))["note"] == {"S": "by old code"}
        assert (await site.get(new(2), table=site.there))["note"] == {"S": "by new code"}
        assert await site.get(old(3)) is None
        assert await site.get(old(4)) is None
        with pytest.raises(ConfigurationError, match=r"4 items.*--take"):
            await site.step("contract")
        assert await site.waive() == 0
        assert await site.retry(take=side) == (4, 0)
        found = [await site.get(new(number), table=site.there) for number in (1, 2, 3, 4)]
        if side == "old":
            assert [one and one["status"]["S"] for one in found] == ["PAID", "NEW", None, None]
            assert found[1]["note"] == {"S": "by old code"}
        else:
            assert [one and one["status"]["S"] for one in found] == [None, "NEW", "NEW", "PAID"]
            assert {one["note"]["S"] for one in found[1:3]} == {"by new code"}
        await anyio.sleep(DAY + 3600)
        assert (await site.run("contract")).phase == "done"

    play(app, OLD_ORDERS, both_write, then, following=following)


def test_a_decision_is_about_what_was_shown_and_about_nothing_that_is_written_later():
    async def then(site):
        assert (await site.run("contract")).phase == "soaking"
        await site.update(old(2), "SET note = :v", {"S": "once more"})
        with pytest.raises(ConfigurationError, match="since they were shown"):
            await site.retry(take="new")
        assert (await site.get(old(2)))["note"] == {"S": "once more"}

    play(rekey(), OLD_ORDERS, both_write, then)


def test_a_decision_that_comes_too_late_leaves_one_item_as_it_is_and_decides_all_others():
    async def then(site):
        assert (await site.run("contract")).phase == "soaking"
        await site.update(old(2), "SET note = :v", {"S": "once more"})
        with pytest.raises(ConfigurationError, match=r"retry.*\(3 others are right now\)"):
            await site.retry(take="new")
        assert await site.errors() == ["conflict"]
        assert await site.retry() == (0, 1)
        assert await site.retry(take="new") == (1, 0)
        assert (await site.get(new(2)))["note"] == {"S": "by new code"}
        await anyio.sleep(DAY + 3600)
        assert (await site.run("contract")).phase == "done"

    play(rekey(), OLD_ORDERS, both_write, then)


PROFILES = [Profile(name=f"u{number}", click=number) for number in range(4)]


async def clicks(site):
    await site.update(PROFILES[1], "SET click = :v", {"N": "8"})
    await site.update(PROFILES[2], "SET city = :v", {"S": "both write it"})
    await site.update(PROFILES[3], "SET click = :v", {"N": "7"})
    await site.update(Stats(name="u3"), "SET click = :v", {"N": "9"})


@ways(("split", "unseen"), ("split", "followed"), ("split, no way back", "unseen"))
def test_fields_that_were_moved_out_are_settled_with_their_parts(app, following):
    async def then(site):
        if not following:
            assert (await site.run("contract")).phase == "soaking"
        assert await site.errors() == ["conflict"]
        assert (await site.get(Stats(name="u1")))["click"] == {"N": "8"}
        one = site.app.migrations["0001"]
        found = await verify_migration(site.app, site.aws, one, clock=site.world.clock)
        assert [one.kind for one in found.different] == ["conflict"]
        assert await site.retry(take="new") == (1, 0)
        await anyio.sleep(DAY)
        assert (await site.run("contract")).phase == "done"
        clicks = {i["name"]["S"]: i["click"]["N"] for i in site.left() if "#STATS" in i["SK"]["S"]}
        assert clicks == {"u0": "0", "u1": "8", "u2": "2", "u3": "9"}
        assert not [i for i in site.left() if "#STATS" not in i["SK"]["S"] and "click" in i]

    play(app, PROFILES, clicks, then, following=following)


async def deletes(site):
    for number in DELETED:
        await site.delete(old(number))


@pytest.mark.parametrize("to", [None, "New"])
def test_a_delete_of_old_code_that_the_stream_has_forgotten_is_found_by_its_record(to):
    async def then(site):
        await anyio.sleep(26 * 3600)
        assert (await site.run("contract")).phase == "soaking"
        assert len(site.left()) == (10 - 3) * (1 if to else 2)

    play(rekey(reverse=False, to=to), OLD_ORDERS, deletes, then)


def test_a_rollback_keeps_what_either_side_has_written():
    async def then(site):
        state = await site.run("rollback")
        assert state.phase == "rolled back"
        left = {i["SK"]["S"]: i.get("note", {"S": ""})["S"] for i in site.left()}
        assert left == {
            f"ORDER#{number}": "by old code" if number in UPDATED else ""
            for number in range(ITEMS)
            if number not in DELETED
        }
        assert not [i for i in site.left() if {COPY, PAIR} & i.keys()]

    play(rekey(), OLD_ORDERS, updates_and_deletes, then)


def test_a_rollback_of_a_split_leaves_no_mark_in_an_item_whose_part_new_code_deleted():
    async def deleted(site):
        await site.delete(Stats(name="ann"))

    async def then(site):
        after = await site.run("rollback")
        return after.phase, [await site.get(Profile(name=name)) for name in ("ann", "bob")]

    items = [Profile(name=name, click=1) for name in ("ann", "bob")]
    phase, (ann, bob) = play(split(), items, deleted, then)
    assert (phase, "click" in ann, bob["click"]) == ("rolled back", False, {"N": "1"})
    assert PAIR not in ann.keys() | bob.keys()


async def written_by_old_code_twice():
    """Let old code write what new code has not, and then what it has; without a way back."""
    async with site_of(rekey(reverse=False)) as site:
        await site.put(old(1))
        await turned(site, old(1))
        await site.set_status(new(1), "BY NEW CODE")
        await site.set(old(1), "note", {"S": "by old code"})
        carried = await visited(site, old(1), "soaking", "forward")
        there = await site.get(new(1))
        await site.set_status(old(1), "BY OLD CODE")
        refused = await visited(site, old(1), "soaking", "forward")
        return carried.errors, there, refused.errors, await site.get(new(1))


def test_without_a_way_back_what_new_code_wrote_stays_unseen_by_old_code():
    carried, there, refused, kept = run(written_by_old_code_twice)
    assert (carried, there["note"], refused) == (0, {"S": "by old code"}, 1)
    assert there["status"] == kept["status"] == {"S": "BY NEW CODE"}


async def written_by_old_code_where_reverse_brings_nothing_back():
    """Let new code write what `reverse=` leaves out, and old code the same later."""
    async with site_of(rekey()) as site:
        await site.put(old(1))
        await turned(site, old(1))
        await site.set(new(1), "note", {"S": "by new code"})
        looks = [await visited(site, old(1), "soaking", "forward") for _ in range(2)]
        await site.set(old(1), "note", {"S": "by old code"})
        refused = await visited(site, old(1), "soaking", "forward")
        return looks[1].changed, refused.errors, await site.get(new(1))


def test_what_reverse_does_not_bring_back_stays_unseen_by_old_code():
    again, refused, kept = run(written_by_old_code_where_reverse_brings_nothing_back)
    assert (again, refused, kept["note"]) == (0, 1, {"S": "by new code"})


async def waived_and_then_in_conflict():
    async with site_of(rekey()) as site:
        book = work_of(site, "soaking").families.failed.book
        key = old(1).item_key.wire(site.schema)
        await book.add(key, Reason("transform", "it raised"), 1.0)
        await book.waive(error_id(key), "so be it")
        before = await book.open()
        await book.add(key, Reason("conflict", "both wrote it"), 2.0, shown="x")
        return before, [error.kind for error in await book.open()]


def test_a_waiver_of_one_failure_is_none_of_a_conflict():
    assert run(waived_and_then_in_conflict) == ([], ["conflict"])


# -- stubs -----------------------------------------------------------------------------------------


async def stubbed(write):
    """Leave a stub of an old item, let old code write it, and look at the family once more."""
    async with site_of(rekey()) as site:
        await site.put(old(1))
        await turned(site, old(1))
        await visited(site, old(1), "contracting", "forward")
        stub = await site.get(old(1))
        await write(site)
        tally = await visited(site, old(1), "closing", "forward")
        return stub, tally, await site.get(old(1)), await site.get(new(1))


def test_a_stub_is_a_key_and_a_stamp_and_what_old_code_updates_there_is_carried():
    async def write(site):
        await site.set_status(old(1), "PAID")

    stub, tally, again, there = run(stubbed, write)
    assert {name for name in stub if not name.startswith("_sk_")} == {"PK", "SK"}
    assert (tally.errors, there["status"]) == (0, {"S": "PAID"})
    assert "status" not in again


def test_what_old_code_deletes_or_puts_at_a_stub_is_carried():
    async def put(site):
        await site.put(old(1).model_copy(update={"status": "SENT"}))

    async def delete(site):
        await site.delete(old(1))

    assert run(stubbed, put)[3]["status"] == {"S": "SENT"}
    assert run(stubbed, delete)[3] is None


async def closed_between_two_reads(monkeypatch):
    """Let another process close a family after its record was read, and before its old item is."""
    async with site_of(rekey()) as site:
        await site.put(old(1))
        await turned(site, old(1))
        await visited(site, old(1), "contracting", "forward")
        await site.set_status(new(1), "SENT")
        key = old(1).item_key.wire(site.schema)
        real, waiting = site.calls.get, [key]

        async def get(table, asked):
            if asked in waiting:
                waiting.clear()
                await visited(site, old(1), "closing", "forward")
            return await real(table, asked)

        monkeypatch.setattr(site.calls, "get", get)
        tally = await work_of(site, "closing").families.settle(key)
        return tally.errors, await site.get(old(1)), await site.get(new(1))


def test_a_family_that_was_closed_while_it_was_read_is_no_conflict(monkeypatch):
    errors, gone, there = run(closed_between_two_reads, monkeypatch)
    assert (errors, gone, there["status"]) == (0, None, {"S": "SENT"})


async def closes_while_old_code_writes(site):
    """Return the phase soon after a late write, and nearly and more than a day after it.

    In between a process looks once: it would have nothing to do, but the stream keeps a day.
    """
    book = await open_book(site.app, site.aws)
    phases = []
    async with site.lived_in():
        await site.step("contract")
        while (await book.read("0001")).phase != "contracting":
            await anyio.sleep(0.1)
        while (await book.read("0001")).stage == "comparing":
            await anyio.sleep(0.1)
        while (await site.get(old(2))) is not None and "status" in await site.get(old(2)):
            await anyio.sleep(0.1)
        await site.update(old(2), "SET note = :v", {"S": "late"})
        await anyio.sleep(300)
        phases.append((await book.read("0001")).phase)
    there = await site.get(new(2))
    await anyio.sleep(DAY / 2)
    async with site.lived_in():
        await anyio.sleep(300)
    await anyio.sleep(DAY / 2 - 1200)
    async with site.lived_in():
        for minutes in (7, 7):
            await anyio.sleep(minutes * 60)
            phases.append((await book.read("0001")).phase)
    return phases, there


async def nothing(site):
    pass


@pytest.mark.parametrize("ahead", [0, 420, -420])
def test_stubs_are_watched_until_old_code_has_written_none_for_a_day(ahead):
    async def by_wrong_clocks(site):
        site.ahead = ahead
        return await closes_while_old_code_writes(site)

    phases, there = play(rekey(), OLD_ORDERS, nothing, by_wrong_clocks)
    assert there["note"] == {"S": "late"}
    assert phases == ["closing", "closing", "done"]


@pytest.mark.parametrize("ahead", [420, -420])
def test_a_day_without_old_writes_is_a_day_of_the_table_whatever_clock_a_person_has(ahead):
    async def then(site):
        site.ahead = ahead
        await anyio.sleep(DAY - 300)
        with pytest.raises(ConfigurationError, match="23 h"):
            await site.step("contract")
        await anyio.sleep(600)
        await site.step("contract")
        return await site.live(Process("one"), stay=False)

    assert play(rekey(), OLD_ORDERS, updates_and_deletes, then, following=True).phase == "done"


# -- between a look and the act --------------------------------------------------------------------


def test_contract_takes_an_old_item_only_while_it_is_exactly_what_was_agreed(monkeypatch):
    async def then():
        async with site_of(rekey()) as site:
            await site.put(old(1))
            await turned(site, old(1))
            site.meanwhile(monkeypatch, "transact", lambda: site.set_status(old(1), "PAID"))
            await visited(site, old(1), "contracting", "forward")
            return await site.get(new(1))

    assert run(then)["status"] == {"S": "PAID"}


def test_contract_takes_fields_of_a_split_item_only_while_they_are_what_was_agreed(monkeypatch):
    async def then():
        async with site_of(split()) as site:
            await site.put(PROFILES[1])
            await turned(site, PROFILES[1])

            late = partial(site.set, PROFILES[1], "click", {"N": "8"})
            site.meanwhile(monkeypatch, "transact", late)
            await visited(site, PROFILES[1], "contracting", "forward")
            return await site.get(Stats(name="u1"))

    assert run(then)["click"] == {"N": "8"}


async def attribute_added_before(monkeypatch, *phases):
    """Let old code add an attribute that no entity names, just before the last phase's write."""
    async with site_of(rekey()) as site:
        await site.put(old(1))
        await turned(site, old(1))
        for phase in phases[:-1]:
            await visited(site, old(1), phase, "forward")
        late = partial(site.set, old(1), "unheard_of", {"S": "late"})
        site.meanwhile(monkeypatch, "transact", late)
        await visited(site, old(1), phases[-1], "forward")
        left = await site.get(old(1))
        if left is not None:
            await visited(site, old(1), "closing", "forward")
        return left, await site.get(new(1))


def test_an_attribute_of_an_unknown_name_is_seen_at_a_stub_and_lost_where_the_stub_goes(
    monkeypatch,
):
    """DynamoDB cannot ask that there is no other attribute; the page says what that may cost."""
    stub, there = run(attribute_added_before, monkeypatch, "contracting")
    assert stub["unheard_of"] == there["unheard_of"] == {"S": "late"}
    assert "status" not in stub
    stub, there = run(attribute_added_before, monkeypatch, "contracting", "closing")
    assert stub is None
    assert "unheard_of" not in there


# -- how many, and when ----------------------------------------------------------------------------


class Wide(Entity, pk="WIDE#{name}", sk="WIDE"):
    name: str
    parts: int = 0


class Part(Entity, pk="WIDE#{name}", sk="PART#{number:03d}"):
    name: str
    number: int


def parts_of(wide: Wide) -> list[Part]:
    return [Part(name=wide.name, number=number) for number in range(wide.parts)]


async def taken_apart(parts):
    app = App("shop", table="Shop", entities=[Wide, Part])
    app.migration("0001", Wide, mode="split")(parts_of)
    async with site_of(app) as site:
        wide = Wide(name="w", parts=parts)
        await site.put(wide)
        key = wide.item_key.wire(site.schema)
        book = StateBook(site.aws.dynamodb, site.tables.control, "shop")
        begun = State("0001", mode="split", phase="scanning", run=1, records=True)
        await book.write(State("0001"), begun)
        work = work_of(site, "scanning", mode="split")
        tally = await work.families.settle(key)
        texts = [error.text for error in await work.families.failed.book.all()]
        made = [i for i in site.world.items("Shop") if "PART" in i["SK"]["S"]]
        return tally.changed, texts, len(made)


def test_a_family_of_98_items_moves_and_a_larger_one_is_an_error_that_says_so():
    assert run(taken_apart, 97) == (1, [], 97)
    changed, (text,), made = run(taken_apart, 98)
    assert (changed, made) == (0, 0)
    assert "it becomes 98 items" in text


@pytest.mark.parametrize(
    ("phase", "then"),
    [
        ("scanning", {"phase": "dropping", "direction": "back"}),
        ("soaking", {"phase": "contracting"}),
        ("soaking", {"phase": "done"}),
        ("soaking", {"run": 2}),
    ],
)
def test_a_process_that_stood_still_makes_no_pair_once_its_phase_is_over(phase, then):
    async def main():
        async with site_of(rekey()) as site:
            await site.put(old(1))
            book = StateBook(site.aws.dynamodb, site.tables.control, "shop")
            begun = State("0001", mode="rekey", phase=phase, run=1, records=True)
            begun = await book.write(State("0001"), begun)
            later = await book.write(begun, replace(begun, **then))
            late = work_of(site, phase, mode="rekey").families
            await late.settle(old(1).item_key.wire(site.schema))
            made = await site.get(new(1))
            if later.phase == "contracting":
                now = work_of(site, "contracting", mode="rekey").families
                await now.settle(old(1).item_key.wire(site.schema))
            return made, await site.get(new(1))

    made, after = run(main)
    assert made is None
    assert (after is not None) == (then == {"phase": "contracting"})


SHORT = [Padded(user="ann", number=f"{number}") for number in (7, 8)]


async def put_anew_and_inserted(site):
    await site.put(SHORT[0].model_copy(update={"status": "PAID"}), SHORT[1])


@pytest.mark.parametrize("until", ["ready", "soaking"])
def test_an_old_item_whose_key_looks_like_a_new_one_is_the_old_side_of_its_family_alone(until):
    async def then(site):
        found = await list_errors(site.app, site.aws, "0001")
        there = {i["SK"]["S"]: i["status"]["S"] for i in site.left()}
        return [error.kind for error in found], there

    writes = put_anew_and_inserted
    errors, there = play(alike(), SHORT[:1], writes, then, following=True, until=until)
    both = {"ORDER#7": "PAID", "ORDER#8": "NEW"}
    assert (errors, there) == ([], both | {"ORDER#000007": "PAID", "ORDER#000008": "NEW"})


@pytest.mark.parametrize("until", ["ready", "soaking"])
@pytest.mark.parametrize("shape", [old, new])
@pytest.mark.parametrize("to", [None, "New"])
def test_what_application_code_duplicates_with_all_marks_is_an_item_of_its_own(shape, until, to):
    async def duplicated(site):
        table = site.there if shape is new else site.app.table
        fields = shape(77).attributes(site.schema)
        item = {**await site.get(shape(1), table=table), **fields}
        await site.aws.dynamodb.put_item(TableName=table, Item=item)

    async def then(site):
        found = []
        for number in (1, 77):
            name = error_id(old(number).item_key.wire(site.schema))
            items = await site.get(old(number)), await site.get(new(number), table=site.there)
            stamps = [one[PAIR]["S"] for one in items]
            assert stamps == [f"0001:{name}:old", f"0001:{name}:new"]
            found.append([COPY not in one for one in items])
        return await site.errors(), found

    app = rekey(to=to)
    found = play(app, OLD_ORDERS, duplicated, then, following=True, until=until)
    assert found == ([], 2 * [[until == "ready", until != "ready"]])


async def duplicate(site, entity, other):
    item = {**await site.get(entity), **other.attributes(site.schema)}
    await site.aws.dynamodb.put_item(TableName=site.schema.name, Item=item)


def test_a_duplicate_of_an_old_item_that_the_stream_has_forgotten_is_found_by_contract():
    async def duplicated(site):
        await duplicate(site, old(1), old(77))

    async def then(site):
        await anyio.sleep(26 * 3600)
        await site.run("contract")
        found = await site.get(new(77))
        return found is not None and COPY not in found

    assert play(rekey(), OLD_ORDERS, duplicated, then)


def test_a_repair_does_not_delete_a_duplicate_of_a_new_item():
    async def duplicated(site):
        await duplicate(site, new(1), new(77))

    async def then(site):
        one = site.app.migrations["0001"]
        for _ in range(2):
            about = site.app, site.aws, one
            found = await verify_migration(*about, repair=True, clock=site.world.clock)
        return found.ok, await site.get(old(77)) is not None, await site.get(new(77)) is not None

    assert play(rekey(), OLD_ORDERS, duplicated, then, until="ready") == (True, True, True)
