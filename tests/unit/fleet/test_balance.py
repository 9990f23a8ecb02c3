"""Balance: a worker claims its share from workers with more, and then the fleet is at rest."""

import math
import random
from collections import Counter

import pytest

from streamkit.fleet.assignment import share
from streamkit.fleet.balance import Balance
from streamkit.progress.control import Cursor


def spread(**counts):
    """Return the owner of each shard; each worker owns so many."""
    owners = [name for name, count in counts.items() for _ in range(count)]
    return {f"s{number:03d}": owner for number, owner in enumerate(owners)}


def balance(owners, weights, worker):
    loads = dict.fromkeys(weights, 0) | Counter(owners.values())
    return Balance(len(owners), weights, loads, worker)


def chosen(owners, weights, worker, mine=()):
    """Return the shards that a worker claims, in order; none is its own."""
    cursors = [Cursor(s, root=s, owner=o) for s, o in owners.items() if o != worker]
    return [cursor.name for cursor in balance(owners, weights, worker).choose(cursors, mine)]


def at_rest(owners, weights):
    """Let each worker in turn claim and get, until none does; return how many shards moved."""
    moves = 0
    for _ in range(10):
        before = moves
        for worker in weights:
            claimed = chosen(owners, weights, worker)
            moves += len(claimed)
            owners |= dict.fromkeys(claimed, worker)
        if moves == before:
            return moves
    raise AssertionError("shards wander for ever")


def evenly(roots, names):
    return {f"s{number:03d}": names[number % len(names)] for number in range(roots)}


SHAPES = [(8, 3), (24, 5), (997, 20), (1000, 20), (3, 8)]


@pytest.mark.parametrize(("roots", "before"), SHAPES)
def test_a_worker_that_joins_moves_its_whole_share_and_no_more(roots, before):
    names = [f"w{number}" for number in range(before)]
    owners, weights = evenly(roots, names), dict.fromkeys((*names, "new"), 1)
    assert len(chosen(owners, weights, "new")) == roots // (before + 1)
    assert at_rest(owners, weights) == roots // (before + 1)


@pytest.mark.parametrize(("roots", "before"), SHAPES)
def test_nobody_falls_below_its_share_by_what_another_claims(roots, before):
    names = [f"w{number}" for number in range(before)]
    owners, weights = evenly(roots, names), dict.fromkeys((*names, "new"), 1)
    owners |= dict.fromkeys(chosen(owners, weights, "new"), "new")
    loads = Counter(owners.values())
    assert min(loads[name] for name in names) >= roots // (before + 1)


def test_a_worker_claims_what_it_lacks_to_its_whole_share():
    weights = dict.fromkeys("abc", 1)
    for has in range(4):
        owners = spread(a=has, b=(9 - has) // 2, c=(8 - has) // 2)
        assert len(chosen(owners, weights, "a")) == max(0, 2 - has)


def test_nobody_with_no_more_than_its_share_is_claimed_from_whatever_the_claimant_lacks():
    """Those that are leaving hold the rest."""
    owners, weights = spread(a=3, b=1, leaving=5), dict.fromkeys(("a", "b", "me"), 1)
    cursors = [Cursor(s, root=s, owner=o) for s, o in owners.items()]
    assert Balance(9, weights, {"a": 3, "b": 1, "me": 0}, "me").choose(cursors, ()) == []


def test_claims_go_to_whoever_has_most_to_spare_at_that_point():
    owners, weights = spread(a=7, b=5, c=4, me=0), dict.fromkeys(("a", "b", "c", "me"), 1)
    claimed = [owners[shard] for shard in chosen(owners, weights, "me")]
    assert claimed[:2] == ["a", "a"]
    assert Counter(claimed) == {"a": 3, "b": 1}


def test_of_one_owners_shards_those_that_are_assigned_to_the_claimant_come_first():
    owners, weights = spread(a=6, me=0), dict.fromkeys(("a", "me"), 1)
    assert set(chosen(owners, weights, "me", {"s001", "s003", "s005"})) == {"s001", "s003", "s005"}
    assert set(chosen(owners, weights, "me", {"s000", "s002", "s004"})) == {"s000", "s002", "s004"}


def test_a_shard_that_nobody_in_the_fleet_reads_is_not_claimed():
    owners = spread(a=6, gone=6)
    cursors = [Cursor(s, root=s, owner=o) for s, o in owners.items()]
    cursors.append(Cursor("free", root="free"))
    claims = Balance(6, {"a": 1, "me": 1}, {"a": 6, "me": 0}, "me").choose(cursors, ())
    assert [cursor.owner for cursor in claims] == ["a", "a", "a"]


# -- beyond the whole share ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("loads", "claimed"),
    [
        ({"me": 2, "a": 4, "b": 1}, 1),  # 2.3 each: one of a's is too many, whatever b gets
        ({"me": 2, "a": 3, "b": 2}, 0),  # somebody has to hold the one that is left over
        ({"me": 3, "a": 4, "b": 1}, 0),  # the relief of a is for the others
        ({"me": 2, "a": 4, "b": 0}, 0),  # no room: the share is whole
    ],
)
def test_a_worker_with_its_whole_share_relieves_only_those_with_one_too_many(loads, claimed):
    owners, weights = spread(**loads), dict.fromkeys(loads, 1)
    assert balance(owners, weights, "me").lacking == bool(claimed)
    assert len(chosen(owners, weights, "me")) == claimed


def test_claims_follow_the_weights():
    weights = {"small": 1, "middle": 2, "large": 5}
    owners = spread(small=80, middle=0, large=0)
    assert len(chosen(owners, weights, "large")) == 50
    assert len(chosen(owners, weights, "middle")) == 20
    at_rest(owners, weights)
    assert Counter(owners.values()) == {"small": 10, "middle": 20, "large": 50}


# -- rest ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(60))
def test_a_fleet_in_any_state_comes_to_rest_with_few_moves_more_than_it_takes(seed):
    rng = random.Random(seed)
    names = [f"w{number}" for number in range(rng.randint(1, 8))]
    weights = {name: rng.choice((1, 1, 1, 2, 5)) for name in names}
    owners = {f"s{number:03d}": rng.choice(names) for number in range(rng.randint(0, 60))}
    loads, shares = Counter(owners.values()), {n: share(len(owners), weights, n) for n in names}
    due = sum(max(0, loads[name] - math.floor(part)) for name, part in shares.items())
    assert at_rest(owners, weights) <= due + len(names) // 2
    loads = Counter(owners.values())
    for name, part in shares.items():
        # A share of 20 and more may stay one in twenty short, see below.
        assert loads[name] - part < 1
        assert part - loads[name] < 1 + part // 20


def test_nothing_wanders_for_a_twentieth_of_a_share_if_nobody_has_one_too_many():
    names = [f"w{number}" for number in range(20)]
    weights = dict.fromkeys((*names, "me"), 1)  # 47.6 each
    loads = dict.fromkeys(names[:15], 48) | dict.fromkeys(names[15:], 47)
    owners = spread(me=45, **loads)
    assert chosen(owners, weights, "me") == []
    assert not balance(owners, weights, "me").lacking
    owners |= dict.fromkeys([s for s, o in owners.items() if o == "me"][:1], "w19")
    assert len(chosen(owners, weights, "me")) == 3


def test_a_fleet_is_settled_when_each_shard_is_held_once_by_what_all_say():
    weights = {"a": 1, "b": 1}
    assert Balance(4, weights, {"a": 4, "b": 0}, "b").settled
    assert not Balance(4, weights, {"a": 3, "b": 0}, "b").settled
    assert not Balance(4, weights, {"a": 3, "b": 2}, "b").settled


def test_a_worker_alone_and_one_without_shards_claim_nothing():
    assert chosen(spread(me=5), {"me": 1}, "me") == []
    assert chosen({}, {"me": 1, "a": 1}, "me") == []
