"""Which shard takes a change, which rolls next, and which are left."""

import random
from itertools import pairwise

from streamkit.local.all_streams import Streams
from streamkit.local.catalogue import Catalogue
from streamkit.local.open_shards import OpenShards
from streamkit.local.shards import HASHES, EngineShard, HashRange

KEY_SCHEMA = [{"AttributeName": "pk", "KeyType": "HASH"}]


def shard_of(number, hashes, *, parent=None, roll_at=float("inf")):
    shard_id = f"shardId-{number:020d}-00000000"
    return EngineShard(shard_id, hashes, 0, float(number), parent=parent, roll_at=roll_at)


def test_every_hash_has_one_shard_through_splits_and_rolls():
    rng = random.Random(1)
    shards = [shard_of(n, hashes) for n, hashes in enumerate(HashRange().divide(3))]
    open_shards = OpenShards(shards)
    for number in range(3, 60):
        parent = rng.choice(open_shards.all())
        parent.close(0.0)
        ranges = parent.hashes.divide(rng.choice((1, 2)))
        open_shards.replace(parent, [shard_of(number, r, parent=parent) for r in ranges])
    everything = open_shards.all()
    assert len(everything) == len(open_shards)
    assert everything[0].hashes.low == 0
    assert everything[-1].hashes.high == HASHES
    for left, right in pairwise(everything):
        assert left.hashes.high == right.hashes.low
    for shard in everything:
        for key_hash in (shard.hashes.low, shard.hashes.high - 1):
            assert open_shards.at(key_hash) is shard


def test_shards_fall_due_in_the_order_of_time_and_replaced_ones_never():
    times = (30.0, 10.0, 20.0)
    ranges = HashRange().divide(3)
    first, second, third = (
        shard_of(n, r, roll_at=at) for n, (r, at) in enumerate(zip(ranges, times, strict=True))
    )
    open_shards = OpenShards([first, second, third])
    assert open_shards.next_roll == 10.0
    third.close(5.0)
    child = shard_of(9, third.hashes, parent=third, roll_at=25.0)
    open_shards.replace(third, [child])
    due = []
    while open_shards.next_roll < float("inf"):
        due.append(open_shards.take_due())
    assert due == [second, None, child, first]


def test_a_forgotten_shard_is_found_no_more_and_its_siblings_are():
    catalogue = Catalogue()
    parent = shard_of(1, HashRange())
    elder, younger = (shard_of(n, HashRange(), parent=parent) for n in (2, 3))
    for shard in (parent, younger, elder):
        catalogue.add(shard)
    assert list(catalogue.ids()) == [parent.id, elder.id, younger.id]
    for shard, at in ((parent, 10.0), (elder, 20.0)):
        catalogue.close(shard, at)

    catalogue.forget_closed(10.0)
    assert catalogue.find(parent.id) is parent
    catalogue.forget_closed(20.0)
    assert catalogue.find(parent.id) is None
    assert list(catalogue.children(parent.id)) == [elder.id, younger.id]
    catalogue.forget_closed(30.0)
    assert list(catalogue.children(parent.id)) == [younger.id] == list(catalogue.ids())
    assert catalogue.all() == [younger]


def test_a_stream_that_is_only_written_to_forgets_its_old_shards():
    now = [1_700_000_000.0]
    streams = Streams(clock=lambda: now[0], rng=random.Random(1))
    stream = streams.create(table_name="t", key_schema=KEY_SCHEMA, view_type="KEYS_ONLY")
    for _ in range(24 * 10):
        stream.append({"pk": {"S": "a"}}, None, {"pk": {"S": "a"}})
        now[0] += 3600
    # A day's worth at four hours each, the open one, and the one that is closing.
    assert len(stream._left.all()) <= 9
