"""Whether a shard of an app takes a handler over, by where both cursors stand when it is written."""

import random
from dataclasses import replace
from types import SimpleNamespace

import pytest

from streamkit.aws import connect
from streamkit.core.checkpoints import Checkpoints
from streamkit.errors import LeaseLost
from streamkit.fleet.generation import next_generation, write_generation
from streamkit.fleet.taken import (
    BEHIND,
    HANDED_OVER,
    Births,
    app_store,
    own_store,
    taken_mark,
)
from streamkit.local.engine import Engine
from streamkit.local.transport import session_class
from streamkit.progress.commit import Applied, Batch, Committer
from streamkit.progress.control import START, ControlSpace, Cursor
from streamkit.progress.cursor import CursorStore, creation
from streamkit.worker.taking_over import TakeOver
from tests.models.replay import stage_of, write
from tests.pending import SCHEMA
from tests.tables import streamed

SHARD = "shard-1"
H = {"h": taken_mark("h", 1)}
MARKS = frozenset(H.values())


def at(number):
    return f"{number:040d}"


class Hurried:
    """A clock by which each look is the last one."""

    now = 0.0

    def time(self):
        return 1000.0

    def monotonic(self):
        self.now += 100
        return self.now


class Client:
    """A client of the table that lets something happen before the next transaction."""

    def __init__(self, client):
        self._client, self.before = client, None

    def __getattr__(self, name):
        return getattr(self._client, name)

    async def transact_write_items(self, **request):
        before, self.before = self.before, None
        if before is not None:
            await before()
        return await self._client.transact_write_items(**request)


@pytest.fixture
async def store():
    engine = Engine(rng=random.Random(1))
    engine.call("dynamodb", "CreateTable", streamed(SCHEMA.name, "pk", "sk"))
    async with connect(http_session=session_class(engine)) as aws:
        yield CursorStore(Client(aws.dynamodb), ControlSpace.of(SCHEMA, "app", "label"))


async def owned(store, cursor, owner="one"):
    """Make a cursor, and take it."""
    await write(store, creation(store.space, cursor))
    return await store.take(cursor, owner, cursor.generation or 1)


def committer(store, cursor):
    return Committer(store.dynamodb, store.space, cursor, {SCHEMA.name: SCHEMA}, random.Random(0))


async def over(store, mine, theirs):
    """Return what takes the handler over, and the owner of the handler's own cursor."""
    own = own_store(store, "h")
    stage = stage_of(SimpleNamespace(clock=Hurried()), store, await owned(store, mine))
    there = committer(own, await owned(own, theirs, "other")) if theirs else None
    taking = TakeOver(store, stage, Hurried(), H, {})
    return taking, there


def mine(**given):
    return Cursor(SHARD, generation=1, **{"position": at(5), "dated": 900, **given})


def theirs(**given):
    return Cursor(SHARD, generation=1, **{"position": at(5), "dated": 900, **given})


STAYS_APART = {
    "behind": (mine(), theirs(position=at(4))),
    "at its beginning": (mine(), theirs(position=START)),
    "half done": (mine(), theirs(done=frozenset({f"{at(6)}:h"}))),
    "finished": (mine(), theirs(state="finished")),
    "before its start": (mine(), theirs(since=950)),
    "before the app's start": (mine(since=950), theirs()),
    "unknown": (mine(), None),
}


@pytest.mark.parametrize("name", STAYS_APART)
async def test_a_handler_stays_apart_where_it_is_not_ahead_or_not_whole(store, name):
    taking, _ = await over(store, *STAYS_APART[name])
    await taking.attempt(Checkpoints(taking.stage))
    assert taking.apart == H
    assert (await store.read(SHARD)).live == frozenset()


TAKEN = {
    "ahead": (mine(), theirs(position=at(7)), {f"{at(7)}:h"}),
    "at the same place": (mine(), theirs(), set()),
    "where nothing was read": (mine(position=START), theirs(position=START), set()),
    "behind both starts": (mine(since=50), theirs(position=at(6), since=60), {f"{at(6)}:h"}),
}


@pytest.mark.parametrize("name", TAKEN)
async def test_a_handler_that_is_ahead_is_taken_over_and_its_own_lease_ends(store, name):
    here, there, joined = TAKEN[name]
    taking, owner = await over(store, here, there)
    await taking.attempt(Checkpoints(taking.stage))
    assert taking.apart == {}
    cursor, own = await store.read(SHARD), await own_store(store, "h").read(SHARD)
    assert (cursor.live, cursor.joined) == (MARKS, joined)
    assert (own.state, own.owner, own.position) == (HANDED_OVER, None, there.position)
    assert own.epoch > owner.cursor.epoch
    with pytest.raises(LeaseLost):
        await owner.commit(Batch(replace(owner.cursor, position=at(9))))
    with pytest.raises(LeaseLost):
        await own_store(store, "h").take(replace(own, epoch=own.epoch - 1), "third", 1)


@pytest.mark.parametrize("position", [5, 8])
async def test_a_handler_that_has_committed_since_the_look_is_taken_over_where_it_is_now(
    store, position
):
    """A commit that moves no position, such as one that parks a change, counts, too."""
    taking, owner = await over(store, mine(), theirs())

    async def commits():
        then = replace(owner.cursor, position=at(position), chunks=frozenset({"new"}))
        assert isinstance(await owner.commit(Batch(then)), Applied)

    store.dynamodb.before = commits
    await taking.attempt(Checkpoints(taking.stage))
    assert taking.apart == H
    assert (await own_store(store, "h").read(SHARD)).state == "active"
    await taking.attempt(Checkpoints(taking.stage))
    assert taking.apart == {}
    joined = {f"{at(position)}:h"} if position > 5 else set()
    assert (await store.read(SHARD)).joined == joined


async def test_an_owner_that_has_lost_the_shard_takes_nothing_over(store):
    taking, _ = await over(store, mine(), theirs())
    cursor = await store.read(SHARD)

    async def taken_away():
        await store.take(cursor, "another", 1)

    store.dynamodb.before = taken_away
    with pytest.raises(LeaseLost):
        await taking.attempt(Checkpoints(taking.stage))
    assert (await own_store(store, "h").read(SHARD)).state == "active"


GIVEN = {
    "where the app is": ({}, at(5), set()),
    "where it is ahead of the app": ({"joined": {f"{at(7)}:h", f"{at(9)}:g"}}, at(7), set()),
    "with what is done by half": ({"done": {f"{at(6)}:h", f"{at(6)}:g"}}, at(5), {f"{at(6)}:h"}),
    "from the beginning": ({"position": START, "dated": 0}, START, set()),
}


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("name", GIVEN)
async def test_what_is_given_back_goes_on_where_it_has_come_to(store, name, known):
    """A child that the app has made alone gets a cursor of the handler's consumer, too."""
    more, position, done = GIVEN[name]
    more = {key: frozenset(v) if isinstance(v, set) else v for key, v in more.items()}
    own = own_store(store, "h")
    here = mine(live=frozenset({taken_mark("h", 1), "built:1"}), **more)
    stage = stage_of(SimpleNamespace(clock=Hurried()), store, await owned(store, here))
    if known:
        await write(own, creation(own.space, theirs(state=HANDED_OVER, position=at(1), epoch=3)))
    strange = TakeOver(store, stage, Hurried(), {}, H)
    await strange.begin(Checkpoints(stage))
    cursor, there = await store.read(SHARD), await own.read(SHARD)
    assert cursor.live == {"built:1"}
    assert not any(mark.endswith(":h") for mark in (*cursor.joined, *cursor.done))
    assert (there.state, there.position, there.done) == ("active", position, done)
    assert there.epoch == (4 if known else 0)
    assert BEHIND not in there.live


async def test_a_root_is_the_apps_from_its_birth_unless_the_handler_has_it(store):
    own, root, child = own_store(store, "h"), Cursor("root"), Cursor("child", parent="p")
    births = Births(store, joins=MARKS)
    assert [one.live for one in await births.of([root, child], {"p"})] == [MARKS, frozenset()]
    await write(own, creation(own.space, root))
    assert [one.live for one in await births.of([root], {"p"})] == [frozenset()]


async def test_a_handlers_consumer_makes_a_root_only_where_the_app_does_not_run_the_handler(store):
    own, root, child = own_store(store, "h"), Cursor("root"), Cursor("child", parent="p")
    app, name = app_store(own)
    assert (app.space, name) == (store.space, "h")
    births = Births(app, handler=name)
    begun = replace(next_generation(None, "f", ()), joins=MARKS)
    await write_generation(store, None, begun)
    assert await births.of([root, child], {"p"}) == [child]
    await write(store, creation(store.space, root))
    assert await births.of([root, child], {"p"}) == [root, child]
    await write(store, [store.space.delete("cursor", "root")])
    await write(store, creation(store.space, replace(root, live=MARKS)))
    assert await births.of([root], {"p"}) == []
    await write(store, [store.space.delete("cursor", "root")])
    await write(store, creation(store.space, root))
    await write_generation(store, begun, replace(begun, joins=frozenset()))
    assert await births.of([root], {"p"}) == []  # the join has ended: the app runs it there


@pytest.mark.parametrize("kept", [True, False])
@pytest.mark.parametrize("handler", ["h", "g"])
async def test_what_is_given_back_waits_although_the_app_has_deleted_the_shards_cursor(
    store, handler, kept
):
    """Days after the shard has ended, the parked queues are only known from its children."""
    own, space = own_store(store, "h"), store.space
    texts = {"lane": "q", "handler": handler, "head": at(1), "tail": at(1), "chunk": "c"}
    queue = {name: {"S": text} for name, text in texts.items()} | {"since": {"N": "1"}}
    await write(store, [space.put(queue, "lane", "q")])
    await write(store, [space.put({"chunk": {"S": "c"}, "lanes": {"SS": ["q"]}}, "holds", "c")])
    for name in ("child", SHARD) if kept else ("child",):
        await write(store, creation(space, replace(mine(), name=name, chunks=frozenset({"c"}))))
    given = await owned(own, theirs(live=frozenset({BEHIND})))
    stage = stage_of(SimpleNamespace(clock=Hurried()), own, given)
    waits = TakeOver(own, stage, Hurried(), {}, {})
    assert (await waits.ahead_of_all(Checkpoints(stage)) > 0) == waits.waits == (handler == "h")
