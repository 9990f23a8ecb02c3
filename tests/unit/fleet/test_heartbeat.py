"""The heartbeat: what it says, when, and for how long, on a clock that costs no time."""

import anyio
import pytest

from streamkit.fleet.heartbeat import _NAMED_MAX, Facts, Heartbeat, late_after
from streamkit.fleet.members import Member
from streamkit.fleet.starvation import longest
from streamkit.testing.loop import EPOCH, VirtualClock, run_virtually

BEAT, LEASE = 3.0, 10.0


class Written:
    """A member list that keeps what it is given, and when; each write may take a while.

    `wrong` is how many seconds the table's clock is ahead of this machine's.
    """

    def __init__(self, *durations, wrong=0.0):
        self.durations, self.wrong = list(durations), wrong
        self.clock, self.seen, self.at = VirtualClock(), [], []
        self.during = lambda: None

    async def add(self, member):
        return await self.write(member)

    async def write(self, member):
        self.seen.append(member)
        self.at.append(self.clock.monotonic())
        self.during()
        await anyio.sleep(self.durations.pop(0) if self.durations else 0)
        return self.clock.time() + self.wrong

    async def remove(self, name):
        pass


def beats(written, seconds, facts=None, lease_seconds=LEASE):
    """Let a worker join, and beat for some seconds."""
    heartbeat = Heartbeat(written, Member("me"), BEAT, written.clock, lease_seconds)

    def ask():
        return facts or Facts(0, frozenset(), idle=True)

    async def run():
        await heartbeat.join(ask)
        with anyio.move_on_after(seconds):
            await heartbeat.beat_for_ever(ask)

    run_virtually(run)
    return heartbeat


@pytest.mark.parametrize(("lease", "beat", "late"), [(10, 3, 5), (10, 4, 6)])
def test_a_heartbeat_is_late_after_half_a_lease_and_more_than_its_interval(lease, beat, late):
    assert late_after(lease, beat) == late


def test_a_worker_says_that_it_was_late_for_as_long_as_a_lease_becomes():
    written = Written(0, 0, 20.0)
    beats(written, 300)
    said = [at for at, member in zip(written.at, written.seen, strict=True) if member.late]
    ended = written.at[2] + 20
    assert said[0] == pytest.approx(ended + BEAT)
    assert said[-1] == pytest.approx(ended + longest(LEASE) * LEASE, abs=BEAT)


def test_a_worker_says_how_long_its_lease_is_if_it_has_one():
    assert beats(Written(), 1).me.lease == LEASE
    assert Heartbeat(Written(), Member("me"), BEAT, VirtualClock()).me.lease == 0


@pytest.mark.parametrize(("said", "next_at"), [("active", 4.0), ("joining", 7.0)])
def test_what_becomes_known_during_a_heartbeat_is_said_by_the_next_one_at_once(said, next_at):
    written = Written(1.0)
    heartbeat = Heartbeat(written, Member("me"), BEAT, written.clock, LEASE)
    written.during = lambda: len(written.seen) > 1 or heartbeat.say(state=said)

    async def run():
        with anyio.move_on_after(9):
            await heartbeat.beat_for_ever(lambda: Facts(0, frozenset(), idle=True))

    run_virtually(run)
    assert written.at[:2] == [3.0, next_at]
    assert written.seen[1].state == said


@pytest.mark.parametrize(("wrong", "corrected"), [(100, 100), (-100, -100), (4, 0), (-4, 0)])
def test_a_heartbeat_says_when_it_came_by_the_tables_clock_if_ones_own_is_wrong(wrong, corrected):
    written = Written(wrong=wrong)
    beats(written, 4)
    assert written.seen[1].at == int(EPOCH + written.at[1]) + corrected


def test_a_worker_that_has_just_joined_is_well():
    written = Written()
    heartbeat = Heartbeat(written, Member("me"), BEAT, written.clock, LEASE)

    async def run():
        await anyio.sleep(100)
        await heartbeat.join(lambda: Facts(0, frozenset(), idle=True))
        well = [heartbeat.is_well(LEASE)]
        await anyio.sleep(15)
        return [*well, heartbeat.is_well(LEASE), heartbeat.is_well(4 * LEASE)]

    assert run_virtually(run) == [True, False, True]


def test_a_heartbeat_stays_small_whatever_is_to_be_said():
    waits = [("handler", f"shard-{n:03d}") for n in range(100)]
    facts = Facts(0, frozenset(), idle=True, waits=waits, refused="why " * 1000)
    me = beats(Written(), 1, facts).me
    assert me.waits == {f"shard-{n:03d} handler" for n in range(_NAMED_MAX)}
    assert len(me.refused) == 500
    heartbeat = Heartbeat(Written(), Member("me"), BEAT, Still())
    for _, shard in waits:
        heartbeat.await_children(shard)
    assert (heartbeat.childless, len(heartbeat.me.childless)) == (100, _NAMED_MAX)
    heartbeat.note_parents({shard for _, shard in waits[:-1]})
    assert heartbeat.me.childless == {"shard-099"}, "the next ones are named then"


class Still:
    """A clock that stands still."""

    def monotonic(self):
        return 0.0
