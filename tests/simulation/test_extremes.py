"""Extremes converge whatever the interleaving: what looks simpler does not, and is shown not to.

Each naive version is the real code with one thing left out or turned round; some contest of a few
must end wrong with it, while all of them end right without.
"""

import pytest
from msgspec import structs

from streamkit import Delete
from streamkit.core.dispatch import Dispatcher
from streamkit.core.reading import Sight
from streamkit.core.shared_items import SharedItems
from streamkit.kinds.aggregate import ranked
from streamkit.kinds.aggregate.extremes import ENTRIES_REVISION, REVISION
from streamkit.progress.actions import CONTROL_PREFIX
from streamkit.table import Table
from streamkit.testing.loop import run_virtually
from tests.simulation.contest import Stage, run

SEEDS = range(4)

check, recompute, write = Sight.check, ranked.recompute, ranked._write


def entries_are_not_checked(monkeypatch):
    """What leaves is only read: by the commit, another may have become the best."""

    def unchecked(sight, *names):
        check(sight, *(name for name in names if name != ENTRIES_REVISION))

    monkeypatch.setattr(Sight, "check", unchecked)


def only_changes_of_the_entries_count(monkeypatch):
    """The revision stays where a contribution changes no entry."""

    def looser(sight, *names):
        check(sight, *(ENTRIES_REVISION if name == REVISION else name for name in names))

    monkeypatch.setattr(Sight, "check", looser)


def results_stand_if_the_entries_do(monkeypatch):
    """The entries as they were, instead of the revision: one may have come and gone."""

    def by_value(sight, *names):
        check(sight, "lowest", "lowest_entries")

    monkeypatch.setattr(Sight, "check", by_value)


def results_are_not_checked(monkeypatch):
    async def unchecked(aggregate, key, table, names):
        table._tracker.reads.clear()
        return await recompute(aggregate, key, table, names)

    monkeypatch.setattr(ranked, "recompute", unchecked)


def the_group_is_read_before_the_revision(monkeypatch):
    async def too_early(aggregate, key, table, names):
        found = await recompute(aggregate, key, table, names)
        tracker = table._tracker
        tracker.reads.clear()
        tracker.pending.uncommitted.items = SharedItems()
        (await table.look(key)).check(REVISION)
        return found

    monkeypatch.setattr(ranked, "recompute", too_early)


def equal_values_are_one_entry(monkeypatch):
    monkeypatch.setattr(ranked, "source_of_entry", lambda _: ("", ""))
    monkeypatch.setattr("streamkit.kinds.aggregate.extremes.source_of_entry", lambda _: ("", ""))


def an_emptied_group_is_deleted(monkeypatch):
    async def deleting(aggregate, key, moves, table):
        effects = await write(aggregate, key, moves, table)
        stored = {
            n: v for e in effects if isinstance(e, ranked.Store) for n, v in e.attributes.items()
        }
        ranks = [value["L"] for name, value in stored.items() if name.endswith("_entries")]
        return [Delete(key)] if len(ranks) == 4 and not any(ranks) else effects

    monkeypatch.setattr(ranked, "_write", deleting)


def a_page_is_folded_to_its_net(monkeypatch):
    dispatch = Dispatcher.dispatch

    async def net(self, page, shard, *as_run, **more):
        first, last = {}, {}
        for record in page.records:
            first.setdefault(record.item_key, record)
            last[record.item_key] = record
        folded = []
        for key, record in last.items():
            old, new = first[key].old_image, record.new_image
            if old is not None or new is not None:
                name = "INSERT" if old is None else "REMOVE" if new is None else "MODIFY"
                inner = structs.replace(record.dynamodb, old_image=first[key].dynamodb.old_image)
                folded.append(structs.replace(record, dynamodb=inner, event_name=name))
        folded.sort(key=lambda record: record.position)
        return await dispatch(
            self, structs.replace(page, records=tuple(folded)), shard, *as_run, **more
        )

    monkeypatch.setattr(Dispatcher, "dispatch", net)


def queries_are_eventually_consistent(monkeypatch):
    query = Table.query

    def eventual(table, wanted, **_):
        return query(table, wanted, consistent=False)

    monkeypatch.setattr(Table, "query", eventual)


# -- any interleaving ------------------------------------------------------------------------------

RACES = (
    entries_are_not_checked,
    results_are_not_checked,
    equal_values_are_one_entry,
    an_emptied_group_is_deleted,
)


@pytest.mark.parametrize("seed", SEEDS)
def test_extremes_end_as_the_items_do_whatever_comes_between(seed):
    contest = run(seed, workers=("one", "two") if seed == 1 else ("one",))
    assert contest.is_right
    queries = [call.payload for call in contest.world.calls if call.operation == "Query"]
    of_groups = [query for query in queries if CONTROL_PREFIX not in str(query)]
    assert of_groups
    assert all(query["ConsistentRead"] for query in of_groups)


@pytest.mark.parametrize("naive", RACES)
def test_a_naive_version_loses_some_race(naive, monkeypatch):
    naive(monkeypatch)
    assert not all(run(seed).is_right for seed in SEEDS)


def test_the_group_is_never_read_eventually_consistent(monkeypatch):
    queries_are_eventually_consistent(monkeypatch)
    with pytest.raises(AssertionError):
        test_extremes_end_as_the_items_do_whatever_comes_between(0)


# -- one interleaving ------------------------------------------------------------------------------


def played(script):
    async def scenario():
        stage = Stage()
        stage.bid(stage.one, 1)
        await stage.play(script)
        return stage

    return run_virtually(scenario).contest


async def a_worse_one_comes_while_the_group_is_read(stage):
    """The result does not know it, its contribution has left the entries alone."""
    before = stage.item()
    stage.hold(f"commit {stage.shard}")
    stage.bid(stage.one, None)
    await stage.until_waits(f"commit {stage.shard}")
    stage.bid(stage.other, 2)
    await stage.until_stored(lambda item: item["_rev"] != before["_rev"])
    assert stage.item()["lowest_entries"] == before["lowest_entries"]


async def a_worse_one_comes_after_the_group_was_read(stage):
    """The result does not know it, and the revision was not read since."""
    before = stage.item()
    stage.hold("after query")
    stage.bid(stage.one, None)
    await stage.until_waits("after query")
    stage.bid(stage.other, 2)
    await stage.until_stored(lambda item: item["_rev"] != before["_rev"])
    stage.release("after query")


async def one_comes_is_read_and_goes_unprocessed(stage):
    """The result holds it, and its two changes stand in one page."""
    stage.hold("query", f"read {stage.other_shard}")
    stage.bid(stage.one, None)
    await stage.until_waits("query")
    stage.bid(stage.other, 1)
    stage.release("query")
    await stage.until_stored(
        lambda item: item["lowest_entries"]["L"][0]["L"][2] != {"S": f"BID#{stage.one}"}
    )
    stage.bid(stage.other, None)


@pytest.mark.parametrize(
    ("script", "lowest"),
    [
        (a_worse_one_comes_while_the_group_is_read, {"a": {"lowest": 2}}),
        (a_worse_one_comes_after_the_group_was_read, {"a": {"lowest": 2}}),
        (one_comes_is_read_and_goes_unprocessed, {}),
    ],
)
def test_what_happens_while_a_group_is_read_is_not_lost(script, lowest):
    assert played(script).result == lowest


@pytest.mark.parametrize(
    ("naive", "script"),
    [
        (only_changes_of_the_entries_count, a_worse_one_comes_while_the_group_is_read),
        (results_stand_if_the_entries_do, a_worse_one_comes_while_the_group_is_read),
        (the_group_is_read_before_the_revision, a_worse_one_comes_after_the_group_was_read),
        (a_page_is_folded_to_its_net, one_comes_is_read_and_goes_unprocessed),
    ],
)
def test_a_naive_version_loses_it(naive, script, monkeypatch):
    naive(monkeypatch)
    contest = played(script)
    assert contest.result != contest.true()
