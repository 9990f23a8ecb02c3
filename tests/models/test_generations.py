"""No schedule breaks the rules of generations, naive ones break, and the code is the rules."""

import random
from dataclasses import replace
from functools import cache

import anyio
import pytest

from streamkit.core.checkpoints import Checkpoints
from streamkit.errors import LeaseLost
from streamkit.fleet.capture import capture
from streamkit.fleet.cursors import LISTER as NAME
from streamkit.fleet.generation import newest_generation, stepped, write_generation
from streamkit.fleet.hosting import WORKERS
from streamkit.fleet.joining import join_generation
from streamkit.fleet.lister import Lister
from streamkit.fleet.members import Member
from streamkit.fleet.rollout import Rollout
from streamkit.progress.commit import Committer
from streamkit.progress.control import START, ControlSpace, Cursor
from streamkit.progress.cursor import CursorStore, creation
from streamkit.progress.pacing import Pace, Pacing
from streamkit.stream.asking import AskRate
from streamkit.stream.listing import StreamLineage
from tests.models.explorer import LARGE, counter_example, explore, stuck, walks
from tests.models.generations import (
    BOUNDS,
    LENGTHS,
    LISTER,
    NAIVE,
    NEW,
    OLD,
    ROOT,
    UNREAD,
    Bound,
    Model,
    Rules,
    helps,
    is_read,
)
from tests.models.replay import on_bench, replay, stage_of, transactions, write
from tests.pending import SCHEMA, add, done, handler, pending_change

WALKS = 1000 if LARGE else 100
PATIENCE_SECONDS = 100.0
OPERATOR = 2
"""The process that raises cursors and rebuilds; the others are workers."""
FINGERPRINTS = {OLD: "old", NEW: "new"}
TOTALS = "totals"


@pytest.mark.parametrize("name", BOUNDS)
def test_no_schedule_of_roll_outs_goes_wrong(name):
    found = explore(Model(Rules(), BOUNDS[name]))
    assert found.broken == {}
    assert len(found.worlds) > 10_000


@cache
def unread(rules, bound):
    """Return a trace to where what is left to read is never read, or None."""
    return stuck(
        explore(Model(rules, bound)), lambda w: is_read(w) or w.takes == bound.takes, helps
    )


def test_whatever_was_rolled_out_and_died_somebody_may_read_on():
    assert unread(Rules(), Bound(3, 2)) is None


def test_an_old_version_that_waits_for_ever_leaves_everything_unread():
    assert unread(UNREAD, Bound(3, 2)) is not None


@pytest.mark.parametrize("name", NAIVE)
def test_a_roll_out_that_looks_simpler_breaks(name):
    rules, bound, breaks = NAIVE[name]
    assert counter_example(Model, rules, bound, breaks=breaks)


def handlers_of(version):
    """Return what an app of a version registers: the new one has an aggregate."""
    totals = replace(handler(TOTALS), is_aggregate=True, definition="made so")
    return [handler("journal"), *([totals] if version == NEW else [])]


def holds(call):
    """Hold transactions, and what starts a generation."""
    update = call.operation == "UpdateItem" and b'"#consumer"' not in call.payload
    return transactions(call) or ("update" if update and b"#consumer" in call.payload else "")


class Running:
    """A worker: its place among the roll-outs, and what it has taken."""

    def __init__(self, driver, n, version):
        self.n, self.version, self.driver = n, version, driver
        self.stages = [None, None, None]
        self.joins()

    def joins(self):
        """Begin under a new name, without anything."""
        self.driver.started += 1
        name = f"w{self.n}/{self.driver.started}"
        self.me = Member(name, fingerprint=FINGERPRINTS[self.version])
        store, clock = self.driver.stores[self.n], self.driver.bench.clock
        fingerprint, handlers = FINGERPRINTS[self.version], handlers_of(self.version)
        self.rollout = Rollout(store, fingerprint, handlers, clock, PATIENCE_SECONDS, None)

    async def looks(self):
        """Look at the roll-outs, as with each heartbeat."""
        others = self.driver.members_but(self.n)
        self.me = replace(self.me, **await self.rollout.position(self.me, others))
        if self.rollout.superseded:
            self.joins()
            self.stages = [None, None, None]
            await self.looks()

    async def waits(self):
        """Look again after a while; it has heard of the newest generation."""
        await anyio.sleep(PATIENCE_SECONDS)
        newest = await newest_generation(self.rollout.store)
        self.rollout.hear(newest.number)
        await self.looks()


class Driver:
    """Two workers of a consumer whose shard has one child, and a person who rebuilds."""

    def __init__(self, bench):
        self.bench, self.key = bench, "x"
        self.space = ControlSpace.of(SCHEMA, "app", "label")
        self.stores = [CursorStore(aws.dynamodb, self.space) for aws in bench.aws]
        self.store, self.operator = self.stores[OPERATOR], bench.actors[OPERATOR]
        self.workers, self.started = [None, None], 0

    async def begin(self):
        control = self.bench.control
        control.configure(roll_after=None, describe_rate=None, retention=1e9)
        control.disable(SCHEMA.name)
        self.arn = control.enable(SCHEMA.name)
        (root,) = [shard["id"] for shard in control.shards(SCHEMA.name)]
        (child,) = control.roll(SCHEMA.name)
        self.names = [root, child, NAME]
        first = join_generation(
            self.store, FINGERPRINTS[OLD], handlers_of(OLD), take_over=False, host=WORKERS
        )
        await self.operator.does(first)
        for name in (root, NAME):
            made, listed = creation(self.space, Cursor(name, generation=1))
            actions = [made, *([listed] if name != NAME else [])]  # no directory lists the lister
            await self.operator.does(write(self.store, actions))

    async def do(self, step):
        name, *rest = step
        await getattr(self, name.replace(" ", "_"))(*rest)

    def members_but(self, n):
        """Return what the others that are alive say of themselves."""
        others = [one.me for one in self.workers if one is not None and one.n != n]
        return {member.name: member for member in others}

    # -- roll-outs ---------------------------------------------------------------------------------

    async def starts(self, n, version):
        self.workers[n] = Running(self, n, version)
        await self.bench.actors[n].begins(self.workers[n].looks())

    async def waits(self, n):
        """Let it look twice, unless it is about to start a generation after the first time."""
        for _ in range(2):
            if self.bench.actors[n].waiting is None:
                await self.bench.actors[n].begins(self.workers[n].waits())

    async def joins_anew(self, n):
        await self.waits(n)

    async def writes(self, n):
        actor = self.bench.actors[n]
        actor.waiting.arrives()
        await actor.settles()
        if actor.task.done():
            actor.task.result()

    async def dies(self, n):
        await self.bench.actors[n].dies()
        self.workers[n] = None

    # -- a worker at work --------------------------------------------------------------------------

    async def takes(self, n, shard):
        worker, store = self.workers[n], self.stores[n]
        read = await store.read(self.names[shard])
        try:
            owned = await store.take(read, worker.me.name, worker.me.generation)
        except LeaseLost:
            return
        if shard == LISTER:
            schemas, rng = {SCHEMA.name: SCHEMA}, random.Random(0)
            worker.stages[shard] = Committer(store.dynamodb, self.space, owned, schemas, rng)
        else:
            worker.stages[shard] = stage_of(self.bench, store, owned)

    async def commits(self, n, shard):
        worker, actor = self.workers[n], self.bench.actors[n]
        stage = worker.stages[shard]
        at = 1 + (0 if stage.cursor.position == START else int(stage.cursor.position))
        name = f"{self.key}-{shard}-{at}" if worker.version == NEW else f"{self.key}-journal"
        stage.enqueue([pending_change(at, done(at, add(name)))], traffic=True)
        try:
            await actor.does(stage.run())
            if at == LENGTHS[shard]:
                await actor.does(Checkpoints(stage).end([]))
                worker.stages[shard] = None
        except LeaseLost:
            worker.stages[shard] = None

    async def lists(self, n):
        worker, store, rng = self.workers[n], self.stores[n], random.Random(0)
        pacing, asks, clock = Pacing(Pace(), rng), AskRate(lambda: 1000), self.bench.clock
        committer = worker.stages[LISTER]
        lister = Lister(
            StreamLineage(self.bench.aws[n], self.arn), store, committer, clock, pacing, asks
        )
        try:
            await self.bench.actors[n].does(lister.children_of([self.names[ROOT]]))
        except LeaseLost:
            worker.stages[LISTER] = None

    # -- a rebuild ---------------------------------------------------------------------------------

    async def captures(self):
        newest = await newest_generation(self.store)
        await self.operator.does(capture(self.store, newest, read=False))

    async def rebuilds(self):
        """Make the aggregate what the cursors have read, at one stroke."""
        newest = await newest_generation(self.store)
        cursors = [await self.store.read(name) for name in self.names[:LISTER]]
        for shard, length in enumerate(LENGTHS):
            for at in range(1, length + 1):
                is_read = cursors[shard] is not None and self.position(cursors[shard]) >= at
                self.put(f"THING#{self.key}-{shard}-{at}", is_read)
        after = stepped(newest, newest.builds, right=[TOTALS])
        await self.operator.does(write_generation(self.store, newest, after))

    def put(self, key, is_read):
        where = {"pk": {"S": key}, "sk": {"S": key}}
        item = {**where, "count": {"N": str(int(is_read))}}
        self.bench.engine.call("dynamodb", "PutItem", {"TableName": SCHEMA.name, "Item": item})

    # -- what is -----------------------------------------------------------------------------------

    async def state(self):
        newest = await newest_generation(self.store)
        totals = "needs rebuild" if TOTALS in newest.rebuild else "right"
        version = OLD if newest.fingerprint == FINGERPRINTS[OLD] else NEW
        known = frozenset(v for v, name in FINGERPRINTS.items() if name in newest.known)
        consumer = newest.number, version, known, totals if newest.aggregates.get(TOTALS) else ""
        cursors = [await self.store.read(name) for name in self.names]
        workers = tuple(self.worker(n) for n in (0, 1))
        return consumer, tuple(map(self.cursor, cursors)), workers, self.counts()

    @staticmethod
    def position(cursor):
        if cursor.name == NAME:
            return 0
        return 0 if cursor.position == START else int(cursor.position)

    def cursor(self, cursor):
        if cursor is None:
            return None
        owner = None if cursor.owner is None else int(cursor.owner[1])
        return cursor.generation, owner, cursor.epoch, self.position(cursor)

    def worker(self, n):
        worker = self.workers[n]
        if worker is None:
            return None
        owns = tuple(stage and self.cursor(stage.cursor) for stage in worker.stages)
        decides = self.bench.actors[n].waiting is not None
        return worker.version, worker.me.generation, decides, owns

    def counts(self):
        rows = []
        for shard, length in enumerate(LENGTHS):
            names = [f"THING#{self.key}-{shard}-{at}" for at in range(1, length + 1)]
            items = [self.bench.items(name) or [{}] for name in names]
            rows.append(tuple(int(item.get("count", {"N": "0"})["N"]) for (item,) in items))
        return tuple(rows)


def seen(world):
    """Return what a driver's `state` says of the code."""
    cursors = tuple(cursor and tuple(cursor) for cursor in world.cursors)
    workers = tuple(
        w
        and (w.version, w.generation, w.decided is not None, tuple(o and tuple(o) for o in w.owns))
        for w in world.workers
    )
    return tuple(world.consumer), cursors, workers, world.counts


def replayed(bound, traces):
    opened = on_bench(Driver, actors=OPERATOR + 1, holds=holds)
    return replay(Model(Rules(), bound), traces, opened, seen)


def often(step):
    """Prefer what lets versions change while shards are read."""
    return {"dies": 0.3, "commits": 2.0, "writes": 2.0, "lists": 2.0}.get(step[0], 1.0)


def test_the_code_goes_where_random_schedules_go():
    bound = Bound(6, 9)
    traces = walks(Model(Rules(), bound), WALKS, 30, weigh=often)
    assert replayed(bound, traces) > 10 * WALKS


@pytest.mark.parametrize("name", NAIVE)
def test_the_code_is_not_led_astray_by_what_breaks_a_naive_roll_out(name):
    rules, bound, breaks = NAIVE[name]
    trace = counter_example(Model, rules, bound, breaks=breaks)
    assert replayed(bound, [trace]) >= 3


def test_the_code_reads_on_where_an_old_version_would_wait_for_ever():
    bound = Bound(3, 2)
    assert replayed(bound, [(*unread(UNREAD, bound), ("waits", 0), ("writes", 0))]) >= 3
