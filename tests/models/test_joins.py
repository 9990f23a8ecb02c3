"""No schedule of a join goes wrong, what looks simpler breaks, and the command is the model's.

The last is shown by replays: each step of a trace happens to the real command, owners, listers and
workers that begin, and after each of them what is stored is what the model says.
"""

import random
from dataclasses import replace

import pytest

from streamkit import Add, App, Inserted, Policy
from streamkit.core.checkpoints import Checkpoints
from streamkit.core.parked.head import take_off
from streamkit.core.parked.queues import parked_queues, read_head
from streamkit.core.tables import open_store
from streamkit.errors import LeaseLost
from streamkit.fleet.cursors import LISTER, every_cursor
from streamkit.fleet.generation import newest_generation
from streamkit.fleet.hosting import WORKERS
from streamkit.fleet.joining import join_generation
from streamkit.fleet.lister import Lister
from streamkit.operate.moves import MoveRefused, join_handler
from streamkit.operate.moves.into_app import apart
from streamkit.progress.commit import Applied, Batch, Committer
from streamkit.progress.control import START, Cursor, child_of
from streamkit.progress.cursor import creation
from streamkit.progress.fold import fold
from streamkit.progress.pacing import Pace, Pacing
from streamkit.stream.asking import AskRate
from streamkit.stream.listing import StreamLineage
from streamkit.testing.sightings import WRITES
from streamkit.worker.go_live import GoLive
from tests.models.explorer import LARGE, counter_example, explore, stuck, walks
from tests.models.joins import (
    BOUNDS,
    CHILD,
    NAIVE,
    PARENT,
    ROOT,
    SAFE,
    STANDS_STILL,
    UNSEEN,
    Bound,
    Model,
    Rules,
    flows,
    helps,
    of_the_app,
)
from tests.models.replay import on_bench, replay, stage_of, write
from tests.pending import SCHEMA, Thing, add, done, failed, pending_change

WALKS = 100 if LARGE else 8
"""Random traces within each bound."""
OTHERS, COMMAND = 0, 1
"""The actors: all that reads and commits, and the command."""


@pytest.fixture(scope="module")
def found(request):
    """All worlds within a bound; tests of one bound run one after the other."""
    return explore(Model(Rules(), BOUNDS[request.param]))


@pytest.mark.parametrize("found", BOUNDS, indirect=True)
def test_no_schedule_of_a_join_goes_wrong(found):
    assert found.broken == {}
    assert len(found.worlds) > 500


@pytest.mark.parametrize("found", BOUNDS, indirect=True)
def test_the_handler_does_every_change_in_the_end(found, request):
    model = Model(Rules(), BOUNDS[request.node.callspec.params["found"]])
    assert stuck(found, model.seen, helps) is None


@pytest.mark.parametrize("found", BOUNDS, indirect=True)
def test_the_app_goes_on_while_the_handlers_consumer_does_nothing(found):
    assert stuck(found, flows, of_the_app) is None


STOPS = [name for name in BOUNDS if not (BOUNDS[name].root or BOUNDS[name].older)]


@pytest.mark.parametrize("name", STOPS)
def test_no_schedule_of_a_command_that_stops_both_goes_wrong(name):
    model = Model(Rules(how="stop"), BOUNDS[name])
    found = explore(model)
    assert found.broken == {}
    assert stuck(found, model.seen, helps) is None


NAMES = ("parent", "child")


def cursors(model, there, *, own):
    """Return what the table has where a world has these cursors."""
    found = {}
    for shard, name in enumerate(NAMES):
        one = there[shard]
        if one is not None:
            position = START if one.pos == model.begins[shard] else f"{one.pos:040d}"
            finished = one.state == "finished" if own else one.finished
            done = frozenset({f"{one.pos + 1:040d}:h"}) if own and one.half else frozenset()
            state, parent = "finished" if finished else "active", NAMES[0] if shard else None
            found[name] = Cursor(name, parent, position=position, state=state, done=done)
    return found


@pytest.mark.parametrize(
    "bound", [Bound(takes=0), Bound((3, 2), takes=0), Bound(takes=0, halves=1)]
)
def test_the_command_asks_for_what_the_model_asks_for_in_every_world(bound):
    model, looks = Model(Rules(how="stop"), bound), set()
    for world in explore(model).worlds:
        if world.phase == "joining":
            mine = cursors(model, world.app, own=False)
            done = cursors(model, world.own, own=True)
            fits = apart(mine, done) == ([], [])
            assert fits == model.fits(world), world
            looks.add((fits, *mine, *done))
    assert {True, False} == {fits for fits, *_ in looks}
    assert len(looks) > 5


@pytest.mark.parametrize("name", NAIVE)
def test_a_join_that_looks_simpler_breaks(name):
    rules, bound, breaks = NAIVE[name]
    assert counter_example(Model, rules, bound, breaks=breaks)


@pytest.mark.parametrize("name", UNSEEN)
def test_a_join_that_looks_simpler_leaves_changes_undone(name):
    rules, bound = UNSEEN[name]
    model = Model(rules, bound)
    found = explore(model)
    assert found.broken == {}
    assert stuck(found, model.seen, helps) is not None


@pytest.mark.parametrize("name", SAFE)
def test_a_join_that_asks_for_less_is_as_safe(name):
    assert explore(Model(SAFE[name])).broken == {}


def test_an_app_that_waits_at_a_barrier_stands_still():
    assert stuck(explore(Model(STANDS_STILL, Bound())), flows, of_the_app) is not None


# -- the replay ------------------------------------------------------------------------------------


def app_of(*, joined):
    """An app before the join, and after it."""
    app = App("app", table=SCHEMA.name, policy=Policy(attempts=1))

    @app.on
    def count(change: Inserted[Thing]) -> Add[Thing]: ...

    def h(change: Inserted[Thing]) -> Add[Thing]: ...

    app.on(h) if joined else app.on(start="2020-01-01")(h)
    return app


def every_call(call):
    return "write" if call.operation in WRITES else call.operation


class Consumer:
    """One of the two consumers: its control items, and its owners of shards."""

    def __init__(self, driver, store, handlers):
        self.driver, self.store = driver, store
        self.handlers = {handler.name: handler for handler in handlers}
        self.stages, self.does = {}, driver.does

    async def begins(self, fingerprint):
        """A worker joins the consumer, or founds it."""
        doing = join_generation(
            self.store, fingerprint, self.handlers.values(), take_over=True, host=WORKERS
        )
        await self.does(doing)

    async def takes(self, shard):
        """A worker of the newest generation takes a shard; the owner before is not told."""
        self.driver.owners += 1
        owned = await self.taken(self.driver.names[shard], f"w{self.driver.owners}")
        stage = self.stages[shard] = stage_of(self.driver.bench, self.store, owned)
        await self.does(stage.queued_keys.load(owned.chunks))
        return stage

    async def taken(self, name, owner):
        newest = await self.does(newest_generation(self.store))
        read = await self.does(self.store.read(name))
        return await self.does(self.store.take(read, owner, newest.number))

    async def owner(self, shard):
        return self.stages.get(shard) or await self.takes(shard)

    async def is_left(self):
        """Let the owners of before try to commit, who must not any more."""
        for shard in [*self.stages]:
            await self.is_refused(self.stages.pop(shard))

    async def is_refused(self, stage):
        batch = Batch(replace(stage.cursor, position="9" * 40))
        with pytest.raises(LeaseLost):
            await self.does(stage.committer.commit(batch))

    async def commits(self, shard, *outcomes):
        stage, at = await self.owner(shard), await self.next(shard)
        stage.enqueue([pending_change(at, *outcomes)], traffic=True)
        await self.does(stage.run())

    async def half(self, shard):
        """Commit what another handler makes of a change, and not more of it."""
        stage, at = await self.owner(shard), await self.next(shard)
        half = fold([a for o in [done(at, add(f"half-{at}"))] for a in o.actions.values()])
        then = stage.advanced(stage.here(done=frozenset({f"{at:040d}:other"})))
        verdict = await self.does(stage.committer.commit(Batch(then, half)))
        assert isinstance(verdict, Applied)
        await stage.loop.adopt(verdict.batch)

    async def next(self, shard):
        return 1 + self.driver.position(shard, (await self.owner(shard)).cursor)

    async def ends(self, shard, *children):
        stage, name = await self.owner(shard), self.driver.names[shard]
        number = stage.cursor.generation
        made = [
            child_of(self.driver.names[c], stage.cursor, generation=number, parent_name=name)
            for c in children
        ]
        await self.does(Checkpoints(stage).end(made))
        del self.stages[shard]

    async def lists(self):
        """A lister that has the lead finds the child of a finished shard."""
        owned, rng = await self.taken(LISTER, "lister"), random.Random(0)
        committer = Committer(
            self.store.dynamodb, self.store.space, owned, self.driver.schemas, rng
        )
        stream = StreamLineage(self.driver.aws, self.driver.arn)
        pacing, asks = Pacing(Pace(), rng), AskRate(lambda: 1000)
        lister = Lister(stream, self.store, committer, self.driver.bench.clock, pacing, asks)
        await self.does(lister.children_of([self.driver.names[PARENT]]))

    async def redrives(self):
        """A person redrives the first parked change; it needs no shard."""
        (queue,) = await self.queues()
        found = await self.does(read_head(self.store, queue.name))
        effects = fold(self.driver.effects(int(found[1].position)).actions.values())
        clock, rng = self.driver.bench.clock, random.Random(0)
        doing = take_off(self.store, self.driver.schemas, *found, effects, rng, clock)
        assert await self.does(doing) is None

    async def queues(self):
        cursors = await self.does(every_cursor(self.store))
        return await self.does(parked_queues(self.store, cursors))

    async def parked(self):
        queues = await self.queues()
        mine = f"#{self.store.space.consumer}#"
        items = [i for i in self.driver.bench.items("", "parked") if mine in i["pk"]["S"]]
        assert len(queues) == bool(items)
        return tuple(sorted(int(item["_sk_position"]["S"]) for item in items))


class Driver:
    """A shard and its child, the owners of an app and of its handler's consumer, and the command."""

    def __init__(self, bench, model):
        self.bench, self.model = bench, model
        self.does, self.aws = bench.actors[OTHERS].does, bench.aws[OTHERS]
        self.schemas, self.owners = {SCHEMA.name: SCHEMA}, 0
        self.old, self.new = app_of(joined=False), app_of(joined=True)
        self.command, self.outdated = None, False

    async def begin(self):
        control = self.bench.control
        control.configure(roll_after=None, describe_rate=None, retention=1e9)
        control.disable(SCHEMA.name)
        self.arn = control.enable(SCHEMA.name)
        (root,) = [shard["id"] for shard in control.shards(SCHEMA.name)]
        (child,) = control.roll(SCHEMA.name)
        self.names = [root, child]
        listener = self.old.listeners["h"]
        # The app of before does not run H: an owner asks its cursor's marks alone, see `h_of`.
        self.app = await self.consumer(self.old)
        self.own = await self.consumer(listener)
        self.h, self.joined = self.own.handlers["h"], False
        for consumer, declared in ((self.app, self.old), (self.own, listener)):
            await consumer.begins(declared.fingerprint())
            for name in (root, LISTER):
                made, listed = creation(consumer.store.space, Cursor(name, generation=1))
                actions = [made, *([listed] if name != LISTER else [])]
                await self.does(write(consumer.store, actions))

    async def consumer(self, app):
        return Consumer(self, await self.does(open_store(app, self.aws)), app.handlers)

    async def do(self, step):
        name, *rest = step
        verb = name.replace(" ", "_")
        if verb.startswith("command_stops"):
            verb, rest = "command_stops", [name.rpartition(" ")[2]]
        await getattr(self, verb)(*rest)

    def position(self, shard, cursor):
        return self.model.begins[shard] if cursor.position == START else int(cursor.position)

    # -- what H does -------------------------------------------------------------------------------

    def effects(self, at, *, rest=False):
        halves = [] if rest else [add(f"half-{at}")]
        return done(at, add(f"h-{at}"), *halves, by=self.h)

    async def h_of(self, shard, outcome):
        """Return what the app's owner makes of a change for H, as far as the app runs it."""
        stage = await self.app.owner(shard)
        record = pending_change(await self.app.next(shard)).record
        runs = GoLive(dict, lambda: stage.cursor, self.app.store).as_run(self.h, record)
        return [outcome] if self.joined and runs else []

    # -- the app -----------------------------------------------------------------------------------

    async def takes(self, shard):
        before = self.app.stages.pop(shard, None)
        await self.app.takes(shard)
        if before is not None:
            await self.app.is_refused(before)

    async def commits(self, shard):
        at, cursor = await self.app.next(shard), (await self.app.owner(shard)).cursor
        h = await self.h_of(shard, self.effects(at, rest=bool(cursor.done)))
        await self.app.commits(shard, done(at, add(f"count-{at}"), by=self.counter), *h)

    async def queues(self, shard):
        await self.commits(shard)

    async def parks(self, shard):
        at, h = await self.app.next(shard), await self.h_of(shard, failed(self.h))
        await self.app.commits(shard, done(at, add(f"count-{at}"), by=self.counter), *h)

    @property
    def counter(self):
        return self.app.handlers["count"]

    async def begins(self, shard):
        await self.app.half(shard)

    async def finishes(self, shard):
        await self.app.ends(shard)

    async def finishes_with_its_child(self, shard):
        await self.app.ends(shard, CHILD)

    async def lists(self, shard):
        await self.app.lists()

    async def app_redrive(self):
        await self.app.redrives()

    async def worker_begins(self):
        """A worker of the version before begins while the command is under way."""
        await self.app.begins(self.old.fingerprint())
        self.outdated = True

    # -- H's consumer ------------------------------------------------------------------------------

    async def own_commits(self, shard):
        cursor = (await self.own.owner(shard)).cursor
        at = await self.own.next(shard)
        await self.own.commits(shard, self.effects(at, rest=bool(cursor.done)))

    async def own_queues(self, shard):
        await self.own_commits(shard)

    async def own_parks(self, shard):
        await self.own.commits(shard, failed(self.h))

    async def own_begins(self, shard):
        await self.own.half(shard)

    async def own_finishes(self, shard):
        await self.own.ends(shard)

    async def own_lists(self, shard):
        await self.own.lists()

    async def own_redrive(self):
        await self.own.redrives()

    # -- the command -------------------------------------------------------------------------------

    async def command_stops(self, who):
        """Let it stop H's consumer, up to its first write of the app; or the app, up to its look.

        One that was killed, or is outdated, is given again, and begins with H's consumer.
        """
        if self.command is None or self.outdated:
            await self.command_dies()
            self.command, self.outdated = self.bench.actors[COMMAND], False
            aws, clock = self.bench.aws[COMMAND], self.bench.clock
            await self.command.begins(join_handler(self.new, aws, "h", clock=clock))
            while not (self.command.at == "write" and self.is_of("#app#")):
                await self.goes_on()
            await self.own.is_left()
        if who == "own":
            return
        looks = 0
        while looks < 2 or looks % 2 or self.command.at != "BatchGetItem":
            # A round of `capture` begins and ends with a look at the lister's cursor.
            looks += self.command.at == "GetItem" and self.is_of(LISTER)
            await self.goes_on()
        await self.app.is_left()

    async def goes_on(self):
        await self.command.step()
        assert self.command.waiting is not None, self.command.error

    def is_of(self, text):
        return text.encode() in self.command.waiting.call.payload

    async def command_looks(self):
        if self.command is None:
            await self.command_stops("app")
        while self.command.at != "write":
            await self.goes_on()

    async def command_marks(self):
        while not self.is_of("#app.h#"):  # what decides writes both consumers
            await self.goes_on()

    async def command_decides(self):
        """The next version of the app begins behind the decision."""
        assert (await self.command.ends()).handler == "h"
        self.command, self.joined = None, True
        self.app.handlers = {handler.name: handler for handler in self.new.handlers}
        await self.app.begins(self.new.fingerprint())

    async def command_gives_up(self):
        if self.command is None:
            await self.command_stops("app")
        with pytest.raises(MoveRefused):
            await self.command.ends()
        self.command = None

    async def command_dies(self):
        await self.bench.actors[COMMAND].dies()
        self.command = None

    # -- what is -----------------------------------------------------------------------------------

    async def state(self):
        mine = await self.does(every_cursor(self.app.store))
        theirs = await self.does(every_cursor(self.own.store))
        counts = {i["pk"]["S"].removeprefix("THING#"): i["count"]["N"] for i in self.things()}
        assert set(counts.values()) <= {"1"}, counts
        asked = (await self.does(newest_generation(self.app.store))).asks != ""
        host = (await self.does(newest_generation(self.own.store))).host
        return (
            [self.app_cursor(shard, mine.get(name)) for shard, name in enumerate(self.names)],
            [self.own_cursor(shard, theirs.get(name)) for shard, name in enumerate(self.names)],
            sorted(counts),
            (await self.app.parked(), await self.own.parked()),
            {who for who, stands in (("app", asked), ("own", host != WORKERS)) if stands},
        )

    def things(self):
        return self.bench.items("THING#")

    def app_cursor(self, shard, cursor):
        if cursor is None:
            return None
        marks = [int(mark.partition(":")[0]) for mark in cursor.joined]
        return self.position(shard, cursor), cursor.finished, marks, bool(cursor.done)

    def own_cursor(self, shard, cursor):
        return cursor and (self.position(shard, cursor), cursor.state, bool(cursor.done))


def seen(world):
    """Return what a driver's `state` says of the code: all that is in the table."""
    app, things = [], []
    for shard, cursor in enumerate(world.app[:ROOT]):
        if cursor is None:
            app.append(None)
            continue
        marks = [] if cursor.mark is None else [cursor.mark]
        app.append((cursor.pos, cursor.finished, marks, cursor.half))
        begins = 0 if shard == PARENT else world.app[PARENT].pos
        things += [f"count-{at}" for at in range(begins + 1, cursor.pos + 1)]
    own = [c and (c.pos, c.state, c.half) for c in world.own[:ROOT]]
    things += [f"h-{at}" for at in world.did[0]]
    things += [f"half-{at}" for at in {*world.begun, *world.did[0]}]
    queues = tuple(world.app_queue), tuple(world.own_queue)
    return app, own, sorted(things), queues, set(world.still)


def replayed(bound, traces):
    model = Model(Rules(how="stop"), bound)
    opened = on_bench(lambda place: Driver(place, model), holds=every_call)
    return replay(model, traces, opened, seen)


def often(step):
    """Let the command come about often, and both consumers meet."""
    return {"command dies": 0.5, "worker begins": 0.5, "takes": 0.5}.get(step[0], 1.0)


REPLAYED = {
    "changes hands": Bound(takes=3),
    "parked": Bound(takes=2, own_parks=1, app_parks=1),
    "by half": Bound(halves=2),
}
ENDS = ("command decides", "command gives up", "command dies", "worker begins")


@pytest.mark.parametrize("name", REPLAYED)
def test_the_command_goes_where_random_schedules_go(name):
    bound = REPLAYED[name]
    traces = list(walks(Model(Rules(how="stop"), bound), WALKS, 40, weigh=often))
    assert {(end,) for end in ENDS} <= {step for trace in traces for step in trace}
    assert replayed(bound, traces) > 20 * WALKS


@pytest.mark.parametrize("name", [name for name in NAIVE if NAIVE[name][0].how == "stop"])
def test_the_command_is_not_led_astray_by_what_breaks_a_naive_one(name):
    rules, bound, breaks = NAIVE[name]
    trace = counter_example(Model, rules, bound, breaks=breaks)
    assert replayed(bound, [trace]) >= 2
