"""External versions: the order of sequence numbers in 63 bits."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamkit.sinks.versions import VERSION_MAX, external_version

TICK = 10**20
NUMBERS = st.one_of(
    st.integers(0, 10**40 - 1),
    st.integers(0, 40).flatmap(lambda digits: st.integers(0, 10**digits - 1)),
    st.builds(
        lambda upper, lower: upper * TICK + lower, st.integers(0, 2**31), st.integers(0, 2**40)
    ),
)


def version(number):
    return external_version(f"{number:040d}")


@given(NUMBERS, NUMBERS, st.integers(0, 10**12))
def test_no_two_sequence_numbers_are_turned_around(number, other, gap):
    near = min(number + gap, 10**40 - 1)
    versions = [version(one) for one in sorted((number, near, other))]
    assert versions == sorted(versions)
    assert 0 <= versions[0] <= versions[-1] <= VERSION_MAX


@given(st.integers(0, 2**30 - 1), st.integers(0, 2**31 - 2), st.integers(1, 2**31))
def test_two_changes_of_a_young_partition_have_two_versions(upper, lower, gap):
    first = upper * TICK + lower
    second = upper * TICK + min(lower + gap, 2**31 - 1)
    assert version(first) < version(second)


@given(st.integers(0, 2**30 - 2), st.integers(0, TICK - 1), st.integers(0, TICK - 1))
def test_a_later_upper_part_outweighs_every_lower_one(upper, lower, next_lower):
    assert version(upper * TICK + lower) < version((upper + 1) * TICK + next_lower)


@given(st.integers(0, 2**30 - 1), st.integers(2**31, 2**50))
def test_in_an_old_partition_what_is_a_thirty_millionth_apart_is_told_apart(upper, lower):
    step = lower // 2**24
    assert version(upper * TICK + lower) < version(upper * TICK + lower + step)


def test_the_ends_of_each_range_meet_in_order():
    edges = [2**31, TICK, 2**30 * TICK, 10**40 - 1]
    numbers = sorted({max(0, min(edge + d, 10**40 - 1)) for edge in edges for d in (-1, 0, 1)})
    versions = [version(number) for number in numbers]
    assert versions == sorted(versions)
    assert versions[-1] <= VERSION_MAX
    assert (version(0), version(1), version(2**31 - 1)) == (0, 1, 2**31 - 1)


def test_a_number_has_the_same_version_in_every_release():
    """An index keeps the versions that an older release has written, and compares them."""
    known = {
        5 * TICK + 2**31 - 1: 23_622_320_127,
        5 * TICK + 2**31: 23_622_320_128,
        5 * TICK + 10**15: 24_252_350_116,
        2**30 * TICK: 6_365_482_337_837_658_368,
        10**40 - 1: 7_022_673_846_181_130_898,
    }
    assert {number: version(number) for number in known} == known


def test_published_numbers_of_one_lineage_rise_though_their_last_digits_fall():
    # The shards in the service model's example of DescribeStream, parents first.
    lineage = (
        "20500000000000000910398",
        "820400000000000001192334",
        "1683700000000000001135967",
        "2574600000000000000935255",
    )
    versions = [external_version(number) for number in lineage]
    assert versions == sorted(set(versions))
    assert [int(number) % TICK for number in lineage] != sorted(int(n) % TICK for n in lineage)


def test_leading_zeros_mean_nothing():
    assert external_version("42") == external_version("42".zfill(40))


@pytest.mark.parametrize("text", ["", "x", "-1", "1" * 41, "٣", "1.5"])
def test_what_is_no_sequence_number_is_refused(text):
    with pytest.raises(ValueError, match="40 digits"):
        external_version(text)
