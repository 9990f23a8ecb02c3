"""Claims: one a view and lease, with a deadline; what was given is left to its claimant for a while."""

from dataclasses import replace

from streamkit.fleet.claims import Claims, token
from streamkit.fleet.members import Member
from streamkit.progress.control import Cursor

SHARD = Cursor("s", owner="owner", epoch=4)


def claims():
    return Claims(deadline_seconds=25.0, reserve_seconds=7.0)


def test_a_shard_is_claimed_once_a_view():
    mine = claims()
    assert mine.may_claim("s")
    mine.claim(SHARD, 0.0)
    mine.settle("s")
    assert not mine.may_claim("s")
    mine.new_view()
    assert mine.may_claim("s")


def test_a_claim_names_the_lease_and_says_nothing_about_a_later_one():
    claimant = claims()
    claimant.claim(SHARD, 0.0)
    other = Member("claimant", claims=claimant.tokens)
    later = replace(SHARD, epoch=5)
    assert claims().granted({"s": SHARD}, [other], 0.0) == ["s"]
    assert claims().granted({"s": later}, [other], 0.0) == []
    assert not claimant.is_overdue(later, 1000.0)
    assert token(later) != token(SHARD)


def test_a_claim_is_overdue_at_its_deadline_and_not_before():
    mine = claims()
    mine.claim(SHARD, 100.0)
    assert not mine.is_overdue(SHARD, 124.9)
    assert mine.is_overdue(SHARD, 125.0)


def test_in_a_starved_fleet_an_owner_has_longer_to_give_and_a_claimant_to_take():
    mine = claims()
    mine.times = 4
    mine.claim(SHARD, 100.0)
    assert not mine.is_late(SHARD, 100.0)
    assert not mine.is_overdue(SHARD, 199.9)
    assert not mine.is_late(SHARD, 199.9)
    assert mine.is_overdue(SHARD, 200.0)
    assert mine.is_late(SHARD, 200.0)


def test_what_was_not_claimed_is_never_overdue():
    assert not claims().is_overdue(SHARD, 1e9)


def test_a_claim_that_is_settled_is_withdrawn():
    mine = claims()
    mine.claim(SHARD, 0.0)
    assert (mine.pending, mine.tokens) == ({"s"}, {token(SHARD)})
    mine.settle("s")
    assert (mine.pending, mine.tokens) == (frozenset(), frozenset())
    mine.settle("s")


def test_a_given_shard_is_reserved_for_a_lease_and_then_anybodys():
    owner, claimant = claims(), claims()
    claimant.claim(SHARD, 0.0)
    owner.granted({"s": SHARD}, [Member("claimant", claims=claimant.tokens)], 10.0)
    assert owner.is_reserved(SHARD, 16.9)
    assert not owner.is_reserved(SHARD, 17.0)
    assert not owner.is_reserved(SHARD, 10.0)


def test_a_shard_that_came_back_is_not_kept_for_who_had_it():
    owner, claimant = claims(), claims()
    claimant.claim(SHARD, 0.0)
    owner.granted({"s": SHARD}, [Member("claimant", claims=claimant.tokens)], 10.0)
    assert not owner.is_reserved(replace(SHARD, owner=None, epoch=5), 11.0)


def test_nothing_is_given_that_nobody_claims():
    owner = claims()
    assert owner.granted({"s": SHARD}, [Member("other")], 0.0) == []
    assert not owner.is_reserved(SHARD, 0.0)
