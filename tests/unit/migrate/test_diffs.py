"""What is shown of an item that a migration would change, attribute by attribute."""

from functools import partial

import pytest

from streamkit.migrate.items.rewrites import Rewrite as Whole
from streamkit.migrate.items.rewrites import Target
from streamkit.migrate.plan.diffs import diff_of
from streamkit.migrate.plan.dry_run import Trial, applied
from streamkit.model.copies import COPY

Rewrite = partial(Whole, frozenset())
BEFORE = {"a": 1, "b": "x", "c": True}


def lines(rewrite, there=()):
    trial = Trial(BEFORE, applied(BEFORE, rewrite), rewrite)
    return [f"{sign} {text}" for sign, text in diff_of("item", trial, there).lines]


@pytest.mark.parametrize(
    ("rewrite", "shown"),
    [
        (Rewrite(sets={"b": "y", "d": 4}), ["- b: 'x'", "+ b: 'y'", "+ d: 4"]),
        (Rewrite(removes=frozenset({"a"})), ["- a: 1"]),
        (Rewrite(delete=True), ["- a: 1", "- b: 'x'", "- c: True"]),
        (Rewrite(), []),
        (Rewrite(sets={"d": "x" * 118}), [f"+ d: {'x' * 118!r}"]),
        (Rewrite(sets={"d": "x" * 119}), [f"+ d: '{'x' * 116}..."]),
    ],
)
def test_what_goes_and_what_comes_is_shown(rewrite, shown):
    assert lines(rewrite) == shown


def test_a_target_is_shown_against_what_is_in_its_place_without_streamkits_own_attributes():
    key = {"PK": {"S": "P"}}
    target = Target(key, {**key, "a": {"N": "1"}})
    rewrite = Rewrite(targets=(target,))
    (head, *new) = lines(rewrite, [None])
    assert head.startswith("  item ")
    assert new == ["+ PK: 'P'", "+ a: 1"]
    there = {**key, "a": {"N": "2"}, COPY: {"S": "0001:x"}}
    assert lines(rewrite, [there])[1:] == ["- a: 2", "+ a: 1"]
    assert lines(rewrite, [{**there, "a": {"N": "1"}}]) == []


def test_nothing_is_shown_of_an_item_that_the_function_fails_on():
    assert diff_of("item", Trial(BEFORE, None, None), ()).lines == ()
