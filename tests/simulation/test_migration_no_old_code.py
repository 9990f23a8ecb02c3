"""People say that no old code writes any more: old items go at once, and a write there stops it.

What they say is not believed: each old item goes IF it is exactly as agreed, and what is seen there
later is left where it is, until people decide.
"""

import anyio
import pytest

from streamkit.errors import ConfigurationError
from streamkit.migrate.book.course import after_resume
from streamkit.migrate.book.errors import ErrorBook, error_id
from streamkit.migrate.book.state import State
from streamkit.migrate.book.state_book import StateBook, open_book
from streamkit.model.copies import COPY, PAIR
from streamkit.testing.world import Process
from tests.simulation.migrating import Profile, Stats
from tests.simulation.stepping import AT_ONCE, step_of
from tests.simulation.test_migration_adversary import turned, work_of
from tests.simulation.test_migration_old_writers import (
    DAY,
    OLD_ORDERS,
    UPDATED,
    WAYS,
    new,
    nothing,
    old,
    play,
    rekey,
    split,
    updates_and_deletes,
)
from tests.simulation.test_migration_rows import run, site_of


async def state_of(site):
    return await (await open_book(site.app, site.aws)).read("0001")


async def visited_at_once(site, entity, phase):
    """Look at an item as the pass of a phase does in which old items go at once."""
    work = work_of(site, phase, declared=1.0)
    key = entity.item_key.wire(site.schema)
    step = {"contracting": "contract", "closing": "close"}[phase]
    return await work.families.settle(key, step=step)


@pytest.mark.parametrize("way", WAYS)
def test_old_items_go_at_once_where_no_old_code_writes(way):
    app = WAYS[way]
    items = [Profile(name=f"u{n}", click=n) for n in range(3)] if "split" in way else OLD_ORDERS

    async def then(site):
        began = site.world.clock.time()
        state = await site.run(AT_ONCE)
        stored = site.world.items(app.table)
        return state, site.world.clock.time() - began, site.left(), stored

    state, seconds, left, stored = play(app, items, nothing, then)
    assert (state.phase, state.note) == ("done", "")
    assert seconds < DAY / 24
    assert not [item for item in stored if "#pair#" in item["PK"]["S"]]
    assert not any(COPY in item for item in left)
    if "split" in way:
        assert not [i for i in left if i["SK"]["S"] == "#METADATA" and "click" in i]
        assert not [i for i in left if i["SK"]["S"] == "#METADATA" and PAIR in i]
    else:
        assert not [i for i in left if i["SK"]["S"].startswith("ORDER")]


def test_what_old_code_wrote_yesterday_or_a_minute_ago_does_not_hold_it_back():
    async def then(site):
        with pytest.raises(ConfigurationError, match="24 h"):
            await site.step("contract")
        state = await site.run(AT_ONCE)
        return state.phase, [await site.get(new(n)) for n in UPDATED]

    phase, items = play(rekey(), OLD_ORDERS, updates_and_deletes, then, following=True)
    assert phase == "done"
    assert all(item["note"] == {"S": "by old code"} for item in items)


def test_what_no_process_had_followed_before_is_carried_first():
    async def then(site):
        await anyio.sleep(1)  # a write in the very second in which people speak counts as later
        return await site.run(AT_ONCE), await site.get(new(0)), await site.get(new(5))

    state, carried, deleted = play(rekey(), OLD_ORDERS, updates_and_deletes, then)
    assert (state.phase, deleted) == ("done", None)
    assert carried["note"] == {"S": "by old code"}


def test_a_write_after_people_said_that_none_comes_is_seen_however_far_ahead_their_clock_was():
    async def then(site):
        site.ahead = 420
        await site.step(AT_ONCE)
        site.ahead = 0
        await anyio.sleep(2)
        await updates_and_deletes(site)
        return (await site.live(Process("one"), stay=False)).phase

    assert play(rekey(), OLD_ORDERS, nothing, then) == "soaking"


def test_a_write_while_items_are_compared_leads_back_to_soaking_and_nothing_goes():
    async def then(site):
        await site.step(AT_ONCE)
        await anyio.sleep(2)
        await updates_and_deletes(site)
        state = await site.live(Process("one"), stay=False)
        return state, await site.get(old(9)), await site.get(new(0))

    state, there, carried = play(rekey(), OLD_ORDERS, nothing, then)
    assert (state.phase, state.declared) == ("soaking", 0.0)
    assert "old code wrote item" in state.note
    assert there is not None
    assert carried["note"] == {"S": "by old code"}


WRITES = {
    "an update before it goes": ("before", lambda site: site.update(*_NOTE)),
    "a delete before it goes": ("before", lambda site: site.delete(old(2))),
    "a put where it was": ("after", lambda site: site.put(old(2))),
    "an update where it was": ("after", lambda site: site.update(*_NOTE)),
}
_NOTE = (old(2), "SET note = :v", {"S": "late"})


async def stopped_by(moment, write, site):
    """Let old code write while old items go; return the state, and the item then and at the end."""
    one = old(2)
    async with site.lived_in():
        await site.step(AT_ONCE)
        while (await state_of(site)).does != "contracting":
            await anyio.sleep(0.1)
        while moment == "after" and await site.get(one) is not None:
            await anyio.sleep(0.1)
        await write(site)
        with anyio.fail_after(600):
            while not (stopped := await state_of(site)).paused:
                await anyio.sleep(0.1)
        at_stop = await site.get(one)
        errors = await site.errors()
        if errors:
            await site.delete(one)
            assert await site.retry() == (len(errors), 0)
        await site.step("resume")
        with anyio.fail_after(3600):
            while (await state_of(site)).phase != "closing":
                await anyio.sleep(1)
        await anyio.sleep(600)  # stubs are watched for a day
    return stopped, at_stop, errors, await state_of(site)


@pytest.mark.parametrize(
    ("what", "ahead"), [*((what, 0) for what in WRITES), ("an update before it goes", -420)]
)
def test_a_write_of_old_code_stops_it_by_its_name_and_a_resume_goes_on_with_stubs(what, ahead):
    moment, write = WRITES[what]

    async def then(site):
        site.ahead = ahead
        name = error_id(old(2).item_key.wire(site.schema))
        *found, ended = await stopped_by(moment, write, site)
        return name, *found, ended, await site.get(old(2)), await site.get(new(2))

    name, stopped, at_stop, errors, ended, gone, there = play(rekey(), OLD_ORDERS, nothing, then)
    assert name in stopped.note
    assert "--old-code none" in stopped.note
    assert "streamkit migrate resume" in stopped.note
    assert (at_stop is None) == ("delete" in what)
    assert errors == (["late"] if moment == "after" else [])
    assert (ended.phase, ended.declared) == ("closing", 0.0)
    assert gone is None or "status" not in gone
    if moment == "before":
        assert (there is None) == ("delete" in what)
        assert there is None or there["note"] == {"S": "late"}


def test_an_old_item_goes_only_while_it_is_exactly_what_was_agreed(monkeypatch):
    async def then():
        async with site_of(rekey()) as site:
            await site.put(old(1))
            await turned(site, old(1))
            site.meanwhile(monkeypatch, "transact", lambda: site.set_status(old(1), "PAID"))
            await visited_at_once(site, old(1), "contracting")
            return await site.get(old(1)), await site.get(new(1))

    there, carried = run(then)
    assert (there["status"], carried["status"]) == ({"S": "PAID"}, {"S": "PAID"})


def test_what_is_put_where_an_old_item_was_is_not_carried_over_what_new_code_did_since():
    async def then():
        async with site_of(rekey()) as site:
            await site.put(old(1))
            await turned(site, old(1))
            await visited_at_once(site, old(1), "contracting")
            gone = await site.get(old(1))
            await site.put(old(1))
            await site.delete(new(1))
            tally = await visited_at_once(site, old(1), "closing")
            return gone, tally.errors, await site.get(old(1)), await site.get(new(1))

    gone, errors, there, back = run(then)
    assert (gone, errors, back) == (None, 1, None)
    assert there is not None


@pytest.mark.parametrize("phase", ["contracting", "closing"])
def test_what_waits_for_people_where_an_old_item_was_still_does_so_after_the_word_was_taken_back(
    phase,
):
    """The record went with the item, so nothing says that new code has deleted the new one since."""

    async def then():
        async with site_of(rekey()) as site:
            await site.put(old(1))
            await turned(site, old(1))
            await visited_at_once(site, old(1), "contracting")
            await site.put(old(1))
            await site.delete(new(1))
            stopped = State("0001", phase=phase, declared=1.0, paused=True, note="old code wrote")
            later = after_resume(stopped, "")
            work = work_of(site, phase, declared=later.declared, bare=later.bare)
            key = old(1).item_key.wire(site.schema)
            tally = await work.families.settle(key, step="contract")
            kinds = [error.kind for error in await work.failed.book.open()]
            return (
                later.at_once,
                tally.errors,
                kinds,
                await site.get(old(1)),
                await site.get(new(1)),
            )

    at_once, errors, kinds, there, back = run(then)
    assert (at_once, errors, kinds, back) == (False, 1, ["late"], None)
    assert there is not None


def test_a_late_write_is_told_by_when_it_was_seen_whatever_change_led_to_it():
    """One look carries several writes, and the change that led to it may be an earlier one."""

    async def then():
        async with site_of(rekey()) as site:
            await site.put(old(1))
            await turned(site, old(1))
            await anyio.sleep(3600)
            declared = site.world.clock.time()
            await site.set_status(old(1), "PAID")
            work = work_of(site, "contracting", declared=declared)
            key = old(1).item_key.wire(site.schema)
            await work.families.settle(key, at=declared - 60)
            errors = ErrorBook(
                StateBook(site.aws.dynamodb, site.tables.control, site.app.name).store, "0001"
            )
            return declared, await errors.last_written(), error_id(key)

    declared, (name, at), wanted = run(then)
    assert at >= round(declared)
    assert name == wanted


def test_fields_that_old_code_writes_again_after_a_split_wait_for_people():
    async def then():
        async with site_of(split()) as site:
            profile = Profile(name="u1", click=1)
            await site.put(profile)
            await turned(site, profile)
            await visited_at_once(site, profile, "contracting")
            rest = await site.get(profile)
            quiet = await visited_at_once(site, profile, "closing")
            await site.set(profile, "click", {"N": "8"})
            tally = await visited_at_once(site, profile, "closing")
            return rest, quiet.errors, tally.errors, await site.get(Stats(name="u1"))

    rest, quiet, errors, part = run(then)
    assert "click" not in rest
    assert (quiet, errors) == (0, 1)
    assert part["click"] == {"N": "1"}


@pytest.mark.parametrize("by_old_code", [False, True])
def test_an_item_that_new_code_makes_together_with_its_part_is_no_write_of_old_code(by_old_code):
    """An application makes new items all day: else a split could never be contracted."""
    item = Profile(name="u1", click=4 if by_old_code else None)

    async def then():
        async with site_of(split()) as site:
            if not by_old_code:
                await site.put(Stats(name="u1", click=4))
            await site.put(item)
            work, key = work_of(site, "soaking"), item.item_key.wire(site.schema)
            await work.families.settle(key, at=site.world.clock.time())
            there = [await site.get(item), await site.get(Stats(name="u1"))]
            return there, await work.failed.book.last_written()

    both, written = run(then)
    assert [one["click"] for one in both] == [{"N": "4"}] * 2
    assert (written is not None) == by_old_code


def test_an_item_of_a_split_that_is_put_without_what_was_moved_out_loses_its_part():
    """Old code might have put it: so new code has to update it, as the documentation says."""

    async def then():
        async with site_of(split()) as site:
            await site.put(Profile(name="u1", click=1))
            await turned(site, Profile(name="u1"))
            parts = []
            for write in (
                site.set(Profile(name="u1"), "city", {"S": "y"}),
                site.put(Profile(name="u1")),
            ):
                await write
                key = Profile(name="u1").item_key.wire(site.schema)
                await work_of(site, "soaking").families.settle(key)
                parts.append(await site.get(Stats(name="u1")))
            return parts

    updated, put = run(then)
    assert (updated["click"], put) == ({"N": "1"}, None)


def test_no_old_code_and_another_release_anyway_are_not_said_together():
    async def then(site):
        with pytest.raises(ConfigurationError, match="say one"):
            await step_of(AT_ONCE)(site.app, site.aws, "0001", anyway="so be it")
        await site.step("contract")
        with pytest.raises(ConfigurationError, match="leaves stubs"):
            await site.step(AT_ONCE)

    play(rekey(), OLD_ORDERS, nothing, then)


def test_what_a_process_may_write_changes_when_stubs_are_left_again():
    ending = State("0001", mode="rekey", phase="contracting", declared=5.0)
    comparing = State("0001", mode="rekey", phase="contracting", stage="comparing", declared=5.0)
    assert (ending.at_once, comparing.at_once) == (True, False)
    assert ending.course != State("0001", mode="rekey", phase="contracting").course
