"""A large fleet shares many shards: evenly, with few moves, and at a price that is known.

`make fleet` measures larger ones; this one is as large as a test may be.
"""

import pytest

from streamkit.settings import Settings
from tests.simulation.balance import bytes_of, measure

SHARDS, WORKERS = 240, 8
SHARE = SHARDS // WORKERS
BYTES_A_SHARD = 13_200
"""A third more than the 10,100 that were measured with CPython 3.11."""


@pytest.fixture(scope="module")
def report():
    report = measure(SHARDS, WORKERS)
    print("\n".join(report.lines()))
    return report


def test_workers_that_start_together_are_even_within_a_minute(report):
    start = report.stages["start"]
    assert start.seconds <= 60
    assert start.spread == (SHARE, SHARE)
    assert start.moves == SHARDS, "a shard was taken twice"


def test_a_worker_that_joins_moves_no_more_than_its_share(report):
    join = report.stages["join"]
    assert join.moves == len(join.moved) <= SHARE
    assert join.spread == (SHARDS // (WORKERS + 1), SHARDS // (WORKERS + 1) + 1)


def test_the_death_of_a_worker_moves_its_shards_and_few_others(report):
    """They go to whom they are assigned to, and claims even out what that left uneven."""
    kill = report.stages["kill"]
    assert report.killed <= kill.moved
    assert len(kill.moved - report.killed) <= len(report.killed) / 3
    assert kill.seconds <= 40
    assert kill.spread == (SHARE, SHARE)


def test_shards_that_all_roll_at_once_stay_where_they_were(report):
    roll = report.stages["roll"]
    assert roll.moves <= SHARDS / 100
    assert roll.spread == (SHARE, SHARE)


def test_a_large_fleet_asks_for_shards_ten_times_a_second_at_most(report):
    assert 0 < report.most_describes <= 10
    assert {status for _, status in report.describes} == {200}


def test_a_quiet_large_fleet_polls_as_often_as_it_is_set_to_and_writes_heartbeats_only(report):
    minute = report.calls
    assert SHARDS <= minute["GetRecords"] <= 1.1 * SHARDS
    assert minute.keys() <= {
        "GetRecords", "Query", "UpdateItem", "BatchGetItem", "GetItem", "DescribeStream",
    }  # fmt: skip
    assert minute["UpdateItem"] <= (60 / Settings().heartbeat + 1) * WORKERS


def test_a_quiet_shard_takes_ten_kilobytes_of_a_workers_memory():
    few, many = bytes_of(50), bytes_of(200)
    found = (many - few) / 150
    print(f"{found:,.0f} bytes for each shard, {few - 50 * found:,.0f} for a worker without any")
    assert found <= BYTES_A_SHARD
