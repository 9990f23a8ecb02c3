"""A consumer changes hosts under traffic, and nothing is lost or applied twice."""

from contextlib import suppress
from dataclasses import replace
from functools import partial

import anyio
import pytest

from streamkit import (
    Add,
    App,
    ConfigurationError,
    Entity,
    Inserted,
    Modified,
    PoisonChange,
    Policy,
    Query,
)
from streamkit.operate.moves import MoveRefused, move_to_lambda, move_to_workers, to_workers
from streamkit.operate.moves.marking import Marking
from streamkit.progress.control import START
from streamkit.testing import Different, Trouble, trial
from streamkit.testing.chance import repeatable
from streamkit.testing.harness import table_of
from streamkit.testing.loop import run_virtually
from streamkit.testing.recording import recording
from streamkit.testing.trial import open_shards
from streamkit.testing.world import CrashPoint, Process, World
from tests.seeds import seeds
from tests.simulation.conformance import Market, make_app
from tests.simulation.movers import ToLambda, ToWorkers, run_functions

SEEDS = seeds()
TROUBLE = Trouble(crash=0.03, split=0.03, roll=0.02, pause=8.0, sinks=0.02)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("host", [ToWorkers, ToLambda])
def test_a_consumer_moves_under_traffic_although_its_mover_is_killed(host, seed):
    app = make_app()
    moving = partial(host, kill=seed + 1)
    ran = trial(app, Market(app), seed=seed, acts=80, trouble=TROUBLE, host=moving)
    # Not every seed has poison, or a mover that writes often enough to be killed.
    assert seed or all(comparison.compared for comparison in ran.comparisons)
    assert seed or ran.met["mover killed"]


async def nothing(*_):
    """Take the place of a step that a planted bug leaves out."""


def marks_are_not_raised(monkeypatch):
    """Functions do again what workers have done."""
    monkeypatch.setattr(Marking, "raise_all", nothing)


def positions_are_forgotten(monkeypatch):
    """Workers do again what functions have done."""
    write = to_workers.replace_cursors

    async def from_the_oldest(fence, cursors, generation):
        await write(fence, [replace(c, position=START) for c in cursors], generation)

    monkeypatch.setattr(to_workers, "replace_cursors", from_the_oldest)


@pytest.mark.parametrize(
    ("host", "plant"), [(ToLambda, marks_are_not_raised), (ToWorkers, positions_are_forgotten)]
)
def test_a_bug_that_is_planted_in_a_move_is_found(host, plant, monkeypatch):
    plant(monkeypatch)

    def look(seed):
        app = make_app()
        trial(app, Market(app), seed=seed, acts=30, trouble=TROUBLE, host=partial(host, kill=1))

    with pytest.raises(Different):
        list(map(look, range(5)))


class Order(Entity, pk="ORDER#{number}", sk="ORDER"):
    number: int
    poison: bool = False
    note: int = 0


class Part(Entity, pk="PART#{number}#{part}", sk="PART"):
    number: int
    part: str
    times: int = 0


class Told(Entity, pk="TOLD#{user}", sk="TOLD"):
    user: str
    times: int = 0


USERS = 100


class User(Entity, pk="USERS", sk="USER#{user:03d}"):
    user: int


def shop():
    """Two handlers whose results need a commit each, one that is fussy, and a slow fan-out."""
    app = App("shop", table="Shop", entities=[Part, Told, User], policy=Policy(retry_limit=0))

    def parts(change, name):
        number = change.new.number
        return [Add(Part.key(number=number, part=f"{name}{n}"), times=1) for n in range(60)]

    @app.on
    def first(change: Inserted[Order]) -> list[Add[Part]]:
        return parts(change, "a")

    @app.on
    def second(change: Inserted[Order]) -> list[Add[Part]]:
        return parts(change, "b")

    @app.on
    def fussy(change: Inserted[Order] | Modified[Order]) -> Add[Part] | None:
        if change.new.poison:
            raise PoisonChange("not this one")
        return Add(Part.key(number=change.new.number, part="fussy"), times=1)

    def users(change: Inserted[Order]) -> Query[User]:
        return User.query()

    @app.fan_out(users, inline=0, rate=10)
    def tell(change: Inserted[Order], to: User) -> Add[Told]:
        return Add(Told.key(user=f"{to.user}"), times=1)

    return app


class HalfDone(Process):
    """Dies when it has committed some of the handlers of order 1, and not the others."""

    async def intercept(self, call, apply):
        text = call.payload
        if call.operation == "TransactWriteItems" and b"_sk_done" in text and b"PART#1#" in text:
            self.crash = CrashPoint(self.calls, "after")
        return await super().intercept(call, apply)


def put(world, item):
    """Write an item of an entity whose attributes are numbers and truths."""
    values = item.model_dump().items()
    wire = {name: {"BOOL": v} if isinstance(v, bool) else {"N": str(v)} for name, v in values}
    key = item.item_key
    wire |= {"PK": {"S": key.pk}, "SK": {"S": key.sk}}
    status, body = world.engine.call("dynamodb", "PutItem", {"TableName": "Shop", "Item": wire})
    assert status == 200, body


def times(world, name):
    items = [item for item in world.items("Shop") if item["PK"]["S"].startswith(f"{name}#")]
    return {item["PK"]["S"]: int(item["times"]["N"]) for item in items}


def parked(world):
    return sum(item.get("_sk_kind") == {"S": "parked"} for item in world.items("Shop"))


async def run_worker_to_its_death(world, app):
    """Let a worker do order 2, all but the rest of its audience, and half of order 1."""
    process = HalfDone("worker")
    async with anyio.create_task_group() as group:
        group.start_soon(partial(world.run_worker, app, process=process, until_idle=False))
        await anyio.sleep(5.0)
        put(world, Order(number=1, poison=True))
        await process.dead.wait()
    assert 0 < len(times(world, "TOLD")) < USERS
    assert len(times(world, "PART")) == 180, "order 2, and one handler's part of order 1"


def test_lambda_goes_on_with_half_of_a_change_with_queues_and_with_an_audience():
    async def main():
        world, app = World.create(1, shards=1), shop()
        world.engine.call("dynamodb", "CreateTable", table_of(app))
        for user in range(USERS):
            put(world, User(user=user))
        put(world, Order(number=2, poison=True))
        await run_worker_to_its_death(world, app)
        async with world.clients() as aws:
            moved = await move_to_lambda(app, aws, clock=world.clock)
        put(world, Order(number=2))
        await run_functions(world, app)
        parts = {f"PART#{o}#{p}{n}": 1 for o in (1, 2) for p in "ab" for n in range(60)}
        assert times(world, "PART") == parts
        assert times(world, "TOLD") == {f"TOLD#{user}": 2 for user in range(USERS)}
        assert parked(world) == 3, "the later change of order 2 waits behind the one parked"
        return moved

    with repeatable(1):
        moved = run_virtually(main)
    assert (moved.host, moved.shards, moved.queues) == ("lambda", 1, 2)


class Thawing(Process):
    """Lets a frozen worker go on just before the cursors are deleted, and gives it time."""

    zombie: Process

    async def intercept(self, call, apply):
        if call.operation == "TransactWriteItems" and self.zombie.frozen:
            self.zombie.thaw()
            await anyio.sleep(5.0)
        return await super().intercept(call, apply)


def test_a_worker_that_was_thought_dead_commits_nothing_once_positions_are_final():
    async def main():
        world, app = World.create(1, shards=1), shop()
        world.engine.call("dynamodb", "CreateTable", table_of(app))
        mover = Thawing("mover")
        mover.zombie = zombie = Process("zombie")

        async def live():
            with suppress(ConfigurationError):
                await world.run_worker(app, process=zombie, until_idle=False)

        async with anyio.create_task_group() as group:
            group.start_soon(live)
            put(world, Order(number=1))
            await anyio.sleep(5.0)
            zombie.freeze()
            put(world, Order(number=2))
            async with world.clients(mover) as aws:
                await move_to_lambda(app, aws, clock=world.clock)
            assert zombie.frozen is None
            await run_functions(world, app)
            zombie.kill()
        assert set(times(world, "PART").values()) == {1}
        assert len(times(world, "PART")) == 2 * 121

    with repeatable(1):
        run_virtually(main)


@pytest.mark.parametrize(("host", "other"), [("workers", "lambda"), ("lambda", "workers")])
def test_a_consumer_has_one_host_and_the_other_refuses_to_begin(host, other):
    async def main():
        world, app = World.create(1, shards=1), shop()
        world.engine.call("dynamodb", "CreateTable", table_of(app))
        put(world, Order(number=1))
        run = {"workers": world.run_worker, "lambda": partial(run_functions, world)}
        await run[host](app)
        put(world, Order(number=2))
        with pytest.raises(ConfigurationError, match=f"run it; .*to-{other}"):
            await run[other](app)
        await run[host](app)
        assert set(times(world, "PART").values()) == {1}
        assert len(times(world, "PART")) == 2 * 121

    with repeatable(1):
        run_virtually(main)


def test_a_move_is_refused_from_the_wrong_host_with_live_workers_or_for_what_leaves_no_marks():
    app = make_app()

    async def main():
        world = World.create(1, shards=1)
        world.engine.call("dynamodb", "CreateTable", table_of(app))
        async with world.clients() as aws, anyio.create_task_group() as group:
            with pytest.raises(MoveRefused, match="has never run on this stream"):
                await move_to_lambda(app, aws, clock=world.clock)
            group.start_soon(partial(world.run_worker, app, until_idle=False))
            await anyio.sleep(10.0)
            with pytest.raises(MoveRefused, match="workers are alive"):
                await move_to_lambda(app, aws, clock=world.clock)
            with pytest.raises(MoveRefused, match=r"by workers\n.*mail.*--since"):
                await move_to_workers(app, aws, clock=world.clock)
            group.cancel_scope.cancel()

    with repeatable(1), recording(app):
        run_virtually(main)


class LateAt(Process):
    """Is slow to open one shard."""

    shard: str

    async def intercept(self, call, apply):
        if call.operation == "GetShardIterator" and self.shard.encode() in call.payload:
            await anyio.sleep(30.0)
        return await super().intercept(call, apply)


def test_a_parent_that_is_read_later_than_its_child_lowers_no_mark():
    async def main():
        world, app = World.create(1, shards=1), shop()
        world.engine.call("dynamodb", "CreateTable", table_of(app))
        mover = LateAt("mover")
        mover.shard = open_shards(world, "Shop")[0]
        put(world, Order(number=1))
        await world.run_worker(app)
        world.control.roll("Shop")
        put(world, Order(number=1, note=1))
        await world.run_worker(app)
        async with world.clients(mover) as aws:
            await move_to_lambda(app, aws, clock=world.clock)
        await run_functions(world, app)
        assert times(world, "PART").pop("PART#1#fussy") == 2

    with repeatable(1):
        run_virtually(main)
