"""`streamkit explain` on the command line, and a status that is watched."""

import json
from unittest import mock

import pytest


@pytest.fixture
def worked_shop(shop):
    """A shop with two orders; changes of the first are parked."""
    shop.touch("broken")
    shop.put(1, "A", "B")
    assert shop.run("worker", "shop", "--until-idle").returncode == 5
    shop.remove("broken")
    shop.put(2, "X")
    assert shop.run("worker", "shop", "--until-idle").returncode == 5
    return shop


def test_a_held_item_is_told_with_its_queue_and_error(worked_shop):
    done = worked_shop.run("explain", "shop", "ORDER#1", "ORDER")
    assert done.returncode == 0, done.stderr
    (line,) = [line for line in done.stdout.splitlines() if "shop/journal" in line]
    (change, *_) = worked_shop.json("parked", "list", "shop")
    assert change["queue"] in line
    assert "stuck" in line
    assert "RuntimeError" in line


def test_its_changes_are_found_in_the_stream_without_its_data(worked_shop):
    found = worked_shop.json("explain", "shop", "ORDER#2", "ORDER", "--records")
    assert [one["kind"] for one in found["sightings"]] == ["inserted"]
    assert found["sightings"][0]["states"] == {"shop": "done"}
    assert found["data"] is None
    done = worked_shop.run("explain", "shop", "ORDER#2", "ORDER", "--records")
    assert "inserted" in done.stdout
    assert "done" in done.stdout


def test_data_is_shown_if_asked_for(worked_shop):
    done = worked_shop.run("explain", "shop", "ORDER#2", "ORDER", "--show-data")
    assert '"status": "X"' in done.stdout
    assert '"status"' not in worked_shop.run("explain", "shop", "ORDER#2", "ORDER").stdout


def test_a_key_that_cannot_be_one_is_refused(shop):
    half = shop.run("explain", "shop", "ORDER#2")
    assert half.returncode == 4
    assert "sort key" in half.stderr
    assert shop.run("explain", "shop", "a", "b", "c").returncode == 2


def test_on_a_terminal_a_watched_status_is_one_picture(worked_shop):
    with mock.patch("streamkit.cli.watching.is_rich", return_value=True):
        done = worked_shop.run("status", "shop", "--watch", "--looks", "2", "--every", "0.1")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("generation 1") == 1
    assert "2 parked in 1 queues, 1 stuck" in done.stdout


def test_a_watched_status_is_a_line_for_each_look(worked_shop):
    done = worked_shop.run("status", "shop", "--watch", "--looks", "2", "--every", "0.1")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == 2
    assert all("2 parked, 1 stuck" in line for line in lines)
    options = ("--watch", "--looks", "2", "--every", "0.1", "--json")
    looks = worked_shop.run("status", "shop", *options).stdout.splitlines()
    assert [json.loads(look)["consumer"] for look in looks] == ["shop", "shop"]


def test_each_report_ends_with_the_command_that_comes_next_and_it_can_be_run(worked_shop):
    queue = worked_shop.json("parked", "list", "shop")[0]["queue"]
    for report, ends in (
        (("status", "shop"), ["next: streamkit worker shop"]),
        (
            ("parked", "list", "shop"),
            [
                f"next: streamkit parked show shop --queue {queue}",
                "next: streamkit parked redrive shop --all",
            ],
        ),
        (
            ("explain", "shop", "ORDER#1", "ORDER"),
            [f"next: streamkit parked show shop --queue {queue}"],
        ),
    ):
        lines = worked_shop.run(*report).stdout.splitlines()
        assert lines[-len(ends) :] == ends
    for line in (f"parked show shop --queue {queue}", "parked redrive shop --all"):
        assert worked_shop.run(*line.split()).returncode == 0
    assert worked_shop.run("parked", "list", "shop").stdout == "no change is parked\n"
