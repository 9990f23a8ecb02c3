"""What looks simpler than the ledger's protocol comes out wrong: one interleaving for each way.

The rows are those of the protocol's model; `tests/mutants/builds.py` has the mistakes.
"""

from types import SimpleNamespace

import pytest

from streamkit.model.builds import Build
from streamkit.progress.control import Cursor
from streamkit.worker.go_live import GoLive
from tests.simulation.rebuilds import (
    BROKEN,
    FAST,
    PATIENT,
    Gate,
    Operator,
    Sale,
    Sales,
    app_of,
    counts,
    cursors_of,
    is_exact,
    ledger_of,
    looks_for_entries,
    open_existing,
    pass_hours,
    reads_the_ledger,
    rebuild,
    scans_a_segment,
    scans_for_groups,
    state_of,
    until,
)


@pytest.fixture
def shop(harness_of):
    """A shop with sales, a worker, and an aggregate that is wrong."""
    BROKEN.clear()
    harness = harness_of(app_of(policy=PATIENT), shards=1, settings=FAST)
    open_existing(harness)
    return harness


def change_all(harness):
    """Edit, move, remove and remake items."""
    harness.put(Sale(number=0, shop="a", amount=50), Sale(number=0, shop="a", amount=60))
    harness.put(Sale(number=1, shop="c", amount=2))
    harness.delete(Sale(number=2, shop="a").item_key)
    harness.delete(Sale(number=3, shop="b").item_key)
    harness.put(Sale(number=3, shop="a", amount=9))
    harness.put(Sale(number=4, shop="none"), Sale(number=9, shop="c", amount=3))


@pytest.mark.parametrize("place", [scans_a_segment, looks_for_entries])
def test_changes_that_overtake_the_scan_of_their_items_are_counted_once(shop, place):
    gate = Gate(place, after=True)
    operator = Operator(shop, gate=gate, segments=1)
    until(shop, gate.met)
    change_all(shop)
    shop.settle()
    gate.open.set()
    operator.wait()
    assert is_exact(shop)


def test_a_scan_that_comes_between_the_look_into_the_ledger_and_the_commit_is_noticed(shop):
    before, after = Gate(scans_a_segment), Gate(reads_the_ledger, after=True)
    operator = Operator(shop, gate=before, segments=1)
    until(shop, before.met)
    shop.worker.process.faults = after
    change_all(shop)
    until(shop, after.met)
    before.open.set()
    operator.wait()
    after.open.set()
    assert is_exact(shop)


def test_a_shard_that_is_behind_the_end_of_the_scan_goes_on_with_the_ledger(shop):
    before, held = Gate(scans_a_segment), Gate(lambda call: call.service == "dynamodbstreams")
    operator = Operator(shop, gate=before, segments=1)
    until(shop, before.met)
    shop.settle()
    shop.worker.process.faults = held
    until(shop, held.met)
    change_all(shop)
    before.open.set()
    operator.wait()
    held.open.set()
    assert is_exact(shop)
    assert state_of(shop) == "live"


def test_a_commit_that_was_under_way_when_the_build_began_is_refused(shop):
    held = Gate(counts)
    shop.worker.process.faults = held
    shop.put(Sale(number=0, shop="a", amount=40))
    until(shop, held.met)
    cleared = Gate(counts, after=True)
    operator = Operator(shop, gate=cleared, segments=1)
    until(shop, cleared.met)
    held.open.set()
    shop.advance("10s")
    cleared.open.set()
    operator.wait()
    assert is_exact(shop)


def test_a_worker_that_does_not_count_yet_passes_nothing_once_the_scan_has_begun(shop):
    reset, scanning = Gate(scans_for_groups), Gate(scans_a_segment, after=True)
    operator = Operator(shop, gate=reset, segments=1)
    until(shop, reset.met)
    shop.advance("90s")  # the worker has joined the generation in which nothing is counted
    shop.put(Sale(number=0, shop="a", amount=30))
    shop.settle()
    operator.faults = scanning
    reset.open.set()
    until(shop, scanning.met)
    change_all(shop)
    shop.advance("15s")
    scanning.open.set()
    operator.wait()
    assert is_exact(shop)


def test_a_parked_change_holds_back_the_later_ones_of_its_item_while_it_is_counted(shop):
    gate = Gate(scans_a_segment, after=True)
    operator = Operator(shop, gate=gate, segments=1)
    until(shop, gate.met)
    BROKEN.add("odd")
    shop.put(Sale(number=0, shop="odd", amount=5))
    shop.settle()
    shop.put(Sale(number=0, shop="a", amount=6), Sale(number=0, shop="b", amount=7))
    shop.settle()
    assert len(shop.parked()) == 3
    gate.open.set()
    operator.wait()
    BROKEN.clear()
    shop.redrive()
    assert is_exact(shop)


def test_a_change_that_was_parked_while_counting_is_retried_so_when_its_shard_is_live(shop):
    gate = Gate(scans_a_segment)
    operator = Operator(shop, gate=gate, segments=1)
    until(shop, gate.met)
    BROKEN.add("odd")
    shop.put(Sale(number=0, shop="odd", amount=5))
    shop.settle()
    shop.put(Sale(number=0, shop="a", amount=6))
    shop.settle()
    gate.open.set()
    operator.wait()
    BROKEN.clear()
    pass_hours(shop, 3)
    assert all(cursor.live for cursor in cursors_of(shop).values())
    shop.put(Sale(number=0, shop="b", amount=8))
    shop.settle()
    shop.redrive()
    assert is_exact(shop)


def test_a_new_build_drops_what_was_parked_and_forgets_the_ledger_of_the_last(shop):
    rebuild(shop)
    BROKEN.add("odd")
    shop.put(Sale(number=1, shop="odd", amount=5))
    shop.settle()
    BROKEN.clear()
    assert len(shop.parked()) == 1
    shop.put(Sale(number=2, shop="c", amount=4))
    rebuild(shop)
    assert shop.parked() == []
    shop.redrive()
    assert is_exact(shop)


def test_a_live_shard_stays_live_when_it_rolls_and_its_ledger_stays_until_all_are(shop):
    gate = Gate(scans_a_segment)
    operator = Operator(shop, gate=gate, segments=1)
    until(shop, gate.met)
    shop.roll()  # the parent ends before it could turn
    shop.settle()
    gate.open.set()
    operator.wait()
    pass_hours(shop, 3)
    change_all(shop)
    shop.settle()
    shop.roll()
    change_all(shop)
    shop.put(Sale(number=5, shop="a", amount=11))
    assert is_exact(shop)
    assert ledger_of(shop)
    pass_hours(shop, 55)
    assert ledger_of(shop) == []
    change_all(shop)
    assert is_exact(shop)


def test_a_scanner_that_froze_counts_nothing_after_the_ledger_was_swept(shop):
    gate = Gate(scans_a_segment, after=True)
    frozen = Operator(shop, "frozen", gate=gate, segments=1)
    until(shop, gate.met)
    frozen.freeze()
    rebuild(shop, segments=1)
    shop.delete(Sale(number=0, shop="a").item_key)
    shop.settle()
    pass_hours(shop, 6)
    assert ledger_of(shop) == []
    gate.open.set()
    frozen.thaw()
    frozen.wait()
    assert is_exact(shop)


def record(created_at):
    return SimpleNamespace(created_at=created_at)


def turning(live, scanned):
    (handler,) = app_of().handlers
    cursor = Cursor("shard", live=frozenset(live))
    builds = {"Sales": Build(7, "counting", scanned)}
    return handler, GoLive(lambda: builds, lambda: cursor, store=None)


def test_a_live_shard_that_meets_a_change_as_old_as_the_scan_says_so():
    handler, late = turning({"Sales:7"}, 1000)
    assert late.as_run(handler, record(1060.0)) is handler
    assert late.late == {"Sales"}
    handler, fine = turning({"Sales:7"}, 1000)
    assert fine.as_run(handler, record(1061.0)) is handler
    assert fine.late == set()


def test_a_shard_that_is_live_for_an_earlier_build_counts_by_the_ledger_of_this_one():
    handler, shard = turning({"Sales:5"}, 1000)
    running = shard.as_run(handler, record(900.0))
    assert (running.build, running.commutes) == (7, False)
    assert shard.late == set()
    assert shard.due(4600.0) == frozenset()
    assert shard.due(4601.0) == {"Sales:7"}
    assert shard.marks_with(frozenset({"Sales:7"})) == {"Sales:7"}
    assert Sales.__name__ == handler.name
