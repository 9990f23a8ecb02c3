"""No schedule breaks the rules of parked queues, naive ones break, and the code is the rules."""

import json
from contextlib import AsyncExitStack, asynccontextmanager

import anyio
import msgspec
import pytest

from streamkit import Add, App, Entity, Inserted, Policy
from streamkit.changes import ItemKey
from streamkit.core.checkpoints import Checkpoints
from streamkit.core.outcome import Outcome, PendingChange, resolve
from streamkit.core.parking import Failure, queue_name
from streamkit.core.tables import survey
from streamkit.operate.redrive import open_redriver
from streamkit.progress.control import START, Cursor, child_of
from streamkit.progress.cursor import CursorStore, creation
from streamkit.stream.decode import Record
from tests.models.explorer import LARGE, counter_example, explore, stuck, walks
from tests.models.parked_queue import (
    BOUNDS,
    LAST,
    NAIVE,
    SAFE,
    UNREAD,
    Bound,
    Model,
    Rules,
    by_anyone,
    by_owners,
    is_healed,
    is_read,
)
from tests.models.replay import bench, replay, stage_of, write
from tests.pending import SCHEMA

WALKS = 1000 if LARGE else 50
LATE_SECONDS = 900
"""How late a request arrives: no client token is remembered for as long."""
OWNER = 2
"""The owner's process; the others are redrivers."""


@pytest.fixture(scope="module")
def found(request):
    """All worlds within a bound; tests of one bound run one after the other."""
    return explore(Model(Rules(), BOUNDS[request.param]))


@pytest.mark.parametrize("found", BOUNDS, indirect=True)
def test_no_schedule_of_owners_and_redrivers_goes_wrong(found):
    assert found.broken == {}
    assert len(found.worlds) > 300


@pytest.mark.parametrize("found", BOUNDS, indirect=True)
def test_a_queue_holds_up_no_owner_and_empties_once_nothing_fails(found):
    assert stuck(found, is_read, by_owners) is None
    assert stuck(found, is_healed, by_anyone) is None


@pytest.mark.parametrize("name", NAIVE)
def test_a_queue_that_looks_simpler_breaks(name):
    rules, breaks = NAIVE[name]
    assert counter_example(Model, rules, Bound(3, 2), breaks=breaks)


@pytest.mark.parametrize("name", SAFE)
def test_a_redrive_that_asks_for_less_is_as_safe_with_numbers_of_their_own(name):
    assert explore(Model(SAFE[name])).broken == {}


class Note(Entity, pk="NOTE#{name}", sk="NOTE"):
    name: str
    number: int


class Seen(Entity, pk="SEEN#{name}", sk="{number}"):
    name: str
    number: int
    times: int = 0


class Driver:
    """An owner with the real commit stage, and redrivers, of an app of one handler."""

    def __init__(self, bench, stack):
        self.bench, self.key, self.stack = bench, ItemKey("NOTE#0", "NOTE"), stack
        self.note, self.actor, self.broken = "0", bench.actors[OWNER], False
        self.app = App("app", table=SCHEMA.name, policy=Policy(attempts=1))
        self.shard, self.stage, self.owners = "s", None, 0

        @self.app.on
        def note(change: Inserted[Note]):
            if self.broken:
                raise ValueError
            return self.effect(change.new.number)

        (self.handler,) = self.app.handlers
        self.queue = queue_name(self.handler.name, self.key)

    def effect(self, number):
        return Add(Seen.key(name=self.note, number=number), times=1)

    async def begin(self):
        aws = self.bench.aws[OWNER]
        space = (await survey(self.app, aws)).space(self.app)
        self.store = CursorStore(aws.dynamodb, space)
        opened = [open_redriver(self.app, aws) for aws in self.bench.aws[:OWNER]]
        self.redrivers = [await self.stack.enter_async_context(one) for one in opened]
        await self.actor.does(write(self.store, creation(space, Cursor("s", generation=1))))
        await self.take()

    async def do(self, step):
        name, *rest = step
        verb, _, lost = name.partition(", ")
        await getattr(self, verb.replace(" ", "_"))(*rest, **({"heard": False} if lost else {}))

    # -- the owner ---------------------------------------------------------------------------------

    async def take(self):
        self.owners += 1
        read = await self.store.read(self.shard)
        owned = await self.store.take(read, f"w{self.owners}", read.generation)
        self.stage = stage_of(self.bench, self.store, owned)
        await self.stage.queued_keys.load(owned.chunks)

    async def changes_hands(self):
        await self.actor.dies()
        await self.take()

    async def runs(self):
        await self.enqueue(None)

    async def fails(self):
        await self.enqueue(Failure("ValueError", "no"))

    async def enqueue(self, failure):
        at = self.stage.cursor.position
        number = 1 + (LAST - 1 if self.shard == "c" else 0 if at == START else int(at))
        outcome, position = Outcome(self.handler, run=1), str(number).zfill(40)
        resolve(outcome, (self.effect(number),), (), position, SCHEMA)
        if failure is not None:
            outcome.fail(failure)
        record = self.record(number)
        self.stage.enqueue(
            [PendingChange(position, 0.0, record, Note, self.key, [outcome])], traffic=True
        )
        await self.actor.begins(self.stage.run())

    def record(self, number):
        keys = {"pk": {"S": self.key.pk}, "sk": {"S": self.key.sk}}
        image = {**keys, "name": {"S": self.note}, "number": {"N": str(number)}}
        inner = {"Keys": keys, "NewImage": image, "SequenceNumber": str(number)}
        body = {"eventName": "INSERT", "eventID": f"e{number}", "dynamodb": inner}
        return msgspec.json.decode(msgspec.json.encode(body), type=Record)

    async def commits(self):
        self.actor.waiting.arrives()
        await self.actor.settles()

    async def finishes(self, how):
        children = [self.child(self.stage.cursor)] if how != "alone" else []
        await self.actor.does(Checkpoints(self.stage).end(children))
        if children:
            self.shard = "c"
            await self.take()

    async def lists(self):
        made = creation(self.store.space, self.child(await self.store.read("s")))
        await self.actor.does(write(self.store, made))
        self.shard = "c"
        await self.take()

    @staticmethod
    def child(parent):
        return child_of("c", parent, generation=1, parent_name="s")

    # -- redrivers ---------------------------------------------------------------------------------

    async def reads(self, n):
        await self.bench.actors[n].begins(self.redrivers[n].redrive(self.queue))

    async def fails_again(self, n):
        self.broken = True
        report = await self.bench.actors[n].does(self.redrivers[n].redrive(self.queue))
        self.broken = False
        assert report.failed

    async def dies(self, n):
        await self.bench.actors[n].dies()

    async def leaves(self, n, *, heard=True):
        actor = self.bench.actors[n]
        await anyio.sleep(LATE_SECONDS)
        if heard:
            actor.waiting.arrives()
        else:
            held = actor.waiting
            held.apply()
            held.breaks()
        await actor.settles()

    # -- what is -----------------------------------------------------------------------------------

    async def state(self):
        cursor = await self.store.read(self.shard)
        shard = "child" if self.shard == "c" else "finished" if cursor.finished else "parent"
        at = cursor.position
        passed = LAST - 1 if (self.shard, at) == ("c", START) else 0 if at == START else int(at)
        owner = None if shard == "finished" else (self.knows(), self.actor.waiting is not None)
        queue = await self.store.item("lane", self.queue)
        ends = queue and (int(queue["head"]["S"]), int(queue["tail"]["S"]))
        redrivers = tuple(map(self.at, self.bench.actors[:OWNER]))
        return (
            passed,
            shard,
            bool(cursor.chunks),
            owner,
            ends,
            self.parked(),
            self.done(),
            redrivers,
        )

    def knows(self):
        hold = self.stage.queued_keys.queues.get(self.queue)
        return 0 if hold is None else UNREAD if hold.tail is None else int(hold.tail)

    def parked(self):
        there = {}
        for item in self.bench.items("", "parked"):
            number = int(item["_sk_position"]["S"])
            there[number] = int(item.get("_sk_next", {"S": "0"})["S"])
        return there

    def done(self):
        items = self.bench.items(f"SEEN#{self.note}")
        return {int(item["sk"]["S"]): int(item["times"]["N"]) for item in items}

    @staticmethod
    def at(actor):
        """Return which change a redriver is about to take off the queue."""
        if actor.waiting is None:
            return 0
        actions = json.loads(actor.waiting.call.payload)["TransactItems"]
        keys = [action["Delete"]["Key"]["pk"]["S"] for action in actions if "Delete" in action]
        (parked,) = [key for key in keys if "#parked#" in key]
        return int(parked.rpartition("#")[2])


def seen(world):
    """Return what a driver's `state` says of the code."""
    owner = None if world.shard == "finished" else (world.knows, world.plan is not None)
    parked = {one.number: one.behind for one in world.parked}
    done = {change: world.effects.count(change) for change in world.effects}
    redrivers = tuple(read.number if read else 0 for read in world.redrivers)
    ends = world.queue and tuple(world.queue)
    return world.passed, world.shard, world.named, owner, ends, parked, done, redrivers


@asynccontextmanager
async def opened():
    async with bench(OWNER + 1) as place, AsyncExitStack() as stack:
        yield Driver(place, stack)


def replayed(traces):
    return replay(Model(Rules(), Bound(9, OWNER)), traces, opened, seen)


def often(step):
    """Prefer what makes a queue grow and shrink."""
    return {"fails": 4.0, "fails again": 0.3, "changes hands": 0.3, "dies": 0.3}.get(step[0], 1.0)


def test_the_code_goes_where_random_schedules_go():
    traces = walks(Model(Rules(), Bound(4, OWNER)), WALKS, 25, weigh=often)
    assert replayed(traces) > 10 * WALKS


@pytest.mark.parametrize("name", NAIVE)
def test_the_code_is_not_led_astray_by_what_breaks_a_naive_queue(name):
    rules, breaks = NAIVE[name]
    trace = counter_example(Model, rules, Bound(3, OWNER), breaks=breaks)
    assert replayed([trace]) >= 5
