"""Consumers and rewinds from the command line: listed, deleted when asked twice, refused in words."""

import json
from datetime import UTC, datetime

import pytest

REPLAYED = """
import os

from streamkit import App, Entity, Inserted, Modified, Set

app = App("replayed", table=os.environ["SHOP_TABLE"])


class Order(Entity, pk="ORDER#{number}", sk="ORDER"):
    number: int
    status: str = "NEW"


class Copy(Entity, pk="COPY#{number}", sk="COPY"):
    number: int
    status: str = ""


@app.on
def copies(change: Inserted[Order] | Modified[Order]) -> Set[Copy]:
    return Set(Copy.key(number=change.new.number), status=change.new.status)
"""


@pytest.fixture
def shop(shop):
    shop.hasten()
    return shop


@pytest.fixture
def replayed(shop):
    """A shop with a second app in it, that has read one order."""
    (shop.folder / "replayed.py").write_text(REPLAYED)
    shop.put(1, "A")
    work(shop, copied="A")
    return shop


def copy_of(shop):
    return shop.item("COPY#1", "COPY").get("status", {}).get("S")


def work(shop, *, copied):
    """Run a worker until the order's copy is there, and it has stopped."""
    with shop.start("worker", "replayed") as process:
        process.wait_for("worker.started")
        shop.until(lambda: copy_of(shop) == copied)
        process.signal(15)
        assert process.exit_code() == 0


def test_a_rewind_runs_the_handlers_again(replayed):
    key = {"pk": {"S": "COPY#1"}, "sk": {"S": "COPY"}}
    replayed.dynamodb.delete_item(TableName=replayed.table, Key=key)
    done = replayed.run("rewind", "replayed", "--to", "trim-horizon", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["generation"] == 3
    work(replayed, copied="A")


def test_a_rewind_that_would_count_twice_is_refused_with_its_reasons(shop):
    shop.run("worker", "shop", "--until-idle")
    now = datetime.now(UTC).isoformat()
    done = shop.run("rewind", "shop", "--to", now)
    assert done.returncode == 5
    assert "PerStatus" in done.stderr
    assert "journal" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("time", ["yesterday", "2026-01-31T12:00:00"])
def test_a_rewind_wants_a_time_with_its_zone(shop, time):
    done = shop.run("rewind", "shop", "--to", time)
    assert done.returncode == 2
    assert "trim-horizon" in done.stderr


def test_consumers_are_listed_and_deleted_by_app_or_by_name(replayed):
    listed = replayed.json("consumers", "list", replayed.table)
    assert [(one["name"], one["current"]) for one in listed] == [("replayed", True)]
    assert "replayed" in replayed.run("consumers", "list", replayed.table).stdout
    unsure = replayed.run("consumers", "delete", "replayed")
    assert unsure.returncode == 2
    assert "--yes" in unsure.stderr
    other = replayed.run("consumers", "delete", "other", "--table", replayed.table, "--yes")
    assert other.returncode == 4
    done = replayed.run("consumers", "delete", "replayed:app", "--yes")
    assert done.returncode == 0, done.stderr
    assert replayed.json("consumers", "list", replayed.table) == []
    assert copy_of(replayed) == "A"
    again = replayed.run("consumers", "delete", "replayed", "--table", replayed.table, "--yes")
    assert again.returncode == 4


LISTENING = (
    REPLAYED
    + """

search = app.listener("search")


@search.on
def found(change: Inserted[Order] | Modified[Order]) -> Set[Copy]:
    return Set(Copy.key(number=100 + change.new.number), status=change.new.status)
"""
)


@pytest.fixture
def listening(shop):
    """A shop whose app has a listener, and both have read one order."""
    (shop.folder / "replayed.py").write_text(LISTENING)
    shop.put(1, "A")
    with shop.start("worker", "replayed") as process:
        shop.until(lambda: copy_of(shop) == found_by(shop) == "A")
        process.signal(15)
        assert process.exit_code() == 0
    return shop


def found_by(shop):
    return shop.item("COPY#101", "COPY").get("status", {}).get("S")


def test_a_listener_is_paused_and_resumed_beside_its_app(listening):
    done = listening.run("consumers", "pause", "replayed", "--listener", "search")
    assert done.returncode == 0, done.stderr
    assert "replayed.search is paused" in done.stdout
    assert "paused since" in listening.run("status", "replayed:search").stdout
    assert listening.json("status", "replayed:app.search")["paused"] > 0
    assert listening.json("status", "replayed")["paused"] == 0
    listening.put(1, "B")
    with listening.start("worker", "replayed:app") as process:
        listening.until(lambda: copy_of(listening) == "B")
        assert found_by(listening) == "A"
        assert listening.run("consumers", "resume", "replayed:search").returncode == 0
        listening.until(lambda: found_by(listening) == "B")
        process.signal(15)
        assert process.exit_code() == 0


def test_a_listener_that_there_is_not_is_named_with_those_there_are(listening):
    done = listening.run("status", "replayed", "--listener", "serach")
    assert done.returncode == 2
    assert "search" in done.stderr.replace("serach", "")


LATE = """
import os

from streamkit import Add, App, Entity, Inserted, Modified, Put

app = App("late", table=os.environ["SHOP_TABLE"])


class Order(Entity, pk="ORDER#{number}", sk="ORDER"):
    number: int
    status: str = "NEW"


class Tally(Entity, pk="TALLY", sk="TALLY"):
    changes: int = 0


@app.on
def audit(change: Inserted[Order]) -> None: ...


@app.on  # (start="2020-01-01")
def tally(change: Inserted[Order] | Modified[Order]) -> Add[Tally]:
    return Add(Tally.key(), changes=1)
"""


def test_a_handler_with_a_start_of_its_own_joins_its_app(shop):
    (shop.folder / "late.py").write_text(LATE.replace("on  # (", "on("))
    shop.put(1, "A")
    assert shop.run("worker", "late", "--until-idle").returncode == 0
    shop.put(1, "B")
    joins = ("consumers", "join", "late", "tally")
    early = shop.run_apart(*joins)
    assert (early.returncode, "still declares tally with a start=" in early.stderr) == (5, True)
    assert shop.run("worker", "late:app.tally", "--until-idle").returncode == 0
    (shop.folder / "late.py").write_text(LATE)
    refused = shop.run_apart("worker", "late", "--until-idle")
    assert (refused.returncode, "consumers join" in refused.stderr) == (4, True)
    done = shop.run_apart(*joins)
    assert done.returncode == 0, done.stderr
    assert "tally is one of late now" in done.stdout
    again = shop.run_apart(*joins, "--json")
    assert (again.returncode, "has joined late already" in again.stderr) == (5, True)
    shop.put(1, "C")
    assert shop.run_apart("worker", "late", "--until-idle").returncode == 0
    items = shop.dynamodb.scan(TableName=shop.table)["Items"]
    assert [item["changes"]["N"] for item in items if item["pk"]["S"] == "TALLY"] == ["3"]


def tallied(shop):
    return shop.item("TALLY", "TALLY").get("changes", {"N": "0"})["N"]


def test_an_app_takes_a_handler_over_while_its_worker_runs(shop):
    shop.hasten()
    (shop.folder / "late.py").write_text(LATE.replace("on  # (", "on("))
    shop.put(1, "A")
    live = ("consumers", "join", "late", "tally", "--live")
    with shop.start("worker", "late") as process:
        shop.until(lambda: tallied(shop) == "1")
        done = shop.run(*live)
        assert done.returncode == 0, done.stderr
        assert "late runs tally on " in done.stdout
        assert "deploy the version without its start=" in done.stdout
        shop.put(1, "B")
        shop.until(lambda: tallied(shop) == "2")
        process.signal(15)
        assert process.exit_code() == 0
    again = shop.run(*live, "--json")
    assert json.loads(again.stdout)["ended"], again.stderr
    (shop.folder / "late.py").write_text(LATE)
    shop.put(1, "C")
    assert shop.run_apart("worker", "late", "--until-idle").returncode == 0
    assert tallied(shop) == "3"


def test_a_consumer_that_never_ran_cannot_be_paused(shop):
    (shop.folder / "replayed.py").write_text(REPLAYED)
    assert shop.run("consumers", "pause", "replayed").returncode == 4


def test_a_move_that_is_refused_stops_no_workers(replayed):
    """Somebody who stops the workers, as the command asks, would be left without any host."""
    source = replayed.folder / "replayed.py"
    text = source.read_text()
    source.write_text(f"{text}\n\n@app.on\ndef more(change: Inserted[Order]) -> None: ...\n")
    refused = replayed.run("consumers", "to-lambda", "replayed", "--wait", "60")
    assert refused.returncode == 5
    assert "deployed with other handlers" in refused.stderr
    assert "stop the workers" not in refused.stderr
    source.write_text(text)
    with replayed.start("worker", "replayed") as process:
        replayed.put(1, "Z")
        replayed.until(lambda: copy_of(replayed) == "Z")
        asked = replayed.run("consumers", "to-lambda", "replayed", "--wait", "0.1")
        assert asked.returncode == 5
        assert "stop the workers now" in asked.stderr
        process.signal(15)
        assert process.exit_code() == 0


def test_a_consumer_moves_to_lambda_and_back_and_workers_refuse_in_between(replayed):
    there = replayed.run("consumers", "to-lambda", "replayed", "--wait", "0", "--json")
    assert there.returncode == 0, there.stderr
    assert json.loads(there.stdout)["host"] == "lambda"
    refused = replayed.run("rewind", "replayed", "--to", "trim-horizon")
    assert (refused.returncode, "pause it first" in refused.stderr) == (5, True)
    assert "disable the mapping" in replayed.run("consumers", "pause", "replayed").stdout
    assert "continues; its functions" in replayed.run("consumers", "resume", "replayed").stdout
    refused = replayed.run("worker", "replayed", "--until-idle")
    assert refused.returncode == 4
    assert "to-workers" in refused.stderr
    back = replayed.run("consumers", "to-workers", "replayed", "--in-flight", "0")
    assert back.returncode == 0, back.stderr
    replayed.put(1, "B")
    work(replayed, copied="B")
    kcl = replayed.run("consumers", "import-kcl", "replayed", "--leases", "Leases")
    assert kcl.returncode == 5
    assert "refused: replayed has run on this stream" in kcl.stderr
