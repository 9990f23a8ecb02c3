"""What a script concludes from exit codes: nothing is fine that was not looked at, or not done."""

import json
import re
import signal

import pytest
from botocore.exceptions import ClientError

from streamkit.cli.exits import ExitCode
from streamkit.model.sdk import frequent_calls
from tests.pages import section


@pytest.fixture
def shop(shop):
    shop.hasten()
    return shop


@pytest.fixture
def broken_shop(shop):
    """A shop whose handler fails with two orders."""
    shop.touch("broken")
    shop.put(1, "A", "B")
    shop.put(2, "X")
    return shop


def said(done):
    """Return the last event that a worker logged, but for the one that says it ended."""
    events = [json.loads(line) for line in done.stderr.splitlines() if line.startswith("{")]
    return [one for one in events if one["event"] == "process.unfinished"]


def verdict(shop, *more):
    done = shop.run("status", "shop", "--exit-code", *more)
    return done.returncode, done.stderr


def test_a_worker_that_ends_idle_with_parked_changes_exits_with_5_and_counts_them(broken_shop):
    done = broken_shop.run("worker", "shop", "--until-idle")
    assert done.returncode == 5
    (event,) = said(done)
    assert (event["app"], event["parked"], event["stuck"]) == ("shop", 3, 2)
    broken_shop.remove("broken")
    assert broken_shop.run("parked", "redrive", "shop", "--all").returncode == 0
    again = broken_shop.run("worker", "shop", "--until-idle")
    assert (again.returncode, said(again)) == (0, [])


def test_a_worker_that_was_paused_has_not_read_and_exits_with_8(shop):
    assert shop.run("worker", "shop", "--until-idle").returncode == 0
    assert shop.run("consumers", "pause", "shop").returncode == 0
    shop.put(1, "A")
    done = shop.run("worker", "shop", "--until-idle")
    assert done.returncode == 8
    assert said(done)[0]["paused"] > 0
    assert shop.count("A") == 0


def test_a_worker_that_is_stopped_before_it_was_idle_exits_with_130(shop):
    shop.touch("hangs")
    shop.put(1, "A")
    with shop.start("worker", "shop", "--until-idle") as worker:
        shop.until((shop.folder / "hanging").exists)
        worker.signal(signal.SIGTERM)
        worker.wait_for("process.draining")
        shop.remove("hangs")
        worker.signal(signal.SIGTERM)
        assert worker.exit_code() == 130


def test_a_worker_that_drains_before_it_was_idle_has_not_done_what_it_was_asked_for(shop):
    with shop.start("worker", "shop", "--until-idle", STREAMKIT_POLL_FLOOR="30") as worker:
        worker.wait_for("worker.started")
        worker.signal(signal.SIGTERM)
        assert '"drained": true' in worker.wait_for("process.stopped")
        assert worker.exit_code() == 130


def test_status_exits_with_5_when_no_worker_runs_and_with_0_when_one_does(shop):
    assert verdict(shop) == (5, "not fine: no worker has run yet\n")
    assert shop.run("status", "shop").returncode == 0
    with shop.start("worker", "shop") as worker:
        worker.wait_for("shard.taken")
        assert verdict(shop) == (0, "")
        assert verdict(shop, "--json") == (0, "")
        worker.signal(signal.SIGTERM)
        assert worker.exit_code() == 0
    assert verdict(shop) == (5, "not fine: no worker is alive\n")


def test_a_consumer_whose_stream_was_replaced_is_not_said_to_have_never_run(shop):
    assert shop.run("worker", "shop", "--until-idle").returncode == 0
    shop.command("disable")
    shop.command("enable")
    code, reasons = verdict(shop)
    assert code == 5
    assert "the table's stream was replaced: no worker has begun to read the new one" in reasons
    assert shop.run("worker", "shop", "--until-idle").returncode == 6
    assert verdict(shop)[0] == 6
    assert shop.run("worker", "shop", "--until-idle", "--accept-loss").returncode == 0
    assert shop.json("status", "shop")["replaced"] == ""


def test_a_worker_that_was_killed_is_not_taken_for_alive(shop):
    with shop.start("worker", "shop") as worker:
        worker.wait_for("shard.taken")
        worker.signal(signal.SIGKILL)
        assert worker.exit_code() == -signal.SIGKILL
        assert verdict(shop) == (5, "not fine: no worker is alive\n")


def test_status_exits_with_5_when_changes_are_parked_and_with_8_when_it_is_paused(broken_shop):
    with broken_shop.start("worker", "shop") as worker:
        broken_shop.until(lambda: broken_shop.json("status", "shop")["parked_queues"] == 2)
        assert verdict(broken_shop) == (5, "not fine: 3 changes are parked in 2 queues, 2 stuck\n")
        assert broken_shop.run("consumers", "pause", "shop").returncode == 0
        code, text = verdict(broken_shop)
        assert (code, "paused" in text, "parked" in text) == (8, True, True)
        worker.signal(signal.SIGKILL)


def test_a_verdict_is_of_one_look(shop):
    done = shop.run("status", "shop", "--exit-code", "--watch")
    assert done.returncode == 2
    assert "--watch" in done.stderr


def test_what_status_did_not_look_at_it_does_not_call_fine(shop):
    shop.put(1, "A")
    shop.run("worker", "shop", "--until-idle")
    looked = shop.run("status", "shop").stdout
    assert re.search(r"(?m)^no change is known to be lost$", looked)
    unlooked = shop.run("status", "shop", "--no-stream").stdout
    assert "no change is known to be lost; not read: the stream" in unlooked


@pytest.mark.parametrize(
    "command",
    [
        ["parked", "show", "--queue", "nosuchqueue"],
        ["parked", "redrive", "--queue", "nosuchqueue"],
        ["parked", "discard", "--queue", "nosuchqueue"],
        ["fan-outs", "cancel", "--queue", "nosuchqueue"],
    ],
    ids=" ".join,
)
def test_what_was_named_and_is_not_there_exits_with_5_and_is_no_defect(shop, command):
    assert shop.run("worker", "shop", "--until-idle").returncode == 0
    done = shop.run(command[0], command[1], "shop", *command[2:])
    assert done.returncode == 5
    assert "(any more)" in done.stderr


SINK = """
import os

from streamkit import App, Entity, Inserted, Send
from streamkit.sinks.sqs import Sqs

app = App("sender", table=os.environ["SHOP_TABLE"])
queue = app.sink(Sqs("queue", "https://sqs.us-east-1.amazonaws.com/123456789012/orders"))


class Order(Entity, pk="ORDER#{number}", sk="ORDER"):
    number: int


@app.on
def sent(change: Inserted[Order]) -> Send:
    return Send(queue, {"number": change.new.number})
"""


def test_check_says_which_permissions_it_has_not_tried(shop):
    (shop.folder / "sender.py").write_text(SINK)
    done = shop.run("check", "sender")
    assert done.returncode == 0, done.stdout
    assert "ok, except for what was not tried: sqs:SendMessage" in done.stdout
    found = json.loads(shop.run("check", "sender", "--json").stdout)
    assert found["not_tried"] == ["sqs:SendMessage"]
    assert shop.run("check", "shop").stdout.endswith("\nok\n")


def test_the_page_lists_the_exit_codes_that_there_are():
    listed = re.findall(r"(?m)^\| (\d+) \| ", section("docs/operating.md", "Run it"))
    assert [int(code) for code in listed] == [int(code) for code in ExitCode]


def test_a_command_whose_calls_are_throttled_says_what_it_waits_for(shop, monkeypatch):
    ordinary, left = frequent_calls._Client._make_api_call, [3]

    async def throttled(client, operation, asked):
        if operation == "GetItem" and left[0]:
            left[0] -= 1
            raise ClientError({"Error": {"Code": "ThrottlingException"}}, operation)
        return await ordinary(client, operation, asked)

    monkeypatch.setattr(frequent_calls._Client, "_make_api_call", throttled)
    done = shop.run("status", "shop")
    (line,) = done.stderr.splitlines()
    event = json.loads(line)
    assert (done.returncode, left) == (0, [0])
    assert (event["event"], event["code"]) == ("aws.repeated", "ThrottlingException")
