"""Device logs, under traffic and trouble, and one statement of their README at a time."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from handlers.devices.entities import DeviceLog, Notification
from handlers.devices.handlers import (
    SHAPE,
    WARNINGS_KEPT,
    Seen,
    StatesPerDay,
    WarningsPerHour,
    app,
)
from handlers.devices.traffic import Traffic
from streamkit.kinds.preflight import findings
from streamkit.testing import Harness, Trouble, trial
from tests.seeds import seeds

NOON = datetime(2027, 1, 15, 12, tzinfo=UTC)


@pytest.fixture
def plant(harness_of: Callable[..., Harness]) -> Harness:
    return harness_of(app, shape=SHAPE)


def a_log(date: datetime = NOON, **fields: object) -> DeviceLog:
    given = {"device": "1", "state": "WARNING1", "date": date, "operator": "liz", **fields}
    return DeviceLog.model_validate(given)


def now_in(plant: Harness) -> datetime:
    return datetime.fromtimestamp(plant.world.clock.time(), UTC)


def seen(plant: Harness) -> tuple[object, ...]:
    found = plant.get(Seen.key(device="1"))
    assert found is not None
    return found.first, found.first_state, found.last, found.last_state


@pytest.mark.parametrize("seed", seeds(3))
def test_the_logs_are_what_their_history_says(seed: int) -> None:
    traffic, trouble = Traffic(devices=8), Trouble(pause=10)
    ran = trial(app, traffic, shape=SHAPE, seed=seed, acts=120, trouble=trouble)
    assert all(comparison.compared for comparison in ran.comparisons)


def test_the_app_fits_its_table_without_a_finding(plant: Harness) -> None:
    assert findings(app, plant.tables) == []


def test_a_day_is_the_plants_and_has_25_hours_when_clocks_go_back(plant: Harness) -> None:
    midnight = datetime(2026, 10, 24, 22, tzinfo=UTC)  # in Berlin, still in summer
    plant.put(a_log(midnight - timedelta(seconds=1)))
    plant.put(a_log(midnight), a_log(midnight + timedelta(hours=25, seconds=-1)))
    plant.put(a_log(midnight + timedelta(hours=25)))
    plant.settle()

    days = {f"{group.day:%m-%d}": group.logs for group in plant.scan(StatesPerDay)}
    assert days == {"10-24": 1, "10-25": 2, "10-26": 1}


def test_states_of_a_day_are_read_in_one_query(plant: Harness) -> None:
    plant.put(a_log(), a_log(state="OFF"), a_log(state="OFF", date=NOON + timedelta(hours=1)))
    plant.put(a_log(state="OFF", date=NOON + timedelta(days=1)))
    plant.settle()

    states = plant.query(StatesPerDay.query(device="1", day=NOON))
    assert [(group.state, group.logs) for group in states] == [("OFF", 2), ("WARNING1", 1)]


def test_a_day_without_logs_leaves_nothing(plant: Harness) -> None:
    plant.put(log := a_log())
    plant.settle()
    plant.delete(log.item_key)
    plant.settle()

    assert plant.scan(StatesPerDay) == []


def test_a_log_that_is_given_to_another_operator_takes_its_warning_along(plant: Harness) -> None:
    now = now_in(plant)
    plant.put(log := a_log(now), a_log(now, state="OFF"))
    plant.settle()
    plant.put(log.model_copy(update={"operator": "sue"}))
    plant.settle()

    counts = {group.operator: group.warnings for group in plant.scan(WarningsPerHour)}
    assert counts == {"liz": 0, "sue": 1}


def test_warnings_of_an_hour_a_week_ago_count_nowhere_and_older_counts_go(plant: Harness) -> None:
    now = now_in(plant)
    plant.put(a_log(now - WARNINGS_KEPT - timedelta(hours=1)), a_log(now))
    plant.settle()
    assert [group.warnings for group in plant.scan(WarningsPerHour)] == [1]
    plant.stop()
    plant.advance("7d")
    plant.expire()

    assert plant.scan(WarningsPerHour) == []


def test_a_supervisor_is_told_of_a_log_once(plant: Harness) -> None:
    log = a_log(escalated_to="sara")
    plant.put(log)
    plant.settle()
    (told,) = plant.scan(Notification)
    plant.delete(told.item_key)  # she has read it
    plant.put(log.model_copy(update={"operator": "sue"}))
    plant.settle()
    assert plant.scan(Notification) == []
    plant.put(log.model_copy(update={"escalated_to": "paul"}))
    plant.settle()

    assert [notification.supervisor for notification in plant.scan(Notification)] == ["paul"]


def test_a_supervisor_who_gets_a_log_back_is_not_told_anew(plant: Harness) -> None:
    log = a_log(escalated_to="sara")
    plant.put(log, log.model_copy(update={"escalated_to": "paul"}))
    plant.put(log.model_copy(update={"operator": "sue"}))
    plant.settle()

    told = {
        notification.supervisor: notification.operator for notification in plant.scan(Notification)
    }
    assert told == {"sara": "liz", "paul": "liz"}


def test_the_index_of_escalations_holds_nothing_else(plant: Harness) -> None:
    escalated = a_log(state="WARNING4", escalated_to="sara")
    plant.put(a_log(), escalated, a_log(state="OFF"))
    plant.settle()

    reply = plant._run(plant._aws.dynamodb.scan(TableName=app.table, IndexName="EscalationIndex"))
    assert reply["Count"] == 1
    to_sara = DeviceLog.query(index=DeviceLog.escalated, escalated_to="sara", state="WARNING4")
    assert plant.query(to_sara) == [escalated]


def test_an_operators_logs_are_found_by_date(plant: Harness) -> None:
    dates = [NOON + timedelta(days=n) for n in range(4)]
    logs = [a_log(date, device=str(n)) for n, date in enumerate(dates)]
    plant.put(*logs, a_log(dates[1], device="9", operator="sue"))

    by_liz = DeviceLog.query(index=DeviceLog.by_operator, operator="liz")
    assert plant.query(by_liz.between(dates[1], dates[2])) == logs[1:3]


def test_the_span_of_a_device_shrinks_when_its_first_or_last_log_goes(plant: Harness) -> None:
    dates = [NOON + timedelta(hours=n) for n in range(4)]
    states = ("OFF", "WARNING1", "NORMAL", "WARNING2")
    expires = now_in(plant) + timedelta(minutes=5)
    logs = [a_log(d, state=s, expires=expires) for d, s in zip(dates, states, strict=True)]
    logs[1:3] = [log.model_copy(update={"expires": None}) for log in logs[1:3]]
    plant.put(*reversed(logs))
    plant.settle()
    assert seen(plant) == (dates[0], "OFF", dates[3], "WARNING2")
    plant.stop()
    plant.advance("10m")
    assert plant.expire() == 2
    plant.settle()
    assert seen(plant) == (dates[1], "WARNING1", dates[2], "NORMAL")
    plant.delete(logs[1].item_key)
    plant.delete(logs[2].item_key)
    plant.settle()

    assert seen(plant) == (None, None, None, None)
