"""A move loses nothing and does nothing twice; simpler moves do; and the code is ours.

The last is shown by replays: each step of a trace happens to real movers on the local engine, write
by write, and after each of them what is stored there is what the model says.
"""

from contextlib import asynccontextmanager
from functools import partial

import anyio
import pytest

from streamkit.aws_lambda.host import process_batch
from streamkit.core.tables import survey
from streamkit.fleet.cursors import LISTER, every_cursor
from streamkit.operate.moves import MoveRefused, move_to_lambda, move_to_workers
from streamkit.progress.cursor import CursorStore
from streamkit.testing.sightings import WRITES
from tests.models.explorer import LARGE, counter_example, explore, walks
from tests.models.moves import NAIVE, REGIMES, Model, Rules
from tests.models.replay import Actor, Troupe, replay
from tests.simulation.lambdas import Stream, environment_of, event, key_of, number_of, own_items
from tests.simulation.test_moving_rivals import TABLE, make_app, put, tallies, world_with

WALKS = 100 if LARGE else 5
"""Random traces in each regime."""


@pytest.mark.parametrize("name", REGIMES)
def test_no_interleaving_of_movers_and_hosts_loses_a_change_or_does_it_twice(name):
    found = explore(Model(Rules(), REGIMES[name]))
    assert found.broken == {}
    assert len(found.worlds) > 1000


@pytest.mark.parametrize("name", NAIVE)
def test_a_move_that_looks_simpler_breaks(name):
    rules, regime, breaks = NAIVE[name]
    assert counter_example(Model, rules, REGIMES[regime], breaks=breaks)


# -- the replay ------------------------------------------------------------------------------------


def writes(call):
    """Name the writes of a mover that are steps: those of the lister go along with others."""
    lists = f"#{LISTER}".encode() in call.payload
    return "write" if call.operation in WRITES and not lists else ""


def commits(call):
    return "commit" if call.operation == "TransactWriteItems" and b"TALLY#" in call.payload else ""


class Hosts:
    """Real movers, a frozen worker, and hosts that run, to which a trace happens."""

    def __init__(self, world, aws, tables, app, troupe, regime):
        self.world, self.app, self.troupe = world, app, troupe
        self.host, self.goals = regime.host, regime.goals
        self.store, self.stream = CursorStore(aws.dynamodb, tables.space(app)), Stream(world, TABLE)
        self.records, self.movers = [], [None] * len(self.goals)
        self.worker = self.function = None

    async def begin(self):
        self.put()
        if self.host == "lambda":
            await self.functions()
            self.put()
            return
        self.worker = self.troupe.enters(Actor(commits, "worker"))
        run = partial(self.world.run_worker, self.app, process=self.worker, until_idle=False)
        await self.worker.begins(run())
        self.worker.let_go()
        self.put()
        await self.worker.settles()
        self.worker.freeze()

    def put(self):
        """Every write is another change of one item."""
        put(self.world, 1, note=len(self.records))
        self.records += [r for r in self.stream.traffic() if key_of(r).startswith("ORDER#")]

    async def do(self, step):
        await anyio.sleep(1)  # no two movers say the same at the same moment
        verb, *rest = step
        await getattr(self, {"begin": "begin_move"}.get(verb, verb).replace(" ", "_"))(*rest)

    async def write(self):
        self.put()

    async def thaw(self):
        self.worker.thaw()
        await self.worker.dies(after=True)
        self.worker = None

    async def begin_move(self, m):
        mover = self.movers[m] = self.troupe.enters(Actor(writes, f"mover {m}"))

        async def work():
            async with self.world.clients(mover) as aws:
                if self.goals[m] == "lambda":
                    options = {"lease_seconds": 1.0, "clock": self.world.clock}
                    return await move_to_lambda(self.app, aws, **options)
                return await move_to_workers(self.app, aws, in_flight=1.0, clock=self.world.clock)

        await mover.begins(work())
        self.look(mover)

    async def move(self, m):
        await self.movers[m].step()
        self.look(self.movers[m])

    def look(self, mover):
        assert isinstance(mover.error, MoveRefused | None), mover.error

    async def functions(self, process=None):
        records = event(self.records)
        async with environment_of(self.world, self.app, process) as environment:
            response = await process_batch(environment, records, 1e9)
        assert response == {"batchItemFailures": []}

    async def function_begins(self):
        self.function = self.troupe.enters(Actor(commits, "function"))
        await self.function.begins(self.functions(self.function))

    async def function_ends(self):
        await self.function.step()
        assert self.function.ended
        assert self.function.error is None, self.function.error
        self.function = None

    async def workers(self):
        await self.world.run_worker(self.app)

    # -- what is there -----------------------------------------------------------------------------

    async def state(self):
        consumer = await self.store.item("consumer")
        cursors = await every_cursor(self.store)
        cursor = next(iter(cursors.values()), None)
        found = cursor and (cursor.generation, self.index(cursor.position))
        marks = own_items(self.world, TABLE, "mark")
        mark = self.index(marks[0]["_sk_position"]["S"]) if marks else 0
        generation, token = int(consumer["generation"]["N"]), "mover" in consumer
        host, times = consumer["host"]["S"], tallies(self.world).get(1, 0)
        return host, generation, token, found, mark, times, self.standing()

    def standing(self):
        return [mover is not None and not mover.ended for mover in self.movers]

    def index(self, position):
        """Return how many changes there are up to a position, which may be an effect's record."""
        if not position.isdecimal():
            return 0
        return sum(int(number_of(record)) <= int(position) for record in self.records)


def said(world):
    """What the model says of a world, as far as it can be seen in a table."""
    cursor = world.cursor and (world.cursor.generation, world.cursor.position)
    standing = [mover is not None and mover.write != "" for mover in world.movers]
    token, times = world.token > 0, len(world.applied)
    return world.host, world.generation, token, cursor, world.mark, times, standing


def replayed(regime, traces):
    @asynccontextmanager
    async def opened():
        app = make_app()
        world = world_with(app)
        async with world.clients() as aws, Troupe.on_stage() as troupe:
            yield Hosts(world, aws, await survey(app, aws), app, troupe, regime)

    return replay(Model(Rules(), regime), traces, opened, said)


@pytest.mark.parametrize("name", REGIMES)
def test_movers_take_the_steps_of_the_model(name):
    model = Model(Rules(), REGIMES[name])
    traces = list(walks(model, WALKS, 24))
    assert replayed(REGIMES[name], traces) > 8 * WALKS


@pytest.mark.parametrize("name", NAIVE)
def test_where_a_simpler_move_breaks_movers_do_as_the_model_does(name):
    rules, regime, breaks = NAIVE[name]
    trace = counter_example(Model, rules, REGIMES[regime], breaks=breaks)
    assert replayed(REGIMES[regime], [trace]) >= 2
