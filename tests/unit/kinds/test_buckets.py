"""A moment's bucket is where a clock on the wall says, and every moment has exactly one."""

from datetime import UTC, date, datetime, timedelta, timezone
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamkit import Until, bucket

BERLIN = ZoneInfo("Europe/Berlin")
UNITS = ("year", "month", "week", "day", "hour", "minute")
ZONES = ("UTC", "Europe/Berlin", "Asia/Kolkata", "Australia/Lord_Howe", "America/Havana")
NAIVE = datetime(2024, 1, 1)  # noqa: DTZ001 - that is the point
moments = st.datetimes(NAIVE.replace(year=2000), NAIVE.replace(year=2035), timezones=st.just(UTC))


def starts(first, hours, unit, tz="Europe/Berlin"):
    """Return the buckets of half-hours from a moment on, each once, in order."""
    halves = [first + timedelta(minutes=30 * n) for n in range(2 * hours)]
    return list(dict.fromkeys(bucket(moment, unit, tz=tz) for moment in halves))


@pytest.mark.parametrize(
    ("unit", "start"),
    [
        ("year", "2024-01-01T00:00:00+01:00"),
        ("month", "2024-07-01T00:00:00+02:00"),
        ("week", "2024-07-15T00:00:00+02:00"),
        ("day", "2024-07-18T00:00:00+02:00"),
        ("hour", "2024-07-18T00:00:00+02:00"),
        ("minute", "2024-07-18T00:34:00+02:00"),
    ],
)
def test_a_bucket_begins_where_the_local_clock_says(unit, start):
    moment = datetime(2024, 7, 17, 22, 34, 56, 789, tzinfo=UTC)
    assert bucket(moment, unit, tz="Europe/Berlin").isoformat() == start


@pytest.mark.parametrize(
    ("day", "hours"), [((2024, 3, 31), 23), ((2024, 10, 27), 25), ((2024, 6, 1), 24)]
)
def test_a_day_in_which_clocks_change_is_one_bucket_of_23_or_25_hours(day, hours):
    midnight = datetime(*day, tzinfo=BERLIN).astimezone(UTC)
    assert len(starts(midnight, hours, "day")) == 1
    assert len(starts(midnight, hours + 1, "day")) == 2
    assert len(starts(midnight, hours, "hour")) == hours


def test_the_hour_that_happens_twice_is_two_buckets_with_different_keys():
    first, second = starts(datetime(2024, 10, 27, 0, tzinfo=UTC), 2, "hour")
    assert second - first == timedelta(hours=1)
    assert first.isoformat() == "2024-10-27T02:00:00+02:00"
    assert second.isoformat() == "2024-10-27T02:00:00+01:00"
    assert f"{first:%Y-%m-%dT%H%z}" != f"{second:%Y-%m-%dT%H%z}"


def test_a_day_without_midnight_begins_when_its_first_hour_does():
    noon = datetime(2024, 3, 10, 12, tzinfo=ZoneInfo("America/Havana"))
    assert bucket(noon, "day", tz="America/Havana").isoformat() == "2024-03-10T01:00:00-04:00"


@given(moments, st.sampled_from(UNITS), st.sampled_from(ZONES))
def test_a_bucket_holds_its_own_start_and_none_after_the_moment(moment, unit, tz):
    start = bucket(moment, unit, tz=tz)
    assert start <= moment
    assert bucket(start, unit, tz=tz) == start


@given(st.lists(moments, min_size=2), st.sampled_from(UNITS), st.sampled_from(ZONES))
def test_later_moments_have_no_earlier_buckets(found, unit, tz):
    in_order = [bucket(moment, unit, tz=tz) for moment in sorted(found)]
    assert all(sooner <= later for sooner, later in pairwise(in_order))


def test_a_zone_may_be_given_as_a_tzinfo():
    moment = datetime(2024, 1, 1, 23, tzinfo=UTC)
    assert bucket(moment, "day", tz=timezone(timedelta(hours=2))).day == 2


@pytest.mark.parametrize(
    ("moment", "unit", "tz", "text"),
    [
        (NAIVE, "day", "UTC", "with a time zone"),
        (datetime(2024, 1, 1, tzinfo=UTC), "day", "Europe/Atlantis", "no time zone"),
        (datetime(2024, 1, 1, tzinfo=UTC), "fortnight", "UTC", "not 'fortnight'"),
        (None, "day", "UTC", "and not NoneType"),
    ],
)
def test_nothing_is_guessed(moment, unit, tz, text):
    with pytest.raises(ValueError, match=text):
        bucket(moment, unit, tz=tz)


def test_until_counts_24_hours_a_day_from_the_moment_in_the_key():
    until = Until("day", keep=timedelta(days=1))
    day = datetime(2024, 3, 31, tzinfo=BERLIN)
    assert until.moment({"day": day}) == datetime(2024, 3, 31, 23, tzinfo=UTC)


def test_a_date_begins_where_until_says():
    until = Until("day", keep=timedelta(days=1), tz="Europe/Berlin")
    assert until.moment({"day": date(2024, 1, 2)}) == datetime(2024, 1, 2, 23, tzinfo=UTC)


@pytest.mark.parametrize("fields", [{}, {"day": NAIVE}, {"day": date(2024, 1, 1)}])
def test_until_does_not_guess_either(fields):
    with pytest.raises(ValueError, match="no such moment"):
        Until("day", keep=timedelta(days=1)).moment(fields)


@pytest.mark.parametrize("minute", [0, 45])
def test_a_day_whose_midnight_happens_twice_begins_with_the_first(minute):
    first = datetime(2024, 11, 3, 4, minute, tzinfo=UTC)
    starts = {bucket(first + timedelta(hours=n), "day", tz="America/Havana") for n in (0, 1, 20)}
    assert [start.isoformat() for start in starts] == ["2024-11-03T00:00:00-04:00"]
