"""No schedule breaks the rules of an archive's chain, naive ones break, and the code is the rules."""

import random
from contextlib import asynccontextmanager
from functools import cache
from typing import Any, cast

import pytest

from streamkit.archive.link import key_of
from streamkit.archive.long_pages import ArchiveWriter, LongPages
from streamkit.archive.objects import Flush
from streamkit.archive.reader import CopyReader, LongReader
from streamkit.archive.shards import ArchivedShards
from streamkit.archive.tail import Tail
from streamkit.core.outcome import PendingChange
from streamkit.core.planning import Planner
from streamkit.core.queued_keys import QueuedKeys
from streamkit.errors import LeaseLost, RetentionLost
from streamkit.progress.commit import Committer
from streamkit.progress.control import ControlSpace, Cursor
from streamkit.progress.cursor import CursorStore, creation
from streamkit.progress.pacing import ByteBudget, Pace, Pacing
from streamkit.stream.start import RETENTION_SECONDS
from streamkit.testing.archives import PASSING, MemoryArchive
from streamkit.worker.copying import CopyCheckpoints, CopyStage
from tests.models.archive_chain import (
    BOUNDS,
    NAIVE,
    SAFE,
    STRANDING,
    Bound,
    Model,
    Rules,
    helps,
    is_read,
)
from tests.models.explorer import LARGE, explore, stuck, told, walks
from tests.models.replay import Dispatcher, bench, replay, write
from tests.pending import SCHEMA
from tests.streams import CREATED, ShortStream, at

WALKS = 1000 if LARGE else 100
READER = 2
"""The process that reads; the others write."""
SHARD = "s1"


@pytest.fixture(scope="module")
def found(request):
    """All worlds within a bound; tests of one bound run one after the other."""
    return explore(Model(Rules(), BOUNDS[request.param]))


@pytest.mark.parametrize("found", BOUNDS, indirect=True)
def test_no_schedule_of_writers_and_a_reader_goes_wrong(found):
    assert {what: told(trace) for what, trace in found.broken.items()} == {}
    assert len(found.worlds) > 400


@pytest.mark.parametrize("found", [n for n in BOUNDS if BOUNDS[n].reads], indirect=True)
def test_a_reader_comes_to_the_end_in_the_end(found):
    trace = stuck(found, is_read, helps)
    assert trace is None, told(trace)


@cache
def counter_example(name):
    """Return the shortest trace to what breaks a naive archive."""
    rules, bound, breaks = NAIVE[name]
    return explore(Model(rules, bound), until=breaks).broken.get(breaks)


@pytest.mark.parametrize("name", NAIVE)
def test_an_archive_that_looks_simpler_breaks(name):
    assert counter_example(name)


@pytest.mark.parametrize("name", STRANDING)
def test_an_archive_that_looks_simpler_lets_a_reader_wait_for_ever(name):
    rules, bound = STRANDING[name]
    assert stuck(explore(Model(rules, bound)), is_read, helps) is not None


@pytest.mark.parametrize("name", SAFE)
def test_a_condition_that_is_not_needed_breaks_nothing(name):
    rules, bound = SAFE[name]
    assert explore(Model(rules, bound)).broken == {}


# -- the replay ------------------------------------------------------------------------------------


def puts(call):
    """Hold what writes an object, and the cursor."""
    if call.operation == "TransactWriteItems":
        return "commit"
    return "put" if call.operation == "PutObject" else ""


class Aging:
    """A clock by which exactly the records up to `gone` are too old for the stream."""

    def __init__(self, stream):
        self.stream = stream

    def time(self):
        return CREATED + self.stream.gone + 0.25 + RETENTION_SECONDS - 3600  # an hour is kept back

    def monotonic(self):
        return 0.0


class Copying:
    """A writer as a worker runs it, without its pool."""

    def __init__(self, place, store, archive, stream, owned):
        space, rng, idle = store.space, random.Random(0), cast(Any, Dispatcher())
        committer = Committer(store.dynamodb, space, owned, {SCHEMA.name: SCHEMA}, rng)
        planner, pacing = Planner(space, place.clock, SHARD), Pacing(Pace(), rng)
        held = QueuedKeys(store, planner.queues)
        tail = Tail(archive.chain(SHARD), SCHEMA.pk, Flush(), owned.position)
        parts = (idle, planner, committer, held, pacing, ByteBudget(), lambda: None)
        self.stage = CopyStage(tail, cast(Any, None), lambda: 1, *parts)
        self.reader = CopyReader(stream, "arn", owned, Aging(stream), rng, 0.0)

    async def begin(self):
        tip = await self.stage.tail.chain.tip(self.stage.cursor.position)
        if tip is not None:
            self.stage.follow(tip)
            self.reader.go_to(tip)

    async def copy(self):
        while True:
            try:
                page = await self.reader.read()
            except RetentionLost as lost:
                self.stage.tail.lose(gone=lost.gone)
                self.reader.resume(lost)
                continue
            if page is not None and page.records:
                self.stage.keep(page)
                self.stage.note_seen(int(self.reader.seen))
                change = PendingChange(self.reader.position, self.reader.dated)
                self.stage.enqueue([change], traffic=False)
                return

    async def look(self):
        for _ in range(12):
            await self.reader.read()
        self.stage.note_seen(int(self.reader.seen))

    async def store(self):
        if self.stage.pending:
            await self.stage.run()
        await CopyCheckpoints(self.stage).position()


class Objects(MemoryArchive):
    """An archive in memory, which knows by name which actors replace a damaged object."""

    replacing: frozenset = frozenset()

    async def replace(self, name, body, tag):
        actor = PASSING.get().__self__.name
        self.replacing |= {actor}
        try:
            return await super().replace(name, body, tag)
        finally:
            self.replacing -= {actor}


class Driver:
    """An archive in memory, writers with the real code, and a reader of it."""

    def __init__(self, place, bound):
        self.place, self.bound = place, bound
        self.space = ControlSpace.of(SCHEMA, "app", "label")
        self.stores = [CursorStore(aws.dynamodb, self.space) for aws in place.aws]
        self.objects, self.stream = Objects(), ShortStream(1, strict=True)
        self.archive = ArchivedShards(self.objects, "T/label")
        self.copying: list[Copying | None] = [None, None]
        self.late, self.bad, self.over = [], set(), False
        self.out, self.lost = [], set()

    async def begin(self):
        stage, store = None, self.stores[READER]
        made, listed = creation(self.space, Cursor(SHARD, position=at(0)))
        await self.place.actors[READER].does(write(store, [made, listed]))
        if self.bound.starts:
            self.stream.end = 2
            await self.takes(0)
            stage = self.copying[0]
            await self.place.actors[0].does(stage.copy())
            await self.place.actors[0].does(self.acting(0, stage.store()))
            await self.dies(0)
        chain, begin = self.archive.chain(SHARD), Cursor(SHARD, position=at(self.bound.starts))
        pages = LongPages(self.stream, chain, "arn", ArchiveWriter(self.cursor, self.is_over))
        self.reader = LongReader(pages, "arn", begin, Aging(self.stream), random.Random(0), 0.0)

    async def cursor(self, shard):
        return await self.stores[READER].read(shard)

    async def is_over(self):
        return self.over

    async def do(self, step):
        name, *rest = step
        method = {"stores": "puts", "stores, reply lost": "puts_in_vain"}.get(name, name)
        await getattr(self, method.replace(" ", "_"))(*rest)

    async def acting(self, n, doing):
        PASSING.set(self.place.actors[n].intercept)
        return await doing

    # -- the stream, and what may happen -----------------------------------------------------------

    async def publishes(self):
        self.stream.end += 1

    async def trims(self):
        self.stream.gone += 1

    async def is_removed(self, after):
        self.objects.remove(self.archive.chain(SHARD).name(at(after)))

    async def is_damaged(self, after):
        self.objects.damage(self.archive.chain(SHARD).name(at(after)))

    async def comes_late(self, after, last):
        held = next(h for h in self.late if (h.after, h.last) == (after, last))
        self.late.remove(held)
        held.apply()

    # -- writers -----------------------------------------------------------------------------------

    async def takes(self, n):
        store, actor = self.stores[n], self.place.actors[n]
        read = await actor.does(store.read(SHARD))
        owned = await actor.does(store.take(read, f"w{n}", read.generation))
        self.copying[n] = Copying(self.place, store, self.archive, self.stream, owned)
        await actor.does(self.copying[n].begin())

    async def copies(self, n):
        await self.copying[n].copy()

    async def sees_the_tip(self, n):
        await self.copying[n].look()

    async def sends(self, n):
        await self.place.actors[n].begins(self.acting(n, self.copying[n].store()))

    async def puts(self, n):
        actor = self.place.actors[n]
        await actor.step()
        if actor.name in self.objects.replacing:  # in the model that is one step with the refusal
            await actor.step()

    async def puts_in_vain(self, n):
        self.place.actors[n].waiting.apply()

    async def commits(self, n):
        try:
            await self.place.actors[n].ends()
        except LeaseLost:
            self.copying[n] = None

    async def dies(self, n):
        await self.place.actors[n].dies()
        self.copying[n] = None

    # -- the reader --------------------------------------------------------------------------------

    async def reads(self, over):
        self.over = over
        await self.place.actors[READER].begins(self.acting(READER, self.read()))

    async def records(self):
        await self.place.actors[READER].ends()

    async def read(self):
        for _ in range(12):
            try:
                page = await self.reader.read()
            except RetentionLost as lost:
                until = self.reader._long.lost.last
                self.lost |= set(range(int(self.reader.position) + 1, int(until) + 1))
                self.reader.resume(lost)
                return
            if page is not None and page.records:
                self.out += [int(record.position) for record in page.records]
                return

    # -- what is -----------------------------------------------------------------------------------

    async def state(self):
        chain, links = self.archive.chain(SHARD), set()
        for name in self.objects.links:
            after = int(name.rpartition("/")[2].partition(".")[0])
            try:
                link, _ = await chain.at(at(after))
            except Exception:
                links.add((after, "bad"))
            else:
                links.add((after, int(link.last), link.kind))
        cursor = await self.cursor(SHARD)
        asks = self.place.actors[READER].at == "put"
        r = int(key_of(self.reader.position))
        return links, int(key_of(cursor.position)), r, self.out, self.lost, asks


def seen(world):
    """Return what a driver's `state` says of the code."""
    links = {(k.after, "bad") if k.bad else (k.after, k.last, k.kind) for k in world.links}
    asks = world.decides is not None
    return links, world.cursor.pos, world.r, list(world.out), set(world.lost), asks


def replayed(bound, traces):
    @asynccontextmanager
    async def opened():
        async with bench(READER + 1, holds=puts) as place:
            yield Driver(place, bound)

    return replay(Model(Rules(), bound), traces, opened, seen)


def without(*names):
    """Return a weight for steps that leaves some out."""
    return lambda step: 0.0 if step[0] in names else {"trims": 0.5}.get(step[0], 1.0)


LATE = "dies, its put is late"


@pytest.mark.parametrize("name", sorted(BOUNDS))
def test_the_code_goes_where_random_schedules_go(name):
    bound = BOUNDS[name]
    count = WALKS if name == "two writers" else WALKS // 4
    traces = walks(Model(Rules(), bound), count, 30, weigh=without(LATE))
    assert replayed(bound, traces) > WALKS


@pytest.mark.parametrize("name", NAIVE)
def test_the_code_is_not_led_astray_by_what_breaks_a_naive_archive(name):
    trace = [step for step in counter_example(name) if step[0] != LATE]
    assert replayed(NAIVE[name][1], [trace]) >= 1


STORED = [("sends", 0), ("stores", 0), ("sends", 1), ("stores", 1)]


@pytest.mark.parametrize("more", [[], [("publishes",)]])
def test_a_writer_whose_hole_is_refused_goes_on_behind_all_that_is_there(more):
    """The other writer has the records of which this one only knows that they are trimmed."""
    began = [("publishes",), ("takes", 0), ("copies", 0), *more, ("trims",)]
    trace = [*began, ("takes", 1), ("copies", 1), *STORED, *(more and [("stores", 1)])]
    trace += [("commits", 1), ("reads", False)]
    assert replayed(Bound(), [trace]) == len(trace)


def test_what_is_trimmed_soon_after_a_hole_and_was_not_read_is_a_hole_too():
    hole = [("publishes",), ("trims",), ("takes", 0), ("copies", 0), ("sends", 0)]
    stored = [("stores", 0), ("stores", 0), ("commits", 0)]
    later = [("publishes",), ("publishes",), ("trims",), ("trims",), ("copies", 0), ("sends", 0)]
    trace = [*hole, *stored, *later, *stored]
    assert replayed(Bound(records=4, takes=1), [trace]) == len(trace)
