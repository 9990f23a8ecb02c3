"""The code that takes a handler over is the model's: each step of a trace happens to real owners.

After each step what is stored is what the model says. The model itself: `test_joins`.
"""

from contextlib import suppress

import pytest

from streamkit.core.checkpoints import Checkpoints
from streamkit.errors import LeaseLost
from streamkit.fleet.cursors import every_cursor
from streamkit.fleet.taken import BEHIND, own_store, taken_mark
from streamkit.progress.cursor import CursorStore
from streamkit.worker.taking_over import TakeOver
from tests.models.explorer import LARGE, counter_example, walks
from tests.models.joins import NAIVE, ROOT, Bound, Model, Rules
from tests.models.replay import on_bench, replay, stage_of
from tests.models.test_joins import Driver, every_call

WALKS = 100 if LARGE else 30
H = {"h": taken_mark("h", 1)}


class Hurried:
    """A clock by which each look is the last one."""

    now = 0.0

    def monotonic(self):
        self.now += 100
        return self.now


class LiveDriver(Driver):
    """The owners of an app and of its handler's consumer, and an owner that takes over."""

    async def begin(self):
        await super().begin()
        self.saw, self.air = {}, None

    async def h_of(self, shard, outcome):
        self.joined = H["h"] in (await self.app.owner(shard)).cursor.live
        return await super().h_of(shard, outcome)

    async def commits(self, shard):
        await self.forgets(shard)
        await super().commits(shard)

    async def parks(self, shard):
        await self.forgets(shard)
        await super().parks(shard)

    async def finishes(self, shard):
        await self.forgets(shard)
        await super().finishes(shard)

    async def finishes_with_its_child(self, shard):
        await self.forgets(shard)
        await super().finishes_with_its_child(shard)

    # -- taking over -------------------------------------------------------------------------------

    async def takes(self, shard):
        await self.forgets(shard)
        await super().takes(shard)

    async def forgets(self, shard):
        """Let an owner go on that has looked: what it has seen of the other cursor is old."""
        if shard in self.saw:
            await self.saw.pop(shard)[0].dies()

    async def looks(self, shard):
        """Let the owner look, up to its transaction."""
        await self.forgets(shard)
        owner = await self.app.owner(shard)
        place, actor = next((n, a) for n, a in enumerate(self.bench.actors) if n and a.ended)
        store = CursorStore(self.bench.aws[place].dynamodb, self.app.store.space)
        stage = stage_of(self.bench, store, owner.cursor)
        self.saw[shard] = actor, stage, owner
        taking = TakeOver(store, stage, Hurried(), H, {})
        await actor.begins(taking.attempt(Checkpoints(stage)))
        while actor.at != "write":
            await actor.step()
            assert actor.waiting is not None, actor.error

    async def asks(self, shard):
        self.air = self.saw.pop(shard)

    async def arrives(self, join):
        actor, stage, owner = self.air
        with suppress(LeaseLost):
            await actor.ends()
            if self.app.stages.get(join.shard) is owner:
                fresh = stage_of(self.bench, self.app.store, stage.cursor)
                await self.does(fresh.queued_keys.load(stage.cursor.chunks))
                self.app.stages[join.shard] = fresh

    async def is_lost(self, join):
        await self.air[0].dies()

    # -- a version without the handler -------------------------------------------------------------

    async def older_takes(self, shard):
        await self.takes(shard)

    async def older_gives_back(self, shard):
        stage = await self.app.owner(shard)
        strange = TakeOver(self.app.store, stage, Hurried(), {}, H)
        await self.does(strange.begin(Checkpoints(stage)))
        self.own.stages.pop(shard, None)

    async def own_goes_on(self, shard):
        stage = await self.own.owner(shard)
        waits = TakeOver(self.own.store, stage, Hurried(), {}, {})
        assert await self.does(waits.ahead_of_all(Checkpoints(stage))) == 0.0

    # -- what is -----------------------------------------------------------------------------------

    async def state(self):
        mine = await self.does(every_cursor(self.app.store))
        theirs = await self.does(every_cursor(own_store(self.app.store, "h")))
        counts = {i["pk"]["S"].removeprefix("THING#"): i["count"]["N"] for i in self.things()}
        assert set(counts.values()) <= {"1"}, counts
        return (
            [self.app_cursor(shard, mine.get(name)) for shard, name in enumerate(self.names)],
            [self.own_cursor(shard, theirs.get(name)) for shard, name in enumerate(self.names)],
            sorted(name for name in counts if name.startswith("h-")),
            (await self.app.parked(), await self.own.parked()),
        )

    def app_cursor(self, shard, cursor):
        if cursor is None:
            return None
        marks = [int(mark.partition(":")[0]) for mark in cursor.joined]
        return self.position(shard, cursor), cursor.finished, H["h"] in cursor.live, marks

    def own_cursor(self, shard, cursor):
        if cursor is None:
            return None
        return self.position(shard, cursor), cursor.state, BEHIND in cursor.live


def seen(world):
    """Return what a driver's `state` says of the code."""
    app = [
        c
        and (
            c.pos,
            c.finished,
            c.joined is not None,
            [c.joined] if c.joined is not None and c.joined > c.pos else [],
        )
        for c in world.app[:ROOT]
    ]
    own = [c and (c.pos, c.state, c.behind) for c in world.own[:ROOT]]
    things = sorted(f"h-{at}" for at in world.did[0])
    return app, own, things, (tuple(world.app_queue), tuple(world.own_queue))


def replayed(bound, traces):
    opened = on_bench(
        lambda place: LiveDriver(place, Model(Rules(), bound)), holds=every_call, actors=4
    )
    return replay(Model(Rules(), bound), traces, opened, seen)


def often(step):
    return {"is lost": 0.5, "takes": 0.5, "looks": 3.0, "asks": 3.0, "arrives": 3.0}.get(step[0], 1)


REPLAYED = {
    "changes hands": Bound(takes=3),
    "parked": Bound(takes=2, own_parks=1, app_parks=1),
    "an older version": Bound(takes=2, older=1, app_parks=1),
}


OFTEN = {
    "changes hands": {"takes"},
    "parked": {"parks", "own parks", "own redrive"},
    "an older version": {"older takes", "older gives back", "own goes on"},
}


@pytest.mark.parametrize("name", REPLAYED)
def test_owners_take_over_as_random_schedules_say(name):
    bound = REPLAYED[name]
    traces = list(walks(Model(Rules(), bound), WALKS, 40, weigh=often))
    steps = {step[0] for trace in traces for step in trace}
    assert {"arrives", "own commits", "commits"} | OFTEN[name] <= steps
    assert replayed(bound, traces) > 10 * WALKS


LED_ASTRAY = [
    name
    for name, (rules, bound, _) in NAIVE.items()
    if rules.how == "take over" and not (bound.root or bound.halves)
]


@pytest.mark.parametrize("name", LED_ASTRAY)
def test_owners_are_not_led_astray_by_what_breaks_a_naive_join(name):
    rules, bound, breaks = NAIVE[name]
    trace = counter_example(Model, rules, bound, breaks=breaks)
    assert replayed(bound, [trace]) >= 1
