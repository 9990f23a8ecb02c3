"""The rule for starved fleets holds in every schedule, the naive ones do not, and the code is ours."""

import pytest

from streamkit.fleet.heartbeat import late_after
from streamkit.fleet.members import Member
from streamkit.fleet.starvation import Starvation, longest
from streamkit.progress.lease import LeaseWatch
from tests.models import starved_fleet as model
from tests.models.starved_fleet import CHECKS, NAIVE, Judge, broken, ours


@pytest.fixture(params=[(7.0, 3.0), (4.25, 2.0), (4.0, 2.0)], ids=["long", "default", "short"])
def settings(request, monkeypatch):
    """Let the model have this lease and heartbeat."""
    lease, beat = request.param
    named = {"LEASE": lease, "BEAT": beat, "SHORT": int(beat), "LATE": late_after(lease, beat)}
    named["MOST"] = 4 if lease == 7 else 7
    named["HEALTHY"] = tuple(range(1, model.SECONDS + int(beat), int(beat)))
    for name, value in named.items():
        monkeypatch.setattr(model, name, value)


class Code:
    """The code of a worker in place of the specification."""

    def __init__(self, me):
        lease = model.LEASE
        self.leases, self.starvation = LeaseWatch(lease, lease / 2), Starvation(lease, model.LATE)

    def look(self, beats, told, own_gap, now):
        members = [
            Member(str(name), beats=count, late=late)
            for name, (count, late) in enumerate(zip(beats, told, strict=True))
        ]
        self.starvation.note(members, asked=now, answered=now)
        self.leases.times = self.starvation.times
        well = own_gap <= late_after(self.leases.times * model.LEASE, model.BEAT)
        self.leases.observe({m.name: m.beats for m in members}, asked=now, answered=now, well=well)
        return {name for name in range(len(beats)) if self.leases.is_abandoned(str(name))}


@pytest.mark.usefixtures("settings")
def test_the_rule_holds_in_every_schedule_that_is_looked_at():
    assert broken(lambda me: Judge(me, ours)) == {}


@pytest.mark.usefixtures("settings")
def test_the_code_holds_in_every_schedule_that_is_looked_at():
    assert (longest(model.LEASE), late_after(model.LEASE, model.BEAT)) == (model.MOST, model.LATE)
    assert broken(Code) == {}


@pytest.mark.usefixtures("settings")
def test_a_short_lease_that_becomes_four_times_as_long_is_not_enough(monkeypatch):
    monkeypatch.setattr(model, "MOST", 4)
    fails = next(CHECKS["found"](lambda me: Judge(me, ours)), None)
    assert (fails is None) == (model.LEASE == 7)


@pytest.mark.parametrize("name", NAIVE)
def test_a_rule_that_looks_simpler_breaks(name):
    rule, breaks = NAIVE[name]
    assert next(CHECKS[breaks](lambda me: Judge(me, rule)), None) is not None


def test_a_longer_lease_alone_is_not_enough_for_a_worker_that_seldom_looks():
    assert next(CHECKS["found"](lambda me: Judge(me, ours, blinds=False)), None) is not None
