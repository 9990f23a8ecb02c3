"""The shards of a worker: which are taken, lost, released and finished, and what is left of them."""

from dataclasses import replace
from types import SimpleNamespace

import anyio
import pytest

from streamkit.errors import LeaseLost, StreamSilent
from streamkit.fleet.taken import HANDED_OVER
from streamkit.progress.control import Cursor
from streamkit.progress.pacing import ByteBudget
from streamkit.stream.lineage import Shard
from streamkit.stream.listing import Listing
from streamkit.worker.shardset import ShardSet

READ = Cursor("s", owner="other", epoch=3, generation=2)
MINE = replace(READ, owner="me", epoch=4)


def noting(did, *names):
    """Return an object whose functions note that they were called, and with what."""

    def one(name):
        return lambda *given: did.append((name, *given))

    return SimpleNamespace(**{name: one(name) for name in names})


class Crew:
    """What a worker's shards talk to; a store answers each take with the next of `taken`."""

    def __init__(self, group, *, taken=lambda cursor: replace(cursor, owner="me"), listed=()):
        self.did, self.hooked, self.now, self.asks = [], [], 0.0, True
        self.taken, self.listed, self.answer = taken, listed, anyio.Event()
        self.answer.set()
        lineage = SimpleNamespace(children=self.children)
        self.budget = ByteBudget(limit=10)
        reading = SimpleNamespace(
            units=None,
            budget=self.budget,
            lineage=lineage,
            asks=SimpleNamespace(may_ask=lambda: self.asks),
            pool=SimpleNamespace(pause=lambda *, paused: self.did.append(("pool", paused))),
        )
        retries = noting(self.did, "watch", "unwatch", "wake")
        retries.pause = lambda *, paused: self.did.append(("retries", paused))
        view = noting(self.did, "found", "lost", "dropped", "await_children")
        view.heartbeat = noting(self.did, "tell")
        view.known = SimpleNamespace(store=self)
        view.me = SimpleNamespace(name="me", generation=2)
        self.shards = ShardSet(
            SimpleNamespace(clock=SimpleNamespace(monotonic=lambda: self.now)),
            None,
            SimpleNamespace(meters=SimpleNamespace(used=None, consumer="shop")),
            reading,
            retries,
            view,
            group,
            lambda event: self.hooked.append(event.what),
        )
        self.shards._factory = self

    async def take(self, cursor, owner, generation):
        self.did.append(("take", cursor.name, owner, generation))
        await self.answer.wait()
        return self.taken(cursor)

    async def release(self, cursor):
        self.did.append(("release", cursor.name))

    async def children(self, parent):
        if self.listed is None:
            raise StreamSilent("no answer")
        return Listing(tuple(map(Shard, self.listed)), enabled=False)

    def build(self, cursor):
        """Return a pipeline that does nothing; its `did` is the crew's."""
        pipeline = noting(self.did, "stop", "end", "write_down", "leave")
        pipeline.shard, pipeline.cursor = cursor.name, cursor
        keys = SimpleNamespace(queues={}, forget=None, begin=None)
        pipeline.stage = SimpleNamespace(queued_keys=keys)
        pipeline.activity, pipeline.begin = noting(self.did, "start"), "begin"
        pipeline.reads = pipeline.waits = True
        pipeline.quiet = SimpleNamespace(number=3)
        return pipeline

    def running(self, cursor=MINE):
        """Let a shard be read here, and return its pipeline."""
        pipeline = self.shards.running[cursor.name] = self.build(cursor)
        return pipeline

    def names(self):
        return [what[0] for what in self.did]


async def drained(crew):
    await crew.shards.drain()
    crew.did.append("drained")


async def settled():
    await anyio.wait_all_tasks_blocked()


# -- taking ----------------------------------------------------------------------------------------


async def test_a_shard_is_taken_once_and_held_from_the_moment_on_in_which_that_begins():
    async with anyio.create_task_group() as group:
        crew = Crew(group)
        crew.answer = anyio.Event()
        crew.shards.take(READ)
        crew.shards.take(READ)
        assert crew.shards.held == {"s": READ}
        assert not crew.shards.idle(0)
        await settled()
        crew.answer.set()
        await settled()
        crew.shards.take(READ)
        await settled()
    assert crew.names() == ["take", "watch", "start"]
    assert crew.did[0] == ("take", "s", "me", 2)
    assert crew.shards.held == {"s": replace(READ, owner="me")}
    assert crew.hooked == ["taken"]


async def test_a_take_that_ends_after_the_worker_began_to_stop_is_given_back():
    """Else the worker would wait for this shard for ever, and read it meanwhile."""
    async with anyio.create_task_group() as group:
        crew = Crew(group)
        crew.answer = anyio.Event()
        for number in range(17):  # one more than are taken at once
            crew.shards.take(replace(READ, name=f"{number}"))
        await settled()
        group.start_soon(drained, crew)
        await settled()
        assert "drained" not in crew.did, "a shard that is being taken would keep its owner"
        crew.answer.set()
        await settled()
        assert crew.names().count("take") == crew.names().count("stop") == 16
        assert len(crew.shards.held) == 16
        for pipeline in list(crew.shards.running.values()):
            assert "drained" not in crew.did
            await crew.shards.released(pipeline)
            await settled()
    assert crew.did[-1] == "drained"
    assert crew.names().count("release") == 16
    assert "tell" not in crew.names(), "the worker says that it leaves anyway"


async def test_a_worker_that_stops_does_not_wait_for_a_shard_that_another_one_took_first():
    def taken(cursor):
        raise LeaseLost("changed")

    async with anyio.create_task_group() as group:
        crew = Crew(group, taken=taken)
        crew.answer = anyio.Event()
        crew.shards.take(READ)
        group.start_soon(drained, crew)
        await settled()
        crew.answer.set()
        await settled()
        assert crew.did[-1] == "drained"


async def test_a_worker_that_stops_takes_nothing_more():
    async with anyio.create_task_group() as group:
        crew = Crew(group)
        await crew.shards.drain()
        crew.shards.take(READ)
    assert (crew.did, crew.shards.held) == ([], {})


@pytest.mark.parametrize("state", ["finished", HANDED_OVER])
async def test_a_shard_that_was_finished_before_it_was_taken_is_not_read_again(state):
    async with anyio.create_task_group() as group:
        over = replace(MINE, state=state)
        crew = Crew(group, taken=lambda cursor: over)
        crew.shards.take(READ)
    assert crew.did[1:] == [("found", over)]
    assert crew.shards.held == {}


async def test_a_shard_that_another_worker_took_first_is_looked_at_again():
    def taken(cursor):
        raise LeaseLost("changed")

    async with anyio.create_task_group() as group:
        crew = Crew(group, taken=taken)
        crew.shards.take(READ)
    assert crew.did[1:] == [("lost", "s")]
    assert crew.shards.held == {}


# -- losing and releasing --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("found", "lost"),
    [
        (replace(MINE, owner="other", epoch=5), True),
        (replace(MINE, generation=3), True),  # a rebuild has begun: read anew what it counts
        (replace(MINE, owner=None), False),  # this worker releases it, and waits for the reply
        (READ, False),  # an old reading
        (MINE, False),
        (replace(MINE, epoch=5, state="finished"), False),
        (replace(MINE, name="another", epoch=5), False),
    ],
)
def test_a_shard_is_lost_to_a_newer_lease_or_a_newer_generation(found, lost):
    crew = Crew(None)
    crew.running()
    crew.shards.lose(found)
    assert (crew.shards.running == {}) is lost
    assert crew.hooked == ["lost"] * lost


def test_nothing_that_a_lost_shard_held_is_kept():
    """Neither its tasks, nor its parked queues, nor its bytes of the pages in memory."""
    crew = Crew(None)
    pipeline = crew.running()
    crew.budget.take("s", 9)
    crew.budget.take("other", 5)
    assert not crew.budget.has_room("other")
    assert crew.shards.failed(pipeline, LeaseLost("gone"))
    assert crew.did == [("unwatch", "s"), ("end",), ("dropped", "s")]
    assert crew.budget.has_room("other")


def test_a_late_task_of_a_shard_that_was_lost_and_taken_again_does_not_lose_it_once_more():
    crew = Crew(None)
    before = crew.running()
    again = crew.running(replace(MINE, epoch=6))
    assert crew.shards.failed(before, LeaseLost("gone"))
    assert crew.shards.running == {"s": again}
    assert crew.did == []


async def test_a_released_shard_is_free_and_whoever_claims_it_hears_of_it():
    crew = Crew(None)
    await crew.shards.released(crew.running())
    free = replace(MINE, owner=None)
    assert crew.did == [("release", "s"), ("found", free), ("unwatch", "s"), ("end",), ("tell",)]
    assert crew.hooked == ["released"]


def test_a_claim_for_a_shard_that_is_not_read_here_any_more_does_nothing():
    crew = Crew(None)
    crew.shards.give("s")
    crew.running()
    crew.shards.give("s")
    assert crew.did == [("stop",)]


# -- the end of a shard ----------------------------------------------------------------------------


async def ended(crew, *, created=True):
    """Let a shard end, and return the children that its last commit makes."""
    pipeline, children = crew.running(), []

    async def end(found):
        children.extend(found)
        return found if created else []

    pipeline.checkpoints = SimpleNamespace(end=end)
    await crew.shards.ended(pipeline)
    await settled()
    return children


@pytest.mark.parametrize(("listed", "tells"), [(["c"], False), (["d", "c"], True)])
async def test_the_children_of_a_shard_are_made_with_its_end_and_taken(listed, tells):
    """One keeps the place of its parent; others may be for other workers, which hear of them."""
    async with anyio.create_task_group() as group:
        crew = Crew(group, listed=listed)
        children = await ended(crew)
    names = sorted(listed)
    assert [child.name for child in children] == names
    assert [child.root for child in children] == ["", *names[1:]]
    assert {child.parent for child in children} == {"s"}
    assert [what[1] for what in crew.did if what[0] == "take"] == names
    assert [what[1].name for what in crew.did if what[0] == "found"] == ["s", *names]
    assert ("tell" in crew.names()) is tells
    assert "await_children" not in crew.names()
    assert crew.shards.enabled is False
    assert crew.hooked[0] == "drained"
    assert "s" not in crew.shards.running


@pytest.mark.parametrize(("listed", "asks"), [([], True), (None, True), (["c"], False)])
async def test_where_no_child_is_known_the_leader_is_asked_for_it(listed, asks):
    """None is listed yet, the stream does not answer, or this worker may not ask now."""
    async with anyio.create_task_group() as group:
        crew = Crew(group, listed=listed)
        crew.asks = asks
        assert await ended(crew) == []
    assert ("await_children", "s") in crew.did


async def test_children_that_were_made_already_are_for_those_who_know_them():
    async with anyio.create_task_group() as group:
        crew = Crew(group, listed=["c"])
        await ended(crew, created=False)
    assert ("await_children", "s") in crew.did
    assert "take" not in crew.names()


async def test_a_worker_that_stops_tells_others_of_a_child_at_once():
    async with anyio.create_task_group() as group:
        crew = Crew(group, listed=["c"])
        crew.shards.stopping = True
        await ended(crew)
    assert "tell" in crew.names()
    assert "take" not in crew.names()


# -- pauses, and what callers ask ------------------------------------------------------------------


def test_a_pause_writes_down_every_position_once_and_its_end_writes_none():
    crew = Crew(None)
    crew.running()
    for paused in (False, True, True, False):
        crew.shards.pause(paused=paused)
    stopped = [("pool", True), ("retries", True), ("write_down",)]
    assert crew.did == [*stopped, ("pool", False), ("retries", False)]


@pytest.mark.parametrize(
    ("quiet", "waits", "paused", "idle"),
    [
        (3, True, False, True),
        (2, True, False, False),
        (3, False, False, False),
        (0, True, True, True),
        (0, False, True, False),  # its dispatched changes are not committed yet
    ],
)
def test_shards_are_idle_after_so_many_quiet_pages_or_in_a_pause(quiet, waits, paused, idle):
    crew = Crew(None)
    pipeline = crew.running()
    crew.shards.paused = paused
    pipeline.quiet.number, pipeline.waits = quiet, waits
    assert crew.shards.idle(3) is idle


@pytest.mark.parametrize(
    ("reads", "paused", "silence"), [(True, False, 9.0), (False, False, 0.0), (True, True, 0.0)]
)
def test_the_stream_is_silent_while_a_shard_waits_for_its_page(reads, paused, silence):
    """A paused worker, and one whose pages are all with slow handlers, wait for none."""
    crew = Crew(None)
    crew.running().reads = reads
    crew.now, crew.shards.paused = 9.0, paused
    assert crew.shards.silence == silence
    crew.now = 12.0
    crew.shards.note_read()
    assert crew.shards.silence == 0.0
    crew.running().reads = True
    crew.shards.paused, crew.now = False, 15.0
    assert crew.shards.silence == 3.0
