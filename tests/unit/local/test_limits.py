"""How often a stream may be described and a shard read."""

import pytest

STEP = 0.2


class Reader:
    """One chain of iterators of one shard."""

    def __init__(self, db, shard=0):
        self.db = db
        self.stream = db.engine.tables["table"].stream
        self.shard = self.stream.shards()[shard]
        request = {"StreamArn": self.stream.arn, "ShardId": self.shard.id}
        status, body = db.streams("GetShardIterator", ShardIteratorType="LATEST", **request)
        assert status == 200
        self.iterator = body["ShardIterator"]

    def read(self):
        """Read on; the code of a refusal."""
        status, body = self.db.streams("GetRecords", ShardIterator=self.iterator)
        if status == 200:
            self.iterator = body["NextShardIterator"]
            return None
        return code(body)


def code(body):
    return body["__type"].partition("#")[2]


@pytest.fixture
def db(database):
    db = database(shards=2)
    db.table(StreamSpecification={"StreamEnabled": True, "StreamViewType": "KEYS_ONLY"})
    db.settings = db.engine.streams.settings
    db.streams = lambda operation, **payload: db.engine.call("dynamodbstreams", operation, payload)
    return db


def describe(db, table="table"):
    arn = db.engine.tables[table].stream.arn
    status, body = db.streams("DescribeStream", StreamArn=arn, Limit=1)
    return None if status == 200 else code(body)


def test_a_stream_is_described_ten_times_in_any_second(db):
    seen = []
    for _ in range(25):
        seen.append(describe(db))
        db.now += 0.05
    # Ten at once, none for the rest of their second, and one for each that is a second old.
    refused = "ThrottlingException"
    assert seen == [None] * 10 + [refused] * 10 + [None] * 5


def test_each_stream_is_described_as_often(db):
    db.table("other", StreamSpecification={"StreamEnabled": True, "StreamViewType": "KEYS_ONLY"})
    assert [describe(db) for _ in range(11)][-1] == "ThrottlingException"
    assert describe(db, "other") is None


def test_children_are_looked_up_within_the_same_limit(db):
    stream = db.engine.tables["table"].stream
    shard_filter = {"Type": "CHILD_SHARDS", "ShardId": stream.shards()[0].id}
    for _ in range(10):
        status, _ = db.streams("DescribeStream", StreamArn=stream.arn, ShardFilter=shard_filter)
        assert status == 200
    assert describe(db) == "ThrottlingException"


def test_an_invalid_description_uses_up_nothing(db):
    arn = db.engine.tables["table"].stream.arn
    for _ in range(20):
        status, body = db.streams("DescribeStream", StreamArn=arn, Limit=0)
        assert (status, code(body)) == (400, "ValidationException")
    assert describe(db) is None


def test_a_shard_is_read_five_times_a_second_if_asked_for(db):
    db.settings.read_rate = 5
    reader, other = Reader(db), Reader(db, shard=1)
    assert [reader.read() for _ in range(7)] == [None] * 5 + ["ThrottlingException"] * 2
    assert other.read() is None
    db.now += 1
    assert reader.read() is None


def test_a_reader_that_pauses_for_a_fifth_of_a_second_is_never_throttled(db):
    db.settings.read_rate = 5
    reader = Reader(db)
    for _ in range(1000):
        assert reader.read() is None
        db.now += STEP  # sums of tenths are not exact


def test_refused_calls_delay_nobody(db):
    db.settings.read_rate = 1
    reader = Reader(db)
    assert reader.read() is None
    for _ in range(9):
        db.now += 0.1
        assert reader.read() == "ThrottlingException"
    db.now += 0.1
    assert reader.read() is None


def test_a_third_reader_of_a_shard_is_refused_until_another_has_left(db):
    db.settings.readers = 2
    first, second, third = (Reader(db) for _ in range(3))
    for _ in range(5):
        assert [first.read(), second.read(), third.read()] == [None, None, "LimitExceededException"]
        db.now += 0.3
    assert Reader(db, shard=1).read() is None
    assert second.read() is None
    db.now += 0.7
    # The first one has not read for more than a second.
    assert [third.read(), first.read()] == [None, "LimitExceededException"]


def test_a_reader_stays_the_same_from_page_to_page(db):
    db.settings.readers = 1
    reader = Reader(db)
    for _ in range(5):
        assert reader.read() is None
    assert Reader(db).read() == "LimitExceededException"


def test_reads_are_not_limited_by_default(db):
    readers = [Reader(db) for _ in range(3)]
    assert {reader.read() for reader in readers for _ in range(10)} == {None}


def test_limits_are_switched_and_lifted_while_the_engine_runs(db):
    reader = Reader(db)
    assert [reader.read() for _ in range(9)][-1] is None
    db.settings.read_rate = 2
    assert [reader.read() for _ in range(3)] == [None, None, "ThrottlingException"]
    db.settings.read_rate = None
    db.settings.describe_rate = None
    assert reader.read() is None
    assert {describe(db) for _ in range(20)} == {None}


def test_both_forms_of_a_read_are_limited(db):
    db.settings.read_rate = 1
    reader = Reader(db)
    request = b'{"ShardIterator":"%s"}' % reader.iterator.encode()
    assert db.engine.call_bytes("dynamodbstreams", "GetRecords", request)[0] == 200
    assert reader.read() == "ThrottlingException"
    status, body = db.engine.call_bytes("dynamodbstreams", "GetRecords", request)
    assert status == 400
    assert b"ThrottlingException" in body
