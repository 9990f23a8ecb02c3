"""What is declared about starts and losses is checked as it is declared; what follows is plain."""

import math
import time
from datetime import UTC, datetime, timedelta
from typing import Annotated

import pytest

from streamkit import (
    Add,
    AddToSet,
    Aggregate,
    App,
    ConfigurationError,
    Count,
    DeclarationError,
    Delete,
    Effect,
    Entity,
    Inserted,
    Key,
    Loss,
    Put,
    Query,
    RetentionLost,
    Set,
    Table,
)
from streamkit.fleet.lag import Behind, Lag, bound, time_to_loss
from streamkit.operate.rewind import counts_twice
from streamkit.progress.control import Cursor
from streamkit.stream.loss import Losses, settle_loss
from streamkit.stream.start import created_of, read_start, since_of, start_text

HOUR = 3600
NOW = 1_800_000_000.0
NOON = datetime(2027, 1, 15, 12, tzinfo=UTC)


class Thing(Entity, pk="THING#{name}"):
    name: str


class Things(Aggregate[Thing], pk="THINGS"):
    things: Annotated[int, Count()] = 0

    @classmethod
    def group(cls, thing: Thing) -> Key["Things"]:
        return cls.key()


def not_async(loss, table):
    return None


@pytest.mark.parametrize(
    "options",
    [
        {"start": "now"},
        {"start": datetime(2027, 1, 15)},  # noqa: DTZ001 - that is what is wrong with it
        {"on_loss": "ignore"},
        {"on_loss": not_async},
    ],
)
def test_a_start_or_a_policy_that_cannot_be_is_refused_as_it_is_declared(options):
    with pytest.raises(DeclarationError, match=next(iter(options))):
        App("test", table="t", **options)


def test_a_start_is_resolved_to_the_second_from_which_on_changes_count():
    now = NOON.timestamp() + 0.9
    assert since_of("trim_horizon", now) == 0
    assert since_of("latest", now) == NOON.timestamp()
    assert since_of(NOON - timedelta(hours=2), now) == NOON.timestamp() - 2 * HOUR
    assert since_of(NOON - timedelta(hours=25), now) == 0


def test_the_text_of_a_date_is_the_beginning_of_its_day_in_utc():
    assert read_start("2027-01-15") == NOON - timedelta(hours=12)
    assert read_start("2027-01-15T13:00:00+01:00") == NOON
    assert read_start("latest") == "latest"
    for text in ("2027-01-15T12:00:00", "yesterday"):
        with pytest.raises(DeclarationError, match="time zone"):
            read_start(text)


def test_a_consumer_starts_no_later_than_now():
    assert since_of(NOON, NOON.timestamp()) == NOON.timestamp()
    with pytest.raises(ConfigurationError, match="future"):
        since_of(NOON + timedelta(seconds=1), NOON.timestamp())


@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
def test_the_label_of_a_stream_says_in_utc_when_it_was_created(monkeypatch, zone):
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        assert created_of("2027-01-15T12:00:00.250") == NOON.timestamp() + 0.25
        assert created_of("label") == -math.inf, "older than anything"
    finally:
        monkeypatch.undo()
        time.tzset()


def test_a_start_reads_the_same_in_every_time_zone():
    east = NOON.astimezone(datetime.strptime("+0300", "%z").tzinfo)
    assert start_text(east) == start_text(NOON) == "2027-01-15T12:00:00+00:00"


def lost(**options):
    return RetentionLost(
        "text", shard="s", since=NOW - HOUR, until=NOW, **({"certain": True} | options)
    )


async def test_a_policy_halts_resumes_or_asks_the_app():
    calls = []

    async def hook(loss, table):
        calls.append((loss, table))

    table = object()
    assert not await settle_loss(lost(), "halt", table)
    assert await settle_loss(lost(), "resume", table)
    assert calls == []
    assert await settle_loss(lost(), hook, table)
    moments = [datetime.fromtimestamp(seconds, UTC) for seconds in (NOW - HOUR, NOW)]
    assert calls == [(Loss("s", *moments, certain=True, text="text"), table)]


def test_a_loss_of_what_was_never_read_has_no_beginning():
    assert Loss.of(RetentionLost("text", until=NOW)).since is None


@pytest.mark.parametrize(
    ("lag", "left"),
    [
        (Lag(0.0, "measured"), 24 * HOUR),
        (Lag(2 * HOUR, "at most"), 22 * HOUR),
        (Lag(30 * HOUR, "measured"), 0),
        (Lag(None, "lost"), 0),
        (Lag(None, "unread"), None),
    ],
)
def test_the_time_to_a_loss_is_what_is_left_of_the_retention(lag, left):
    assert time_to_loss(lag) == left


def test_what_was_made_before_the_start_is_not_behind():
    assert bound(Cursor("a", since=int(NOW) - 60), NOW) == Lag(60.0, "at most")


def handlers():
    app = App("test", table="t")
    app.aggregate(Things)

    @app.on
    def puts(change: Inserted[Thing]) -> Put[Thing] | Delete[Thing] | None: ...

    @app.on
    def sets(change: Inserted[Thing]) -> list[Set[Thing] | AddToSet[Thing]]: ...

    @app.on
    def acts(change: Inserted[Thing]) -> None: ...

    @app.on
    def adds(change: Inserted[Thing]) -> list[Put[Thing] | Add[Thing]]: ...

    @app.on
    def anything(change: Inserted[Thing]) -> list[Effect]: ...

    @app.on
    def untold(change: Inserted[Thing]): ...

    @app.on
    async def reads(change: Inserted[Thing], table: Table) -> Put[Thing] | None: ...

    return app.handlers


def test_only_handlers_whose_effects_are_the_same_done_twice_may_run_again():
    verdicts = {handler.name: counts_twice(handler) for handler in handlers()}
    assert [name for name, reason in verdicts.items() if reason is None] == ["puts", "sets", "acts"]
    assert "Add" in verdicts["adds"]
    assert "reads the table" in verdicts["reads"]


def things_of(thing: Thing) -> Query[Thing]:
    return Thing.query(name=thing.name)


def test_both_handlers_of_a_mirror_may_run_again_because_they_write_the_latest_state():
    app = App("test", table="t")

    @app.mirror(copies=things_of, source=lambda thing: thing.item_key)
    def copies(source: Thing, copy: Thing) -> Set[Thing] | None: ...

    assert {one.name: counts_twice(one) for one in app.handlers} == {
        "copies": None,
        "copies.copies": None,
    }


class Now:
    """A clock that is set."""

    seconds = NOW

    def time(self):
        return self.seconds


class Seen:
    """A record, of which only the time counts."""

    def __init__(self, created_at):
        self.created_at = created_at


def test_a_shard_that_was_just_taken_is_not_as_far_behind_as_its_cursor_was_written_long_ago():
    clock = Now()
    behind = Behind(clock, seen=NOW - HOUR)
    assert math.isnan(behind.lag(None))
    clock.seconds += 60
    assert behind.lag(None) == HOUR + 60, "no page comes"
    behind.note([])
    assert behind.lag(None) == 0


def test_a_shard_is_behind_until_some_empty_pages_came_in_a_row():
    clock = Now()
    behind = Behind(clock, seen=0)
    behind.note([Seen(NOW - 500), Seen(NOW - 400)])
    for _ in range(4):
        behind.note([])
        assert behind.lag(None) == 400
    behind.note([])
    assert behind.lag(None) == 0
    behind.note([Seen(NOW - 1)])
    assert behind.lag(None) == 0, "a page takes about as long to arrive"
    clock.seconds += 90
    assert behind.lag(None) == 90, "nothing was read since"
    assert behind.lag(NOW - 10) == 100


async def test_a_hook_that_keeps_failing_is_asked_less_and_less_often():
    async def fails(_loss, _table):
        raise OSError("down")

    losses = Losses(fails, None, None)
    pauses = [await losses.settle(lost()) for _ in range(12)]
    assert pauses[1] == 2 * pauses[0]
    assert pauses == sorted(pauses)
    assert pauses[-1] == pauses[-2]
