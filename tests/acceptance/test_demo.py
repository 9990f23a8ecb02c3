"""The demo of Big Time Deals: it plays, it ends well, and its check sees what is wrong."""

import random
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
import structlog

from handlers.deals import demo
from handlers.deals.entities import Deal
from handlers.deals.handlers import app
from handlers.deals.schema import create_table
from handlers.deals.traffic import Ledger
from handlers.deals.verify import checks
from handlers.progress import PlainProgress, progress
from handlers.stage import Death, open_stage
from streamkit.local.engine import CallRecord, Engine

NOON = datetime(2027, 1, 15, 12, tzinfo=UTC)


@pytest.fixture(autouse=True)
def logging_as_before() -> Iterator[None]:
    configuration = structlog.get_config()
    yield
    structlog.configure(**configuration)


@pytest.mark.parametrize("seed", [1, 2])
def test_whatever_the_seed_nothing_differs_at_the_end(
    seed: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert demo.main(writes=2_500, seed=seed) == 0

    out = capsys.readouterr().out
    assert "\n0 differences after" in out
    assert "3 splits" in out
    assert "2 kills" in out
    assert out.count("the shards are shared: ") == 3, "at the start, and after each kill"
    assert out.count("its shards are taken over: ") == 2
    assert "read units per 1,000 changes" in out
    assert "changes handled" in out


def test_a_difference_is_printed_and_ends_the_demo_with_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def without_a_like(engine: Engine) -> list[dict[str, Any]]:
        items = items_of(engine)
        like = next(item for item in items if item["PK"].startswith("BRANDLIKE#"))
        return [item for item in items if item is not like]

    items_of = demo.items_of
    monkeypatch.setattr(demo, "items_of", without_a_like)

    assert demo.main(writes=800, seed=1) == 1
    out = capsys.readouterr().out
    assert "\n1 differences after" in out
    assert "expected" in out


# -- the check: a table that is right, and one wrong thing at a time ---------------------------

DEAL = Deal(
    deal_id="d1",
    title="Headphones",
    price=Decimal(20),
    brand="ACME",
    category="AUDIO",
    created_at=NOON,
    expires=NOON + timedelta(days=1),
)


def a_message(
    username: str, deal_id: str = "d1", *, unread: bool = True, **more: Any
) -> dict[str, Any]:
    key = {"PK": f"MESSAGES#{username}", "SK": f"MESSAGE#{deal_id}{username}"}
    return key | {"username": username, "deal_id": deal_id, "unread": unread} | more


def a_table() -> dict[str, dict[str, Any]]:
    """Items by a name of the test's own; all that handlers keep is right."""
    return {
        "control": {"PK": "_sk#deals#x#cursor#y", "SK": "_sk"},
        "brand": {"PK": "BRAND#ACME", "brand": "ACME"},
        "brands": {"PK": "BRANDS", "names": {"ACME"}},
        "like": {"PK": "BRANDLIKE#ACME#ann", "brand": "ACME", "username": "ann"},
        "likes": {"PK": "BRANDLIKES#ACME", "brand": "ACME", "likes": 1},
        "watch": {"PK": "BRANDWATCH#ACME", "brand": "ACME", "username": "ann"},
        "watches": {"PK": "BRANDWATCHES#ACME", "brand": "ACME", "watches": 1},
        "category like": {"PK": "CATEGORYLIKE#AUDIO#bob", "category": "AUDIO", "username": "bob"},
        "category likes": {"PK": "CATEGORYLIKES#AUDIO", "category": "AUDIO", "likes": 1},
        "category watch": {"PK": "CATEGORYWATCH#AUDIO", "category": "AUDIO", "username": "bob"},
        "category watches": {"PK": "CATEGORYWATCHES#AUDIO", "category": "AUDIO", "watches": 1},
        "message to ann": a_message("ann"),
        "unread of ann": {"PK": "UNREAD#ann", "username": "ann", "unread": 1},
        "message to bob": a_message("bob", unread=False),
        "unread of bob": {"PK": "UNREAD#bob", "username": "bob", "unread": 0},
    }


def differences(
    table: dict[str, dict[str, Any]], ledger: Ledger | None = None, *, now: datetime = NOON
) -> list[str]:
    ledger = ledger or Ledger(posted={"d1": DEAL}, read={("bob", "d1")})
    results = checks(table.values(), ledger, now)
    assert all(check.compared for check in results)
    return [check.title for check in results for _ in check.differences]


def test_the_check_finds_nothing_where_all_is_right() -> None:
    assert differences(a_table()) == []


@pytest.mark.parametrize(
    ("name", "attribute", "value", "title"),
    [
        ("likes", "likes", 2, "likes per brand"),
        ("watches", "watches", 0, "watches per brand"),
        ("category likes", "likes", -1, "likes per category"),
        ("category watches", "watches", 3, "watches per category"),
        ("unread of bob", "unread", 1, "unread messages per user"),
        ("brands", "names", set(), "names in the set of brands"),
        ("brands", "names", {"ACME", "GONE"}, "names in the set of brands"),
    ],
)
def test_the_check_sees_a_wrong_value(name: str, attribute: str, value: Any, title: str) -> None:
    table = a_table()
    table[name][attribute] = value
    assert differences(table) == [title]


@pytest.mark.parametrize(
    ("name", "title"),
    [
        ("likes", "likes per brand"),
        ("like", "likes per brand"),
        ("category watches", "watches per category"),
        ("unread of ann", "unread messages per user"),
    ],
)
def test_the_check_sees_a_missing_item(name: str, title: str) -> None:
    table = a_table()
    del table[name]
    assert differences(table) == [title]


def test_the_check_sees_a_message_that_is_missing() -> None:
    table = a_table()
    del table["message to ann"]
    table["unread of ann"]["unread"] = 0
    assert differences(table) == ["messages to watchers"]


def test_a_message_may_be_missing_that_was_deleted_or_has_expired() -> None:
    table = a_table()
    del table["message to ann"]
    table["unread of ann"]["unread"] = 0
    deleted = Ledger(posted={"d1": DEAL}, read={("bob", "d1")}, deleted={("ann", "d1")})
    assert differences(table, deleted) == []
    assert differences(table, now=NOON + timedelta(days=2)) == []


def test_the_check_sees_a_deleted_message_that_is_back() -> None:
    deleted = Ledger(posted={"d1": DEAL}, read={("bob", "d1")}, deleted={("ann", "d1")})
    assert differences(a_table(), deleted) == ["messages to watchers"]


def test_the_check_sees_a_message_that_came_twice() -> None:
    table = a_table()
    table["again"] = a_message("ann") | {"SK": "MESSAGE#another"}
    table["unread of ann"]["unread"] = 2
    assert differences(table) == ["messages to watchers"]


def test_the_check_sees_a_message_to_somebody_who_does_not_watch() -> None:
    table = a_table()
    table["stray"] = a_message("cat")
    table["unread of cat"] = {"PK": "UNREAD#cat", "username": "cat", "unread": 1}
    assert differences(table) == ["messages to watchers"]


def test_the_check_sees_a_read_message_that_is_unread_again() -> None:
    table = a_table()
    table["message to bob"]["unread"] = True
    table["unread of bob"]["unread"] = 1
    assert differences(table) == ["messages to watchers"]


# -- the stage and the progress ----------------------------------------------------------------


@pytest.mark.parametrize("death", ["before", "after"])
async def test_a_killed_worker_never_calls_again_and_the_next_one_ends_its_work(
    death: Death,
) -> None:
    engine = Engine(rng=random.Random(1))
    async with open_stage(engine) as stage, stage.client() as aws:
        await create_table(aws.dynamodb, app.table)
        first = stage.start_worker(app, demo.SETTINGS)
        for number in range(50):
            item = {
                "PK": {"S": f"BRANDLIKE#ACME#u{number}"},
                "SK": {"S": f"BRANDLIKE#ACME#u{number}"},
            }
            item |= {"brand": {"S": "ACME"}, "username": {"S": f"u{number}"}}
            await aws.dynamodb.put_item(TableName=app.table, Item=item)
        assert await first.kill(death)
        spent = (stage.costs.write, stage.costs.pages)
        calls: list[CallRecord] = []
        engine.observers.append(calls.append)
        await stage.start_worker(app, demo.SETTINGS, until_idle=True).ended.wait()

        assert calls
        assert not first.ended.is_set()
        assert (stage.costs.write, stage.costs.pages) > spent
        key = {"PK": {"S": "BRANDLIKES#ACME"}, "SK": {"S": "BRANDLIKES#ACME"}}
        reply = await aws.dynamodb.get_item(TableName=app.table, Key=key)
        assert reply["Item"]["likes"] == {"N": "50"}


async def test_only_workers_calls_are_costs() -> None:
    engine = Engine(rng=random.Random(1))
    async with open_stage(engine) as stage, stage.client() as aws:
        await create_table(aws.dynamodb, app.table)
        item = {"PK": {"S": "x"}, "SK": {"S": "x"}}
        await aws.dynamodb.put_item(TableName=app.table, Item=item)
        assert (stage.costs.read, stage.costs.write, stage.costs.pages) == (0, 0, 0)


def test_without_a_terminal_progress_is_a_line_each_tenth(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with progress(100, "writes") as told:
        assert isinstance(told, PlainProgress)
        for done in range(0, 101, 5):
            told.advance(done)
        told.say("done")
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 11
    assert lines[0].endswith("10 writes")
    assert lines[-1].endswith("done")


def test_on_a_terminal_events_stand_above_a_bar(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    with progress(100, "writes") as told:
        assert not isinstance(told, PlainProgress)
        told.advance(50)
        told.say("a shard splits")
    assert "a shard splits" in capsys.readouterr().out
