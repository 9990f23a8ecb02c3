"""`streamkit cost` says what a fleet will cost, with a table and without."""

import pytest

from streamkit.observe.pricing import estimate
from streamkit.settings import Settings


@pytest.fixture
def plain_shop(shop):
    """The shop without the settings that make its tests quick: they win over presets."""
    for name in [name for name in shop.env if name.startswith("STREAMKIT_")]:
        del shop.env[name]
    return shop


def test_without_a_table_it_computes_from_the_numbers_given(plain_shop):
    found = plain_shop.json("cost", "--shards", "12", "--workers", "3")
    same = estimate(Settings(), shards=12, workers=3)
    assert found["dollars"] == pytest.approx(same.dollars)
    assert found["worker_dollars"] == pytest.approx(same.each("worker"))
    assert {cost["what"] for cost in found["costs"]} == {cost.what for cost in same.costs}
    assert "us-east-1" in found["prices"]


def test_with_an_app_it_counts_the_open_shards_and_takes_one_worker_if_none_runs(shop):
    found = shop.json("cost", "shop")
    assert (found["shards"], found["workers"]) == (1, 1)
    assert shop.json("cost", "shop", "--workers", "5")["workers"] == 5
    assert shop.dynamodb.scan(TableName=shop.table)["Items"] == []


def test_presets_and_settings_count(plain_shop):
    size = ("--shards", "4")
    default, cost, latency, own = (
        plain_shop.json("cost", *size, *more)["shard_dollars"]
        for more in ((), ("--preset", "cost"), ("--preset", "latency"), ("--poll-ceiling", "60"))
    )
    assert own < cost < default < latency


def test_traffic_costs_more_and_is_said_in_units(shop):
    done = shop.run("cost", "--shards", "4", "--changes", "4")
    assert done.returncode == 0, done.stderr
    assert "cursors of commits" in done.stdout
    assert "free tier" in done.stdout
    assert "check before quoting" in done.stdout


def test_a_worker_has_one_preset(shop):
    done = shop.run("worker", "shop", "--latency", "--cost")
    assert done.returncode == 2
    assert "choose one" in done.stderr
    none = shop.run("cost", "--preset", "cheap", "--shards", "1")
    assert none.returncode == 2
    assert "'latency' or 'cost'" in none.stderr


def test_without_an_app_and_without_shards_it_says_what_is_missing(shop):
    done = shop.run("cost")
    assert done.returncode == 2
    assert "name the app" in done.stderr


def test_a_worker_takes_its_preset_from_a_flag(shop):
    for flag in ("--latency", "--cost"):
        assert shop.run("worker", "shop", flag, "--until-idle").returncode == 0
