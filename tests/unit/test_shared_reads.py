"""Consumers that share a shard's reads get what each would have read alone, for less."""

import itertools
import random
from collections import deque

import anyio
import msgspec
import pytest
from botocore.exceptions import ClientError

from streamkit.errors import RetentionLost
from streamkit.progress.control import START, Cursor
from streamkit.stream.decode import parse_page
from streamkit.stream.reader import ShardReader
from streamkit.stream.sharing import SharedReads
from streamkit.stream.turns import TurnAwaited, Turns
from streamkit.testing.loop import VirtualClock, run_virtually

FIRST = 10**20
"""Sequence numbers have at least 21 digits."""


def padded(number):
    return str(FIRST + number).zfill(40)


class Service:
    """One shard: `GetShardIterator` and `GetRecords`, which takes a moment."""

    def __init__(self, clock, per_page=3):
        self.clock, self.per_page = clock, per_page
        self.written, self.trimmed, self.closed = 0, 0, False
        self.opened, self.reads, self.latest = [], [], deque()
        self.most = self.most_calls = self.under_way = 0
        self.iterators = {}
        self.numbers = itertools.count()
        self.fail = deque()
        self.seconds = 0.01

    def write(self, count):
        self.written += count

    def iterator(self, reader, after):
        text = f"iterator-{next(self.numbers)}"
        self.iterators[text] = (reader, after, self.clock.time())
        return text

    async def get_iterator(self, **where):
        await anyio.sleep(self.seconds)
        self.opened.append(where["ShardIteratorType"])
        after = self.trimmed
        if "SequenceNumber" in where:
            after = int(where["SequenceNumber"]) - FIRST
            if after <= self.trimmed and self.trimmed:
                raise error("TrimmedDataAccessException")
        return self.iterator(len(self.opened), after)

    async def get_records(self, iterator):
        reader, after, issued = self.iterators[iterator]
        self.note(reader)
        self.under_way += 1
        self.most_calls = max(self.most_calls, self.under_way)
        try:
            await anyio.sleep(self.seconds)
        finally:
            self.under_way -= 1
        if self.fail:
            raise error(self.fail.popleft())
        if self.clock.time() - issued > 900:
            raise error("ExpiredIteratorException")
        if after < self.trimmed:
            raise error("TrimmedDataAccessException")
        last = min(after + self.per_page, self.written)
        reply = {"Records": [record(n, self.clock) for n in range(after + 1, last + 1)]}
        if not (self.closed and last == self.written):
            reply["NextShardIterator"] = self.iterator(reader, last)
        return parse_page(msgspec.json.encode(reply))

    def note(self, reader):
        now = self.clock.time()
        self.reads.append(reader)
        self.latest.append((now, reader))
        while self.latest[0][0] <= now - 1:
            self.latest.popleft()
        self.most = max(self.most, len({reader for _, reader in self.latest}))


def record(number, clock):
    created = clock.time()
    return {
        "eventName": "INSERT",
        "eventID": str(number),
        "dynamodb": {
            "Keys": {"pk": {"S": "a"}},
            "SequenceNumber": str(FIRST + number),
            "ApproximateCreationDateTime": created,
            "NewImage": {"text": {"S": "x" * 1000}},
        },
    }


def error(code):
    return ClientError({"Error": {"Code": code}}, "GetRecords")


class Consumer:
    """Reads on, with pauses, until it is told to stop."""

    def __init__(self, world, after=0, seen=None):
        self.world, self.got, self.woken = world, [], 0
        clock = world.clock
        self.pages = world.shared.join("arn", "shard", self.wake)
        position = padded(after) if after else START
        seen = clock.time() if seen is None else seen
        begin = Cursor("shard", position=position, seen=seen)
        self.reader = ShardReader(self.pages, "arn", begin, clock, random.Random(after))

    def wake(self):
        self.woken += 1

    async def read(self):
        page = await self.reader.read()
        if page is not None:
            self.got += [int(r.sequence_number) - FIRST for r in page.records]
        return page

    async def read_for_ever(self, pause):
        while not self.reader.ended:
            page = await self.read()
            await anyio.sleep(self.reader.wait if page is None else 0 if page.records else pause)


class World:
    def __init__(self, limit=10**9, **options):
        self.clock = VirtualClock()
        self.service = Service(self.clock, **options)
        self.shared = SharedReads(self.service, self.clock, limit)


def scenario(test):
    """Run a test on a virtual loop."""

    def run():
        run_virtually(test, seed=1)

    run.__name__, run.__doc__ = test.__name__, test.__doc__
    return run


@scenario
async def test_a_page_is_read_once_for_all_who_wait_for_it():
    world = World()
    consumers = [Consumer(world) for _ in range(3)]
    world.service.write(7)
    for _ in range(3):
        async with anyio.create_task_group() as group:
            for consumer in consumers:
                group.start_soon(consumer.read)
    assert [c.got for c in consumers] == [[1, 2, 3, 4, 5, 6, 7]] * 3
    assert len(world.service.reads) == 3


@scenario
async def test_who_waits_at_the_tail_is_woken_by_records_and_not_by_an_empty_page():
    world = World()
    one, other = Consumer(world), Consumer(world)
    await one.read()
    await other.read()
    await one.read()
    await other.read()
    assert other.woken == 0
    world.service.write(1)
    await one.read()
    assert (other.woken, other.got) == (1, [])
    await other.read()
    assert (other.got, len(world.service.reads)) == ([1], 3)


@scenario
async def test_an_empty_page_of_another_says_when_it_was_read_and_not_now():
    world = World()
    one, other = Consumer(world), Consumer(world, seen=0)
    for _ in range(12):
        await one.read()
        await anyio.sleep(1)
        await other.read()
    assert other.reader.seen == pytest.approx(world.clock.time() - 1, abs=0.2)


@scenario
async def test_a_reader_that_stops_in_the_middle_of_a_call_leaves_it_to_the_next():
    world = World()
    one, other = Consumer(world), Consumer(world)
    world.service.write(2)
    await one.pages.get_iterator(StreamArn="arn", ShardId="shard", ShardIteratorType="TRIM_HORIZON")
    async with anyio.create_task_group() as group:
        with anyio.CancelScope() as scope:
            group.start_soon(other.read)
            scope.cancel()
    async with anyio.create_task_group() as group:
        group.start_soon(one.read)
        await anyio.sleep(world.service.seconds / 2)
        group.cancel_scope.cancel()
    await other.read()
    await one.read()
    assert one.got == other.got == [1, 2]


@scenario
async def test_a_consumer_behind_the_kept_pages_reads_by_itself_and_comes_back():
    world = World(limit=5_000)
    fast, slow = Consumer(world), Consumer(world)
    await fast.read()
    await slow.read()
    world.service.write(60)
    for _ in range(21):
        await fast.read()
    assert len(fast.got) == 60
    for _ in range(25):
        await slow.read()
        await anyio.sleep(0.01)
    await fast.read()
    assert slow.got == fast.got == list(range(1, 61))
    world.service.write(3)
    before = len(world.service.reads)
    await slow.read()
    await fast.read()
    assert (slow.got, len(world.service.reads) - before) == (fast.got, 1)


@scenario
async def test_a_call_that_is_throttled_at_the_tail_lets_nobody_read_a_page_again():
    world = World()
    fast, slow = Consumer(world), Consumer(world)
    await fast.read()
    await slow.read()
    world.service.write(9)
    for _ in range(3):
        await fast.read()
    world.service.fail.append("ThrottlingException")
    await fast.read()
    before = len(world.service.reads)
    for _ in range(3):
        await slow.read()
    assert (slow.got, len(world.service.reads) - before) == (list(range(1, 10)), 0)


@scenario
async def test_who_opens_a_shard_at_its_end_gets_the_end_that_others_have_read():
    world = World()
    first, other = Consumer(world), Consumer(world)
    world.service.write(2)
    world.service.closed = True
    await first.read()
    before = len(world.service.opened), len(world.service.reads)
    late = Consumer(world, after=2)
    await late.read()
    assert late.reader.ended
    assert (len(world.service.opened), len(world.service.reads)) == before
    await other.read()
    assert other.got == [1, 2]


@scenario
async def test_an_iterator_that_leads_to_itself_for_a_moment_is_read_again():
    world = World()
    read = world.service.get_records

    async def same(iterator):
        page = await read(iterator)
        return page if page.records else msgspec.structs.replace(page, next_iterator=iterator)

    world.service.get_records = same
    one, other = Consumer(world), Consumer(world)
    for _ in range(3):
        await one.read()
        await other.read()
    world.service.write(2)
    await one.read()
    await other.read()
    assert one.got == other.got == [1, 2]


@scenario
async def test_pages_without_records_take_memory_too():
    world = World(limit=5_000)
    fast, slow = Consumer(world), Consumer(world)
    await fast.read()
    await slow.read()
    for _ in range(100):
        await fast.read()
        await anyio.sleep(1)
    assert len(fast.pages.shard.pages) <= 10


@scenario
async def test_of_those_that_fell_behind_one_reads_at_a_time_and_each_has_its_turn():
    world = World()
    head = Consumer(world, after=3_000)
    world.service.write(3_000)
    await head.read()
    behind = [Consumer(world, after=n) for n in (100, 700, 1_500)]
    async with anyio.create_task_group() as group:
        group.start_soon(head.read_for_ever, 0.2)
        for consumer in behind:
            group.start_soon(consumer.read_for_ever, 0.2)
        await anyio.sleep(6)
        assert [bool(c.got) for c in behind].count(True) >= 1
        await anyio.sleep(60)
        group.cancel_scope.cancel()
    assert [c.got for c in behind] == [list(range(n + 1, 3_001)) for n in (100, 700, 1_500)]
    assert world.service.most == 2


@scenario
async def test_one_that_fell_behind_and_is_blocked_gives_up_its_turn():
    world = World()
    head = Consumer(world, after=300)
    world.service.write(300)
    await head.read()
    blocked, other = Consumer(world, after=10), Consumer(world, after=20)
    await blocked.read()
    assert await other.read() is None
    async with anyio.create_task_group() as group:
        group.start_soon(other.read_for_ever, 0.2)
        await anyio.sleep(10)
        group.cancel_scope.cancel()
    assert other.got == list(range(21, 301))


@scenario
async def test_a_loss_is_each_consumers_own():
    world = World()
    day = 86_400
    world.service.write(20)
    fresh, stale = Consumer(world, after=10), Consumer(world, after=10, seen=1.0)
    world.service.trimmed = 15
    await anyio.sleep(day / 24)
    await fresh.read()
    assert fresh.got == [16, 17, 18]
    with pytest.raises(RetentionLost):
        await stale.read()


@scenario
async def test_who_was_ahead_does_not_hide_a_loss_from_who_was_behind():
    world = World()
    world.service.write(20)
    ahead, behind = Consumer(world, after=18), Consumer(world, after=2, seen=1.0)
    await ahead.read()
    world.service.trimmed = 15
    with pytest.raises(RetentionLost):
        await behind.read()


@scenario
async def test_records_opened_at_the_horizon_follow_on_nothing_that_was_read_before():
    world = World(per_page=10)
    world.service.write(5)
    ahead = Consumer(world, after=5, seen=1.0)
    await ahead.read()
    world.service.write(20)
    world.service.trimmed = 15  # 6 to 15 were never read by anybody
    newcomer = Consumer(world)
    await newcomer.read()
    assert newcomer.got == list(range(16, 26))
    with pytest.raises(RetentionLost):
        await ahead.read()


@scenario
async def test_an_iterator_that_expired_for_all_is_opened_once():
    world = World()
    consumers = [Consumer(world) for _ in range(3)]
    world.service.write(2)
    for consumer in consumers:
        await consumer.read()
    await anyio.sleep(1000)
    world.service.write(2)
    for _ in range(4):
        for consumer in consumers:
            await consumer.read()
    assert [c.got for c in consumers] == [[1, 2, 3, 4]] * 3
    assert len(world.service.opened) == 2


@scenario
async def test_everybody_gets_the_end_of_the_shard_the_last_one_too():
    world = World()
    one, other = Consumer(world), Consumer(world)
    await one.read()
    await other.read()
    world.service.write(2)
    world.service.closed = True
    await one.read()
    late = Consumer(world, after=2)
    await late.read()
    await other.read()
    assert [c.reader.ended for c in (one, other, late)] == [True] * 3
    assert (other.got, late.got) == ([1, 2], [])


@scenario
async def test_what_is_kept_is_bounded_and_goes_with_its_readers():
    world = World(limit=20_000)
    fast, blocked = Consumer(world), Consumer(world)
    await fast.read()
    await blocked.read()
    world.service.write(300)
    most = 0
    for _ in range(110):
        await fast.read()
        most = max(most, world.shared._total)
    assert 10_000 < most <= 20_000
    world.service.write(9)
    for _ in range(3):
        await fast.read()
    assert world.shared._total == 0, "for one that is out of reach nothing is kept"
    blocked.pages.close()
    fast.pages.close()
    assert (world.shared._total, world.shared._shards) == (0, {})


@pytest.mark.parametrize("troubled", [False, True])
@pytest.mark.parametrize("seed", range(12))
def test_whatever_the_order_of_events_each_consumer_reads_everything_once_in_order(seed, troubled):
    rng = random.Random(seed)

    async def run():
        world = World(limit=rng.choice([0, 4_000, 10**9]), per_page=rng.choice([1, 3, 50]))
        service = world.service
        service.write(rng.randrange(80))
        starts = [rng.choice([0, 0, rng.randrange(service.written + 1)]) for _ in range(4)]
        consumers = []
        async with anyio.create_task_group() as group:
            for after in starts:
                consumers.append(Consumer(world, after=after))
                group.start_soon(live, world, consumers[-1], rng)
                await anyio.sleep(rng.random())
            for _ in range(30):
                service.write(rng.choice([0, 1, 5, 40]))
                if troubled and rng.random() < 0.3:
                    service.fail.append(rng.choice(FAILURES))
                await anyio.sleep(rng.choice([0.1, 1, 5, 400]) if troubled else rng.random())
            service.closed = True
        for after, consumer in zip(starts, consumers, strict=True):
            assert consumer.got == list(range(after + 1, service.written + 1))
        assert service.most_calls <= 2
        assert service.most <= (9 if troubled else 2)

    async def live(world, consumer, rng):
        while not consumer.reader.ended:
            with anyio.move_on_after(rng.choice([0.005, 10, 10])):
                await consumer.read_for_ever(rng.choice([0.1, 0.5, 1]))
            await anyio.sleep(rng.choice([0, 0.1, 3, 100, 1000] if troubled else [0, 0.1, 3]))

    run_virtually(run, seed=seed)


FAILURES = ["ExpiredIteratorException", "LimitExceededException", "InternalServerError"]


class Caller:
    """A reader of which only its turns matter."""

    calling = False


@scenario
async def test_a_turn_is_not_given_away_while_a_call_of_its_reader_is_under_way():
    """However long that call takes: two that read beside each other are throttled."""
    turns = Turns()
    slow, other = Caller(), Caller()
    slow.calling = True
    turns.take(slow)
    await anyio.sleep(600)
    with pytest.raises(TurnAwaited):
        turns.take(other)
    slow.calling = False
    turns.take(other)
