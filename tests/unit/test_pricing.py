"""Prices: units and dollars follow from the settings, and from what AWS publishes."""

from dataclasses import dataclass

import pytest

from streamkit.archive.objects import Flush
from streamkit.observe.pricing import FREE_STREAM_READS, Cost, estimate, polls_a_second


@dataclass(frozen=True)
class Rates:
    heartbeat: float = 3.0
    look_interval: float = 0.5
    list_interval: float = 30.0
    checkpoint_interval: float = 60.0
    poll_floor: float = 0.2
    poll_ceiling: float = 1.0


def cost_of(what, rates=None, *, shards=4, workers=1, changes=0.0):
    costs = estimate(rates or Rates(), shards=shards, workers=workers, changes=changes).costs
    (found,) = [cost for cost in costs if cost.what == what]
    return found


@pytest.mark.parametrize(("every", "dollars"), [(0.25, 2.10), (1, 0.526), (2, 0.263), (10, 0.053)])
def test_a_quiet_shard_costs_what_its_polls_cost(every, dollars):
    polls = cost_of("polls", Rates(poll_ceiling=every))
    assert polls.dollars_each == pytest.approx(dollars, rel=0.01)
    assert polls.dollars == pytest.approx(4 * dollars, rel=0.01)


@pytest.mark.parametrize(("every", "dollars"), [(3.3, 0.50), (5, 0.33), (10, 0.16)])
def test_a_worker_costs_a_write_for_each_heartbeat(every, dollars):
    beats = cost_of("heartbeats", Rates(heartbeat=every), workers=3)
    assert beats.dollars_each == pytest.approx(dollars, rel=0.03)
    assert beats.dollars == 3 * beats.dollars_each


def test_reads_cost_a_fifth_of_writes():
    write, read = (Cost("", "worker", kind, 1000.0).dollars for kind in ("write", "read"))
    assert write == pytest.approx(5 * read)


def test_looks_read_more_as_the_fleet_grows_and_directories_as_the_shards_do():
    assert cost_of("looks at the others", workers=10).units == 3600
    assert cost_of("looks at the others", workers=20).units == 2 * 3600
    assert cost_of("directories", shards=1000).units == cost_of("directories", shards=4).units
    assert cost_of("directories", shards=10_000).units > 5 * cost_of("directories").units


def test_polls_lie_between_those_of_a_quiet_shard_and_those_after_every_page():
    rates = Rates()
    polls = [polls_a_second(rates, records) for records in (0, 1e-6, 0.1, 1, 10, 1000)]
    assert polls[0] == 1
    assert polls[1] == pytest.approx(1, rel=0.001)
    assert polls == sorted(polls)
    assert polls[-1] == pytest.approx(5, rel=0.001)


def test_a_floor_of_zero_or_above_the_ceiling_can_be_computed():
    assert polls_a_second(Rates(poll_floor=0), 5.0) > polls_a_second(Rates(), 5.0)
    assert polls_a_second(Rates(poll_floor=3, poll_ceiling=1), 5.0) == pytest.approx(1)


def test_an_idle_table_has_no_commits_and_a_busy_one_at_most_one_a_change():
    whats = [cost.what for cost in estimate(Rates(), shards=4, workers=1).costs]
    assert "cursors of commits" not in whats
    seldom = cost_of("cursors of commits", changes=0.004)
    assert seldom.units == pytest.approx(2 * 3600 * 0.001, rel=0.01)
    often = cost_of("cursors of commits", changes=4000)
    assert often.units == pytest.approx(2 * 3600 * 5, rel=0.01)


def test_an_archive_costs_an_object_every_five_minutes_on_a_busy_shard_and_one_an_hour_else():
    """The figures of a month: 8,640 objects cost $0.043, and their positions $0.005."""
    quiet = estimate(Rates(), shards=4, workers=1, archive=Flush())
    busy = estimate(Rates(), shards=4, workers=1, changes=40, archive=Flush())
    puts = [next(c for c in one.costs if c.kind == "put") for one in (quiet, busy)]
    assert [cost.units for cost in puts] == [1.75, 12.75]
    assert puts[1].dollars_each == pytest.approx(0.0465, rel=0.01)
    (position,) = [c for c in busy.costs if c.what == "archive: positions, shard ends"]
    assert position.dollars_each == pytest.approx(0.0066, rel=0.01)
    full = estimate(Rates(), shards=1, workers=1, changes=5000, archive=Flush())
    assert next(c for c in full.costs if c.kind == "put").units == pytest.approx(1440.75)
    assert not [c for c in estimate(Rates(), shards=4, workers=1).costs if c.kind == "put"]


def test_the_sum_is_that_of_workers_shards_and_leader():
    found = estimate(Rates(), shards=12, workers=3)
    parts = 3 * found.each("worker") + 12 * found.each("shard") + found.each("fleet")
    assert found.dollars == pytest.approx(parts)


def test_the_free_tier_takes_off_no_more_than_there_is():
    assert estimate(Rates(), shards=100, workers=1).free == pytest.approx(0.50)
    one = estimate(Rates(poll_ceiling=10), shards=1, workers=1)
    assert one.free == pytest.approx(0.053, rel=0.01)
    assert FREE_STREAM_READS == 2_500_000
