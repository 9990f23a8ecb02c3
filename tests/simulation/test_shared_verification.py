"""Verifications of migrations that processes share: killed, frozen, joined, and begun anew."""

import random
from collections import Counter
from dataclasses import replace

import anyio
import pytest

from streamkit.migrate.run.sampling import Wanted
from streamkit.migrate.verify import verification_book, verifying
from streamkit.migrate.verify.verifying import verify_migration
from streamkit.operate.permissions.hosts import policy_for
from streamkit.operate.permissions.place import AccountPlace
from streamkit.settings import Settings
from streamkit.testing import every_crash, every_freeze
from streamkit.testing.world import CrashPoint, Process
from tests.permissions import ACCOUNT, REGION, allows, noted
from tests.rigs import Rig
from tests.simulation import migrating, operators
from tests.unit.migrate.test_migration_verification import (
    Filed,
    Order,
    at,
    file,
    kinds_of,
    unfile,
)

ITEMS = 30
PLACE = AccountPlace.of(account=ACCOUNT, region=REGION)
SETTINGS = Settings(poll_ceiling=5, heartbeat=10, lease=30, list_interval=20, look_interval=20)
STATES = {"verification#0001", "verification#0001-repair"}


@pytest.fixture(autouse=True)
def small_pages(monkeypatch):
    """A few segments, of several pages each."""
    monkeypatch.setattr(verifying, "_SEGMENTS", 8)
    monkeypatch.setattr(verifying, "_PAGE", 2)


# -- stopped anywhere ------------------------------------------------------------------------------


def make():
    return Rig(migrating.rekey(), shards=1, settings=SETTINGS)


def control(harness):
    """Return the names of the control items that belong to verifications."""
    space = "_sk#shop#migrations#"
    keys = [item["PK"]["S"].removeprefix(space) for item in harness.world.items("Shop")]
    kinds = ("verification", "found", "cursor#verify")
    return {key for key in keys if key.startswith(kinds)}


def verified(harness):
    operators.verified(harness)
    assert control(harness) == STATES


def verified_and_outlived(harness):
    operators.verified(harness)
    harness.outlive()
    assert control(harness) == STATES


def test_a_verification_killed_at_any_call_is_continued_and_comes_to_the_same():
    assert list(every_crash(verified, make, part="operation", sample=2))


def test_a_verification_that_stood_still_at_any_call_leaves_nothing_and_repairs_nothing_late():
    assert list(every_freeze(verified_and_outlived, make, part="operation", sample=4))


# -- shared ----------------------------------------------------------------------------------------


class Seen:
    """Counts the calls of each process from now on, and the pages that it reads."""

    def __init__(self, place):
        self.calls, self.pages = Counter(), Counter()
        place.world.watchers.append(self.saw)

    def saw(self, sighting):
        self.calls[sighting.actor] += 1
        self.pages[sighting.actor] += sighting.call.operation == "Scan"


def said(found):
    """Return a report without the number of items, which streamkit's own belong to."""
    return replace(found, looked_at=0)


async def verify(place, name, *, dies_at=None, seed=2, **options):
    """Verify in a process of its own; return None if it died at one of its calls."""
    process = Process(name, None if dies_at is None else CrashPoint(dies_at, "before"))
    found = []
    async with place.world.clients(process) as aws, anyio.create_task_group() as group:

        async def end():
            await process.dead.wait()
            group.cancel_scope.cancel()

        group.start_soon(end)
        given = {"clock": place.world.clock, "rng": random.Random(seed)}
        found.append(await verify_migration(place.app, aws, place.migration, **given, **options))
        group.cancel_scope.cancel()
    return found[0] if found else None


def moved(test, items=ITEMS):
    """Run a test at a table whose orders have copies, all of them right."""

    async def prepared(place):
        await place.put(*(Order(number=n) for n in range(items)))
        assert await place.run() == "ready"
        await test(place)

    at(prepared, file, mode="rekey", reverse=unfile)


def test_two_processes_share_the_pages_and_both_return_the_report():
    async def test(place):
        await place.put(Order(number=ITEMS))
        seen = Seen(place)
        alone, found = await verify(place, "alone"), {}

        async def one(name):
            found[name] = await verify(place, name)

        async with anyio.create_task_group() as group:
            for name in ("a", "b"):
                group.start_soon(one, name)
        assert found["a"] == found["b"]
        assert said(found["a"]) == said(alone)
        assert kinds_of(alone) == ["missing"]
        assert min(seen.pages["a"], seen.pages["b"]) > 0.2 * seen.pages["alone"]
        assert seen.pages["a"] + seen.pages["b"] <= seen.pages["alone"] + 8

    moved(test)


@pytest.mark.parametrize("share", [0.2, 0.5, 0.8])
def test_the_next_process_reads_only_what_the_killed_one_has_left(share):
    async def test(place):
        await place.delete(Filed(number=3))
        seen = Seen(place)
        alone = await verify(place, "alone")
        await verify(place, "killed", dies_at=round(share * seen.calls["alone"]))
        assert seen.pages["killed"] > 0.7 * share * seen.pages["alone"]
        assert said(await verify(place, "next")) == said(alone)
        assert seen.pages["killed"] + seen.pages["next"] <= seen.pages["alone"] + 8

    moved(test)


def test_what_was_right_in_an_earlier_phase_is_read_again_in_the_next_one():
    async def test(place):
        seen = Seen(place)
        assert (await verify(place, "alone")).ok
        await verify(place, "killed", dies_at=seen.calls["alone"] // 2)
        assert seen.pages["killed"] > 0.3 * seen.pages["alone"]
        assert await place.run("switch") == "soaking"
        await place.put(*(Filed(number=n, status="SENT") for n in range(ITEMS)))
        found = await verify(place, "next")
        assert (kinds_of(found), found.phase) == (ITEMS * ["behind"], "soaking")

    moved(test)


def test_a_phase_that_ends_while_items_are_verified_is_verified_anew():
    async def test(place):
        found, seen = [], Seen(place)

        async def verifies():
            found.append(await verify(place, "verifies", max_reads=5))

        async with anyio.create_task_group() as group:
            group.start_soon(verifies)
            while not seen.pages["verifies"]:
                await anyio.sleep(0.1)
            assert await place.run("switch") == "soaking"
            await place.put(*(Filed(number=n, status="SENT") for n in range(ITEMS)))
        assert (kinds_of(found[0]), found[0].phase) == (ITEMS * ["behind"], "soaking")

    moved(test)


def test_again_begins_at_the_first_page_and_others_join_that():
    async def test(place):
        seen, found = Seen(place), {}
        alone = await verify(place, "alone")
        await verify(place, "killed", dies_at=seen.calls["alone"] // 2)

        async def one(name, *, again):
            found[name] = await verify(place, name, again=again)

        async with anyio.create_task_group() as group:
            group.start_soon(lambda: one("joins", again=False))
            await anyio.sleep(0.5)
            group.start_soon(lambda: one("again", again=True))
        assert found["joins"] == found["again"]
        assert said(found["again"]) == said(alone)
        assert seen.pages["joins"] + seen.pages["again"] >= 0.9 * seen.pages["alone"]
        assert not place.control("cursor#verify", "found")

    moved(test)


def test_a_verification_without_repair_does_not_continue_one_with_it():
    async def test(place):
        await place.put(*(Order(number=ITEMS + number) for number in range(20)))
        broken, seen = place.own(), Seen(place)
        assert kinds_of(await verify(place, "alone")) == 20 * ["missing"]
        await verify(place, "killed", repair=True, dies_at=seen.calls["alone"] + 100)
        before = place.own()
        assert len(broken) < len(before) < len(broken) + 20
        assert "missing" in kinds_of(await verify(place, "next"))
        assert place.own() == before
        mended = await verify(place, "repairs", repair=True)
        assert (mended.repaired, mended.different) == (20, ()), "of what was wrong before"

    moved(test)


def test_processes_that_share_a_sample_read_the_same_one():
    async def test(place):
        seen, found = Seen(place), []

        async def one(seed):
            found.append(await verify(place, f"{seed}", seed=seed, sample=Wanted(share=0.25)))

        async with anyio.create_task_group() as group:
            for seed in (1, 2):
                group.start_soon(one, seed)
        assert found[0] == found[1]
        # An item, its copy and their record are in three parts: 58% have one in a quarter of them.
        assert found[0].looked_at < 2 * ITEMS
        assert seen.pages["1"] + seen.pages["2"] < 64

    moved(test)


def test_a_long_report_is_read_as_it_was_written_and_deleted_with_the_next(monkeypatch):
    monkeypatch.setattr(verification_book, "_ITEM_BYTES", 400)

    async def test(place):
        for number in range(0, ITEMS, 2):
            await place.put(Order(number=ITEMS + number))
            await place.delete(Order(number=number))
        found = await verify(place, "first")
        assert kinds_of(found) == ITEMS // 2 * ["missing"] + ITEMS // 2 * ["orphan"]
        assert len({one.id for one in found.different}) == ITEMS
        assert len(place.control("found")) > 5
        assert not place.control("cursor#verify")
        mended = await verify(place, "second", repair=True)
        assert (mended.different, mended.repaired) == ((), ITEMS)
        assert (await verify(place, "third")).ok
        assert not place.control("found")

    moved(test)


def test_a_verification_asks_for_nothing_that_its_policies_do_not_allow():
    apps = []

    async def test(place):
        apps.append(place.app)
        await place.delete(Filed(number=3))
        await place.delete(Order(number=4))
        assert (await verify(place, "verifier", repair=True)).repaired == 2

    with noted() as requests:
        moved(test)
    asked = requests.of("verifier")
    assert asked
    for host in ("migrate", "operator"):
        policy = policy_for(apps[0], host, PLACE).to_dict()
        assert [r for r in asked if not allows(policy, r)] == []
