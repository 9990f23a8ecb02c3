"""The coordinator against a made-up fleet: what it takes, claims and gives, look by look.

The member_list and the cursors are in memory, and time is a number that the test moves.
"""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from streamkit.errors import LeaseLost
from streamkit.fleet.assignment import assign
from streamkit.fleet.claims import Claims, token
from streamkit.fleet.coordinator import Coordinator, Rhythm
from streamkit.fleet.heartbeat import Heartbeat
from streamkit.fleet.known import KnownShards
from streamkit.fleet.members import Attendance, Member
from streamkit.fleet.view import FleetView
from streamkit.observe.meters import Meters
from streamkit.observe.registry import Registry
from streamkit.progress.control import Cursor
from streamkit.progress.lease import LeaseWatch
from streamkit.worker.report import report_of, sample

LEASE, BLIND, REFRESH = 7.0, 3.5, 30.0
NAMES = [f"s{n}" for n in range(6)]


class Table:
    """The cursors of a consumer, and the members."""

    def __init__(self, *names):
        self.cursors = {name: Cursor(name, root=name, generation=1) for name in names}
        self.members, self.paused = {}, 0

    async def names(self, *, fresh=True):
        return set(self.cursors)

    async def read_many(self, names, *, fresh=True):
        return {name: self.cursors[name] for name in names if name in self.cursors}

    def own(self, owner, *names):
        for name in names:
            cursor = self.cursors[name]
            self.cursors[name] = replace(cursor, owner=owner, epoch=cursor.epoch + 1)

    def free(self, name):
        self.cursors[name] = replace(self.cursors[name], owner=None)


class MemberList:
    """The member list; `old` makes of it what a reading that need not be fresh returns."""

    def __init__(self, table):
        self.table, self.store = table, table
        self.old, self.asked = lambda members: members, []

    async def look(self, *, fresh=True):
        self.asked.append(fresh)
        members = dict(self.table.members)
        return Attendance(members if fresh else self.old(members), self.table.paused)


class Shards:
    """Takes at once; what it is asked to give is only noted."""

    def __init__(self, table):
        self.table, self.held, self.taken, self.given, self.seen = table, {}, [], [], []
        self.paused = False

    def take(self, cursor):
        self.table.own("me", cursor.name)
        self.held[cursor.name] = self.table.cursors[cursor.name]
        self.taken.append(cursor.name)

    def give(self, name):
        self.given.append(name)

    def lose(self, cursor):
        self.seen.append(cursor.name)

    def pause(self, *, paused):
        self.paused = paused


class Rollout:
    newest, joined = 1, None

    async def refresh(self, every, *, leads):
        pass

    def hear(self, number):
        self.newest = max(self.newest, number)

    async def position(self, me, members):
        return {} if me.state == "active" else {"state": "active", "generation": 1}


class Clock:
    now = 100.0

    def monotonic(self):
        return self.now

    def time(self):
        return self.now


class Fleet:
    """One coordinator called "me", and members that only beat, and say how many shards they own.

    `hides` is how many of them a worker does not tell of.
    """

    def __init__(self, *others, shards=NAMES):
        self.table, self.clock = Table(*shards), Clock()
        self.shards, self.claims = Shards(self.table), Claims(25.0, LEASE)
        self.silent, self.hides = set(), {}
        heartbeat = Heartbeat(MemberList(self.table), Member("me"), 3.0, self.clock)
        self.view = FleetView(heartbeat, KnownShards(self.table), Rollout())
        self.me = Coordinator(
            self.view, self.shards, LeaseWatch(LEASE, BLIND), self.claims, Rhythm(0.5, REFRESH), self.clock
        )  # fmt: skip
        for name in others:
            self.join(name)
        self.join("me")

    def join(self, name, **changes):
        told = {"state": "active", "generation": 1} | changes
        self.table.members[name] = Member(name, **told)

    def held(self, name):
        owned = sum(cursor.owner == name for cursor in self.table.cursors.values())
        return owned - self.hides.get(name, 0)

    def targets(self, owner, *fleet):
        roots = [cursor.root for cursor in self.table.cursors.values()]
        return {s for s, o in assign(roots, dict.fromkeys(fleet, 1)).items() if o == owner}

    async def looks(self, seconds=0.5):
        """Let time pass, with a look each half second and the heartbeats of all workers."""
        for _ in range(round(seconds / 0.5)):
            self.clock.now += 0.5
            self.me.heartbeat._beat_at = self.clock.now
            for name, member in self.table.members.items():
                if name not in self.silent:
                    self.table.members[name] = replace(
                        member, beats=member.beats + 1, held=self.held(name)
                    )
            await self.me.look()


# -- take ------------------------------------------------------------------------------------------


async def test_a_worker_takes_the_free_shards_that_are_its_own_and_leaves_the_others():
    fleet = Fleet("other")
    await fleet.looks()
    await fleet.looks()
    assert set(fleet.shards.taken) == fleet.targets("me", "me", "other")
    assert len(fleet.shards.taken) == 3


async def test_a_worker_alone_takes_everything():
    fleet = Fleet()
    await fleet.looks(1)
    assert sorted(fleet.shards.taken) == NAMES


async def test_the_shards_of_a_dead_worker_are_taken_after_a_lease_and_not_before():
    fleet = Fleet("other")
    fleet.table.own("other", *NAMES)
    await fleet.looks(2)
    fleet.silent.add("other")
    await fleet.looks(LEASE - 0.5)
    assert fleet.shards.taken == []
    await fleet.looks(1)
    assert sorted(fleet.shards.taken) == NAMES


async def test_an_owner_that_left_is_known_as_gone_at_once():
    fleet = Fleet("other")
    fleet.table.own("other", *NAMES)
    await fleet.looks(2)
    del fleet.table.members["other"]
    await fleet.looks(1)
    assert sorted(fleet.shards.taken) == NAMES


async def test_an_owner_that_has_joined_since_the_roster_was_read_is_not_robbed():
    fleet = Fleet()
    fleet.table.own("newcomer", "s0")
    await fleet.looks()
    assert "s0" not in fleet.shards.taken


async def test_the_children_of_a_finished_shard_are_found_without_a_new_listing():
    fleet = Fleet(shards=["s0"])
    await fleet.looks(1)
    del fleet.shards.held["s0"]
    fleet.table.cursors["c"] = Cursor("c", root="s0", parent="s0", generation=1)
    fleet.table.cursors["s0"] = replace(
        fleet.table.cursors["s0"], state="finished", children=frozenset({"c"})
    )
    fleet.view.lost("s0")
    await fleet.looks(1)
    assert fleet.shards.taken == ["s0", "c"]


# -- claim -----------------------------------------------------------------------------------------


async def test_a_worker_that_joins_claims_its_share_and_takes_what_is_released():
    fleet = Fleet("other")
    fleet.table.own("other", *NAMES)
    await fleet.looks(2)
    assert fleet.shards.taken == []
    mine = fleet.targets("me", "me", "other")
    assert fleet.claims.pending == mine
    for name in mine:
        fleet.table.free(name)
    await fleet.looks(1)
    assert set(fleet.shards.taken) == mine
    assert fleet.claims.pending == frozenset()


async def test_a_claim_that_is_not_honoured_is_enforced_at_its_deadline():
    fleet = Fleet("other")
    fleet.table.own("other", *NAMES)
    await fleet.looks(24)
    assert fleet.shards.taken == []
    await fleet.looks(3)
    assert set(fleet.shards.taken) == fleet.targets("me", "me", "other")


async def test_what_was_taken_back_is_not_claimed_again_before_the_fleet_changes():
    fleet = Fleet("other")
    fleet.table.own("other", *NAMES)
    await fleet.looks(1)
    claimed = set(fleet.claims.pending)
    fleet.table.own("other", *NAMES)  # another lease: the claims say nothing about it
    await fleet.looks(REFRESH + 10)
    assert fleet.shards.taken == []
    for name in claimed:
        assert not fleet.claims.may_claim(name)
    fleet.join("third")
    await fleet.looks(1)
    assert fleet.claims.tokens <= {token(c) for c in fleet.table.cursors.values()}
    assert fleet.claims.pending


async def test_nothing_is_claimed_while_it_is_uncertain_who_reads_a_shard():
    fleet = Fleet("other", "going")
    fleet.join("going", state="leaving")
    mine = min(fleet.targets("me", "me", "other"))
    fleet.table.own("other", *set(NAMES) - {mine})
    fleet.table.own("going", mine)
    await fleet.looks(2 * LEASE)
    assert fleet.claims.pending == frozenset()
    fleet.table.free(mine)
    await fleet.looks(1)
    assert fleet.shards.taken == [mine]
    assert len(fleet.claims.pending) == 2


async def test_nothing_is_claimed_for_a_lease_while_shards_are_about_to_be_taken():
    """A shard without an owner is about to be taken by a worker, which then has more."""
    fleet = Fleet("other")
    fleet.table.own("other", *NAMES)
    fleet.hides["other"] = 1
    await fleet.looks(0.5)
    fleet.me.sharing._settled_at = fleet.clock.now
    await fleet.looks(LEASE - 0.5)
    assert fleet.claims.pending == frozenset()
    await fleet.looks(0.5)
    assert fleet.claims.pending


async def test_a_fleet_that_is_settled_again_is_balanced_at_once():
    fleet = Fleet("other")
    fleet.table.own("other", *NAMES)
    fleet.hides["other"] = 1
    fleet.me.sharing._settled_at = fleet.clock.now
    await fleet.looks(2)
    assert fleet.claims.pending == frozenset()
    fleet.hides.clear()
    await fleet.looks(0.5)
    assert len(fleet.claims.pending) == 3


async def test_claims_are_of_whoever_has_most_to_spare_and_not_of_what_is_assigned():
    fleet = Fleet("rich", "poor", shards=[f"s{n}" for n in range(9)])
    mine = sorted(fleet.targets("me", "me", "rich", "poor"))
    fleet.table.own("poor", *mine)
    fleet.table.own("rich", *set(fleet.table.cursors) - set(mine))
    await fleet.looks(2)
    assert len(fleet.claims.pending) == 3
    assert not fleet.claims.pending & set(mine)
    for name in fleet.claims.pending:
        fleet.table.free(name)
    claimed = set(fleet.claims.pending)
    await fleet.looks(1)
    assert set(fleet.shards.taken) == claimed


async def test_an_older_roll_out_counts_with_its_weight_and_is_relieved_of_no_more():
    fleet = Fleet("old")
    fleet.join("old", generation=0)
    fleet.table.own("old", *NAMES)
    await fleet.looks(2)
    assert len(fleet.claims.pending) == 3


# -- give ------------------------------------------------------------------------------------------


async def test_a_claimed_shard_is_given_and_left_to_its_claimant_for_a_lease():
    fleet = Fleet()
    await fleet.looks(1)
    claimed = fleet.shards.held["s0"]
    fleet.join("other", claims=frozenset({token(claimed)}))
    await fleet.looks()
    assert fleet.shards.given == ["s0"]
    del fleet.shards.held["s0"]
    fleet.table.free("s0")
    del fleet.table.members["other"]  # it dies before it comes
    fleet.view.found(fleet.table.cursors["s0"])
    await fleet.looks(LEASE - 1)
    assert fleet.shards.taken.count("s0") == 1
    await fleet.looks(2)
    assert fleet.shards.taken.count("s0") == 2


async def test_a_shard_is_not_given_to_an_older_roll_out():
    fleet = Fleet()
    await fleet.looks(1)
    claims = frozenset({token(fleet.shards.held["s0"])})
    fleet.join("old", generation=0, claims=claims)
    await fleet.looks(2)
    assert fleet.shards.given == []


# -- what it must notice ---------------------------------------------------------------------------


async def test_a_worker_that_was_swept_says_so():
    fleet = Fleet()
    await fleet.looks(1)
    del fleet.table.members["me"]
    with pytest.raises(LeaseLost):
        await fleet.me.look()


async def test_own_shards_are_verified_now_and_then_and_at_once_after_standing_still():
    fleet = Fleet(shards=["s0"])
    await fleet.looks(2)
    fleet.shards.seen.clear()
    await fleet.looks(10)
    assert fleet.shards.seen == []
    fleet.clock.now += LEASE / 2
    await fleet.looks()
    assert fleet.shards.seen == ["s0"]
    await fleet.looks(REFRESH)
    assert len(fleet.shards.seen) == 2


async def test_a_worker_that_could_not_look_for_long_takes_nobody_for_dead():
    """All stood still together: the worker that wakes first must not take everything."""
    fleet = Fleet("other")
    fleet.table.own("other", *fleet.targets("other", "me", "other"))
    await fleet.looks(1)
    assert len(fleet.shards.taken) == 3
    fleet.silent.add("other")
    fleet.clock.now += 60.0
    await fleet.looks(LEASE - 1)
    assert len(fleet.shards.taken) == 3
    assert fleet.me.leases.silent(20.0) == []


async def test_a_worker_that_stands_by_does_not_look_in_a_hurry():
    fleet = Fleet("other")
    await fleet.looks(1)
    fleet.me.rollout.newest = 2
    fleet.view.found(fleet.table.cursors["s0"])
    await fleet.looks(1)
    assert not fleet.view.uncertain


# -- for the leader --------------------------------------------------------------------------------


async def test_the_leader_takes_what_nobody_has_read_between_two_audits_whosever_it_is():
    fleet = Fleet("other")
    await fleet.looks(1)
    left = sorted(fleet.targets("other", "me", "other"))
    fleet.table.own("other", *left[1:])
    await fleet.me.audit(frozenset(fleet.table.cursors))
    assert left[0] not in fleet.shards.taken
    fleet.clock.now += LEASE
    await fleet.me.audit(frozenset(fleet.table.cursors))
    assert fleet.shards.taken[-1] == left[0]
    assert not set(left[1:]) & set(fleet.shards.taken)


async def test_the_leader_tells_of_shards_whose_maker_died_before_it_told_of_them():
    fleet = Fleet("other")
    await fleet.looks(1)
    for name in ("new", "ended"):
        fleet.table.cursors[name] = Cursor(name, root=name, generation=1)
    fleet.table.cursors["ended"] = replace(fleet.table.cursors["ended"], state="finished")
    await fleet.looks(1)
    assert not {"new", "ended"} & fleet.view.known.open.keys()
    news = fleet.view.me.news
    await fleet.me.audit(frozenset({"ended", *NAMES}))
    assert fleet.view.me.news == news
    await fleet.me.audit(frozenset({"new", "ended", *NAMES}))
    assert (fleet.view.me.news, "new" in fleet.view.known.open) == (news + 1, True)


async def test_the_leader_counts_what_nobody_reads_and_how_old_it_is_until_somebody_reads_it():
    fleet, registry = Fleet("other"), Registry()
    meters, lister = Meters(registry, "shop"), SimpleNamespace(waiting=frozenset({"new"}))
    shards = SimpleNamespace(running={}, retries=SimpleNamespace(parked=0, stuck=0, oldest={}))

    def gauges(lister):
        leadership = SimpleNamespace(coordinator=fleet.me, lister=lister)
        report = report_of("shop", leadership, shards)
        sample([SimpleNamespace(meters=meters, report=report)])
        names = ("unread_shards", "lag_seconds", "time_to_loss_seconds")
        return tuple(registry.total(f"streamkit_{name}") for name in names)

    fleet.clock.now = 100_000.0
    await fleet.looks(1)
    first, second, *others = sorted(fleet.targets("other", "me", "other"))
    fleet.table.own("other", *others)
    fleet.shards.take = lambda cursor: None  # another one is ahead, or its generation is newer
    for name, age in ((first, 100), (second, 7000)):
        old = replace(fleet.table.cursors[name], seen=int(fleet.clock.time()) - age)
        fleet.table.cursors[name] = old
    await fleet.me.audit(frozenset(fleet.table.cursors))
    fleet.clock.now += LEASE
    await fleet.me.audit(frozenset(fleet.table.cursors))
    assert gauges(lister) == (3, 7000 + LEASE, 86_400 - 7000 - LEASE), "one has no cursor"
    assert gauges(None) == (0, 0, 86_400), "it leads no more"
    fleet.table.own("other", second)
    await fleet.me.audit(frozenset(fleet.table.cursors))
    assert gauges(lister)[:2] == (2, 100 + LEASE)
    fleet.table.own("other", first)
    await fleet.me.audit(frozenset(fleet.table.cursors))
    assert gauges(SimpleNamespace(waiting=frozenset())) == (0, 0, 86_400)


async def test_a_stall_while_the_roster_is_read_counts_as_one():
    fleet = Fleet("a")
    fleet.table.own("me", "s0")
    fleet.shards.held["s0"] = fleet.table.cursors["s0"]
    await fleet.looks(2.0)
    before, read = len(fleet.shards.seen), fleet.me.member_list.look

    async def slowly(*, fresh=True):
        fleet.clock.now += LEASE
        return await read(fresh=fresh)

    fleet.me.member_list.look = slowly
    await fleet.looks(0.5)
    assert len(fleet.shards.seen) > before


# -- readings that may be old ----------------------------------------------------------------------


async def led():
    """Return a fleet of two in which nothing happens, and what its member list was asked for."""
    fleet = Fleet("other", shards=NAMES[:1])
    fleet.table.own("other", *NAMES[:1])
    fleet.join("other", leads=True)
    await fleet.looks(1)
    asked = fleet.me.member_list.asked
    asked.clear()
    return fleet, asked


async def test_a_fleet_in_which_nothing_happens_is_read_at_half_the_price():
    fleet, asked = await led()
    await fleet.looks(REFRESH - 2)
    assert set(asked) == {False}
    await fleet.looks(2)
    assert True in asked, (
        "it is time to look at all shards: a worker that is no member may have joined"
    )


@pytest.mark.parametrize(
    "change", [{"state": "leaving"}, {"claims": frozenset("c")}, {"news": 1}, {"generation": 2}]
)
async def test_what_has_changed_is_read_afresh_before_it_counts(change):
    fleet, asked = await led()
    told = replace(fleet.table.members["other"], **change)
    fleet.me.member_list.old = lambda now: now | {"other": told}  # the next copy does not show it
    await fleet.looks(0.5)
    assert asked == [False, True]
    assert fleet.me.members["other"].state == "active"
    assert not fleet.me.members["other"].claims
    fleet.table.members["other"] = told
    await fleet.looks(0.5)
    assert fleet.me.members["other"].news == told.news


async def test_a_worker_that_an_old_reading_lacks_is_a_member():
    fleet, _ = await led()
    for gone in ("me", "other"):
        fleet.me.member_list.old = lambda now, gone=gone: {n: now[n] for n in now if n != gone}
        await fleet.looks(0.5)
        assert fleet.me.members.keys() == {"me", "other"}


async def test_old_readings_make_nobody_dead_and_delay_no_death():
    fleet, asked = await led()
    before = fleet.table.members["other"]
    fleet.me.member_list.old = lambda now: now | {"other": before}
    for _ in range(round(8 * LEASE)):
        await fleet.looks(0.5)
        assert fleet.me.members.keys() == {"me", "other"}
    assert False in asked
    fleet.me.member_list.old = lambda now: now
    await fleet.looks(1)
    fleet.silent.add("other")
    await fleet.looks(LEASE + 0.5)
    assert fleet.me.members.keys() == {"me"}


async def test_a_worker_that_waits_for_all_to_be_idle_reads_afresh():
    fleet, asked = await led()
    fleet.me.all_idle(idle=True)
    await fleet.looks(1)
    assert set(asked) == {True}


# -- co-located -------------------------------------------------------------------------------------


def following(*others, co_located=()):
    """Return a fleet in which "me" follows a first consumer that holds some shards."""
    fleet = Fleet(*others)
    fleet.co_located = set(co_located)
    fleet.me.sharing.co_location = lambda: fleet.co_located
    return fleet


async def test_a_follower_takes_at_once_what_its_first_consumer_holds_and_the_rest_after_a_lease():
    fleet = following(co_located=NAMES[:2])
    await fleet.looks(LEASE - 0.5)
    assert set(fleet.shards.taken) == set(NAMES[:2])
    await fleet.looks(1.5)
    assert sorted(fleet.shards.taken) == NAMES


async def test_a_follower_takes_at_once_the_child_of_a_shard_that_it_has_read_itself():
    """In an archive no first consumer holds it, and a lease for each generation adds up."""
    fleet = following()
    fleet.table.own("me", "s0")
    parent = replace(fleet.table.cursors["s0"], state="finished", children=frozenset({"c"}))
    fleet.table.cursors |= {"s0": parent, "c": Cursor("c", root="s0", parent="s0", generation=1)}
    await fleet.looks(1)
    assert fleet.shards.taken == ["c"]


async def test_a_follower_claims_what_its_first_consumer_gets_whatever_its_share_is():
    fleet = following("other")
    fleet.table.own("other", *NAMES[:3])
    fleet.table.own("me", *NAMES[3:])
    fleet.shards.held |= {name: fleet.table.cursors[name] for name in NAMES[3:]}
    fleet.co_located = {*NAMES[3:], "s0"}
    await fleet.looks(2)
    assert fleet.claims.pending == {"s0"}
    fleet.table.free("s0")
    await fleet.looks(1)
    assert fleet.shards.taken == ["s0"]


async def test_a_follower_drops_its_claim_when_its_first_consumer_has_lost_the_shard():
    fleet = following("other", co_located=["s0"])
    fleet.table.own("other", *NAMES)
    await fleet.looks(2)
    assert fleet.claims.pending == {"s0"}
    fleet.co_located = set()
    await fleet.looks(1)
    assert fleet.claims.tokens == frozenset()


async def test_a_follower_claims_nothing_for_its_share():
    fleet = following("other")
    fleet.table.own("other", *NAMES)
    await fleet.looks(LEASE * 3)
    assert fleet.claims.tokens == frozenset()


async def test_a_worker_that_is_not_co_located_claims_nothing_from_one_that_follows():
    fleet = Fleet()
    fleet.join("other", follows=True)
    fleet.table.own("other", *NAMES)
    await fleet.looks(LEASE * 3)
    assert fleet.claims.tokens == frozenset()


async def test_a_follower_whose_first_consumer_has_ended_shares_as_all_do():
    fleet = following("other")
    fleet.me.sharing.co_location = lambda: None
    fleet.table.own("other", *NAMES)
    await fleet.looks(LEASE * 3)
    assert len(fleet.claims.tokens) == 3


async def test_a_pause_is_seen_with_the_next_look():
    fleet = Fleet()
    await fleet.looks()
    assert not fleet.shards.paused
    fleet.table.paused = 1_800_000_000
    await fleet.looks()
    assert fleet.shards.paused
