"""Who a shard is assigned to: evenly, by weight, the same for all, and moved only when needed."""

from collections import Counter

import pytest

from streamkit.fleet.assignment import assign, preference, share


def seats(count):
    return [f"shardId-{n:012d}" for n in range(count)]


def workers(count):
    return {f"host/{n}/a{n}": 1 for n in range(count)}


def moved(before, after):
    return sum(after[seat] != owner for seat, owner in before.items() if seat in after)


@pytest.mark.parametrize(("shards", "members"), [(8, 3), (8, 8), (3, 8), (1000, 20), (997, 31)])
def test_equal_workers_get_as_many_shards_each_as_whole_numbers_allow(shards, members):
    counts = Counter(assign(seats(shards), workers(members)).values())
    assert sum(counts.values()) == shards
    assert max(counts.values()) == -(-shards // members)
    assert min(counts[name] for name in workers(members)) == shards // members


def test_every_worker_computes_the_same_whatever_order_it_has_read():
    some, fleet = seats(50), workers(7)
    backwards = dict(reversed(list(fleet.items())))
    assert assign(some, fleet) == assign(reversed(some), backwards)


def test_shares_follow_the_weights():
    weights = {"small": 1, "middle": 2, "large": 5}
    counts = Counter(assign(seats(800), weights).values())
    assert counts == {"small": 100, "middle": 200, "large": 500}


def test_weights_draw_shards_by_preference_and_not_by_order():
    """The first shards, in the order of their hashes, do not all go to the heaviest worker."""
    weights = {"light": 1, "heavy": 3}
    assigned = assign(seats(400), weights)
    preferred = sum(assigned[seat] == "light" for seat in seats(400)[:100])
    assert 10 < preferred < 40


def test_nothing_is_assigned_without_seats_and_one_worker_gets_everything():
    assert assign([], workers(3)) == {}
    assert set(assign(seats(9), {"only": 1}).values()) == {"only"}


def test_a_worker_more_changes_the_target_of_little_more_than_its_share():
    before, after = assign(seats(1000), workers(20)), assign(seats(1000), workers(21))
    assert 1000 // 21 <= moved(before, after) <= 2.5 * 1000 / 21


def test_a_split_changes_few_targets_besides_the_new_seat():
    before, after = assign(seats(200), workers(8)), assign(seats(201), workers(8))
    assert moved(before, after) <= 8


def test_shares_and_preferences_need_nothing_but_names():
    assert share(10, {"a": 1, "b": 4}, "b") == 8.0
    assert preference("seat", "a") == preference("seat", "a") != preference("seat", "b")
