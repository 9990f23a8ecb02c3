import random
from base64 import b64decode, b64encode
from types import SimpleNamespace

import pytest

from streamkit.local.all_streams import Streams
from streamkit.local.errors import ApiError
from streamkit.local.iterators import ShardIterator
from streamkit.local.streams_api import get_records, get_shard_iterator

KEY_SCHEMA = [{"AttributeName": "pk", "KeyType": "HASH"}]


class World:
    def __init__(self):
        self.now = 1_700_000_000.0
        self.streams = Streams(clock=lambda: self.now, rng=random.Random(1))
        self.streams.settings.roll_after = None
        self.engine = SimpleNamespace(streams=self.streams)
        self.stream = self.streams.create(
            table_name="t", key_schema=KEY_SCHEMA, view_type="NEW_IMAGE"
        )
        (self.shard,) = self.stream.shards()
        self.numbers = []

    def change(self, *values):
        for value in values:
            self.stream.append({"pk": {"S": "a"}}, None, {"pk": {"S": "a"}, "v": {"N": str(value)}})
            self.numbers.append(str(self.shard.last))

    def iterator(self, kind, number=None, shard_id=None, **more):
        request = {
            "StreamArn": self.stream.arn,
            "ShardId": shard_id or self.shard.id,
            "ShardIteratorType": kind,
        }
        if number is not None:
            request["SequenceNumber"] = number
        return get_shard_iterator(self.engine, request | more)["ShardIterator"]

    def read(self, iterator):
        page = get_records(self.engine, {"ShardIterator": iterator})
        return [int(r["dynamodb"]["NewImage"]["v"]["N"]) for r in page["Records"]]

    def next(self, iterator):
        return get_records(self.engine, {"ShardIterator": iterator})["NextShardIterator"]


@pytest.fixture
def world():
    return World()


def code_of(call, *arguments, **more):
    with pytest.raises(ApiError) as caught:
        call(*arguments, **more)
    return caught.value.code


def test_trim_horizon_begins_with_the_oldest_record(world):
    world.change(1, 2)
    assert world.read(world.iterator("TRIM_HORIZON")) == [1, 2]


def test_latest_is_fixed_when_it_is_made(world):
    world.change(1)
    iterator = world.iterator("LATEST")
    assert world.read(iterator) == []
    world.change(2, 3)
    assert world.read(iterator) == [2, 3]


def test_latest_of_an_empty_shard_sees_its_first_record(world):
    iterator = world.iterator("LATEST")
    world.change(1)
    assert world.read(iterator) == [1]


def test_latest_comes_before_what_is_written_and_not_published(world):
    world.streams.settings.publish_delay = 3
    world.change(1)
    world.now += 3
    world.change(2)
    iterator = world.iterator("LATEST")
    assert world.read(iterator) == []
    world.now += 3
    assert world.read(iterator) == [2]


def test_latest_of_a_shard_whose_records_are_gone_can_be_read(world):
    world.change(1)
    world.stream.trim()
    iterator = world.iterator("LATEST")
    assert world.read(iterator) == []
    world.change(2)
    assert world.read(iterator) == [2]


def test_latest_of_a_shard_of_which_all_is_trimmed_sees_its_next_record(world):
    world.change(1, 2)
    world.shard.trim(world.now + 1)
    iterator = world.iterator("LATEST")
    world.change(3)
    assert world.read(iterator) == [3]


def test_at_and_after_a_sequence_number_differ_by_its_record(world):
    world.change(1, 2, 3)
    assert world.read(world.iterator("AT_SEQUENCE_NUMBER", world.numbers[1])) == [2, 3]
    assert world.read(world.iterator("AFTER_SEQUENCE_NUMBER", world.numbers[1])) == [3]
    assert world.read(world.iterator("AFTER_SEQUENCE_NUMBER", str(world.shard.start))) == [1, 2, 3]


def test_at_a_time_begins_with_the_first_record_of_that_second_or_later(world):
    for value in range(3):
        world.change(value)
        world.now += 10
    begin = world.now - 30

    assert world.read(world.iterator("AT_TIMESTAMP", Timestamp=begin + 10)) == [1, 2]
    assert world.read(world.iterator("AT_TIMESTAMP", Timestamp=begin + 10.5)) == [2]
    assert world.read(world.iterator("AT_TIMESTAMP", Timestamp=begin - 1e6)) == [0, 1, 2]
    assert world.read(world.iterator("AT_TIMESTAMP", Timestamp=world.now)) == []
    refused = code_of(world.iterator, "AT_TIMESTAMP", Timestamp=world.now + 1)
    assert refused == "ValidationException"


def test_at_a_time_a_record_is_as_old_as_its_second(world):
    second = world.now
    for value, after in ((1, 0.9), (2, 1.9), (3, 5.0)):
        world.now = second + after
        world.change(value)
    for after, expected in ((0, [1, 2, 3]), (0.5, [2, 3]), (1, [2, 3]), (1.5, [3]), (5, [3])):
        assert world.read(world.iterator("AT_TIMESTAMP", Timestamp=second + after)) == expected


def test_an_iterator_can_be_used_again(world):
    world.change(1)
    iterator = world.iterator("TRIM_HORIZON")
    assert world.read(iterator) == world.read(iterator) == [1]


def test_an_iterator_expires_after_a_quarter_of_an_hour(world):
    world.change(1)
    iterator = world.iterator("TRIM_HORIZON")
    world.now += 900
    assert world.read(iterator) == [1]
    world.now += 1
    assert code_of(world.read, iterator) == "ExpiredIteratorException"


def test_a_next_iterator_has_a_quarter_of_an_hour_of_its_own(world):
    iterator = world.iterator("TRIM_HORIZON")
    for _ in range(5):
        world.now += 800
        iterator = world.next(iterator)
    assert world.read(iterator) == []


def test_a_position_behind_the_trim_horizon_is_refused_when_asked_for(world):
    world.change(1, 2)
    world.now += 10
    world.change(3)
    world.stream.trim(world.now)

    for kind in ("AT_SEQUENCE_NUMBER", "AFTER_SEQUENCE_NUMBER"):
        for number in world.numbers[:2]:
            assert code_of(world.iterator, kind, number) == "TrimmedDataAccessException"
    assert world.read(world.iterator("AT_SEQUENCE_NUMBER", world.numbers[2])) == [3]
    assert world.read(world.iterator("TRIM_HORIZON")) == [3]


def test_an_iterator_overtaken_by_the_trim_horizon_is_refused_when_used(world):
    world.change(1)
    iterator = world.iterator("TRIM_HORIZON")
    after = world.iterator("AFTER_SEQUENCE_NUMBER", world.numbers[0])
    world.now += 1
    world.stream.trim(world.now)
    world.change(2)

    assert code_of(world.read, iterator) == "TrimmedDataAccessException"
    assert world.read(after) == [2]


def test_a_reader_that_keeps_up_is_not_hurt_by_trimming(world):
    iterator = world.iterator("TRIM_HORIZON")
    seen = []
    for value in range(300):
        world.change(value)
        seen += world.read(iterator)
        iterator = world.next(iterator)
        world.now += 600

    assert seen == list(range(300))


def test_a_sequence_number_of_another_shard_is_refused(world):
    world.change(1)
    child = world.stream.roll(world.shard.id)
    for number in ("0" * 21, "9" * 40, "12", "x" * 25, str(child.start)):
        assert code_of(world.iterator, "AT_SEQUENCE_NUMBER", number) == "ValidationException"
    refused = code_of(world.iterator, "AT_SEQUENCE_NUMBER", world.numbers[0], child.id)
    assert refused == "ValidationException"


def test_a_padded_sequence_number_means_the_same(world):
    world.change(1, 2)
    padded = world.numbers[0].zfill(40)
    assert world.read(world.iterator("AFTER_SEQUENCE_NUMBER", padded)) == [2]


def test_incomplete_and_wrong_requests_are_refused(world):
    assert code_of(world.iterator, "AT_SEQUENCE_NUMBER") == "ValidationException"
    assert code_of(world.iterator, "AT_TIMESTAMP") == "ValidationException"
    assert code_of(world.iterator, "SOMEWHERE") == "ValidationException"
    unknown = "shardId-00000000000000000000-00000000"
    assert code_of(world.iterator, "LATEST", shard_id=unknown) == "ResourceNotFoundException"


def test_a_text_that_is_no_iterator_or_was_changed_is_refused(world):
    iterator = world.iterator("TRIM_HORIZON")
    for wrong in ("", "x", iterator[:-9], iterator[:-6] + "AAAAAA", world.stream.arn + "|1|é"):
        assert code_of(world.read, wrong) == "ValidationException"
    arn, version, text = iterator.split("|")
    body = b64decode(text).replace(b"shardId-0", b"shardId-1")
    other = f"{arn}|{version}|{b64encode(body).decode()}"
    assert code_of(world.read, other) == "ValidationException"


def test_an_iterator_survives_being_written_and_read():
    iterator = ShardIterator("arn:aws:dynamodb:r:1:table/t/stream/l", "shardId-1", 10**39, 1.5, 7)
    text = str(iterator)
    assert ShardIterator.parse(text) == iterator
    assert text.startswith(iterator.arn + "|1|")
    assert len(text) < 300


def test_an_iterator_of_a_vanished_stream_finds_nothing(world):
    iterator = world.iterator("TRIM_HORIZON")
    world.stream.disable()
    world.streams.settings.iterator_lifetime = 1e9
    world.now += 86_401
    assert code_of(world.read, iterator) == "ResourceNotFoundException"
