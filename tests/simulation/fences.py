"""The fences, a row each: what is pending, how its host commits it, and what it never meets.

A host here is an operation: a coroutine that is given clients and commits what is pending until
nothing is, so that it can be killed, frozen and run again at any of its calls. All rows commit
results of the same names; what a case makes of them is the same in each.
"""

import random
from collections import Counter
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Annotated, Any

import anyio

from streamkit import (
    Add,
    Aggregate,
    App,
    Count,
    Entity,
    Inserted,
    Modified,
    PoisonChange,
    Policy,
    Put,
    Query,
    Send,
    absent,
)
from streamkit.aws_lambda.environment import open_environment
from streamkit.aws_lambda.host import process_batch
from streamkit.changes import ItemKey
from streamkit.core.ledger import entry_ref, written
from streamkit.errors import LeaseLost
from streamkit.fleet.generation import (
    Generation,
    newest_generation,
    same_builds,
    write_generation,
)
from streamkit.fleet.members import new_worker_name
from streamkit.kinds.aggregate.backfill import Backfill
from streamkit.kinds.aggregate.reset import Reset
from streamkit.model.builds import pass_name, reset_name
from streamkit.operate.redrive import redrive
from streamkit.progress.actions import Action, ItemRef, Verb, render
from streamkit.progress.cursor import CursorStore
from streamkit.progress.fenced import Fenced
from streamkit.progress.scan.scan import TableScan
from streamkit.settings import Settings
from streamkit.worker.worker import Worker
from tests.simulation.lambdas import Stream, event, left_of
from tests.simulation.memory import Memory

TABLE = "Shop"
NAMES = ("a0", "a1", "b0", "b1", "c0", "c1")
"""Of the results, in order; those of one letter are of one item."""
ODD = "b1"
"""The one that a case makes something of."""
ITEMS, FULL = 40, 99
"""Of a result: two of them fit in one transaction; or one alone fills it to the last place."""
SALES = 60
"""Items that a scan counts, each with two actions: 49 of them fit in one transaction."""
COUNTS = 120
"""Groups that a reset deletes: 99 of them fit in one transaction."""
SETTINGS = Settings(poll_ceiling=5, heartbeat=10, lease=30, list_interval=20, look_interval=20)

CASES = {
    "plain": "more results than fit in one transaction",
    "condition": "a result whose own condition does not hold, and which is skipped then",
    "invalid": "a result that DynamoDB finds invalid among others: it is found by halving",
    "several": "one change whose results do not fit in one transaction together",
    "full": "results that leave no room for anything but the fence itself",
    "sends": "results that are delivered first; each delivery fails once, that of one for good",
    "slow": "a handler that does not answer before the host's deadline",
}


class Order(Entity, pk="ORDER#{order}", sk="ORDER"):
    order: str
    step: int


class Tally(Entity, pk="TALLY#{name}", sk="ITEM#{item:03d}"):
    name: str
    item: int
    times: int = 0


class Taken(Entity, pk="TAKEN#{name}", sk="TAKEN"):
    name: str


class Odd(Entity, pk="ODD", sk="ODD"):
    n: int = 0


class Deal(Entity, pk="DEAL#{deal}", sk="DEAL"):
    deal: str


class Watch(Entity, pk="WATCH", sk="WATCH#{name}"):
    name: str


class Sale(Entity, pk="SALE#{number:03d}", sk="SALE"):
    number: int


class Sales(Aggregate[Sale], pk="OF#{number:03d}", sk="SALES"):
    number: int
    sales: Annotated[int, Count()] = 0


def effects(app, name, case, by=""):
    """Return a result: each of its items is counted once."""
    count = FULL if case == "full" else ITEMS
    found = [Add(Tally.key(name=name + by, item=i), times=1) for i in range(count)]
    if case == "sends":
        found.append(Send(app.sinks[0], {"name": name}))
    if name == ODD and case == "condition":
        found.insert(0, Put(Taken(name=name)).only_if(absent, otherwise="skip"))
    if name == ODD and case == "invalid":
        found.append(Add(Odd.key(), n=1))
    return found


def new_app(**policy):
    """Return an app whose parked changes are stuck, and whose sink fails each delivery once."""
    policy = {"attempts": 2, "backoff_seconds": 0.01, "retry_limit": 0, **policy}
    app = App("shop", table=TABLE, entities=[Tally, Taken, Odd], policy=Policy(**policy))
    sink, met = Memory(items=1), Counter[str]()

    def trouble(deliveries):
        name = deliveries[0].body["name"]
        met[name] += 1
        return ValueError("not now") if name == ODD or met[name] == 1 else None

    sink.trouble = trouble
    app.sink(sink)
    return app


def handling(case, failing=frozenset()):
    """Return an app that makes a result of each order's step."""
    app = new_app(timeout_seconds=300)
    hung: list[str] = []

    def named(by):
        async def tally(change: Inserted[Order] | Modified[Order]):
            name = f"{change.new.order}{change.new.step}"
            if by in failing:
                raise PoisonChange("not yet")
            if case == "slow" and name == ODD and not hung:
                hung.append(name)
                await anyio.sleep(200)
            return effects(app, name, case, by)

        tally.__name__ = tally.__qualname__ = f"tally{by}"
        app.on(tally)

    for by in ("", "x", "y") if case == "several" else ("",):
        named(by)
    return app


def fanning(case):
    """Return an app that makes a result for each recipient of a deal."""
    app = new_app()

    def watchers(change: Inserted[Deal]) -> Query[Watch]:
        return Watch.query()

    @app.fan_out(watchers, inline=0)
    def tell(change: Inserted[Deal], to: Watch):
        return effects(app, to.name, case)

    return app


def counting(case):
    """Return an app that counts sales."""
    app = App("shop", table=TABLE)
    app.aggregate(Sales)
    return app


# -- what is pending -------------------------------------------------------------------------------


def put(harness, item: dict[str, Any]):
    status, body = harness.world.engine.call(
        "dynamodb", "PutItem", {"TableName": TABLE, "Item": item}
    )
    assert status == 200, body


def set_stage(harness):
    """Let one's condition not hold, and another's item be of another type."""
    harness.put(Taken(name=ODD))
    put(harness, {"PK": {"S": "ODD"}, "SK": {"S": "ODD"}, "n": {"S": "no number"}})


def orders(harness, case):
    """Let orders change, each twice; return them as Lambda gives them."""
    set_stage(harness)
    stream = Stream(harness.world, TABLE)
    for name in NAMES:
        harness.put(Order(order=name[0], step=int(name[1])))
    return stream.traffic()


def failed_orders(harness, case):
    """Let the same orders be parked."""
    records = orders(harness, case)
    failing = {"", "x", "y"}
    harness.app = handling(case, failing)
    harness._run(in_functions(harness, harness._aws, records))
    assert len(harness.parked()) == len(NAMES)
    harness.app = handling(case)
    return


def deal(harness, case):
    """Let a fan-out wait in its queue."""
    set_stage(harness)
    harness.put(*(Watch(name=name) for name in NAMES), Deal(deal="1"))
    records = Stream(harness.world, TABLE).traffic()
    harness._run(in_functions(harness, harness._aws, records))
    assert len(harness.parked()) == 1


def sales(harness, case):
    """Let there be sales, one of which is counted already, or cannot be."""
    for number in range(SALES):
        put(harness, Sale(number=number).attributes(harness.tables.table))
    if case == "condition":
        space = harness.tables.space(harness.app)
        ref = entry_ref(space, "Sales", 1, ItemKey("SALE#050", "SALE"))
        put(harness, render(written(ref, "live"), space.schema)["Put"]["Item"])
    if case == "invalid":
        put(harness, {"PK": {"S": "OF#050"}, "SK": {"S": "SALES"}, "sales": {"S": "no number"}})


def counts(harness, case):
    """Let there be counts of an earlier build, which a reset deletes."""
    for number in range(COUNTS):
        key = {"PK": {"S": f"OF#{number:03d}"}, "SK": {"S": "SALES"}}
        put(harness, key | {"number": {"N": str(number)}, "sales": {"N": "7"}})
    store = CursorStore(harness._aws.dynamodb, harness.tables.space(harness.app))
    first = Generation(1, "one", ("one",), {}, frozenset())
    harness._run(write_generation(store, None, first))


# -- hosts -----------------------------------------------------------------------------------------


async def in_worker(harness, aws, _):
    """Let a worker read and commit until nothing is left."""
    clock, rng = harness.world.clock, random.Random(random.random())
    await Worker(harness.app, aws, SETTINGS, clock=clock, rng=rng).run(until_idle=True)


async def in_functions(harness, aws, records):
    """Invoke functions with what is left, until nothing is."""
    clock, rng = harness.world.clock, random.Random(random.random())
    connected = partial(nullcontext, aws)
    async with open_environment(harness.app, connect_with=connected, clock=clock, rng=rng) as one:
        for _ in range(50):
            response = await process_batch(one, event(records))
            records = left_of(response, records)
            if not records:
                return
    raise AssertionError("some records come again and again")


async def in_queues(harness, aws, _):
    """Redrive every queue, as a person does."""
    clock, rng = harness.world.clock, random.Random(random.random())
    await redrive(harness.app, aws, clock=clock, rng=rng)


async def in_scan(harness, aws, _):
    """Count what the table holds, as a rebuild does."""
    clock, rng = harness.world.clock, random.Random(random.random())
    tables = harness.tables
    store = CursorStore(aws.dynamodb, tables.space(harness.app))
    backfill = Backfill(Sales, 1, aws, store, tables.schemas, clock, rng)
    scan = TableScan(store, pass_name("Sales", 1), 1, clock, rng, tables.schemas)
    assert await scan.run(backfill.pages, backfill.visit, new_worker_name())


async def in_reset(harness, aws, _):
    """Delete what is stored, as a rebuild does; the step after that lets a count begin anew."""
    clock, rng = harness.world.clock, random.Random(random.random())
    tables = harness.tables
    store = CursorStore(aws.dynamodb, tables.space(harness.app))
    counted = Action(
        ItemRef(tables.table.name, ("S", "OF#050"), ("S", "SALES")),
        Verb.PUT,
        {"PK": {"S": "OF#050"}, "SK": {"S": "SALES"}, "number": {"N": "50"}, "sales": {"N": "1"}},
    )
    while (now := await newest_generation(store)).number == 1:
        reset = Reset(Sales, now, aws, store, tables.schemas, rng, clock)
        fence = Fenced(store, same_builds(now), rng)
        name = reset_name("Sales", 1)
        scan = TableScan(store, name, 1, clock, rng, tables.schemas, fence=fence)
        with suppress(LeaseLost):  # another process has taken the step
            await reset.drop()
            assert await scan.run(reset.pages, reset.visit, new_worker_name())
            await write_generation(store, now, replace(now, number=2), [counted])


# -- the table of fences ---------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Fence:
    """One fence: `prepare` lets something be pending, `drive` commits it, again after a death.

    It takes so many `commits` if nothing disturbs it. `never` says which cases and troubles do not
    apply, each with the reason, which `test_fences.CLAIMS` holds it to.
    """

    name: str
    app: Any
    prepare: Any
    drive: Any
    commits: int
    never: Any = field(default_factory=dict)

    def __str__(self):
        return self.name

    def is_commit(self, call):
        """Return whether a call commits results; parking alone is none."""
        counts = b"TALLY#" in call.payload or b"OF#" in call.payload
        return call.operation == "TransactWriteItems" and counts


ONE_RESULT = "what it commits is one result, which fails where it is made if it is too large"
ONE_ITEM = "what one item contributes is far less; if it does not fit, the run ends"
NO_DEADLINE = "its host waits for the application's code as long as that takes"
ONE_OWNER = "while its worker lives, and beats, no other one has the cursor"
NO_SENDS = "what an aggregate contributes is never delivered"
NO_PARKING = "nothing can be parked, so that an invalid action ends the run"
NO_RESULTS = "it deletes what is stored, and commits no results of handlers"

FENCES = (
    Fence(
        "cursor",
        handling,
        orders,
        in_worker,
        3,
        {
            "slow": NO_DEADLINE,
            "rival-answered": ONE_OWNER,
            "rival-overtakes": ONE_OWNER,
        },
    ),
    Fence("marks", handling, orders, in_functions, 3),
    Fence(
        "head",
        handling,
        failed_orders,
        in_queues,
        6,
        {"slow": NO_DEADLINE, "several": ONE_RESULT},
    ),
    Fence(
        "place",
        fanning,
        deal,
        in_queues,
        3,
        {"slow": NO_DEADLINE, "several": ONE_RESULT},
    ),
    Fence(
        "segment",
        counting,
        sales,
        in_scan,
        2,
        {
            "slow": NO_DEADLINE,
            "several": ONE_ITEM,
            "full": ONE_ITEM,
            "sends": NO_SENDS,
            "invalid": NO_PARKING,
        },
    ),
    Fence(
        "reset",
        counting,
        counts,
        in_reset,
        3,
        {
            **dict.fromkeys([case for case in CASES if case != "plain"], NO_RESULTS),
            "rival-answered": ONE_OWNER,
        },
    ),
)
