"""Rules that hold in every fleet: live members, assigned shards, the newest version."""

import random
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import anyio
import pytest

from streamkit.aws import connect
from streamkit.errors import LeaseLost
from streamkit.fleet import liveness
from streamkit.fleet.balance import Balance
from streamkit.fleet.capture import capture
from streamkit.fleet.claims import Claims
from streamkit.fleet.cursors import LISTER, drop_cursors
from streamkit.fleet.founding import Founding
from streamkit.fleet.generation import (
    Generation,
    begin_move,
    newest_generation,
    next_generation,
    stepped,
    write_generation,
)
from streamkit.fleet.heartbeat import Facts, Heartbeat
from streamkit.fleet.hosting import LAMBDA, TAKEN
from streamkit.fleet.joining import join_generation
from streamkit.fleet.known import KnownShards
from streamkit.fleet.members import Member, MemberList
from streamkit.fleet.pausing import set_held
from streamkit.fleet.rewinding import (
    _is_older,
    ask_rewind,
    begin_rewind,
    finish_rewind,
    withdraw_rewind,
)
from streamkit.fleet.rollout import Rollout
from streamkit.fleet.view import FleetView
from streamkit.local.engine import Engine
from streamkit.local.transport import session_class
from streamkit.model.builds import Build
from streamkit.model.schema import TableSchema
from streamkit.progress.clock import Clock, SystemClock
from streamkit.progress.control import ControlSpace, Cursor, child_of, cursor_attributes
from streamkit.progress.cursor import CursorStore, creation
from streamkit.progress.lease import LeaseWatch
from streamkit.progress.operation import AuditEntry
from streamkit.progress.transaction import transact
from streamkit.stream.asking import AskRate, asks_a_second
from streamkit.stream.lineage import Shard, next_step
from streamkit.stream.loss import mark_rebuild
from streamkit.testing.loop import run_virtually
from tests.unit.fleet.test_coordinator import NAMES, Fleet


class Hands(Clock):
    """A clock that a test moves."""

    def __init__(self):
        self.now = 100.0

    def time(self):
        return self.now

    def monotonic(self):
        return self.now


# -- live workers ----------------------------------------------------------------------------------


def observed(*readings):
    """Return a leases that has seen one member: (beats, asked, answered) for each reading."""
    leases = LeaseWatch(7.0)
    for beats, asked, answered in readings:
        leases.observe({"m": beats}, asked=asked, answered=answered)
    return leases


def test_a_worker_whose_counter_stands_still_for_a_lease_is_dead():
    assert not observed((1, 0, 0), (1, 6.9, 6.9)).is_abandoned("m")
    assert observed((1, 0, 0), (1, 7, 7)).is_abandoned("m")


def test_a_worker_that_beats_is_alive_however_long_it_is_watched():
    assert not observed((1, 0, 0), (2, 6, 6), (3, 12, 12), (3, 18, 18)).is_abandoned("m")


def test_a_reading_that_took_long_makes_nobody_look_dead():
    assert not observed((1, 0, 6), (1, 8, 8)).is_abandoned("m")  # it may have beaten at 6
    assert not observed((1, 0, 0), (1, 1, 9)).is_abandoned("m")  # it may have beaten since 1


# -- whose a shard is ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("loads", "claimed"),
    [
        ({"me": 0, "a": 6}, 3),
        ({"me": 2, "a": 4}, 1),
        ({"me": 3, "a": 4}, 0),  # one is left over, and stays where it is
        ({"me": 2, "a": 4, "b": 0}, 0),  # the rest is for b
        ({"me": 2, "a": 3}, 0),
    ],
)
def test_claims_leave_everybody_a_share_and_take_no_more_than_one(loads, claimed):
    cursors = [Cursor(f"s{n}", owner="a", root=f"s{n}") for n in range(loads["a"])]
    weights = dict.fromkeys(loads, 1)
    balance = Balance(sum(loads.values()), weights, loads, "me")
    assert len(balance.choose(cursors, ())) == claimed


def test_a_shard_that_another_worker_claims_is_left_to_it_until_a_deadline():
    claims, cursor = Claims(25.0, 7.0), Cursor("s", epoch=3)
    assert not claims.is_late(cursor, 100)
    assert not claims.is_late(cursor, 124)
    assert not claims.is_late(replace(cursor, epoch=4), 124)
    assert not claims.is_late(replace(cursor, epoch=4), 148)
    assert claims.is_late(replace(cursor, epoch=4), 149)


def test_an_only_child_sits_where_its_parent_sat_and_others_on_their_own():
    parent = Cursor("p", root="root", generation=4)
    heir, other = (
        child_of(name, parent, generation=9, parent_name="p", heir=heir)
        for name, heir in (("x", True), ("y", False))
    )
    assert (heir.root, other.root) == ("root", "y")


def test_an_only_child_that_is_listed_late_sits_where_its_parent_sat():
    parent = Cursor("p", root="root", state="finished")
    listed = [Shard("p"), Shard("x", "p"), Shard("y", "p")]
    step = next_step(listed, {"p": parent}, gone=frozenset(), generation=1)
    assert [cursor.root for cursor in step.create] == ["root", "y"]


def test_a_child_carries_what_its_parent_knew():
    parent = Cursor("p", generation=4, chunks=frozenset({"p.0"}), seen=70, since=60)
    child = child_of("c", parent, generation=3, parent_name="p")
    assert (child.generation, child.chunks, child.seen, child.since) == (4, {"p.0"}, 70, 60)


# -- the coordinator -------------------------------------------------------------------------------


def hold(fleet, *names):
    """Let `me` own and read these shards."""
    fleet.table.own("me", *names)
    fleet.shards.held |= {name: fleet.table.cursors[name] for name in names}


async def test_a_shard_that_waits_for_its_children_is_not_lacked():
    fleet = Fleet("a", "b", shards=NAMES[:5])
    fleet.table.own("a", *NAMES[:4])
    fleet.table.own("b", NAMES[4])
    fleet.join("a", held=4)
    fleet.join("b", held=1)
    fleet.view.await_children("ended")  # with its child there are two shards for each
    await fleet.looks(1.0)
    assert len(fleet.claims.pending) == 1


async def test_a_worker_gives_nothing_that_nobody_claims():
    fleet = Fleet("a")
    hold(fleet, *fleet.table.cursors)
    await fleet.looks(60.0)
    assert fleet.shards.given == []


async def test_shards_that_come_and_go_do_not_begin_a_claim_anew():
    fleet = Fleet("a")
    fleet.table.own("a", *fleet.table.cursors)
    fleet.join("a", held=len(fleet.table.cursors))
    await fleet.looks(1.0)
    claimed = fleet.claims.pending
    assert claimed
    for number in range(6):
        fleet.table.cursors.pop(f"new{number - 1}", None)
        fleet.table.cursors[f"new{number}"] = Cursor(f"new{number}", root=f"new{number}", owner="a")
        fleet.table.members["a"] = replace(fleet.table.members["a"], news=number)
        await fleet.looks(5.0)
    assert claimed & set(fleet.shards.taken)


async def test_all_are_idle_when_each_has_said_so_since_this_worker_is():
    fleet = Fleet("a", shards=[])
    fleet.join("a", idle=True)
    fleet.silent.add("a")
    await fleet.looks(0.5)
    assert not fleet.me.all_idle(idle=True)
    await fleet.looks(0.5)
    assert not fleet.me.all_idle(idle=True)
    fleet.silent.clear()
    await fleet.looks(0.5)
    assert fleet.me.all_idle(idle=True)
    assert not fleet.me.all_idle(idle=False)


# -- asking ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", range(1, 9))
def test_a_fleet_asks_for_shards_at_most_ten_times_a_second(workers):
    others = (workers - 1) * asks_a_second(workers, leads=False)
    assert 0 < asks_a_second(workers, leads=True) + others <= 10


def test_turns_are_handed_out_up_to_the_limit_in_any_second():
    async def ask_for_ten_seconds():
        rate, turns = AskRate(lambda: 3), []
        for _ in range(100):
            turns += [anyio.current_time() for _ in range(5) if rate.may_ask()]
            await anyio.sleep(0.1)
        assert len(turns) > 24
        assert all(later - first >= 1 for first, later in zip(turns, turns[3:], strict=False))

    run_virtually(ask_for_ten_seconds)


# -- roll-outs -------------------------------------------------------------------------------------

SCHEMA = TableSchema("shop", "pk", None, "S", None, {})
TABLE = {
    "TableName": "shop",
    "KeySchema": [{"AttributeName": "pk", "KeyType": "HASH"}],
    "AttributeDefinitions": [{"AttributeName": "pk", "AttributeType": "S"}],
    "BillingMode": "PAY_PER_REQUEST",
}
PATIENCE = 30.0


@pytest.fixture
async def store():
    engine = Engine(rng=random.Random(1))
    engine.call("dynamodb", "CreateTable", TABLE)
    async with connect(http_session=session_class(engine)) as aws:
        yield CursorStore(aws.dynamodb, ControlSpace.of(SCHEMA, "app", "label"))


async def old_beside_new(store, clock):
    """Return the old version's place after the new one has started a generation."""
    for fingerprint in ("old", "new"):
        await join_generation(store, fingerprint, (), take_over=False)
    founding = Founding("shop", "trim_horizon", clock, SimpleNamespace())
    return Rollout(store, "old", (), clock, PATIENCE, founding)


def old(state, **more):
    return Member("me", fingerprint="old", state=state, **more)


NEW = Member("n", fingerprint="new", state="active", generation=2)


async def watched(rollout, me, members, seconds):
    """Let a worker follow what its roll-out says, second by second; return it as it is then."""
    for _ in range(int(seconds)):
        me = replace(me, **await rollout.position(me, members))
        rollout.clock.now += 1
    return me


async def test_an_old_roll_out_waits_as_long_as_a_worker_of_the_newest_lives(store):
    rollout = await old_beside_new(store, Hands())
    me = await watched(rollout, old("joining"), {"n": NEW}, 5 * PATIENCE)
    assert me.state == "waiting"


@pytest.mark.parametrize("taken", [True, False])
async def test_a_worker_that_joins_a_consumer_which_was_taken_over_does_not_stand_by(store, taken):
    """It begins again, is told that its app runs the handler, and ends."""
    rollout = await old_beside_new(store, Hands())
    if taken:
        newest = await newest_generation(store)
        await write_generation(store, newest, replace(newest, host=TAKEN))
    await watched(rollout, old("joining"), {"n": NEW}, PATIENCE)
    assert rollout.superseded is taken


@pytest.mark.parametrize(("lost", "noticed"), [(True, True), (False, False)])
async def test_a_worker_that_lost_a_shard_reads_its_generation_at_its_next_look(
    store, lost, noticed
):
    """It may hold shards that are assigned to others, and be the only one that has lost any."""
    await join_generation(store, "new", (), take_over=False)
    founding = Founding("shop", "trim_horizon", Hands(), SimpleNamespace())
    rollout = Rollout(store, "new", (), Hands(), PATIENCE, founding)
    await rollout.position(Member("me", fingerprint="new", state="joining"), {})
    newest = await newest_generation(store)
    await write_generation(store, newest, stepped(newest, {}, advance=True))
    view = FleetView(SimpleNamespace(), KnownShards(store), rollout)
    if lost:
        view.dropped("s")
    await rollout.refresh(60.0, leads=False)
    assert rollout.superseded is noticed


def test_a_cursor_that_was_deleted_is_not_assigned_any_more():
    async def read_many(names):
        return {}

    known = KnownShards(SimpleNamespace(read_many=read_many))
    known.learn(Cursor("gone"))
    known.learn(Cursor("there"))
    run_virtually(lambda: known.read(["gone"]))
    assert set(known.open) == {"there"}


class Beating:
    """Workers of which each beats every so many of its lease's seconds, or never."""

    def __init__(self, clock, **every):
        self.clock, self.every = clock, every

    async def read(self):
        return {
            name: Member(name, beats=int((self.clock.now - 100) // seconds), lease=lease)
            for name, (lease, seconds) in self.every.items()
        }


@pytest.mark.parametrize(
    ("mine", "lease", "beats", "alive", "longest"),
    [
        (7.0, 60.0, 25.0, ["w"], 27),  # it beats less often than my own workers would
        (60.0, 7.0, 1e9, [], 9),
        (7.0, 0.0, 1e9, [], 9),
    ],
)
async def test_a_worker_is_watched_for_its_own_lease(
    monkeypatch, mine, lease, beats, alive, longest
):
    clock = Hands()

    async def moves(seconds):
        clock.now += seconds

    monkeypatch.setattr(liveness, "MemberList", lambda _: Beating(clock, w=(lease, beats)))
    monkeypatch.setattr(liveness.anyio, "sleep", moves)
    assert await liveness.live_workers(None, clock, mine) == alive
    assert clock.now - 100 <= longest


async def test_a_generation_that_nobody_has_created_is_left_aside_for_a_minute(store):
    """Asking for it with each page would cost a read each time, and a log line."""
    rollout = replace(await old_beside_new(store, Hands()), fingerprint="new")
    me = await watched(rollout, Member("me", fingerprint="new"), {}, 2)
    known = rollout.newest
    for number in (99, 98):  # another one is asked about at once
        rollout.hear(number)
        assert rollout.newest == number
        me = await watched(rollout, me, {}, 5)
        assert rollout.newest == known
        me = await watched(rollout, me, {}, 50)
        rollout.hear(number)
        assert rollout.newest == known
    await watched(rollout, me, {}, 10)
    rollout.hear(98)
    assert rollout.newest == 98


async def test_an_old_roll_out_takes_over_when_the_newest_was_gone_for_a_while(store):
    rollout = await old_beside_new(store, Hands())
    me = await watched(rollout, old("joining"), {"n": NEW}, 10)
    me = await watched(rollout, me, {}, PATIENCE - 5)
    assert me.state == "waiting"
    me = await watched(rollout, me, {}, 15)
    assert (me.state, me.generation) == ("active", 3)


async def test_a_running_worker_does_not_answer_a_newer_roll_out_with_a_generation(store):
    rollout = await old_beside_new(store, Hands())
    me = await watched(rollout, old("active", generation=1), {"n": NEW}, 5 * PATIENCE)
    assert me == old("active", generation=1)
    newest = await newest_generation(store)
    assert (newest.number, newest.fingerprint) == (2, "new")


async def test_a_running_worker_joins_a_generation_that_its_like_has_started(store):
    rollout = await old_beside_new(store, Hands())
    twin = Member("t", fingerprint="old", state="active", generation=3)
    members = {"n": NEW, "t": twin}
    renewed: list[bool] = []
    rollout.renew = lambda: renewed.append(True)
    for _ in range(2):
        assert await rollout.position(old("active", generation=1), members) == {}
    assert renewed == [True]


# -- what is in the table --------------------------------------------------------------------------


async def test_owners_that_vanish_are_counted_and_those_that_release_are_not(store):
    first = Cursor("s")
    action = store.space.update("cursor", "s")
    action.sets |= cursor_attributes(first)
    await store.write(action)
    vanished = await store.take(first, "a", 1)
    cursor = await store.take(vanished, "b", 1)
    assert cursor.takes == 2
    await store.release(cursor)
    assert (await store.read("s")).takes == 0


async def test_who_stood_still_touches_no_cursor_of_a_consumer_that_was_founded_later(store):
    """Its numbers begin anew, so that each of its cursors looks older than what was deleted."""
    deleted = Generation(5, "v1", (), {}, frozenset(), incarnation="deleted")
    founded = Generation(1, "v1", (), {}, frozenset(), incarnation="founded")
    await write_generation(store, None, founded)
    actions = creation(store.space, Cursor("s", generation=1))
    await transact(store.dynamodb, {SCHEMA.name: SCHEMA}, actions, random.Random(1))
    with pytest.raises(LeaseLost):
        await capture(store, deleted, read=False)
    assert await finish_rewind(store, deleted) == 0
    assert (await store.read("s")).generation == 1
    await capture(store, replace(founded, number=2), read=False)
    assert (await store.read("s")).generation == 2
    assert await finish_rewind(store, replace(founded, number=3)) == 1


async def test_a_rewind_that_is_finished_late_leaves_what_was_begun_after_it(store):
    schemas = {SCHEMA.name: SCHEMA}
    actions = creation(store.space, Cursor("s", generation=2))
    await transact(store.dynamodb, schemas, actions, random.Random(1))
    send = partial(transact, store.dynamodb, schemas)
    assert await drop_cursors(store, below=2, send=send) == 0
    assert await store.names() == {"s"}
    assert await drop_cursors(store, below=3, send=send) == 1
    assert (await store.names(), await store.read("s")) == (set(), None)


async def test_the_listers_cursor_is_dropped_before_all_others(store):
    """Each commit of a lister needs it: so none creates a cursor behind those that were dropped."""
    schemas, sent = {SCHEMA.name: SCHEMA}, []
    for name in (LISTER, "s"):
        actions = creation(store.space, Cursor(name, generation=2))
        await transact(store.dynamodb, schemas, actions, random.Random(1))

    async def send(actions, rng):
        verdict = await transact(store.dynamodb, schemas, actions, rng)
        sent.append((await store.read(LISTER), await store.read("s")))
        return verdict

    await drop_cursors(store, below=3, send=send)
    assert [one is None for one in sent[0]] == [True, False]
    assert sent[-1] == (None, None)


async def test_a_rewind_that_is_finished_late_does_not_finish_the_one_after_it(store):
    newest = await join_generation(store, "handlers", (), take_over=False)
    first = await begin_rewind(store, newest, 0, 0)
    second = await begin_rewind(store, first, 0, 0)
    await finish_rewind(store, first)
    assert await newest_generation(store) == second
    assert second.rewinding
    await finish_rewind(store, second)
    assert await newest_generation(store) == replace(second, rewinding=False)


async def test_a_rewind_that_is_finished_late_creates_no_cursor_that_was_not_asked_for(store):
    newest = await join_generation(store, "handlers", (), take_over=False)
    rewound = await begin_rewind(store, newest, 5, 0, begins=frozenset({"old"}))
    await finish_rewind(store, rewound)
    assert (await store.read("old")).since == 5
    send = partial(transact, store.dynamodb, {SCHEMA.name: SCHEMA})
    await drop_cursors(store, below=rewound.number + 1, send=send)  # it was read, and is over
    await finish_rewind(store, rewound)
    assert await store.read("old") is None


async def test_where_functions_run_a_rewind_shuts_out_a_move(store):
    newest = await join_generation(store, "handlers", (), take_over=False)
    moving = replace(newest, host=LAMBDA, mover="token")
    await write_generation(store, newest, moving)
    asked = await ask_rewind(store, moving)
    assert (asked.mover, asked.number) == ("", moving.number)
    assert await newest_generation(store) == asked


@pytest.mark.parametrize(
    ("generation", "since", "older"),
    [(1, 999, True), (2, 0, False), (0, 99, True), (0, 100, False), (0, 130, False)],
)
def test_a_queue_of_an_older_streamkit_is_older_by_when_it_began(generation, since, older):
    newest = Generation(2, "v1", (), {}, frozenset(), founded=100)
    queue = SimpleNamespace(generation=generation, since=since)
    assert _is_older(queue, newest) is older


@pytest.mark.parametrize("meanwhile", [frozenset(), frozenset({"Sales"})])
async def test_a_rewind_is_finished_although_aggregates_were_marked_meanwhile(store, meanwhile):
    newest = await join_generation(store, "handlers", (), take_over=False)
    rewound = await begin_rewind(store, newest, 0, 0)
    await mark_rebuild(store, meanwhile)
    await finish_rewind(store, rewound)
    found = await newest_generation(store)
    assert (found.rewinding, found.rebuild) == (False, meanwhile)


async def step_builds(store, newest, builds, **more):
    await write_generation(store, newest, stepped(newest, builds, **more))


@pytest.mark.parametrize(
    "takes_back",
    [
        withdraw_rewind,
        partial(begin_move, host="lambda"),
        partial(step_builds, builds={}),
        partial(step_builds, builds={}, advance=True),
    ],
)
async def test_whatever_follows_a_question_leaves_nothing_of_it(store, takes_back):
    """Otherwise workers of older builds, and functions, take the handlers for others."""
    newest = await join_generation(store, "handlers", (), take_over=False)
    asked = await ask_rewind(store, newest)
    assert asked.fingerprint == "handlers"
    await takes_back(store, asked)
    item = await store.item("consumer")
    assert (item["fingerprint"], "asks" in item) == ({"S": "handlers"}, False)
    with pytest.raises(LeaseLost):
        await begin_rewind(store, asked, 0, 0)


async def test_a_question_is_not_taken_back_from_a_generation_that_an_older_build_has_begun(store):
    newest = await join_generation(store, "handlers", (), take_over=False)
    asked = await ask_rewind(store, newest)
    action = store.space.update("consumer")  # it knows nothing of the question, which stays there
    action.sets |= {"generation": {"N": str(asked.number + 1)}, "fingerprint": {"S": "other"}}
    await store.write(action)
    await withdraw_rewind(store, asked)
    assert (await store.item("consumer"))["fingerprint"] == {"S": "other"}


async def test_a_question_of_a_consumer_that_was_deleted_meanwhile_is_over(store):
    asked = await ask_rewind(store, await join_generation(store, "h", (), take_over=False))
    await store.write(store.space.delete("consumer"))
    await withdraw_rewind(store, asked)
    assert await store.item("consumer") is None


async def test_a_worker_that_was_swept_cannot_beat_any_more(store):
    member_list = MemberList(store)
    await member_list.add(Member("me"))
    await member_list.write(Member("me", beats=1))
    await member_list.remove("me")
    with pytest.raises(LeaseLost):
        await member_list.write(Member("me", beats=2))
    assert await member_list.read() == {}


async def test_a_worker_that_leaves_during_its_heartbeat_was_not_swept(store):
    """It does not wait for a heartbeat that is refused for hours; one that arrives later finds no
    item, because the worker deleted it itself."""
    asked, goes_on = anyio.Event(), anyio.Event()

    class Slow(MemberList):
        async def write(self, member):
            asked.set()
            await goes_on.wait()
            return await super().write(member)

    def ask():
        return Facts(0, frozenset(), idle=True)

    member_list = Slow(store)
    heartbeat = Heartbeat(member_list, Member("me"), 3.0, SystemClock())
    await heartbeat.join(ask)
    async with anyio.create_task_group() as group:
        group.start_soon(heartbeat.beat_for_ever, ask)
        heartbeat.say(state="leaving")
        await asked.wait()
        with anyio.fail_after(60):
            await heartbeat.leave()
        goes_on.set()
    assert await member_list.read() == {}


async def test_heartbeats_have_a_client_of_their_own(store):
    engine = Engine(rng=random.Random(1))
    async with connect(http_session=session_class(engine)) as aws:
        assert aws.beats is not aws.dynamodb


async def test_a_pause_is_of_one_build_and_the_next_one_begins_without_it(store):
    newest = await join_generation(store, "handlers", (), take_over=False)
    await step_builds(store, newest, {"Sales": Build(2, "scanning")})
    held = await set_held(store, "rebuild Sales", AuditEntry(1, "ann", "paused"), paused=True)
    assert held.is_held("rebuild Sales")
    started = next_generation(held, "others", ())
    assert started.held == held.held
    again = replace(started, builds={"Sales": Build(3, "emptying")})
    assert not again.is_held("rebuild Sales")


async def test_a_step_that_was_decided_before_a_pause_is_not_taken_after_it(store):
    newest = await join_generation(store, "handlers", (), take_over=False)
    await step_builds(store, newest, {"Sales": Build(2, "scanning")})
    before = await newest_generation(store)
    said = AuditEntry(1, "ann", "paused or resumed")
    for paused in (True, False):  # also when nothing shows any more that it was paused
        await set_held(store, "rebuild Sales", said, paused=paused)
        with pytest.raises(LeaseLost):
            await step_builds(store, before, {"Sales": Build(2, "counting")})
