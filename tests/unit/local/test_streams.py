import copy
import itertools
import random
from types import SimpleNamespace

import msgspec
import pytest

from streamkit.local.all_streams import Streams
from streamkit.local.errors import ApiError
from streamkit.local.streams_api import (
    describe_stream,
    get_records,
    get_shard_iterator,
    list_streams,
    read_page,
)
from streamkit.local.values import item_size

KEY_SCHEMA = [
    {"AttributeName": "pk", "KeyType": "HASH"},
    {"AttributeName": "sk", "KeyType": "RANGE"},
]
DAY = 86_400


class World:
    def __init__(self, seed=1, **options):
        self.now = 1_700_000_000.25
        self.streams = Streams(clock=lambda: self.now, rng=random.Random(seed), **options)
        self.settings = self.streams.settings
        self.engine = SimpleNamespace(streams=self.streams)

    def create(self, view_type="NEW_AND_OLD_IMAGES", table_name="orders", **options):
        return self.streams.create(
            table_name=table_name, key_schema=KEY_SCHEMA, view_type=view_type, **options
        )

    def iterator(self, stream, shard=None, kind="TRIM_HORIZON", **more):
        shard = shard or stream.shards()[0]
        request = {"StreamArn": stream.arn, "ShardId": shard.id, "ShardIteratorType": kind}
        return get_shard_iterator(self.engine, request | more)["ShardIterator"]

    def read(self, iterator, **more):
        return get_records(self.engine, {"ShardIterator": iterator} | more)

    def records(self, stream, **more):
        return self.read(self.iterator(stream), **more)["Records"]

    def describe(self, stream, **more):
        return describe_stream(self.engine, {"StreamArn": stream.arn} | more)["StreamDescription"]


@pytest.fixture
def world():
    return World()


def keys(pk, sk="s"):
    return {"pk": {"S": pk}, "sk": {"S": sk}}


def item(pk, value, sk="s"):
    return keys(pk, sk) | {"v": {"N": str(value)}}


def change(stream, pk="a", old=None, new=1, sk="s"):
    stream.append(
        keys(pk, sk),
        None if old is None else item(pk, old, sk),
        None if new is None else item(pk, new, sk),
    )


def code_of(call):
    with pytest.raises(ApiError) as caught:
        call()
    return caught.value.code


def test_a_record_has_the_form_that_aws_gives_it(world):
    stream = world.create()
    change(stream, old=1, new=2)

    (record,) = world.records(stream)

    assert set(record) == {
        "eventID",
        "eventName",
        "eventVersion",
        "eventSource",
        "awsRegion",
        "dynamodb",
    }
    assert len(record["eventID"]) == 32
    assert int(record["eventID"], 16) >= 0
    assert (record["eventVersion"], record["eventSource"]) == ("1.1", "aws:dynamodb")
    assert record["awsRegion"] == "us-east-1"
    number = record["dynamodb"].pop("SequenceNumber")
    assert number.isdigit()
    assert 21 <= len(number) <= 40
    assert record["dynamodb"] == {
        "ApproximateCreationDateTime": 1_700_000_000,
        "Keys": keys("a"),
        "NewImage": item("a", 2),
        "OldImage": item("a", 1),
        "SizeBytes": 6 + 9 + 9,
        "StreamViewType": "NEW_AND_OLD_IMAGES",
    }


@pytest.mark.parametrize(
    ("old", "new", "name"), [(None, 1, "INSERT"), (1, 2, "MODIFY"), (1, None, "REMOVE")]
)
def test_the_event_name_says_what_happened_in_every_view(world, old, new, name):
    for view in ("KEYS_ONLY", "NEW_IMAGE", "OLD_IMAGE", "NEW_AND_OLD_IMAGES"):
        stream = world.create(view)
        change(stream, old=old, new=new)
        assert [record["eventName"] for record in world.records(stream)] == [name]


@pytest.mark.parametrize(
    ("view", "images", "size"),
    [
        ("KEYS_ONLY", set(), 6),
        ("NEW_IMAGE", {"NewImage"}, 15),
        ("OLD_IMAGE", {"OldImage"}, 15),
        ("NEW_AND_OLD_IMAGES", {"NewImage", "OldImage"}, 24),
    ],
)
def test_a_view_shows_its_images_and_counts_their_bytes(world, view, images, size):
    stream = world.create(view)
    change(stream, old=1, new=2)

    (record,) = world.records(stream)

    shown = set(record["dynamodb"]) & {"NewImage", "OldImage"}
    assert (shown, record["dynamodb"]["SizeBytes"]) == (images, size)


@pytest.mark.parametrize("view", ["KEYS_ONLY", "NEW_IMAGE", "OLD_IMAGE", "NEW_AND_OLD_IMAGES"])
@pytest.mark.parametrize(("old", "new"), [(None, 1), (1, 2_345_678), (1, None)])
def test_a_size_is_the_same_whether_the_table_knew_it_or_not(world, view, old, new):
    images = tuple(None if value is None else item("a", value) for value in (old, new))
    stream = world.create(view)
    stream.append(keys("a"), *images)
    stream.append(keys("a"), *images, sizes=tuple(item_size(image or {}) for image in images))

    counted, known = (record["dynamodb"]["SizeBytes"] for record in world.records(stream))

    assert known == counted


def test_a_deletion_by_time_to_live_names_the_service(world):
    stream = world.create()
    identity = {"Type": "Service", "PrincipalId": "dynamodb.amazonaws.com"}
    stream.append(keys("a"), item("a", 1), None, identity)

    assert world.records(stream)[0]["userIdentity"] == identity


def test_the_encoded_page_says_the_same_as_the_page(world):
    stream = world.create()
    for value in range(5):
        change(stream, old=value, new=value + 1)
    iterator = world.iterator(stream)

    encoded = msgspec.json.decode(read_page(world.engine, {"ShardIterator": iterator}).encoded())

    assert encoded == world.read(iterator)


def test_records_of_one_item_keep_their_order_and_numbers_grow_with_gaps(world):
    stream = world.create()
    for value in range(200):
        change(stream, old=value, new=value + 1)

    records = world.records(stream)

    numbers = [int(record["dynamodb"]["SequenceNumber"]) for record in records]
    assert [record["dynamodb"]["NewImage"]["v"]["N"] for record in records] == [
        str(value) for value in range(1, 201)
    ]
    assert all(left < right for left, right in itertools.pairwise(numbers))
    assert any(right - left > 1 for left, right in itertools.pairwise(numbers))
    assert len({record["eventID"] for record in records}) == 200


@pytest.mark.parametrize("digits", [21, 30, 40])
def test_sequence_numbers_have_the_digits_asked_for(world, digits):
    world.settings.sequence_digits = digits
    stream = world.create()
    for _ in range(50):
        change(stream)

    assert {len(r["dynamodb"]["SequenceNumber"]) for r in world.records(stream)} == {digits}


def test_some_shards_have_numbers_that_grow_by_a_digit():
    lengths = set()
    for seed in range(40):
        world = World(seed)
        stream = world.create()
        for _ in range(1000):
            change(stream)
        numbers = [r["dynamodb"]["SequenceNumber"] for r in world.records(stream)]
        assert all(21 <= len(number) <= 40 for number in numbers)
        lengths.add(len({len(number) for number in numbers}))
    assert lengths == {1, 2}


def test_a_page_holds_at_most_a_thousand_records(world):
    stream = world.create("KEYS_ONLY")
    for _ in range(1500):
        change(stream)

    first = world.read(world.iterator(stream))
    second = world.read(first["NextShardIterator"])
    third = world.read(second["NextShardIterator"])

    assert [len(page["Records"]) for page in (first, second, third)] == [1000, 500, 0]


def test_a_limit_makes_pages_shorter(world):
    stream = world.create()
    for value in range(7):
        change(stream, new=value)
    iterator, seen = world.iterator(stream), []
    for _ in range(4):
        page = world.read(iterator, Limit=2)
        seen.append([r["dynamodb"]["NewImage"]["v"]["N"] for r in page["Records"]])
        iterator = page["NextShardIterator"]

    assert seen == [["0", "1"], ["2", "3"], ["4", "5"], ["6"]]


def test_a_page_holds_at_most_a_megabyte_of_record_sizes(world):
    stream = world.create("NEW_IMAGE")
    big = keys("a") | {"v": {"S": "x" * 300_000}}
    for _ in range(4):
        stream.append(keys("a"), None, big)

    page = world.read(world.iterator(stream))

    assert len(page["Records"]) == 3
    assert len(world.read(page["NextShardIterator"])["Records"]) == 1


def test_limits_beyond_a_thousand_are_refused(world):
    iterator = world.iterator(world.create())

    assert code_of(lambda: world.read(iterator, Limit=1001)) == "ValidationException"
    assert code_of(lambda: world.read(iterator, Limit=0)) == "ValidationException"
    assert code_of(lambda: world.read(iterator, Limit="9")) == "SerializationException"


def test_empty_pages_may_come_before_records_but_lose_none(world):
    stream = world.create()
    for value in range(20):
        change(stream, new=value)
    world.settings.empty_page_chance = 0.5
    iterator, seen, empty = world.iterator(stream), [], 0
    while len(seen) < 20:
        page = world.read(iterator, Limit=3)
        empty += not page["Records"]
        seen += [r["dynamodb"]["NewImage"]["v"]["N"] for r in page["Records"]]
        iterator = page["NextShardIterator"]

    assert seen == [str(value) for value in range(20)]
    assert empty > 0


def test_a_record_is_read_only_when_it_is_published(world):
    world.settings.publish_delay = 3
    stream = world.create()
    latest = world.iterator(stream, kind="LATEST")
    change(stream, new=1)
    page = world.read(latest)
    assert page["Records"] == []
    stream.disable()

    world.now += 3

    assert len(world.read(page["NextShardIterator"])["Records"]) == 1


def test_a_disabled_stream_is_closed_and_can_be_read_for_a_day(world):
    stream = world.create()
    change(stream)
    stream.disable()
    change(stream)

    description = world.describe(stream)
    assert description["StreamStatus"] == "DISABLED"
    assert all("EndingSequenceNumber" in s["SequenceNumberRange"] for s in description["Shards"])
    assert len(world.records(stream)) == 1

    stream.trim(world.now - DAY)
    assert len(world.records(stream)) == 1

    world.now += DAY + 1

    assert code_of(lambda: world.describe(stream)) == "ResourceNotFoundException"
    assert list_streams(world.engine, {})["Streams"] == []


def test_a_table_s_next_stream_has_another_arn_even_at_the_same_moment(world):
    first = world.create()
    first.disable()
    second = world.create()

    assert first.arn != second.arn
    assert second.status == "ENABLED"
    assert first.arn.startswith("arn:aws:dynamodb:us-east-1:000000000000:table/orders/stream/")
    assert first.label == "2023-11-14T22:13:20.250"
    assert second.label == "2023-11-14T22:13:20.251"


def test_streams_are_listed_in_pages_and_by_table(world):
    arns = [world.create(table_name=name).arn for name in ("a", "b", "b", "c")]

    listed, start = [], {}
    while True:
        page = list_streams(world.engine, {"Limit": 3} | start)
        listed += [stream["StreamArn"] for stream in page["Streams"]]
        if "LastEvaluatedStreamArn" not in page:
            break
        start = {"ExclusiveStartStreamArn": page["LastEvaluatedStreamArn"]}
    of_b = list_streams(world.engine, {"TableName": "b"})["Streams"]

    assert listed == sorted(arns)
    assert [stream["StreamArn"] for stream in of_b] == sorted(arns[1:3])
    assert {stream["TableName"] for stream in of_b} == {"b"}


def test_a_description_tells_all_about_the_stream(world):
    stream = world.create("NEW_IMAGE")

    description = world.describe(stream)
    shards = description.pop("Shards")

    assert description == {
        "StreamArn": stream.arn,
        "StreamLabel": stream.label,
        "StreamStatus": "ENABLED",
        "StreamViewType": "NEW_IMAGE",
        "CreationRequestDateTime": 1_700_000_000.25,
        "TableName": "orders",
        "KeySchema": KEY_SCHEMA,
    }
    (shard,) = shards
    assert set(shard) == {"ShardId", "SequenceNumberRange"}
    assert set(shard["SequenceNumberRange"]) == {"StartingSequenceNumber"}


def test_an_unknown_stream_is_not_found_and_a_wrong_arn_is_invalid(world):
    stream = world.create()
    other = stream.arn.replace("orders", "others")

    def describe(arn):
        return lambda: describe_stream(world.engine, {"StreamArn": arn})

    assert code_of(describe(other)) == "ResourceNotFoundException"
    assert code_of(describe("nonsense")) == "ValidationException"
    assert code_of(describe(None)) == "ValidationException"


def test_records_are_trimmed_after_a_day_and_memory_with_them(world):
    world.settings.roll_after = None
    stream = world.create()
    for _ in range(3000):
        change(stream)
        world.now += 120

    (shard,) = stream.shards()
    assert len(world.records(stream)) == len(shard) == DAY // 120
    assert sum(map(len, shard._chunks)) < 2 * len(shard)


def test_a_packed_record_is_the_record_it_was(world):
    stream = world.create()
    identity = {"Type": "Service", "PrincipalId": "dynamodb.amazonaws.com"}
    stream.append(keys("a"), None, keys("a") | {"é": {"M": {"x": {"BS": ["YQ==", ""]}}}})
    change(stream, old=1, new=2)
    stream.append(keys("b"), item("b", 1), None, identity)
    (shard,) = stream.shards()
    packed = [copy.copy(record) for record in shard.records()]
    for record in packed:
        record.pack()
    before = [(record.wire(), record.size) for record in shard.records()]
    assert [(record.wire(), record.size) for record in packed] == before
    assert [msgspec.json.decode(record.encoded()) for record in packed] == [w for w, _ in before]


def test_a_record_that_was_read_is_the_record_it_was(world):
    stream = world.create()
    change(stream, old=1, new=2)
    record = stream.shards()[0].records()[0]
    told = copy.deepcopy(record.wire())
    first, second = record.encoded(), record.encoded()
    assert first == second
    assert msgspec.json.decode(first) == told == record.wire()


@pytest.mark.parametrize("view", ["KEYS_ONLY", "NEW_IMAGE", "OLD_IMAGE", "NEW_AND_OLD_IMAGES"])
def test_a_record_of_a_full_chunk_is_packed_in_every_view(world, view):
    world.settings.roll_after = None
    stream = world.create(view_type=view)
    for number in range(600):
        new = number + 1 if number % 3 != 1 else None
        change(stream, old=number if number % 3 else None, new=new)
    (shard,) = stream.shards()
    kinds = {type(record._images) for record in shard.records()}
    assert kinds == {bytes, tuple}
    for number, record in enumerate(shard.records()):
        told = record.wire()["dynamodb"]
        assert told["Keys"] == keys("a")
        has_new = number % 3 != 1 and view in ("NEW_IMAGE", "NEW_AND_OLD_IMAGES")
        has_old = number % 3 != 0 and view in ("OLD_IMAGE", "NEW_AND_OLD_IMAGES")
        assert told.get("NewImage", {}).get("v") == ({"N": str(number + 1)} if has_new else None)
        assert told.get("OldImage", {}).get("v") == ({"N": str(number)} if has_old else None)


def test_a_large_image_stays_shared_with_the_table(world):
    stream = world.create()
    large = keys("a") | {"text": {"S": "x" * 10_000}}
    stream.append(keys("a"), None, large)
    (shard,) = stream.shards()
    (record,) = shard.records()
    record.pack()
    assert record.images()[1] is large


def test_what_is_trimmed_is_freed_a_slice_at_a_time(world):
    world.settings.roll_after = None
    stream = world.create()
    for _ in range(10_000):
        change(stream)
    (shard,) = stream.shards()
    waste = stream._waste
    world.now += DAY + 1
    change(stream)
    assert len(stream.shards()[0]) == 1
    assert len(waste) == 39
    sizes = []
    while waste:
        sizes.append(len(waste))
        change(stream)
    assert sizes == [39, 31, 23, 15, 7]
    stream.disable()
    world.now += DAY + 1
    assert world.streams.find(stream.arn) is None
    assert len(waste) == 1


def test_pages_cross_chunks_and_begin_behind_any_number(world):
    world.settings.roll_after = None
    stream = world.create()
    numbers = []
    for _ in range(1000):
        change(stream)
        numbers.append(stream.open_shards()[0].last)
        world.now += 60
    (shard,) = stream.shards()
    for trimmed in (0, 10, 20, 256, 300, 301, 999, 1000):
        if trimmed:
            shard.trim(world.now - (1000 - trimmed) * 60)
        assert len(shard) == 1000 - trimmed
        assert shard.trimmed == (numbers[trimmed - 1] if trimmed else 0)
        for after in (0, *numbers[::97], numbers[255], numbers[256], numbers[511], numbers[-1]):
            found = [record.sequence for record in shard.page(after, 1000, world.now)]
            assert found == [n for n in numbers[trimmed:] if n > after]
        for index in range(trimmed, 1000, 83):
            moment = int(shard.created + index * 60)
            assert shard.before(moment) == numbers[index] - 1


def test_the_same_seed_makes_the_same_stream():
    def play(seed):
        world = World(seed, shards=4)
        stream = world.create()
        for number in range(50):
            change(stream, pk=f"k{number}")
        stream.split(stream.open_shards()[1].id)
        return world.describe(stream), [
            world.read(world.iterator(stream, s)) for s in stream.shards()
        ]

    assert play(7) == play(7)
    assert play(7) != play(8)


def test_a_stream_that_is_disabled_stays_so_since_then(world):
    """Its table may be deleted hours later; what is left of it goes with its own day."""
    stream = world.create()
    stream.disable()
    began = world.now
    world.now += 3600
    stream.disable()
    assert stream.disabled == began
