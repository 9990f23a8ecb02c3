"""A consumer is moved while one of its aggregates is rebuilt: one of both is refused, in the write."""

from contextlib import suppress
from dataclasses import dataclass, field
from typing import Annotated

import anyio
import pytest

from streamkit import Aggregate, App, ConfigurationError, Count, Entity, Key
from streamkit.core.tables import survey
from streamkit.errors import StreamSilent
from streamkit.fleet.hosting import LAMBDA, TO_LAMBDA, TO_WORKERS, WORKERS, host_of
from streamkit.fleet.members import Member, MemberList
from streamkit.kinds.aggregate.facts import list_aggregates
from streamkit.kinds.aggregate.rebuild import rebuild_aggregate
from streamkit.operate.moves import move_to_lambda, move_to_workers
from streamkit.progress.cursor import CursorStore
from streamkit.testing.chance import repeatable
from streamkit.testing.every import chosen
from streamkit.testing.harness import table_of
from streamkit.testing.loop import run_virtually
from streamkit.testing.world import CrashPoint, Process, World
from tests.simulation.movers import run_functions

TABLE = "Orders"
FUNCTION_SECONDS = 30.0


class Order(Entity, pk="ORDER#{number}", sk="ORDER"):
    number: int


class Orders(Aggregate[Order], pk="ORDERS", sk="ORDERS"):
    orders: Annotated[int, Count()] = 0

    @classmethod
    def group(cls, _: Order) -> Key["Orders"]:
        return cls.key()


def make_app():
    app = App("shop", table=TABLE)
    app.aggregate(Orders)
    return app


def put(world, *numbers):
    for number in numbers:
        key = {"PK": {"S": f"ORDER#{number}"}, "SK": {"S": "ORDER"}}
        item = {**key, "number": {"N": str(number)}}
        status, body = world.engine.call("dynamodb", "PutItem", {"TableName": TABLE, "Item": item})
        assert status == 200, body


def counted(world):
    (item,) = [item for item in world.items(TABLE) if item["PK"] == {"S": "ORDERS"}]
    return int(item["orders"]["N"])


async def to_workers(app, aws, clock):
    await move_to_workers(app, aws, in_flight=FUNCTION_SECONDS, clock=clock)


async def to_lambda(app, aws, clock):
    await move_to_lambda(app, aws, clock=clock, lease_seconds=1.0)


MOVES = {WORKERS: (run_functions, to_workers), LAMBDA: (World.run_worker, to_lambda)}


async def run(world, app):
    """Let the consumer's host go on; a move that was interrupted is finished before."""
    async with world.clients() as aws:
        store = CursorStore(aws.dynamodb, (await survey(app, aws)).space(app))
        host = await host_of(store)
        unfinished = {TO_WORKERS: to_workers, TO_LAMBDA: to_lambda}.get(host)
        if unfinished is not None:
            await unfinished(app, aws, world.clock)
            host = await host_of(store)
        await (run_functions if host == LAMBDA else World.run_worker)(world, app)


@dataclass
class Watched(Process):
    """Says which of its calls are not of the stream, and which are of the consumer's item."""

    tables: list = field(default_factory=list)
    steps: list = field(default_factory=list)

    async def intercept(self, call, apply):
        if call.service == "dynamodb":
            self.tables.append(self.calls)
            if call.operation == "UpdateItem" and b"#consumer" in call.payload:
                self.steps.append(self.calls)
        return await super().intercept(call, apply)


async def rebuild(app, aws, clock):
    with anyio.move_on_after(900):
        await rebuild_aggregate(
            app, aws, "Orders", in_flight=FUNCTION_SECONDS, clock=clock, segments=1
        )


async def beside(to, frozen, call, thaws_after):
    """Rebuild and move at once, one of them frozen at a call; return it."""
    before, move = MOVES[to]
    app, world = make_app(), World.create(1, shards=1)
    world.engine.call("dynamodb", "CreateTable", table_of(app))
    put(world, 0, 1, 2)
    await before(world, app)
    put(world, 3, 4, 5)
    sleeper = Watched("sleeper", CrashPoint(call, "before", freezes=True))
    ended = anyio.Event()

    async def one(work, process):
        async with world.clients(process) as aws:
            if to == LAMBDA and work is rebuild:  # it wants a worker to be there
                space = (await survey(app, aws)).space(app)
                await MemberList(CursorStore(aws.dynamodb, space)).add(Member("killed"))
            with suppress(ConfigurationError, StreamSilent):
                await work(app, aws, world.clock)

    async def sleeps():
        await one(move if frozen == "move" else rebuild, sleeper)
        ended.set()

    async def thaws():
        await anyio.sleep(thaws_after)
        sleeper.thaw()

    async with anyio.create_task_group() as group:
        group.start_soon(sleeps)
        while not (sleeper.stopped.is_set() or ended.is_set()):
            await anyio.sleep(0.5)
        put(world, 6)
        group.start_soon(thaws)
        await one(rebuild if frozen == "move" else move, Process("other"))
        sleeper.thaw()
        await ended.wait()
    await run(world, app)
    put(world, 7)
    await run(world, app)
    async with world.clients() as aws:
        (facts,) = await list_aggregates(app, aws)
        if facts.state == "building":  # the one that was refused is tried again
            await rebuild(app, aws, world.clock)
    await run(world, app)
    assert counted(world) == 8, call
    return sleeper


@pytest.mark.parametrize("frozen", ["move", "rebuild"])
@pytest.mark.parametrize("to", MOVES)
def test_a_rebuild_and_a_move_of_which_one_stands_still_at_any_call_are_exact(to, frozen):
    """Before each step that the sleeper takes, and at some other calls."""

    def play(call, thaws_after=900.0):
        with repeatable(1):
            return run_virtually(beside, to, frozen, call, thaws_after)

    whole = play(10_000)
    for call in whole.steps:
        play(call)
    for number, call in enumerate(chosen(whole.tables, 2, seed=1)):
        play(call, (3.0, 900.0)[number % 2])
