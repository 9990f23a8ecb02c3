"""Items of which fields are moved out, taken whole: old and new code write, processes die and stand still."""

import anyio
import pytest

from streamkit import App, Remove, Set
from streamkit.migrate.families import settlement
from streamkit.migrate.operate import steps
from streamkit.migrate.verify.mending import list_errors, retry_errors
from streamkit.model.copies import COPY
from tests.seeds import seeds
from tests.simulation import migrating
from tests.simulation.both_shapes import FIELDS, contracted, rolled_back
from tests.simulation.migrating import Profile, Stats
from tests.simulation.splitting import NotePart, Page, Part, Site, app_of
from tests.simulation.test_migration_closing import paused_in_closing, phase_of
from tests.simulation.test_migration_old_writers import DAY, PROFILES, nothing, play, split

FEW = {"orders": 3, "acts": 8}


def pages(items):
    return [item for item in items if item["SK"]["S"].startswith("ORDER#")]


@pytest.mark.parametrize("seed", seeds())
def test_no_write_is_lost_and_no_mixed_page_comes_about(seed):
    """Even seeds go to the end, odd ones back: one run is enough for `make test`."""
    way, side = ((contracted, "new"), (rolled_back, "old"))[seed % 2]
    site, items = way(app_of(), seed=seed, kind=Site, **FEW)
    assert site.wholes.mixed == []
    assert site.lost(side) == {}
    assert not [page for page in pages(items) if COPY in page]
    assert side == "old" or not [page for page in pages(items) if page.keys() & {*FIELDS}]


@pytest.mark.parametrize(("policy", "found"), [("item", ["taken"]), ("field", [])])
def test_a_page_and_a_part_that_meet_without_a_record_are_mixed_only_by_field(policy, found):
    async def then(site):
        await site.put(Page(user="ann", order_id="2", status="old"))
        await site.put(NotePart(user="ann", order_id="2", note="new"))
        async with site.lived_in():
            await anyio.sleep(60)
        return [error.kind for error in await list_errors(site.app, site.aws, "0001")]

    there = [Page(user="ann", order_id="1", status="first")]
    assert play(app_of(settle=policy), there, nothing, then) == found


def test_parts_that_several_queries_find_are_all_brought_back():
    def by_kind(page):
        return [Part.query(order_id=page.order_id, what=name.upper()) for name in FIELDS]

    site, _ = rolled_back(app_of(collect=by_kind), seed=1, kind=Site, **FEW)
    assert site.lost("old") == {}


def test_pages_that_are_merged_by_field_are_found(monkeypatch):
    monkeypatch.setattr(settlement, "_all_that_differs", lambda *_: frozenset())
    tries = (rolled_back(app_of(), seed=seed, kind=Site, **FEW) for seed in range(5, 12))
    assert any(site.wholes.mixed for site, _ in tries)


def test_a_counter_that_old_code_puts_again_beside_a_stub_of_a_split_is_not_added():
    """A put says how much there is; an update at what is left says how much more."""

    async def then(site):
        await anyio.sleep(DAY)
        await site.step("contract")
        async with site.lived_in():
            await paused_in_closing(site)
            await site.put(Profile(name="u2", click=50))
            await site.update(PROFILES[3], "ADD click :v", {"N": "50"})
            await site.put(Profile(name="u1", click=50))
            await site.update(Stats(name="u1"), "ADD click :v", {"N": "7"})
            await anyio.sleep(60)
        clicks = [(await site.get(Stats(name=f"u{number}")))["click"]["N"] for number in (1, 2, 3)]
        return clicks, [error.kind for error in await list_errors(site.app, site.aws, "0001")]

    app = App("chat", table="Chat", entities=[Profile, Stats])
    named = {"mode": "split", "counters": ("click",)}
    app.migration("0001", Profile, **named)(migrating.stats)
    assert play(app, PROFILES, nothing, then) == (["8", "50", "53"], ["conflict"])


@pytest.mark.parametrize("reverse", [True, False])
@pytest.mark.parametrize("take", ["old", "new"])
def test_what_old_code_deletes_in_closing_takes_the_parts_of_a_split_with_it(reverse, take):
    async def then(site):
        await anyio.sleep(DAY)
        await site.step("contract")
        async with site.lived_in():
            await paused_in_closing(site)
        await site.update(Stats(name="u2"), "SET click = :v", {"N": "9"})  # new code
        await site.delete(PROFILES[1])
        await site.delete(PROFILES[2])
        await site.put(Profile(name="u3"))  # new code may put what is left whole
        async with site.lived_in():
            await anyio.sleep(60)
        errors = await list_errors(site.app, site.aws, "0001")
        right, _ = await retry_errors(site.app, site.aws, "0001", take=take, clock=site.clock)
        await steps.resume(site.app, site.aws, "0001", clock=site.clock)
        await anyio.sleep(DAY)
        async with site.lived_in():
            await phase_of(site, "done")
        there = [await site.get(Stats(name=f"u{number}")) is not None for number in range(4)]
        return there, [error.kind for error in errors], right

    found = play(split(reverse=reverse), PROFILES, nothing, then)
    assert found == ([True, False, take == "new", True], ["conflict"], 1)


def test_what_a_split_sets_and_removes_goes_for_items_without_a_part_too():
    def tidy(page: Page) -> list[Part | Remove[Page] | Set[Page]]:
        if page.note is not None:
            part = Part(user=page.user, order_id=page.order_id, what="NOTE", note=page.note)
            return [part, Remove("note"), Set(status="done")]
        return [] if page.status == "done" else [Set(status="done")]

    async def then(site):
        await anyio.sleep(DAY)
        await site.step("contract")
        async with site.lived_in():
            await paused_in_closing(site)
            await site.put(Page(user="ann", order_id="3", status="in closing"))
        await steps.resume(site.app, site.aws, "0001", clock=site.clock)
        await anyio.sleep(DAY)
        async with site.lived_in():
            await phase_of(site, "done")
        found = [await site.get(Page(user="ann", order_id=f"{n}")) for n in range(1, 4)]
        return [one["status"]["S"] for one in found]

    app = App("shop", table="Shop", entities=[Page, Part])
    app.migration("0001", Page, mode="split")(tidy)
    there = [Page(user="ann", order_id="1", status="old"), Page(user="ann", order_id="2", note="n")]
    assert play(app, there, nothing, then) == 3 * ["done"]
