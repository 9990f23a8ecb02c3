"""A consumer has caught up once each shard is past a moment, also those without a cursor."""

from types import SimpleNamespace

import pytest

from streamkit.errors import RetentionLost, StreamSilent
from streamkit.fleet import catching_up, liveness
from streamkit.fleet.catching_up import CatchUp
from streamkit.fleet.heartbeat import Heartbeat
from streamkit.fleet.liveness import Liveness
from streamkit.fleet.members import Member
from streamkit.progress.control import Cursor
from streamkit.stream.lineage import Shard
from streamkit.testing.loop import VirtualClock, run_virtually

NOW = 1_000.0


def caught_up(monkeypatch, cursors, listed, past):
    """Return whether it has, and of which shards and moments was asked."""
    asked, listed = [], iter(listed)

    async def generation(_):
        return None

    async def known(_):
        return {cursor.name: cursor for cursor in cursors}

    async def shards(*_):
        found = next(listed)
        if isinstance(found, Exception):
            raise found
        return SimpleNamespace(shards=found)

    async def has_read(aws, stream, cursor, wants, clock, moment, founded):
        asked.append((cursor.name, moment))
        found = past.get(cursor.name, True)
        if isinstance(found, Exception):
            raise found
        return found

    monkeypatch.setattr(catching_up, "newest_generation", generation)
    monkeypatch.setattr(catching_up, "every_cursor", known)
    monkeypatch.setattr(catching_up, "list_shards", shards)
    monkeypatch.setattr(catching_up, "has_read", has_read)
    monkeypatch.setattr(catching_up, "listens", lambda *_: None)

    async def ask():
        schema = SimpleNamespace(stream_arn="arn")
        catch_up = CatchUp(None, None, None, schema, 10.0, VirtualClock())
        return await catch_up.with_all_until(NOW)

    return run_virtually(ask), asked


def family(*names):
    """Shards of which each is the child of the one before."""
    return [Shard(name, parent) for name, parent in zip(names, ("", *names), strict=False)]


@pytest.mark.parametrize("unread", ["a", "b", "c"])
def test_children_and_grandchildren_without_a_cursor_have_to_be_read_too(monkeypatch, unread):
    cursors, listed = [Cursor("a")], [family("a", "b", "c")]
    assert caught_up(monkeypatch, cursors, listed, {})[0]
    assert not caught_up(monkeypatch, cursors, listed, {unread: False})[0]


def test_what_was_stamped_within_the_margin_counts_as_older(monkeypatch):
    _, asked = caught_up(monkeypatch, [Cursor("a")], [family("a")], {})
    assert [name for name, _ in asked] == ["a"]
    assert all(moment >= NOW + 1 for _, moment in asked), "records are stamped to the second"


def test_a_shard_that_has_lost_records_is_not_read(monkeypatch):
    lost = {"a": RetentionLost("gone", shard="a")}
    assert not caught_up(monkeypatch, [Cursor("a")], [family("a")], lost)[0]


def test_shards_that_cannot_be_listed_are_listed_again(monkeypatch):
    listed = [StreamSilent("no answer"), family("a", "b")]
    cursors = [Cursor("a")]
    done, asked = caught_up(monkeypatch, cursors, listed, {})
    assert done
    assert {name for name, _ in asked} == {"a", "b"}


# -- whether any worker is alive -------------------------------------------------------------------


class Hands:
    """Two clocks that a test moves; the time of day is far from the other one."""

    now = 100.0

    def time(self):
        return self.now + 1e9

    def monotonic(self):
        return self.now


def test_a_consumer_is_over_after_two_leases_in_which_no_look_found_a_worker(monkeypatch):
    clock, members = Hands(), {}

    class Members:
        def __init__(self, store):
            pass

        async def read(self):
            return dict(members)

    async def look(seconds, beats=None):
        clock.now += seconds
        members.clear()
        if beats is not None:
            members["w"] = Member("w", beats=beats)
        return await looked.is_over()

    async def watch():
        assert [await look(0), await look(15)] == [False, False], "one lease is not enough"
        assert not await look(1, beats=1)
        assert not await look(1, beats=2)
        assert [await look(4), await look(15), await look(6)] == [False, False, True]

    monkeypatch.setattr(liveness, "MemberList", Members)
    looked = Liveness(None, clock, 10.0)
    run_virtually(watch)


def test_a_worker_that_beat_once_and_hangs_is_not_alive_for_ever(monkeypatch):
    clock, beats = Hands(), iter([1, 2, 2, 2, 2])

    class Members:
        def __init__(self, store):
            pass

        async def read(self):
            return {"w": Member("w", beats=next(beats))}

    async def watch():
        looks = []
        for _ in range(5):
            looks.append(await looked.alive())
            clock.now += 8
        return looks

    monkeypatch.setattr(liveness, "MemberList", Members)
    looked = Liveness(None, clock, 10.0)
    assert run_virtually(watch) == [None, ["w"], None, [], []]


def test_children_are_awaited_for_some_minutes_and_not_once_they_are_there():
    clock = Hands()
    heartbeat = Heartbeat(None, Member("me"), 5.0, clock)
    heartbeat.await_children("a")
    heartbeat.await_children("b")
    clock.now += 290
    heartbeat.note_parents({"a"})
    assert (heartbeat.childless, heartbeat.me.childless) == (1, {"b"})
    clock.now += 20
    heartbeat.note_parents(set())
    assert (heartbeat.childless, heartbeat.me.childless) == (0, frozenset())
