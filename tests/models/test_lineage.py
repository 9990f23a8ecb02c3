"""No schedule breaks the rules of lineage, naive ones break, and the code is the rules."""

import json
import random
from functools import partial

import pytest

from streamkit.core.checkpoints import Checkpoints
from streamkit.errors import LeaseLost
from streamkit.fleet.cursors import LISTER
from streamkit.fleet.lister import Lister
from streamkit.progress.commit import Committer
from streamkit.progress.control import START, ControlSpace, Cursor, child_of
from streamkit.progress.cursor import CursorStore, creation
from streamkit.progress.pacing import Pace, Pacing
from streamkit.stream.asking import AskRate
from streamkit.stream.listing import StreamLineage
from tests.models.explorer import LARGE, counter_example, explore, stuck, walks
from tests.models.lineage import (
    BOUNDS,
    CALM,
    NAIVE,
    PARENT,
    STRANDING,
    Bound,
    Model,
    Rules,
    helps,
    is_read,
)
from tests.models.replay import on_bench, replay, stage_of, transactions, write
from tests.pending import SCHEMA, add, done, pending_change

WALKS = 1000 if LARGE else 50
OWNER = 2
"""The process that reads shards; the others are listers."""
MANY = frozenset("abcdef")
"""Parents of which so many have ended that everything is listed."""


@pytest.mark.parametrize("name", BOUNDS)
def test_no_schedule_of_owners_and_listers_goes_wrong(name):
    found = explore(Model(Rules(), BOUNDS[name]))
    assert found.broken == {}
    assert len(found.worlds) > 500


def test_every_child_is_read_without_waiting_for_a_trim():
    assert stuck(explore(Model(Rules(), CALM)), is_read, helps) is None


def test_every_child_is_read_whatever_was_trimmed_and_swept():
    assert stuck(explore(Model(Rules(), Bound(takes=0))), is_read, lambda step: True) is None


@pytest.mark.parametrize("name", NAIVE)
def test_a_lineage_that_looks_simpler_breaks(name):
    rules, bound, breaks = NAIVE[name]
    assert counter_example(Model, rules, bound, breaks=breaks)


@pytest.mark.parametrize("name", STRANDING)
def test_a_lineage_that_looks_simpler_leaves_a_child_unread(name):
    rules, bound = STRANDING[name]
    assert stuck(explore(Model(rules, bound)), is_read, helps) is not None


class Later:
    """A clock that may run ahead."""

    def __init__(self, clock):
        self.clock, self.ahead = clock, 0.0

    def time(self):
        return self.clock.time() + self.ahead

    def monotonic(self):
        return self.clock.monotonic()


def holds(call):
    """Hold what a lister reads and writes, so that other things may happen in between."""
    return transactions(call) or ("read" if call.operation == "BatchGetItem" else "")


class Driver:
    """A stream of its own, two listers with the real code, and owners of shards."""

    def __init__(self, bench, booted):
        self.bench, self.key, self.booted = bench, "x", booted
        self.space = ControlSpace.of(SCHEMA, "app", "label")
        self.stores = [CursorStore(aws.dynamodb, self.space) for aws in bench.aws]
        self.store, self.owner = self.stores[OWNER], bench.actors[OWNER]
        self.committers, self.parent = [None, None], None
        self.clock = Later(bench.clock)

    async def begin(self):
        control = self.bench.control
        control.configure(roll_after=None, describe_rate=None, retention=1e9)
        if control.shards(SCHEMA.name)[0]["id"] != "":
            control.disable(SCHEMA.name)
        self.arn = control.enable(SCHEMA.name)
        ((shard,),) = [control.shards(SCHEMA.name)]
        self.ids = [shard["id"]]
        cursors = [Cursor(LISTER), *([Cursor(self.ids[PARENT])] if self.booted else [])]
        for cursor in cursors:
            made, listed = creation(self.space, cursor)
            actions = [made, *([listed] if cursor.name != LISTER else [])]
            await self.owner.does(write(self.store, actions))
        await self.leads(0)

    async def do(self, step):
        name, *rest = step
        await getattr(self, name.replace(" ", "_"))(*rest)

    # -- the stream --------------------------------------------------------------------------------

    async def splits(self):
        self.ids += self.bench.control.split(SCHEMA.name, self.ids[PARENT])

    async def is_trimmed(self):
        self.bench.control.trim(SCHEMA.name)

    async def two_days_pass(self):
        self.clock.ahead = 49 * 3600.0

    # -- owners ------------------------------------------------------------------------------------

    async def take(self, shard):
        read = await self.store.read(self.ids[shard])
        return stage_of(self.bench, self.store, await self.store.take(read, "w", read.generation))

    async def commit(self, stage, position, *records):
        effects = [add(f"{self.key}-{item}-{number}") for item, number in records]
        stage.enqueue([pending_change(position, done(position, *effects))], traffic=True)
        await self.owner.does(stage.run())

    async def reads(self):
        self.parent = await self.take(PARENT)
        await self.commit(self.parent, 1, (1, 1), (2, 1))

    async def finishes(self, answer):
        parent = self.parent.cursor
        children = [
            child_of(self.ids[c], parent, generation=0, parent_name=parent.name) for c in answer
        ]
        await self.owner.does(Checkpoints(self.parent).end(children))

    async def reads_child(self, child):
        stage = await self.take(child)
        await self.commit(stage, 2, (child, 2))
        await self.owner.does(Checkpoints(stage).end([]))

    # -- listers -----------------------------------------------------------------------------------

    async def leads(self, n):
        await self.bench.actors[n].dies()
        store, rng = self.stores[OWNER], random.Random(0)
        read = await store.read(LISTER)
        owned = await store.take(read, f"l{n}", read.generation)
        schemas = {SCHEMA.name: SCHEMA}
        dynamodb = self.stores[n].dynamodb
        self.committers[n] = Committer(dynamodb, self.space, owned, schemas, rng)

    def lister(self, n):
        pacing, asks = Pacing(Pace(), random.Random(0)), AskRate(lambda: 1000)
        aws, store, committer = self.bench.aws[n], self.stores[n], self.committers[n]
        return Lister(StreamLineage(aws, self.arn), store, committer, self.clock, pacing, asks)

    async def lists(self, n, listed):
        for shard, name in enumerate(self.ids):
            if any(known["id"] == name for known in self.bench.control.shards(SCHEMA.name)):
                self.bench.control.hide(SCHEMA.name, name, shard not in listed)
        await self.bench.actors[n].begins(self.lister(n).children_of(MANY))

    async def looks(self, n):
        await self.on(n)

    async def creates(self, n):
        self.bench.actors[n].waiting.arrives()
        await self.on(n)

    async def on(self, n):
        """Let a lister read on, up to its next transaction."""
        actor = self.bench.actors[n]
        await actor.settles()
        while actor.waiting is not None and not transactions(actor.waiting.call):
            actor.waiting.arrives()
            await actor.settles()
        if actor.task.done():
            try:
                actor.task.result()
            except LeaseLost:
                return

    async def sweeps(self, n):
        for known in self.bench.control.shards(SCHEMA.name):
            self.bench.control.hide(SCHEMA.name, known["id"], False)
        await self.bench.actors[n].does(self.lister(n).once())

    # -- what is -----------------------------------------------------------------------------------

    async def state(self):
        cursors = [await self.store.read(name) for name in self.ids]
        states = tuple(map(self.says, cursors)) + ("",) * (3 - len(cursors))
        effects = tuple("".join(self.effect(item)) for item in (1, 2))
        return states, effects, tuple(map(self.creates_now, self.bench.actors[:OWNER]))

    @staticmethod
    def says(cursor):
        if cursor is None:
            return ""
        if cursor.finished:
            return "finished"
        return "begun" if cursor.position == START else "read"

    def effect(self, item):
        for record in (1, 2):
            for found in self.bench.items(f"THING#{self.key}-{item}-{record}"):
                yield str(record) * int(found["count"]["N"])

    def creates_now(self, actor):
        """Return which shards a lister is about to create cursors for."""
        if actor.waiting is None or not transactions(actor.waiting.call):
            return frozenset()
        actions = json.loads(actor.waiting.call.payload)["TransactItems"]
        keys = [action["Put"]["Item"]["pk"]["S"] for action in actions if "Put" in action]
        return frozenset(self.ids.index(key.rpartition("#")[2]) for key in keys)


def seen(world):
    """Return what a driver's `state` says of the code."""
    creates = (lister.creates if lister else frozenset() for lister in world.listers)
    return world.cursors, world.effects, tuple(creates)


def replayed(bound, traces):
    drive = partial(Driver, booted=bound.booted)
    opened = on_bench(drive, actors=OWNER + 1, holds=holds)
    return replay(Model(Rules(), bound), traces, opened, seen)


def often(step):
    """Let the parent be read and finished, and the lead change, before all is over."""
    return {"is trimmed": 0.2, "leads": 0.5, "splits": 2.0, "creates": 2.0}.get(step[0], 1.0)


@pytest.mark.parametrize("booted", [False, True])
def test_the_code_goes_where_random_schedules_go(booted):
    bound = Bound(takes=3, booted=booted)
    traces = walks(Model(Rules(), bound), WALKS // 2, 25, weigh=often)
    assert replayed(bound, traces) > 5 * WALKS


@pytest.mark.parametrize("name", NAIVE)
def test_the_code_is_not_led_astray_by_what_breaks_a_naive_lineage(name):
    rules, bound, breaks = NAIVE[name]
    trace = counter_example(Model, rules, bound, breaks=breaks)
    assert replayed(bound, [trace]) >= 3


@pytest.mark.parametrize("name", STRANDING)
def test_the_code_is_not_stuck_where_a_naive_lineage_is(name):
    rules, bound = STRANDING[name]
    trace = stuck(explore(Model(rules, bound)), is_read, helps)
    assert replayed(bound, [trace]) >= 2
