"""The commit loop, before a fence that answers each commit as it is told.

Whatever a fence answers, in whatever order: each change is committed once, those of an item in
order, or it is parked, or it is left with all that is behind it.
"""

import random
from dataclasses import replace
from types import SimpleNamespace

import anyio
import pytest

from streamkit import Policy
from streamkit.core import loop as loops
from streamkit.core.failures import DispatchCounts, Failures
from streamkit.core.loop import CommitLoop, Overtaken
from streamkit.core.parking import Failure
from streamkit.core.planning import Planner
from streamkit.core.queued_keys import QueuedKeys
from streamkit.core.reads import Read
from streamkit.core.tables import Tables
from streamkit.core.tracing import NO_TRACING
from streamkit.progress.actions import READ, GuardSource
from streamkit.progress.commit import Applied
from streamkit.progress.control import Cursor
from streamkit.progress.pacing import Pace, Pacing
from streamkit.progress.verdicts import Again, Invalid, RefusedCommit
from streamkit.testing.loop import run_virtually
from tests.pending import SCHEMA, SPACE, Clock, add, done, handler, pending_change

ANSWERS = ("apply", "refuse", "invalid", "again", "throttle", "overtake")


class Fence:
    """Counts what is committed; answers as the script says, and then applies everything."""

    def __init__(self, script):
        self.script, self.applied, self.parked, self.overtaken = list(script), [], [], []
        self.asked = 0

    start = Cursor("made up")

    def count(self):
        self.asked += 1
        assert self.asked < 100, "commits without end"

    async def commit(self, plan, pending):
        self.count()
        answer = self.script.pop(0) if self.script else "apply"
        taken = [change.position for change in list(pending)[: plan.changes]]
        first = pending[0]
        if answer == "refuse":
            return RefusedCommit((GuardSource(first.position, "h", READ),))
        if answer == "invalid":
            return Invalid((), "ValidationError")
        if answer in ("again", "throttle"):
            return Again(throttled=answer == "throttle")
        if answer == "overtake":
            self.overtaken.append(first.position)
            return Overtaken(list(pending)[1:])
        self.applied += taken
        self.parked += [w.position for w in list(pending)[: plan.changes] if w.outcomes[0].parks]
        return Applied(plan)

    def drop(self, plan, pending):
        return [pending.popleft() for _ in range(plan.changes)]

    def adopted(self, won):
        pass


class Picky(Fence):
    """Finds the effects of some changes invalid, by their numbers."""

    def __init__(self, bad):
        super().__init__(())
        self.bad = {f"THING#x{number}" for number in bad}

    def count(self):
        self.asked += 1
        assert self.asked < 2_000, "commits without end"

    async def commit(self, plan, pending):
        if self.bad.isdisjoint(action.ref.pk[1] for action in plan.actions):
            return await super().commit(plan, pending)
        self.count()
        return Invalid((), "ValidationError")


class Dispatcher:
    """Runs a handler again by making the same effect, and counts."""

    schema, tracing, clock, have_read = SCHEMA, NO_TRACING, Clock(), True

    def __init__(self):
        self.counts = DispatchCounts()
        self.failures = Failures(self.counts, Clock())
        self.finished, self.repeated, self.runs = [], 0, self
        self.sending = SimpleNamespace(send_all=self.send_all)
        self.sink_works = True

    def committed(self, one):
        self.finished.append(one.position)

    async def run(self, one, outcome, uncommitted, shard_id, until):
        self.repeated += 1
        outcome.waiting = False

    async def send_all(self, sends, shard, until):
        if not self.sink_works:
            await anyio.sleep_forever()
        for _, outcome in sends:
            outcome.sent = True
        return True


def make_loop(script, count=6, by=None, **options):
    fence, dispatcher, planner = Fence(script), Dispatcher(), Planner(SPACE, Clock(), "shard-1")
    held, tables = QueuedKeys(None, planner.queues), Tables(SCHEMA)
    pacing = Pacing(Pace(), random.Random(1))
    made = CommitLoop(fence, dispatcher, planner, held, tables, pacing, **options)
    made.pending.extend(
        pending_change(n, done(n, add(f"x{n}"), by=by or handler()), name=f"x{n}")
        for n in range(1, count + 1)
    )
    return made, fence, dispatcher


def positions(*numbers):
    return [str(number).zfill(40) for number in numbers]


@pytest.mark.parametrize("seed", range(40))
def test_whatever_a_fence_answers_each_change_is_done_once_and_in_order(seed):
    rng = random.Random(seed)
    script = rng.choices(ANSWERS, k=rng.randrange(12))
    loop, fence, dispatcher = make_loop(script)
    run_virtually(loop.run)
    assert not loop.left
    assert sorted(fence.applied + fence.overtaken) == positions(*range(1, 7))
    assert fence.applied == sorted(fence.applied)
    assert dispatcher.finished == fence.applied, "what another run has done is not counted here"


def test_an_action_that_cannot_be_stored_is_found_by_halving_and_its_change_alone_is_parked():
    loop, _, dispatcher = make_loop(())
    loop.fence = fence = Picky({4})
    run_virtually(loop.run)
    assert fence.applied == dispatcher.finished == positions(*range(1, 7))
    assert fence.parked == positions(4)


@pytest.mark.parametrize(
    ("bad", "commits"),
    [(range(1, 401), 1_210), (range(1, 401, 10), 450), ([200], 20), ([], 5)],
    ids=["all", "a tenth", "one", "none"],
)
def test_many_changes_that_cannot_be_stored_cost_three_commits_each(bad, commits):
    by = replace(handler("h"), policy=Policy(breaker=False))
    loop, _, dispatcher = make_loop((), count=400, by=by)
    loop.fence = fence = Picky(bad)
    run_virtually(loop.run)
    assert fence.parked == positions(*bad)
    assert fence.applied == dispatcher.finished == positions(*range(1, 401))
    assert fence.asked <= commits


def test_a_result_that_is_refused_too_often_for_what_it_read_is_parked():
    loop, fence, dispatcher = make_loop(["refuse"] * 20, count=1)
    run_virtually(loop.run)
    assert fence.parked == positions(1)
    assert dispatcher.repeated == 5


def test_a_handler_that_blocks_runs_again_after_each_series_of_refusals():
    by = replace(handler(), policy=Policy(on_failure="block"))
    loop, fence, dispatcher = make_loop(["refuse"] * 20, count=1)
    loop.pending[0].outcomes[0].handler = by

    async def run():
        with anyio.fail_after(3600):
            await loop.run()

    run_virtually(run)
    assert (fence.applied, fence.parked) == (positions(1), [])
    assert dispatcher.repeated == 20


def test_a_commit_resets_the_pauses_that_refusals_before_it_have_made_longer():
    loop, _, _ = make_loop(["throttle"] * 5 + ["apply"])
    run_virtually(loop.run)
    assert loop.pacing.contended(throttled=False) <= 2 * 0.02


@pytest.mark.parametrize("patient", [True, False])
def test_an_invalid_result_of_a_handler_that_blocks_is_waited_for_or_left(patient):
    loop, fence, _ = make_loop(["invalid"] * 4, count=1, patient=patient)
    outcome = loop.pending[0].outcomes[0]
    outcome.handler = replace(handler(), policy=Policy(on_failure="block"))
    pauses: list[bool] = []

    def contended(*, throttled):
        pauses.append(throttled)
        return 1.0

    loop.pacing = SimpleNamespace(contended=contended, committed=lambda: None)
    run_virtually(loop.run)
    assert loop.left is not patient
    assert fence.applied == (positions(1) if patient else [])
    assert pauses == ([True] * 4 if patient else [])


def test_a_host_that_stops_does_not_wait_until_parking_is_accepted():
    loop, fence, _ = make_loop(["invalid"] * 30, count=2)
    loop.stopping.set()
    run_virtually(loop.run)
    assert loop.left
    assert fence.applied == []


def test_a_stale_result_that_the_deadline_cuts_off_while_it_is_made_again_is_left():
    async def run():
        loop, fence, dispatcher = make_loop((), count=1, patient=False)
        seen = ((positions(0)[0], "h", 1),)  # the change before is not pending any more
        (outcome,) = loop.pending[0].outcomes
        outcome.reads = (Read(next(iter(outcome.actions)), seen),)

        async def again(change, outcome, uncommitted, shard_id, until):
            await anyio.sleep_forever()

        async def learn_tails(pending):
            fence.count()

        dispatcher.run, loop.queued_keys.learn_tails = again, learn_tails
        loop.deadline = anyio.current_time() + 5
        await loop.run()
        assert (loop.left, loop.cut, fence.applied) == (True, True, [])

    run_virtually(run)


@pytest.mark.parametrize("patient", [True, False])
def test_where_parking_is_refused_a_patient_host_waits_and_another_leaves_the_rest(patient):
    loop, fence, _ = make_loop(["invalid"] * 30, count=2, patient=patient)
    run_virtually(loop.run)
    assert loop.left is not patient
    assert fence.applied == (positions(1, 2) if patient else [])


def test_a_host_that_does_not_park_leaves_what_is_behind_a_failure():
    loop, fence, _ = make_loop(["apply"], count=3)
    loop.planner.parks, failure = False, Failure("ValueError", "no")
    loop.pending[1].outcomes[0].fail(failure)
    run_virtually(loop.run)
    assert (loop.left, loop.failure) == (True, failure)
    assert (fence.applied, len(loop.pending)) == (positions(1), 2)


def test_a_handler_that_blocks_is_left_to_another_owner_once_the_host_stops():
    by = handler("h")
    loop, fence, dispatcher = make_loop(())
    loop.pending.clear()
    one = pending_change(1, done(1, add("x"), by=by))
    one.outcomes[0].waiting = True
    loop.pending.append(one)

    async def run(change, outcome, uncommitted, shard_id, until):
        loop.stopping.set()  # meanwhile; the outcome still waits

    dispatcher.runs.run = run
    run_virtually(loop.run)
    assert loop.left
    assert fence.applied == []


def test_plain_writes_go_out_once_their_commit_has_won(monkeypatch):
    written = []

    async def write_plainly(dynamodb, tables, actions):
        written.append(list(actions))

    monkeypatch.setattr(loops, "write_plainly", write_plainly)
    loop, fence, _ = make_loop(["again", "apply"], count=1)
    (action,) = loop.pending[0].outcomes[0].actions.values()
    action.plain = True
    loop.queued_keys.store = SimpleNamespace(dynamodb=None)
    run_virtually(loop.run)
    assert fence.applied == positions(1)
    assert [[a.ref for a in actions] for actions in written] == [[action.ref]]
