"""The breaker opens when most changes of a handler fail, and closes when one works."""

import pytest

from streamkit.core.breaker import LEAST, SECONDS, Breaker


def breaker(*, failed=0, worked=0, now=0.0):
    subject = Breaker("handler")
    for _ in range(worked):
        subject.worked(now)
    for _ in range(failed):
        subject.failed(now)
    return subject


def test_a_few_failures_say_nothing():
    assert not breaker(failed=LEAST - 1).is_open
    assert breaker(failed=LEAST).is_open


@pytest.mark.parametrize(("worked", "failed", "is_open"), [(20, 20, False), (20, 21, True)])
def test_it_opens_when_more_than_half_of_the_changes_fail(worked, failed, is_open):
    assert breaker(worked=worked, failed=failed).is_open is is_open


def test_successes_count_towards_what_has_to_be_known():
    assert breaker(worked=9, failed=11).is_open
    assert not breaker(worked=8, failed=11).is_open


def test_only_the_last_minute_counts():
    subject = breaker(failed=LEAST - 1, now=0.0)
    subject.failed(SECONDS)
    assert not subject.is_open
    subject = breaker(failed=LEAST - 1, now=0.0)
    subject.failed(SECONDS - 1)
    assert subject.is_open
    subject = breaker(worked=1000, now=0.0)
    for _ in range(LEAST):
        subject.failed(SECONDS)
    assert subject.is_open


def test_one_success_closes_it_and_it_begins_anew():
    subject = breaker(failed=100)
    subject.worked(1.0)
    assert not subject.is_open
    for _ in range(LEAST - 2):
        subject.failed(1.0)
    assert not subject.is_open
    subject.failed(1.0)
    assert subject.is_open


def test_its_memory_does_not_grow_with_the_changes_or_the_time():
    subject = Breaker("handler")
    for now in range(1000):
        for _ in range(10):
            subject.worked(now / 2)
    assert len(subject._window) <= SECONDS + 1
