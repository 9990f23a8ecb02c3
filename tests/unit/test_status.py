"""Status is read from control items and a look into the stream; its tree is drawn as one."""

import json
import random
from contextlib import asynccontextmanager
from functools import partial
from types import SimpleNamespace

import anyio
import pytest

from streamkit import App, Entity, Inserted, Modified, Set, became
from streamkit.aws import connect
from streamkit.cli.describing import _lag, _role, describe_status, stems
from streamkit.core.tables import survey
from streamkit.fleet.generation import (
    Generation,
    begin_move,
    newest_generation,
    stepped,
    write_generation,
)
from streamkit.fleet.hosting import DELETING, JOINING, TAKING_OVER, TO_LAMBDA, WORKERS
from streamkit.fleet.joining import join_generation
from streamkit.fleet.lag import Lag, bound
from streamkit.fleet.members import Member
from streamkit.fleet.rewinding import ask_rewind, begin_rewind, withdraw_rewind
from streamkit.local.control import Control
from streamkit.local.engine import Engine
from streamkit.local.transport import session_class
from streamkit.migrate.book.state import State
from streamkit.migrate.book.state_book import StateBook
from streamkit.model.builds import Build, pass_name
from streamkit.operate.operations import OperationStatus, catching_up
from streamkit.operate.shards import ShardStatus, in_tree_order, time_left, unowned, worst_lag
from streamkit.operate.status import _host, _refused, _workers, read_status
from streamkit.progress.control import Cursor, cursor_attributes
from streamkit.progress.cursor import CursorStore
from streamkit.progress.operation import AuditEntry
from streamkit.settings import Settings
from streamkit.stream.start import RETENTION_SECONDS
from streamkit.worker.worker import Worker
from tests.tables import streamed

TABLE = streamed("shop", "pk")


class Order(Entity, pk="ORDER#{number}"):
    number: int
    status: str = "NEW"


class Seen(Entity, pk="SEEN#{number}"):
    number: int
    status: str = ""


app = App("shop", table="shop")


@app.on(attempts=1)
def seen(change: Inserted[Order] | Modified[Order]) -> Set[Seen]:
    if change.new.status == "POISON":
        raise ValueError("poison")
    return Set(Seen.key(number=change.new.number), status=change.new.status)


class Clock:
    """The engine's clock and status's, in one; workers keep the loop's for durations."""

    def __init__(self):
        self.now = 1_700_000_000.0

    def time(self):
        return self.now

    def monotonic(self):
        return self.now


class World:
    def __init__(self, engine, aws, clock, calls):
        self.engine, self.aws, self.clock, self.calls = engine, aws, clock, calls
        self.control = Control(engine)

    def put(self, number, status="NEW", kind="ORDER"):
        item = {"pk": {"S": f"{kind}#{number}"}, "number": {"N": str(number)}}
        payload = {"TableName": "shop", "Item": item | {"status": {"S": status}}}
        assert self.engine.call("dynamodb", "PutItem", payload)[0] == 200

    async def work(self, app=app):
        settings = Settings(poll_floor=0.005, poll_ceiling=0.01, heartbeat=60, lease=150)
        worker = Worker(app, self.aws, settings, clock=_Wall(self.clock), rng=random.Random(1))
        await worker.run(until_idle=True)

    async def status(self, app=app, **options):
        return await read_status(app, self.aws, clock=self.clock, **options)


class _Wall:
    def __init__(self, clock):
        self._clock = clock

    def time(self):
        return self._clock.now

    def monotonic(self):
        return anyio.current_time()


@asynccontextmanager
async def opened(shards):
    clock, calls = Clock(), []
    engine = Engine(clock=clock.time, rng=random.Random(5), shards=shards)
    engine.observers.append(calls.append)
    engine.call("dynamodb", "CreateTable", TABLE)
    async with connect(http_session=session_class(engine)) as aws:
        yield World(engine, aws, clock, calls)


@pytest.fixture
async def world():
    async with opened(shards=1) as world:
        yield world


async def test_before_the_first_worker_there_is_no_generation_and_no_shard(world):
    status = await world.status()
    assert (status.generation, status.current) == (None, False)
    assert (status.shards, status.workers, status.lag_seconds) == ((), (), None)


async def test_a_quiet_shard_is_not_behind_however_long_ago_its_position_was_written(world):
    world.put(1)
    await world.work()
    world.clock.now += 3000
    assert (await world.status()).lag_seconds == 0
    (shard,) = (await world.status(look_into_stream=False)).shards
    assert (shard.lag, shard.lag_seconds) == ("at most", 3000)


async def test_lag_is_the_age_of_the_oldest_change_that_a_handler_waits_for(world):
    world.put(1)
    await world.work()
    world.clock.now += 10
    world.put(9, kind="UNKNOWN")
    world.clock.now += 10
    world.put(2)
    world.clock.now += 10
    world.put(3)
    world.clock.now += 10
    status = await world.status()
    assert status.lag_seconds == 20
    assert status.shards[0].lag == "measured"


async def test_what_no_handler_lets_through_is_not_lag(world):
    picky = App("picky", table="shop", entities=[Seen])

    @picky.on(when=became("status", "SHIPPED"))
    def notes(change: Modified[Seen]) -> None:
        raise AssertionError("no change is one")

    await world.work(picky)
    for status in ("NEW", "PAID"):
        world.put(1, status, kind="SEEN")
    world.clock.now += 47
    assert (await world.status(picky)).lag_seconds == 0
    world.put(1, "SHIPPED", kind="SEEN")
    world.clock.now += 11
    assert (await world.status(picky)).lag_seconds == 11


async def test_a_position_whose_records_are_gone_is_called_lost(world):
    world.put(1)
    await world.work()
    world.put(2)
    world.control.roll("shop")
    world.control.trim("shop")
    world.clock.now += 60
    (shard,) = (await world.status()).shards
    assert (shard.lag, shard.lag_seconds) == ("lost", None)
    assert (await world.status()).lag_seconds is None


async def test_children_stand_behind_their_parents_with_their_depth(world):
    await world.work()
    world.control.split("shop")
    await world.work()
    world.control.split("shop")
    await world.work()
    status = await world.status()
    assert [shard.depth for shard in status.shards] == [0, 1, 2, 2, 1, 2, 2]
    names = {shard.name for shard in status.shards}
    assert all(shard.parent in names for shard in status.shards if shard.depth)
    assert {s.state for s in status.shards if s.depth < 2} == {"finished"}


async def test_parked_changes_are_counted_where_they_were_parked_and_held_queues_inherited(world):
    world.put(1, "POISON")
    world.put(1, "later")
    await world.work()
    world.control.split("shop")
    await world.work()
    status = await world.status()
    assert (status.parked, status.parked_queues) == ({"seen": 2}, 1)
    assert [shard.parked for shard in status.shards] == [{"seen": 2}, {}, {}]
    assert [shard.parked_queues for shard in status.shards] == [1, 1, 1]


async def test_other_code_than_the_generations_is_said_to_be_other(world):
    await world.work()
    other = App("shop", table="shop")

    @other.on
    def renamed(change: Inserted[Order]) -> None:
        return None

    status = await read_status(other, world.aws, clock=world.clock)
    assert (status.generation, status.current) == (1, False)


async def test_status_never_scans_and_never_writes(world):
    world.put(1, "POISON")
    await world.work()
    world.calls.clear()
    await world.status()
    operations = {call.operation for call in world.calls}
    assert operations <= {
        "DescribeTable",
        "DescribeTimeToLive",
        "GetItem",
        "BatchGetItem",
        "GetShardIterator",
        "GetRecords",
    }


async def test_a_status_is_json(world):
    world.put(1, "POISON")
    await world.work()
    status = await world.status()
    assert json.loads(json.dumps(status.to_dict()))["parked"] == {"seen": 1}


def test_a_shard_whose_parent_is_forgotten_is_a_root():
    cursors = {"b": Cursor("b", parent="gone"), "c": Cursor("c", parent="b"), "a": Cursor("a")}
    assert [(d, c.name) for d, c in in_tree_order(cursors)] == [(0, "a"), (0, "b"), (1, "c")]


def test_a_cursor_alone_says_at_most_how_far_it_is_behind():
    assert bound(Cursor("a"), 100).measure == "unread"
    assert bound(Cursor("a", seen=40), 100).seconds == 60
    assert bound(Cursor("a", state="finished", seen=40), 100).seconds == 0


@pytest.mark.parametrize(
    ("depths", "drawn"),
    [
        ([], []),
        ([0, 0], ["", ""]),
        ([0, 1, 1], ["", "├─ ", "└─ "]),
        ([0, 1, 2, 2, 1, 2], ["", "├─ ", "│  ├─ ", "│  └─ ", "└─ ", "   └─ "]),
        ([0, 1, 0, 1], ["", "└─ ", "", "└─ "]),
    ],
)
def test_branches_join_a_node_to_its_parent_and_its_next_sibling(depths, drawn):
    assert stems(depths) == drawn


# -- operations ------------------------------------------------------------------------------------


async def newest_in(world, app=app):
    store = CursorStore(world.aws.dynamodb, (await survey(app, world.aws)).space(app))
    return store, await newest_generation(store)


async def step_builds(store, newest, builds, **more):
    await write_generation(store, newest, stepped(newest, builds, **more))


@pytest.mark.parametrize(
    ("begins", "said"),
    [
        (ask_rewind, "rewind of shop is under way: asked for"),
        (partial(begin_rewind, since=0, now=1), "rewind of shop is under way: decided"),
        (partial(begin_move, host=TO_LAMBDA), "move of shop is under way: to lambda"),
        (partial(begin_move, host=DELETING), "deletion of shop is under way: being deleted"),
        (partial(begin_move, host=JOINING), "join of shop is under way: joining its app"),
        (
            partial(step_builds, builds={"Sales": Build(2, "scanning"), "Sold": Build(1, "live")}),
            "rebuild of Sales is under way: scanning",
        ),
    ],
)
async def test_status_names_an_operation_that_is_under_way_and_who_began_it(
    world, capsys, begins, said
):
    await world.work()
    assert (await world.status()).operations == ()
    store, newest = await newest_in(world)
    await begins(
        store, newest, said=AuditEntry(1_700_000_000, "ann@host", "rebuild Sales: scanning")
    )
    status = await world.status()
    assert [one.phase for one in status.operations] == [said.rpartition(": ")[2]]
    describe_status(status)
    printed = capsys.readouterr().out
    assert said in printed
    assert "2023-11-14 22:13:20 UTC  ann@host  rebuild Sales: scanning" in printed
    json.dumps(status.to_dict())


async def test_a_rebuild_says_how_much_of_its_scan_is_done_and_about_how_long_the_rest_takes(
    world, capsys
):
    await world.work()
    store, newest = await newest_in(world)
    began = int(world.clock.now) - 90
    builds = {"Sales": Build(2, "scanning", segments=4, begun=began)}
    await step_builds(
        store, newest, builds, said=AuditEntry(0, "ann@host", "rebuild Sales: scanning")
    )
    (begun,) = (await world.status()).operations
    assert (begun.share, begun.left) == (0.0, None), "nothing is known of its speed"
    for number, state in enumerate(("finished", "finished", "finished", "active")):
        name = f"{pass_name('Sales', 2)}.{number}"
        action = store.space.update("cursor", name)
        action.sets |= cursor_attributes(Cursor(name=name, state=state))
        await store.write(action)
    status = await world.status()
    assert (status.operations[0].share, status.operations[0].left) == (0.75, 30.0)
    describe_status(status)
    assert "rebuild of Sales is under way: scanning, 75% done, about 30 s left" in (
        capsys.readouterr().out
    )


async def test_status_names_migrations_that_are_neither_new_nor_at_their_end(world):
    migrating = App("shop", table="shop", entities=[Seen])
    for number in ("0001", "0002", "0003"):

        @migrating.migration(number, Seen)
        def shout(status: str) -> Set[Seen]:
            return Set(status=status.upper())

    store, _ = await newest_in(world, migrating)
    book = StateBook(world.aws.dynamodb, store.space.schema, "shop")
    await book.write(State("0001"), State("0001", phase="done"))
    paused = State("0002", phase="contracting", stage="comparing", paused=True)
    await book.write(State("0002"), paused)
    (only,) = (await world.status(migrating)).operations
    assert only == OperationStatus("migration", "0002", "comparing", paused=True)


async def test_a_trail_stays_when_a_worker_of_another_release_starts_a_generation(world):
    await world.work()
    store, newest = await newest_in(world)
    said = AuditEntry(1_700_000_000, "ann@host", "rewind: asked for")
    await withdraw_rewind(store, await ask_rewind(store, newest, said))
    await join_generation(store, "another release", (), take_over=False)
    assert (await newest_generation(store)).fingerprint == "another release"
    assert (await world.status()).audit == (said,)


async def test_a_trail_keeps_ten_entries_so_that_the_consumers_item_stays_small(world):
    await world.work()
    store, newest = await newest_in(world)
    for at in range(15):
        said = AuditEntry(at, "ann@host", "rebuild Sales: scanning")
        await step_builds(store, newest, {}, advance=True, said=said)
        newest = await newest_generation(store)
    assert [entry.at for entry in newest.audit] == list(range(5, 15))


@pytest.mark.parametrize(
    ("lag", "said"),
    [
        (80_000, (0.2, 80_000)),  # 20,000 of 100,000 seconds in 10,000: twice as fast as time
        (100_000, (0.0, None)),
        (99_000, (0.01, None)),  # it does not gain on the time that passes
        (None, None),
        (1_900, None),  # it has read what was there when it began
    ],
)
def test_a_consumer_that_began_in_the_past_says_how_much_it_has_read_and_what_is_left(lag, said):
    now = 1_800_000_000
    begun = Generation(1, "f", ("f",), {}, frozenset(), since=now - 100_000, founded=now - 10_000)
    found = [*catching_up(app, begun, now, lag)]
    assert [(round(one.share, 3), one.left) for one in found] == ([said] if said else [])


@pytest.mark.parametrize(
    ("state", "lag", "said"),
    [
        ("active", "measured", "7 s"),
        ("active", "at most", "≤ 7 s"),
        ("active", "archived", "7 s, in the archive"),
        ("active", "lost", "RECORDS LOST"),
        ("active", "undecided", "not decided yet"),
        ("finished", "at most", "-"),
    ],
)
def test_the_lag_of_a_shard_is_said_until_it_is_finished(state, lag, said):
    facts = dict.fromkeys(ShardStatus.__dataclass_fields__)
    assert _lag(ShardStatus(**facts | {"state": state, "lag": lag, "lag_seconds": 7.0})) == said


@pytest.mark.parametrize(("used", "throttled"), [("", 0), ("of another form", 0), ("1 2 3 4 5", 5)])
def test_a_worker_was_throttled_as_often_as_it_reports(used, throttled):
    (worker,) = _workers({"a": Member("a", used=used)}, now=0.0)
    assert worker.throttled == throttled


@pytest.mark.parametrize(
    ("host", "said"), [("", WORKERS), (TAKING_OVER, WORKERS), (TO_LAMBDA, TO_LAMBDA)]
)
def test_workers_run_a_consumer_while_it_takes_a_handler_over(host, said):
    assert _host(SimpleNamespace(host=host)) == said


@pytest.mark.parametrize(
    ("lease", "age", "silent"),
    [(1.0, 29.0, False), (1.0, 31.0, True), (10.0, 39.0, False), (10.0, 41.0, True)],
)
def test_a_worker_is_silent_after_half_a_minute_and_four_of_its_leases(lease, age, silent):
    (worker,) = _workers({"a": Member("a", at=1_000, lease=lease)}, now=1_000 + age)
    assert (worker.silent, worker.beat_age_seconds) == (silent, age)


@pytest.mark.parametrize(
    ("lease", "age", "late"),
    [(4.25, 3.0, False), (4.25, 5.0, False), (4.25, 6.0, True), (0.0, 900.0, False)],
)
def test_a_worker_whose_lease_is_over_is_late_and_not_said_to_lead(lease, age, late):
    """Its time is rounded down to a second; workers of early releases do not say their lease."""
    killed = Member("a", at=1_000, lease=lease, state="active", leads=True)
    (worker,) = _workers({"a": killed}, now=1_000 + age)
    assert worker.late == late
    assert _role(worker) == ("silent" if worker.silent else "late" if late else "leads")


@pytest.mark.parametrize(
    ("states", "seconds", "worst"),
    [
        ("", "", None),
        ("active active", "5 7", 7.0),
        ("active active", "5 -", None),
        ("active finished", "5 9", 5.0),
        ("active finished", "5 -", 5.0),
        ("finished", "9", 0.0),
    ],
)
def test_the_worst_lag_is_that_of_an_open_shard_and_unknown_where_one_is(states, seconds, worst):
    cursors = {str(n): Cursor(str(n), state=state) for n, state in enumerate(states.split())}
    known = [None if text == "-" else float(text) for text in seconds.split()]
    lags = {str(n): Lag(lag, "measured") for n, lag in enumerate(known)}
    assert worst_lag(cursors, lags) == worst


def test_the_time_to_a_loss_is_the_shortest_of_the_open_shards():
    cursors = {"a": Cursor("a"), "b": Cursor("b"), "c": Cursor("c", state="finished")}
    lags = {"a": Lag(60.0, "measured"), "b": Lag(None, "unread"), "c": Lag(0.0, "lost")}
    assert time_left(cursors, lags) == RETENTION_SECONDS - 60
    assert time_left(cursors, lags | {"b": Lag(None, "lost")}) == 0
    assert time_left({"c": cursors["c"]}, lags) is None


def test_an_open_shard_is_unowned_also_if_its_owner_is_gone():
    cursors = {
        "a": Cursor("a", owner="here"),
        "b": Cursor("b", owner="gone"),
        "c": Cursor("c"),
        "d": Cursor("d", state="finished"),
    }
    assert list(unowned(cursors, {"here": Member("here")})) == ["b", "c"]


async def test_what_an_archive_refuses_is_said_once_and_not_of_workers_that_are_silent():
    said = {"a": "PutObject", "b": "GetObject", "c": "ListObjectsV2", "d": "GetObject", "e": ""}
    members = {name: Member(name, at=100, refused=text) for name, text in said.items()}
    members["killed"] = Member("killed", at=0, refused="HeadObject")
    found = await _refused(app, None, None, members, now=100.0)
    assert found == ("GetObject", "ListObjectsV2", "PutObject")
