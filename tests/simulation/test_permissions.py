"""The policies that `iam` computes, held against what the engine was asked."""

import importlib
import random
from collections import defaultdict
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from typing import ClassVar

import pytest

from handlers.shop.entities import Customer, Order, Status
from handlers.shop.handlers import SHAPE
from handlers.shop.handlers import app as shop_app
from streamkit import App, Entity, Index, Inserted, Set
from streamkit.core.parked.queues import Selection, list_parked
from streamkit.core.table_shape import TableShape
from streamkit.core.tables import open_store, survey
from streamkit.errors import ConfigurationError
from streamkit.kinds.aggregate.rebuild import rebuild_aggregate
from streamkit.kinds.aggregate.verification import verify_aggregate
from streamkit.migrate.operate import commands
from streamkit.migrate.plan.planning import plan_migration
from streamkit.migrate.run.running import Runner
from streamkit.migrate.verify.verifying import verify_migration
from streamkit.operate.consumers import list_consumers, pause_consumer, resume_consumer
from streamkit.operate.deletion import delete_consumer
from streamkit.operate.explanation import explain_item
from streamkit.operate.fan_outs import list_fan_outs
from streamkit.operate.inspection import inspect_app
from streamkit.operate.moves import MoveRefused, import_leases, move_to_lambda, move_to_workers
from streamkit.operate.permissions.hosts import policy_for
from streamkit.operate.permissions.place import AccountPlace
from streamkit.operate.redrive import discard, redrive
from streamkit.operate.rewind import RewindRefused, rewind
from streamkit.operate.spending import read_estimate, read_spending
from streamkit.operate.status import read_status
from streamkit.settings import Settings
from streamkit.testing import recording, trial
from streamkit.testing.hosts import Functions
from streamkit.testing.loop import EPOCH, run_virtually
from streamkit.testing.migrations import migrate
from streamkit.testing.world import Process, World
from tests.exports import export
from tests.permissions import ACCOUNT, REGION, allows, noted

LEASES = "kcl-leases"
LEASE_TABLE = {
    "TableName": LEASES,
    "KeySchema": [{"AttributeName": "leaseKey", "KeyType": "HASH"}],
    "AttributeDefinitions": [{"AttributeName": "leaseKey", "AttributeType": "S"}],
    "BillingMode": "PAY_PER_REQUEST",
}
NOW = datetime.fromtimestamp(EPOCH, UTC)
PLACE = AccountPlace.of(account=ACCOUNT, region=REGION)

SYSTEMS = ("deals", "sales", "school", "sessions")
"""Among them every kind of handler, mirrors, extremes, listeners to aggregates, emptied groups."""

UNUSED = {
    "FindService DescribeEndpoints": "asked by the command line, before a worker starts",
    "FindService ListStreams": "the same",
    "ScanControl Scan": "the same, where there is no sort key, as in sessions",
    "Indexes Scan": "deals names a Scan of an index, for an audience that these acts never called",
    "ScanTable Scan": "a Scan that code names may be one of the table, too",
    "OtherConsumers GetItem": "the table has no other app, which might count the same",
}
"""What no run of these may have asked for, and why it is granted."""

NOT_ASKED_FOR = {
    "FindService DescribeEndpoints": "asked by the command line, before a command begins",
    "FindService ListStreams": "the same",
    "DescribeTables DescribeContinuousBackups": "`migrate plan` says whether there is a backup",
    "Sink Publish": "topics are stood in for here",
}
"""What none of an operator's functions asks for here, and why it is granted."""


@pytest.fixture(scope="module")
def runs():
    """What the workers of each system asked for under traffic and trouble, with the policy."""
    found = {}
    for name in SYSTEMS:
        system = importlib.import_module(f"handlers.{name}.demo").SYSTEM
        with noted() as requests:
            trial(system.app, system.traffic(), shape=system.shape, seed=1, acts=40)
        found[name] = requests.of("worker"), policy_for(system.app, "worker", PLACE)
    return found


@pytest.mark.parametrize("name", SYSTEMS)
def test_a_worker_may_do_all_that_it_does(runs, name):
    asked, policy = runs[name]
    assert len(asked) > 50
    assert [r for r in asked if not allows(policy.to_dict(), r)] == []


def needed(policy, asked):
    """Return the actions without which something is refused, by the statement that has them."""
    for statement in policy.statements:
        for action in statement.actions:
            less = policy.to_dict()
            (changed,) = [s for s in less["Statement"] if s["Sid"] == statement.sid]
            changed["Action"].remove(action)
            yield named(statement, action), not all(allows(less, request) for request in asked)


def named(statement, action):
    return f"{statement.sid.rstrip('0123456789')} {action.partition(':')[2]}"


def test_what_is_granted_is_needed_by_some_system_or_has_a_reason(runs):
    found = defaultdict(bool)
    for asked, policy in runs.values():
        for name, is_needed in needed(policy, asked):
            found[name] |= is_needed
    assert {name for name, is_needed in found.items() if not is_needed} == set(UNUSED)


def test_functions_may_do_all_that_they_do():
    system = importlib.import_module("handlers.deals.demo").SYSTEM
    with noted() as requests:
        trial(system.app, system.traffic(), shape=system.shape, acts=25, host=Functions)
    policy = policy_for(system.app, "lambda", PLACE).to_dict()
    asked = requests.of("function")
    assert len(asked) > 50
    assert [r for r in asked if not allows(policy, r)] == []


class Bill(Entity, pk="BILL#{number}", sk="BILL"):
    number: int
    customer: str


class BillOfCustomer(Entity, pk="CUSTOMER#{customer}", sk="BILL#{number}"):
    number: int
    customer: str


class Billing:
    """An application that goes on writing bills while they are moved."""

    async def open(self, aws, schema, rng):
        for number in range(15):
            await self._write(aws, schema, number, rng)

    async def act(self, aws, schema, rng, phase):
        del phase
        await self._write(aws, schema, rng.randrange(20), rng)

    async def _write(self, aws, schema, number, rng):
        item = Bill(number=number, customer=rng.choice("ab")).attributes(schema)
        await aws.dynamodb.put_item(TableName=schema.name, Item=item)


def test_a_migration_may_do_all_that_it_does_and_so_may_workers_meanwhile():
    app = App("shop", table="Shop", entities=[BillOfCustomer])

    @app.migration("0001", Bill, mode="rekey")
    def move(bill: Bill) -> BillOfCustomer:
        return BillOfCustomer(number=bill.number, customer=bill.customer)

    @app.on
    def seen(change: Inserted[Bill]) -> None:
        del change

    with noted() as requests:
        migrate(app, "0001", Billing(), acts=6, segments=2, worker=True)
    for host, actor in (("migrate", "migrator"), ("worker", "worker")):
        policy = policy_for(app, host, PLACE).to_dict()
        asked = requests.of(actor)
        assert len(asked) > 20
        assert [r for r in asked if not allows(policy, r)] == []


def numbered(number: int) -> Set[Bill]:
    return Set(customer=f"{number}")


def test_a_migration_of_chosen_items_may_read_those_of_its_entity_and_no_others(tmp_path):
    path, app = tmp_path / "keys.jsonl", App("shop", table="Shop")
    app.migration("0001", Bill)(numbered)

    async def main():
        world, migration = World.create(1), app.migrations["0001"]
        async with world.clients() as aws:
            await TableShape().create(aws.dynamodb, "Shop", (Bill,), stream=True)
            await Billing().open(aws, (await survey(app, aws)).table, random.Random(1))
        given = {"clock": world.clock, "rng": random.Random(1)}
        async with world.clients(Process("migrator")) as aws:
            await plan_migration(app, aws, migration, keys_from=str(path), **given)
            chosen = {"keys_from": str(path), "clock": world.clock}
            await commands.begin(app, aws, migration, segments=2, **chosen)
            assert (await Runner(app, aws, migration, **given).run()).phase == "done"
            assert (await verify_migration(app, aws, migration, **given)).ok

    def refused(*keys):
        path.write_text("".join(f'{{"PK": "{key}", "SK": "BILL"}}\n' for key in keys))
        with noted() as requests:
            run_virtually(main, seed=1)
        asked, policy = requests.of("migrator"), policy_for(app, "migrate", PLACE).to_dict()
        read = {r.keys for r in asked if r.action == "dynamodb:GetItem"}
        assert {(key,) for key in keys} <= read
        return {r.keys for r in asked if not allows(policy, r)}

    assert refused("BILL#1", "BILL#99") == set()
    with pytest.raises(ConfigurationError, match="line 2: it is the key of another entity's item"):
        refused("BILL#1", "CUSTOMER#a")


class Parcel(Entity, pk="PARCEL#{number}", sk="PARCEL"):
    number: int
    state: str | None = None
    label: str | None = None
    by_state: ClassVar = Index("ByState", pk="{state}", pk_attribute="state")


def parcel_label(number: int) -> Set[Parcel]:
    return Set(label=f"{number}")


SOURCES = [
    "index:ByState",
    'index:ByState:{"state": "SENT"}',
    'table:{"PK": "PARCEL#1"}',
    "manifest-summary.json",
]


@pytest.mark.parametrize("source", SOURCES)
def test_a_migration_of_an_index_a_query_or_an_export_may_read_it(tmp_path, source):
    app = App("shop", table="Shop")
    app.migration("0001", Parcel)(parcel_label)

    async def main(keys_from=source):
        world, migration = World.create(1), app.migrations["0001"]
        async with world.clients() as aws:
            await TableShape().create(aws.dynamodb, "Shop", (Parcel, Bill), stream=True)
            schema = (await survey(app, aws)).table
            await Billing().open(aws, schema, random.Random(1))
            for number in range(3):
                item = Parcel(number=number, state="SENT").attributes(schema)
                await aws.dynamodb.put_item(TableName="Shop", Item=item)
            if keys_from.endswith(".json"):
                given = {"moment": world.clock.time()}
                keys_from = export(tmp_path, "Shop", world.items("Shop"), **given)
        given = {"clock": world.clock, "rng": random.Random(1)}
        async with world.clients(Process("migrator")) as aws:
            await plan_migration(app, aws, migration, keys_from=keys_from, **given)
            chosen = {"keys_from": keys_from, "clock": world.clock}
            await commands.begin(app, aws, migration, segments=2, **chosen)
            state = await Runner(app, aws, migration, **given).run()
            assert (await verify_migration(app, aws, migration, **given)).ok
            return state.verified["scanned"]

    with noted() as requests:
        assert run_virtually(main, seed=1) == (1 if source.startswith("table:") else 3)
    policy = policy_for(app, "migrate", PLACE, keys_from=source).to_dict()
    assert [r for r in requests.of("migrator") if not allows(policy, r)] == []


async def everything(world, app, aws):
    """Do what an operator may: look, redrive, discard, pause, verify, delete."""
    clock = world.clock
    await inspect_app(app, aws)
    await read_status(app, aws, clock=clock)
    await list_parked(await open_store(app, aws))
    await list_fan_outs(app, aws)
    await list_consumers(aws, app.table)
    await read_estimate(app, aws, Settings())
    await read_spending(app, aws)
    await explain_item(app, aws, "CUSTOMER#bob", "CUSTOMER#bob", records=True)
    await pause_consumer(app, aws, clock=clock)
    await resume_consumer(app, aws)
    await redrive(app, aws)
    await discard(app, aws, Selection(), whole=True)
    for aggregate in app.aggregates:
        await verify_aggregate(app, aws, aggregate.__name__, looks=1, patience=1.0, clock=clock)


async def moves(harness, aws):
    """Let the consumer go to functions and back, with something left to do."""
    app, clock = harness.app, harness.world.clock
    await move_to_lambda(app, aws, lease_seconds=1.0, clock=clock)
    put_order(harness, "cat")
    await move_to_workers(app, aws, in_flight=1.0, clock=clock)
    with suppress(RewindRefused):  # it has aggregates
        await rewind(app, aws, None, lease_seconds=1.0, clock=clock)


async def anew(harness, aws):
    """End the consumer, and let another begin where a KCL has stopped."""
    app, clock = harness.app, harness.world.clock
    await delete_consumer(aws, app.table, app.name, clock=clock)
    with suppress(MoveRefused):
        await import_leases(app, aws, LEASES, watch=1.0, clock=clock)


def put_order(harness, name):
    order = Order(username=name, order_id=name, status=Status.PLACED, created_at=NOW)
    item = order.attributes(harness.tables.table)
    harness.world.engine.call("dynamodb", "PutItem", {"TableName": harness.app.table, "Item": item})


def test_an_operator_may_do_all_that_the_commands_do_and_needs_all_that_is_allowed(harness_of):
    lease = {"leaseKey": {"S": "shardId-1"}, "checkpoint": {"S": "TRIM_HORIZON"}}
    with noted() as requests, recording(shop_app):
        harness = harness_of(shop_app, shape=SHAPE, others=[LEASE_TABLE])
        harness.world.engine.call("dynamodb", "PutItem", {"TableName": LEASES, "Item": lease})
        for name in ("ann", "bob"):  # the second is parked: the address is taken
            harness.put(Customer(username=name, name=name, email="a@example.com"))
            put_order(harness, name)
            harness.settle()
        assert harness.parked()

        async def operate(*works):
            async with harness.world.clients(Process("operator")) as aws:
                for work in works:
                    await work(aws)

        def rebuild(aws):
            name, clock = shop_app.aggregates[0].__name__, harness.world.clock
            return rebuild_aggregate(shop_app, aws, name, segments=2, clock=clock)

        harness.stop()
        harness._run(operate(partial(everything, harness.world, shop_app), partial(moves, harness)))
        harness.settle()
        harness._run(operate(rebuild))
        harness.stop()
        harness._run(operate(partial(anew, harness)))
    asked, policy = requests.of("operator"), policy_for(shop_app, "operator", PLACE, leases=LEASES)
    assert [r for r in asked if not allows(policy.to_dict(), r)] == []
    unused = {name for name, is_needed in needed(policy, asked) if not is_needed}
    assert unused == set(NOT_ASKED_FOR)
