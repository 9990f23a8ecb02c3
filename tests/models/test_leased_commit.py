"""No schedule breaks the rules of lease and commit, naive ones break, and the code is the rules."""

import anyio
import pytest

from streamkit.errors import LeaseLost
from streamkit.fleet.capture import capture
from streamkit.fleet.generation import Generation
from streamkit.progress import commit as commits
from streamkit.progress.commit import Applied
from streamkit.progress.control import START, ControlSpace, Cursor
from streamkit.progress.cursor import CursorStore, creation
from streamkit.progress.verdicts import Again
from tests.models.explorer import LARGE, counter_example, explore, walks
from tests.models.leased_commit import (
    BOUNDS,
    CHANGES,
    HANDLED,
    NAIVE,
    PARKED,
    QUEUED,
    SAFE,
    SMALL,
    Bound,
    Model,
    Rules,
)
from tests.models.replay import on_bench, replay, stage_of, write
from tests.pending import SCHEMA, add, done, failed, pending_change

WALKS = 1000 if LARGE else 100
LATE_SECONDS = 900
"""How late a request arrives: no client token is remembered for as long."""


@pytest.mark.parametrize("name", BOUNDS)
def test_no_schedule_of_takes_commits_and_late_requests_goes_wrong(name):
    found = explore(Model(Rules(), BOUNDS[name]))
    assert found.broken == {}
    assert len(found.worlds) > 1000


@pytest.mark.parametrize("name", NAIVE)
def test_a_commit_that_looks_simpler_breaks(name):
    rules, bound, breaks = NAIVE[name]
    assert counter_example(Model, rules, bound, breaks=breaks)


@pytest.mark.parametrize("name", SAFE)
def test_a_commit_that_differs_leaves_the_same_effects(name):
    rules, may = SAFE[name]
    assert explore(Model(rules, SMALL)).broken.keys() <= may


class Driver:
    """Two workers at one cursor, each with the real store, planner, committer and commit stage.

    A third process raises the cursor. `air` are the requests under way, by their plan's number.
    """

    def __init__(self, bench):
        self.bench, self.key = bench, "x"
        self.space = ControlSpace.of(SCHEMA, "app", "label")
        self.stores = [CursorStore(aws.dynamodb, self.space) for aws in bench.aws]
        self.stages, self.numbers, self.air, self.waits = [None, None], {"-": 0}, {}, [0, 0]

    async def begin(self):
        made = creation(self.space, Cursor("s", generation=1))
        await self.bench.actors[2].does(write(self.stores[2], made))

    async def do(self, step):
        name, *rest = step
        verb, _, lost = name.partition(", ")
        await getattr(self, verb.replace(" ", "_"))(*rest, **({"heard": False} if lost else {}))

    # -- steps -------------------------------------------------------------------------------------

    async def take(self, n, *, heard=True):
        await self.crash(n)
        store = self.stores[n]
        read = await store.read("s")
        self.bench.actors[n].loses = not heard
        self.stages[n] = stage_of(
            self.bench, store, await store.take(read, f"w{n}", read.generation)
        )
        await self.stages[n].queued_keys.load(read.chunks)

    async def crash(self, n):
        await self.bench.actors[n].dies()
        self.stages[n], self.waits[n] = None, 0

    async def release(self, n):
        await self.stores[n].release(self.stages[n].cursor)
        await self.crash(n)

    async def up(self):
        """Raise the cursor."""
        cursor = await self.stores[2].read("s")
        newest = Generation(cursor.generation + 1, "f", ("f",), {}, frozenset())
        await self.bench.actors[2].does(capture(self.stores[2], newest, read=False))

    async def send(self, n, outcomes):
        stage, actor = self.stages[n], self.bench.actors[n]
        first = int(stage.start.position) if stage.start.position != START else 0
        # All that is not committed stays pending: an earlier plan that wins may go further.
        pending = outcomes.ljust(CHANGES - first, HANDLED)
        stage.pending.clear()
        stage.pending.extend(
            self.pending_change(number, outcome)
            for number, outcome in enumerate(pending, first + 1)
        )
        await stage.queued_keys.learn_tails(stage.pending)
        plan = stage.loop.planner.plan(stage.pending, stage.start, most=len(outcomes))
        self.numbers[plan.id] = number = len(self.numbers)
        self.waits[n] = number
        await actor.begins(self.commit(stage, plan))
        self.air[number] = actor.waiting

    def pending_change(self, number, outcome):
        """Make a pending change; whether one is queued is for the planner to say."""
        made = failed() if outcome == PARKED else done(number, add(f"{self.key}-{number}"))
        return pending_change(number, made, name=self.key if number != 2 else f"{self.key}-other")

    @staticmethod
    async def commit(stage, plan):
        verdict = await stage.commit(plan, stage.pending)
        if isinstance(verdict, Applied):
            await stage.loop.adopt(verdict.batch)
        return verdict

    async def arrives(self, number, *, heard=True):
        held = self.air.pop(number)
        if number not in self.waits:  # long after its sender has given it up
            await anyio.sleep(LATE_SECONDS)
            held.apply()
        elif not heard:
            held.apply()
        else:
            n = self.waits.index(number)
            held.arrives()
            await self.settle(n)

    async def lost(self, number):
        del self.air[number]

    async def time_out(self, n):
        """Let a worker give a request up; sent again, something else is at the cursor."""
        actor = self.bench.actors[n]
        actor.waiting.breaks()
        await actor.settles()
        actor.waiting.conflicts()
        await self.settle(n)

    async def settle(self, n):
        actor = self.bench.actors[n]
        self.waits[n] = 0
        try:
            verdict = await actor.ends()
        except LeaseLost:
            await self.crash(n)
        else:
            assert isinstance(verdict, Applied | Again)

    # -- what is ----------------------------------------------------------------------------------

    async def state(self):
        cursor = await self.stores[2].read("s")
        return self.claim(cursor), self.effects(), tuple(map(self.worker, (0, 1)))

    def claim(self, cursor):
        owner = None if cursor.owner is None else int(cursor.owner[1:])
        at = 0 if cursor.position == START else int(cursor.position)
        return owner, cursor.epoch, cursor.generation, at, self.numbers[cursor.commit]

    def effects(self):
        parked = {int(item["_sk_position"]["S"]): item for item in self.bench.items("", "parked")}
        behind = {int(item["_sk_next"]["S"]) for item in parked.values() if "_sk_next" in item}
        found = []
        for number in range(1, CHANGES + 1):
            (item,) = self.bench.items(f"THING#{self.key}-{number}") or [{}]
            times = int(item.get("count", {"N": "0"})["N"])
            aside = (QUEUED if number in behind else PARKED) if number in parked else ""
            found.append(HANDLED * times + aside)
        return tuple(found)

    def worker(self, n):
        stage = self.stages[n]
        if stage is None:
            return None
        return self.claim(stage.cursor), bool(stage.queued_keys.queues), self.waits[n]


def seen(world):
    """Return what a driver's `state` says of the code."""
    workers = (w and (tuple(w.claim), w.queues, w.waits) for w in world.workers)
    return tuple(world.cursor), world.effects, tuple(workers)


@pytest.fixture(autouse=True)
def _remembers_as_the_model(monkeypatch):
    monkeypatch.setattr(commits, "_SENT_MAX", Rules().remembers)


def replayed(bound, traces):
    return replay(Model(Rules(), bound), traces, on_bench(Driver, actors=3), seen)


def often(step):
    """Prefer what makes a trace long: few workers die."""
    return {"crash": 0.15, "release": 0.2, "lost": 0.3, "take": 0.5}.get(step[0], 1.0)


def test_the_code_goes_where_random_schedules_go():
    bound = Bound(takes=4, plans=9, air=2, raises=1)
    traces = walks(Model(Rules(), bound), WALKS, 30, weigh=often)
    assert replayed(bound, traces) > 10 * WALKS


@pytest.mark.parametrize("name", NAIVE)
def test_the_code_is_not_led_astray_by_what_breaks_a_naive_commit(name):
    rules, bound, breaks = NAIVE[name]
    trace = counter_example(Model, rules, bound, breaks=breaks)
    assert replayed(bound, [trace]) >= 4
