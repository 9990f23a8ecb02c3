"""Pending effects are seen as far as they can still happen."""

from types import SimpleNamespace

import pytest

from streamkit.actions import Action, ItemRef, Verb
from streamkit.model.conditions import absent, present
from streamkit.processing.outcome import Outcome, Read, Work
from streamkit.processing.reading import Pending, applied

REF = ItemRef("Shop", ("S", "P#1"), None)
THERE = {"name": {"S": "anvil"}}
RENAMED = {"name": {"S": "hammer"}}


def seen(stored, *reads):
    """What a later handler sees of an item that an earlier one renames, having read this of it."""
    outcome = Outcome(SimpleNamespace(name="rename"), reads=reads)
    outcome.actions[REF] = Action(REF, Verb.UPDATE, sets=RENAMED)
    pending = Pending([Work("1", 0.0, outcomes=[outcome])], before="2")
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
    assert seen(stored, Read(REF, (), (found,))) == sees


def test_what_was_found_under_pending_effects_says_nothing_of_the_item():
    assert seen(THERE, Read(REF, (("0", "create", 1),), (absent,))) == RENAMED


def test_what_was_read_of_another_item_says_nothing():
    other = ItemRef("Shop", ("S", "P#2"), None)
    assert seen(None, Read(other, (), (present,))) == RENAMED
