"""`streamkit replay` and `streamkit archive restore` on the command line."""

import json
import time
from datetime import UTC, datetime

import pytest

from streamkit.progress.clock import SystemClock

KEPT = """
import os
from datetime import timedelta
from pathlib import Path

from streamkit import Add, App, Entity, Inserted, Modified, Put
from streamkit.archive import DirectoryArchive, Flush

archive = DirectoryArchive("changes", flush=Flush(seconds=0.2))
app = App("kept", table=os.environ["SHOP_TABLE"], archive=archive)


class Order(Entity, pk="ORDER#{number}", sk="ORDER"):
    number: int
    status: str = "NEW"


class Label(Entity, pk="LABEL#{number}", sk="LABEL"):
    number: int
    text: str = ""


class Tally(Entity, pk="TALLY", sk="TALLY"):
    orders: int = 0


@app.on
def label(change: Inserted[Order] | Modified[Order]) -> Put[Label]:
    if Path("down").exists():
        raise OSError("down")
    text = "bug" if Path("broken").exists() else "fixed"
    return Put(Label(number=change.new.number, text=f"{text} {change.new.status}"))


@app.on
def tally(change: Inserted[Order]) -> Add[Tally]:
    return Add(Tally.key(), orders=1)
"""
TIME = ("--from", "2001-01-01T00:00Z", "--until", "2099-01-01T00:00Z", "--allow-loss")


@pytest.fixture
def kept(shop):
    """A shop whose labels were written by a handler with a bug, and archived."""
    (shop.folder / "kept.py").write_text(KEPT)
    shop.touch("broken")
    shop.put(1, "A", "B")
    shop.put(2, "A")
    assert shop.run("worker", "kept", "--until-idle").returncode == 0
    shop.remove("broken")
    return shop


def labels(shop):
    items = shop.dynamodb.scan(TableName=shop.table)["Items"]
    return {i["number"]["N"]: i["text"]["S"] for i in items if i["pk"]["S"].startswith("LABEL")}


def test_a_replay_is_looked_at_first_and_then_repairs(kept):
    look = kept.json("replay", "kept", *TIME, "--handlers", "label", "--dry-run")
    assert look["handlers"]["label"]["ran"] == 2
    assert labels(kept) == {"1": "bug B", "2": "bug A"}
    shadow = kept.run("replay", "kept", *TIME, "--handlers", "label", "--shadow", "--list")
    assert shadow.returncode == 0, shadow.stderr
    assert shadow.stdout.count("different") >= 2
    assert "LABEL#" not in shadow.stdout
    done = kept.run("replay", "kept", *TIME, "--handlers", "label", "--keys", "ORDER#1")
    assert done.returncode == 0, done.stderr
    assert "label: 1 changes: its item has changed since" in done.stdout
    assert labels(kept) == {"1": "fixed B", "2": "bug A"}


@pytest.mark.parametrize("end", [TIME, (*TIME[:2], "--to-end", "--allow-loss")])
@pytest.mark.parametrize("mode", [(), ("--dry-run",), ("--shadow",)])
def test_a_key_that_no_change_has_is_named(kept, end, mode):
    keys = ("--keys", "ORDER#1", "--keys", "ORDER#nope")
    done = kept.run("replay", "kept", *end, "--handlers", "label", *keys, *mode)
    assert done.returncode == 5
    assert "no change of 'ORDER#nope' in this time: check --keys, --from" in done.stdout
    assert "'ORDER#1'" not in done.stdout


def test_all_changes_run_again_to_their_end(kept):
    begin = ("replay", "kept", "--from", "2001-01-01T00:00Z", "--handlers", "label")
    end = (*begin, "--to-end", "--allow-loss")
    assert kept.json(*end, "--dry-run")["handlers"]["label"]["ran"] == 3
    kept.touch("down")
    stopped = kept.run(*end, "--list")
    assert (stopped.returncode, "It is not at its end" in stopped.stdout) == (5, True)
    assert "replay of kept is under way: to the end" in kept.run("status", "kept").stdout
    kept.remove("down")
    done = kept.json(*end)
    assert (done["under_way"], done["handlers"]["label"]["ran"]) == (False, 3)
    assert labels(kept) == {"1": "fixed B", "2": "fixed A"}
    assert kept.run(*begin).returncode == 2
    assert kept.run(*end, "--until", "2099-01-01T00:00Z").returncode == 2


@pytest.mark.parametrize("hours", [-6, 6])
def test_commands_of_a_machine_whose_clock_is_wrong_take_moments_by_the_tables(
    kept, monkeypatch, hours
):
    monkeypatch.setattr(SystemClock, "time", lambda _: time.time() + hours * 3600)
    text = lambda ago: datetime.fromtimestamp(time.time() - ago, UTC).isoformat()  # noqa: E731
    since = ("--from", text(3600), "--handlers", "label", "--allow-loss", "--dry-run")
    for end in (("--to-end",), ("--until", text(0))):
        done = kept.json("replay", "kept", *since, *end)
        assert done["handlers"]["label"]["ran"] > 0
        assert abs(done["until"] - time.time()) < 60
    verified = kept.run("archive", "verify", "kept", "--since", text(3600))
    assert "is in the future" not in verified.stderr
    rewound = kept.run("rewind", "kept", "--to", text(60), "--allow", "label")
    assert (rewound.returncode, "twice" in rewound.stderr) == (5, True)
    assert "in the future" not in rewound.stderr
    later = text(-2 * 3600)
    for command, code in (
        (("replay", "kept", "--from", later, *since[2:], "--to-end"), 5),
        (("archive", "verify", "kept", "--since", later), 2),
        (("rewind", "kept", "--to", later), 5),
    ):
        done = kept.run(*command)
        assert "in the future" in done.stderr
        assert done.returncode == code


def test_an_archive_begins_by_the_tables_clock(shop, monkeypatch):
    (shop.folder / "kept.py").write_text(KEPT)
    shop.put(1, "A")
    with monkeypatch.context() as patched:
        patched.setattr(SystemClock, "time", lambda _: time.time() + 6 * 3600)
        assert shop.run("worker", "kept", "--until-idle").returncode == 0
    found = shop.json("archive", "verify", "kept")
    assert found["began"] <= found["first"]


def test_what_adds_up_is_refused(kept):
    done = kept.run("replay", "kept", *TIME, "--handlers", "tally")
    assert done.returncode == 5
    assert "streamkit aggregate rebuild" in done.stderr
    assert (
        kept.run("replay", "kept", *TIME, "--handlers", "label", "--dry-run", "--shadow").returncode
        == 2
    )


def test_a_table_is_restored_into_another_one_and_into_the_engine_of_dev(kept):
    now = datetime.now(UTC).isoformat()
    into = ("archive", "restore", "kept", "--at", now)
    both = kept.run(*into)
    assert both.returncode == 2
    local = kept.run_apart(*into, "--to-local", "--data", "then", "--json")
    assert local.returncode == 0, local.stderr
    assert json.loads(local.stdout)["unknown"].startswith("items that did not change since")
    again = kept.run_apart(*into, "--to-local", "--data", "then")
    assert again.returncode == 5
    assert "has a table" in again.stderr
    own = kept.run_apart(*into, "--to-table", kept.table)
    assert (own.returncode, "is a table of kept" in own.stderr) == (5, True)
    described = kept.dynamodb.describe_table(TableName=kept.table)["Table"]
    name = f"{kept.table}-then"
    kept.dynamodb.create_table(
        TableName=name,
        KeySchema=described["KeySchema"],
        AttributeDefinitions=[
            one
            for one in described["AttributeDefinitions"]
            if one["AttributeName"] in {key["AttributeName"] for key in described["KeySchema"]}
        ],
        BillingMode="PAY_PER_REQUEST",
    )
    limited = kept.run_apart(*into, "--to-local", "--data", "limited", "--max-wcu", "100")
    assert (limited.returncode, "--max-wcu is for --to-table" in limited.stderr) == (2, True)
    done = kept.run_apart(*into, "--to-table", name, "--base", "table", "--max-wcu", "100")
    assert done.returncode == 0, done.stderr
    there = {item["pk"]["S"] for item in kept.dynamodb.scan(TableName=name)["Items"]}
    assert there == {"ORDER#1", "ORDER#2", "LABEL#1", "LABEL#2", "TALLY"}


def test_a_history_with_a_gap_says_what_names_it(kept):
    asked = ("explain", "kept", "ORDER#1", "ORDER", "--history")
    assert "gaps" not in kept.run(*asked).stdout
    for stored in (kept.folder / "changes").rglob("*.jsonl.gz"):
        stored.write_bytes(stored.read_bytes()[:-9])
    assert "gaps" not in kept.run(*asked).stdout  # the stream still has what they had
    for stored in (kept.folder / "changes").rglob("*"):
        if "lineage" in stored.parts and stored.is_file():
            stored.unlink()
    found = kept.run(*asked).stdout
    assert "the archive has gaps: `streamkit archive verify` names them" in found
    assert "--pages" not in found


def test_a_sample_of_the_archive_is_compared_with_the_table(kept):
    found = kept.json("archive", "verify", "kept", "--sample", "10")
    assert (found["sampled"], found["different"]) == (5, [])
    assert (
        "as the archive has them" in kept.run("archive", "verify", "kept", "--sample", "3").stdout
    )
