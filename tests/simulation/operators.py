"""What operators do with migrations, moves and fan-outs, as scenarios that may be stopped anywhere.

A command is begun again where it was stopped. The second one may find that all is done already, and
then it is refused, as a person would be told; what counts is how things stand afterwards.
"""

import random
from contextlib import suppress
from functools import partial

import anyio

from streamkit import App, Entity, Inserted, Modified, Put, Query
from streamkit.errors import ConfigurationError
from streamkit.fleet.hosting import LAMBDA, WORKERS
from streamkit.migrate.book.refusals import AlreadyBegun
from streamkit.migrate.book.state_book import open_book
from streamkit.migrate.operate import commands, steps
from streamkit.migrate.operate.squashing import stamp
from streamkit.migrate.run.aggregates import run_aggregate
from streamkit.migrate.run.passing import PassPace
from streamkit.migrate.run.reports import Reporter
from streamkit.migrate.run.running import Runner
from streamkit.migrate.verify import mending
from streamkit.migrate.verify.verifying import verify_migration
from streamkit.operate.fan_outs import cancel_fan_out, list_fan_outs
from streamkit.operate.moves import move_to_lambda, move_to_workers
from streamkit.testing.migrators import SETTINGS
from tests.simulation import migrating
from tests.simulation.lambdas import own_items
from tests.simulation.movers import run_functions

LEASE = 30.0


def host_of(harness):
    (item,) = own_items(harness.world, harness.app.table, "consumer")
    return item["_sk_host"]["S"]


def functions(harness):
    harness._run(run_functions(harness.world, harness.app))


# -- moves: `things` says how a scenario writes an item and which were counted ---------------------


def moved_to_lambda(harness, things):
    """A worker parks a change and stops; functions go on, the change behind it waits."""
    things.put("x")
    things.put("poison")
    harness.settle()
    harness.stop()
    operate(harness, partial(move_to_lambda, lease_seconds=LEASE))
    assert host_of(harness) == LAMBDA
    things.put("x")
    things.put("poison")
    functions(harness)
    assert things.counted() == {"x": 2}
    assert len(harness.parked()) == 2


def moved_to_workers(harness, things):
    """Functions park a change; workers go on, and redrive it."""
    things.put("x")
    things.put("poison")
    functions(harness)
    things.put("x")
    operate(harness, partial(move_to_workers, in_flight=2.0))
    assert host_of(harness) == WORKERS
    things.put("x")
    things.put("poison")
    harness.settle()
    assert things.counted() == {"x": 3}
    assert len(harness.parked()) == 2
    things.heal()
    harness.redrive()
    harness.settle()
    assert things.counted() == {"x": 3, "poison": 2}
    harness.stop()


def operate(harness, command, *args):
    app, clock = harness.app, harness.world.clock

    async def work(aws):
        for _ in range(3):  # the one that stood still was at it, or has done it
            with suppress(ConfigurationError):
                await command(app, aws, *args, clock=clock)
                return
            await anyio.sleep(30)

    harness.operate(work)


# -- fan-outs --------------------------------------------------------------------------------------


class Deal(Entity, pk="DEAL#{deal}", sk="DEAL"):
    deal: str
    n: int = 0


class Fan(Entity, pk="FANS", sk="FAN#{fan}"):
    fan: str


class Message(Entity, pk="MESSAGE#{fan}", sk="DEAL#{deal}#{n}"):
    fan: str
    deal: str
    n: int


def telling(policy, down):
    app = App("telling", table="Things", entities=[Message, Fan], policy=policy)

    def fans(change: Inserted[Deal] | Modified[Deal]) -> Query[Fan]:
        if down["fans"]:
            raise OSError("down")
        return Fan.query()

    @app.fan_out(fans, inline=0)
    def tell(change: Inserted[Deal] | Modified[Deal], to: Fan) -> Put[Message]:
        return Put(Message(fan=to.fan, deal=change.new.deal, n=change.new.n))

    return app


def cancelled(harness, down):
    """A fan-out that cannot begin is cancelled; one that comes later is served."""
    harness.put(Fan(fan="ann"), Fan(fan="bob"))
    down["fans"] = 1
    harness.put(Deal(deal="d", n=1))
    harness.settle()
    app = harness.app
    (under_way,) = harness._run(list_fan_outs(app, harness._aws))
    operate(harness, cancel_fan_out, under_way.queue)
    assert not harness.parked()
    harness.advance("5m")
    down.clear()
    harness.put(Deal(deal="d", n=2))
    harness.settle()
    harness.redrive()
    assert {(m.fan, m.n) for m in harness.scan(Message)} == {("ann", 2), ("bob", 2)}


# -- migrations ------------------------------------------------------------------------------------


def join(harness):
    """Let a process do the work that no scenario here stops."""
    harness._run(work(harness.app, harness._aws, clock=harness.world.clock))


async def work(app, aws, *, clock):
    """Do what `streamkit migrate join` does: the work, and reports of it."""
    one, chance = app.migrations["0001"], random.Random(1)
    if one.mode == "aggregate":
        await run_aggregate(app, aws, one, clock=clock, rng=chance)
        return
    runner = Runner(app, aws, one, SETTINGS, clock, chance, PassPace(2, 10, 1))
    async with anyio.create_task_group() as group:
        group.start_soon(Reporter(runner).run)
        await runner.run(stay=False)
        group.cancel_scope.cancel()


async def apply(app, aws, *, clock):
    """Do what `streamkit migrate apply` does: begin it if it was never begun, and join."""
    with suppress(AlreadyBegun):
        await begin(app, aws, clock=clock)
    await work(app, aws, clock=clock)


async def begin(app, aws, *, clock):
    await commands.begin(app, aws, app.migrations["0001"], segments=2, clock=clock)


def step(name, *args, **options):
    async def work(app, aws, *, clock):
        await getattr(steps, name)(app, aws, "0001", *args, clock=clock, **options)

    return work


def state_of(harness):
    async def read():
        return await (await open_book(harness.app, harness._aws)).read("0001")

    return harness._run(read())


def migrated(harness):
    """Pause and resume it, change its limit, switch, contract."""
    old = [migrating.OldOrder(user="u", order_id=f"{n}") for n in range(3)]
    harness.put(*old)
    harness.advance(900)
    for command in (begin, step("pause")):
        operate(harness, command)
    assert state_of(harness).desired == "pause"
    for command in (step("set_limit", commands.Limit(None, 50.0)), step("resume")):
        operate(harness, command)
    join(harness)
    assert state_of(harness).phase == "ready"
    operate(harness, step("switch"))
    join(harness)
    assert state_of(harness).phase == "soaking"
    operate(harness, step("contract"))
    join(harness)
    _is_over(harness, "done")
    assert not harness.scan(migrating.OldOrder)
    assert {order.order_id for order in harness.scan(migrating.Order)} == {"0", "1", "2"}


def joined(harness):
    """Work on one that was begun; what a supervisor starts again finds nothing to do."""
    harness.put(*(migrating.Order(user="u", order_id=n) for n in "12"))
    harness.advance(900)
    operate(harness, begin)
    for _ in range(2):
        operate(harness, work)
    _is_over(harness, "done")
    orders = harness.scan(migrating.Order)
    assert [order.status_day for order in orders] == ["NEW#d1", "NEW#d1"]


def applied(harness, kind, counted):
    """Count an aggregate anew that is wrong, by a migration."""
    harness.put(*(kind(name=name) for name in "abc"))
    harness.settle()
    harness.put(counted(things=77))
    operate(harness, apply)
    harness.put(kind(name="d"))
    harness.delete(kind.key(name="a"))
    harness.settle()
    _is_over(harness, "done")
    assert harness.get(counted.key()).things == 3


def rolled_back(harness):
    harness.put(migrating.Order(user="u", order_id="1"))
    harness.advance(900)
    operate(harness, begin)
    join(harness)
    operate(harness, step("rollback"))
    join(harness)
    _is_over(harness, "rolled back")
    assert [order.status_day for order in harness.scan(migrating.Order)] == [None]


def stamped(harness):
    """Note that it is done, by other means; nothing else is written."""
    harness.put(migrating.Order(user="u", order_id="1"))

    async def stamp_it(app, aws, *, clock):
        await stamp(app, aws, "0001", "by a script", clock=clock)

    operate(harness, stamp_it)
    _is_over(harness, "done")
    assert [one.what for one in state_of(harness).audit] == ["stamp: by a script"]
    assert [order.status_day for order in harness.scan(migrating.Order)] == [None]


def verified(harness):
    """Find a copy that is missing and one without a source, and mend both."""
    harness.put(*(migrating.OldOrder(user="u", order_id=n) for n in "02"))
    harness.advance(900)
    operate(harness, begin)
    join(harness)
    harness.put(migrating.OldOrder(user="u", order_id="1"))
    harness.delete(migrating.OldOrder.key(user="u", order_id="2"))

    def verify(**options):
        app, given = harness.app, {"clock": harness.world.clock, "rng": random.Random(1)}
        one = app.migrations["0001"]
        found = harness.operate(lambda aws: verify_migration(app, aws, one, **given, **options))
        assert (found.matching, found.orphans, found.unsettled) == (2, True, ())
        return sorted(one.kind for one in found.different), found.repaired

    assert verify() == (["missing", "orphan"], 0)
    assert verify(repair=True) in (([], 2), ([], 0)), "a stop after the end: all is right"
    assert verify() == ([], 0)
    for entity in (migrating.OldOrder, migrating.Order):
        assert {order.order_id for order in harness.scan(entity)} == {"0", "1"}


def _is_over(harness, phase):
    state = state_of(harness)
    assert (state.phase, state.desired) == (phase, "run")


def mended(harness, down):
    """Of two items that fail one is waived and one tried again."""
    down |= {"1": 1, "2": 1}
    for n in "012":
        harness.put(migrating.Order(user="u", order_id=n, day=n))
    harness.advance(900)
    operate(harness, begin)
    join(harness)
    assert state_of(harness).phase == "blocked"
    app, clock = harness.app, harness.world.clock
    failed = harness._run(mending.list_errors(app, harness._aws, "0001"))
    waived = {one.id for one in failed if one.key["SK"] == {"S": "#ORDER#1"}}
    del down["2"]
    harness.operate(
        lambda aws: mending.waive_errors(app, aws, "0001", waived, "let it be", clock=clock)
    )
    others = {one.id for one in failed} - waived
    harness.operate(lambda aws: mending.retry_errors(app, aws, "0001", others, clock=clock))
    operate(harness, step("resume"))
    join(harness)
    _is_over(harness, "done")
    days = {order.order_id: order.status_day for order in harness.scan(migrating.Order)}
    assert days == {"0": "NEW#0", "1": None, "2": "NEW#2"}


def failing(down):
    def status_day(status: str, day: str) -> migrating.Set[migrating.Order]:
        if down[day]:
            raise ValueError("no such day")
        return migrating.Set(status_day=f"{status}#{day}")

    return migrating.in_place("in_place", status_day)
