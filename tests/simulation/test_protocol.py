"""The protocol's promises, one by one: what the log of calls must show, whatever the table says.

Found by mutants that only a long run would have caught, or none. The engine's log of calls tells
which items were written together; the table tells what came of it.
"""

from itertools import pairwise

import anyio
import pytest

from streamkit import Add, App, Entity, Inserted, Modified, Put, Set, Table, absent
from streamkit.errors import RetentionLost
from streamkit.settings import Settings
from streamkit.testing.every import chosen
from streamkit.testing.loop import run_virtually
from streamkit.testing.world import CrashPoint, Process, World
from tests.simulation.shop import TABLE, Traffic, create_table, expected, found
from tests.simulation.shop import make_app as shop_app

HOUR = 3600
SLOW = Settings(heartbeat=3000, lease=9000, poll_ceiling=60, list_interval=3000)


class Thing(Entity, pk="THING#{name}", sk="THING#{name}"):
    name: str
    n: int = 0


class Note(Entity, pk="NOTE#{name}", sk="NOTE#{name}"):
    name: str
    n: int = 0


def make_app():
    return App("protocol", table=TABLE, entities=[Note])


def make_world(seed=0, *, shards=1, **settings):
    world = World.create(seed, shards=shards)
    world.control.configure(**settings)
    create_table(world)
    return world


def put(world, name, n=0):
    key = {"PK": {"S": f"THING#{name}"}, "SK": {"S": f"THING#{name}"}}
    item = {**key, "name": {"S": name}, "n": {"N": str(n)}}
    assert world.engine.call("dynamodb", "PutItem", {"TableName": TABLE, "Item": item})[0] == 200


def notes(world):
    items = {item["PK"]["S"]: item for item in world.items(TABLE)}
    return {
        pk.removeprefix("NOTE#"): int(item.get("n", {"N": "0"})["N"])
        for pk, item in items.items()
        if pk.startswith("NOTE#")
    }


def control_items(world, kind):
    return [item for item in world.items(TABLE) if item.get("_sk_kind") == {"S": kind}]


def shard_cursors(world):
    return [item for item in control_items(world, "cursor") if item["_sk_name"]["S"] != "lister"]


def stop_after(seconds):
    async def stop(worker):
        await anyio.sleep(seconds)
        worker.stop()

    return stop


# -- cursors ---------------------------------------------------------------------------------------


def transactions(world):
    """The actions of every accepted transaction, each with what it does: (verb, action) pairs."""
    return [
        [next(iter(entry.items())) for entry in call.payload["TransactItems"]]
        for call in world.calls
        if call.operation == "TransactWriteItems" and call.status == 200
    ]


def control_name(action):
    """Return kind and name of a control item that an action writes, or None."""
    pk = (action.get("Key") or action["Item"])["PK"]["S"]
    return tuple((*pk.split("#"), "")[3:5]) if pk.startswith("_sk#") else None


@pytest.mark.parametrize("hidden", [0.0, 8.0])
def test_cursors_are_created_in_a_commit_of_their_parent_or_of_the_lister(hidden):
    async def scenario():
        world = make_world(3, shards=2, children_hidden=hidden)
        traffic = Traffic(world, 3)
        traffic.write(10)
        world.control.split(TABLE, world.control.shards(TABLE)[0]["id"])
        world.control.roll(TABLE, world.control.shards(TABLE)[1]["id"])
        traffic.write(10)
        assert await world.run_worker(shop_app())
        assert found(world) == expected(traffic)
        created, finished = {}, {}
        for actions in transactions(world):
            first_verb, first = actions[0]
            children = set()
            for verb, action in actions[1:]:
                kind, name = control_name(action) or ("", "")
                if kind == "cursor" and verb == "Put":
                    children.add(name)
                    created[name] = control_name(first)
            if children:
                assert first_verb == "Update"
                assert "_sk_epoch" in first["ExpressionAttributeNames"].values()
                assert control_name(first)[0] == "cursor"
            if "_sk_state" in first.get("ExpressionAttributeNames", {}).values():
                finished[control_name(first)[1]] = children
        parents = {s["id"]: s["parent"] for s in world.control.shards(TABLE)}
        for name, (_, creator) in created.items():
            by_parent = creator == parents[name]
            assert by_parent or creator == "lister"
        if not hidden:  # each end had its children's cursors with it
            for parent, children in finished.items():
                assert children == {name for name in parents if parents[name] == parent}
        assert created.keys() == parents.keys()

    run_virtually(scenario)


def test_a_child_waits_for_a_parent_that_is_readable_but_not_listed():
    async def scenario():
        app, order = make_app(), []

        @app.on
        async def sends(change: Inserted[Thing] | Modified[Thing]) -> None:
            order.append(change.new.n)

        async def look(worker):
            await anyio.sleep(60)
            assert order == []
            world.control.hide(TABLE, parent, hidden=False)
            await anyio.sleep(60)
            worker.stop()

        world = make_world(roll_after=None)
        parent = world.control.shards(TABLE)[0]["id"]
        put(world, "x", 1)
        world.control.roll(TABLE)
        put(world, "x", 2)
        world.control.hide(TABLE, parent)
        await world.run_worker(app, until_idle=False, started=look)
        assert order == [1, 2]

    run_virtually(scenario)


def test_no_page_of_own_records_moves_a_position():
    async def scenario():
        world = make_world(4, roll_after=None)
        traffic = Traffic(world, 4)
        traffic.write(5)

        async def look(worker):
            await anyio.sleep(90)
            before = len(transactions(world))
            await anyio.sleep(0.9 * HOUR)
            assert len(transactions(world)) == before
            worker.stop()

        settings = Settings(heartbeat=10, lease=30, poll_ceiling=10)
        await world.run_worker(shop_app(), settings=settings, until_idle=False, started=look)
        assert found(world) == expected(traffic)

    run_virtually(scenario)


def test_a_stopped_worker_does_not_finish_a_shard_whose_last_change_is_blocked():
    async def scenario():
        app, down = make_app(), [True]

        @app.on(on_failure="block")
        def sends(change: Inserted[Thing]) -> Put[Note]:
            if down:
                raise ValueError("its downstream is down")
            return Put(Note(name=change.new.name))

        world = make_world(roll_after=None)
        put(world, "x")
        world.control.roll(TABLE)
        await world.run_worker(app, until_idle=False, started=stop_after(5))
        down.clear()
        await world.run_worker(app)
        assert notes(world) == {"x": 0}

    run_virtually(scenario)


# -- losses ----------------------------------------------------------------------------------------


def without_own_records(app, world):
    """Keep control items elsewhere, so that the stream holds only the application's records."""
    app.control_table = "Control"
    body = {
        "TableName": "Control",
        "KeySchema": [{"AttributeName": "name", "KeyType": "HASH"}],
        "AttributeDefinitions": [{"AttributeName": "name", "AttributeType": "S"}],
        "BillingMode": "PAY_PER_REQUEST",
    }
    assert world.engine.call("dynamodb", "CreateTable", body)[0] == 200


def test_a_change_trimmed_while_no_worker_ran_is_reported():
    async def scenario():
        app = make_app()

        @app.on
        def counts(change: Inserted[Thing]) -> Put[Note]:
            return Put(Note(name=change.new.name))

        world = make_world(roll_after=None)
        without_own_records(app, world)
        put(world, "x")
        await world.run_worker(app)
        put(world, "lost")
        await anyio.sleep(30 * HOUR)
        put(world, "y")
        with pytest.raises(RetentionLost):
            await world.run_worker(app)

    run_virtually(scenario)


def test_a_change_that_was_read_and_never_committed_is_not_called_seen():
    async def scenario():
        app, blocked = make_app(), {"first", "second"}

        @app.on(on_failure="block")
        def sends(change: Inserted[Thing]) -> Put[Note]:
            if change.new.name in blocked:
                raise ValueError("its downstream is down")
            return Put(Note(name=change.new.name))

        async def look(worker):
            await anyio.sleep(2 * HOUR)
            blocked.discard("first")
            await anyio.sleep(HOUR / 2)
            assert notes(world) == {"first": 0}
            worker.stop()

        world = make_world(roll_after=None)
        without_own_records(app, world)
        put(world, "first")
        put(world, "second")
        await world.run_worker(app, settings=SLOW, until_idle=False, started=look)
        await anyio.sleep(22 * HOUR)
        world.control.trim(TABLE, world.clock.time() - 24 * HOUR)
        put(world, "third")
        blocked.clear()
        with pytest.raises(RetentionLost):
            await world.run_worker(app)
        assert notes(world) == {"first": 0}

    run_virtually(scenario)


# -- changes ---------------------------------------------------------------------------------------


def test_handlers_of_one_change_that_need_a_commit_each_take_effect_once_killed_at_any_call():
    def big(change):
        return [Add(Note.key(name=f"{n}"), n=1) for n in range(60)]

    async def scenario(crash):
        app = make_app()

        @app.on
        def one(change: Inserted[Thing]) -> list[Add[Note]]:
            return big(change)

        @app.on
        def two(change: Inserted[Thing]) -> list[Add[Note]]:
            return big(change) + [Add(Note.key(name=f"two-{n}"), n=1) for n in range(30)]

        world = make_world(roll_after=None)
        put(world, "x")
        process = Process("first", crash)
        lived = await world.run_worker(app, process=process)
        if not lived:
            assert await world.run_worker(app)
        counted = notes(world)
        assert len(counted) == 90
        assert {counted[str(n)] for n in range(60)} == {2}
        assert {counted[f"two-{n}"] for n in range(30)} == {1}
        return lived, process.calls

    _, calls = run_virtually(scenario, None)
    for call in chosen(range(calls), 6, seed=0):
        run_virtually(scenario, CrashPoint(call, "after"))


def test_outside_effects_of_one_item_keep_the_order_of_its_changes():
    async def scenario():
        app, sent = make_app(), []

        @app.on
        async def sends(change: Inserted[Thing] | Modified[Thing]) -> None:
            await anyio.sleep(1 / (1 + change.new.n))
            sent.append((change.new.name, change.new.n))

        world = make_world()
        for n in range(5):
            for name in "ab":
                put(world, name, n)
        await world.run_worker(app)
        for name in "ab":
            assert [n for other, n in sent if other == name] == list(range(5))
        assert any(left[0] != right[0] for left, right in pairwise(sent)), "queues run together"

    run_virtually(scenario)


def test_an_effect_omitted_before_a_read_went_stale_is_not_left_out_of_the_next_run():
    async def scenario():
        app, tries = make_app(), []

        @app.on
        async def copies(change: Inserted[Thing], table: Table) -> list[Put[Note] | Set[Note]]:
            source = await table.get(Note.key(name="source"))
            first = Put(Note(name="taken")).only_if(absent, otherwise="omit")
            copy = Set(Note.key(name="copy"), n=source.n)
            return [first, copy] if source.n == 1 else [copy]

        class Writer(Process):
            async def intercept(self, call, apply):
                if call.operation == "TransactWriteItems" and b"NOTE#copy" in call.payload:
                    tries.append(call)
                    if len(tries) == 2:
                        write_note("source", 2)
                return apply()

        def write_note(name, n):
            key = {"PK": {"S": f"NOTE#{name}"}, "SK": {"S": f"NOTE#{name}"}}
            item = {**key, "name": {"S": name}, "n": {"N": str(n)}}
            world.engine.call("dynamodb", "PutItem", {"TableName": TABLE, "Item": item})

        world = make_world()
        write_note("source", 1)
        write_note("taken", 9)
        put(world, "x")
        await world.run_worker(app, process=Writer("worker"))
        assert len(tries) == 3
        assert notes(world) == {"source": 2, "taken": 9, "copy": 2}

    run_virtually(scenario)


@pytest.mark.parametrize("hidden", [0.0, 8.0])
def test_a_held_queue_is_held_in_the_child_and_by_the_next_owner(hidden):
    async def scenario():
        app, runs = make_app(), []

        @app.on
        def fails_once(change: Modified[Thing]) -> Set[Note]:
            runs.append(change.new.n)
            if change.new.n == 1:
                raise ValueError("this one")
            return Set(Note.key(name=change.new.name), n=change.new.n)

        world = make_world(roll_after=None, children_hidden=hidden)
        put(world, "x")
        put(world, "x", 1)
        await world.run_worker(app)
        put(world, "x", 2)
        await world.run_worker(app)
        world.control.roll(TABLE)
        put(world, "x", 3)
        await world.run_worker(app)
        put(world, "y")
        put(world, "y", 3)
        await world.run_worker(app)
        assert notes(world) == {"y": 3}
        positions = sorted(item["_sk_position"]["S"] for item in control_items(world, "parked"))
        assert len(positions) == 3
        following = {
            item["_sk_position"]["S"]: item["_sk_next"]["S"]
            for item in control_items(world, "parked")
            if "_sk_next" in item
        }
        assert following == dict(pairwise(positions))

    run_virtually(scenario)


# -- several workers -------------------------------------------------------------------------------


def test_a_leader_that_was_replaced_stops_reading_a_quiet_table():
    async def scenario():
        world, reads, workers = make_world(roll_after=None), [], []
        thawed = anyio.Event()

        class Frozen(Process):
            async def intercept(self, call, apply):
                if world.clock.monotonic() - began > 10:
                    await thawed.wait()
                if call.operation == "GetRecords":
                    reads.append(world.clock.monotonic())
                return apply()

        async def keep(worker):
            workers.append(worker)

        async def run(process):
            await world.run_worker(shop_app(), process=process, until_idle=False, started=keep)

        began = world.clock.monotonic()
        async with anyio.create_task_group() as group:
            group.start_soon(run, Frozen("old"))
            await anyio.sleep(12)
            group.start_soon(run, Process("new"))
            await anyio.sleep(20)
            thawed.set()
            await anyio.sleep(120)
            for worker in workers:
                worker.stop()
        assert max(reads) < began + 32 + 2 * Settings().list_interval

    run_virtually(scenario)


def test_a_worker_that_beats_keeps_its_shards_however_long_another_one_waits():
    async def scenario():
        world, workers = make_world(roll_after=None), []

        async def keep(worker):
            workers.append(worker)

        async def run():
            await world.run_worker(shop_app(), until_idle=False, started=keep)

        async with anyio.create_task_group() as group:
            group.start_soon(run)
            await anyio.sleep(3)
            group.start_soon(run)
            await anyio.sleep(90)
            epochs = {c["_sk_name"]["S"]: int(c["_sk_epoch"]["N"]) for c in shard_cursors(world)}
            owners = {c["_sk_owner"]["S"] for c in control_items(world, "cursor")}
            for worker in workers:
                worker.stop()
        assert set(epochs.values()) == {1}
        assert owners == {workers[0].name}

    run_virtually(scenario)
