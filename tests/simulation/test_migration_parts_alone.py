"""A part of a split whose item is gone waits for people: nothing else leads to it any more."""

import anyio
import pytest

from streamkit.migrate.families.families import Families
from streamkit.migrate.operate import steps
from streamkit.migrate.verify.mending import list_errors, retry_errors, waive_errors
from tests.simulation.splitting import NotePart, Page, app_of
from tests.simulation.test_migration_closing import paused_in_closing, phase_of
from tests.simulation.test_migration_old_writers import DAY, nothing, play

PAGES = [Page(user="ann", order_id=f"{number}", status="first") for number in range(2)]
PART = NotePart(user="ann", order_id="1", note="new")
POLICIES = pytest.mark.parametrize("policy", ["item", "field"])


def told(then, *, policy="item"):
    return play(app_of(settle=policy), PAGES, nothing, then)


async def kinds(site):
    return [error.kind for error in await list_errors(site.app, site.aws, "0001")]


async def left_alone(site):
    """Delete an item, and add a part of it once its delete was carried."""
    async with site.lived_in():
        await site.delete(PAGES[1])
        await anyio.sleep(60)
        await site.put(PART)
        await anyio.sleep(60)
    assert await kinds(site) == ["alone"]


async def retried(site, take=""):
    return await retry_errors(site.app, site.aws, "0001", take=take, clock=site.clock)


@POLICIES
def test_people_may_decide_that_it_goes_with_its_item(policy):
    async def then(site):
        await left_alone(site)
        assert (await retried(site), await retried(site, "new")) == ((0, 1), (0, 1))
        assert await retried(site, "old") == (1, 0)
        assert (await kinds(site), await site.get(PART)) == ([], None)
        await anyio.sleep(DAY)
        await site.step("contract")
        async with site.lived_in():
            await paused_in_closing(site)
        await steps.resume(site.app, site.aws, "0001", clock=site.clock)
        await anyio.sleep(DAY)
        async with site.lived_in():
            return (await phase_of(site, "done")).phase

    assert told(then, policy=policy) == "done"


@POLICIES
def test_people_may_put_its_item_again_and_it_has_what_the_part_says(policy):
    async def then(site):
        await left_alone(site)
        await site.put(Page(user="ann", order_id="1"))
        right = await retried(site)
        return right, await kinds(site), (await site.get(PAGES[1]))["note"]["S"]

    assert told(then, policy=policy) == ((1, 0), [], "new")


def test_nothing_is_left_to_decide_once_new_code_has_deleted_it():
    async def then(site):
        await left_alone(site)
        await site.delete(PART)
        return await retried(site), await kinds(site)

    assert told(then) == ((1, 0), [])


def test_it_is_not_waived():
    async def then(site):
        await left_alone(site)
        return await waive_errors(site.app, site.aws, "0001", None, "whatever", clock=site.clock)

    assert told(then) == 0


@pytest.mark.parametrize("with_its_item", [True, False])
def test_in_closing_it_is_found_too(with_its_item):
    async def then(site):
        await anyio.sleep(DAY)
        await site.step("contract")
        async with site.lived_in():
            await paused_in_closing(site)
        if not with_its_item:
            await left_alone(site)
            return []
        async with site.lived_in():
            await site.put(PART)
            await anyio.sleep(60)
        return await kinds(site)

    assert told(then) == []


@pytest.mark.parametrize(("policy", "found"), [("item", ["taken"]), ("field", [])])
def test_in_a_rollback_a_part_is_brought_back_beside_a_field_that_is_to_move(policy, found):
    async def then(site):
        await steps.rollback(site.app, site.aws, "0001", clock=site.clock)
        await site.put(Page(user="ann", order_id="2", status="old"))
        await site.put(NotePart(user="ann", order_id="2", note="new"))
        async with site.lived_in():
            await anyio.sleep(60)
        there = await site.get(Page(user="ann", order_id="2"))
        return await kinds(site), there.get("note", {}).get("S")

    assert told(then, policy=policy) == (found, None if found else "new")


def test_an_item_of_which_nothing_is_to_be_moved_is_not_gone(monkeypatch):
    """It is settled once: a settlement that changes nothing would never end."""
    send, sent = Families.send, []

    async def counted(self, plan):
        sent.append(plan)
        if len(sent) > 100:
            pytest.fail("the same families are written again and again")
        return await send(self, plan)

    async def then(site):
        monkeypatch.setattr(Families, "send", counted)
        async with site.lived_in():
            await site.put(Page(user="ann", order_id="2"))
            await site.put(NotePart(user="ann", order_id="2"))
            await anyio.sleep(60)
            await site.step("switch")
            await phase_of(site, "soaking")
        return await kinds(site)

    assert play(app_of(), PAGES, nothing, then, until="ready") == []
