"""What the passes of a verification have found so far, and what its next pass looks for."""

from types import SimpleNamespace

import pytest

from streamkit.migrate.verify.differences import ItemDifference
from streamkit.migrate.verify.findings import Findings
from streamkit.migrate.verify.known import known_of
from streamkit.migrate.verify.orphans import BUCKETS
from streamkit.migrate.verify.settling import is_sure
from streamkit.migrate.verify.verification_book import VerificationState

ONE, OTHER = BUCKETS + 1, BUCKETS + 2
"""Digests of two pairs, in buckets 1 and 2."""


def copy(pair, image="as read"):
    return ItemDifference(f"c{pair}", "orphan", "no source", {}, image)


def passes(*searches, different=(), beyond=0):
    """Return what a first pass and searches have found, each search as its copies by their pairs."""
    first = Findings(different=list(different), beyond=beyond)
    rounds = [frozenset({1}), frozenset({2})]
    first.balance = SimpleNamespace(rounds=lambda: iter(rounds))
    return [first, *(SimpleNamespace(search=SimpleNamespace(left=left)) for left in searches)]


def known(found, *, orphans=True, waived=(), **state):
    return known_of(found, VerificationState(**state), frozenset(waived), orphans=orphans)


def test_the_first_pass_looks_for_everything_and_is_followed_by_its_unequal_buckets():
    different = [copy(7)]
    now = known(passes(different=different, beyond=3))
    assert (list(now.found.kept), now.found.beyond) == (["c7"], 3)
    assert (now.wants, now.orphans, now.doubt) == (None, {}, {})
    assert now.more == [{1}, {2}]
    assert known(passes(), orphans=False).more == []


def test_a_round_looks_for_the_copies_of_its_buckets_and_doubts_what_has_no_source():
    now = known(passes({ONE: copy(ONE)}), rounds=1)
    assert now.doubt.keys() == {ONE}
    assert now.wants is not None
    assert [now.wants(ONE), now.wants(OTHER)] == [True, False]
    assert now.more == [{2}]
    now = known(passes({ONE: copy(ONE)}, {OTHER: copy(OTHER)}), rounds=2)
    assert [now.wants(ONE), now.wants(OTHER)] == [False, True]
    assert now.doubt.keys() == {ONE, OTHER}
    assert now.found.kept.keys() == {f"c{ONE}", f"c{OTHER}"}
    assert now.orphans == {}, "one look is not enough"


@pytest.mark.parametrize(
    ("image", "capture", "sure"),
    [
        ("as read", "in step", True),
        ("as read", "behind", False),
        ("another", "in step", False),  # it is written still
        ("another", "nobody", True),  # nobody will delete it
    ],
)
def test_a_copy_that_has_no_source_twice_is_an_orphan_or_is_looked_at_again(image, capture, sure):
    searches = {ONE: copy(ONE), OTHER: copy(OTHER)}, {}, {ONE: copy(ONE, image)}
    now = known(passes(*searches), rounds=2, looks=(capture,))
    assert is_sure(copy(ONE, image), copy(ONE), capture) is sure
    assert now.orphans.keys() == ({ONE} if sure else set())
    assert now.doubt.keys() == (set() if sure else {ONE}), "the other one has a source by now"
    assert [now.wants(ONE), now.wants(OTHER)] == [True, True], "what this look was to look for"


def test_a_copy_is_sure_against_the_look_before_and_stays_so():
    searches = {ONE: copy(ONE, "a")}, {}, {ONE: copy(ONE, "b")}, {ONE: copy(ONE, "b")}
    now = known(passes(*searches), rounds=2, looks=("in step", "in step"))
    assert (now.orphans.keys(), now.doubt) == ({ONE}, {})
    later = known(passes(*searches, {}), rounds=2, looks=("in step",) * 3)
    assert later.orphans.keys() == {ONE}


def test_a_waived_difference_takes_no_room_of_the_others():
    now = known(passes({ONE: copy(ONE)}), rounds=1, waived=[f"c{ONE}"])
    assert now.found.kept.keys() == {f"c{ONE}"}
    assert now.found._counted == 0
