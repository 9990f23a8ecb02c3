"""Which consumers of a table a migration waits for, and when it looks at them."""

from types import SimpleNamespace

import anyio
import pytest

from streamkit import App
from streamkit.core.tables import AppTables
from streamkit.fleet.directory import ConsumerEntry
from streamkit.fleet.lag import Lag
from streamkit.migrate.book.state import State
from streamkit.migrate.run import others
from streamkit.migrate.run.others import Others
from streamkit.model.schema import TableSchema
from streamkit.testing.loop import run_virtually

LABEL = "2026-01-01T00:00:00.000"
STREAM = f"arn:aws:dynamodb:eu-central-1:123456789012:table/Shop/stream/{LABEL}"
SHOP = TableSchema(
    "Shop", pk="PK", sk="SK", pk_type="S", sk_type="S", indexes={}, stream_arn=STREAM
)


@pytest.fixture
def beside(monkeypatch):
    """Other consumers, by their names; what is asked about them is noted."""
    here = SimpleNamespace(entries=[], lags={}, states={}, asked=[], read=[])

    async def entries(dynamodb, control):
        return here.entries

    async def longest_lags(aws, stream, store, clock):
        here.asked.append(store.space.consumer)
        return here.lags.get(store.space.consumer, [])

    class Book:
        def __init__(self, dynamodb, control, app):
            self.app = app

        async def read(self, number):
            here.read.append(number)
            return here.states[number]

    monkeypatch.setattr(others, "entries", entries)
    monkeypatch.setattr(others, "longest_lags", longest_lags)
    monkeypatch.setattr(others, "StateBook", Book)
    tables = AppTables(SHOP, SHOP)
    here.others = Others(App("shop", table="Shop"), SimpleNamespace(dynamodb=None), tables, None)
    return here


async def test_only_those_that_read_this_stream_of_this_table_are_waited_for(beside):
    beside.entries = [
        ConsumerEntry("Shop", "mail", LABEL),
        ConsumerEntry("Shop", "mail", "2025-01-01T00:00:00.000"),  # of a stream that was replaced
        ConsumerEntry("Else", "mail", LABEL),  # its control items are beside these
        ConsumerEntry("Shop", "shop.0002-1", LABEL),
    ]
    beside.lags = {"mail": [Lag(7.0, "measured"), Lag(900.0, "at most"), Lag(None, "measured")]}
    assert await beside.others.lag(State("0002", run=1)) == 7.0
    assert beside.asked == ["mail"]


async def test_a_migration_that_runs_is_waited_for_at_each_look_and_one_that_has_ended_at_none(
    beside,
):
    beside.entries = [ConsumerEntry("Shop", f"shop.000{n}-1", LABEL) for n in (1, 2)]
    beside.states = {"0001": State("0001", phase="ready", run=1), "0002": State("0002", run=2)}
    for _ in range(2):
        await beside.others.lag(State("0003", run=1))
    assert beside.asked == ["shop.0001-1"] * 2
    assert beside.read == ["0001", "0002", "0001"]


@pytest.mark.parametrize(("phase", "eased"), [("scanning", True), ("ready", False)])
def test_others_are_looked_at_only_while_a_pass_runs(beside, phase, eased):
    beside.entries = [ConsumerEntry("Shop", "mail", LABEL)]
    beside.lags = {"mail": [Lag(900.0, "measured")]}
    said = []
    rate = SimpleNamespace(ease=lambda *about, **more: said.append((*about, more["behind"])))

    async def main():
        with anyio.move_on_after(20):
            await beside.others.heed(rate, lambda: State("0001", phase=phase))

    run_virtually(main, seed=1)
    assert said == [("lag", "mail")] * eased
    assert beside.asked == ["mail"] * eased
