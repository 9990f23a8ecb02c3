"""Records that cannot be read: they are set aside, once, and everything else goes on."""

import copy
import json
import random

import anyio
import pytest

from streamkit import Add, App, Entity, Expired, Inserted, Modified, Removed, Telemetry
from streamkit.aws_lambda.host import process_batch
from streamkit.aws_lambda.late import process_late
from streamkit.aws_lambda.maintenance import maintain
from streamkit.core.parked.queues import list_parked, parked_queues
from streamkit.core.tables import open_store
from streamkit.local.errors import ApiError
from streamkit.local.transport import Response
from streamkit.observe.registry import Registry
from streamkit.operate.moves import move_to_workers
from streamkit.operate.redrive import discard, redrive
from streamkit.testing.chance import repeatable
from streamkit.testing.loop import run_virtually
from streamkit.testing.world import Process
from tests.simulation.lambdas import (
    Stream,
    environment_of,
    event,
    given_up,
    own_items,
    world_of,
)
from tests.simulation.movers import Mover, run_functions

TABLE = "Shop"


class Order(Entity, pk="ORDER#{order}", sk="ORDER#{order}"):
    order: str
    amount: int = 0


class Tally(Entity, pk="TALLY#{order}", sk="TALLY"):
    order: str
    times: int = 0


class Closing(Entity, pk="CLOSING#{order}", sk="CLOSING"):
    order: str
    times: int = 0


EXPIRED = {"type": "Service", "principalId": "dynamodb.amazonaws.com"}
"""What a mapping writes into a record of an item that expired."""


def make_app(registry=None):
    app = App("shop", table=TABLE, entities=[Tally], telemetry=Telemetry(metrics=registry))

    @app.on
    def count(change: Inserted[Order] | Modified[Order]) -> Add[Tally]:
        return Add(Tally.key(order=change.new.order), times=1)

    return app


def put(world, *orders):
    for order in orders:
        key = {"S": f"ORDER#{order}"}
        item = {"PK": key, "SK": key, "order": {"S": order}}
        world.engine.call("dynamodb", "PutItem", {"TableName": TABLE, "Item": item})


def times(world):
    items = [item for item in world.items(TABLE) if item["PK"]["S"].startswith("TALLY#")]
    return {item["order"]["S"]: int(item["times"]["N"]) for item in items}


def without_keys(record):
    del record["dynamodb"]["Keys"]


def of_unknown_kind(record):
    record["eventName"] = "TRUNCATE"


def without_place(record):
    del record["dynamodb"]["SequenceNumber"]


def of_unknown_type(record):
    record["dynamodb"]["Keys"] = {"PK": {"Q": "x"}, "SK": {"S": "x"}}


def empty(record):
    record.clear()


FLAWS = (without_keys, of_unknown_kind, without_place, of_unknown_type, empty)


def broken(record, flaw):
    record = copy.deepcopy(record)
    flaw(record)
    return record


class Breaking:
    """Breaks the records of some orders on their way to a worker."""

    def __init__(self, flaw, *orders):
        self.flaw, self.keys = flaw, {f"ORDER#{order}" for order in orders}
        self.seen = 0

    async def intercept(self, call, apply):
        response = apply()
        if call.operation != "GetRecords":
            return response
        body = json.loads(bytes(response.body))
        for record in body["Records"]:
            if record["dynamodb"]["Keys"]["PK"]["S"] in self.keys:
                self.flaw(record)
                self.seen += 1
        return Response(response.status, json.dumps(body).encode())


def trial(main):
    async def bounded():
        with anyio.fail_after(3 * 3600):
            await main()

    with repeatable(1):
        run_virtually(bounded)


async def parked_in(world, app):
    async with world.clients() as aws:
        return await list_parked(await open_store(app, aws))


@pytest.mark.parametrize("flaw", FLAWS)
def test_a_function_sets_a_record_aside_once_and_does_the_rest_of_its_batch(flaw):
    async def main():
        registry = Registry()
        app = make_app(registry)
        world = world_of(app)
        put(world, "a", "b", "c")
        first, second, third = Stream(world, TABLE).traffic()
        batch = event([first, broken(second, flaw), third])
        async with environment_of(world, app) as environment:
            for _ in range(3):
                assert await process_batch(environment, batch) == {"batchItemFailures": []}
            assert await process_batch(environment, event([broken(second, flaw)])) == {
                "batchItemFailures": []
            }
            counts = await maintain(environment, 30)
        assert times(world) == {"a": 1, "c": 1}
        assert (counts["queues"], counts["stuck"]) == (1, 1)
        (parked,) = await parked_in(world, app)
        assert (parked.error, parked.handler) == ("Unreadable", "(unreadable)")
        assert registry.total("streamkit_unreadable_total") == 1

    trial(main)


@pytest.mark.parametrize("flaw", FLAWS)
@pytest.mark.parametrize("blocked", range(5))
def test_expiries_around_a_record_that_cannot_be_read_happen_once_wherever_one_blocks(
    flaw, blocked
):
    """The answer names the first record that is not done, and no other one is lost behind it."""
    letters, shut = "abcde", ["abcde"[blocked]]
    app = App("shop", table=TABLE, entities=[Tally, Closing])

    @app.on(on_failure="block", attempts=1)
    def expired(change: Expired[Order]) -> Add[Closing]:
        if change.old.order in shut:
            raise RuntimeError("shut")
        return Add(Closing.key(order=change.old.order), times=1)

    @app.on
    def removed(change: Removed[Order]) -> Add[Tally]:
        return Add(Tally.key(order=change.old.order), times=1)

    def closed(world, name="CLOSING"):
        items = [item for item in world.items(TABLE) if item["PK"]["S"].startswith(f"{name}#")]
        return {item["order"]["S"]: int(item["times"]["N"]) for item in items}

    async def main():
        world = world_of(app)
        put(world, *letters, "x")
        stream = Stream(world, TABLE)
        stream.traffic()
        for order in (*"abc", "x", *"de"):
            key = {"S": f"ORDER#{order}"}
            call = {"TableName": TABLE, "Key": {"PK": key, "SK": key}}
            world.engine.call("dynamodb", "DeleteItem", call)
        records = [r | {"userIdentity": EXPIRED} for r in stream.traffic()]
        del records[4]["userIdentity"]  # somebody has deleted `d`
        records[3] = broken(records[3], flaw)
        waits = blocked != 3  # only an expiry can be shut
        async with environment_of(world, app) as environment:
            left = records
            if waits:
                place = blocked if blocked < 3 else blocked + 1
                first = records[place]["dynamodb"]["SequenceNumber"]
                for _ in range(2):
                    (one,) = (await process_batch(environment, event(left)))["batchItemFailures"]
                    assert one == {"itemIdentifier": first}
                    left = records[place:]
            shut.clear()
            assert (await process_batch(environment, event(left)))["batchItemFailures"] == []
            assert (await process_batch(environment, event(records)))["batchItemFailures"] == []
        assert closed(world) == dict.fromkeys("abce", 1)
        assert closed(world, "TALLY") == {"d": 1}
        (parked,) = await parked_in(world, app)
        assert parked.error == "Unreadable"

    trial(main)


@pytest.mark.parametrize("flaw", FLAWS)
@pytest.mark.parametrize("order", ["a", "b", "c"])
def test_a_worker_sets_a_record_aside_once_and_does_the_rest_of_its_page(flaw, order):
    async def main():
        registry = Registry()
        app = make_app(registry)
        world = world_of(app)
        put(world, "a", "b", "c")
        wire = Breaking(flaw, order)
        for number in range(3):
            process = Process(f"worker{number}", faults=wire)
            assert await world.run_worker(app, process=process)
            put(world, f"later{number}")
        assert wire.seen
        done = {name: 1 for name in ("a", "b", "c", "later0", "later1") if name != order}
        assert times(world) == done
        (parked,) = await parked_in(world, app)
        assert (parked.error, parked.handler) == ("Unreadable", "(unreadable)")
        assert parked.shard.startswith("shardId-")
        assert registry.total("streamkit_unreadable_total") == 1

    trial(main)


def test_a_worker_that_dies_at_any_write_has_lost_no_record_that_cannot_be_read():
    async def main(number, moment):
        app = make_app()
        world = world_of(app)
        put(world, "a", "b", "c")
        wire = Breaking(without_keys, "b")
        process = Mover("doomed", faults=wire, dies_at=number, moment=moment)
        lived = await world.run_worker(app, process=process)
        assert await world.run_worker(app, process=Process("next", faults=wire))
        assert times(world) == {"a": 1, "c": 1}
        assert len(await parked_in(world, app)) == 1
        return lived

    number, lived = 0, False
    with repeatable(1):
        while not lived:
            for moment in ("before", "after"):
                lived = run_virtually(main, number, moment)
            number += 1
    assert number > 5


def test_a_table_that_throttles_lets_the_batch_come_again_with_its_record():
    """Whoever goes on behind a record that is nowhere has lost it."""

    class Throttled:
        def __init__(self):
            self.active = False

        async def intercept(self, call, apply):
            if self.active and call.operation == "TransactWriteItems":
                return Response.of_error(ApiError("ThrottlingException", "slow down"))
            return apply()

    async def main():
        app = make_app()
        world = world_of(app)
        put(world, "a", "b")
        first, second = Stream(world, TABLE).traffic()
        batch, wire = event([broken(first, without_keys), second]), Throttled()
        async with environment_of(world, app, Process("f", faults=wire)) as environment:
            wire.active = True
            with pytest.raises(TimeoutError):
                await process_batch(environment, batch, 50)
            wire.active = False
            assert await process_batch(environment, batch) == {"batchItemFailures": []}
        assert times(world) == {"b": 1}
        assert len(await parked_in(world, app)) == 1

    trial(main)


def test_a_person_sees_what_cannot_be_read_and_discards_it_and_a_redrive_never_runs_it():
    async def main():
        app = make_app()
        world = world_of(app)
        put(world, "a")
        (record,) = Stream(world, TABLE).traffic()
        async with environment_of(world, app) as environment:
            await process_batch(environment, event([broken(record, of_unknown_kind)]))
        async with world.clients() as aws:
            (report,) = await redrive(app, aws, rng=random.Random(1), clock=world.clock)
            assert (report.done, report.stuck) == (0, True)
            assert "look at it" in report.failure.detail
            (queue,) = await parked_queues(await open_store(app, aws))
            assert queue.handler == "(unreadable)"
            (report,) = await discard(app, aws, rng=random.Random(1), clock=world.clock)
            assert (report.done, report.empty) == (1, True)
        assert not own_items(world, TABLE, "parked")
        assert times(world) == {}

    trial(main)


def test_a_payload_that_a_mapping_gave_up_is_done_but_for_what_cannot_be_read():
    async def main():
        app = make_app()
        world = world_of(app)
        put(world, "a", "b")
        stream = Stream(world, TABLE)
        first, second = stream.traffic()
        batch = given_up(stream, [first, second])
        batch["payload"] = json.dumps(event([first, broken(second, without_keys)]))
        async with environment_of(world, app) as environment:
            await process_late(environment, batch)
        assert times(world) == {"a": 1}
        assert len(await parked_in(world, app)) == 1

    trial(main)


def test_a_mover_sets_aside_what_cannot_be_read():
    async def main():
        app = make_app()
        world = world_of(app)
        put(world, "a")
        await run_functions(world, app)
        put(world, "b", "c")
        wire = Breaking(without_keys, "b")
        async with world.clients(Process("mover", faults=wire)) as aws:
            await move_to_workers(app, aws, clock=world.clock)
        assert times(world) == {"a": 1, "c": 1}
        assert len(await parked_in(world, app)) == 1

    trial(main)


def bad_base64(record):
    record["dynamodb"]["NewImage"]["amount"] = {"B": "?"}


def unknown_type(record):
    record["dynamodb"]["NewImage"]["amount"] = {"Q": "1"}


def no_number(record):
    record["dynamodb"]["NewImage"]["amount"] = {"N": "one"}


def no_item(record):
    record["dynamodb"]["NewImage"] = ["no", "item"]


def keys_only(record):
    record["dynamodb"]["StreamViewType"] = "KEYS_ONLY"
    record["dynamodb"].pop("NewImage", None)
    record["dynamodb"].pop("OldImage", None)


@pytest.mark.parametrize("flaw", [bad_base64, unknown_type, no_number, no_item, keys_only])
@pytest.mark.parametrize("host", ["worker", "function"])
def test_an_image_that_cannot_be_read_is_parked_in_its_items_own_queue(host, flaw):
    async def main():
        app = make_app()
        world = world_of(app)
        put(world, "a", "b")
        if host == "worker":
            process = Process("worker", faults=Breaking(flaw, "a"))
            assert await world.run_worker(app, process=process)
        else:
            first, second = Stream(world, TABLE).traffic()
            batch = event([broken(first, flaw), second])
            async with environment_of(world, app) as environment:
                assert await process_batch(environment, batch) == {"batchItemFailures": []}
        assert times(world) == {"b": 1}
        (parked,) = await parked_in(world, app)
        assert (parked.handler, parked.entity) == ("count", "Order")

    trial(main)
