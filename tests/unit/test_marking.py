"""Marks are raised behind workers, also where the beginning of a shard is trimmed already."""

import random
from types import SimpleNamespace

from streamkit.changes import ItemKey
from streamkit.errors import RetentionLost
from streamkit.model.schema import TableSchema
from streamkit.operate.moves import marking
from streamkit.progress.control import ControlSpace, Cursor
from streamkit.stream.decode import Page

SCHEMA = TableSchema("T", "PK", "SK", "S", "S", {}, None)


def position(number):
    return str(number).zfill(40)


class Trimmed:
    """A reader of a shard whose first record is trimmed: it goes on once it may pass that over."""

    def __init__(self):
        self.loss = RetentionLost("shard s: trimmed", shard="s")
        self.resumed, self.reads, self.ended = [], 0, False
        self.position, self.dated, self.shard_id, self.wait = position(0), 0.0, "s", 0.0

    def resume(self, loss):
        self.resumed.append(loss)

    async def read(self):
        self.reads += 1
        assert self.reads < 9, "it reads again where it cannot go on"
        if not self.resumed:
            raise self.loss
        self.position, self.ended = position(2), True
        key = ItemKey("ORDER#1", "ORDER#1")
        return Page((SimpleNamespace(item_key=key, position=position(2), created_at=1.0),))


async def test_what_is_left_of_a_shard_is_marked_behind_trimmed_records(monkeypatch):
    """A mapping cannot deliver trimmed records again, so that they need no mark."""
    reader, written = Trimmed(), []

    async def write(action):
        written.append(action.sets["position"])

    environment = SimpleNamespace(
        aws=None,
        rng=random.Random(0),
        clock=SimpleNamespace(time=lambda: 1.0),
        store=SimpleNamespace(space=ControlSpace.of(SCHEMA, "shop", "label"), write=write),
        tables=SimpleNamespace(table=SimpleNamespace(stream_arn="arn")),
        dispatcher=SimpleNamespace(wants=lambda record: True),
        incarnation="1a2b3c4d",
    )
    monkeypatch.setattr(marking, "open_reader", lambda *_: reader)
    await marking.Marking(environment).raise_all({"s": Cursor("s", position=position(2))})
    assert reader.resumed == [reader.loss]
    assert written == [{"S": position(2)}]
