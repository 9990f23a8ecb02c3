"""Which shards of a worker hold which parked queues, and what they are told of them."""

from streamkit.progress.control import QueuedKey
from streamkit.worker.holders import Holder, Holders


class Shard:
    """A shard's parked queues, by name, each listed in a chunk; it forgets what is emptied."""

    def __init__(self, **queues):
        self.queues = {name: QueuedKey(chunk) for name, chunk in queues.items()}
        self.holder = Holder(lambda: self.queues, self.queues.pop, self.queues.update)

    @property
    def chunks(self):
        return {name: key.chunk for name, key in self.queues.items()}


def held_by(**shards):
    holders = Holders()
    for name, shard in shards.items():
        holders.add(name, shard.holder)
    return holders


def test_recipients_that_a_fan_out_parks_belong_to_every_shard_that_lists_the_fan_out():
    """After a split two shards do, and either may be given away."""
    one, two, three = Shard(fan_out="1"), Shard(fan_out="1", other="2"), Shard(other="2")
    holders = held_by(one=one, two=two, three=three)
    holders.begin("fan_out", {"ann": QueuedKey("1"), "bob": QueuedKey("1")})
    assert one.chunks == {"fan_out": "1", "ann": "1", "bob": "1"}
    assert two.chunks == one.chunks | {"other": "2"}
    assert three.chunks == {"other": "2"}
    assert holders.queues == {"fan_out", "other", "ann", "bob"}


def test_a_queue_that_a_shard_knows_is_not_begun_anew_when_it_is_found_in_the_list():
    """A new key has no tail: the shard would read it again, and take it for a queue of its own."""
    shard = Shard(known="1")
    before = shard.queues["known"]
    holders = held_by(s=shard)
    holders.begin_listed("s", "1", ["known", "new"])
    assert shard.queues["known"] is before
    assert shard.chunks == {"known": "1", "new": "1"}


def test_a_list_of_a_shard_that_was_given_away_is_for_its_next_owner():
    shard = Shard(known="1")
    holders = held_by(s=shard)
    holders.remove("s")
    holders.begin_listed("s", "1", ["new"])
    holders.remove("s")
    assert (shard.chunks, holders.queues) == ({"known": "1"}, set())


def test_an_emptied_queue_is_forgotten_by_every_shard_but_those_where_it_has_begun_again():
    one, two, three = Shard(queue="1"), Shard(queue="1"), Shard(queue="1")
    holders = held_by(one=one, two=two, three=three)
    before = holders.holds("queue")
    assert before.keys() == {"one", "two", "three"}
    two.queues["queue"] = QueuedKey("2")
    holders.remove("three")
    holders.add("three", Shard(queue="1").holder)  # taken again
    holders.end("queue", before)
    assert (one.chunks, two.chunks, three.chunks) == ({}, {"queue": "2"}, {"queue": "1"})
    assert holders.holds("queue").keys() == {"two", "three"}
