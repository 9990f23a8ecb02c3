"""Control items are written IF one of them is still as it was read, however many they are."""

import random

import pytest

from streamkit.errors import LeaseLost
from streamkit.model.conditions import Attr, absent
from streamkit.progress.actions import CHILD, GuardSource
from streamkit.progress.fenced import TOGETHER, Fenced
from tests.unit.test_leases import SPACE, opened

NAMES = ("state", "one")


def note(name, number=1):
    return SPACE.put({"number": {"N": str(number)}}, "note", name)


async def number(store, name, kind="note"):
    item = await store.item(kind, name)
    return None if item is None else int(item["number"]["N"])


def still(store, value):
    return Fenced(store, Attr("number").eq(value), random.Random(1), NAMES)


async def founded(store, value=1):
    await store.write(SPACE.put({"number": {"N": str(value)}}, *NAMES))


async def test_nothing_is_written_once_the_item_has_changed():
    async with opened() as store:
        await founded(store, 1)
        assert await still(store, 1).apply([note("a"), note("b")])
        with pytest.raises(LeaseLost, match="changed meanwhile"):
            await still(store, 2).apply([note("a", 5), note("c")])
        assert [await number(store, name) for name in "abc"] == [1, 1, None]


async def test_an_action_on_the_item_itself_carries_the_condition():
    async with opened() as store:
        await founded(store, 1)
        assert await still(store, 1).apply([SPACE.put({"number": {"N": "2"}}, *NAMES), note("a")])
        with pytest.raises(LeaseLost):
            await still(store, 1).apply([SPACE.put({"number": {"N": "3"}}, *NAMES), note("b")])
        assert await number(store, "one", "state") == 2
        assert await number(store, "b") is None


async def test_a_condition_of_an_action_itself_that_does_not_hold_is_no_lost_lease():
    async with opened() as store:
        await founded(store, 1)
        await store.write(note("a"))
        again, source = note("a", 7), GuardSource("", "a", CHILD)
        again.only_if(absent)
        again.guards[-1] = (again.guards[-1][0], source)
        refused = await still(store, 1).send([again, note("b")], random.Random(1))
        assert refused.sources == (source,)
        assert not await still(store, 1).apply([again])
        assert [await number(store, name) for name in "ab"] == [1, None]


async def test_an_invalid_action_counts_as_a_change():
    async with opened() as store:
        await founded(store, 1)
        with pytest.raises(LeaseLost):
            await still(store, 1).apply([note("a"), SPACE.put({"n": {"N": "x"}}, "note", "b")])


async def test_more_items_than_a_transaction_holds_are_written_and_deleted_in_several():
    calls = []

    async def intercept(call, apply):
        calls.append(call.operation)
        return apply()

    async with opened(intercept=intercept) as store:
        await founded(store, 1)
        names = [f"{n}" for n in range(2 * TOGETHER + 1)]
        calls.clear()
        await still(store, 1).apply_all([note(name) for name in names])
        assert calls == ["TransactWriteItems"] * 3
        keys = [SPACE.key("note", name) for name in names]
        assert await still(store, 1).delete(keys[:100]) == 100
        calls.clear()
        assert await still(store, 1).delete_there(keys) == len(names) - 100
        assert calls.count("TransactWriteItems") == 1
        assert await store.items([("note", name) for name in names]) == []
        with pytest.raises(LeaseLost):
            await still(store, 2).delete([SPACE.key(*NAMES)])
        assert await still(store, 2).delete_there(keys) == 0
