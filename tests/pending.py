"""Pending changes as dispatch hands them over, for tests of planning and of the commit loop."""

import msgspec

from streamkit.changes import ItemKey, Kind
from streamkit.core.handler import Handler
from streamkit.core.outcome import Outcome, PendingChange, resolve
from streamkit.core.parking import Failure
from streamkit.effects import Add
from streamkit.entity import Entity
from streamkit.model.conditions import absent
from streamkit.model.declaration import Declaration
from streamkit.model.schema import TableSchema
from streamkit.progress.control import ControlSpace, Cursor
from streamkit.stream.decode import Record

SCHEMA = TableSchema("things", "pk", "sk", "S", "S", {})
SPACE = ControlSpace.of(SCHEMA, "app", "label")
CURSOR = Cursor("shard-1", owner="me", epoch=1, position="0".zfill(40))


class Thing(Entity, pk="THING#{name}", sk="THING#{name}"):
    name: str
    count: int = 0


class Clock:
    def time(self):
        return 1000.0

    def monotonic(self):
        return 0.0


def handler(name="h", *, commutes=False):
    return Handler(
        name,
        Thing,
        frozenset(Kind),
        lambda change: None,
        Declaration("h", "f.py", 1),
        commutes=commutes,
    )


def record(number, name):
    body = {
        "eventName": "INSERT",
        "eventID": f"e{number}",
        "dynamodb": {"Keys": {"pk": {"S": name}, "sk": {"S": name}}, "SequenceNumber": str(number)},
    }
    return msgspec.json.decode(msgspec.json.encode(body), type=Record)


def is_absent(item):
    return (absent,)


def pending_change(number, *outcomes, name="a"):
    position, key = str(number).zfill(40), ItemKey(name, name)
    return PendingChange(position, 100.0 + number, record(number, name), Thing, key, list(outcomes))


def done(number, *effects, by=None, reads=()):
    outcome = Outcome(by or handler(), run=1)
    resolve(outcome, effects, reads, str(number).zfill(40), SCHEMA)
    return outcome


def failed(by=None):
    outcome = Outcome(by or handler(), run=1)
    outcome.fail(Failure("ValueError", "no"))
    return outcome


def add(name, count=1):
    return Add(Thing.key(name=name), count=count)
