"""Fleets and shards that change hands: what only shows with several workers, or one after another."""

from dataclasses import replace

import anyio
import pytest

from streamkit import Add, App, Entity, Inserted, Policy
from streamkit.fleet.cursors import LISTER
from streamkit.progress.actions import own_attributes
from streamkit.progress.control import START, read_cursor
from streamkit.settings import Settings
from streamkit.testing.chance import repeatable
from streamkit.testing.loop import EPOCH, run_virtually
from streamkit.testing.world import Process, World
from streamkit.worker.worker import Worker
from tests.simulation.crew import Fleet, create_table
from tests.simulation.test_rollouts import Running, leader, leads
from tests.simulation.test_rollouts import create_table as create_shop

TABLE = "Steps"
HOUR = 3600.0


class Step(Entity, pk="STEP#{number}", sk="STEP#{number}"):
    number: int


class Done(Entity, pk="DONE#{number}", sk="DONE#{number}"):
    number: int
    times: int = 0


class Road:
    """One shard of steps; the first `kills` workers die of the first step that they take."""

    def __init__(self, *, kills=0, pause=0.0, effects=lambda number: True):
        self.world = World.create(5, shards=1)
        self.kills, self.pause, self.effects = kills, pause, effects
        self.process, self.worker = Process("worker"), None
        self.stop_at: int | None = None
        self.died = 0
        self.app = App("steps", table=TABLE)

        @self.app.on
        async def taken(change: Inserted[Step]) -> Add[Done] | None:
            return await self.take(change.new.number)

        create_table(self.world, TABLE)

    async def take(self, number):
        if self.kills and not self.process.dead.is_set():
            self.kills -= 1
            self.process.kill()
        if self.process.dead.is_set():
            await anyio.sleep_forever()
        await anyio.sleep(self.pause)
        if number == self.stop_at:
            self.worker.stop()
        return Add(Done.key(number=number), times=1) if self.effects(number) else None

    def write(self, *numbers):
        for number in numbers:
            key = {"S": f"STEP#{number}"}
            item = {"PK": key, "SK": key, "number": {"N": str(number)}}
            self.world.engine.call("dynamodb", "PutItem", {"TableName": TABLE, "Item": item})

    async def work(self, **options):
        """Run a worker until there is nothing to do; return whether it lived."""
        self.process = Process(f"worker-{self.died}")
        lived = await self.world.run_worker(
            self.app, process=self.process, started=self.remember, **options
        )
        self.died += not lived
        return lived

    async def work_on(self):
        """Run one worker after the other until one lives."""
        while not await self.work():
            assert self.died < 12

    async def remember(self, worker):
        self.worker = worker

    def done(self):
        items = self.world.items(TABLE)
        items = [i for i in items if i["PK"]["S"].startswith("DONE#")]
        return {int(i["PK"]["S"].removeprefix("DONE#")): int(i["times"]["N"]) for i in items}

    def control(self, kind):
        found = [i for i in self.world.items(TABLE) if i.get("_sk_kind") == {"S": kind}]
        return [own_attributes(item) for item in found]

    def cursors(self):
        cursors = map(read_cursor, self.control("cursor"))
        return [cursor for cursor in cursors if cursor.name != LISTER]


def virtually(test):
    """Run an async test in virtual time."""

    def run():
        run_virtually(test)

    run.__name__ = test.__name__
    return run


# -- a change that kills its workers ---------------------------------------------------------------


@virtually
async def test_workers_that_die_of_something_else_park_nothing():
    road = Road(kills=3, effects=lambda number: number > 4)
    road.write(*range(8))
    await road.work_on()
    assert road.done() == {5: 1, 6: 1, 7: 1}
    assert road.control("parked") == []


@virtually
async def test_a_shard_that_goes_on_is_not_suspected_any_more():
    road = Road(kills=3)
    road.write(*range(3))
    await road.work_on()
    road.write(3)

    async def look(worker):
        await anyio.sleep(20)
        (cursor,) = road.cursors()
        assert cursor.owner == worker.name
        assert (cursor.takes, cursor.trying, cursor.tries) == (0, "", 0)
        worker.stop()

    road.process = Process("last")
    await road.world.run_worker(road.app, process=road.process, until_idle=False, started=look)
    assert road.done() == dict.fromkeys(range(4), 1)


@virtually
async def test_a_last_page_that_was_broken_off_is_gone_on_with_by_the_next_owner():
    road = Road(kills=3)
    road.write(*range(6))
    road.world.control.configure(end_with_records_chance=1.0)
    road.world.control.roll(TABLE)
    road.stop_at = 1
    while not await road.work():
        assert road.died < 12
    road.stop_at = None
    await road.work()
    assert road.done() == dict.fromkeys(range(6), 1)


@virtually
async def test_a_position_written_while_a_change_is_blocked_does_not_say_that_it_was_seen():
    road = Road()
    road.app = App("steps", table=TABLE, policy=Policy(on_failure="block"))

    @road.app.on
    def blocked(change: Inserted[Step]) -> Add[Done] | None:
        if change.new.number == 1:
            raise RuntimeError("never")

    road.write(0, 1)

    async def stop(worker):
        await anyio.sleep(60)
        worker.stop()

    await road.world.run_worker(road.app, until_idle=False, started=stop)
    (cursor,) = road.cursors()
    assert cursor.position != START
    assert cursor.seen < EPOCH + 10


@virtually
async def test_the_end_of_a_shard_makes_its_child_at_once_with_the_queues_that_it_holds():
    road = Road()
    road.app = App("steps", table=TABLE, policy=Policy(attempts=1))

    @road.app.on
    def fails(change: Inserted[Step]) -> Add[Done]:
        raise RuntimeError("always")

    road.write(1)
    (parent,) = [shard["id"] for shard in road.world.control.shards(TABLE)]

    async def roll(worker):
        await anyio.sleep(10)
        road.world.control.roll(TABLE)
        await anyio.sleep(10)
        worker.stop()

    await road.world.run_worker(road.app, until_idle=False, started=roll)
    cursors = {cursor.name: cursor for cursor in road.cursors()}
    (child,) = cursors.keys() - {parent}
    assert cursors[child].chunks == cursors[parent].chunks != frozenset()
    transactions = [
        call.payload["TransactItems"]
        for call in road.world.calls
        if call.operation == "TransactWriteItems"
    ]
    creation = next(t for t in transactions if any(child in str(a.get("Put")) for a in t))
    assert parent in str(creation[0])
    assert "finished" in str(creation[0])


# -- several workers -------------------------------------------------------------------------------


async def slow_beside_idle():
    """The only shard is busy for minutes; a worker that runs until idle must not leave before it is done."""
    road = Road(pause=5.0)
    road.process = Process("slow")

    async with anyio.create_task_group() as group:

        async def slow():
            await road.world.run_worker(
                road.app, process=road.process, until_idle=False, started=road.remember
            )

        group.start_soon(slow)
        await anyio.sleep(10)
        key = {"S": "STEP#1"}
        for _ in range(24):  # one item, one queue: two minutes
            item = {"PK": key, "SK": key, "number": {"N": "1"}}
            request = {"TableName": TABLE, "Item": item}
            road.world.engine.call("dynamodb", "PutItem", request)
            delete = {"TableName": TABLE, "Key": {"PK": key, "SK": key}}
            road.world.engine.call("dynamodb", "DeleteItem", delete)
        await anyio.sleep(1)
        await road.world.run_worker(road.app, process=Process("quick"))
        assert road.done() == {1: 24}
        road.worker.stop()


@pytest.mark.parametrize("seed", range(2))
def test_until_idle_does_not_end_while_another_workers_shard_is_unread(seed):
    run_virtually(slow_beside_idle, seed=seed)


async def thawed(seed):
    """A worker stands still until its shards are others', of whom one is new and keeps some."""
    fleet = Fleet(16, seed=seed)
    async with fleet.running("a", "b"):
        await fleet.until_even("a", "b")
        await anyio.sleep(5)
        stood = fleet.now
        fleet.lives["a"].process.freeze()
        fleet.start("c")
        await fleet.until(lambda: fleet.all_read(stood + 1, without=("a",)), 40)
        thawed_at = fleet.now
        fleet.lives["a"].process.thaw()
        await anyio.sleep(2)
        for shard in fleet.open_shards():
            moved = [take for take in fleet.moves(thawed_at) if take.shard == shard]
            late = [at for at, who in fleet.reads[shard] if who == "a" and at > thawed_at + 1]
            assert moved or not late, shard
        await fleet.until_even("a", "b", "c")
        await anyio.sleep(5)
        for shard in fleet.open_shards():
            assert len({who for at, who in fleet.reads[shard] if at > fleet.now - 3}) == 1
        fleet.write(30)
        await fleet.until_tallied()


@pytest.mark.parametrize("seed", range(2))
def test_a_worker_that_stood_still_stops_reading_what_others_have_taken(seed):
    with repeatable(seed):
        run_virtually(thawed, seed, seed=seed)


class Recorder:
    """A client that notes what it was asked, as text."""

    def __init__(self, client):
        self.client, self.asked = client, []

    def __getattr__(self, name):
        method = getattr(self.client, name)

        def call(**arguments):
            self.asked.append(f"{name} {arguments}")
            return method(**arguments)

        return call


@virtually
async def test_heartbeats_go_through_their_own_client_and_nothing_else_does():
    road = Road()
    road.write(*range(3))
    async with road.world.clients() as aws:
        data, beats = Recorder(aws.dynamodb), Recorder(aws.beats)
        worker = Worker(road.app, replace(aws, dynamodb=data, beats=beats), clock=road.world.clock)
        await worker.run(until_idle=True)
    assert len([asked for asked in beats.asked if "update_item" in asked]) > 1
    assert not [asked for asked in data.asked if "#members" in asked]


# -- the leader ------------------------------------------------------------------------------------


@virtually
async def test_a_leader_of_an_older_roll_out_gives_way_to_the_newest():
    world = World.create(3)
    create_shop(world)
    old, new = Running(world, 1), Running(world, 2)
    async with anyio.create_task_group() as group:
        group.start_soon(old.run)
        await leads(world, old)
        group.start_soon(new.run)
        await leads(world, new)
        await anyio.sleep(60)
        assert leader(world) == new.worker.name
        old.worker.stop()
        new.worker.stop()


@virtually
async def test_a_leader_that_was_replaced_while_it_stood_still_lists_a_quiet_stream_no_more():
    fleet = Fleet(4)
    async with fleet.running("a", "b"):
        await fleet.until_even("a", "b")
        old = fleet.leader()
        fleet.lives[old].process.freeze()
        await fleet.until(lambda: fleet.leader() != old)
        fleet.lives[old].process.thaw()
        await anyio.sleep(70)
        listed_before = fleet.calls[old, "DescribeStream"]
        await anyio.sleep(120)
        assert fleet.leader() != old
        assert fleet.calls[old, "DescribeStream"] == listed_before


@virtually
async def test_a_listing_of_many_pages_keeps_to_ten_calls_a_second():
    fleet = Fleet(24)
    fleet.world.control.configure(listing_page=2)
    async with fleet.running("a", "b", "c", "d"):
        await anyio.sleep(60)
    times = [at for at, _ in fleet.describes]
    assert len(times) > 20
    assert all(later - first >= 1 for first, later in zip(times, times[10:], strict=False))


def listed(road):
    """Return the cursors that the directories name."""
    return {name for item in road.control("dir") for name in item.get("names", {"SS": []})["SS"]}


@virtually
async def test_a_finished_cursor_stays_listed_until_a_child_leads_to_it():
    road = Road()
    road.world.control.configure(children_hidden=100.0)
    (shard,) = [shard["id"] for shard in road.world.control.shards(TABLE)]
    settings = Settings(list_interval=10)

    async def end_the_shard(worker):
        await anyio.sleep(5)
        road.world.control.roll(TABLE)
        await anyio.sleep(20)
        worker.stop()

    async def look(worker):
        await anyio.sleep(50)
        assert [c.name for c in road.cursors() if c.finished] == [shard]
        assert listed(road) == {shard}
        await anyio.sleep(120)
        assert len(road.cursors()) == 2
        assert shard not in listed(road)
        road.world.control.roll(TABLE)
        await anyio.sleep(180)
        assert len(road.cursors()) == 3
        assert len(listed(road)) == 1
        worker.stop()

    for script in (end_the_shard, look):  # a later leader finds the shard finished
        await road.world.run_worker(road.app, until_idle=False, settings=settings, started=script)


@virtually
async def test_a_shard_that_a_listing_leaves_out_for_a_while_is_not_read_twice():
    road = Road()
    road.write(*range(3))
    (shard,) = [shard["id"] for shard in road.world.control.shards(TABLE)]

    async def look(worker):
        await anyio.sleep(5)
        road.world.control.roll(TABLE)
        await anyio.sleep(2 * HOUR)
        road.world.control.hide(TABLE, shard)
        await anyio.sleep(2 * HOUR)
        road.world.control.hide(TABLE, shard, hidden=False)
        await anyio.sleep(HOUR)
        worker.stop()

    settings = Settings(
        list_interval=600, heartbeat=120, lease=300, look_interval=60, poll_ceiling=60
    )
    await road.world.run_worker(road.app, until_idle=False, settings=settings, started=look)
    assert road.done() == dict.fromkeys(range(3), 1)
