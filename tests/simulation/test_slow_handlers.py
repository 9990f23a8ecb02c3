"""A handler that keeps the event loop busy: heartbeats and commits have their turns between calls."""

import asyncio
from itertools import pairwise

import anyio
import pytest
import structlog

from streamkit import Add, App, Entity, Inserted, Put, Query
from streamkit.settings import Settings
from streamkit.testing.loop import run_virtually
from streamkit.testing.world import Process
from tests.simulation.test_protocol import TABLE, Note, Thing, make_world, notes, put

SETTINGS = Settings()
MEMBER = '"member#'


def spend(seconds):
    asyncio.get_running_loop().spend(seconds)


def make_app(seconds, *, waits=False):
    app = App("slow", table=TABLE)

    def slow(change: Inserted[Thing]) -> Add[Note]:
        spend(seconds)
        return Add(Note.key(name=change.new.name), n=1)

    async def slow_and_async(change: Inserted[Thing]) -> Add[Note]:
        return slow(change)

    app.on(slow_and_async if waits else slow)
    return app


def beats(world):
    """Return when a worker's heartbeat was written."""
    return [
        call.at
        for call in world.calls
        if call.operation in ("UpdateItem", "PutItem") and "#member" in str(call.payload)
    ]


def worked_off(seconds, changes, workers=1, *, waits=False):
    """Work a backlog off; return when heartbeats were written, and how often the shard was taken."""
    found = {}

    async def scenario():
        world = make_world(roll_after=None)
        for number in range(changes):
            put(world, f"n{number}")
        async with anyio.create_task_group() as group:
            for worker in range(workers):
                process = Process(f"w{worker}")
                app = make_app(seconds, waits=waits)
                group.start_soon(lambda p=process, a=app: world.run_worker(a, process=p))
        assert notes(world) == {f"n{number}": 1 for number in range(changes)}
        found["beats"] = beats(world)

    with structlog.testing.capture_logs() as logs:
        run_virtually(scenario)
    return found | {"logs": logs, "events": {line["event"] for line in logs}}


@pytest.mark.parametrize("waits", [False, True], ids=["pure", "async"])
def test_heartbeats_go_on_while_a_slow_handler_works_off_a_page(waits):
    found = worked_off(0.05, 700, waits=waits)
    assert found["beats"][-1] - found["beats"][0] > 700 * 0.05 - SETTINGS.heartbeat
    assert max(b - a for a, b in pairwise(found["beats"])) < SETTINGS.heartbeat + 0.5


@pytest.mark.parametrize("seconds", [0.05, 0.012])
def test_a_slow_handler_costs_no_lease_and_no_alarm(seconds):
    logged = worked_off(seconds, 700, workers=2)["events"]
    assert "shard.taken" in logged
    assert not logged & {"shard.lost", "member.swept", "worker.swept", "stream.silent"}


def test_a_single_call_that_is_too_long_is_named_once_with_its_time():
    logs = worked_off(0.3, 5)["logs"]
    (said,) = [line for line in logs if line["event"] == "handler.slow"]
    assert said["handler"] == "slow"
    assert said["milliseconds"] == 300
    assert "test_slow_handlers.py" in said["declared"]


class Follower(Entity, pk="FOLLOWER", sk="FOLLOWER#{number:04d}"):
    number: int


class Told(Entity, pk="TOLD#{number:04d}", sk="TOLD"):
    number: int


def followers(change: Inserted[Thing]) -> Query[Follower]:
    return Follower.query()


def test_heartbeats_go_on_while_an_audience_is_served_slowly():
    async def scenario():
        app = App("slow", table=TABLE)

        @app.fan_out(followers)
        def told(change: Inserted[Thing], to: Follower) -> Put[Told]:
            spend(0.05)
            return Put(Told(number=to.number))

        world = make_world(roll_after=None)
        for number in range(200):
            item = {
                "PK": {"S": "FOLLOWER"},
                "SK": {"S": f"FOLLOWER#{number:04d}"},
                "number": {"N": str(number)},
            }
            world.engine.call("dynamodb", "PutItem", {"TableName": TABLE, "Item": item})
        put(world, "anvil")
        await world.run_worker(app)
        told_to = [item for item in world.items(TABLE) if item["PK"]["S"].startswith("TOLD#")]
        assert len(told_to) == 200
        written = beats(world)
        assert max(b - a for a, b in pairwise(written)) < SETTINGS.heartbeat + 0.5

    run_virtually(scenario)
