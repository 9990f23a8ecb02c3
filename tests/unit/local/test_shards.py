import itertools
import random
from types import SimpleNamespace

import pytest

from streamkit.local.all_streams import Streams
from streamkit.local.control import Control, ControlError
from streamkit.local.errors import ApiError
from streamkit.local.streams_api import describe_stream, get_records, get_shard_iterator

KEY_SCHEMA = [
    {"AttributeName": "pk", "KeyType": "HASH"},
    {"AttributeName": "sk", "KeyType": "RANGE"},
]
HOUR = 3600


class World:
    def __init__(self, seed=1, shards=1):
        self.now = 1_700_000_000.0
        self.streams = Streams(clock=lambda: self.now, rng=random.Random(seed), shards=shards)
        self.settings = self.streams.settings
        self.settings.end_with_records_chance = 0
        self.settings.describe_rate = None  # this clock stands still
        self.engine = SimpleNamespace(
            streams=self.streams, call=self._call, expire=lambda _t: 0, tables={"orders"}
        )
        self.engine.everywhere = lambda: [self.engine]
        self.control = Control(self.engine)
        self.stream = self.create()

    def _call(self, service, operation, payload):
        if not payload["StreamSpecification"]["StreamEnabled"]:
            self.streams.all(payload["TableName"])[-1].disable()
            return 200, {}
        return 400, {"message": "already enabled"}

    def create(self):
        return self.streams.create(
            table_name="orders", key_schema=KEY_SCHEMA, view_type="NEW_IMAGE"
        )

    def change(self, pk, value=0, sk="s"):
        keys = {"pk": {"S": pk}, "sk": {"S": sk}}
        self.stream.append(keys, None, keys | {"v": {"N": str(value)}})

    def listed(self, **more):
        shards, start = [], {}
        while True:
            request = {"StreamArn": self.stream.arn} | start | more
            page = describe_stream(self.engine, request)["StreamDescription"]
            shards += page["Shards"]
            if "LastEvaluatedShardId" not in page:
                return shards
            start = {"ExclusiveStartShardId": page["LastEvaluatedShardId"]}

    def ids(self, **more):
        return [shard["ShardId"] for shard in self.listed(**more)]

    def iterator(self, shard_id, kind="TRIM_HORIZON"):
        request = {"StreamArn": self.stream.arn, "ShardId": shard_id, "ShardIteratorType": kind}
        return get_shard_iterator(self.engine, request)["ShardIterator"]

    def read(self, iterator):
        return get_records(self.engine, {"ShardIterator": iterator})

    def drain(self, shard_id):
        """All records of a closed or open shard: (pk, value, sequence number)."""
        seen, iterator = [], self.iterator(shard_id)
        while iterator is not None:
            page = self.read(iterator)
            for record in page["Records"]:
                image = record["dynamodb"]["NewImage"]
                number = int(record["dynamodb"]["SequenceNumber"])
                seen.append((image["pk"]["S"], int(image["v"]["N"]), number))
            iterator = page.get("NextShardIterator") if page["Records"] else None
        return seen


@pytest.fixture
def world():
    return World()


def ends(shard):
    return shard["SequenceNumberRange"].get("EndingSequenceNumber")


def test_shard_ids_have_the_known_form_and_sort_by_age(world):
    world.control.roll("orders")
    world.control.roll("orders")
    ids = world.ids()

    assert ids == sorted(ids)
    assert all(len(shard_id) == 8 + 20 + 1 + 8 for shard_id in ids)
    assert all(shard_id.startswith("shardId-0000000170000000") for shard_id in ids)


def test_a_split_closes_the_parent_and_opens_two_children(world):
    (parent,) = world.ids()
    for number in range(50):
        world.change(f"k{number}")

    children = world.control.split("orders")

    old, *new = world.listed()
    last = world.drain(parent)[-1][2]
    assert (old["ShardId"], ends(old)) == (parent, str(last))
    assert [shard["ShardId"] for shard in new] == sorted(children)
    assert {shard["ParentShardId"] for shard in new} == {parent}
    assert [ends(shard) for shard in new] == [None, None]
    assert all(int(s["SequenceNumberRange"]["StartingSequenceNumber"]) > last for s in new)


def test_the_children_of_a_split_share_the_keys_of_the_parent(world):
    left, right = world.control.split("orders")
    for number in range(100):
        world.change(f"k{number}")
        world.change(f"k{number}", 1)

    keys = [{pk for pk, _, _ in world.drain(child)} for child in (left, right)]

    assert keys[0].isdisjoint(keys[1])
    assert len(keys[0] | keys[1]) == 100
    assert min(map(len, keys)) > 25


def test_a_roll_has_one_child_for_all_keys(world):
    (parent,) = world.ids()
    world.change("a")
    (child,) = world.control.roll("orders")
    world.change("a", 1)

    assert [value for _, value, _ in world.drain(parent)] == [0]
    assert [value for _, value, _ in world.drain(child)] == [1]
    assert world.listed()[1]["ParentShardId"] == parent


def test_an_item_s_records_are_in_order_over_splits_and_rolls():
    world = World(seed=5, shards=3)
    rng = random.Random(9)
    for value in range(2000):
        world.change(f"k{rng.randrange(20)}", value)
        world.now += rng.random()
        if rng.random() < 0.01:
            shard = rng.choice(world.stream.open_shards()).id
            (world.control.split if rng.random() < 0.5 else world.control.roll)("orders", shard)
    shards = world.listed()
    parents = {shard["ShardId"]: shard.get("ParentShardId") for shard in shards}
    held = {shard_id: world.drain(shard_id) for shard_id in parents}

    assert sum(map(len, held.values())) == 2000
    for name in {pk for records in held.values() for pk, _, _ in records}:
        owners = [s for s in parents if any(pk == name for pk, _, _ in held[s])]
        history = [r for s in owners for r in held[s] if r[0] == name]
        assert [r[1] for r in history] == sorted(r[1] for r in history)
        assert [r[2] for r in history] == sorted(r[2] for r in history)
        for older, younger in itertools.pairwise(owners):
            lineage, shard = set(), younger
            while shard is not None:
                lineage.add(shard)
                shard = parents[shard]
            assert older in lineage


def test_unrelated_shards_number_on_their_own():
    world = World(shards=8)
    starts = [s["SequenceNumberRange"]["StartingSequenceNumber"] for s in world.listed()]

    assert len(starts) == len(set(starts)) == 8
    assert len({len(start) for start in starts}) > 1


def test_a_partition_key_lives_in_one_shard_unless_collections_are_spread():
    for spread in (False, True):
        world = World(shards=4)
        world.settings.spread_collections = spread
        world.stream = world.create()
        for number in range(50):
            world.change("a", sk=f"s{number}")
        used = [shard for shard in world.stream.shards() if len(shard)]
        assert len(used) == (4 if spread else 1)


def test_a_closed_shard_cannot_be_split_or_rolled(world):
    (parent,) = world.ids()
    world.control.roll("orders")

    with pytest.raises(ControlError):
        world.control.split("orders", parent)
    with pytest.raises(ValueError, match="no open shard"):
        world.stream.roll(parent)


def test_open_shards_roll_after_about_four_hours(world):
    world.now += 5 * HOUR
    assert [ends(shard) is None for shard in world.listed()] == [False, True]
    assert len(world.listed()) == 2


def test_a_write_that_comes_after_the_roll_goes_to_the_child(world):
    (parent,) = world.ids()
    world.change("a")
    world.now += 5 * HOUR
    world.change("a", 1)
    parent_records, child_records = (world.drain(shard_id) for shard_id in world.ids())

    assert (len(parent_records), len(child_records)) == (1, 1)
    assert world.ids()[0] == parent


def test_rolling_by_time_can_be_switched_off(world):
    world.settings.roll_after = None
    world.now += 50 * HOUR
    assert len(world.listed()) == 1


def test_an_idle_stream_lists_a_day_of_generations_however_far_the_clock_jumps(world):
    for _ in range(3):
        world.now += 10 * 365 * 24 * HOUR
        shards = world.listed()
        assert 6 <= len(shards) <= 9
        assert [ends(shard) is None for shard in shards].count(True) == 1
        assert ends(shards[-1]) is None
    world.change("a")
    assert len(world.drain(world.ids()[-1])) == 1


def test_a_closed_shard_is_listed_for_a_day_then_gone(world):
    world.settings.roll_after = None
    (parent,) = world.ids()
    world.change("a")
    (child,) = world.control.roll("orders")

    world.now += 24 * HOUR
    assert world.ids() == [parent, child]

    world.now += 1
    assert world.ids() == [child]
    assert world.listed()[0]["ParentShardId"] == parent
    with pytest.raises(ApiError) as caught:
        world.iterator(parent)
    assert caught.value.code == "ResourceNotFoundException"


def test_an_empty_closed_shard_may_stay_listed_for_longer(world):
    world.settings.roll_after = None
    world.settings.linger = 24 * HOUR
    (parent,) = world.ids()
    world.change("a")
    world.control.roll("orders")
    world.now += 47 * HOUR

    assert parent in world.ids()
    assert world.drain(parent) == []


def test_the_last_records_come_with_or_without_a_next_iterator(world):
    (parent,) = world.ids()
    world.change("a")
    world.control.roll("orders")

    world.settings.end_with_records_chance = 1
    assert "NextShardIterator" not in world.read(world.iterator(parent))

    world.settings.end_with_records_chance = 0
    page = world.read(world.iterator(parent))
    assert len(page["Records"]) == 1
    assert world.read(page["NextShardIterator"]) == {"Records": []}


def test_a_closed_shard_ends_behind_its_last_record_and_not_before_it_is_published(world):
    (parent,) = world.ids()
    world.settings.publish_delay = 1
    world.settings.end_with_records_chance = 1
    for value in range(3):
        world.change("a", value)
        world.now += 1
    world.change("a", 3)
    world.control.roll("orders")

    request = {"ShardIterator": world.iterator(parent), "Limit": 2}
    first = get_records(world.engine, request)
    second = world.read(first["NextShardIterator"])
    assert [len(page["Records"]) for page in (first, second)] == [2, 1]
    empty = world.read(second["NextShardIterator"])
    assert empty["Records"] == []
    world.now += 1
    last = world.read(empty["NextShardIterator"])
    assert len(last["Records"]) == 1
    assert "NextShardIterator" not in last


def test_both_endings_happen_by_default():
    endings = set()
    for seed in range(20):
        world = World(seed)
        world.settings.end_with_records_chance = 0.5
        (parent,) = world.ids()
        world.change("a")
        world.control.roll("orders")
        endings.add("NextShardIterator" in world.read(world.iterator(parent)))
    assert endings == {True, False}


def test_an_empty_closed_shard_ends_at_once(world):
    (parent,) = world.ids()
    world.control.split("orders")
    assert world.read(world.iterator(parent)) == {"Records": []}
    assert (
        ends(world.listed()[0])
        == world.listed()[0]["SequenceNumberRange"]["StartingSequenceNumber"]
    )


def test_shards_are_listed_in_pages_of_a_hundred():
    world = World(shards=250)
    request = {"StreamArn": world.stream.arn}
    page = describe_stream(world.engine, request)["StreamDescription"]

    assert len(page["Shards"]) == 100
    assert page["LastEvaluatedShardId"] == page["Shards"][-1]["ShardId"]
    assert len(world.ids()) == len(set(world.ids())) == 250
    assert world.ids(Limit=7) == world.ids()


def test_paging_goes_on_after_a_shard_that_is_gone(world):
    world.settings.roll_after = None
    first = world.ids()[0]
    (second,) = world.control.roll("orders")
    world.control.trim("orders")

    assert world.ids(ExclusiveStartShardId=first) == [second]


def test_listings_may_be_in_any_order_and_are_still_complete():
    world = World(shards=30)
    world.control.split("orders")
    ordered = world.ids()
    world.settings.unordered_listing = True
    world.settings.listing_page = 7

    assert world.ids() != ordered
    assert sorted(world.ids()) == ordered


def test_a_filter_lists_the_children_of_one_shard():
    world = World(shards=2)
    first, second = world.ids()
    children = world.control.split("orders", first)
    world.control.roll("orders", second)
    child_filter = {"Type": "CHILD_SHARDS", "ShardId": first}

    assert world.ids(ShardFilter=child_filter) == sorted(children)
    assert world.ids(ShardFilter=child_filter | {"ShardId": children[0]}) == []
    with pytest.raises(ApiError) as caught:
        world.ids(ShardFilter=child_filter | {"Type": "PARENTS"})
    assert caught.value.code == "ValidationException"


def test_a_server_may_ignore_the_filter(world):
    world.settings.ignore_shard_filter = True
    (parent,) = world.ids()
    world.control.split("orders")

    assert len(world.ids(ShardFilter={"Type": "CHILD_SHARDS", "ShardId": parent})) == 3


def test_children_may_be_listed_late(world):
    world.settings.children_hidden = 5
    (parent,) = world.ids()
    world.control.split("orders")
    only_children = {"ShardFilter": {"Type": "CHILD_SHARDS", "ShardId": parent}}

    assert world.ids() == [parent]
    assert world.ids(**only_children) == []
    assert ends(world.listed()[0]) is not None
    world.now += 5
    assert len(world.ids()) == 3
    assert len(world.ids(**only_children)) == 2


def test_a_parent_may_be_listed_open_while_it_has_children(world):
    world.settings.parents_open = 5
    world.control.split("orders")

    assert [ends(shard) for shard in world.listed()] == [None, None, None]
    world.now += 5
    assert [ends(shard) is None for shard in world.listed()] == [False, True, True]


def test_all_shards_of_a_disabled_stream_are_listed_closed_at_once(world):
    world.settings.parents_open = 5
    world.control.split("orders")
    world.control.disable("orders")
    assert None not in [ends(shard) for shard in world.listed()]


def test_a_shard_may_be_left_out_of_listings_and_still_be_read(world):
    (parent,) = world.ids()
    world.change("a")
    (child,) = world.control.roll("orders")
    world.control.hide("orders", parent)

    assert world.ids() == [child]
    assert len(world.drain(parent)) == 1
    world.control.hide("orders", parent, hidden=False)
    assert world.ids() == [parent, child]


def test_a_trim_on_command_takes_old_records_and_closed_shards(world):
    (parent,) = world.ids()
    world.change("a")
    (child,) = world.control.roll("orders")
    world.change("a", 1)
    world.now += 10
    middle = world.now
    world.change("a", 2)
    world.control.trim("orders", middle)

    assert world.ids() == [child]
    assert [value for _, value, _ in world.drain(child)] == [2]
    world.control.trim("orders")
    assert world.drain(child) == []
    assert world.control.shards("orders")[0]["id"] == child
    assert parent not in world.ids()


def test_a_trim_on_command_takes_all_streams_of_a_table(world):
    world.change("a")
    world.control.disable("orders")
    older, world.stream = world.stream, world.create()
    world.change("b")
    assert world.control.shards("orders")[0]["id"] == world.ids()[0]
    world.now += 10
    world.control.trim("orders")
    assert world.streams.find(older.arn) is None
    assert world.drain(world.ids()[0]) == []


def test_the_summary_of_shards_shows_what_a_listing_hides(world):
    world.change("a")
    world.settings.children_hidden = 60
    world.control.split("orders")

    summary = world.control.shards("orders")

    assert [shard["open"] for shard in summary] == [False, True, True]
    assert [shard["records"] for shard in summary] == [1, 0, 0]


def test_commands_are_run_by_name_and_refused_with_a_reason(world):
    assert len(world.control.run("split", {"table": "orders"})) == 2
    assert world.control.run("configure", {"publish_delay": 2})["publish_delay"] == 2
    assert world.settings.publish_delay == 2
    world.control.run("disable", {"table": "orders"})
    assert world.stream.status == "DISABLED"
    assert world.control.run("expire", {"table": "orders"}) == 0
    for command, arguments, reason in [
        ("explode", {}, "no command"),
        ("_stream", {"table": "orders"}, "no command"),
        ("split", {}, "missing a required argument"),
        ("split", {"table": "orders", "force": True}, "unexpected keyword"),
        ("split", {"table": "none"}, "no stream"),
        ("roll", {"table": "orders"}, "no open shard"),
        ("hide", {"table": "orders", "shard": "x"}, "no shard"),
        ("configure", {"retension": 1}, "no such setting: retension"),
        ("configure", {"retention": "long"}, "float"),
        ("enable", {"table": "orders"}, "already enabled"),
    ]:
        with pytest.raises(ControlError, match=reason):
            world.control.run(command, arguments)
