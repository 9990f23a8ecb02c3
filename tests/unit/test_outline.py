"""`streamkit describe` tells what an app declares: keys, and what handlers read, write and send."""

import json
import re
from typing import Annotated, ClassVar

import pytest
import typer.testing

from streamkit import (
    Add,
    Aggregate,
    App,
    Count,
    Effect,
    Entity,
    Index,
    Inserted,
    Modified,
    Query,
    Send,
    Table,
    Webhook,
    changed,
)
from streamkit.cli.describe_app import describe_outline, mermaid_of
from streamkit.cli.program import program
from streamkit.operate.outline import outline_of
from tests.simulation import replays

app = App("shop", table="Shop", tables=["Old"])
hook = app.sink(Webhook("hook", "https://shop.example"))
other = app.sink(Webhook("other", "https://other.example"))


class Order(Entity, pk="CUSTOMER#{username}", sk="#ORDER#{order_id}"):
    username: str
    order_id: str
    status: str = "PLACED"
    by_id: ClassVar = Index("GSI1", pk="ORDER#{order_id}", sk="ORDER")


class Customer(Entity, pk="CUSTOMER#{username}", sk="CUSTOMER"):
    username: str
    orders: int = 0


class Watch(Entity, pk="WATCH#{order_id}", sk="{username}"):
    order_id: str
    username: str


class Price(Entity, pk="PRICE", sk="PRICE"):
    amount: int = 0


@app.aggregate
class PerStatus(Aggregate[Order], pk="PER#{status}", sk="PER"):
    status: str
    orders: Annotated[int, Count()] = 0


@app.on(when=changed("status"))
async def told(change: Modified[Order], table: Table) -> Add[Customer] | Send | None:
    price = await table.get(Price.key())
    if price is None:
        return Send(hook, {})
    return Add(Customer.key(username=change.new.username), orders=1)


def watchers(change: Inserted[Order]) -> Query[Watch]:
    return Watch.query(order_id=change.new.order_id)


@app.fan_out(watchers)
def watched(change: Inserted[Order], to: Watch) -> Send:
    return Send(other, {"to": to.username})


@app.listener("search").on
def vague(change: Inserted[Order]) -> list[Effect]:
    return []


def handlers():
    found = outline_of(app)
    return {one.name: one for each in (found, *found.listeners) for one in each.handlers}


def test_each_entity_has_its_keys_and_indexes_also_one_that_is_only_read():
    found = {one.name: one for one in outline_of(app).entities}
    assert set(found) == {"Order", "Customer", "Watch", "Price", "PerStatus"}
    assert found["Order"].keys == {
        "primary": ("CUSTOMER#{username}", "#ORDER#{order_id}"),
        "GSI1": ("ORDER#{order_id}", "ORDER"),
    }
    assert found["PerStatus"].counts == {"orders": "Count"}
    assert found["Price"].declared.startswith("Price (test_outline.py:")


@pytest.mark.parametrize(
    ("name", "kind", "reads", "writes", "sends"),
    [
        ("PerStatus", "aggregate", (), ("PerStatus",), ()),
        ("told", "on", ("Price",), ("Customer",), ("hook",)),
        ("watched", "fan_out", ("Watch",), (), ("other",)),
        ("vague", "on", (), None, ()),
    ],
)
def test_each_handler_says_what_it_reads_writes_and_sends(name, kind, reads, writes, sends):
    found = handlers()[name]
    assert (found.kind, found.reads, found.writes, found.sends) == (kind, reads, writes, sends)


@pytest.mark.parametrize(("name", "kind"), [("copies", "mirror"), ("marker", "derive")])
def test_what_follows_from_items_is_a_mirror_or_derived(name, kind):
    found = {one.name: one.kind for one in outline_of(replays.app_of()).handlers}
    assert found[name] == kind


def test_a_handler_says_what_it_listens_to():
    told = handlers()["told"]
    assert (told.entity, told.changes, told.when) == ("Order", ("modified",), True)


def test_the_text_has_all_of_it(capsys):
    describe_outline(outline_of(app))
    text = capsys.readouterr().out
    for word in ("ORDER#{order_id}", "hook (Webhook)", "orders: Count", "not said", "Old"):
        assert word in text
    assert "listener search" in text or "listener shop.search" in text


def test_the_picture_is_a_flowchart_whose_arrows_join_what_it_names():
    lines = mermaid_of(outline_of(app)).splitlines()
    assert lines[0] == "flowchart LR"
    named = {re.match(r"  (\w+)(\[|\(|>)", line)[1] for line in lines[1:] if "->" not in line}
    named = {name for name in named if name}
    joined = [re.match(r"  (\w+) -.*> (\w+)$", line) for line in lines[1:] if ">" in line[2:]]
    pairs = [(found[1], found[2]) for found in joined if found]
    assert {end for pair in pairs for end in pair} <= named
    assert ("Order", "h_shop_told") in pairs
    assert ("Price", "h_shop_told") in pairs
    assert ("h_shop_told", "Customer") in pairs
    assert ("h_shop_told", "s_hook") in pairs
    assert not [line for line in lines if "#" in line.replace("#35;", "")]


def test_json_is_the_whole_outline(monkeypatch):
    monkeypatch.setattr("streamkit.cli.program.app_named", lambda *_: app)
    runner = typer.testing.CliRunner()
    done = runner.invoke(program, ["describe", "test_outline:app", "--json"])
    assert json.loads(done.stdout) == json.loads(json.dumps(outline_of(app).to_dict()))
    picture = runner.invoke(program, ["describe", "test_outline:app", "--mermaid"])
    assert picture.stdout.startswith("flowchart LR")
