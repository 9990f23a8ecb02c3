"""Who leads, what it creates and forgets, and what is captured, between two looks at a moving table."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
from structlog.testing import capture_logs

from streamkit.errors import ConfigurationError, InvariantError, LeaseLost
from streamkit.fleet.capture import capture
from streamkit.fleet.cursors import LISTER
from streamkit.fleet.generation import Generation
from streamkit.fleet.leadership import Leadership
from streamkit.fleet.lister import Lister
from streamkit.fleet.members import Member
from streamkit.fleet.starvation import Starvation, longest
from streamkit.model.schema import TableSchema
from streamkit.progress.actions import CHILD, GuardSource
from streamkit.progress.commit import Applied, Batch
from streamkit.progress.control import ControlSpace, Cursor
from streamkit.progress.fenced import Fenced
from streamkit.progress.verdicts import RefusedCommit
from streamkit.stream.asking import AskRate
from streamkit.stream.lineage import Shard, forgotten
from streamkit.stream.listing import StreamLineage
from streamkit.worker.shardset import ShardSet
from tests.unit.fleet.test_coordinator import LEASE, Fleet

HOUR = 3600
SPACE = ControlSpace.of(TableSchema("t", "pk", "sk", "S", "S", {}), "shop", "label")


# -- whose clock -----------------------------------------------------------------------------------


@pytest.mark.parametrize("step", [3 * HOUR, -3 * HOUR])
async def test_a_step_of_the_wall_clock_makes_nobody_dead_and_nobody_alive(step):
    fleet = Fleet("other", "silent")
    wall = [1_000_000.0]
    fleet.clock.time = lambda: wall[0] + fleet.clock.now
    await fleet.looks(2.0)
    wall[0] += step
    await fleet.looks(2.0)
    assert set(fleet.me.members) == {"me", "other", "silent"}
    fleet.silent.add("silent")
    await fleet.looks(LEASE + 4.0)
    assert set(fleet.me.members) == {"me", "other"}


def test_a_heartbeat_is_late_by_the_lease_of_its_own_worker():
    starvation = Starvation(4.0, 3.0)
    for now in range(60):
        members = [Member("late", beats=now // 5), Member("rare", beats=now // 5, lease=8.0)]
        starvation.note(members, asked=now, answered=now)
    assert starvation.times == 1, "one of them beats in time"


async def test_a_heartbeat_that_arrives_after_a_later_one_is_a_heartbeat():
    starvation = Starvation(LEASE, 4.5)
    for at, beats in ((0.0, 5), (3.0, 4), (6.0, 6), (20.0, 5)):
        starvation.note([Member("m", beats=beats)], asked=at, answered=at)
    assert starvation.times == longest(LEASE), "the last one came late"


# -- the leader ------------------------------------------------------------------------------------


class Leases:
    """The lister's cursor, as a store has it."""

    def __init__(self, cursor):
        self.cursor = cursor

    async def read(self, name):
        return self.cursor

    async def take(self, cursor, owner, generation):
        self.cursor = replace(cursor, owner=owner, epoch=cursor.epoch + 1)
        return self.cursor


async def test_a_leader_that_is_younger_than_the_roster_keeps_its_lease():
    fleet, store = Fleet("other"), Leases(Cursor(LISTER, owner="young", epoch=3))
    await fleet.looks(1.0)
    leadership = Leadership(fleet.me, store, None, 30.0, None, None)
    assert await leadership._take() is None
    store.cursor = replace(store.cursor, owner="younger", epoch=4)
    assert await leadership._take() is None, "another one has taken it since"
    assert (await leadership._take()).owner == "me", "nobody of this name has joined"


@pytest.mark.parametrize("leads", [True, False])
async def test_nobody_takes_the_lead_while_another_worker_says_that_it_has_it(leads):
    fleet = Fleet("other")
    fleet.join("other", leads=leads)
    await fleet.looks(1.0)
    assert Leadership(fleet.me, Leases(None), None, 30.0, None, None)._may_lead() is not leads


@pytest.mark.parametrize("enabled", [True, False])
async def test_a_leader_whose_listing_finds_the_stream_disabled_looks_at_the_table(enabled):
    """Which stream the table has now; a disabled one stays quiet for ever."""

    def ends_with(error):
        async def end(*_):
            raise error

        return end

    async def nothing():
        return []

    fleet = Fleet()
    await fleet.looks(1.0)
    lister = SimpleNamespace(enabled=enabled, require_lease=nothing, once=nothing)
    lister.unfinished = frozenset()
    tidied, looked = ends_with(ReferenceError()), ends_with(ConfigurationError())
    leadership = Leadership(fleet.me, None, None, 30.0, tidied, looked)
    fleet.me.audit = lambda *_: nothing()
    leadership._sweep_members = nothing
    with pytest.raises(ReferenceError if enabled else ConfigurationError):
        await leadership._lead(lister)


# -- what is created and forgotten -----------------------------------------------------------------


class Commits:
    """Refuses a commit that creates what is there already."""

    def __init__(self, *there):
        self.cursor, self.there = Cursor(LISTER, epoch=1), set(there)

    async def commit(self, batch):
        names = [a.item["name"]["S"] for a in batch.actions if a.item and "name" in a.item]
        sources = [GuardSource("", name, CHILD) for name in names if name in self.there]
        if sources:
            return RefusedCommit(tuple(sources))
        self.there.update(names)
        return Applied(batch)


@pytest.mark.parametrize("there", [["b"], ["a", "c"], []])
async def test_the_rest_of_a_batch_is_created_though_some_of_its_cursors_exist(there):
    clock = SimpleNamespace(time=lambda: 1000.0)
    commits = Commits(*there)
    lister = Lister(
        StreamLineage(None, "arn"), SimpleNamespace(space=SPACE), commits, clock, None, None
    )
    await lister._create([Cursor(name, root=name) for name in "abcd"])
    assert commits.there == set("abcd")


async def test_a_finished_cursor_is_deleted_after_that_of_its_parent():
    """Else the shard would be found again in an archive, and be read a second time."""
    clock = SimpleNamespace(time=lambda: 110.0 * HOUR)
    lister = Lister(
        StreamLineage(None, "arn"), SimpleNamespace(space=SPACE), Commits(), clock, None, None
    )
    child = Cursor("b", parent="a", state="finished", ended=int(10 * HOUR))  # of a slow clock
    lister.cursors |= {"a": Cursor("a", state="finished", ended=int(100 * HOUR)), "b": child}
    await lister._sweep([])
    assert lister.cursors.keys() == {"a", "b"}
    clock.time = lambda: 200.0 * HOUR
    await lister._sweep([])
    assert not lister.cursors


async def test_what_is_created_is_sent_again_when_a_plan_that_was_given_up_has_won_instead():
    """Else the cursor counts as created, and no worker reads the shard until another one leads."""

    class Adopting(Commits):
        given_up = Batch(Cursor(LISTER, epoch=1))

        async def commit(self, batch):
            won, self.given_up = self.given_up, None
            return Applied(won) if won else await super().commit(batch)

    clock = SimpleNamespace(time=lambda: 1000.0)
    commits = Adopting()
    lister = Lister(
        StreamLineage(None, "arn"), SimpleNamespace(space=SPACE), commits, clock, None, None
    )
    await lister._create([Cursor("a", root="a")])
    assert commits.there == {"a"}


async def test_a_leader_that_stood_still_while_it_listed_asks_no_more_once_another_leads():
    """Else two leaders ask, for more than the ten answers that a stream has in a second."""
    now, asked = [0.0], []

    async def describe_stream(**request):
        asked.append(request)
        assert len(asked) < 3
        now[0] += 10.0
        return {"StreamDescription": {"LastEvaluatedShardId": "a"}}

    async def read(name):
        return Cursor(name, owner="another", epoch=2) if now[0] else commits.cursor

    commits = SimpleNamespace(cursor=Cursor(LISTER, owner="me", epoch=1))
    clock = SimpleNamespace(monotonic=lambda: now[0])
    aws = SimpleNamespace(streams=SimpleNamespace(describe_stream=describe_stream))
    store = SimpleNamespace(read=read, space=SPACE)
    lister = Lister(StreamLineage(aws, "arn"), store, commits, clock, None, AskRate(lambda: 9))
    await lister.require_lease()
    with pytest.raises(LeaseLost):
        await lister.once()
    assert len(asked) == 1


def test_a_tombstone_is_as_old_as_its_shards_end_whenever_it_was_seen_at_its_tip():
    old = Cursor("old", state="finished", seen=0, ended=100 * HOUR)
    quiet = Cursor("quiet", state="finished", seen=0, ended=10 * HOUR)
    fresh = Cursor("fresh", state="finished", seen=100 * HOUR, ended=10 * HOUR)
    listed = Cursor("listed", state="finished", seen=0, ended=0)
    cursors = {cursor.name: cursor for cursor in (old, quiet, fresh, listed)}
    gone = forgotten([Shard("listed")], cursors, now=110 * HOUR, keep_seconds=48 * HOUR)
    assert {cursor.name for cursor in gone} == {"quiet", "fresh"}


# -- what is captured ------------------------------------------------------------------------------


class Moving:
    """A consumer whose parent shard ends, and whose lister commits, between the reads of a look."""

    space = SPACE

    def __init__(self, *, ends, lists, meets=False):
        self.cursors = {name: Cursor(name, generation=1) for name in (LISTER, "p")}
        self.listed, self.ends, self.lists = {"p"}, ends, lists
        self.meets, self.transactions = meets, 0

    async def read(self, name):
        return self.cursors.get(name)

    async def names(self):
        names = set(self.listed)
        if self.ends:  # after the directories were read
            self.ends = False
            ended = replace(self.cursors["p"], state="finished", children=frozenset({"c"}))
            self.cursors |= {"p": ended, "c": Cursor("c", generation=1)}
            self.listed = {"c"}
        if self.lists:
            self.lists = False
            lister = self.cursors[LISTER]
            self.cursors |= {
                LISTER: replace(lister, commit="next", generation=lister.generation),
                "late": Cursor("late", generation=1),
            }
            self.listed = self.listed | {"late"}
        return names

    async def read_many(self, names):
        return {name: self.cursors[name] for name in names if name in self.cursors}

    async def apply(self, actions):
        names = [action.ref.pk[1].rpartition("#")[2] for action in actions]
        if self.meets:
            self.meets = False
            self.cursors[names[0]] = replace(self.cursors[names[0]], generation=2)
        if any(self.cursors[name].generation >= 2 for name in names):
            return False
        self.cursors |= {name: replace(self.cursors[name], generation=2) for name in names}
        self.transactions += 1
        return True


@pytest.mark.parametrize(("ends", "lists"), [(True, False), (False, True), (True, True)])
@pytest.mark.parametrize("raised", [False, True])
@pytest.mark.parametrize("stopped", [False, True])
async def test_what_appears_between_the_reads_of_a_look_is_captured_too(
    monkeypatch, ends, lists, raised, stopped
):
    store = Moving(ends=ends, lists=lists)
    if raised:  # so that the first look finds nothing behind
        store.cursors = {n: replace(c, generation=2) for n, c in store.cursors.items()}
    monkeypatch.setattr(Fenced, "apply", store.apply)
    await capture(store, Generation(2, "two", (), {}, frozenset()), stopped=stopped)
    assert behind(store) == []


def behind(store):
    return [n for n, c in store.cursors.items() if c.generation < 2 and not c.finished]


@pytest.mark.parametrize("meets", [False, True])
async def test_cursors_are_raised_together_once_workers_have_stopped_also_behind_another_process(
    monkeypatch, meets
):
    """The cursor that the other process has raised refuses the transaction of all."""
    store = Moving(ends=False, lists=False, meets=meets)
    others = [f"shard-{n}" for n in range(120)]
    store.cursors |= {name: Cursor(name, generation=1) for name in others}
    store.listed |= {*others}
    monkeypatch.setattr(Fenced, "apply", store.apply)
    await capture(store, Generation(2, "two", (), {}, frozenset()), stopped=True)
    assert behind(store) == []
    assert store.transactions == (2 if not meets else 1 + 98)


# -- a lost lease ----------------------------------------------------------------------------------


def test_a_lost_lease_is_normal_and_no_error_is_logged():
    pipeline, lost = SimpleNamespace(shard="s"), []
    shards = SimpleNamespace(
        running={"s": pipeline},
        _tell=lambda what, shard: None,
        _drop=lambda pipeline: None,
        view=SimpleNamespace(dropped=lost.append),
    )
    with capture_logs() as logs:
        assert ShardSet.failed(shards, pipeline, LeaseLost("another worker has taken it"))
    assert ([log["log_level"] for log in logs], lost) == (["info"], ["s"])
    assert not ShardSet.failed(shards, pipeline, InvariantError("a bug"))
