"""Who a shard is assigned to: evenly, by weight, the same for all, and moved only when needed."""

import time
from collections import Counter

import pytest

from streamkit.fleet.assignment import _number, assign, preference, share
from streamkit.fleet.balance import Balance
from streamkit.progress.control import Cursor

SHARDS, WORKERS = 10_000, 100


def roots(count):
    return [f"shardId-{n:012d}" for n in range(count)]


def workers(count):
    return {f"host/{n}/a{n}": 1 for n in range(count)}


def moved(before, after):
    return sum(after[root] != owner for root, owner in before.items() if root in after)


@pytest.mark.parametrize(("shards", "members"), [(8, 3), (8, 8), (3, 8), (1000, 20), (997, 31)])
def test_equal_workers_get_as_many_shards_each_as_whole_numbers_allow(shards, members):
    counts = Counter(assign(roots(shards), workers(members)).values())
    assert sum(counts.values()) == shards
    assert max(counts.values()) == -(-shards // members)
    assert min(counts[name] for name in workers(members)) == shards // members


def test_every_worker_computes_the_same_whatever_order_it_has_read():
    some, fleet = roots(50), workers(7)
    backwards = dict(reversed(list(fleet.items())))
    assert assign(some, fleet) == assign(reversed(some), backwards)


def test_shares_follow_the_weights():
    weights = {"small": 1, "middle": 2, "large": 5}
    counts = Counter(assign(roots(800), weights).values())
    assert counts == {"small": 100, "middle": 200, "large": 500}


def test_a_shard_more_than_whole_shares_goes_to_the_largest_part_of_one():
    counts = Counter(assign(roots(3), {"light": 1, "heavy": 3}).values())
    assert counts == {"light": 1, "heavy": 2}  # of 0.75 and 2.25


def test_weights_draw_shards_by_preference_and_not_by_order():
    """The first shards, in the order of their hashes, do not all go to the heaviest worker."""
    weights = {"light": 1, "heavy": 3}
    assigned = assign(roots(400), weights)
    first = sorted(roots(400), key=_number)[:100]
    preferred = sum(assigned[root] == "light" for root in first)
    assert 10 < preferred < 40


def test_nothing_is_assigned_without_roots_and_one_worker_gets_everything():
    assert assign([], workers(3)) == {}
    assert set(assign(roots(9), {"only": 1}).values()) == {"only"}


def test_a_worker_more_changes_the_target_of_little_more_than_its_share():
    before, after = assign(roots(1000), workers(20)), assign(roots(1000), workers(21))
    assert 1000 // 21 <= moved(before, after) <= 2.5 * 1000 / 21


def test_a_split_changes_few_targets_besides_the_new_root():
    before, after = assign(roots(200), workers(8)), assign(roots(201), workers(8))
    assert moved(before, after) <= 8


def test_shares_and_preferences_need_nothing_but_names():
    assert share(10, {"a": 1, "b": 4}, "b") == 8.0
    assert preference("seat", "a") == preference("seat", "a") != preference("seat", "b")


# -- the largest streams ---------------------------------------------------------------------------


def seconds_of(shards, members):
    """Measure the processor time of an assignment, the least of three."""
    some, fleet, taken = roots(shards), workers(members), []
    for _ in range(3):
        began = time.process_time()
        assign(some, fleet)
        taken.append(time.process_time() - began)
    return min(taken)


def test_ten_thousand_shards_are_even_and_few_move_when_one_of_a_hundred_workers_leaves():
    fleet = workers(WORKERS)
    before = assign(roots(SHARDS), fleet)
    assert set(Counter(before.values()).values()) == {SHARDS // WORKERS}
    gone = next(iter(fleet))
    after = assign(roots(SHARDS), {name: 1 for name in fleet if name != gone})
    assert set(Counter(after.values()).values()) == {101, 102}
    assert all(after[root] != gone for root in after)
    assert moved(before, after) <= 3 * SHARDS / WORKERS


def test_the_time_of_an_assignment_grows_with_shards_times_workers_and_no_faster():
    small, large = seconds_of(1_000, 50), seconds_of(5_000, 100)
    assert large < 10 * small * 3, (small, large)


def test_a_worker_that_joins_a_hundred_claims_its_share_and_one_of_each():
    fleet = [f"host/{n}/a{n}" for n in range(WORKERS)]
    cursors = [
        Cursor(name, owner=fleet[n % WORKERS], epoch=1) for n, name in enumerate(roots(SHARDS))
    ]
    weights = dict.fromkeys([*fleet, "new"], 1)
    loads = dict.fromkeys(fleet, SHARDS // WORKERS) | {"new": 0}
    mine = {root for root, owner in assign(roots(SHARDS), weights).items() if owner == "new"}
    balance = Balance(SHARDS, weights, loads, "new")
    claimed = balance.choose(cursors, mine)
    assert len(claimed) == SHARDS // (WORKERS + 1)
    assert max(Counter(cursor.owner for cursor in claimed).values()) == 1
    settled = Balance(SHARDS, weights, loads | {"new": len(claimed)}, fleet[0])
    assert settled.choose(cursors, {cursors[1].root}) == []
