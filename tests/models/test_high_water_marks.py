"""Functions do each change once and in order, whatever dies; simpler rules do not; the code is ours.

The last is shown by replays: each step of a trace happens to real functions on the local engine,
and after each of them what is stored there is what the model says.
"""

from contextlib import asynccontextmanager

import anyio
import pytest

from streamkit import (
    Add,
    App,
    Entity,
    Inserted,
    Modified,
    PoisonChange,
    Policy,
    RetryableError,
    Set,
)
from streamkit.aws_lambda.host import process_batch
from streamkit.aws_lambda.late import process_late
from streamkit.changes import ItemKey
from streamkit.core.high_water_mark import path_of, read_mark
from streamkit.core.parking import LATE
from streamkit.core.tables import survey
from streamkit.operate.deletion import delete_consumer
from streamkit.operate.redrive import redrive
from streamkit.progress.cursor import CursorStore
from tests.models.explorer import LARGE, counter_example, explore, walks
from tests.models.high_water_marks import FAILS, ITEMS, LOG, NAIVE, REGIMES, Model, Rules
from tests.models.replay import Actor, Troupe, replay
from tests.simulation.lambdas import (
    Stream,
    environment_of,
    event,
    given_up,
    key_of,
    number_of,
    own_items,
    world_of,
)

TABLE = "Orders"
WALKS = 100 if LARGE else 8
"""Random traces in each regime."""


@pytest.mark.parametrize("name", REGIMES)
def test_no_trouble_of_functions_does_a_change_twice_or_out_of_order_or_loses_it(name):
    found = explore(Model(Rules(), REGIMES[name]))
    assert found.broken == {}
    assert len(found.worlds) > 200


@pytest.mark.parametrize("name", NAIVE)
def test_marks_that_look_simpler_break(name):
    rules, regime, breaks = NAIVE[name]
    assert counter_example(Model, rules, REGIMES[regime], breaks=breaks)


# -- the replay ------------------------------------------------------------------------------------


class Order(Entity, pk="ORDER#{name}", sk="ORDER"):
    name: str
    number: int


class Times(Entity, pk="TIMES#{name}", sk="{number}"):
    """How often a change was applied."""

    name: str
    number: int
    times: int = 0


class Last(Entity, pk="LAST#{name}", sk="LAST"):
    """The change that was applied last."""

    name: str
    number: int


def app_of(fails, failing):
    policy = Policy(attempts=1, breaker=False, on_failure="block" if fails == "blocks" else "park")
    app = App("shop", table=TABLE, entities=[Times, Last], policy=policy)

    @app.on
    def apply(change: Inserted[Order] | Modified[Order]) -> list[Add[Times] | Set[Last]]:
        name, number = change.new.name, change.new.number
        if failing and name.endswith(f"-{FAILS[0]}") and number == FAILS[1]:
            raise PoisonChange("down") if fails == "parks" else RetryableError("down")
        return [
            Add(Times.key(name=name, number=number), times=1),
            Set(Last.key(name=name), number=number),
        ]

    return app


def counts(call):
    """Name the calls of a function that are steps."""
    if b"mark#" not in call.payload and b"#mark" not in call.payload:
        return ""
    return {"BatchGetItem": "read", "TransactWriteItems": "commit"}.get(call.operation, "")


def sends(call):
    return "commit" if call.operation == "TransactWriteItems" else ""


class Functions:
    """Real functions, a mapping and a redriver, to which a trace happens."""

    def __init__(self, world, aws, tables, fails, troupe):
        self.failing = [True] if fails else []
        # A change that blocks does so until the time is over; nothing else is under way then.
        self.seconds = 60 if fails == "blocks" else 1e9
        self.world, self.aws, self.app, self.troupe = (
            world,
            aws,
            app_of(fails, self.failing),
            troupe,
        )
        self.stream, self.store = (
            Stream(world, TABLE),
            CursorStore(aws.dynamodb, tables.space(self.app)),
        )
        self.records, self.gone, self.current, self.payloads = [], 0, -1, []
        self.runs: list[tuple[Actor, tuple[int, int], bool] | None] = [None, None]
        self.redriver: Actor | None = None

    def names(self):
        return [f"t-{item}" for item in range(ITEMS)]

    async def begin(self):
        await self.write()

    async def do(self, step):
        verb, *rest = step
        await getattr(self, verb.replace(" ", "_"))(*rest)

    async def write(self):
        item, number = LOG[len(self.records)]
        order = Order(name=f"t-{item}", number=number)
        key = {"PK": {"S": f"ORDER#{order.name}"}, "SK": {"S": "ORDER"}}
        body = {**key, "name": {"S": order.name}, "number": {"N": str(number)}}
        status, _ = self.world.engine.call(
            "dynamodb", "PutItem", {"TableName": TABLE, "Item": body}
        )
        assert status == 200
        self.records += [r for r in self.stream.traffic() if key_of(r).startswith("ORDER#")]

    async def heal(self):
        self.failing.clear()

    async def batch(self, k, end):
        self.current = k
        await self.invoke(k, (self.gone, end), late=False)

    async def late(self, k):
        await self.invoke(k, self.payloads[0], late=True)

    async def invoke(self, k, bounds, *, late):
        records = event(self.records[slice(*bounds)])
        process = self.troupe.enters(Actor(counts, f"function {k}"))
        body = given_up(self.stream, records["Records"], payload=True) if late else None

        async def work():
            async with environment_of(self.world, self.app, process) as environment:
                if late:
                    return await process_late(environment, body, self.seconds)
                return await process_batch(environment, records, self.seconds)

        self.runs[k] = process, bounds, late
        await process.begins(work())
        self.look(k)

    async def read(self, k):
        await self.runs[k][0].step()
        self.look(k)

    commit = read

    def look(self, k):
        """If a function has ended, the mapping is told."""
        process, bounds, late = self.runs[k]
        if not process.ended:
            return
        self.runs[k] = None
        if late:
            assert isinstance(process.error, RetryableError | None)
            self.payloads[:1] = [] if process.error is None else self.payloads[:1]
            return
        assert process.error is None, process.error
        if self.current == k:
            failures = [
                failure["itemIdentifier"] for failure in process.task.result()["batchItemFailures"]
            ]
            numbers = [number_of(record) for record in self.records]
            self.gone = numbers.index(failures[0]) if failures else bounds[1]
            self.current = -1

    async def die(self, k, given_up="", *, after=False):
        process, bounds, _ = self.runs[k]
        await process.dies(after=after)
        self.runs[k] = None
        if self.current == k:
            self.current = -1
        if given_up:
            self.gone = bounds[1]
            self.payloads.append(bounds)

    async def die_after(self, k, given_up=""):
        await self.die(k, given_up, after=True)

    async def redrive(self):
        process = self.redriver = self.troupe.enters(Actor(sends, "redriver"))

        async def work():
            async with self.world.clients(process) as aws:
                return await redrive(self.app, aws, clock=self.world.clock)

        await process.begins(work())

    async def redriven(self):
        await self.redriver.step()
        if self.redriver.ended:
            assert self.redriver.error is None, self.redriver.error
            self.redriver = None

    async def week(self):
        await anyio.sleep(8 * 86_400)
        self.world.control.expire(TABLE)

    async def anew(self):
        await delete_consumer(self.aws, TABLE, "shop", clock=self.world.clock)
        self.gone = 0

    # -- what is there -----------------------------------------------------------------------------

    async def state(self):
        items = self.world.items(TABLE)
        times, last = {}, {}
        for item in items:
            kind, _, name = item["PK"]["S"].partition("#")
            if name in self.names():
                number = int(item.get("number", {"N": "0"})["N"])
                if kind == "TIMES":
                    times[int(name[-1]), int(item["SK"]["S"])] = int(item["times"]["N"])
                elif kind == "LAST":
                    last[int(name[-1])] = number
        marks = [await self.mark(name) for name in self.names()]
        queue, late = [], set()
        for parked in own_items(self.world, TABLE, "parked"):
            n = self.index(int(parked["_sk_position"]["S"]))
            if parked.get("_sk_error") == {"S": LATE}:
                late.add(n)
            else:
                queue.append(n)
        at = [run and run[0].at for run in self.runs]
        return times, last, marks, sorted(queue), late, at, self.gone, self.redriver is not None

    async def mark(self, name):
        item = await self.store.item(*await path_of(self.store, ItemKey(f"ORDER#{name}", "ORDER")))
        if item is None:
            return 0, False
        mark = read_mark(item)
        return LOG[self.index(int(mark.position))][1], bool(mark.queues)

    def index(self, position):
        return [int(number_of(record)) for record in self.records].index(position)


def said(world):
    """What the model says of a world, as far as it can be seen in a table."""
    times, last = {}, {}
    for item, numbers in enumerate(world.applied):
        for number in numbers:
            times[item, number] = times.get((item, number), 0) + 1
            last[item] = number
    marks = [tuple(mark) for mark in world.marks]
    at = [run and ("read" if run.marks is None else "commit") for run in world.runs]
    return (
        times,
        last,
        marks,
        sorted(world.queue),
        set(world.late),
        at,
        world.gone,
        world.redrive is not None,
    )


def replayed(regime, traces):
    @asynccontextmanager
    async def opened():
        app = app_of("", [])
        world = world_of(app)
        spec = {"Enabled": True, "AttributeName": "ttl"}
        request = {"TableName": TABLE, "TimeToLiveSpecification": spec}
        assert world.engine.call("dynamodb", "UpdateTimeToLive", request)[0] == 200
        async with world.clients() as aws, Troupe.on_stage() as troupe:
            yield Functions(world, aws, await survey(app, aws), regime.fails, troupe)

    return replay(Model(Rules(), regime), traces, opened, said)


@pytest.mark.parametrize("name", REGIMES)
def test_functions_take_the_steps_of_the_model(name):
    model = Model(Rules(), REGIMES[name])
    traces = list(walks(model, WALKS, 14, weigh=lambda step: 0.3 if "die" in step[0] else 1))
    assert replayed(REGIMES[name], traces) > 9 * WALKS


@pytest.mark.parametrize("name", NAIVE)
def test_where_simpler_marks_break_functions_do_as_the_model_does(name):
    rules, regime, breaks = NAIVE[name]
    trace = counter_example(Model, rules, REGIMES[regime], breaks=breaks)
    assert replayed(REGIMES[regime], [trace]) >= 2


def test_a_late_change_whose_mark_is_its_own_is_done_and_not_set_aside():
    """What the payload brings behind it must not make it look as if a later one had overtaken it."""
    trace = [
        ("write",),
        ("write",),
        ("batch", 0, 1),
        ("read", 0),
        ("die after", 0),
        ("batch", 0, 3),
        ("die", 0, "given up"),
        ("late", 0),
        ("read", 0),
        ("commit", 0),
    ]
    assert replayed(REGIMES["gives up"], [trace]) == len(trace)
