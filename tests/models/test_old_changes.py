"""No schedule of a replay beside a live handler goes wrong, what looks simpler breaks, and the code
of a replay to the end takes the steps of the model."""

import json
import math
import random
from contextlib import asynccontextmanager

import pytest

from streamkit import App, Delete, Entity, Inserted, Modified, Policy, Put
from streamkit.archive.shards import ArchivedShards
from streamkit.core.dispatch import Dispatcher
from streamkit.core.planning import Planner
from streamkit.core.queued_keys import QueuedKeys
from streamkit.core.stage import CommitStage
from streamkit.core.tables import survey
from streamkit.fleet.generation import newest_generation
from streamkit.fleet.hosting import WORKERS
from streamkit.fleet.joining import join_generation
from streamkit.local.transport import Response
from streamkit.operate.replay.replay import replay
from streamkit.operate.replay.report import ReplayWish
from streamkit.operate.replay.to_end import own_space
from streamkit.progress.commit import Committer
from streamkit.progress.control import START, Cursor
from streamkit.progress.cursor import CursorStore, creation
from streamkit.progress.pacing import ByteBudget, Pace, Pacing
from streamkit.progress.transaction import transact
from streamkit.stream.decode import Page
from streamkit.stream.listing import list_shards
from streamkit.stream.reader import StreamPages
from streamkit.testing.archives import MemoryArchive
from tests.models.explorer import LARGE, counter_example, explore, stuck, walks
from tests.models.old_changes import NAIVE, SAFE, Bound, Model, Rules, ended, helps
from tests.models.replay import Actor, Troupe
from tests.models.replay import replay as replayed
from tests.simulation.lambdas import world_of

WALKS = 60 if LARGE else 6
TABLE = "Orders"
NOW = {"bug": False, "down": False}
"""What the handlers do wrong, for the moment."""


class Order(Entity, pk="ORDER#{number}", sk="ORDER"):
    number: int
    turn: int


class Label(Entity, pk="LABEL#{number}", sk="LABEL"):
    number: int
    text: str


class Place(Entity, pk="PLACE#{number}", sk="PLACE#{turn}"):
    number: int
    turn: int


def app_of():
    policy = Policy(attempts=1, retry_seconds=50_000, retry_seconds_max=50_000, breaker=False)
    app = App("orders", table=TABLE, archive=MemoryArchive(), policy=policy)

    @app.on
    def state(change: Inserted[Order] | Modified[Order]) -> Put[Label]:
        if NOW["down"]:
            raise OSError("down")
        code = "bug" if NOW["bug"] else "mended"
        return Put(Label(number=1, text=f"{code} {change.new.turn}"))

    @app.on
    def trail(change: Inserted[Order] | Modified[Order]) -> list[Put[Place] | Delete[Place]]:
        if NOW["down"]:
            raise OSError("down")
        turn, here = change.new.turn, Put(Place(number=1, turn=change.new.turn))
        return [here] if NOW["bug"] else [here, Delete(Place.key(number=1, turn=turn - 1))]

    return app


@pytest.fixture(scope="module")
def found(request):
    """All worlds of a replay; tests of one run one after the other."""
    return explore(Model(*SAFE[request.param]))


@pytest.mark.parametrize("found", SAFE, indirect=True)
def test_no_schedule_of_a_replay_goes_wrong(found):
    assert found.broken == {}
    assert len(found.worlds) > 500


@pytest.mark.parametrize("found", [name for name in SAFE if SAFE[name][0].whole], indirect=True)
def test_a_replay_ends(found):
    assert stuck(found, ended, helps) is None


@pytest.mark.parametrize("name", NAIVE)
def test_a_replay_that_looks_simpler_breaks(name):
    rules, bound, breaks = NAIVE[name]
    assert counter_example(Model, rules, bound, breaks=breaks)


# -- the replay of traces ---------------------------------------------------------------------------


def counted(call):
    """Name the calls of a replay that are steps."""
    if call.operation == "GetRecords":
        return "read"
    if call.operation == "TransactWriteItems" and (
        b"LABEL#" in call.payload or b"PLACE#" in call.payload
    ):
        return "commit"
    others = b".replay#" in call.payload or b".archive#" in call.payload
    live = b"#cursor#" in call.payload and not others
    if call.operation == "GetItem" and live:
        return "look"
    ends = call.operation == "UpdateItem" and b"being deleted" in call.payload
    return "end" if ends else ""


class Reader(Actor):
    """A process of a replay, which gets one record at a time, and none while it is at the `tip`."""

    def __init__(self, world, name):
        super().__init__(counted, name)
        self.world, self.tip = world, False

    async def intercept(self, call, apply):
        if call.operation != "GetRecords":
            return await super().intercept(call, apply)
        asked = json.loads(call.payload)

        def one():
            if self.tip:
                body = {"Records": [], "NextShardIterator": asked["ShardIterator"]}
                return Response(200, json.dumps(body).encode())
            status, body = self.world.engine.call(
                "dynamodbstreams", "GetRecords", {**asked, "Limit": 1}
            )
            return Response(status, json.dumps(body).encode())

        return await super().intercept(call, one)


class Shop:
    """A live shard, and real processes of a replay, to which a trace happens."""

    def __init__(self, world, app, aws, tables, troupe, kind):
        self.world, self.app, self.aws, self.tables = world, app, aws, tables
        self.troupe, self.kind = troupe, kind
        self.store = tables.store(app, aws)
        self.own = CursorStore(aws.dynamodb, own_space(self.store))
        self.readers, self.epochs, self.late = [None, None], [0, 0], {}
        self.epoch = self.turns = 0

    async def begin(self):
        """Let two changes go through a handler that has a bug."""
        self.since = self.world.clock.time()
        await ArchivedShards(self.app.archive, f"{TABLE}/{self.store.space.label}").begin(
            self.since
        )
        await join_generation(
            self.store, self.app.fingerprint(), self.app.handlers, take_over=False, host=WORKERS
        )
        (self.shard,) = [
            one.id for one in (await list_shards(self.aws, self.tables.table.stream_arn)).shards
        ]
        fresh = creation(self.store.space, Cursor(self.shard, generation=1))
        await transact(self.aws.dynamodb, self.tables.schemas, fresh, random.Random(0))
        taken = await self.store.take(await self.store.read(self.shard), "live", 1)
        handlers = [one for one in self.app.handlers if one.name == self.kind]
        routes, rng = self.app.routes(self.tables.schemas), random.Random(0)
        self.dispatcher = Dispatcher(handlers, routes, lambda *_: {}, self.world.clock, rng)
        planner = Planner(self.store.space, self.world.clock, self.shard)
        committer = Committer(self.aws.dynamodb, self.store.space, taken, self.tables.schemas, rng)
        queued = QueuedKeys(self.store, planner.queues)
        parts = planner, committer, queued, Pacing(Pace(), rng), ByteBudget()
        self.stage = CommitStage(self.dispatcher, *parts, lambda: None)
        NOW.update(bug=True, down=False)
        for _ in range(2):
            await self.writes()
            await self.live()
        NOW.update(bug=False)

    async def do(self, step):
        verb, *rest = step
        await getattr(self, verb.replace(" ", "_"))(*rest)

    async def writes(self):
        self.turns += 1
        key = {"PK": {"S": "ORDER#1"}, "SK": {"S": "ORDER"}}
        item = {**key, "number": {"N": "1"}, "turn": {"N": str(self.turns)}}
        assert self.world.engine.call("dynamodb", "PutItem", {"TableName": TABLE, "Item": item})

    async def changes(self):
        """Return the changes of the order, which the stream has."""
        pages, found = StreamPages(self.aws), []
        iterator = await pages.get_iterator(
            StreamArn=self.tables.table.stream_arn,
            ShardId=self.shard,
            ShardIteratorType="TRIM_HORIZON",
        )
        while (page := await pages.get_records(iterator)).records:
            found += [one for one in page.records if str(one.item_key.pk).startswith("ORDER#")]
            iterator = page.next_iterator
        return found

    async def live(self):
        record = (await self.changes())[await self.lived()]
        pending, _, _ = await self.dispatcher.dispatch(Page((record,)), self.shard)
        self.stage.enqueue(pending, traffic=True)
        await self.stage.run()

    async def lived(self):
        return await self.before((await self.store.read(self.shard)).position)

    async def before(self, position):
        found = [one.position for one in await self.changes()]
        return 0 if position == START else sum(one <= position for one in found)

    async def takes(self, n):
        self.epoch += 1
        reader = self.troupe.enters(Reader(self.world, f"process {self.epoch}"))
        self.readers[n], self.epochs[n] = reader, self.epoch
        wish = ReplayWish(
            since=self.since, until=math.inf, handlers=[self.kind], to_end=True, allow_loss=True
        )

        async def run():
            async with self.world.clients(reader) as aws:
                rng = random.Random(reader.name)
                return await replay(self.app, aws, wish, rng=rng, clock=self.world.clock)

        await reader.begins(run())

    async def sends(self, n):
        """It gets records until one of the order is among them."""
        reader = self.readers[n]
        while reader.at == "read":
            await reader.step()

    async def fails(self, n):
        NOW.update(down=True)
        await self.sends(n)
        NOW.update(down=False)
        assert self.readers[n].ended

    async def tip(self, n):
        reader = self.readers[n]
        reader.tip = True
        while reader.at == "read":
            await reader.step()
        reader.tip = False

    async def arrives(self, n):
        if not self.readers[n].ended:
            await self.readers[n].step()

    looks = arrives

    async def ends(self, n):
        while not self.readers[n].ended:
            await self.readers[n].step()

    async def stands_still(self, n):
        self.late[self.epochs[n]], self.readers[n] = self.readers[n], None

    async def arrives_late(self, epoch, *_):
        reader = self.late.pop(epoch)
        reader.waiting.apply()
        await reader.dies()

    async def state(self):
        own = await newest_generation(self.own)
        cursor = await self.own.read(self.shard) if own else None
        ended = bool(self.epoch) and own is None
        pos = await self.before(cursor.position) if cursor else 0
        ats = []
        for reader, epoch in zip(self.readers, self.epochs, strict=True):
            gone = reader is None or reader.ended or ended or epoch != self.epoch
            ats.append("" if gone else reader.at)
        lived = await self.lived()
        return self.turns, lived, self.target(), None if ended else pos, ended, tuple(ats)

    def target(self):
        items = self.world.items(TABLE)
        if self.kind == "trail":
            return {int(i["turn"]["N"]) for i in items if i["PK"]["S"].startswith("PLACE#")}
        (text,) = [i["text"]["S"] for i in items if i["PK"]["S"].startswith("LABEL#")]
        return text


def seen(kind):
    """Return what the model says of a world, as far as it can be seen in a table."""

    def said(world):
        ended = world.state == "ended"
        ats = tuple(
            "" if one is None or ended or one.epoch != world.epoch else one.at
            for one in world.processes
        )
        target = world.target
        shown = set(target) if kind == "trail" else f"{target[0]} {target[2]}"
        return world.x, world.live, shown, None if ended else world.pos, ended, ats

    return said


def played(bound, traces):
    @asynccontextmanager
    async def opened():
        app = app_of()
        world = world_of(app)
        async with world.clients() as aws, Troupe.on_stage() as troupe:
            yield Shop(world, app, aws, await survey(app, aws), troupe, bound.kind)

    return replayed(Model(Rules(), bound), traces, opened, seen(bound.kind))


PLAYED = {"state": Bound(fails=1), "trail": Bound("trail", fails=1)}


@pytest.mark.parametrize("kind", PLAYED)
def test_the_processes_of_a_replay_take_the_steps_of_the_model(kind):
    traces = list(walks(Model(Rules(), PLAYED[kind]), WALKS, 24))
    assert played(PLAYED[kind], traces) > 8 * WALKS


PASSED = [
    name for name in NAIVE if NAIVE[name][0].guard == "end" and NAIVE[name][1].kind == "state"
]


@pytest.mark.parametrize("name", [name for name in PASSED if not NAIVE[name][0].out])
def test_where_a_simpler_replay_breaks_the_code_does_as_the_model_does(name):
    rules, bound, breaks = NAIVE[name]
    trace = counter_example(Model, rules, bound, breaks=breaks)
    assert played(PLAYED["state"], [trace]) >= 3


@pytest.mark.parametrize("late", [[("looks", 0), ("takes", 1)], [("takes", 1), ("looks", 0)]])
def test_a_process_that_stood_still_does_not_end_the_replay_of_another(late):
    done = [("takes", 0), ("sends", 0), ("arrives", 0), ("sends", 0), ("arrives", 0), ("tip", 0)]
    trace = [*done, ("writes",), *late, ("ends", 0), ("sends", 1)]
    assert played(PLAYED["state"], [trace]) == len(trace)
