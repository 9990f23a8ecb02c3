"""One change whose results need several commits, and whose process dies after any of them."""

import random
from dataclasses import dataclass
from typing import Any

import anyio
import pytest

from streamkit import Add, App, Entity, Inserted, PoisonChange, Query
from streamkit.aws_lambda.host import process_batch
from streamkit.operate.redrive import redrive
from streamkit.testing.chance import repeatable
from streamkit.testing.loop import run_virtually
from streamkit.testing.world import CrashPoint, Process
from tests.simulation.lambdas import Stream, environment_of, event, world_of

TABLE = "Shop"
COMMITS = ((5, 45, 3), (4, 60, 4), (5, 99, 5))
"""Handlers, items of each one's result, and the commits that one change takes."""

MANY = 20
"""Transactions after which a process dies anyway: it would go on for ever."""


class Order(Entity, pk="ORDER#{order}", sk="ORDER#{order}"):
    order: str


class Tally(Entity, pk="TALLY#{by}", sk="TALLY#{item}"):
    by: str
    item: str
    times: int = 0


class Told(Entity, pk="TOLD#{user}", sk="TOLD#{item}"):
    user: int
    item: int
    times: int = 0


class User(Entity, pk="USER", sk="USER#{user}"):
    user: int


@dataclass
class Doomed(Process):
    """Dies at one of the transactions that write tallies, by number."""

    at: int | None = None
    moment: str = "after"
    sent: int = 0

    async def intercept(self, call, apply):
        counts = b"TALLY#" in call.payload or b"TOLD#" in call.payload
        if call.operation == "TransactWriteItems" and counts:
            if self.sent == self.at or self.sent > MANY:
                self.crash = CrashPoint(self.calls, self.moment)
            self.sent += 1
        return await super().intercept(call, apply)


def make_app(handlers, items, *, failing=()):
    """Each handler counts each of its items once for an order; some fail."""
    app = App("shop", table=TABLE, entities=[Tally])

    def named(name):
        def tally(change: Inserted[Order]) -> list[Add[Tally]]:
            if name in failing:
                raise PoisonChange("not this one")
            order = change.new.order
            return [Add(Tally.key(by=name, item=f"{order}-{n}"), times=1) for n in range(items)]

        tally.__name__ = tally.__qualname__ = name
        return tally

    for number in range(handlers):
        app.on(named(f"handler{number}"))
    return app


def put(world, order):
    key = {"S": f"ORDER#{order}"}
    item = {"PK": key, "SK": key, "order": {"S": order}}
    world.engine.call("dynamodb", "PutItem", {"TableName": TABLE, "Item": item})


def times(world, name="TALLY"):
    items = [item for item in world.items(TABLE) if item["PK"]["S"].startswith(f"{name}#")]
    return [int(item["times"]["N"]) for item in items]


async def in_functions(world, app, process, records):
    """Invoke a function, which may die; return whether it answered."""
    answered = []
    async with anyio.create_task_group() as group:

        async def die():
            await process.dead.wait()
            group.cancel_scope.cancel()

        group.start_soon(die)
        async with environment_of(world, app, process) as environment:
            answered.append(await process_batch(environment, event(records)))
        group.cancel_scope.cancel()
    return bool(answered)


async def in_workers(world, app, process, records):
    """Run a worker, which may die; return whether it lived."""
    return await world.run_worker(app, process=process)


HOSTS = {"functions": in_functions, "workers": in_workers}


async def nothing(world):
    """What is done after a trial, mostly."""


def trial(host, app, deaths, orders=("a",), then=nothing):
    """Run an app in processes that die at these transactions, each (number, moment).

    Returns how often each item was counted, how many transactions the last process sent, and what
    `then` did.
    """

    async def main():
        world = world_of(app)
        for order in orders:
            put(world, order)
        records = Stream(world, TABLE).traffic()
        for at, moment in deaths:
            process = Doomed(f"doomed{random.random()}", at=at, moment=moment)
            assert not await HOSTS[host](world, app, process, records), "it was to die"
        last = Doomed("last")
        assert await HOSTS[host](world, app, last, records)
        return times(world), last.sent, await then(world)

    with repeatable(1):
        return run_virtually(main)


@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize(("handlers", "items", "commits"), COMMITS)
def test_a_change_of_several_commits_is_applied_once_whichever_its_host_died_after(
    host, handlers, items, commits
):
    app = make_app(handlers, items)
    whole = [1] * (handlers * items)
    for number in range(commits):
        found, sent, _ = trial(host, app, [(number, "after")])
        assert found == whole, f"dead after commit {number}"
        assert sent == commits - number - 1, "what was done before the death is done again"


@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_change_of_several_commits_is_applied_once_by_processes_that_live_for_one_commit(
    host, moment
):
    app, deaths = make_app(5, 45), [(0, "after")] * 5
    if moment == "before":
        deaths = [death for after in deaths for death in (after, (0, "before"))]
    found, sent, _ = trial(host, app, deaths, orders=("a", "b"))
    assert (found, sent) == ([1] * 2 * 225, 1)


@dataclass
class Overtaken(Process):
    """Lets another invocation be faster, between what it reads and one of its commits."""

    faster: Any = None
    at: int = 0

    async def intercept(self, call, apply):
        if call.operation == "TransactWriteItems" and b"TALLY#" in call.payload:
            self.at -= 1
            if self.at == -1:
                await self.faster()
        return await super().intercept(call, apply)


@pytest.mark.parametrize("before", range(3))
@pytest.mark.parametrize("faster", range(3))
def test_two_invocations_of_one_change_of_several_commits_apply_it_once(before, faster):
    """One has committed some of it, then the other one some more; the first goes on then."""
    app = make_app(5, 45)

    async def main():
        world = world_of(app)
        put(world, "a")
        records = Stream(world, TABLE).traffic()

        async def other():
            process = Doomed("faster", at=faster)
            await in_functions(world, app, process, records)

        slow = Overtaken("slow", faster=other, at=before)
        assert await in_functions(world, app, slow, records)
        assert times(world) == [1] * 225

    with repeatable(1):
        run_virtually(main)


@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize("number", [0, 2, 4])
def test_a_handler_that_is_parked_in_one_of_several_commits_of_a_change_is_parked_once(
    host, number
):
    failing = {f"handler{number}"}
    app = make_app(5, 45, failing=failing)

    async def again(world):
        failing.clear()
        async with world.clients() as aws:
            (report,) = await redrive(app, aws, clock=world.clock, rng=random.Random(1))
        return report.done, report.empty, times(world)

    found, _, then = trial(host, app, [(0, "after")], then=again)
    assert found == [1] * 180
    assert then == (1, True, [1] * 225)


def fan_out_app():
    """Each user has 45 items of an order: two users in a transaction."""
    app = App("shop", table=TABLE, entities=[Told])

    def users(change: Inserted[Order]) -> Query[User]:
        return User.query()

    @app.fan_out(users, inline=0)
    def tell(change: Inserted[Order], to: User) -> list[Add[Told]]:
        return [Add(Told.key(user=to.user, item=item), times=1) for item in range(45)]

    return app


@pytest.mark.parametrize("deaths", [[0], [1], [2], [0, 0], [1, 0]])
def test_a_fan_out_of_several_commits_serves_each_recipient_once_whichever_its_host_died_after(
    deaths,
):
    app = fan_out_app()

    async def main():
        world = world_of(app)
        for user in range(5):
            key = {"PK": {"S": "USER"}, "SK": {"S": f"USER#{user}"}}
            item = {**key, "user": {"N": str(user)}}
            world.engine.call("dynamodb", "PutItem", {"TableName": TABLE, "Item": item})
        put(world, "a")
        for at in deaths:
            process = Doomed(f"doomed{random.random()}", at=at)
            assert not await world.run_worker(app, process=process)
        last = Doomed("last")
        assert await world.run_worker(app, process=last)
        assert times(world, "TOLD") == [1] * 225
        assert last.sent == 3 - sum(at + 1 for at in deaths)

    with repeatable(1):
        run_virtually(main)
