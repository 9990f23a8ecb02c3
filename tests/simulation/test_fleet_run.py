"""What a run demands of a fleet: each demand finds the bug that is planted for it.

And what is printed of a failing seed: the smallest plan, and a command that shows it again.
"""

import shlex
from itertools import count

import pytest

from streamkit.core.checkpoints import Checkpoints
from streamkit.core.dispatch import Dispatcher
from streamkit.effects import Guard
from streamkit.model.conditions import Attr
from streamkit.progress import cursor
from streamkit.progress.actions import OURS
from streamkit.progress.cursor import CursorStore
from streamkit.progress.pacing import Pacing
from streamkit.stream.reader import ShardReader
from streamkit.worker.pipeline import ShardPipeline
from streamkit.worker.shardset import ShardSet
from tests.simulation import simulate
from tests.simulation.fleet_plan import LATE_AT, LATE_EVERY, PATIENT, draw
from tests.simulation.fleet_run import FleetRun, run
from tests.simulation.plan import Plan, PlannedEvent
from tests.simulation.shop import TABLE

HOUR = 3600.0
OVERDUE = range(LATE_AT - 1, 60, LATE_EVERY)
"""The first seeds whose plans are late."""


def short(*events, workers=1, shards=1):
    """Some seconds of work."""
    starts = tuple(PlannedEvent("start", at=0.0, worker=n, version=1) for n in range(workers))
    write = PlannedEvent("write", at=1.0, count=6, seed=3, poison=0.0)
    shape = {"shards": shards, "seconds": 3.0, "settings": {}, "engine": {}}
    return Plan(shape, (*starts, write, *events))


def outage(hours):
    """A shard that stays, a write, an outage in which there is another one, and a third."""
    back = hours * HOUR
    shape = {
        "shards": 1,
        "seconds": back + HOUR,
        "settings": PATIENT,
        "on_loss": "resume",
        "engine": {"roll_after": None},
    }
    write = {"count": 6, "poison": 0.0}
    return Plan(
        shape,
        (
            PlannedEvent("start", at=0.0, worker=0, version=1),
            PlannedEvent("write", at=1.0, seed=3, **write),
            PlannedEvent("stop", at=600.0, worker=0),
            PlannedEvent("write", at=1200.0, seed=4, **write),
            PlannedEvent("start", at=back, worker=1, version=1),
            PlannedEvent("write", at=back + 60.0, seed=5, **write),
        ),
    )


def late_request(patch):
    """While all is calm, the application writes what a handler wrote long ago."""
    calm = FleetRun.calm

    async def disturbed(self):
        key = {"PK": {"S": "EDITS#1"}, "SK": {"S": "EDITS#1"}}
        self.world.engine.call(
            "dynamodb", "PutItem", {"TableName": TABLE, "Item": {**key, "edits": {"N": "77"}}}
        )
        await calm(self)

    patch.setattr(FleetRun, "calm", disturbed)


def refused(*_arguments, **_named):
    raise RuntimeError("planted")


def fickle(patch):
    pages = count(1)

    def note_read(self):
        if next(pages) % 5 == 0:
            self.give_all()

    patch.setattr(ShardSet, "note_read", note_read)


async def nothing(*_arguments, **_named):
    return None


PLANTED = {
    "liveness": ("shards are never taken", lambda p: p.setattr(ShardSet, "take", lambda *_: None), short()),
    "idle": ("quiet shards are polled all the time", lambda p: p.setattr(Pacing, "pause", lambda *_: 0.03), short()),
    "hotloop": ("nothing is waited for", lambda p: p.setattr(Pacing, "pause", lambda *_: 0.001), short()),
    "thrash": ("a shard is given up now and then", fickle, short()),
    "late": ("an old request takes effect in the end", late_request, short()),
    "stop": ("leases are not released", lambda p: p.setattr(CursorStore, "release", nothing), short()),
    "error": ("a worker ends in an error", lambda p: p.setattr(Dispatcher, "dispatch", refused), short()),
    "retention": ("nothing is ever lost", lambda p: p.setattr(ShardReader, "_is_fresh", lambda _: True), outage(30)),
    "books": ("a page is forgotten", lambda p: p.setattr(ShardPipeline, "_hand_over", without_works(ShardPipeline._hand_over)), short()),
}  # fmt: skip


def without_works(hand_over):
    return lambda self, page, _works, traffic: hand_over(self, page, [], traffic)


@pytest.mark.parametrize("invariant", PLANTED)
def test_a_planted_bug_fails_a_run_and_is_named(invariant, monkeypatch):
    bug, plant, plan = PLANTED[invariant]
    assert not run(3, plan).failed
    plant(monkeypatch)
    found = run(3, plan)
    assert found.invariant == invariant, f"{bug}: {found.violations}"


def test_a_loss_is_left_out_of_what_the_table_must_hold():
    kept, lost = run(3, outage(20)), run(3, outage(30))
    assert not kept.failed
    assert not lost.failed
    assert kept.counts["lost"] == kept.counts["loss"] == kept.counts["possible_loss"] == 0
    assert lost.counts["lost"] == 6
    assert lost.counts["loss"] == 1
    assert lost.counts["change"] == kept.counts["change"] - 6


def test_a_loss_that_ends_a_worker_fails_a_run_whose_app_did_not_say_to_go_on():
    plan = outage(30)
    halts = Plan({**plan.shape, "on_loss": "halt"}, plan.events)
    (violation, *_) = run(3, halts).violations
    assert violation.invariant == "error"
    assert "RetentionLost" in violation.text


def test_seeds_whose_writes_are_overdue_find_a_fence_that_forgets_what_was_committed(monkeypatch):
    """A commit that arrives again when its token is forgotten comes from the present owner."""
    clean = run(OVERDUE[0], draw(OVERDUE[0]))
    assert not clean.failed, clean.violations
    assert clean.counts["overdue"]
    assert clean.counts["late_reply"]

    def forgetful(cursor):
        lease = Attr("owner").eq(cursor.owner) & Attr("epoch").eq(cursor.epoch)
        return Guard(lease & Attr("generation").eq(cursor.generation)), OURS

    monkeypatch.setattr(cursor, "lease_guard", forgetful)
    found = (run(seed, draw(seed)).invariant for seed in OVERDUE)
    assert any(invariant in {"books", "positions"} for invariant in found)


# -- the smallest plan -----------------------------------------------------------------------------


@pytest.fixture
def failing(monkeypatch):
    """A bug that shows when a shard has two children, and a seed that meets it among much else."""
    end = Checkpoints.end

    async def confused(self, children):
        if len(children) > 1:
            raise RuntimeError("planted")
        return await end(self, children)

    monkeypatch.setattr(Checkpoints, "end", confused)
    plan = short(
        PlannedEvent("roll", at=0.5, shard=0),
        PlannedEvent("split", at=1.5, shard=0),
        PlannedEvent("fault", worker=0, call=30, kind="throttle"),
        PlannedEvent("write", at=2.0, count=3, seed=4, poison=0.5),
        PlannedEvent("freeze", at=2.5, worker=0, seconds=1.0),
    )
    monkeypatch.setattr(simulate, "draw", lambda _seed: plan)
    return plan


def test_a_failing_seed_is_shrunk_to_what_it_takes(failing):
    outcome, smallest = simulate.tried(17, 40)
    assert outcome.invariant == "error"
    assert [event.what for event in smallest.events] == ["split"]
    assert smallest.shape == failing.shape


@pytest.mark.usefixtures("failing")
def test_the_printed_plan_and_the_printed_command_show_the_failure_again(monkeypatch, capsys):
    outcome, smallest = simulate.tried(17, 40)
    told = simulate.told(outcome, smallest)
    literal = told[told.index("Plan(") :]
    again = run(17, eval(literal, {"Plan": Plan, "Event": PlannedEvent}))
    assert "RuntimeError: planted" in again.violations[0].text
    (command,) = [line.removeprefix("   or: ") for line in told.splitlines() if "   or: " in line]
    _python, flag, module, *arguments = shlex.split(command)
    assert (flag, module) == ("-m", simulate.__spec__.name)
    monkeypatch.setenv("PYTHONHASHSEED", "0")
    monkeypatch.setattr("sys.argv", [module, *arguments, "--shrink", "0"])
    capsys.readouterr()
    assert simulate.main() == 1
    assert str(outcome.violations[0]) in capsys.readouterr().out


def test_a_plan_that_does_not_fail_is_not_shrunk(monkeypatch):
    monkeypatch.setattr(simulate, "draw", lambda _seed: short())
    outcome, smallest = simulate.tried(17, 40)
    assert (outcome.failed, smallest) == (False, None)
