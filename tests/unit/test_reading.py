"""Pending effects are seen as far as they can still happen."""

from decimal import Decimal
from types import SimpleNamespace

import pytest

from streamkit.core.outcome import Outcome, PendingChange
from streamkit.core.reading import Pending, Uncommitted, applied, settle
from streamkit.core.reads import Read
from streamkit.model.codec import decode
from streamkit.model.conditions import Attr, absent, present
from streamkit.progress.actions import Action, ItemRef, Verb

REF = ItemRef("Shop", ("S", "P#1"), None)
THERE = {"name": {"S": "anvil"}}
RENAMED = {"name": {"S": "hammer"}}


def expecting(condition, ref=REF, seen=()):
    return Read(ref, seen, expect=lambda item: (condition,))


def seen(stored, *reads):
    """What a later handler sees of an item that an earlier one renames, having read this of it."""
    outcome = Outcome(SimpleNamespace(name="rename"), reads=reads)
    outcome.actions[REF] = Action(REF, Verb.UPDATE, sets=RENAMED)
    pending = Pending(Uncommitted([PendingChange("1", 0.0, outcomes=[outcome])]), before="2")
    versions, actions = pending.of(REF)
    assert versions == (("1", "rename", 0),)
    return applied(actions, stored)


@pytest.mark.parametrize(
    ("stored", "found", "sees"),
    [
        (THERE, present, RENAMED),
        (None, present, None),  # it is gone by now, so that nobody will rename it
        (THERE, absent, THERE),
        (None, absent, RENAMED),
    ],
)
def test_an_effect_on_an_item_that_came_or_went_since_it_was_read_is_not_seen(stored, found, sees):
    assert seen(stored, expecting(found)) == sees


def test_what_was_found_under_pending_effects_says_nothing_of_the_item():
    assert seen(THERE, expecting(absent, seen=(("0", "create", 1),))) == RENAMED


def test_what_was_read_of_another_item_says_nothing():
    other = ItemRef("Shop", ("S", "P#2"), None)
    assert seen(None, expecting(present, ref=other)) == RENAMED


def counts(item):
    return (Attr("count").eq(decode(item["count"])),)


def waiting(position, run=1, seen=(), reads=(), name="count"):
    outcome = Outcome(SimpleNamespace(name=name), run=run, reads=tuple(reads))
    outcome.actions[REF] = Action(REF, Verb.UPDATE, adds={"count": Decimal(1)})
    return PendingChange(position, 0.0, outcomes=[outcome])


def read_after(*versions):
    return Read(REF, versions, {"count": {"N": "5"}}, counts)


def test_a_result_that_saw_what_is_committed_now_stands_on_the_item_as_the_commit_leaves_it():
    ran = [("1", "count", 1), ("2", "count", 1)]
    pending = [
        waiting("1"),
        waiting("2", reads=[read_after(ran[0])]),
        waiting("3", reads=[read_after(*ran)]),
    ]
    settle(pending, {REF: (ran[0],)})
    second, third = (change.outcomes[0].reads[0] for change in pending[1:])
    assert (second.seen, third.seen) == ((), (ran[1],))
    assert second.conditions == third.conditions == (Attr("count").eq(6),)
    settle(pending[1:], {REF: (ran[1],)})
    (third,) = pending[2].outcomes[0].reads
    assert third.seen == ()
    assert third.conditions == (Attr("count").eq(7),)


def test_a_result_that_saw_several_committed_runs_stands_on_all_of_them():
    ran = (("1", "count", 1), ("2", "count", 1))
    pending = [waiting("1"), waiting("2"), waiting("3", reads=[read_after(*ran)])]
    settle(pending, {REF: ran})
    (read,) = pending[2].outcomes[0].reads
    assert read.conditions == (Attr("count").eq(7),)


def test_a_result_that_saw_another_run_than_the_committed_one_is_left_to_be_made_again():
    pending = [waiting("1", run=2), waiting("2", reads=[read_after(("1", "count", 1))])]
    settle(pending, {REF: (("1", "count", 2),)})
    assert pending[1].outcomes[0].waiting


def test_a_result_is_not_moved_on_by_a_run_whose_writes_are_not_known_any_more():
    """An earlier plan has won, and its handler has run again since."""
    pending = [waiting("1", run=2), waiting("2", reads=[read_after(("1", "count", 1))])]
    settle(pending, {REF: (("1", "count", 1),)})
    assert pending[1].outcomes[0].waiting


def test_a_result_that_read_before_what_is_committed_now_waits_to_be_made_again():
    pending = [waiting("1"), waiting("2", reads=[read_after()]), waiting("3", name="other")]
    settle(pending, {REF: (("1", "count", 1),)})
    assert [change.outcomes[0].waiting for change in pending] == [False, True, False]


def test_writes_are_found_in_the_order_of_the_changes_whenever_their_handlers_ran():
    pending = [waiting("1"), waiting("2"), waiting("3")]
    uncommitted = Uncommitted()
    for change in (pending[2], pending[0], pending[1], pending[0]):
        uncommitted.note(change, change.outcomes[0])
    versions, _ = Pending(uncommitted, before="3").of(REF)
    assert [version[0] for version in versions] == ["1", "2"]
    pending[0].outcomes[0].actions = {}
    versions, _ = Pending(uncommitted, before="4").of(REF)
    assert [version[0] for version in versions] == ["2", "3"]
