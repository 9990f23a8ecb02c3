"""A sample: how much of a table is read, and what is said of the whole, and how surely."""

import math
import random
from statistics import stdev

import pytest

from streamkit.migrate.run.sampling import Part, Sample, Wanted, read_wanted, take_sample
from streamkit.testing.loop import run_virtually


class Table:
    """A table whose every page holds so many items of each segment, of which it keeps some.

    `items` are spread evenly over the segments; a filter would let `kept` of each page through.
    """

    def __init__(self, items, *, page=1_000_000, kept=1.0):
        self.items, self.page, self.kept, self.asked = items, page, kept, []

    async def scan(self, **request):
        self.asked.append(request)
        share, more = self.items // request["TotalSegments"], {}
        done = int(request.get("ExclusiveStartKey", {"n": {"N": "0"}})["n"]["N"])
        count = min(self.page, share - done)
        if done + count < share:
            more = {"LastEvaluatedKey": {"n": {"N": str(done + count)}}}
        items = [{"n": {"N": "1"}}] * int(count * self.kept)
        return {"Items": items, "Count": len(items), "ScannedCount": count, **more}

    @property
    def segments(self):
        return {request["Segment"] for request in self.asked}


def sample(table, wanted, *, items=0, seed=1):
    return run_virtually(
        lambda: take_sample(table.scan, "Shop", wanted, random.Random(seed), items=items)
    )


# -- how much is read ------------------------------------------------------------------------------


def test_a_share_is_read_of_segments_chosen_at_random():
    table = Table(100_000)
    found = sample(table, Wanted(share=0.05))
    assert (found.share, found.scanned) == (0.05, 5_000)
    assert len(table.segments) == 20
    assert table.segments != set(range(20))
    assert not any(request["ConsistentRead"] for request in table.asked)


@pytest.mark.parametrize(
    ("share", "read", "total"), [(1.0, 20, 20), (0.01, 20, 2000), (1e-9, 1, 1_000_000)]
)
def test_a_share_however_small_is_some_segments_of_a_number_that_dynamodb_takes(share, read, total):
    found = sample(Table(2 * total), Wanted(share=share))
    assert (len(found.parts), found.total, found.scanned) == (read, total, 2 * read)


def test_a_number_of_items_is_read_where_the_size_of_the_table_is_known():
    found = sample(Table(100_000), Wanted(items=1000), items=100_000)
    assert (len(found.parts), found.total, found.scanned) == (20, 2000, 1000)


def test_a_table_that_is_larger_than_it_was_is_cut_finer_and_costs_a_few_times_the_number():
    table = Table(1_000_000, page=100)
    found = sample(table, Wanted(items=1000), items=0)
    assert len(found.parts) == 20
    assert found.scanned <= 4 * 1000
    assert len(table.asked) < 150  # of 10,000 pages


def test_a_segment_that_is_left_in_the_middle_is_no_part_of_the_sample():
    table = Table(20 * 25, page=5)  # the last of 20 segments is one too many, for 4 times 120

    found = sample(table, Wanted(items=120), items=0)
    assert (len(found.parts), found.total) == (20, 160)
    assert {part.scanned for part in found.parts} == {500 // 160}


def test_what_was_read_is_counted_and_not_what_a_reply_holds():
    found = sample(Table(2000, kept=0.5), Wanted(share=1.0))
    assert found.scanned == 2000
    assert sum(len(part.items) for part in found.parts) == 1000


@pytest.mark.parametrize(
    ("text", "wanted"),
    [("100%", Wanted(share=1.0)), ("0.5", Wanted(items=1)), ("2.5%", Wanted(share=0.025))],
)
def test_a_sample_is_all_of_a_table_or_one_item_at_least(text, wanted):
    assert read_wanted(text) == wanted


# -- what is said of the whole ---------------------------------------------------------------------


def of(total, count):
    return Sample(total, tuple(Part([], 0) for _ in range(count)))


def test_the_error_of_a_total_is_that_of_the_mean_of_its_parts_without_those_that_were_read():
    amounts = [1.0, 5.0, 3.0, 7.0]
    found = of(16, 4).total_of(amounts)
    assert found.value == 64
    mean = 1.96 * stdev(amounts) / 2 * math.sqrt(1 - 4 / 16)
    assert found.error == pytest.approx(16 * mean)


def test_of_one_part_nothing_is_known_but_what_it_holds():
    assert of(10, 1).total_of([5.0]).error == 50
    assert of(1, 1).total_of([5.0]).error == 0


def test_the_error_of_a_ratio_is_that_of_what_differs_from_it():
    parts, wholes = [1.0, 2.0, 6.0, 3.0], [10.0, 20.0, 30.0, 40.0]
    found = of(100, 4).ratio_of(parts, wholes)
    assert found.value == 0.12
    rest = [part - 0.12 * whole for part, whole in zip(parts, wholes, strict=True)]
    mean = 1.96 * stdev(rest) / 2 * math.sqrt(1 - 4 / 100)
    assert found.error == pytest.approx(mean * 4 / 100)
    assert of(100, 3).ratio_of([1.0, 2.0, 3.0], [10.0, 20.0, 30.0]).error == pytest.approx(0)


def test_a_share_of_nothing_is_nothing():
    assert of(100, 2).ratio_of([0.0, 0.0], [0.0, 0.0]).value == 0
