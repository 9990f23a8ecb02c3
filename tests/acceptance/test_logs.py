"""Logs, under traffic and trouble, and one statement of their README at a time."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta

import pytest

from handlers.logs import month
from handlers.logs.entities import KEPT, SUFFIXES, LogLine, new_line
from handlers.logs.handlers import (
    SHAPE,
    DayCounts,
    app_for,
    errors_table,
    lines_of,
    month_table,
)
from handlers.logs.traffic import Traffic
from streamkit import TableShape
from streamkit.kinds.preflight import findings
from streamkit.testing import Harness, Recorder, Trouble, recording, trial
from streamkit.testing.loop import EPOCH
from tests.seeds import seeds

BEGAN = datetime.fromtimestamp(EPOCH, UTC)
MONTH = BEGAN.date().replace(day=1)
MIDNIGHT = datetime(MONTH.year, MONTH.month, 1, tzinfo=UTC)
BEFORE = month_table(MONTH - timedelta(days=1))
ERRORS = errors_table(MONTH)

app = app_for(MONTH)


@pytest.fixture
def archive() -> Iterator[Recorder]:
    with recording(app) as sent:
        yield sent["archive"]


@pytest.fixture
def logs(archive: Recorder, harness_of: Callable[..., Harness]) -> Harness:
    return harness_of(app, shape=SHAPE, shards=4)


def some_lines(count: int, day: datetime = BEGAN) -> list[LogLine]:
    midnight = day.replace(hour=0, minute=0, second=0, microsecond=0)
    return [
        new_line(f"{n:04d}", midnight + timedelta(minutes=n // 2), "INFO", "hello")
        for n in range(count)
    ]


def counts(logs: Harness, day: datetime = BEGAN) -> tuple[int, int]:
    found = logs.get(DayCounts.key(day=day.date()))
    return (0, 0) if found is None else (found.lines, found.errors)


@pytest.mark.parametrize("seed", seeds(3))
def test_the_logs_are_what_their_history_says(seed: int) -> None:
    others = {BEFORE: TableShape(), ERRORS: TableShape()}
    trouble = Trouble(pause=5)
    ran = trial(app, Traffic(), shape=SHAPE, others=others, seed=seed, acts=120, trouble=trouble)
    assert all(comparison.compared for comparison in ran.comparisons)


def test_the_app_fits_its_tables_without_a_finding(logs: Harness) -> None:
    assert findings(app, logs.tables) == []


def test_the_lines_of_a_day_lie_in_all_partitions_and_are_read_in_order(logs: Harness) -> None:
    lines = some_lines(40)
    logs.put(*reversed(lines), *some_lines(3, BEGAN + timedelta(days=1)))
    assert {line.suffix for line in lines} == set(range(1, SUFFIXES + 1))

    async def read() -> list[LogLine]:
        return [line async for line in lines_of(logs.table, BEGAN.date())]

    assert logs._run(read()) == lines


def test_the_count_of_a_day_is_kept_in_parts_and_read_as_one(logs: Harness) -> None:
    lines = some_lines(40)
    logs.put(*lines)
    logs.settle()
    assert len(logs._run(logs.table.parts(DayCounts.key(day=BEGAN.date())))) > 1
    for line in lines[:5]:
        logs.delete(line.item_key)
    logs.put(new_line("oops", BEGAN, "ERROR", "oops"))
    logs.settle()

    assert counts(logs) == (36, 1)
    assert [group.lines for group in logs.scan(DayCounts)] == [36]


def test_a_line_of_the_month_before_is_moved_to_its_table(logs: Harness) -> None:
    late = new_line("late", MIDNIGHT - timedelta(microseconds=1), "ERROR", "late")
    logs.put(late, on_time := new_line("first", MIDNIGHT, "INFO", "first"))
    logs.settle()

    assert logs.scan(LogLine) == [on_time]
    assert logs.get(late.item_key, table=BEFORE) == late
    assert counts(logs, late.at) == (0, 0)
    assert logs.get(late.item_key, table=ERRORS) is None


def test_a_line_that_is_gone_before_it_could_be_moved_stays_gone(logs: Harness) -> None:
    late = new_line("late", MIDNIGHT - timedelta(days=1), "INFO", "late")
    logs.put(late)
    logs.delete(late.item_key)
    logs.settle()

    assert logs.get(late.item_key, table=BEFORE) is None
    assert logs.parked() == []


def test_the_app_of_the_month_before_counts_its_own_lines(
    harness_of: Callable[..., Harness],
) -> None:
    line = new_line("late", MIDNIGHT - timedelta(days=1), "ERROR", "late")
    previous = app_for(line.day)
    with recording(previous):
        logs = harness_of(previous, shape=SHAPE)
        logs.put(line)
        logs.settle()

        assert counts(logs, line.at) == (1, 1)
        assert logs.get(line.item_key, table=errors_table(line.day)) is not None


def test_an_error_stays_in_the_table_of_its_year_and_never_expires(logs: Harness) -> None:
    error = new_line("oops", BEGAN, "ERROR", "oops", expires=BEGAN + timedelta(minutes=1))
    logs.put(error, *some_lines(2))
    logs.settle()
    logs.stop()
    logs.advance("2m")
    assert logs.expire() == 1
    logs.settle()

    assert len(logs.scan(LogLine)) == 2
    kept = logs.get(error.item_key, table=ERRORS)
    assert kept == error.model_copy(update={"expires": None})


def test_only_what_expires_is_archived(logs: Harness, archive: Recorder) -> None:
    expired = new_line("soon", BEGAN, "DEBUG", "soon", expires=BEGAN + timedelta(minutes=1))
    deleted = new_line("gone", BEGAN, "INFO", "gone")
    moved = new_line("late", MIDNIGHT - timedelta(days=1), "INFO", "late")
    logs.put(expired, deleted, moved)
    logs.delete(deleted.item_key)
    logs.settle()
    logs.stop()
    logs.advance("2m")
    assert logs.expire() == 1
    logs.settle()

    assert [delivery.body for delivery in archive.once] == [expired]
    assert counts(logs) == (0, 0)


def test_lines_that_expire_in_due_time_cost_no_write_of_their_count(
    harness_of: Callable[..., Harness],
) -> None:
    old = BEGAN - KEPT + timedelta(days=1)
    app_of_old = app_for(old.date())
    with recording(app_of_old) as sent:
        logs = harness_of(app_of_old, shape=SHAPE)
        logs.put(*some_lines(20, old))
        logs.settle()
        assert counts(logs, old) == (20, 0)
        logs.stop()
        logs.advance("17h")  # midnight is over, and the stream has kept everything
        assert logs.expire() > 20  # the parts of the count, too
        logs.settle()

        assert len(sent["archive"].once) == 20
        assert logs._run(logs.table.parts(DayCounts.key(day=old.date()))) == {}


def test_a_month_with_an_archive_loses_no_line_and_a_day_of_it_is_restored() -> None:
    assert month.Month(lines=2, days=9).play() == 0
