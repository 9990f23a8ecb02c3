"""How far a cursor is behind, as the stream says."""

from dataclasses import replace
from types import SimpleNamespace

import msgspec
import pytest

from streamkit import App, Entity, Modified, crossed
from streamkit.fleet import lag
from streamkit.model.origin import ORIGIN
from streamkit.model.schema import TableSchema
from streamkit.progress.control import Cursor
from streamkit.stream.decode import Record
from streamkit.testing.loop import VirtualClock, run_virtually

EPOCH = 1_800_000_000.0


class Reader:
    """Reads the pages that it is given, and then none; each record is when it was made."""

    def __init__(self, pages, *, ends=False):
        self.pages, self.ends, self.wait, self.apart = list(pages), ends, 1.0, ""

    @property
    def ended(self):
        return self.ends and not self.pages

    async def read(self):
        if not self.pages:
            return None
        made = self.pages.pop(0)
        return SimpleNamespace(records=[SimpleNamespace(created_at=EPOCH + at) for at in made])


def has_read(monkeypatch, reader, wants=lambda _: True):
    monkeypatch.setattr(lag, "ShardReader", lambda *_: reader)

    async def ask():
        clock, moment = VirtualClock(), EPOCH + 10
        return await lag.has_read(None, "arn", Cursor("shard"), wants, clock, moment)

    return run_virtually(ask)


def test_a_shard_that_no_page_came_of_is_not_called_read(monkeypatch):
    assert not has_read(monkeypatch, Reader([]))


@pytest.mark.parametrize(("made", "read"), [(9, False), (10, False), (11, True)])
def test_what_was_made_after_the_moment_may_be_unread(made, read, monkeypatch):
    assert has_read(monkeypatch, Reader([[made]])) is read


def test_what_nobody_waits_for_may_be_unread(monkeypatch):
    reader = Reader([[1, 2], [], [], [], [], []])
    assert has_read(monkeypatch, reader, wants=lambda _: False)


def test_pages_of_what_nobody_waits_for_do_not_end_the_search(monkeypatch):
    reader = Reader([[1]] * 8 + [[2]])
    assert not has_read(monkeypatch, reader, wants=lambda record: record.created_at == EPOCH + 2)


def test_a_shard_that_is_read_to_its_end_is_read(monkeypatch):
    assert has_read(monkeypatch, Reader([[1]], ends=True), wants=lambda _: False)


# -- which records a consumer waits for ------------------------------------------------------------


class Item(Entity, pk="ITEM#{item}"):
    item: str
    left: int | str = 0


SCHEMA = TableSchema("Items", "PK", None, "S", None, {})


def waits(*, left="1", origin="", hears=False):
    """Return whether a consumer of falling numbers waits for a change from 20 to `left`."""
    app = App("items", table="Items")

    @app.on(when=crossed("left", below=10))
    def low(change: Modified[Item]) -> None:
        pass

    handlers = tuple(
        replace(one, migrations="deliver" if hears else "suppress") for one in app.handlers
    )
    listens = lag.listens(SimpleNamespace(handlers=handlers, router=app.router), SCHEMA)
    key, item = {"PK": {"S": "ITEM#a"}}, {"item": {"S": "a"}}
    inner = {"Keys": key, "SequenceNumber": "1"}
    inner["OldImage"] = {**key, **item, "left": {"N": "20"}}
    value = {"N": left} if left.isdecimal() else {"S": left}
    inner["NewImage"] = {**key, **item, "left": value} | (
        (origin and {ORIGIN: {"S": origin}}) or {}
    )
    body = {"eventName": "MODIFY", "eventID": "e1", "dynamodb": inner}
    return listens(msgspec.json.decode(msgspec.json.encode(body), type=Record))


def test_a_consumer_waits_for_what_its_conditions_hold_for_or_cannot_compare():
    assert waits(left="1")
    assert not waits(left="11")
    assert waits(left="few"), "such a change is parked, and has to be read for that"


def test_what_a_migration_writes_is_waited_for_by_those_alone_who_hear_it():
    origin = "migration:0:x:items.0003"
    assert not waits(origin=origin)
    assert waits(origin=origin, hears=True)
    assert waits(origin="handler:1:x:low")
