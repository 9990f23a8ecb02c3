"""Made-up sightings for tests of invariants: one shard `s1`, its cursor, its records."""

from dataclasses import replace

from streamkit.local.engine import CallRecord
from streamkit.local.iterators import ShardIterator
from streamkit.progress.control import Cursor, cursor_attributes
from streamkit.testing.sightings import SeenCall, SeenWrite

ARN = "arn:aws:dynamodb:us-east-1:000000000000:table/Shop/stream/2027-01-15T08:00:00.000"
FREE = Cursor("s1", generation=1)
HELD = replace(FREE, owner="ann", epoch=1)
ONCE = replace(HELD, position="5".zfill(40), commit="a")
TWICE = replace(HELD, position="9".zfill(40), commit="b")


def image(cursor):
    if cursor is None:
        return None
    attributes = {f"_sk_{name}": value for name, value in cursor_attributes(cursor).items()}
    return attributes | {"_sk_kind": {"S": "cursor"}}


def call(operation, *, at=0.0, payload=None, status=200, body=None):
    return CallRecord("dynamodb", operation, payload or {}, status, body or {}, at, {})


def wrote(actor, before, after, *, at=0.0, sent=None):
    """A process changes a cursor."""
    keys = {"PK": {"S": f"_sk#shop#label#cursor#{(before or after).name}"}, "SK": {"S": "_sk"}}
    write = SeenWrite("control", 1, at, keys, image(before), image(after))
    transaction = call("TransactWriteItems", at=at, payload={"TransactItems": [{}]})
    return SeenCall(actor, at if sent is None else sent, transaction, (write,))


def asked(actor, operation, *, at=0.0, sent=None, status=200, body=None, **payload):
    record = call(operation, at=at, payload=payload, status=status, body=body)
    return SeenCall(actor, at if sent is None else sent, record)


def read(actor, shard="s1", *, at=0.0, sent=None, after=0, numbers=(5,), created=0.0):
    """A process reads a page of records with these numbers, all created at the same time."""
    iterator = str(ShardIterator(ARN, shard, after, 0.0, reader=1))
    stamped = {"ApproximateCreationDateTime": created}
    body = {"Records": [{"dynamodb": {"SequenceNumber": str(n), **stamped}} for n in numbers]}
    return asked(actor, "GetRecords", at=at, sent=sent, body=body, ShardIterator=iterator)


def opened(actor, kind, number=None, **more):
    where = {} if number is None else {"SequenceNumber": str(number)}
    return asked(actor, "GetShardIterator", ShardId="s1", ShardIteratorType=kind, **where, **more)
