"""Every fence keeps what the commit loop promises, whatever its commits meet.

A fence is a row of `fences.FENCES`. Each test plays all rows: what is pending is committed by a
host that is disturbed, and by the next ones until nothing is left. The table must be what one
undisturbed pass leaves, so that nothing is lost and nothing is applied twice.
"""

import math
import random
from collections import Counter
from functools import cache, partial

import anyio
import msgspec
import pytest

from streamkit.core.draft import Draft
from streamkit.core.loop import CommitLoop
from streamkit.errors import ConfigurationError
from streamkit.kinds.aggregate import backfill
from streamkit.testing import every_crash, every_freeze
from streamkit.testing.chance import repeatable
from streamkit.testing.faults import inflict
from streamkit.testing.world import Process
from tests.rigs import Rig
from tests.simulation import fences
from tests.simulation.fences import CASES, FENCES, FULL, ITEMS, NAMES, ODD, SALES, SETTINGS, put

LATER = 1000
"""Seconds after which nothing is on its way any more."""
TRIES = 6
"""Calls that one transaction meets a trouble with: more than the client itself repeats."""


def make(fence, case):
    return Rig(fence.app(case), shards=1, settings=SETTINGS)


def final(harness):
    """Return what is left behind: items, parked changes, and what has been delivered."""
    items = sorted(map(repr, harness.items()))
    parked = sorted((p.handler, p.error or "", p.to, p.position) for p in harness.parked())
    (sink,) = harness.app.sinks or [None]
    sent = {(d.body["name"], d.key) for d in sink.got} if sink else set()
    return items, parked, sent


@cache
def undisturbed(fence, case):
    """Return what one pass leaves, and how many commits it takes."""
    with repeatable(0), make(fence, case) as harness:
        pending = fence.prepare(harness, case)
        wire = Wire(fence)
        within(harness, wire, lambda aws: fence.drive(harness, aws, pending))
        return final(harness), wire.commits


def within(harness, wire, work):
    """Do something with clients of a process whose calls meet a wire."""

    async def run():
        async with harness.world.clients(Process("host", faults=wire)) as aws:
            await work(aws)

    harness._run(run())


class Wire:
    """Counts the transactions that commit results; one of them meets something."""

    def __init__(self, fence, at=None, meet=None):
        self.fence, self.at, self.meet = fence, at, meet
        self.tokens, self.met = [], 0

    @property
    def commits(self):
        return len(self.tokens)

    async def intercept(self, call, apply):
        if not self.fence.is_commit(call):
            return apply()
        token = msgspec.json.decode(call.payload)["ClientRequestToken"]
        if token not in self.tokens:
            self.tokens.append(token)
        if self.tokens.index(token) != self.at or self.met == TRIES:
            return apply()
        self.met += 1
        return await self.meet(call, apply)


def applicable(modes):
    return [
        pytest.param(fence, mode, id=f"{fence}-{mode}")
        for fence in FENCES
        for mode in modes
        if mode not in fence.never
    ]


# -- one pass --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("fence", "case"), applicable(CASES))
def test_one_pass_applies_each_result_once_and_leaves_out_what_a_case_says(fence, case):
    (items, parked, sent), commits = undisturbed(fence, case)
    assert commits == fence.commits or case != "plain"
    counted = Counter(item.count("'times': {'N': '1'}") for item in items if "TALLY#" in item)
    if fence.name == "segment":
        found = sum("'sales': {'N': '1'}" in item for item in items)
        assert found == SALES - (case == "condition")
        return
    if fence.name == "reset":
        assert [("OF#050" in item, "'sales': {'N': '1'}" in item) for item in items] == [
            (True, True)
        ], "what was stored is gone, and what was counted since is there"
        return
    without = case in ("condition", "invalid", "sends")
    each = {"several": 3 * ITEMS, "full": FULL}.get(case, ITEMS)
    assert counted == {1: each * (len(NAMES) - without)}, "each exactly once"
    assert len(parked) == (case in ("invalid", "sends"))
    assert {name for name, _ in sent} == (set(NAMES) - {ODD} if case == "sends" else set())
    assert len(sent) == len({name for name, _ in sent}), "each under one key"


# -- stops -----------------------------------------------------------------------------------------


def stopped(fence, case):
    """Return a scenario whose host is an operation, and which ends as one pass does."""
    expected, _ = undisturbed(fence, case)

    def scenario(harness):
        pending = fence.prepare(harness, case)
        harness.operate(lambda aws: fence.drive(harness, aws, pending))
        assert final(harness) == expected

    return scenario


@pytest.mark.parametrize("fence", FENCES, ids=str)
def test_a_host_that_is_killed_at_any_call_leaves_what_one_pass_does(fence):
    scenario = stopped(fence, "plain")
    made = lambda: make(fence, "plain")  # noqa: E731
    assert list(every_crash(scenario, made, part="operation", sample=12))


@pytest.mark.parametrize("fence", FENCES, ids=str)
def test_a_host_that_stands_still_at_any_call_leaves_what_one_pass_does(fence):
    scenario = stopped(fence, "plain")
    for _ in every_freeze(scenario, lambda: make(fence, "plain"), part="operation", sample=8):
        pass


@pytest.mark.parametrize(("fence", "case"), applicable([case for case in CASES if case != "plain"]))
def test_whatever_is_pending_a_host_killed_at_any_call_leaves_what_one_pass_does(fence, case):
    scenario, made = stopped(fence, case), lambda: make(fence, case)
    for _ in every_crash(scenario, made, part="operation", sample=2):
        pass


# -- what a commit meets ---------------------------------------------------------------------------


async def delay(call, apply):
    await anyio.sleep(90)
    return apply()


FAULTS = {
    "throttle": "the table throttles",
    "conflict": "another transaction is at an item",
    "server_error": "the service fails, and has done nothing",
    "lost_request": "it never arrives",
    "lost_reply": "it is applied, and its answer is lost",
    "late": "it arrives when its host has given it up",
    "overdue": "it arrives when all is done, and its token is forgotten",
    "delay": "it takes longer than a lease",
}


@pytest.mark.parametrize(("fence", "kind"), applicable(FAULTS))
def test_a_commit_that_meets_trouble_is_applied_once(fence, kind):
    expected, commits = undisturbed(fence, "plain")
    rng = random.Random(1)

    async def meet(call, apply):
        return await (delay(call, apply) if kind == "delay" else inflict(kind, call, apply, rng))

    for at in (0, commits - 1):
        with repeatable(0), make(fence, "plain") as harness:
            pending = fence.prepare(harness, "plain")
            wire = Wire(fence, at, meet)
            within(harness, wire, lambda aws: fence.drive(harness, aws, pending))  # noqa: B023
            assert wire.met, f"commit {at} was never sent"
            harness.advance(LATER)
            assert final(harness) == expected, f"commit {at}"


RIVALS = {
    "rival-answered": "it is applied, another host commits the rest, and its answer is lost",
    "rival-overtakes": "another host commits everything before it arrives",
}


def with_rival(fence, mode, at):
    """Let another host come while a commit is on its way; return what is left, and its commits."""
    with repeatable(0), make(fence, "plain") as harness:
        pending, others, came = fence.prepare(harness, "plain"), Wire(fence), []

        async def rival():
            came.append(at)
            with anyio.move_on_after(300):
                async with harness.world.clients(Process("rival", faults=others)) as aws:
                    await fence.drive(harness, aws, pending)

        async def meet(call, apply):
            if mode == "rival-answered":
                apply()
                if not came:
                    await rival()
                raise TimeoutError
            if not came:
                await rival()
            return apply()

        within(harness, Wire(fence, at, meet), lambda aws: fence.drive(harness, aws, pending))
        harness.advance(LATER)
        assert came
        return final(harness), others.commits


@pytest.mark.parametrize(("fence", "mode"), applicable(RIVALS))
def test_of_two_hosts_that_commit_the_same_each_result_is_applied_by_one(fence, mode):
    expected, commits = undisturbed(fence, "plain")
    by_rivals = 0
    for at in (0, commits - 1):
        found, others = with_rival(fence, mode, at)
        assert found == expected, f"a rival came at commit {at}"
        by_rivals += others
    assert by_rivals, "a rival has committed something"


# -- what does not apply ---------------------------------------------------------------------------


def no_loop_has_a_deadline(fence, monkeypatch):
    made, run = [], CommitLoop.run

    async def noted(loop):
        made.append(loop)
        await run(loop)

    with repeatable(0), make(fence, "plain") as harness:
        pending = fence.prepare(harness, "plain")
        monkeypatch.setattr(CommitLoop, "run", noted)
        within(harness, None, lambda aws: fence.drive(harness, aws, pending))
    assert all(loop.deadline == math.inf for loop in made)
    assert made or fence.name in ("segment", "reset")


def a_result_that_is_too_large_fails_where_it_is_made(fence, monkeypatch):
    monkeypatch.setattr(fences, "ITEMS", FULL + 1)
    (_, parked, _), commits = undisturbed.__wrapped__(fence, "plain")
    assert {error for _, error, _, _ in parked} - {""} == {"ValueError"}
    assert not commits


def a_scan_ends_where_an_item_does_not_fit(fence, monkeypatch):
    monkeypatch.setattr(backfill, "Draft", partial(Draft, room=1))
    with repeatable(0), make(fence, "plain") as harness:
        pending = fence.prepare(harness, "plain")
        with pytest.raises(ConfigurationError, match="do not fit in one transaction"):
            within(harness, None, lambda aws: fence.drive(harness, aws, pending))


def no_rival_comes(fence, monkeypatch):
    for mode in RIVALS:
        found, others = with_rival(fence, mode, 0)
        assert (found, others) == (undisturbed(fence, "plain")[0], 0)


def no_results_are_committed(fence, monkeypatch):
    no_loop_has_a_deadline(fence, monkeypatch)
    assert fence.app("plain").fingerprint() == fence.app("sends").fingerprint()


def nothing_is_sent(fence, monkeypatch):
    assert not fence.app("sends").sinks


def an_invalid_action_ends_the_run(fence, monkeypatch):
    with repeatable(0), make(fence, "invalid") as harness:
        pending = fence.prepare(harness, "invalid")
        with pytest.raises(ConfigurationError, match="DynamoDB answers ValidationError"):
            within(harness, None, lambda aws: fence.drive(harness, aws, pending))
        put(harness, {"PK": {"S": "OF#050"}, "SK": {"S": "SALES"}, "number": {"N": "50"}})
        within(harness, None, lambda aws: fence.drive(harness, aws, pending))
        assert final(harness) == undisturbed(fence, "plain")[0]


CLAIMS = {
    fences.NO_DEADLINE: no_loop_has_a_deadline,
    fences.ONE_RESULT: a_result_that_is_too_large_fails_where_it_is_made,
    fences.ONE_ITEM: a_scan_ends_where_an_item_does_not_fit,
    fences.NO_SENDS: nothing_is_sent,
    fences.NO_RESULTS: no_results_are_committed,
    fences.NO_PARKING: an_invalid_action_ends_the_run,
    fences.ONE_OWNER: no_rival_comes,
}


@pytest.mark.parametrize(
    ("fence", "mode"),
    [pytest.param(fence, mode, id=f"{fence}-{mode}") for fence in FENCES for mode in fence.never],
)
def test_what_a_fence_never_meets_it_does_not_meet(fence, mode, monkeypatch):
    assert mode in {*CASES, *FAULTS, *RIVALS}, "the table names a test that is not there"
    CLAIMS[fence.never[mode]](fence, monkeypatch)
