"""States that should not occur: the problem is logged once, and nothing is repeated quickly."""

from functools import partial

import anyio
import pytest
import structlog

from streamkit import Add, App, Entity, Inserted, PoisonChange, Policy
from streamkit.aws_lambda.host import process_batch
from streamkit.core.parked.queues import list_parked
from streamkit.core.tables import open_store
from streamkit.local.errors import ApiError
from streamkit.local.transport import Response
from streamkit.operate.status import read_status
from streamkit.progress.clock import CorrectedClock
from streamkit.settings import Settings
from streamkit.testing.chance import repeatable
from streamkit.testing.loop import run_virtually
from streamkit.testing.world import Process
from tests.simulation.lambdas import Stream, environment_of, event, own_items, world_of

TABLE = "Orders"


class Order(Entity, pk="ORDER#{number}", sk="ORDER"):
    number: int
    poison: bool = False


class Tally(Entity, pk="TALLY#{number}", sk="TALLY"):
    number: int
    times: int = 0


def make_app():
    app = App("odd", table=TABLE, entities=[Tally], policy=Policy(attempts=1, retry_limit=0))

    @app.on
    def tally(change: Inserted[Order]) -> Add[Tally]:
        if change.new.poison:
            raise PoisonChange("not this one")
        return Add(Tally.key(number=change.new.number), times=1)

    return app


def put(world, number, *, poison=False):
    key = {"PK": {"S": f"ORDER#{number}"}, "SK": {"S": "ORDER"}}
    item = {**key, "number": {"N": str(number)}, "poison": {"BOOL": poison}}
    assert world.engine.call("dynamodb", "PutItem", {"TableName": TABLE, "Item": item})[0] == 200


def tallied(world):
    items = [item for item in world.items(TABLE) if item["PK"]["S"].startswith("TALLY#")]
    return {int(item["number"]["N"]): int(item["times"]["N"]) for item in items}


def simulated(main):
    with repeatable(1), structlog.testing.capture_logs() as logs:
        run_virtually(main)
    return logs


def named(logs, event_name):
    return [line for line in logs if line["event"] == event_name]


# -- a generation that nobody has created ----------------------------------------------------------


def test_a_cursor_of_a_generation_that_nobody_created_is_told_once_and_not_rejoined_for():
    """As when the consumer's item comes out of a backup, and the cursors do not."""

    async def main():
        app, world = make_app(), world_of(make_app(), shards=2)
        for number in range(10):
            put(world, number)
        await world.run_worker(app)
        assert set(tallied(world)) == set(range(10))
        cursor, *_ = (
            item
            for item in own_items(world, TABLE, "cursor")
            if item["_sk_name"]["S"].startswith("shardId")
        )
        item = cursor | {"_sk_generation": {"N": "99"}}
        world.engine.call("dynamodb", "PutItem", {"TableName": TABLE, "Item": item})
        for number in range(10, 20):
            put(world, number)
        process = Process("worker")
        async with anyio.create_task_group() as group:
            group.start_soon(partial(world.run_worker, app, process=process, until_idle=False))
            await anyio.sleep(600)
            process.kill()
        done = set(tallied(world))
        assert set(range(10)) < done < set(range(20)), "the other shard is read"

    logs = simulated(main)
    assert len(named(logs, "worker.started")) == 2
    (told,) = named(logs, "generation.unknown")
    assert (told["seen"], told["newest"], told["log_level"]) == (99, 1, "error")


# -- a change that cannot be parked ----------------------------------------------------------------


class Refusing:
    """Answers that an action is invalid where a change is parked, while it is told to."""

    def __init__(self):
        self.refuses, self.refused = True, 0

    async def intercept(self, call, apply):
        parks = call.operation == "TransactWriteItems" and b"#parked#" in call.payload
        if parks and self.refuses:
            self.refused += 1
            return Response.of_error(ApiError("ValidationException", "an item is too large"))
        return apply()


def test_a_worker_whose_parking_is_refused_waits_says_so_and_loses_nothing():
    async def main():
        app, world, wire = make_app(), world_of(make_app()), Refusing()
        put(world, 1)
        put(world, 2, poison=True)
        put(world, 3)
        process = Process("worker", faults=wire)
        async with anyio.create_task_group() as group, world.clients() as aws:
            group.start_soon(partial(world.run_worker, app, process=process, until_idle=False))
            await anyio.sleep(120)
            assert 2 < wire.refused < 200
            assert 3 not in tallied(world), "the shard waits"
            assert not await list_parked(await open_store(app, aws))
            wire.refuses = False
            await anyio.sleep(120)
            assert tallied(world) == {1: 1, 3: 1}
            (parked,) = await list_parked(await open_store(app, aws))
            assert parked.error == "PoisonChange"
            process.kill()

    told = named(simulated(main), "parking.refused")
    assert told
    assert {line["log_level"] for line in told} == {"error"}


def test_a_function_whose_parking_is_refused_gives_the_change_back_and_says_so():
    async def main():
        app, world, wire = make_app(), world_of(make_app()), Refusing()
        put(world, 1)
        put(world, 2, poison=True)
        put(world, 3)
        records = Stream(world, TABLE).traffic()
        async with environment_of(world, app, Process("function", faults=wire)) as environment:
            response = await process_batch(environment, event(records))
            second = records[1]["dynamodb"]["SequenceNumber"]
            assert response == {"batchItemFailures": [{"itemIdentifier": second}]}
            wire.refuses = False
            assert await process_batch(environment, event(records[1:])) == {"batchItemFailures": []}
            (parked,) = await list_parked(await open_store(app, environment.aws))
            assert parked.error == "PoisonChange"
        assert tallied(world) == {1: 1, 3: 1}

    (told,) = named(simulated(main), "parking.refused")
    assert told["log_level"] == "error"


# -- workers that beat seldom ----------------------------------------------------------------------


@pytest.mark.parametrize(("heartbeat", "lease", "silent"), [(100, 300, False), (3, 7, True)])
def test_status_calls_a_worker_silent_by_the_lease_that_the_worker_has(heartbeat, lease, silent):
    async def main():
        app, world = make_app(), world_of(make_app())
        process = Process("worker")
        settings = Settings(heartbeat=heartbeat, lease=lease)
        async with anyio.create_task_group() as group, world.clients() as aws:
            run = partial(world.run_worker, app, process=process, settings=settings)
            group.start_soon(partial(run, until_idle=False))
            await anyio.sleep(5)
            process.kill()
            await anyio.sleep(60)
            (worker,) = (await read_status(app, aws, clock=world.clock)).workers
            assert worker.beat_age_seconds > 50
            assert worker.silent == silent

    simulated(main)


@pytest.mark.parametrize("minutes", [-10, 10])
def test_status_tells_lags_and_ages_by_the_tables_clock_where_its_own_is_wrong(minutes):
    async def main():
        app, world = make_app(), world_of(make_app())
        process = Process("worker")
        async with anyio.create_task_group() as group, world.clients() as aws:
            group.start_soon(partial(world.run_worker, app, process=process, until_idle=False))
            await anyio.sleep(5)
            process.kill()
            put(world, 1)
            await anyio.sleep(90)
            wrong = CorrectedClock(world.clock, minutes * 60)
            status = await read_status(app, aws, clock=wrong)
            assert 85 < status.lag_seconds < 95
            (worker,) = status.workers  # whose clock may be wrong, too
            assert abs(world.clock.time() - worker.last_beat - worker.beat_age_seconds) < 2

    simulated(main)
