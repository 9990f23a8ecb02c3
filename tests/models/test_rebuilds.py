"""A rebuild is exact whatever happens beside it; simpler rules are not; and the code is ours.

The last is shown by replays: each step of a trace happens to a real worker and a real operator on
the local engine, and after each of them what is stored there is what the model says.
"""

import json
import random
from contextlib import asynccontextmanager
from dataclasses import replace
from decimal import Decimal

import anyio
import pytest

from streamkit.core.tables import survey
from streamkit.fleet.cursors import every_cursor
from streamkit.kinds.aggregate.rebuild import rebuild_aggregate
from streamkit.progress.cursor import CursorStore
from streamkit.settings import Settings
from tests.models.explorer import LARGE, counter_example, explore, walks
from tests.models.rebuilds import LIVE, NAIVE, PLAYED, REGIMES, Model, Rules
from tests.models.replay import Actor, Troupe, replay
from tests.simulation.lambdas import world_of
from tests.simulation.rebuilds import (
    PATIENT,
    TABLE,
    app_of,
    counts,
    looks_for_entries,
    reads_the_ledger,
    scans_a_segment,
)

WALKS = 100 if LARGE else 4
"""Random traces in each regime."""
SETTINGS = Settings(poll_ceiling=400, heartbeat=60, lease=150, list_interval=400, look_interval=60)
POLICY = replace(PATIENT, timeout_seconds=86_400)
"""A handler that stands still is not cut off: steps take as long as one likes."""
KEY = {"PK": {"S": "SALE#0"}, "SK": {"S": "SALE#0"}}


@pytest.mark.parametrize("name", REGIMES)
def test_no_interleaving_of_a_rebuild_with_writes_makes_it_inexact(name):
    found = explore(Model(Rules(), REGIMES[name]))
    assert found.broken == {}
    assert len(found.worlds) > 400


@pytest.mark.parametrize("name", NAIVE)
def test_a_rebuild_that_looks_simpler_is_inexact(name):
    rules, regime = NAIVE[name]
    assert counter_example(Model, rules, REGIMES[regime], breaks="inexact")


def test_without_the_guard_nothing_breaks_where_records_are_published_in_time():
    """So late records alone are what it is for."""
    assert explore(Model(Rules(guard=False), REGIMES["splits"])).broken == {}


# -- the replay ------------------------------------------------------------------------------------


def commits(call):
    """Return whether a call counts, be it that an item adds nothing."""
    enters = b"#ledger#" in call.payload and b'"Put"' in call.payload
    return counts(call) or (call.operation == "TransactWriteItems" and enters)


class Reader(Actor):
    """A worker; once it is `shut` it gets records when it is told to `take` them."""

    def __init__(self, name):
        super().__init__(self.counted, name)
        self.opens, self.asks, self.is_led = anyio.Event(), anyio.Event(), False
        self.opens.set()

    def counted(self, call):
        if not self.is_led:
            return ""
        return "read" if reads_the_ledger(call) else "commit" if commits(call) else ""

    async def intercept(self, call, apply):
        if call.operation != "GetRecords":
            return await super().intercept(call, apply)
        self.asks.set()
        await self.opens.wait()
        await self._runs()
        reply = apply()
        if self.is_led and b"SALE#" in reply.body:
            self.shut()
        return reply

    def shut(self):
        self.is_led = True
        self.opens, self.asks = anyio.Event(), anyio.Event()

    async def rests(self):
        """Wait until it stands at a call that counts, or has committed and asks for records."""
        with anyio.move_on_after(5):
            await self.settles()


class Scanner(Actor):
    """An operator; what it does before its scan begins is no step."""

    def __init__(self, name):
        super().__init__(self.counted, name)
        self.scans = False

    def counted(self, call):
        self.scans = self.scans or scans_a_segment(call)
        if not self.scans:
            return ""
        found = scans_a_segment(call), looks_for_entries(call), commits(call)
        return dict(zip(found, ("scan", "look", "count"), strict=True)).get(True, "")


class Shop:
    """A real worker and a real operator, to which a trace happens."""

    def __init__(self, world, aws, tables, troupe, app):
        self.world, self.aws, self.troupe, self.app = world, aws, troupe, app
        self.store = CursorStore(aws.dynamodb, tables.space(self.app))
        self.workers, self.operators = 0, 0
        self.frozen = None

    async def begin(self):
        """Let there be one sale that is not counted, and a rebuild that is about to scan it."""
        self.put(1)
        await self.new_worker()
        await anyio.sleep(120)
        await self.new_operator()
        await anyio.sleep(200)  # the worker joins the build's generation
        self.worker.shut()
        with anyio.fail_after(1000):
            await self.worker.asks.wait()

    async def new_worker(self, *, led=False):
        self.workers += 1
        worker = self.worker = self.troupe.enters(Reader(f"worker {self.workers}"))
        if led:
            worker.shut()

        async def work():
            run = {"process": worker, "settings": SETTINGS, "until_idle": False}
            await self.world.run_worker(self.app, **run)

        worker.start(work())
        with anyio.fail_after(3000):
            await worker.asks.wait()

    async def new_operator(self):
        self.operators += 1
        operator = self.operator = self.troupe.enters(Scanner(f"operator {self.operators}"))

        async def work():
            async with self.world.clients(operator) as aws:
                options = {"segments": 1, "lease_seconds": 60, "clock": self.world.clock}
                rng = random.Random(operator.name)
                return await rebuild_aggregate(self.app, aws, "Sales", rng=rng, **options)

        await operator.begins(work())

    def put(self, value):
        fields = {"number": {"N": "0"}, "shop": {"S": "a"}, "amount": {"N": str(value)}}
        self.call("PutItem", Item=KEY | fields)

    def call(self, operation, **request):
        status, body = self.world.engine.call(
            "dynamodb", operation, {"TableName": TABLE, **request}
        )
        assert status == 200, body

    async def do(self, step):
        verb, *rest = step
        await getattr(self, verb)(*rest)

    async def write(self, value):
        if value is None:
            self.call("DeleteItem", Key=KEY)
        else:
            self.put(value)

    async def take(self):
        self.worker.opens.set()
        with anyio.fail_after(100):
            await self.worker.settles()

    async def read(self):
        await self.worker.step()

    async def commit(self):
        """A commit that is refused is followed by another look into the ledger; else by nothing."""
        self.worker.let_go()
        await self.worker.rests()

    async def crash(self):
        await self.worker.dies()
        await self.new_worker(led=True)

    async def scan(self):
        await self.operator.step()
        assert self.operator.error is None, self.operator.error

    look = count = scan

    async def freeze(self):
        self.frozen, _ = self.operator, self.operator.freeze()
        await self.new_operator()

    async def zombie(self):
        self.frozen.thaw()
        await self.frozen.dies(after=True)
        self.frozen = None

    async def hour(self):
        await self.idle(4800)

    async def split(self):
        self.world.control.roll(TABLE)
        await self.idle(1000)

    async def idle(self, seconds):
        self.worker.opens.set()
        await anyio.sleep(seconds)
        self.worker.shut()
        await self.worker.asks.wait()

    async def state(self):
        total, entry = 0, None
        for item in self.world.items(TABLE):
            if item["PK"]["S"] == "OF#a":
                total = int(item.get("total", {"N": "0"})["N"])
            elif "#ledger#" in item["PK"]["S"]:
                text = item["_sk_entry"]["S"]
                entry = LIVE if text == LIVE else _amount(text)
        cursors = await every_cursor(self.store)
        live = any(cursor.live for cursor in cursors.values() if not cursor.finished)
        at = self.operator.at or "done"
        entry = None if live else entry  # it is swept at any time then
        return total, entry, live, self.worker.at, at, self.frozen is not None


def _amount(text):
    return sum(int(Decimal(amounts["total"])) for *_, amounts in json.loads(text))


def said(world):
    """What the model says of a world, as far as it can be seen in a table."""
    plan = world.plan
    worker = "" if plan is None else "commit" if plan.is_read else "read"
    zombie = world.zombie is not None
    entry = None if world.live else world.ledger
    return world.total, entry, world.live, worker, world.scan, zombie


def replayed(regime, traces):
    @asynccontextmanager
    async def opened():
        app = app_of(policy=POLICY)
        world = world_of(app)
        async with world.clients() as aws, Troupe.on_stage() as troupe:
            yield Shop(world, aws, await survey(app, aws), troupe, app)

    return replay(Model(Rules(), regime), traces, opened, said)


@pytest.mark.parametrize("name", PLAYED)
def test_a_worker_and_an_operator_take_the_steps_of_the_model(name):
    model = Model(Rules(), REGIMES[name])
    traces = list(walks(model, WALKS, 20))
    assert replayed(REGIMES[name], traces) > 8 * WALKS


@pytest.mark.parametrize("name", NAIVE)
def test_where_a_simpler_rebuild_is_inexact_the_code_does_as_the_model_does(name):
    rules, regime = NAIVE[name]
    trace = counter_example(Model, rules, REGIMES[regime], breaks="inexact")
    played = REGIMES[regime if regime in PLAYED else "stops"]
    assert replayed(played, [trace]) >= 2
