"""A shard gets a cursor exactly when its parent is finished, or gone for good."""

from streamkit.progress.control import Cursor, child_of
from streamkit.stream.lineage import Shard, forgotten, next_step


def shards(text):
    """Read `a b<a c<b` as shard a, its child b, and c below b."""
    pairs = [part.partition("<") for part in text.split()]
    return [Shard(name, parent or None) for name, _, parent in pairs]


def cursors(**states):
    return {
        name: Cursor(name, state=state, generation=4, chunks=frozenset({f"{name}.0"}), ended=7)
        for name, state in states.items()
    }


def step(listing, known=None, gone=()):
    return next_step(shards(listing), known or {}, gone=frozenset(gone), generation=9)


def names(answer):
    return sorted(cursor.name for cursor in answer.create)


def test_roots_come_first_and_children_wait():
    assert names(step("a b<a c<b")) == ["a"]


def test_a_finished_parent_releases_its_children_however_it_is_listed():
    listing = [Shard("a", None, "1", None), Shard("b", "a", "2", None)]
    answer = next_step(listing, cursors(a="finished"), gone=frozenset(), generation=9)
    assert names(answer) == ["b"]


def test_an_unfinished_parent_holds_back_its_children_even_unlisted():
    assert names(step("b<a", cursors(a="active"))) == []
    assert step("b<a", cursors(a="active")).probe == frozenset()


def test_an_unlisted_parent_is_asked_about_before_its_child_begins():
    answer = step("b<a")
    assert names(answer) == []
    assert answer.probe == {"a"}


def test_a_parent_that_is_gone_makes_its_child_a_root():
    assert names(step("b<a", gone="a")) == ["b"]


def test_a_child_inherits_holds_from_its_parent_and_is_not_older_than_who_makes_it():
    (child,) = step("b<a", cursors(a="finished")).create
    assert (child.generation, child.chunks, child.parent) == (9, {"a.0"}, "a")
    parent = Cursor("a", state="finished", generation=12)
    assert child_of("b", parent, generation=9, parent_name="a").generation == 12


def test_late_children_of_a_finished_parent_are_created_for_ever():
    known = cursors(a="finished", b="active")
    assert names(step("a b<a c<a", known)) == ["c"]


def test_a_shard_with_a_cursor_is_never_created_again():
    assert names(step("a b<a", cursors(a="finished", b="finished"))) == []


def test_a_finished_cursor_stays_while_its_shard_can_be_listed():
    known = cursors(a="finished", b="finished", c="active")
    day = 24 * 3600
    assert forgotten(shards("a"), known, now=3 * day, keep_seconds=2 * day) == (known["b"],)
    assert forgotten([], known, now=1 * day, keep_seconds=2 * day) == ()
