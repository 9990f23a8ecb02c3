"""Whoever wants to break the engine: odd mixtures of refusals, races, zombies and late calls.

Each test has a small app of its own, and looks at the table or at the engine's log of calls.
"""

import random
import re
from collections import Counter
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import count as numbers
from typing import Annotated, Any

import anyio
import pytest

from streamkit import (
    Add,
    Aggregate,
    App,
    Attr,
    Avg,
    Count,
    Entity,
    Inserted,
    Key,
    Modified,
    PoisonChange,
    Put,
    Set,
    Table,
    absent,
    crossed,
    present,
)
from streamkit.errors import RetentionLost
from streamkit.local.errors import ApiError
from streamkit.local.transport import Response
from streamkit.operate.redrive import redrive
from streamkit.progress.control import Cursor, child_of
from streamkit.progress.lease import LeaseWatch
from streamkit.settings import Settings
from streamkit.testing.faults import Faults, inflict
from streamkit.testing.loop import EPOCH, run_virtually
from streamkit.testing.world import CrashPoint, Process, World
from tests.seeds import seeds
from tests.simulation.shop import TABLE, Traffic, create_table, expected, found
from tests.simulation.shop import make_app as shop_app

SELDOM = Settings(
    heartbeat=3000, lease=9000, poll_ceiling=600, list_interval=3000, look_interval=600
)
"""For days: each call costs real time."""


class Thing(Entity, pk="THING#{name}", sk="THING#{name}"):
    name: str
    n: int = 0


class Note(Entity, pk="NOTE#{name}", sk="NOTE#{name}"):
    name: str
    n: Decimal = Decimal(0)
    text: str = ""


class Box(Entity, pk="BOX#{name}", sk="BOX#{name}"):
    name: str
    size: int | str = 0


class Document(Entity, pk="DOC#{name}", sk="{number}"):
    name: str
    number: int
    title: str


class Line(Entity, pk="LINE#{name}", sk="{number}"):
    name: str
    number: int


class Ratings(Aggregate[Thing], pk="RATINGS#{of}", sk="RATINGS#{of}"):
    of: str
    ratings: Annotated[int, Count()] = 0
    rating: Annotated[Decimal | None, Avg("n")] = None

    @classmethod
    def group(cls, thing: Thing) -> Key["Ratings"]:
        return cls.key(of="others")


def small(change: Inserted[Box]) -> Put[Note]:
    return Put(Note(name=change.new.name))


def create_numbers(world):
    request = {
        "TableName": "Numbers",
        "KeySchema": [
            {"AttributeName": "PK", "KeyType": "HASH"},
            {"AttributeName": "SK", "KeyType": "RANGE"},
        ],
        "AttributeDefinitions": [
            {"AttributeName": "PK", "AttributeType": "S"},
            {"AttributeName": "SK", "AttributeType": "N"},
        ],
        "BillingMode": "PAY_PER_REQUEST",
        "StreamSpecification": {"StreamEnabled": True, "StreamViewType": "NEW_AND_OLD_IMAGES"},
    }
    assert world.engine.call("dynamodb", "CreateTable", request)[0] == 200


def make_app():
    return App("adversary", table=TABLE, entities=[Note])


def make_world(seed=0, *, shards=1, **settings):
    world = World.create(seed, shards=shards)
    world.control.configure(**settings)
    create_table(world)
    return world


def key(kind, name):
    return {"PK": {"S": f"{kind}#{name}"}, "SK": {"S": f"{kind}#{name}"}}


def put(world, name, kind="THING", **numbers):
    attributes = {name: {"N": str(number)} for name, number in numbers.items()}
    item = {**key(kind, name), "name": {"S": name}, **attributes}
    status, _ = world.engine.call("dynamodb", "PutItem", {"TableName": TABLE, "Item": item})
    assert status == 200


def delete(world, name, kind="NOTE"):
    request = {"TableName": TABLE, "Key": key(kind, name)}
    assert world.engine.call("dynamodb", "DeleteItem", request)[0] == 200


def notes(world):
    found = {
        item["PK"]["S"].removeprefix("NOTE#"): item
        for item in world.items(TABLE)
        if item["PK"]["S"].startswith("NOTE#")
    }
    return {name: int(item.get("n", {"N": "0"})["N"]) for name, item in found.items()}


def control_items(world, kind):
    return [item for item in world.items(TABLE) if item.get("_sk_kind") == {"S": kind}]


def commits(world):
    """Every accepted transaction that moved a cursor: its calls in the engine's order."""
    return [
        call
        for call in world.calls
        if call.operation == "TransactWriteItems" and call.status == 200
    ]


# -- refusals --------------------------------------------------------------------------------------


def test_two_refused_effects_of_one_result_park_it_once():
    async def scenario():
        app = make_app()

        @app.on
        def both(change: Inserted[Thing]) -> list[Put]:
            return [Put(Note(name=n)).only_if(absent) for n in "ab"]

        world = make_world()
        put(world, "a", "NOTE")
        put(world, "b", "NOTE")
        put(world, "x")
        await world.run_worker(app)
        assert len(control_items(world, "parked")) == 1

    run_virtually(scenario)


def test_two_refused_effects_of_one_result_skip_it():
    async def scenario():
        app = make_app()

        @app.on
        def both(change: Inserted[Thing]) -> list[Put]:
            return [Put(Note(name=n)).only_if(absent, otherwise="skip") for n in "abc"]

        world = make_world()
        put(world, "a", "NOTE", n=5)
        put(world, "b", "NOTE", n=5)
        put(world, "x")
        await world.run_worker(app)
        assert notes(world) == {"a": 5, "b": 5}
        assert not control_items(world, "parked")

    run_virtually(scenario)


def test_an_omitted_effect_of_one_run_is_not_left_out_of_the_next():
    async def scenario():
        app, reads = make_app(), []
        world = make_world()

        @app.on
        async def writes(change: Inserted[Thing], table: Table) -> list[Put | Set]:
            source = await table.get(Note.key(name="source"))
            reads.append(source.n)
            if len(reads) == 1:
                put(world, "source", "NOTE", n=2)  # so that what was read is stale
                first = Put(Note(name="taken")).only_if(absent, otherwise="omit")
                return [first, Set(Note.key(name="copy"), n=source.n)]
            return [Set(Note.key(name="copy"), n=source.n)]

        put(world, "source", "NOTE", n=1)
        put(world, "taken", "NOTE", n=9)
        put(world, "x")
        await world.run_worker(app)
        assert notes(world) == {"source": 2, "taken": 9, "copy": 2}

    run_virtually(scenario)


def test_a_reader_of_an_omitted_effect_runs_again():
    async def scenario():
        app = make_app()

        @app.on
        def writes(change: Inserted[Thing]) -> list[Add | Set]:
            note = Note.key(name="sum")
            add = Add(note, n=1).only_if(Attr("open").exists(), otherwise="omit")
            return [add, Set(note, text="seen")]

        @app.on
        async def copies(change: Modified[Thing], table: Table) -> Set[Note]:
            found = await table.get(Note.key(name="sum"), check=False)
            return Set(Note.key(name="copy"), n=found.n)

        world = make_world()
        put(world, "sum", "NOTE", n=10)
        put(world, "x")
        put(world, "x", n=1)
        await world.run_worker(app)
        assert notes(world) == {"sum": 10, "copy": 10}

    run_virtually(scenario)


def test_a_stale_read_does_not_drop_an_effect_whose_condition_holds():
    async def scenario():
        app, runs = make_app(), []
        world = make_world()

        @app.on
        def marks(change: Inserted[Thing]) -> Set:
            return Set(Note.key(name="shared"), text="marked").only_if(present, otherwise="skip")

        @app.on
        async def copies(change: Modified[Thing], table: Table) -> Set[Note]:
            found = await table.get(Note.key(name="shared"))
            runs.append(found.n)
            if len(runs) == 1:
                put(world, "shared", "NOTE", n=2)
            return Set(Note.key(name="copy"), n=found.n)

        put(world, "shared", "NOTE", n=1)
        put(world, "x")
        put(world, "x", n=1)
        await world.run_worker(app)
        assert notes(world) == {"shared": 2, "copy": 2}
        (shared,) = [i for i in world.items(TABLE) if i["PK"] == {"S": "NOTE#shared"}]
        assert shared["text"] == {"S": "marked"}

    run_virtually(scenario)


def test_contention_follows_the_handlers_policy():
    async def scenario():
        app, runs = make_app(), []
        world = make_world()

        @app.on(on_failure="block")
        async def copies(change: Inserted[Thing], table: Table) -> Set[Note]:
            found = await table.get(Note.key(name="source"))
            runs.append(found.n)
            if len(runs) < 12:
                put(world, "source", "NOTE", n=len(runs) + 1)
            return Set(Note.key(name="copy"), n=found.n)

        put(world, "source", "NOTE", n=1)
        put(world, "x")
        await world.run_worker(app)
        assert notes(world) == {"source": 12, "copy": 12}
        assert not control_items(world, "parked")

    run_virtually(scenario)


def test_a_pure_handler_that_blocks_holds_up_its_shard():
    async def scenario():
        app, runs = make_app(), []

        @app.on(on_failure="block")
        def fails(change: Inserted[Thing]) -> Put[Note]:
            runs.append(change)
            if len(runs) < 8:
                raise ValueError("not yet")
            return Put(Note(name="done"))

        world = make_world()
        put(world, "x")
        await world.run_worker(app)
        assert notes(world) == {"done": 0}
        assert not control_items(world, "parked")

    run_virtually(scenario)


def test_a_condition_that_cannot_be_written_parks_its_change_alone():
    async def scenario():
        app = make_app()

        @app.on
        def writes(change: Inserted[Thing]) -> Put[Note]:
            note = Put(Note(name=change.new.name))
            return note.only_if(Attr("n") == 3) if change.new.name == "bad" else note

        world = make_world()
        for name in ("a", "bad", "b"):
            put(world, name)
        await world.run_worker(app)
        assert notes(world) == {"a": 0, "b": 0}
        assert len(control_items(world, "parked")) == 1

    run_virtually(scenario)


def test_sums_that_do_not_fit_together_are_committed_one_by_one():
    async def scenario():
        app = make_app()

        @app.on
        def adds(change: Inserted[Thing]) -> Add[Note]:
            amount = Decimal("1e30") if change.new.name == "big" else Decimal("1e-30")
            return Add(Note.key(name="sum"), n=amount)

        world = make_world()
        for name in ("big", "small", "a"):
            put(world, name)
        await world.run_worker(app)
        (total,) = [i for i in world.items(TABLE) if i["PK"] == {"S": "NOTE#sum"}]
        assert total["n"] == {"N": "1" + "0" * 30}
        assert len(control_items(world, "parked")) == 2

    run_virtually(scenario)


def test_a_condition_that_cannot_be_evaluated_parks_its_change_alone():
    async def scenario():
        app = make_app()
        app.on(when=crossed("size", below=3))(small)
        world = make_world()
        for name, size in (("a", {"N": "1"}), ("bad", {"S": "large"}), ("b", {"N": "2"})):
            item = {**key("BOX", name), "name": {"S": name}, "size": size}
            world.engine.call("dynamodb", "PutItem", {"TableName": TABLE, "Item": item})
        await world.run_worker(app)
        assert notes(world) == {"a": 0, "b": 0}
        assert len(control_items(world, "parked")) == 1

    run_virtually(scenario)


# -- what handlers read ----------------------------------------------------------------------------


def test_a_query_that_saw_an_omitted_effect_runs_again():
    async def scenario():
        app = make_app()

        @app.on
        def marks(change: Inserted[Thing]) -> Set[Note]:
            mark = Set(Note.key(name="one"), text="marked")
            return mark.only_if(Attr("open").exists(), otherwise="omit")

        @app.on
        async def copies(change: Modified[Thing], table: Table) -> list[Set[Note]]:
            found = [note async for note in table.query(Note.query(name="one"))]
            return [Set(Note.key(name="copy"), text=note.text) for note in found]

        world = make_world()
        put(world, "one", "NOTE", n=1)
        put(world, "x")
        put(world, "x", n=1)
        await world.run_worker(app)
        (copy,) = [i for i in world.items(TABLE) if i["PK"] == {"S": "NOTE#copy"}]
        assert copy["text"] == {"S": ""}

    run_virtually(scenario)


def test_a_scan_sees_items_that_earlier_changes_are_about_to_create():
    async def scenario():
        app, seen = make_app(), []

        @app.on
        def notes_it(change: Inserted[Thing]) -> Put[Note]:
            return Put(Note(name=change.new.name))

        @app.on
        async def counts(change: Modified[Thing], table: Table) -> Set[Note]:
            seen.append([note.name async for note in table.scan(Note)])
            return Set(Note.key(name="count"), n=len(seen[-1]))

        world = make_world()
        put(world, "x")
        put(world, "x", n=1)
        await world.run_worker(app)
        assert notes(world) == {"x": 0, "count": 1}

    run_virtually(scenario)


def test_a_query_finds_pending_items_in_the_order_of_numeric_sort_keys():
    async def scenario():
        app, seen = App("adversary", table="Numbers", type_attribute="type", entities=[Line]), []

        @app.on
        def writes(change: Inserted[Document]) -> list[Put[Line]]:
            return [Put(Line(name="x", number=number)) for number in (10, 9, 100)]

        @app.on
        async def reads(change: Modified[Document], table: Table) -> None:
            query = Line.query(name="x").between(9, 50)
            seen.append([line.number async for line in table.query(query)])

        world = World.create(0, shards=1)
        create_numbers(world)
        for title in "ab":
            item = {"PK": {"S": "DOC#x"}, "SK": {"N": "1"}, "title": {"S": title}}
            item |= {"name": {"S": "x"}, "number": {"N": "1"}, "type": {"S": "Document"}}
            world.engine.call("dynamodb", "PutItem", {"TableName": "Numbers", "Item": item})
        await world.run_worker(app)
        assert seen[-1] == [9, 10]

    run_virtually(scenario)


def test_a_mean_that_changes_after_it_was_read_is_read_again():
    async def scenario():
        app, seen = make_app(), []
        app.aggregate(Ratings)
        world = make_world()

        def rate(total, count):
            item = {**key("RATINGS", "all"), "of": {"S": "all"}, "ratings": {"N": "9"}}
            item |= {"rating_sum": {"N": str(total)}, "rating_count": {"N": str(count)}}
            world.engine.call("dynamodb", "PutItem", {"TableName": TABLE, "Item": item})

        @app.on
        async def copies(change: Inserted[Thing], table: Table) -> Set[Note]:
            found = await table.get(Ratings.key(of="all"))
            seen.append(found.rating)
            if len(seen) == 1:
                rate(20, 4)
            return Set(Note.key(name="copy"), n=found.rating)

        rate(8, 4)
        put(world, "x")
        await world.run_worker(app)
        assert notes(world) == {"copy": 5}

    run_virtually(scenario)


def test_a_table_that_throttles_batch_reads_parks_nothing():
    async def scenario():
        app = make_app()

        @app.on(timeout=5)
        async def copies(change: Inserted[Thing], table: Table) -> Set[Note]:
            found = await table.batch_get([Note.key(name="a"), Note.key(name="b")])
            return Set(Note.key(name="copy"), n=len(found))

        class Throttled(Process):
            async def intercept(self, call, apply):
                late = world.clock.time() > EPOCH + 90
                if call.operation == "BatchGetItem" and b"NOTE#" in call.payload and not late:
                    error = ApiError("ProvisionedThroughputExceededException", "slow down")
                    return Response.of_error(error)
                return apply()

        world = make_world()
        put(world, "a", "NOTE")
        put(world, "x")
        await world.run_worker(app, process=Throttled("worker"))
        assert notes(world) == {"a": 0, "copy": 1}
        assert not control_items(world, "parked")

    run_virtually(scenario)


def test_what_many_changes_read_of_one_item_is_checked_once():
    async def scenario():
        app = make_app()

        @app.on
        async def copies(change: Inserted[Thing], table: Table) -> Add[Note]:
            await table.get(Note.key(name="rules"))
            return Add(Note.key(name="sum"), n=1)

        world = make_world()
        put(world, "rules", "NOTE")
        for number in range(300):
            put(world, str(number))
        await world.run_worker(app)
        assert notes(world) == {"rules": 0, "sum": 300}
        refused = [
            c for c in world.calls if c.operation == "TransactWriteItems" and c.status != 200
        ]
        assert not refused

    run_virtually(scenario)


def test_a_handler_that_waits_for_its_downstream_stops_no_other_shard():
    async def scenario():
        app, down = make_app(), anyio.Event()

        @app.on(on_failure="block")
        async def sends(change: Inserted[Thing]) -> Put[Note]:
            if change.new.name == "bad" and not down.is_set():
                raise ValueError("its downstream is down")
            return Put(Note(name=change.new.name))

        async def look(worker):
            await anyio.sleep(3)
            for number in range(12):
                put(world, str(number))
            await anyio.sleep(60)
            meanwhile.append(len(notes(world)))
            down.set()
            await anyio.sleep(60)
            worker.stop()

        world, meanwhile = make_world(shards=2), []
        put(world, "bad")
        settings = Settings(concurrency=1)
        await world.run_worker(app, settings=settings, until_idle=False, started=look)
        assert 0 < meanwhile[0] < 12
        assert len(notes(world)) == 13

    run_virtually(scenario)


# -- held queues ------------------------------------------------------------------------------------


def test_works_that_arrive_while_a_tail_is_read_queue_as_well():
    async def scenario():
        app = make_app()

        @app.on
        def fails(change: Modified[Thing]) -> Put[Note]:
            raise ValueError("never")

        class Slow(Process):
            async def intercept(self, call, apply):
                if call.operation == "GetItem" and b"#lane#" in call.payload and not slowed:
                    slowed.append(call)
                    put(world, "b", n=2)
                    await anyio.sleep(5)
                return apply()

        world, slowed = make_world(), []
        for name in "ab":
            put(world, name)
            put(world, name, n=1)
        await world.run_worker(app)
        put(world, "a", n=2)
        await world.run_worker(app, process=Slow("worker"))
        assert slowed
        assert len(control_items(world, "parked")) == 4
        assert len(control_items(world, "lane")) == 2

    run_virtually(scenario)


def test_children_inherit_only_holds_that_still_hold_something():
    async def scenario():
        app, broken = make_app(), [True]

        @app.on
        def fails(change: Inserted[Thing]) -> Put[Note]:
            if broken:
                raise ValueError("not yet")
            return Put(Note(name=change.new.name))

        world = make_world()
        put(world, "x")
        await world.run_worker(app)
        world.control.roll(TABLE)
        await world.run_worker(app)
        held = [item for item in control_items(world, "cursor") if "_sk_holds" in item]
        assert len(held) == 2
        broken.clear()
        async with world.clients() as aws:
            await redrive(app, aws)
        world.control.roll(TABLE)
        put(world, "x", n=1)
        await world.run_worker(app)
        newest = max(control_items(world, "cursor"), key=lambda item: item["_sk_name"]["S"])
        assert "_sk_holds" not in newest
        assert notes(world) == {"x": 0}

    run_virtually(scenario)


# -- late and ambiguous commits --------------------------------------------------------------------


@dataclass
class Later(Process):
    """Its first commit that matters is delivered late, when a second plan is about to be sent."""

    late: Any = None
    tries: int = 0
    refuse: Any = None
    allow: Any = None

    async def intercept(self, call, apply):
        if call.operation == "TransactWriteItems" and b"NOTE#" in call.payload:
            self.tries += 1
            if self.tries == 1:
                self.late = apply
                raise ConnectionResetError("the connection broke")
            if self.tries == 2:
                self.refuse()
            elif self.late is not None and b"THING#" not in call.payload:
                if b"ConditionCheck" in call.payload and b'"Update"' not in call.payload:
                    return apply()  # a probe
                await anyio.sleep(5)
                self.allow()
                late, self.late = self.late, None
                assert late().status == 200
        return apply()


def test_an_earlier_plan_that_wins_late_finishes_its_own_changes_and_no_other():
    async def scenario():
        app = make_app()

        @app.on
        def writes(change: Inserted[Thing]) -> Put[Note]:
            return Put(Note(name=change.new.name)).only_if(absent, otherwise="skip")

        @app.on
        async def copies(change: Modified[Thing], table: Table) -> Set[Note]:
            found = await table.get(Note.key(name=change.new.name))
            return Set(Note.key(name="copy"), n=found.n)

        world, process = make_world(), Later("worker")
        process.refuse = lambda: [put(world, "x", "NOTE", n=7), put(world, "y"), put(world, "z")]
        process.allow = lambda: delete(world, "x")
        put(world, "x")
        put(world, "x", n=1)
        await world.run_worker(app, process=process)
        assert process.late is None
        assert notes(world) == {"x": 0, "copy": 0, "y": 0, "z": 0}

    run_virtually(scenario)


@dataclass
class ParkedLate(Process):
    """Its first plan that parks is applied when a second one, which parks more, is on its way."""

    late: Any = None
    tries: int = 0
    more: Any = None

    async def intercept(self, call, apply):
        if call.operation == "TransactWriteItems" and b"#parked#" in call.payload:
            self.tries += 1
            if self.tries == 1:
                self.late = apply
                raise ConnectionResetError("the connection broke")
            if self.tries == 2:
                self.more()
                await anyio.sleep(5)  # what is written now is read and dispatched meanwhile
                return await inflict("conflict", call, apply, random.Random(1))
            if self.late is not None:
                late, self.late = self.late, None
                assert late().status == 200
        return apply()


def test_a_plan_that_parks_and_wins_late_holds_what_it_parks_and_not_what_a_later_plan_would():
    """The later one queues another change of the item, which would fall out of its queue."""
    broken, seen = {"x", "y"}, []

    async def scenario():
        app = make_app()

        @app.on
        def writes(change: Inserted[Thing] | Modified[Thing]) -> Set[Note]:
            if change.new.name in broken:
                raise PoisonChange("not yet")
            seen.append((change.new.name, change.new.n))
            return Set(Note.key(name=change.new.name), n=change.new.n)

        world, process = make_world(), ParkedLate("worker")
        process.more = lambda: [put(world, "x", n=1), put(world, "y"), put(world, "y", n=1)]
        put(world, "x")
        assert await world.run_worker(app, process=process)
        assert (process.late, process.tries) == (None, 4)
        put(world, "x", n=2)
        assert await world.run_worker(app)
        broken.clear()
        async with world.clients() as aws:
            reports = await redrive(app, aws)
        assert sorted(report.done for report in reports) == [2, 3]
        assert sorted(seen) == [("x", 0), ("x", 1), ("x", 2), ("y", 0), ("y", 1)]
        assert [n for name, n in seen if name == "x"] == [0, 1, 2]
        assert notes(world) == {"x": 2, "y": 1}
        assert not control_items(world, "parked")

    run_virtually(scenario)


def test_an_earlier_plan_that_wins_when_the_shard_is_finished_is_not_taken_for_the_end():
    async def scenario():
        app = make_app()

        @app.on
        def writes(change: Inserted[Thing]) -> Put[Note]:
            return Put(Note(name=change.new.name)).only_if(absent, otherwise="skip")

        class Last(Later):
            async def intercept(self, call, apply):
                if self.late is not None and b'"finished"' in call.payload:
                    self.allow()
                    late, self.late = self.late, None
                    assert late().status == 200
                return await super().intercept(call, apply)

        world, process = make_world(), Last("worker")
        process.refuse = lambda: put(world, "x", "NOTE", n=7)
        process.allow = lambda: delete(world, "x")
        put(world, "x")
        world.control.roll(TABLE)
        put(world, "y")
        await world.run_worker(app, process=process)
        assert process.late is None
        assert notes(world) == {"x": 0, "y": 0}
        takes = [new["epoch"] for what, _, _, new in lease_log(world) if "owner" in new]
        assert set(takes) == {"1"}  # no lease was lost over it

    run_virtually(scenario)


# -- the end: idle, finished, swept ----------------------------------------------------------------


def counting_app():
    app = make_app()

    @app.on
    def counts(change: Inserted[Thing]) -> Add[Note]:
        return Add(Note.key(name="count"), n=1)

    return app


def test_until_idle_waits_for_children_that_are_listed_late():
    async def scenario():
        world = make_world(shards=2, children_hidden=20.0)
        app = counting_app()
        await world.run_worker(app)
        world.control.roll(TABLE, shard_of(world, "x"))
        put(world, "x")
        await world.run_worker(app)
        assert notes(world) == {"count": 2}  # one is the probe

    run_virtually(scenario)


def shard_of(world, name):
    """Find the shard that a thing's records go to."""
    before = {s["id"]: s["last"] for s in world.control.shards(TABLE)}
    put(world, name, probe=1)
    delete(world, name, "THING")
    after = {s["id"]: s["last"] for s in world.control.shards(TABLE)}
    return next(shard for shard in after if after[shard] > before[shard])


def test_until_idle_waits_for_a_shard_that_is_slow_to_be_taken():
    async def scenario():
        class Slow(Process):
            async def intercept(self, call, apply):
                take = call.operation == "UpdateItem" and b"#cursor#" + last in call.payload
                if take and not slowed:
                    slowed.append(call)
                    await anyio.sleep(30)
                return apply()

        world, app, slowed = make_world(shards=3), counting_app(), []
        await world.run_worker(app)
        last = max(shard["id"] for shard in world.control.shards(TABLE)).encode()
        for number in range(10):
            put(world, str(number))
        await world.run_worker(app, process=Slow("worker"))
        assert notes(world) == {"count": 10}

    run_virtually(scenario)


def test_until_idle_does_not_end_while_a_page_is_being_handled():
    async def scenario():
        app = make_app()

        @app.on(timeout=60)
        async def slow(change: Inserted[Thing]) -> Put[Note]:
            if change.new.n == 1:
                await anyio.sleep(10)
                for number in range(1200):
                    put(world, str(number))
            return Put(Note(name=change.new.name))

        async def look(worker):
            for number in range(12):
                await anyio.sleep(0.5)
                put(world, busy, n=number)
                if number == 10:
                    put(world, "first", n=1)

        world = make_world(shards=2)
        other = shard_of(world, "first")
        busy = next(str(n) for n in range(2000, 2100) if shard_of(world, str(n)) != other)
        await world.run_worker(app, started=look)
        assert notes(world).keys() >= {str(number) for number in range(1200)}

    run_virtually(scenario)


def test_until_idle_ends_when_the_stream_is_disabled():
    async def scenario():
        async def look(worker):
            await anyio.sleep(1)
            put(world, "x")
            world.control.disable(TABLE)

        world = make_world()
        with anyio.fail_after(60):
            await world.run_worker(counting_app(), started=look)
        assert notes(world) == {"count": 1}

    run_virtually(scenario)


def test_a_finished_cursor_is_swept_once():
    async def scenario():
        async def stop(worker):
            await anyio.sleep(75 * 3600)
            worker.stop()

        world = make_world(roll_after=12 * 3600.0)
        await world.run_worker(counting_app(), settings=SELDOM, until_idle=False, started=stop)
        deleted = [
            action["Delete"]["Key"]["PK"]["S"]
            for call in commits(world)
            for action in call.payload["TransactItems"]
            if "Delete" in action
        ]
        assert deleted
        assert len(deleted) == len(set(deleted))

    run_virtually(scenario)


def test_records_trimmed_before_their_shard_was_ever_read_are_reported():
    async def scenario():
        world, app = make_world(roll_after=None), counting_app()
        app.control_table = "Numbers"  # so that the shard holds none of streamkit's own records
        create_numbers(world)
        put(world, "x")
        await world.run_worker(app)
        world.control.roll(TABLE)
        await world.run_worker(app)  # the child's cursor is there, and nothing is in it
        put(world, "lost")
        await anyio.sleep(30 * 3600)
        put(world, "y")
        with pytest.raises(RetentionLost):
            await world.run_worker(app)
        assert notes(world) == {"count": 1}

    run_virtually(scenario)


@pytest.mark.parametrize("own_records", [False, True])
def test_a_quiet_shard_outlives_the_retention_of_its_last_record(own_records):
    async def scenario():
        async def stop(worker):
            await anyio.sleep(60 * 3600)
            worker.stop()

        world, app = make_world(roll_after=None), counting_app()
        if not own_records:
            app.control_table = "Numbers"
            create_numbers(world)
        put(world, "x")
        await world.run_worker(app, settings=SELDOM, until_idle=False, started=stop)
        await anyio.sleep(20 * 3600)
        put(world, "y")
        await world.run_worker(app)
        assert notes(world) == {"count": 2}

    run_virtually(scenario)


def test_a_child_is_only_known_to_be_read_as_far_as_its_parent():
    parent = Cursor("parent", state="finished", seen=1000, ended=50_000)
    assert child_of("child", parent, generation=1, parent_name="parent").seen == 1000


@pytest.mark.parametrize("pure", [False, True])
def test_a_worker_that_is_stopped_leaves_a_blocked_change_to_the_next(pure):
    async def scenario():
        app, down = make_app(), [True]

        def send(change):
            if down and change.new.name == "bad":
                raise ValueError("its downstream is down")
            return Put(Note(name=change.new.name, n=change.new.n))

        if pure:

            @app.on(on_failure="block")
            def sends(change: Inserted[Thing] | Modified[Thing]) -> Put[Note]:
                return send(change)

        else:

            @app.on(on_failure="block")
            async def sends(change: Inserted[Thing] | Modified[Thing]) -> Put[Note]:
                return send(change)

        async def stop(worker):
            await anyio.sleep(2)
            put(world, "bad", n=1)
            await anyio.sleep(3)
            worker.stop()

        world = make_world()
        for name in ("a", "bad", "b"):
            put(world, name)
        with anyio.fail_after(60):
            await world.run_worker(app, until_idle=False, started=stop)
        (cursor,) = [i for i in control_items(world, "cursor") if i["_sk_name"] != {"S": "lister"}]
        assert "_sk_owner" not in cursor
        assert notes(world) == {"a": 0}
        down.clear()
        await world.run_worker(app)
        assert notes(world) == {"a": 0, "bad": 1, "b": 0}

    run_virtually(scenario)


# -- several workers -------------------------------------------------------------------------------


def test_a_slow_reply_does_not_make_a_worker_silent():
    leases = LeaseWatch(7.0)
    leases.observe({"alive": 1}, asked=0.0, answered=20.0)
    for beats in range(2, 6):
        began = 20.0 * beats
        leases.observe({"alive": beats}, asked=began, answered=began + 20.0)
        assert not leases.is_abandoned("alive")
    # The counter was there at 120 at the latest, and the question is of 126: six seconds.
    leases.observe({"alive": 5}, asked=126.0, answered=150.0)
    assert not leases.is_abandoned("alive")
    leases.observe({"alive": 5}, asked=127.0, answered=150.0)
    assert leases.is_abandoned("alive")


def lease_log(world):
    """What happened to cursors: (operation, cursor, values it was conditional on, values set).

    A transaction repeated under its token is answered as if it was applied again, and is not.
    """
    entries, tokens = [], set()
    for call in world.calls:
        if call.status != 200 or call.operation not in ("UpdateItem", "TransactWriteItems"):
            continue
        request = call.payload
        if call.operation == "TransactWriteItems":
            if request["ClientRequestToken"] in tokens:
                continue
            tokens.add(request["ClientRequestToken"])
            request = request["TransactItems"][0].get("Update", {})
        _, _, kind = request.get("Key", {}).get("PK", {}).get("S", "").partition("#cursor#")
        if kind:
            entries.append((call.operation, kind, *_lease_of(request)))
    return entries


def _lease_of(request):
    names, values = request["ExpressionAttributeNames"], request["ExpressionAttributeValues"]
    condition = request.get("ConditionExpression", "")
    known = {}
    for name, value in re.findall(r"(#\w+) (?:=|<=) (:\w+)", condition):
        known[names[name].removeprefix("_sk_")] = next(iter(values[value].values()))
    new = {}
    for name, value in re.findall(r"(#u\d+) = (:u\d+)", request.get("UpdateExpression", "")):
        new[names[name].removeprefix("_sk_")] = next(iter(values[value].values()))
    return known, new


@dataclass
class Zombie(Process):
    """From one call on its transport is frozen, until it is thawed."""

    freeze_at: int | None = None
    thawed: anyio.Event = field(default_factory=anyio.Event)

    async def intercept(self, call, apply):
        number, self.calls = self.calls, self.calls + 1
        if self.freeze_at is not None and number >= self.freeze_at:
            await self.thawed.wait()
        return apply()


def test_nothing_that_a_zombie_sends_after_it_was_replaced_is_accepted():
    async def scenario(freeze_at, seed):
        world = World.create(seed)
        create_table(world)
        traffic = Traffic(world, seed)
        traffic.write(12, poison=0.2)
        world.control.split(TABLE, world.control.shards(TABLE)[0]["id"])
        traffic.write(12, poison=0.2)
        zombie, stops = Zombie("zombie"), []
        zombie.freeze_at = freeze_at

        async def keep(worker):
            stops.append(worker)

        async def old():
            await world.run_worker(shop_app(), process=zombie, until_idle=False, started=keep)

        async def new():
            await world.run_worker(shop_app(), until_idle=False, started=keep)

        async with anyio.create_task_group() as group:
            group.start_soon(old)
            await anyio.sleep(5)
            traffic.write(6)
            group.start_soon(new)
            await anyio.sleep(30)
            traffic.write(6)
            zombie.thawed.set()
            await anyio.sleep(30)
            traffic.write(6)
            await anyio.sleep(10)
            for worker in stops:
                worker.stop()
        assert await world.run_worker(shop_app())
        assert found(world) == expected(traffic)
        check_leases(world)
        return zombie.calls

    seed = 11
    calls = run_virtually(scenario, None, seed, seed=seed)
    for freeze_at in range(3, 100, 10):
        assert freeze_at < calls
        run_virtually(scenario, freeze_at, seed, seed=seed)


def check_leases(world):
    """No commit of an ended lease is accepted, and none from one position under two leases."""
    epochs, froms = {}, {}
    for operation, name, known, new in lease_log(world):
        if operation == "UpdateItem" and "owner" in new:
            assert int(new["epoch"]) == epochs.get(name, 0) + 1, name
            epochs[name] = int(new["epoch"])
        elif operation == "TransactWriteItems":
            assert int(known["epoch"]) == epochs[name], f"{name}: a commit of an ended lease"
            place = name, known["position"], known["commit"]
            assert froms.setdefault(place, known["epoch"]) == known["epoch"]


def test_two_workers_started_at_the_same_moment_never_both_lead():
    async def scenario(seed):
        world = World.create(seed)
        create_table(world)
        traffic = Traffic(world, seed)
        traffic.write(10)
        workers = []

        async def keep(worker):
            workers.append(worker)

        async def run():
            await world.run_worker(shop_app(), until_idle=False, started=keep)

        async with anyio.create_task_group() as group:
            group.start_soon(run)
            group.start_soon(run)
            await anyio.sleep(20)
            traffic.write(10)
            await anyio.sleep(5)
            leader = check_one_leads(world, 1)
            next(w for w in workers if w.name == leader).stop()
            await anyio.sleep(5)
            traffic.write(10)
            await anyio.sleep(20)
            assert check_one_leads(world, 2) != leader
            for worker in workers:
                worker.stop()
        assert found(world) == expected(traffic)
        check_leases(world)

    def check_one_leads(world, leads):
        """The lister's lease was taken so often, each time by another worker."""
        taken = [e for e in lease_log(world) if e[0] == "UpdateItem" and e[1] == "lister"]
        leaders = [new["owner"] for _, _, _, new in taken if "owner" in new]
        assert len(leaders) == len(set(leaders)) == leads
        return leaders[-1]

    for seed in seeds(6, least=3):
        run_virtually(scenario, seed, seed=seed)


def test_a_shard_that_its_old_owner_finishes_while_it_is_taken_is_run_once():
    async def scenario(seed):
        world, app = make_world(seed), counting_app()
        zombie, workers = Zombie("zombie"), []
        zombie.freeze_at = None

        class Successor(Process):
            async def intercept(self, call, apply):
                taking = b"#cursor#shardId" in call.payload and call.operation == "UpdateItem"
                if taking and not zombie.thawed.is_set():
                    zombie.thawed.set()
                    await anyio.sleep(1.2)
                return apply()

        async def keep(worker):
            workers.append(worker)

        async def run(process):
            await world.run_worker(app, process=process, until_idle=False, started=keep)

        async with anyio.create_task_group() as group:
            group.start_soon(run, zombie)
            await anyio.sleep(3)
            zombie.freeze_at = 0
            put(world, "x")
            world.control.roll(TABLE)
            put(world, "y")
            group.start_soon(run, Successor("successor"))
            await anyio.sleep(60)
            put(world, "z")
            await anyio.sleep(10)
            for worker in workers:
                worker.stop()
        assert notes(world) == {"count": 3}
        check_leases(world)

    for seed in seeds(4, least=2):
        run_virtually(scenario, seed, seed=seed)


# -- everything at once ----------------------------------------------------------------------------


ROOM = Attr("n").not_exists() | Attr("n").lt(4)


def mixture_app():
    """Refusals of each sort on shared items, and a reader of what they leave."""
    app = make_app()

    @app.on
    def skips(change: Modified[Thing]) -> list[Add[Note]]:
        first = Add(Note.key(name=f"a{change.new.n % 3}"), n=1)
        return [first.only_if(ROOM, otherwise="skip"), Add(Note.key(name="b"), n=1)]

    @app.on
    def omits(change: Modified[Thing]) -> list[Add[Note]]:
        first = Add(Note.key(name=f"a{change.new.n % 3}"), n=1)
        return [Add(Note.key(name="c"), n=1), first.only_if(ROOM, otherwise="omit")]

    @app.on
    def parks(change: Modified[Thing]) -> list[Add[Note]]:
        first = Add(Note.key(name=f"d{change.new.n % 3}"), n=1)
        second = Add(Note.key(name=f"g{change.new.n % 4}"), n=1)
        return [first.only_if(ROOM), second.only_if(ROOM), Add(Note.key(name="e"), n=1)]

    @app.on
    async def retries(change: Modified[Thing]) -> list[Add[Note]]:
        first = Add(Note.key(name=f"f{change.new.n % 3}"), n=1)
        return [first.only_if(ROOM, otherwise="retry"), Add(Note.key(name="e"), n=1)]

    @app.on
    async def reads(change: Modified[Box], table: Table) -> Set[Note]:
        names = ("a0", "b", "c", "d1", "e", "f2")
        found = [await table.get(Note.key(name=name)) for name in names]
        total = sum(note.n * (index + 1) for index, note in enumerate(found) if note)
        return Set(Note.key(name=f"r{change.new.name}"), n=total)

    return app


def one_pass(log):
    """What the mixture makes of a log of changes, one after the other."""
    n, held = Counter(), set()

    def room(name):
        return n[name] < 4

    for kind, name, number in log:
        if kind == "BOX":
            names = ("a0", "b", "c", "d1", "e", "f2")
            n[f"r{name}"] = sum(n[other] * (i + 1) for i, other in enumerate(names))
            continue
        place = number % 3
        if room(f"a{place}"):
            n.update([f"a{place}", "b"])
        n.update(["c", f"a{place}"] if room(f"a{place}") else ["c"])
        for handler, *items in (
            ("parks", f"d{place}", f"g{number % 4}"),
            ("retries", f"f{place}"),
        ):
            if (handler, name) not in held and all(map(room, items)):
                n.update([*items, "e"])
            else:
                held.add((handler, name))
    return {name: number for name, number in n.items() if number}


def scribble(world, name, number):
    """Change an attribute that all handlers read and nothing follows from, if the item exists."""
    request = {
        "TableName": TABLE,
        "Key": key("NOTE", name),
        "UpdateExpression": "SET #t = :t",
        "ConditionExpression": "attribute_exists(PK)",
        "ExpressionAttributeNames": {"#t": "text"},
        "ExpressionAttributeValues": {":t": {"S": str(number)}},
    }
    world.engine.call("dynamodb", "UpdateItem", request)


def test_any_mixture_of_refusals_and_reads_equals_one_pass_in_order():
    async def scenario(seed):
        rng = random.Random(seed)
        world, log = make_world(seed, roll_after=None), []
        app = mixture_app()
        for name in "xyz":
            put(world, name, n=0)
            put(world, name, "BOX", size=0)
        faults = Faults(rng, lost_request=0.04, lost_reply=0.04, late=0.04, conflict=0.1, slow=0.2)

        async def write(worker):
            for number in range(1, 50):
                kind, name = rng.choice(["THING", "THING", "BOX"]), rng.choice("xyz")
                log.append((kind, name, number))
                put(world, name, kind, **{"n" if kind == "THING" else "size": number})
                scribble(world, rng.choice(["a0", "b", "c", "d1", "e", "f2"]), number)
                if rng.random() < 0.2:
                    await anyio.sleep(rng.random() * 5)
            faults.active = False

        async with anyio.create_task_group() as group:
            group.start_soon(write, None)
            for number in numbers(1):
                # What five workers in a row die of is parked: every fourth lives.
                crash = CrashPoint(rng.randrange(15, 120), rng.choice(["before", "after"]))
                process = Process("worker", crash if number % 4 else None, faults)
                await world.run_worker(app, process=process)
                if not faults.active:
                    break
        await anyio.sleep(25)  # the last late call
        await world.run_worker(app)
        left = {name: n for name, n in notes(world).items() if n}
        assert left == one_pass(log)
        check_leases(world)

    for seed in seeds(6, least=3):
        run_virtually(scenario, seed, seed=seed)


def test_a_worker_cancelled_at_any_moment_leaves_what_one_pass_would():
    async def scenario(moment, seed):
        world = World.create(seed)
        create_table(world)
        traffic = Traffic(world, seed)
        traffic.write(12, poison=0.2)
        world.control.split(TABLE, world.control.shards(TABLE)[0]["id"])
        traffic.write(12, poison=0.2)
        process = Process("cancelled", faults=Faults(world.rng, slow=0.5))
        with anyio.move_on_after(moment):
            await world.run_worker(shop_app(), process=process, until_idle=False)
        traffic.write(6)
        assert await world.run_worker(shop_app())
        assert found(world) == expected(traffic)
        check_leases(world)

    for number in range(1, 11):
        run_virtually(scenario, number * 0.83, number, seed=number)


def test_two_roll_outs_at_once_count_each_change_once_or_say_rebuild():
    def version(number):
        app = make_app()

        @app.aggregate
        class Old(Aggregate[Thing], pk="OLD", sk="OLD"):
            things: Annotated[int, Count()] = 0

            @classmethod
            def group(cls, thing: Thing) -> Key["Old"]:
                return cls.key()

        if number == 2:

            @app.aggregate
            class New(Aggregate[Thing], pk="NEW", sk="NEW"):
                things: Annotated[int, Count()] = 0

                @classmethod
                def group(cls, thing: Thing) -> Key["New"]:
                    return cls.key()

        return app

    async def scenario(seed):
        rng = random.Random(seed)
        world, count = make_world(seed, shards=2), 0

        async def run(number):
            async def stop(worker):
                await anyio.sleep(rng.random() * 20)
                worker.stop()

            crash = CrashPoint(rng.randrange(10, 200), "after")
            process = Process("worker", crash if rng.random() < 0.5 else None)
            await world.run_worker(version(number), process=process, until_idle=False, started=stop)

        for _ in range(4):
            async with anyio.create_task_group() as group:
                for number in (1, 2):
                    group.start_soon(run, number)
                for _ in range(6):
                    await anyio.sleep(rng.random() * 3)
                    put(world, str(count))
                    count += 1
        await world.run_worker(version(2))
        counted = {i["PK"]["S"]: int(i["things"]["N"]) for i in world.items(TABLE) if "things" in i}
        assert counted["OLD"] == count
        (consumer,) = control_items(world, "consumer")
        assert "New" in consumer.get("_sk_rebuild", {"SS": []})["SS"] or counted["NEW"] == count
        check_leases(world)

    for seed in seeds(4, least=2):
        run_virtually(scenario, seed, seed=seed)
