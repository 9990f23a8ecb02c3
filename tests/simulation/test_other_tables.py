"""Effects on other tables commit with those on the app's own, and with the position."""

import pytest

from streamkit import (
    Add,
    App,
    ConfigurationError,
    Delete,
    Effect,
    Entity,
    Inserted,
    Modified,
    Policy,
    Put,
    Set,
    Table,
    absent,
)
from streamkit.errors import UnknownTable
from streamkit.model.origin import ORIGIN
from streamkit.operate.inspection import Permission, inspect_app

KEYS = {
    "KeySchema": [{"AttributeName": "Id", "KeyType": "HASH"}],
    "AttributeDefinitions": [{"AttributeName": "Id", "AttributeType": "S"}],
    "BillingMode": "PAY_PER_REQUEST",
}
ARCHIVE = {"TableName": "Archive", **KEYS}


class Order(Entity, pk="ORDER#{number}", sk="ORDER"):
    number: int
    status: str = "NEW"


class Old(Entity, pk="OLD#{number}", sk="OLD"):
    number: int
    status: str = ""
    times: int = 0


def archiving(table="Archive", **said):
    app = App("archiving", table="Orders", entities=[Old], policy=Policy(attempts=1), **said)

    @app.on
    def archive(change: Inserted[Order]) -> list[Effect]:
        order = change.new
        key = Old.key(number=order.number)
        return [
            Put(Old(number=order.number, status=order.status)).only_if(absent).to(table),
            Add(key, times=1),
        ]

    @app.on
    def hear(change: Inserted[Old]) -> None: ...

    return app


def test_an_effect_goes_to_a_table_that_nobody_named_with_that_tables_keys(harness_of):
    harness = harness_of(archiving(), others=[ARCHIVE])
    harness.put(Order(number=1), Order(number=2))
    harness.settle()
    assert harness.parked() == []
    assert sorted(i["Id"]["S"] for i in harness.world.items("Archive")) == ["OLD#1", "OLD#2"]
    assert all({"PK", ORIGIN}.isdisjoint(item) for item in harness.world.items("Archive"))
    own = [item for item in harness.world.items("Orders") if item["PK"] == {"S": "OLD#1"}]
    assert [(item["times"], ORIGIN in item) for item in own] == [({"N": "1"}, True)]
    with pytest.raises(UnknownTable):
        harness.get(Old.key(number=1), table="Archive")


def test_a_condition_on_another_tables_item_holds_back_the_whole_result(harness_of):
    harness = harness_of(archiving(tables=["Archive"]), others=[ARCHIVE])
    there = {"Id": {"S": "OLD#1"}, "number": {"N": "1"}, "status": {"S": "MINE"}}
    harness.world.engine.call("dynamodb", "PutItem", {"TableName": "Archive", "Item": there})
    harness.put(Order(number=1), Order(number=2))
    harness.settle()
    (parked,) = harness.parked()
    assert parked.error == "ConditionFailed"
    assert harness.get(Old.key(number=1), table="Archive").status == "MINE"
    assert harness.get(Old.key(number=1)) is None
    assert harness.get(Old.key(number=2)).times == 1


def test_a_missing_table_parks_with_its_name_and_heals_when_it_is_there(harness_of):
    harness = harness_of(archiving("Arhcive"))
    harness.put(Order(number=1))
    harness.settle()
    (parked,) = harness.parked()
    assert parked.error == "ConfigurationError"
    assert "no table 'Arhcive'" in parked.detail
    request = {**ARCHIVE, "TableName": "Arhcive"}
    assert harness.world.engine.call("dynamodb", "CreateTable", request)[0] == 200
    harness.advance("1m")
    assert harness.parked() == []
    assert len(harness.world.items("Arhcive")) == 1


def test_check_names_the_permission_to_write_to_the_other_tables(harness_of):
    harness = harness_of(archiving(tables=["Archive"]), others=[ARCHIVE])
    found = harness._run(inspect_app(harness.app, harness._aws))
    assert Permission("the same on Archive", allowed=True) in found.permissions
    assert found.ok


def test_a_named_table_that_is_missing_stops_the_worker_at_start(harness_of):
    harness = harness_of(archiving())
    harness.app.tables = ("Nowhere",)
    with pytest.raises(ConfigurationError, match="no table 'Nowhere'"):
        harness.settle()


def test_a_handler_reads_another_table_and_its_read_is_checked(harness_of):
    app = App("reading", table="Orders", entities=[Old], tables=["Archive"])

    @app.on
    async def count(change: Inserted[Order] | Modified[Order], table: Table) -> Set[Old]:
        key = Old.key(number=7)
        before = await table.of("Archive").get(key)
        return Set(key, times=before.times + 1 if before else 1).to("Archive")

    @app.on
    async def forget(change: Inserted[Order], table: Table) -> Delete[Old] | None:
        other = await table.of("Unnamed").get(Old.key(number=change.new.number))
        return Delete(other.item_key).to("Unnamed") if other else None

    unnamed = {**ARCHIVE, "TableName": "Unnamed"}
    harness = harness_of(app, others=[ARCHIVE, unnamed])
    there = {"Id": {"S": "OLD#3"}, "number": {"N": "3"}}
    harness.world.engine.call("dynamodb", "PutItem", {"TableName": "Unnamed", "Item": there})
    harness.put(*(Order(number=number) for number in range(20)))
    harness.settle()
    assert harness.parked() == []
    assert harness.get(Old.key(number=7), table="Archive").times == 20
    assert harness.world.items("Unnamed") == []
