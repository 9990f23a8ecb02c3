"""The Lambda host and its time: what hangs is cut off, what kills is found and parked."""

from types import SimpleNamespace

import anyio
import pytest

from streamkit import App, Entity, Inserted, Modified, Policy, Send, Set
from streamkit.aws_lambda.attempts import AttemptCounts
from streamkit.aws_lambda.host import process_batch
from streamkit.aws_lambda.maintenance import maintain
from streamkit.core.parked.queues import list_parked, parked_queues
from streamkit.core.planning import Planner
from streamkit.testing.chance import repeatable
from streamkit.testing.loop import run_virtually
from streamkit.testing.world import Process
from tests.simulation.lambdas import (
    Deadly,
    Stream,
    environment_of,
    event,
    key_of,
    left_of,
    number_of,
    own_items,
    world_of,
)
from tests.simulation.memory import Memory

TABLE = "Shop"


class Order(Entity, pk="ORDER#{order}", sk="ORDER#{order}"):
    order: str
    amount: int = 0


class Log(Entity, pk="LOG#{order}", sk="LOG#{order}"):
    order: str
    amount: int = 0


def make_app(does, **options):
    """Logs each order, after `does(order)`."""
    app = App("shop", table=TABLE, entities=[Log])

    @app.on(**options)
    async def log(change: Inserted[Order] | Modified[Order]) -> Set[Log]:
        await does(change.new)
        return Set(Log.key(order=change.new.order), amount=change.new.amount)

    return app


def put(world, order, amount=0):
    key = {"S": f"ORDER#{order}"}
    item = {"PK": key, "SK": key, "order": {"S": order}, "amount": {"N": str(amount)}}
    world.engine.call("dynamodb", "PutItem", {"TableName": TABLE, "Item": item})


def logged(world):
    logs = (item for item in world.items(TABLE) if item["PK"]["S"].startswith("LOG#"))
    return {item["order"]["S"]: int(item["amount"]["N"]) for item in logs}


def simulated(main):
    with repeatable(1):
        return run_virtually(main)


async def hang_on_bad(order):
    if order.order == "bad":
        await anyio.sleep(10_000)


def test_a_handler_that_hangs_is_cut_off_and_what_was_done_before_is_committed():
    async def main():
        app = make_app(hang_on_bad, timeout=1_000)
        world = world_of(app)
        for order in ("a", "b", "bad", "c"):
            put(world, order)
        records = Stream(world, TABLE).traffic()
        began = anyio.current_time()
        async with environment_of(world, app) as environment:
            response = await process_batch(environment, event(records), 8)
        assert anyio.current_time() - began < 8
        (failure,) = response["batchItemFailures"]
        assert failure == {"itemIdentifier": number_of(records[2])}
        assert key_of(records[2]) == "ORDER#bad"
        assert {"a", "b"} <= logged(world).keys()
        assert not {"bad"} & logged(world).keys()

    simulated(main)


def test_a_change_that_always_hangs_is_parked_and_heals_and_the_others_flow():
    """Its function lives and cuts it off: the handler has failed, and no function was killed."""

    async def main():
        hangs = [True]

        async def hang(order):
            if hangs:
                await hang_on_bad(order)

        app = make_app(hang, timeout=1_000)
        world = world_of(app)
        for order in ("a", "bad", "c"):
            put(world, order)
        left, invocations = Stream(world, TABLE).traffic(), 0
        async with environment_of(world, app) as environment:
            while left and invocations < 30:
                invocations += 1
                response = await process_batch(environment, event(left), 8)
                left = left_of(response, left)
                await anyio.sleep(5)
            (parked,) = await list_parked(environment.store)
            (queue,) = await parked_queues(environment.store)
            assert logged(world).keys() == {"a", "c"}
            assert (parked.error, parked.attempts, queue.stuck) == ("TimeoutError", 1, False)
            hangs.clear()
            await anyio.sleep(10)
            assert (await maintain(environment))["done"] == 1
        assert logged(world).keys() == {"a", "bad", "c"}
        # Six of 11 s each while it is young, three that are counted, one alone, and the last one.
        assert invocations == 11

    simulated(main)


def test_an_outage_in_which_all_handlers_hang_opens_the_breaker_and_parks_nothing():
    async def main():
        hangs = [True]

        async def hang(order):
            if hangs:
                await anyio.sleep(1_000)

        app = make_app(hang)
        world = world_of(app)
        for order in range(30):
            put(world, f"o{order}")
        records = Stream(world, TABLE).traffic()
        await anyio.sleep(60)
        async with environment_of(world, app) as environment:
            for _ in range(20):
                response = await process_batch(environment, event(records), 5)
                assert left_of(response, records) == records
                await anyio.sleep(60)
            assert await list_parked(environment.store) == []
            hangs.clear()
            assert await process_batch(environment, event(records)) == {"batchItemFailures": []}
        assert len(logged(world)) == 30

    simulated(main)


def test_what_hangs_holds_up_no_send_of_another_handler_for_the_same_change():
    async def main():
        app, box = make_app(hang_on_bad, timeout=1_000), Memory("box")
        app.sink(box)

        @app.on
        def tell(change: Inserted[Order]) -> Send:
            return Send(box, {"order": change.new.order})

        world = world_of(app)
        for order in ("bad", "c"):
            put(world, order)
        left = Stream(world, TABLE).traffic()
        async with environment_of(world, app) as environment:
            for _ in range(20):
                left = left_of(await process_batch(environment, event(left), 8), left)
                await anyio.sleep(10)
            assert left == []
            await maintain(environment)
        assert sorted(sent.body["order"] for sent in box.got) == ["bad", "c"]

    simulated(main)


def test_a_change_that_kills_its_function_is_parked_unrun_and_later_ones_of_its_item_wait():
    async def main():
        async def die_on_bad(order):
            if order.order == "bad":
                await function.kill()

        app = make_app(die_on_bad)
        world = world_of(app)
        function = Deadly(world, app)
        for order in ("a", "bad", "c", "bad"):
            put(world, order, len(order) + len(logged(world)))
        put(world, "bad", 7)
        left, invocations = Stream(world, TABLE).traffic(), 0
        while left and invocations < 30:
            invocations += 1
            left = left_of(await function.invoke(left), left)
            await anyio.sleep(20)
        async with environment_of(world, app) as environment:
            first, *queued = await list_parked(environment.store)
        assert logged(world).keys() == {"a", "c"}
        assert (first.error, len(queued)) == ("FunctionKilled", 1)
        assert [parked.error for parked in queued] == [None]
        assert function.deaths == invocations - 1 == 8

    simulated(main)


def test_attempts_are_counted_only_for_records_that_may_have_come_before():
    async def nothing(order):
        pass

    async def main():
        app = make_app(nothing)
        world = world_of(app)
        stream = Stream(world, TABLE)
        async with environment_of(world, app) as environment:
            for order in range(30):
                put(world, f"o{order}")
            young = event(stream.traffic())
            await anyio.sleep(50)
            assert await process_batch(environment, young) == {"batchItemFailures": []}
            assert own_items(world, TABLE, "trial") == []
            put(world, "later")
            old = event(stream.traffic())
            await anyio.sleep(70)
            await process_batch(environment, old)
            assert len(own_items(world, TABLE, "trial")) == 1
            before = len(world.calls)
            await process_batch(environment, old)
            assert not any(call.units["write"] for call in world.calls[before:]), "done already"

    simulated(main)


def test_a_handler_that_blocks_waits_for_ever_and_is_never_parked_unrun():
    async def fail_on_bad(order):
        if order.order == "bad":
            await anyio.sleep(20)
            raise OSError("down")

    async def main():
        app = make_app(fail_on_bad, on_failure="block", timeout=1_000)
        world = world_of(app)
        for order in ("a", "bad"):
            put(world, order)
        records = Stream(world, TABLE).traffic()
        async with environment_of(world, app) as environment:
            for _ in range(12):
                await anyio.sleep(30)
                response = await process_batch(environment, event(records), 10)
                assert left_of(response, records) == records[1:]
            assert await list_parked(environment.store) == []
            assert all(item["_sk_tries"]["N"] < "3" for item in own_items(world, TABLE, "trial"))

    simulated(main)


@pytest.mark.parametrize("start", ["trim_horizon", "latest"])
def test_a_consumer_that_starts_late_leaves_out_what_was_there_before(start):
    async def main():
        app = App("shop", table=TABLE, entities=[Log], start=start)

        @app.on
        def log(change: Inserted[Order]) -> Set[Log]:
            return Set(Log.key(order=change.new.order), amount=1)

        world = world_of(app)
        stream = Stream(world, TABLE)
        put(world, "before")
        await anyio.sleep(5)
        async with environment_of(world, app) as environment:
            await process_batch(environment, event(stream.traffic()))
            await anyio.sleep(5)
            put(world, "after")
            await process_batch(environment, event(stream.traffic()))
        all_of_them = {"before", "after"} if start == "trim_horizon" else {"after"}
        assert logged(world).keys() == all_of_them

    simulated(main)


def test_a_send_that_hangs_is_cut_off_at_the_deadline_and_asks_for_no_more_plans(monkeypatch):
    async def main():
        app, mute = App("shop", table=TABLE, entities=[Log]), Memory("mute")
        mute.trouble = lambda _: 50.0
        app.sink(mute)

        @app.on(timeout=1_000, on_failure="block")
        def tell(change: Inserted[Order]) -> Send:
            return Send(mute, {"order": change.new.order})

        world = world_of(app)
        put(world, "a")
        records = Stream(world, TABLE).traffic()
        plans, plan = [], Planner.plan

        def counted(*args, **kwargs):
            plans.append(args)
            assert len(plans) < 20, "plans without end, at a standing clock"
            return plan(*args, **kwargs)

        monkeypatch.setattr(Planner, "plan", counted)
        async with environment_of(world, app) as environment:
            began = anyio.current_time()
            response = await process_batch(environment, event(records), 8)
            assert anyio.current_time() - began < 8
            assert left_of(response, records) == records

    simulated(main)


class Silent:
    """Lets transactions wait for so long."""

    def __init__(self, seconds):
        self.seconds = seconds

    async def intercept(self, call, apply):
        if call.operation == "TransactWriteItems":
            await anyio.sleep(self.seconds)
        return apply()


@pytest.mark.parametrize("seconds", [1, 3, 15])
def test_a_table_that_does_not_answer_leaves_everything_for_another_time(seconds):
    async def nothing(order):
        pass

    async def main():
        app = make_app(nothing)
        world = world_of(app)
        put(world, "a")
        records = Stream(world, TABLE).traffic()
        process = Process("function")
        async with environment_of(world, app, process) as environment:
            process.faults = Silent(1_000)
            began = anyio.current_time()
            response = await process_batch(environment, event(records), seconds)
            assert anyio.current_time() - began < seconds + 0.5
            assert left_of(response, records) == records
            process.faults = None
            assert await process_batch(environment, event(records)) == {"batchItemFailures": []}
            assert logged(world) == {"a": 0}

    simulated(main)


def test_a_throttled_table_never_lets_a_sound_change_be_parked_as_deadly():
    async def nothing(order):
        pass

    async def main():
        app = make_app(nothing, timeout=5)
        world = world_of(app)
        put(world, "a")
        records = Stream(world, TABLE).traffic()
        process = Process("function")
        async with environment_of(world, app, process) as environment:
            process.faults = Silent(1_000)
            for _ in range(12):
                await anyio.sleep(30)
                assert left_of(await process_batch(environment, event(records), 5), records)
            process.faults = None
            assert await process_batch(environment, event(records)) == {"batchItemFailures": []}
            assert await list_parked(environment.store) == []
        assert logged(world) == {"a": 0}

    simulated(main)


def test_a_batch_whose_handlers_take_longer_than_the_function_is_done_bit_by_bit():
    async def slow(order):
        await anyio.sleep(3)

    async def main():
        app = make_app(slow, timeout=60)
        world = world_of(app)
        for order in range(300):
            put(world, f"o{order}")
        left, sizes = Stream(world, TABLE).traffic(), []
        async with environment_of(world, app) as environment:
            while left:
                left = left_of(await process_batch(environment, event(left), 8), left)
                sizes.append(len(left))
            assert await list_parked(environment.store) == []
        assert len(sizes) <= 6
        assert sizes == sorted(set(sizes), reverse=True)
        assert len(logged(world)) == 300

    simulated(main)


def test_policies_of_failures_hold_for_what_a_batch_parks():
    async def fail(order):
        raise OSError("down")

    async def main():
        app = App("shop", table=TABLE, entities=[Log], policy=Policy(attempts=1, payload="keys"))
        runs = []

        @app.on
        async def log(change: Inserted[Order]) -> Set[Log]:
            runs.append(change.new.amount)
            if len(runs) == 1:
                raise OSError("down")
            return Set(Log.key(order=change.new.order), amount=change.new.amount)

        world = world_of(app, shards=3)
        put(world, "a", 5)
        records = Stream(world, TABLE).traffic()
        async with environment_of(world, app) as environment:
            await process_batch(environment, event(records))
            (parked,) = await list_parked(environment.store)
            assert parked.payload == "keys"

            await anyio.sleep(10)
            assert (await maintain(environment))["done"] == 1
        assert logged(world) == {"a": 5}

    simulated(main)


def test_runs_of_a_change_alone_that_ended_are_none_that_killed_their_functions():
    async def main():
        app = make_app(hang_on_bad)
        world = world_of(app)
        async with environment_of(world, app) as environment:
            counts = AttemptCounts(environment.store, environment.clock, environment.incarnation)
            record = SimpleNamespace(position="1".zfill(40))
            assert [await counts.begin_alone(record) for _ in range(2)] == [0, 1]
            assert await counts.begin(record), "functions have died here"
            await counts.end(record)
            assert not await counts.begin(record)
            assert await counts.begin_alone(record) == 0

    simulated(main)
