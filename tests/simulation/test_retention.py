"""What the simulation says of losses: made-up sightings beside an engine that has trimmed records.

The first of four records is written at 0 and the others an hour apart; the consumer begins at 0, and
its position is the second record.
"""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from streamkit.local.shards import HashRange
from streamkit.testing.sightings import SeenCall, SeenWrite
from tests.simulation.made_up import HELD, call, read, wrote
from tests.simulation.retention import Retention

HOUR = 3600.0
LOW, HIGH = HashRange().divide(2)
AT_TWO = replace(HELD, position="2".zfill(40), commit="a", seen=int(HOUR))
AT_FOUR = replace(AT_TWO, position="4".zfill(40), commit="c")


class World:
    """A shard with four records, and a worker `one` that has processed two of them."""

    def __init__(self, **others):
        self.shards = {"s1": SimpleNamespace(hashes=LOW, trimmed=0)} | others
        stream = SimpleNamespace(shard=self.shards.get)
        self.retention = Retention(SimpleNamespace(streams=SimpleNamespace(all=lambda: [stream])))
        self.written("_sk#shop#label#consumer", 0, at=0.0, shard="control", kind="consumer")
        for number in (1, 2, 3, 4):
            self.written(f"SALE#{number}", number, at=(number - 1) * HOUR)
        assert self.see(wrote("one", replace(HELD, owner=None, epoch=0), HELD)) == []
        assert self.see(read("one", numbers=(1, 2))) == []
        assert self.see(wrote("one", HELD, AT_TWO)) == []

    def written(self, pk, number, *, at, shard="s1", kind=""):
        keys = {"PK": {"S": pk}, "SK": {"S": pk}}
        write = SeenWrite(shard, number, at, keys, None, {**keys, "_sk_kind": {"S": kind}})
        return self.see(SeenCall("", at, call("PutItem", at=at), (write,)))

    def see(self, sighting):
        return list(self.retention.see(sighting))

    def outage(self, hours, *, trimmed=0, gone=False):
        """Let time pass; the engine trims, and another worker takes the shard."""
        self.now = hours * HOUR
        self.shards["s1"].trimmed = trimmed
        if gone:
            del self.shards["s1"]
        taken = replace(AT_TWO, owner="bob", epoch=2)
        assert self.see(wrote("two", AT_TWO, taken, at=self.now)) == []
        self.cursor = taken

    def reported(self):
        """The new owner says that what is older than two hours may be lost."""
        after = replace(self.cursor, commit="b", lost=int(self.now), seen=int(self.now - 22 * HOUR))
        before, self.cursor = self.cursor, after
        return self.see(wrote("two", before, after, at=self.now))

    def passed(self, *, served):
        """The new owner reads what is there and commits a position behind all four."""
        assert self.see(read("two", after=2, numbers=served, at=self.now)) == []
        after = replace(self.cursor, position=AT_FOUR.position, commit="d")
        return self.see(wrote("two", self.cursor, after, at=self.now))

    @property
    def lost(self):
        return [write.sequence for write in self.retention.lost()]


@pytest.fixture
def world():
    return World()


def test_records_that_are_read_in_time_are_not_lost_though_they_are_trimmed_later(world):
    world.outage(20)
    assert world.passed(served=(3, 4)) == []
    world.shards["s1"].trimmed = 4
    assert (world.lost, world.retention.silent()) == ([], [])


def test_records_that_are_trimmed_unread_are_lost_and_a_report_covers_them(world):
    world.outage(26.5, trimmed=3)
    assert world.reported() == []
    assert world.passed(served=(4,)) == []
    assert (world.lost, world.retention.silent()) == ([3], [])
    assert world.retention.counts == {"loss": 1, "shard_gone": 0}


def test_a_record_that_is_passed_over_in_silence_is_found(world):
    world.outage(26.5, trimmed=3)
    (text,) = world.passed(served=(4,))
    assert text == "record 3 of s1 was passed over in silence"


def test_a_record_that_is_passed_over_and_still_there_is_found_in_spite_of_a_report(world):
    world.outage(26.5, trimmed=3)
    world.reported()
    (text,) = world.passed(served=())
    assert text == "record 4 of s1 was passed over, and is still there"


def test_a_record_that_only_an_earlier_owner_has_read_is_passed_over(world):
    assert world.see(read("one", after=2, numbers=(3, 4))) == []
    world.outage(20)
    assert len(world.passed(served=(4,))) == 1


def test_a_report_that_names_too_early_an_end_does_not_cover_what_was_lost_later(world):
    world.outage(26.5, trimmed=4)
    after = replace(world.cursor, commit="b", lost=1, seen=int(2.5 * HOUR))
    assert world.see(wrote("two", world.cursor, after, at=world.now)) == []
    assert world.retention.silent() == ["record 4 of s1 is lost in silence"]


def test_a_report_of_what_is_known_to_be_read_is_false(world):
    world.outage(23.5)
    (text,) = world.reported()
    assert "known to be read" in text


def test_a_report_of_nothing_is_sound_when_nobody_can_know(world):
    world.see(read("one", after=2, numbers=(3, 4), created=3 * HOUR))
    world.see(wrote("one", AT_TWO, AT_FOUR))
    world.outage(40, trimmed=4)
    world.cursor = replace(AT_FOUR, owner="bob", epoch=2)
    assert world.reported() == []
    assert world.retention.counts == {"possible_loss": 1, "shard_gone": 0}
    assert world.lost == []


def test_what_a_reader_was_served_lately_is_known_to_be_read(world):
    world.outage(40, trimmed=2)
    world.see(read("two", after=2, numbers=(3,), at=world.now, created=world.now - 60))
    (text,) = world.reported()
    assert "known to be read" in text


def test_a_shard_that_is_gone_may_be_reported_at_any_time(world):
    world.outage(20, gone=True)
    assert world.reported() == []
    assert world.retention.counts["shard_gone"] == 1
    assert world.lost == [3, 4]


def test_a_shard_that_came_and_went_unread_is_lost_in_silence_until_a_shard_of_its_keys_says_so():
    world = World(
        s2=SimpleNamespace(hashes=HIGH, trimmed=0), s3=SimpleNamespace(hashes=LOW, trimmed=0)
    )
    world.written("SALE#5", 9, at=4 * HOUR, shard="s2")
    world.written("SALE#6", 9, at=4 * HOUR, shard="s3")
    del world.shards["s2"], world.shards["s3"]
    world.outage(40, trimmed=4)
    assert len(world.retention.silent()) == 4
    world.reported()
    assert world.retention.silent() == ["record 9 of s2 is lost in silence"]


def test_what_was_trimmed_before_the_consumer_began_needs_no_report():
    retention = World().retention
    old = SeenWrite("s1", 9, -24 * HOUR, {"PK": {"S": "SALE#9"}}, None, {})
    list(retention.see(SeenCall("", 0.0, call("PutItem"), (old,))))
    retention._engine.streams.all()[0].shard("s1").trimmed = 9
    assert "record 9 of s1 is lost in silence" not in retention.silent()
    assert old in retention.lost()


def test_a_certain_loss_of_a_shard_that_lost_nothing_is_false(world):
    world.outage(20)
    (text,) = world.retention.certain("s1")
    assert "nothing is lost" in text
    world.shards["s1"].trimmed = 3
    assert world.retention.certain("s1") == []
