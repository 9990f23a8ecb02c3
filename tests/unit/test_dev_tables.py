"""The tables of `streamkit dev` and of tests: as the app declares them, whatever it declares."""

import random
from datetime import timedelta
from typing import Annotated, ClassVar

import pytest
from botocore.exceptions import ClientError

from streamkit import (
    Aggregate,
    App,
    Count,
    Entity,
    EpochSeconds,
    Index,
    IndexShape,
    TableShape,
    Until,
)
from streamkit.aws import connect
from streamkit.cli.dev_tables import bring_up
from streamkit.errors import ConfigurationError
from streamkit.local.engine import Engine
from streamkit.local.transport import session_class
from streamkit.testing import Harness

AWKWARD = TableShape(
    pk="date-time zone",
    sk="values.n",
    sk_type="N",
    ttl="ttl.at",
    indexes={"by-status.x": IndexShape(pk="status", sk="size", sk_type="N")},
)


def make_app(shape=AWKWARD, *, index="by-status.x", table="Awk-ward.table_1", **options):
    class Reading(Entity, pk="SENSOR#{sensor}", sk="{number}"):
        sensor: str
        number: int
        by_state: ClassVar = Index(index, pk="S#{sensor}", sk="{number}")

    app = App("awkward", table=table, shape=shape, **options)
    app.reading = Reading

    @app.aggregate
    class Readings(Aggregate[Reading], pk="READINGS#{sensor}", sk="0"):
        sensor: str
        readings: Annotated[int, Count()] = 0

    app.readings = Readings
    return app


@pytest.fixture
async def dynamodb():
    async with connect(http_session=session_class(Engine(rng=random.Random(1)))) as aws:
        yield aws.dynamodb


async def described(dynamodb, name):
    return (await dynamodb.describe_table(TableName=name))["Table"]


async def test_tables_are_made_with_the_keys_indexes_and_expiry_that_the_app_declares(dynamodb):
    app = make_app(tables={"Second": TableShape(pk="user id", sk=None, pk_type="N")})
    done = await bring_up(app, dynamodb)
    own, second = done
    assert own.startswith("created the table Awk-ward.table_1: keys date-time zone S, values.n N")
    assert own.endswith("index by-status.x (status S, size N), items expire by ttl.at")
    assert second == ("created the table Second: keys user id N, no TTL attribute")
    own = await described(dynamodb, app.table)
    assert own["StreamSpecification"]["StreamViewType"] == "NEW_AND_OLD_IMAGES"
    assert [one["AttributeName"] for one in own["KeySchema"]] == ["date-time zone", "values.n"]
    expiry = await dynamodb.describe_time_to_live(TableName=app.table)
    assert expiry["TimeToLiveDescription"]["AttributeName"] == "ttl.at"
    second = await described(dynamodb, "Second")
    assert second["KeySchema"] == [{"AttributeName": "user id", "KeyType": "HASH"}]
    assert await bring_up(app, dynamodb) == [], "they are there now"


async def test_a_table_whose_shape_nobody_has_said_says_how_to_say_it(dynamodb):
    (line,) = await bring_up(make_app(None), dynamodb)
    assert "keys PK S, SK S" in line
    assert "App(shape=TableShape(...))" in line


async def test_the_control_table_is_made_too(dynamodb):
    await bring_up(make_app(control_table="Control"), dynamodb)
    keys = (await described(dynamodb, "Control"))["KeySchema"]
    assert [one["AttributeName"] for one in keys] == ["PK", "SK"]


async def test_a_table_that_may_not_be_looked_at_is_not_made(dynamodb, monkeypatch):
    async def denied(**_):
        raise ClientError({"Error": {"Code": "AccessDeniedException"}}, "DescribeTable")

    with monkeypatch.context() as patched:
        patched.setattr(dynamodb, "describe_table", denied)
        with pytest.raises(ClientError, match="AccessDeniedException"):
            await bring_up(make_app(), dynamodb)
    assert (await dynamodb.list_tables())["TableNames"] == []


async def test_an_index_that_is_declared_later_is_added_to_the_table_that_is_there(dynamodb):
    await bring_up(make_app(), dynamodb)
    assert await bring_up(make_app(index="GSI2"), dynamodb) == [
        "added the index GSI2 (GSI2PK S, GSI2SK S) to Awk-ward.table_1"
    ]
    indexes = (await described(dynamodb, "Awk-ward.table_1"))["GlobalSecondaryIndexes"]
    assert {one["IndexName"] for one in indexes} == {"by-status.x", "GSI2"}


async def test_a_table_with_other_keys_is_left_alone_and_the_error_says_what_to_do(dynamodb):
    await bring_up(make_app(None), dynamodb)
    with pytest.raises(ConfigurationError, match=r"keys PK S, SK S.*delete the folder"):
        await bring_up(make_app(), dynamodb)


async def test_what_until_writes_is_the_ttl_attribute_unless_the_app_names_another(dynamodb):
    app = make_app(None)

    @app.aggregate
    class Days(Aggregate[app.reading], pk="DAY#{day}", sk="1"):
        day: EpochSeconds
        readings: Annotated[int, Count()] = 0
        gone: Annotated[EpochSeconds | None, Until("day", keep=timedelta(days=9))] = None

        @classmethod
        def group(cls, reading):
            return None

    (line,) = await bring_up(app, dynamodb)
    assert "items expire by gone" in line
    assert app.shape_of(app.table).ttl is None, "a test finds out that the table may have none"
    expiring = [*await bring_up(make_app(table="Other"), dynamodb)]
    assert "items expire by ttl.at" in expiring[0]


def test_a_harness_has_the_tables_that_the_app_declares():
    app = make_app(tables={"Second": TableShape(pk="user id", sk=None)})
    with Harness(app) as harness:
        harness.put(app.reading(sensor="a", number=1), app.reading(sensor="a", number=2))
        harness.settle()
        assert harness.get(app.readings.key(sensor="a")).readings == 2
        assert harness.tables.table.sk_type == "N"
        assert harness.tables.table.ttl == "ttl.at"
        assert harness.tables.schemas["Second"].pk == "user id"
