"""Usage: a heartbeat says what a worker's calls have used, and what that was a while ago."""

from itertools import pairwise

import pytest

from streamkit.observe.usage import AGES, Usage, UsageMark

BEGAN = 1_000


def begun():
    usage = Usage()
    usage.begin(BEGAN)
    usage.add("Query", 10.0)
    return usage


def test_five_minutes_have_to_pass_until_anything_is_said_of_a_while_ago():
    usage = begun()
    assert [usage.lately(BEGAN + s) for s in (10, 299, 300, 599)] == ["", "", "", ""]
    assert usage.lately(BEGAN + 600) == f"{BEGAN + 300} 10 0 0"


def test_a_mark_is_said_once_though_it_is_the_last_one_before_two_ages():
    usage = begun()
    usage.lately(BEGAN + 300)
    assert usage.lately(BEGAN + 300 + AGES[1]) == f"{BEGAN + 300} 10 0 0"


def test_for_each_age_there_is_a_mark_that_is_little_older():
    usage, now = begun(), BEGAN
    for now in range(BEGAN, BEGAN + 90_000, 60):
        usage.add("TransactWriteItems", 2.0)
        said = usage.lately(now)
    marks = usage.marks(said, now)
    assert [(m.at, m.write) for m in (marks[0], marks[-1])] == [(BEGAN, 0.0), (now, usage.write)]
    ages = sorted(now - mark.at for mark in marks[1:-1])
    for age, found in zip(AGES, ages, strict=True):
        assert age <= found <= age + 360
    assert all(before.write < after.write for before, after in pairwise(marks))


@pytest.mark.parametrize(
    ("operation", "kind"),
    [
        ("GetRecords", "stream"),
        ("GetItem", "read"),
        ("BatchGetItem", "read"),
        ("Query", "read"),
        ("Scan", "read"),
        ("TransactGetItems", "read"),
        ("PutItem", "write"),
        ("TransactWriteItems", "write"),
    ],
)
def test_each_operation_is_billed_as_one_kind(operation, kind):
    usage = Usage()
    usage.add(operation, 3.0)
    assert {name: getattr(usage, name) for name in ("read", "write", "stream")} == {
        "read": 0.0,
        "write": 0.0,
        "stream": 0.0,
    } | {kind: 3.0}


def test_what_a_heartbeat_carries_is_read_as_it_was():
    usage = begun()
    usage.add("PutItem", 4.5)
    assert Usage.of(usage.text) == usage
    assert Usage.of(f"{usage.text} 7") is None, "another version says more"
    throttled = Usage()
    assert throttled.text == ""
    throttled.throttle()
    assert Usage.of(throttled.text) == throttled
    assert usage.marks("", 2_000) == [
        UsageMark(BEGAN),
        UsageMark(2_000, usage.read, usage.write, usage.stream),
    ]


def test_a_mark_in_which_a_later_release_says_more_is_read():
    assert begun().marks(f"{BEGAN + 60} 1 2 3 4", 2_000)[1] == UsageMark(BEGAN + 60, 1.0, 2.0, 3.0)
