"""The rule for starved fleets holds in every schedule, the naive ones do not, and the code is ours."""

import pytest

from streamkit.fleet.heartbeat import late_after
from streamkit.fleet.members import Member
from streamkit.fleet.starvation import LONGEST, Starvation
from streamkit.progress.lease import LeaseWatch
from tests.models.starved_fleet import (
    BEAT,
    CHECKS,
    LATE,
    LEASE,
    MOST,
    NAIVE,
    Judge,
    broken,
    ours,
)


class Code:
    """The code of a worker in place of the specification."""

    def __init__(self, me):
        self.leases, self.starvation = LeaseWatch(LEASE, LEASE / 2), Starvation(LEASE, LATE)

    def look(self, beats, told, own_gap, now):
        members = [
            Member(str(name), beats=count, late=late)
            for name, (count, late) in enumerate(zip(beats, told, strict=True))
        ]
        self.starvation.note(members, asked=now, answered=now)
        self.leases.times = self.starvation.times
        well = own_gap <= late_after(self.leases.times * LEASE, BEAT)
        self.leases.observe({m.name: m.beats for m in members}, asked=now, answered=now, well=well)
        return {name for name in range(len(beats)) if self.leases.is_abandoned(str(name))}


def test_the_rule_holds_in_every_schedule_that_is_looked_at():
    assert broken(lambda me: Judge(me, ours)) == {}


def test_the_code_holds_in_every_schedule_that_is_looked_at():
    assert (LONGEST, late_after(LEASE, BEAT)) == (MOST, LATE)
    assert broken(Code) == {}


@pytest.mark.parametrize("name", NAIVE)
def test_a_rule_that_looks_simpler_breaks(name):
    rule, breaks = NAIVE[name]
    assert next(CHECKS[breaks](lambda me: Judge(me, rule)), None) is not None


def test_a_longer_lease_alone_is_not_enough_for_a_worker_that_seldom_looks():
    assert next(CHECKS["found"](lambda me: Judge(me, ours, blinds=False)), None) is not None
