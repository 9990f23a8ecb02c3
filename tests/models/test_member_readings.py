"""The rule for old readings holds in every world, the simpler ones break, and the code follows it."""

import pytest

from streamkit.fleet.heartbeat import late_after
from streamkit.fleet.members import Attendance, Member
from streamkit.progress.lease import LeaseWatch
from tests.models.explorer import LARGE, explore, follow, walks
from tests.models.member_readings import LEASE, NAIVE, Ours, Readings


def test_no_living_member_is_dead_and_nothing_goes_back_in_any_world():
    assert explore(Readings()).broken == {}


@pytest.mark.parametrize("name", NAIVE)
def test_a_rule_that_looks_simpler_breaks(name):
    rule, breaks = NAIVE[name]
    assert breaks in explore(Readings(rule), until=breaks).broken


class Code(Ours):
    """The code of a worker in place of the rule."""

    def fresh(self, silence):
        leases = LeaseWatch(float(LEASE))
        leases.note("other", 1, asked=0.0, answered=0.0)
        return max(leases.silences(float(silence))) >= late_after(LEASE, LEASE / 2) / LEASE

    def again(self, read, acted):
        before, now = (
            Attendance({"other": Member("other", news=-lacks, beats=-lacks)})
            for lacks in (acted, read)
        )
        return not now.is_like(before)


def test_the_code_reads_afresh_when_the_rule_says_so():
    assert explore(Readings(Code())).broken == {}


def test_the_code_takes_a_member_for_dead_exactly_when_the_model_does():
    for trace in walks(
        Readings(), 3000 if LARGE else 300, 60, weigh=lambda s: 1 + (s[0] == "silence")
    ):
        leases, now, sent, read = LeaseWatch(float(LEASE)), 0.0, 0, 0
        leases.note("other", 0, asked=now, answered=now)
        for (told, _), world in follow(Readings(), trace):
            now, sent = now + 1, sent + (told != "silence")
            if not world.asked:
                read = sent - world.counter
                leases.note("other", read, asked=now, answered=now)
            assert leases.is_abandoned("other") == world.is_dead


def test_members_with_other_leases_are_judged_by_their_own():
    assert "alive" in explore(Readings(judged_by=LEASE // 2), until="alive").broken
    leases = LeaseWatch(LEASE / 2)
    for now in range(LEASE + 1):
        counters, told = {"rare": 0, "often": 0, "old": 0}, {"rare": float(LEASE), "often": 2.0}
        leases.observe(counters, asked=now, answered=now, leases=told)
        dead = {name for name in counters if leases.is_abandoned(name)}
        due = {"rare": LEASE, "often": 2, "old": LEASE / 2}
        assert dead == {name for name in counters if now >= due[name]}
