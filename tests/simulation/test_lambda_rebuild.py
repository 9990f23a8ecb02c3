"""An aggregate is rebuilt where Lambda functions count: exactly, under whatever a mapping does."""

import random

import anyio
import pytest

from streamkit.kinds.aggregate.rebuild import rebuild_aggregate
from streamkit.testing import Trouble, trial
from streamkit.testing.hosts import Functions
from streamkit.testing.world import CrashPoint, Process
from tests.seeds import seeds
from tests.simulation.conformance import Best, Busy, Market, Shop, Totals, make_app

SEEDS = seeds()
TROUBLE = Trouble(crash=0.05, split=0.03, roll=0.02, pause=14.0, sinks=0.02)
BEGINS = 20.0
FUNCTION_SECONDS = 60.0


class Spoilt(Market):
    """Before anything is counted, the application has written wrong numbers."""

    async def open(self, writer):
        await super().open(writer)
        await writer.put(Totals(shop="a", sales=70, amount=7), Totals(shop="gone", sales=5))
        await writer.put(Best(shop="b", largest=999), Busy(what="other", sales=9))
        await writer.put(Shop(shop="c", sales=40))


class Rebuilding(Functions):
    """Rebuilds every aggregate meanwhile, by operators who may die and begin anew."""

    def __init__(self, app, world, met, faults):
        super().__init__(app, world, met, faults)
        self.app, self.world, self.met = app, world, met
        self.rng = random.Random(world.rng.random())

    def start(self, group, workers):
        super().start(group, workers)
        self.left = {"Totals", "Busy", "Best", "OntoShop"}
        self.rebuilt = anyio.Event()
        for name in sorted(self.left):
            group.start_soon(self._rebuild, name)

    async def settle(self):
        await self.rebuilt.wait()
        await super().settle()

    async def _rebuild(self, name):
        await anyio.sleep(BEGINS + self.rng.random() * 60)
        while not await self._try(name):
            self.met["operator killed"] += 1
        self.left.discard(name)
        if not self.left:
            self.rebuilt.set()

    async def _try(self, name):
        """Rebuild; False if the operator was killed."""
        process = Process("operator")
        if self.rng.random() < 0.5:
            process.crash = CrashPoint(self.rng.randrange(50), self.rng.choice(("before", "after")))
        done = None
        async with self.world.clients(process) as aws, anyio.create_task_group() as group:

            async def die():
                await process.dead.wait()
                group.cancel_scope.cancel()

            group.start_soon(die)
            done = await rebuild_aggregate(
                self.app,
                aws,
                name,
                segments=3,
                lease_seconds=10,
                in_flight=FUNCTION_SECONDS,
                clock=self.world.clock,
                rng=random.Random(self.rng.random()),
            )
            group.cancel_scope.cancel()
        return done is not None and done.done


@pytest.mark.parametrize("seed", SEEDS)
def test_aggregates_rebuilt_under_traffic_are_what_a_recomputation_says(seed):
    app = make_app()
    ran = trial(app, Spoilt(app), seed=seed, acts=80, trouble=TROUBLE, host=Rebuilding)
    assert all(ran.met[name] for name in ("crash", "split", "roll"))
