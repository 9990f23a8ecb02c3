"""`streamkit worker` as a process: it drains, is stopped, killed, and succeeded by another."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest


def shard(shop):
    (open_shard,) = [s for s in shop.json("status", "shop:app")["shards"] if s["state"] == "active"]
    return open_shard


def test_until_idle_processes_what_is_there_and_ends(shop):
    for number in range(20):
        shop.put(number, "A", "B")
    done = shop.run("worker", "shop:app", "--until-idle")
    assert done.returncode == 0, done.stderr
    assert (shop.count("A"), shop.count("B")) == (0, 20)
    assert {shop.journal(number) for number in range(20)} == {"AB"}


def test_the_log_is_json_lines_on_stderr_with_stable_names_and_no_item_data(shop):
    shop.touch("broken")
    shop.put(1, "SECRETSTATUS")
    done = shop.run("worker", "shop", "--until-idle")
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    events = [line["event"] for line in lines]
    assert events[0] == "process.started"
    assert {"worker.started", "shard.taken", "handler.failed", "worker.stopped"} <= set(events)
    assert done.stdout == ""
    assert "SECRETSTATUS" not in done.stderr


def test_status_says_what_is_behind_and_then_that_nothing_is(shop):
    assert shop.json("status", "shop")["generation"] is None
    shop.put(1, "A")
    shop.run("worker", "shop", "--until-idle")
    after = shop.json("status", "shop")
    assert (after["generation"], after["current"]) == (1, True)
    assert after["lag_seconds"] == 0
    shop.put(2, "A")
    shop.until(lambda: shop.json("status", "shop")["lag_seconds"] > 0)
    assert "lag" in shop.run("status", "shop").stdout


def test_sigterm_drains_and_releases_and_exits_0(shop):
    with shop.start("worker", "shop") as worker:
        worker.wait_for("shard.taken")
        shop.put(1, "A")
        shop.until(lambda: shop.count("A") == 1)
        owned = shop.json("status", "shop")
        assert [w["leads"] for w in owned["workers"]] == [True]
        assert owned["shards"][0]["owner"] == owned["workers"][0]["name"]
        worker.signal(signal.SIGTERM)
        worker.wait_for("process.draining")
        assert worker.exit_code() == 0
    left = shop.json("status", "shop")
    assert left["workers"] == []
    assert left["shards"][0]["owner"] is None


def test_a_second_signal_stops_at_once(shop):
    shop.touch("hangs")
    shop.put(1, "A")
    with shop.start("worker", "shop") as worker:
        shop.until((shop.folder / "hanging").exists)
        worker.signal(signal.SIGINT)
        worker.wait_for("process.draining")
        worker.signal(signal.SIGINT)
        assert worker.exit_code() == 130


def test_draining_ends_with_the_grace_period(shop):
    shop.touch("hangs")
    shop.put(1, "A")
    with shop.start("worker", "shop", "--grace", "0.3") as worker:
        shop.until((shop.folder / "hanging").exists)
        worker.signal(signal.SIGTERM)
        assert '"drained": false' in worker.wait_for("process.stopped")
        assert worker.exit_code() == 130


def test_a_worker_takes_the_shards_of_one_that_was_killed(shop):
    with shop.start("worker", "shop") as first, shop.start("worker", "shop") as second:
        first.wait_for("worker.started")
        second.wait_for("worker.started")
        shop.put(1, "A")
        shop.until(lambda: shop.count("A") == 1)
        owner = shard(shop)["owner"]
        reader, other = (first, second) if f"/{first.pid}/" in owner else (second, first)
        reader.signal(signal.SIGKILL)
        shop.put(2, "A")
        other.wait_for("shard.taken")
        shop.until(lambda: shop.count("A") == 2)
        assert (shop.journal(1), shop.journal(2)) == ("A", "A")
        assert f"/{other.pid}/" in shard(shop)["owner"]
        other.signal(signal.SIGTERM)
        assert other.exit_code() == 0


HOST = """
import time

import anyio
from pathlib import Path

import shop
from streamkit import Add, Inserted
from streamkit.cli.workers import run_workers
from streamkit.observe.logs import configure
from streamkit.settings import Settings


@shop.app.on
def endless(change: Inserted[shop.Order]) -> Add[shop.Journal]:
    while Path("blocks").exists():
        time.sleep(0.01)
    return Add(shop.Journal.key(number=change.new.number), runs=1)


if __name__ == "__main__":
    configure("json", "info")
    run = lambda: run_workers([shop.app], Settings(), until_idle=True, blocked_after=1.5)
    raise SystemExit(anyio.run(run))
"""


def host(shop):
    env = {**shop.env, "PYTHONPATH": str(Path(__file__).parents[2])}
    return subprocess.run(
        [sys.executable, "host.py"],
        cwd=shop.folder,
        env=env,
        text=True,
        capture_output=True,
        timeout=180,
        check=False,
    )


def test_a_handler_that_blocks_the_loop_ends_the_process_with_all_stacks_and_no_item_data(shop):
    text = (shop.folder / "shop.py").read_text()
    (shop.folder / "shop.py").write_text(
        text.replace('lines: str = ""', 'lines: str = ""\n    runs: int = 0')
    )
    (shop.folder / "host.py").write_text(HOST)
    shop.touch("blocks")
    shop.put(1, "SECRETSTATUS")
    blocked = host(shop)
    assert blocked.returncode == 70, blocked.stderr
    assert "in endless" in blocked.stderr
    assert '"event": "process.blocked"' in blocked.stderr
    assert "SECRETSTATUS" not in blocked.stderr
    shop.remove("blocks")
    again = host(shop)
    assert again.returncode == 0, again.stderr
    assert shop.item("JOURNAL#1", "JOURNAL")["runs"] == {"N": "1"}


def test_sigterm_while_the_app_is_imported_ends_with_the_code_for_an_interrupt(shop):
    text = "import time\nprint('importing', flush=True)\ntime.sleep(600)\n"
    (shop.folder / "slow.py").write_text(text)
    with shop.start("worker", "slow") as worker:
        worker.wait_for("importing")
        worker.signal(signal.SIGTERM)
        assert worker.exit_code() == 130


def test_a_split_is_followed_and_shown_as_a_tree(shop):
    with shop.start("worker", "shop") as worker:
        worker.wait_for("shard.taken")
        shop.put(1, "A")
        children = shop.command("split")
        for number in range(2, 12):
            shop.put(number, "A")
        shop.until(lambda: shop.count("A") == 11)
        worker.signal(signal.SIGTERM)
        assert worker.exit_code() == 0
    parent, *kids = shop.json("status", "shop")["shards"]
    assert (parent["state"], parent["depth"]) == ("finished", 0)
    assert sorted(kid["name"] for kid in kids) == sorted(children)
    assert {(kid["parent"], kid["depth"]) for kid in kids} == {(parent["name"], 1)}
    drawn = shop.run("status", "shop").stdout
    assert f"├─ {min(children)}" in drawn
    assert f"└─ {max(children)}" in drawn


def test_two_apps_run_side_by_side(shop):
    text = (shop.folder / "shop.py").read_text()
    (shop.folder / "other.py").write_text(
        text.replace('App("shop"', 'App("other"')
        .replace("PER#", "OTHER#")
        .replace("JOURNAL#", "J2#")
    )
    shop.put(1, "A")
    done = shop.run("worker", "shop:app", "other:app", "--until-idle")
    assert done.returncode == 0, done.stderr
    assert shop.count("A") == 1
    assert shop.item("OTHER#A", "PER")["orders"] == {"N": "1"}


def test_an_app_that_cannot_start_lets_the_others_drain(shop):
    text = (shop.folder / "shop.py").read_text()
    (shop.folder / "lost.py").write_text(text.replace('os.environ["SHOP_TABLE"]', '"Nowhere"'))
    done = shop.run("worker", "shop", "lost", "--until-idle")
    assert done.returncode == 4
    lines = done.stderr.splitlines()
    (told,) = [number for number, line in enumerate(lines) if "no table 'Nowhere'" in line]
    assert json.loads(lines[-1])["event"] == "process.stopped", "after the error, not before"
    assert (json.loads(lines[-1])["exit_code"], told) == (4, len(lines) - 2)
    assert {"process.stopped", "worker.stopped"} <= {
        json.loads(line)["event"] for line in done.stderr.splitlines() if line.startswith("{")
    }
    assert [worker["name"] for worker in shop.json("status", "shop")["workers"]] == []


def test_a_process_that_ends_with_an_error_does_not_say_that_it_has_drained(shop):
    done = shop.run("worker", "shop", SHOP_TABLE="Nowhere")
    stopped = json.loads(done.stderr.splitlines()[-1])
    assert (stopped["event"], stopped["exit_code"]) == ("process.stopped", 4)
    assert stopped["drained"] is False


def test_a_worker_stops_where_records_may_be_lost(shop):
    shop.put(1, "A")
    assert shop.run("worker", "shop", "--until-idle").returncode == 0
    shop.put(2, "A")
    shop.command("roll")
    shop.command("trim")
    done = shop.run("worker", "shop", "--until-idle")
    assert done.returncode == 6
    assert "records may be lost" in done.stderr
    assert "`streamkit worker --accept-loss` goes on" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("how", ["option", "environment", "pyproject"])
def test_a_setting_comes_from_an_option_the_environment_or_the_project(shop, how):
    env, options = {}, []
    if how == "option":
        options, env = ["--lease", "33"], {"STREAMKIT_LEASE": "44"}
    elif how == "environment":
        env = {"STREAMKIT_LEASE": "33"}
    else:
        del shop.env["STREAMKIT_LEASE"]
        (shop.folder / "pyproject.toml").write_text("[tool.streamkit]\nlease = 33\napp = 'shop'\n")
    names = [] if how == "pyproject" else ["shop"]
    done = shop.run("worker", *names, *options, "--until-idle", **env)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stderr.splitlines()[0])["lease"] == 33
