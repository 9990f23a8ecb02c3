"""The harness runs a user's app for a user's test, and finds a planted bug."""

from typing import Annotated, ClassVar

import pytest

from streamkit import (
    Add,
    Aggregate,
    App,
    Count,
    Entity,
    EpochSeconds,
    Index,
    Inserted,
    Key,
    Modified,
    Put,
    became,
)
from streamkit.progress.clock import utc
from streamkit.testing import Harness, every_crash, expired, inserted, modified, removed
from streamkit.testing.harness import seconds_of
from streamkit.testing.loop import EPOCH, run_virtually


class Like(Entity, pk="LIKE#{brand}#{username}", sk="LIKE"):
    brand: str
    username: str
    until: EpochSeconds | None = None


class Likes(Aggregate[Like], pk="LIKES#{brand}", sk="LIKES"):
    brand: str
    likes: Annotated[int, Count()] = 0

    @classmethod
    def group(cls, like: Like) -> Key["Likes"]:
        return cls.key(brand=like.brand)


class Edits(Entity, pk="EDITS#{brand}", sk="EDITS"):
    brand: str
    edits: int = 0


def make_app():
    app = App("likes", table="Likes", entities=[Edits])
    app.aggregate(Likes)
    return app


def like(username, brand="APPLE", **fields):
    return Like(brand=brand, username=username, **fields)


def test_a_put_is_processed_and_read_back(harness_of):
    harness = harness_of(make_app())
    harness.put(like("ann"), like("bob"))
    harness.settle()
    assert harness.get(Likes.key(brand="APPLE")).likes == 2
    harness.delete(like("ann").item_key)
    harness.settle()
    assert harness.get(Likes.key(brand="APPLE")).likes == 1


def test_a_worker_that_is_killed_is_replaced_and_nothing_counts_twice(harness_of):
    harness = harness_of(make_app())
    harness.put(*(like(f"user{n}") for n in range(5)))
    harness.crash(at=20, moment="after")
    harness.split()
    harness.settle()
    harness.put(like("late"))
    harness.crash()
    harness.roll()
    harness.settle()
    assert harness.get(Likes.key(brand="APPLE")).likes == 6


def test_days_pass_in_no_time_and_items_expire(harness_of):
    harness = harness_of(make_app())
    setting = {"Enabled": True, "AttributeName": "until"}
    harness.world.engine.call(
        "dynamodb", "UpdateTimeToLive", {"TableName": "Likes", "TimeToLiveSpecification": setting}
    )
    harness.put(like("ann", until=utc(EPOCH + 3600)), like("bob"))
    harness.settle()
    harness.advance("2h")
    assert harness.expire() == 1
    harness.settle()
    assert harness.get(Likes.key(brand="APPLE")).likes == 1


def test_a_parked_change_is_redriven_in_order(harness_of):
    app = make_app()
    down = [True]

    @app.on
    def edits(change: Modified[Like]) -> Add[Edits]:
        if down[0]:
            raise RuntimeError("not yet")
        return Add(Edits.key(brand=change.new.brand), edits=1)

    harness = harness_of(app)
    harness.put(like("ann"), like("ann", until=utc(EPOCH)))
    harness.settle()
    harness.put(like("ann", until=utc(EPOCH + 1)))
    harness.settle()
    assert len(harness.parked()) == 2
    down[0] = False
    harness.redrive()
    assert harness.parked() == []
    assert harness.get(Edits.key(brand="APPLE")).edits == 2


def counting_app(memory):
    """An app with a planted bug: its handler counts in the memory of the process."""
    app = make_app()

    @app.on
    def edits(change: Inserted[Like]) -> Add[Edits] | None:
        memory.add(change.event_id)
        return Add(Edits.key(brand=change.new.brand), edits=2) if len(memory) == 2 else None

    return app


def two_likes(harness, memory):
    harness.put(like("ann"))
    harness.settle()
    if harness.restarts:
        memory.clear()  # a process that is started anew remembers nothing
    harness.put(like("bob"))
    harness.settle()
    assert harness.get(Likes.key(brand="APPLE")).likes == 2
    assert harness.get(Edits.key(brand="APPLE")) == Edits(brand="APPLE", edits=2)


def test_every_crash_passes_over_the_calls_of_a_sound_handler():
    def scenario(harness):
        harness.put(like("ann"), like("bob"))
        harness.settle()
        assert harness.get(Likes.key(brand="APPLE")).likes == 2

    writes = list(every_crash(scenario, lambda: Harness(make_app(), shards=1)))
    assert len(writes) > 8
    calls = every_crash(scenario, lambda: Harness(make_app(), shards=1), reads=True)
    assert [next(calls) for _ in range(3)] == [0, 1, 2]


def test_every_crash_finds_a_handler_that_keeps_its_state_in_memory():
    memory = set()

    def make():
        memory.clear()
        return Harness(counting_app(memory), shards=1)

    def scenario(harness):
        two_likes(harness, memory)

    with make() as harness:
        scenario(harness)
    with pytest.raises(AssertionError):
        for _ in every_crash(scenario, make):
            pass


@pytest.mark.parametrize(("text", "seconds"), [("90s", 90), ("15m", 900), ("2d", 172800), (3, 3)])
def test_durations_are_read_with_their_unit(text, seconds):
    assert seconds_of(text) == seconds


def test_a_duration_without_unit_is_refused():
    with pytest.raises(ValueError, match="25"):
        seconds_of("25")


class Order(Entity, pk="ORDER#{number}", sk="ORDER#{number}"):
    number: int
    status: str = "PLACED"
    placed: ClassVar = Index(
        "GSI1", pk="STATUS#{status}", sk="{number:04d}", when=lambda o: o.status == "PLACED"
    )


class Notice(Entity, pk="NOTICE#{number}", sk="NOTICE"):
    number: int


def shipped(change: Modified[Order]) -> Put[Notice]:
    return Put(Notice(number=change.new.number))


def test_the_harness_makes_the_indexes_that_entities_declare(harness_of):
    app = App("orders", table="Orders", entities=[Notice])
    app.on(when=became("status", "SHIPPED"))(shipped)
    harness = harness_of(app)
    harness.put(Order(number=1), Order(number=2), Order(number=3))
    harness.put(Order(number=2, status="SHIPPED"))
    harness.settle()
    open_orders = harness.query(Order.query(index=Order.placed, status="PLACED"))
    assert [order.number for order in open_orders] == [1, 3]
    assert harness.scan(Notice) == [Notice(number=2)]


def test_a_handler_is_called_as_a_plain_function():
    old, new = Order(number=7), Order(number=7, status="SHIPPED")
    change = modified(old, new)
    assert shipped(change) == Put(Notice(number=7))
    assert change.changed("status")
    assert inserted(new).new is removed(new).old is expired(new).old is new


class World:
    """Holds so much that to render it takes seconds."""

    def __repr__(self):
        raise AssertionError("rendered")


def test_what_a_run_returns_is_not_rendered_when_the_loop_ends():
    world = World()

    async def main():
        return world

    assert run_virtually(main) is world


def test_a_worker_that_is_asked_often_whether_it_is_idle_writes_no_heartbeat_for_that(harness_of):
    """The harness asks each second, and takes fewer quiet pages for idle than a worker does."""
    harness = harness_of(make_app(), shards=1)
    harness.put(like("ann"))
    harness.settle()
    before = len(harness.world.calls)
    for _ in range(20):
        assert harness.worker.is_idle(3)
        harness.advance(1)
    calls = harness.world.calls[before:]
    beats = [c for c in calls if c.operation == "UpdateItem" and "member" in str(c.payload["Key"])]
    assert len(beats) <= 2
