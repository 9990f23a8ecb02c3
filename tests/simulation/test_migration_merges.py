"""Several items become one: killed or frozen at any call, written by old and new code on both sides.

A source that is deleted takes its fields with it, and nothing else; the new item goes when nothing is
left, and all sources go with it.
"""

import random
from collections import Counter
from functools import partial
from typing import Annotated

import anyio
import pytest

from streamkit import Aggregate, Count, Key, TableShape
from streamkit.core.table_shape import entities_of
from streamkit.core.tables import survey
from streamkit.errors import ConfigurationError
from streamkit.migrate.book.state_book import open_book
from streamkit.migrate.plan.planning import plan_migration
from streamkit.migrate.run.sampling import Wanted
from streamkit.migrate.verify.verifying import verify_migration
from streamkit.model.copies import COPY
from streamkit.progress.actions import CONTROL_PREFIX
from streamkit.testing import every_crash, every_freeze
from streamkit.testing.loop import run_virtually
from streamkit.testing.migrations import migrate
from streamkit.testing.world import Process, World
from tests.rigs import Rig
from tests.simulation.merging import Billing, Customer, Prefs, Profile, app_of_customers, sources
from tests.simulation.migrating import old_then_new
from tests.simulation.test_migration_old_writers import DAY, Overlap, play
from tests.simulation.test_migration_stops import SETTINGS, command, work

SAMPLE = 2
LIVES = {
    "to the end": (("apply", "switch", "contract"), "done"),
    "taken back after the switch": (("apply", "switch", "rollback"), "rolled back"),
    "taken back before the switch": (("apply", "rollback"), "rolled back"),
}


def values(item):
    """Return what an item says, without keys and our own attributes."""
    return {n: v["S"] for n, v in item.items() if n not in ("PK", "SK") and not n.startswith("_sk")}


def through(names, end, harness):
    """Take two customers, of whom one lacks a source, through commands."""
    harness.put(*sources("ann"), *sources("bob", prefs=False))
    clock = harness.world.clock
    for name in names:
        harness.operate(partial(command, harness.app, clock, name))
        harness.operate(partial(work, harness.app, clock, None))
    book = harness._run(open_book(harness.app, harness._aws))
    assert harness._run(book.read("0001")).phase == end
    items = [i for i in harness.items() if not i["PK"]["S"].startswith(CONTROL_PREFIX)]
    assert not any(COPY in item for item in items)
    assert not [i for i in harness.items() if "#pair#" in i["PK"]["S"]]
    found = sorted((values(item) for item in items), key=str)
    if end == "done":
        ann = {"user": "ann", "email": "ann@x", "city": "Bern", "theme": "dark", "card": "1234"}
        bob = {"user": "bob", "email": "bob@x", "city": "Bern", "card": "1234"}
        assert found == sorted((ann, bob), key=str)
        return
    both = [*sources("ann"), *sources("bob", prefs=False)]
    assert found == sorted((one.model_dump(exclude_none=True) for one in both), key=str)


def scenario_of(life):
    names, end = LIVES[life]
    return partial(through, names, end), lambda: Rig(
        app_of_customers(), shards=1, settings=SETTINGS
    )


@pytest.mark.parametrize("life", list(LIVES))
def test_a_merge_that_is_killed_at_any_call_comes_to_its_end(life):
    assert list(every_crash(*scenario_of(life), part="operation", sample=SAMPLE))


@pytest.mark.parametrize("life", list(LIVES))
def test_a_merge_that_stands_still_at_any_call_changes_nothing_later(life):
    assert list(every_freeze(*scenario_of(life), part="operation", sample=SAMPLE))


# -- old and new code ------------------------------------------------------------------------------

USERS = "abcdefgh"
FOUND = [one for user in USERS for one in sources(user)]


def there(site, user):
    """Return what each item of a customer says, by its sort key; a stub says nothing."""
    items = [i for i in site.left() if i["PK"]["S"] == f"CUSTOMER#{user}"]
    return {item["SK"]["S"]: values(item) for item in items}


async def set_(site, entity, name, value):
    await site.update(entity, f"SET {name} = :v", {"S": value})


async def one_side_alone(site):
    await set_(site, Profile(user="a"), "city", "Basel")
    await site.delete(Prefs(user="b"))
    await site.put(Billing(user="c", card="5678", vat="7%"))
    for kind in (Profile, Prefs, Billing):
        await site.delete(kind(user="d"))
    await site.delete(Customer(user="e"))
    await site.put(Customer(user="f", email="new@x"))
    await set_(site, Customer(user="g"), "card", "9999")


@pytest.mark.parametrize("following", [False, True])
def test_what_one_side_alone_writes_of_several_items_is_carried(following):
    async def then(site):
        if not following:
            assert (await site.run("contract")).phase == "soaking"
        assert await site.errors() == []
        assert there(site, "a")["CUSTOMER"]["city"] == "Basel"
        assert there(site, "b")["CUSTOMER"] == {
            "user": "b",
            "email": "b@x",
            "city": "Bern",
            "card": "1234",
        }
        assert there(site, "c")["CUSTOMER"]["card"] == "5678"
        assert there(site, "c")["CUSTOMER"]["vat"] == "7%"
        assert there(site, "d") == there(site, "e") == {}
        assert there(site, "f") == {
            "CUSTOMER": {"user": "f", "email": "new@x"},
            "PROFILE": {"user": "f", "email": "new@x"},
        }
        assert there(site, "g")["BILLING"] == {"user": "g", "card": "9999"}
        await anyio.sleep(DAY)
        assert (await site.run("contract")).phase == "done"
        assert {(i["PK"]["S"][-1], i["SK"]["S"]) for i in site.left()} == {
            (user, "CUSTOMER") for user in "abcfgh"
        }

    play(app_of_customers(), FOUND, one_side_alone, then, following=following)


async def both_sides(site):
    await site.delete(Prefs(user="a"))
    await set_(site, Customer(user="a"), "card", "9999")  # another item's field
    await site.delete(Prefs(user="b"))
    await set_(site, Customer(user="b"), "theme", "light")  # its own field
    await site.put(Billing(user="c", card="5678"))
    await set_(site, Customer(user="c"), "city", "Basel")
    await site.put(Billing(user="d", card="5678"))
    await set_(site, Customer(user="d"), "card", "9999")
    await set_(site, Profile(user="e"), "city", "Basel")
    await site.delete(Customer(user="e"))


@pytest.mark.parametrize("side", ["old", "new"])
@pytest.mark.parametrize("following", [False, True])
def test_a_source_that_goes_or_is_put_anew_is_in_conflict_with_changes_of_its_own_fields(
    following, side
):
    async def then(site):
        if not following:
            await site.run("contract")
        assert await site.retry() == (0, 3)
        assert await site.errors() == 3 * ["conflict"]
        assert there(site, "a").keys() == {"CUSTOMER", "PROFILE", "BILLING"}
        assert there(site, "a")["CUSTOMER"].keys() == {"user", "email", "city", "card"}
        assert there(site, "a")["BILLING"] == {"user": "a", "card": "9999"}
        assert there(site, "c")["CUSTOMER"]["card"] == "5678"
        assert there(site, "c")["PROFILE"]["city"] == "Basel"
        assert await site.retry(take=side) == (3, 0)
        old = side == "old"
        assert there(site, "b")["CUSTOMER"].get("theme") == (None if old else "light")
        assert ("PREFS" in there(site, "b")) is not old
        assert there(site, "d")["CUSTOMER"]["card"] == ("5678" if old else "9999")
        assert there(site, "e").get("CUSTOMER", {}).get("city") == ("Basel" if old else None)
        await anyio.sleep(DAY + 3600)
        assert (await site.run("contract")).phase == "done"

    play(app_of_customers(), FOUND, both_sides, then, following=following)


async def beside_what_old_code_has_no_place_for(site):
    for user in "abc":
        await set_(site, Customer(user=user), "nick", "new")
    await site.put(Prefs(user="a", theme="light"))
    await site.delete(Prefs(user="b"))
    for kind in (Profile, Prefs, Billing):
        await site.delete(kind(user="c"))


@pytest.mark.parametrize("following", [False, True])
def test_a_field_that_reverse_leaves_out_is_of_no_source_that_goes_or_is_put_anew(following):
    async def then(site):
        if not following:
            await site.run("contract")
        assert await site.errors() == ["conflict"]  # of the customer of whom nothing is left
        assert [there(site, u)["CUSTOMER"].get("theme") for u in "ab"] == ["light", None]
        assert [there(site, u)["CUSTOMER"]["nick"] for u in "abc"] == 3 * ["new"]

    play(
        app_of_customers(), FOUND, beside_what_old_code_has_no_place_for, then, following=following
    )


async def nothing(_site):
    """Write nothing."""


async def at_stubs(site):
    await set_(site, Profile(user="a"), "city", "Basel")
    await site.delete(Prefs(user="b"))
    await site.put(Billing(user="c", card="5678"))
    await site.put(Prefs(user="i", theme="light"))  # where nothing was
    for kind in (Profile, Prefs, Billing):
        await site.delete(kind(user="d"))
    await site.delete(Prefs(user="e"))
    await set_(site, Customer(user="e"), "theme", "light")


def test_what_old_code_writes_at_stubs_of_several_items_is_carried_or_a_conflict():
    items = [*FOUND, *sources("i", prefs=False)]

    async def then(site):
        await anyio.sleep(DAY)
        await site.step("contract")
        async with anyio.create_task_group() as group:
            group.start_soon(partial(site.live, Process("follower"), stay=True))
            await _until(site, "closing")
            assert not any(there(site, "a")[sk] for sk in ("PROFILE", "PREFS", "BILLING"))
            assert there(site, "i").keys() == {"CUSTOMER", "PROFILE", "BILLING"}
            await at_stubs(site)
            await anyio.sleep(60)
            assert await site.errors() == ["conflict"]
            assert there(site, "a")["CUSTOMER"]["city"] == "Basel"
            assert "theme" not in there(site, "b")["CUSTOMER"]
            assert there(site, "c")["CUSTOMER"]["card"] == "5678"
            assert there(site, "i")["CUSTOMER"]["theme"] == "light"
            assert there(site, "d") == {}
            assert await site.retry(take="new") == (1, 0)
            if (await _state(site)).waits:  # the pass has met the conflict, too
                await site.step("resume")
            group.cancel_scope.cancel()
        await anyio.sleep(DAY + 3600)
        await site.live(Process("last"), stay=False)
        assert await _phase(site) == "done"
        left = {(i["PK"]["S"][-1], i["SK"]["S"]) for i in site.left()}
        assert left == {(user, "CUSTOMER") for user in "abcefghi"}
        assert there(site, "e")["CUSTOMER"]["theme"] == "light"

    play(app_of_customers(), items, nothing, then)


async def _until(site, phase):
    with anyio.fail_after(3600):
        while await _phase(site) != phase:
            await anyio.sleep(1)


async def _phase(site):
    return (await _state(site)).phase


async def _state(site):
    return await (await open_book(site.app, site.aws)).read("0001")


async def with_more(site):
    item = Profile(user="z", email="z@x").attributes(site.schema)
    await site.aws.dynamodb.put_item(TableName="Crm", Item={**item, "extra": {"S": "mine"}})
    await site.aws.dynamodb.put_item(
        TableName="Crm",
        Item={**Prefs(user="z", theme="dark").attributes(site.schema), "more": {"S": "its"}},
    )
    for kind, extra in ((Profile, "one"), (Prefs, "two")):
        item = kind(user="y").attributes(site.schema)
        await site.aws.dynamodb.put_item(TableName="Crm", Item={**item, "extra": {"S": extra}})


def test_what_no_entity_knows_comes_along_and_goes_back_and_two_of_one_name_are_an_error():
    async def then(site):
        assert await site.errors() == ["transform"]
        found = there(site, "z")["CUSTOMER"]
        assert (found["extra"], found["more"]) == ("mine", "its")
        await set_(site, Customer(user="z"), "more", "by new code")
        await site.delete(Prefs(user="y"))
        await site.meanwhile(nothing, following=True)
        assert await site.retry() == (1, 0)
        state = await site.run("rollback")
        assert state.phase == "rolled back"
        assert there(site, "z") == {
            "PROFILE": {"user": "z", "email": "z@x", "extra": "mine"},
            "PREFS": {"user": "z", "theme": "dark", "more": "by new code"},
        }

    play(app_of_customers(), FOUND, with_more, then, following=True)


async def differs(site):
    await set_(site, Customer(user="a"), "city", "Basel")


def test_a_verification_finds_once_what_is_wrong_with_several_items_and_repairs_it():
    async def then(site):
        one = site.app.migrations["0001"]
        asked = partial(verify_migration, site.app, site.aws, one, clock=site.world.clock)
        found = await asked()
        assert [one.kind for one in found.different] == ["behind"]
        await asked(repair=True)
        assert there(site, "a")["PROFILE"]["city"] == "Basel"
        assert not (await asked()).different

    play(app_of_customers(), FOUND, differs, then)


def test_a_contraction_waits_for_a_day_without_writes_at_any_of_the_old_keys():
    async def then(site):
        with pytest.raises(ConfigurationError, match="24 h"):
            await site.step("contract")

    async def writes(site):
        await set_(site, Billing(user="a"), "vat", "7%")

    play(app_of_customers(), FOUND, writes, then, following=True)


async def planned(site):
    one, rng = site.app.migrations["0001"], random.Random(1)
    whole = Wanted(share=1.0)
    plan = await plan_migration(site.app, site.aws, one, sample=whole, rng=rng)
    kinds = {problem.kind for problem in plan.problems} - {"recovery", "begun"}
    assert plan.sources.keys() == {"Profile", "Prefs", "Billing"}
    assert sum(one.value for one in plan.sources.values()) == pytest.approx(plan.matching.value)
    return kinds, round(plan.needing.value * 100)


def test_a_plan_tries_each_item_alone_and_knows_what_is_done():
    async def main():
        app, world = app_of_customers(), World.create(3)
        async with world.clients() as aws:
            await TableShape().create(aws.dynamodb, app.table, entities_of(app))
            site = Overlap(app, world, aws, (await survey(app, aws)).table)
            await site.put(*FOUND, *sources("i", prefs=False), Customer(user="i"))
            await anyio.sleep(900)
            found = [await planned(site)]
            await site.delete(Customer(user="i"))
            found.append(await planned(site))
            assert (await site.run("apply")).phase == "ready"
            return [*found, await planned(site)]

    assert run_virtually(main) == [({"conflict"}, 100), (set(), 100), (set(), 0)]


# -- live traffic ----------------------------------------------------------------------------------


class OldCards(Aggregate[Billing], pk="OLD#{card}", sk="N"):
    card: str
    customers: Annotated[int, Count()] = 0

    @classmethod
    def group(cls, billing: Billing) -> Key["OldCards"] | None:
        return None if billing.card is None else cls.key(card=billing.card)


class NewCards(Aggregate[Customer], pk="NEW#{card}", sk="N"):
    card: str
    customers: Annotated[int, Count()] = 0

    @classmethod
    def group(cls, customer: Customer) -> Key["NewCards"] | None:
        return None if customer.card is None else cls.key(card=customer.card)


class Writers:
    """Old code until the switch, then new code: puts, updates and deletes."""

    async def open(self, aws, schema, rng):
        for number in range(30):
            for one in sources(f"u{number}", prefs=number % 3 > 0):
                item = one.attributes(schema)
                await aws.dynamodb.put_item(TableName=schema.name, Item=item)

    async def act(self, aws, schema, rng, phase):
        kinds = old_then_new((Profile, Prefs, Billing), (Customer,))(phase)
        if kinds is None:
            return
        kind, dice, user = rng.choice(kinds), rng.random(), f"u{rng.randrange(33)}"
        name = rng.choice([one for one in kind.model_fields if one != "user"])
        entity = kind(user=user, **{name: rng.choice(["1234", "5678"])})
        key = entity.item_key.wire(schema)
        if dice < 0.2:
            await aws.dynamodb.delete_item(TableName=schema.name, Key=key)
        elif dice < 0.5:
            await aws.dynamodb.put_item(TableName=schema.name, Item=entity.attributes(schema))
        elif "Item" in await aws.dynamodb.get_item(TableName=schema.name, Key=key):
            await aws.dynamodb.update_item(
                TableName=schema.name,
                Key=key,
                UpdateExpression="SET #n = :v",
                ExpressionAttributeNames={"#n": name},
                ExpressionAttributeValues={":v": {"S": getattr(entity, name)}},
            )


def cards(ran, kind):
    """Return how many items have each card, as they are and as they are counted."""
    counts = {OldCards: Billing, NewCards: Customer}[kind]
    there = Counter(one.card for one in ran.items(counts) if one.card is not None)
    return dict(there), {one.card: one.customers for one in ran.items(kind) if one.customers}


@pytest.mark.parametrize("end", ["contract", "rollback"])
def test_handlers_count_either_the_old_items_or_what_they_have_become(end):
    app = app_of_customers()
    app.aggregate(OldCards)
    app.aggregate(NewCards)
    steps = ("apply", "switch", end)
    ran = migrate(app, "0001", Writers(), seed=3, acts=12, worker=True, steps=steps)
    assert [state.phase for state in ran.states] == [
        "ready",
        "soaking",
        "done" if end == "contract" else "rolled back",
    ]
    counts, never = (NewCards, OldCards) if end == "contract" else (OldCards, NewCards)
    there, counted = cards(ran, counts)
    assert there == counted
    assert sum(there.values()) > 5
    assert cards(ran, never) == ({}, {})
