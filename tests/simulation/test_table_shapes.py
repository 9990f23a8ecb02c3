"""streamkit works on any string-keyed table, and on others with a control table."""

from typing import Annotated

import pytest

from streamkit import Aggregate, App, ConfigurationError, Count, Entity, EpochSeconds, Key
from streamkit.testing.loop import EPOCH, run_virtually
from streamkit.testing.world import CrashPoint, Process, World


class Session(Entity, pk="{token}", type="session"):
    token: str
    username: str
    expires: EpochSeconds | None = None


class ActiveSessions(Aggregate[Session], pk="ACTIVE#{username}", type="active"):
    username: str
    sessions: Annotated[int, Count()] = 0

    @classmethod
    def group(cls, session: Session) -> Key["ActiveSessions"]:
        return cls.key(username=session.username)


def session_app(**options):
    app = App("sessions", table="Sessions", type_attribute="kind_of", **options)
    app.aggregate(ActiveSessions)
    return app


def create(world, name, keys, *, stream=True, ttl=None):
    body = {
        "TableName": name,
        "KeySchema": [{"AttributeName": n, "KeyType": k} for n, k, _ in keys],
        "AttributeDefinitions": [{"AttributeName": n, "AttributeType": t} for n, _, t in keys],
        "BillingMode": "PAY_PER_REQUEST",
    }
    if stream:
        view = {"StreamEnabled": True, "StreamViewType": "NEW_AND_OLD_IMAGES"}
        body["StreamSpecification"] = view
    assert world.engine.call("dynamodb", "CreateTable", body)[0] == 200
    if ttl:
        setting = {"Enabled": True, "AttributeName": ttl}
        body = {"TableName": name, "TimeToLiveSpecification": setting}
        assert world.engine.call("dynamodb", "UpdateTimeToLive", body)[0] == 200


def put(world, table, **item):
    wire = {name: {"N": str(v)} if isinstance(v, int) else {"S": v} for name, v in item.items()}
    status, body = world.engine.call("dynamodb", "PutItem", {"TableName": table, "Item": wire})
    assert status == 200, body


def counts(world, table, key):
    return {
        item[key]["S"].removeprefix("ACTIVE#"): int(item["sessions"]["N"])
        for item in world.items(table)
        if item[key].get("S", "").startswith("ACTIVE#")
    }


async def simple_keys(crash):
    world = World.create(5)
    create(world, "Sessions", [("SessionToken", "HASH", "S")], ttl="expires")
    now = int(EPOCH)
    for n in range(10):
        put(
            world, "Sessions", SessionToken=f"t{n}", token=f"t{n}", kind_of="session",
            username="ann" if n % 2 else "bob", expires=now - 5 if n < 4 else now + 999,
        )  # fmt: skip
    await world.run_worker(session_app(), process=Process("first", crash))
    assert world.control.expire("Sessions") == 4
    assert await world.run_worker(session_app())
    assert counts(world, "Sessions", "SessionToken") == {"ann": 3, "bob": 3}


def test_a_table_without_sort_key_counts_and_follows_expiries():
    run_virtually(simple_keys, None)


@pytest.mark.parametrize("call", range(3, 60, 8))
def test_a_table_without_sort_key_survives_a_crash(call):
    run_virtually(simple_keys, CrashPoint(call, "after"))


class Reading(Entity, pk="{sensor}", sk="{moment}", type="reading"):
    sensor: str
    moment: str
    room: str


class Readings(Aggregate[Reading], pk="{number}", sk="ROOM", type="readings"):
    number: str
    readings: Annotated[int, Count()] = 0

    @classmethod
    def group(cls, reading: Reading) -> Key["Readings"]:
        return cls.key(number=reading.room)


def numeric_app(**options):
    app = App("readings", table="Readings", type_attribute="kind_of", **options)
    app.aggregate(Readings)
    return app


async def numeric_keys(control_table):
    world = World.create(6)
    create(world, "Readings", [("id", "HASH", "N"), ("sort", "RANGE", "S")])
    create(world, "Control", [("name", "HASH", "S")], stream=False)
    for n in range(9):
        put(
            world, "Readings", id=n, sort="2026", sensor=str(n), moment="2026",
            kind_of="reading", room=str(900 + n % 2),
        )  # fmt: skip
    assert await world.run_worker(numeric_app(control_table=control_table))
    found = {
        item["id"]["N"]: int(item["readings"]["N"])
        for item in world.items("Readings")
        if "readings" in item
    }
    assert found == {"900": 5, "901": 4}
    assert not [item for item in world.items("Readings") if "_sk" in str(item)]
    assert [item for item in world.items("Control") if item["name"]["S"].startswith("_sk#")]


def test_a_numeric_partition_key_works_with_a_control_table():
    run_virtually(numeric_keys, "Control")


def test_a_numeric_partition_key_alone_says_what_to_do():
    with pytest.raises(ConfigurationError, match="control_table="):
        run_virtually(numeric_keys, None)


async def numeric_sort_key():
    world = World.create(8)
    create(world, "Sessions", [("SessionToken", "HASH", "S"), ("version", "RANGE", "N")])
    world.engine.call("dynamodb", "DescribeTable", {"TableName": "Sessions"})
    put(
        world,
        "Sessions",
        SessionToken="t1",
        version=1,
        kind_of="session",
        token="t1",
        username="ann",
    )

    class Versioned(Entity, pk="{token}", sk="{version}", type="session"):
        token: str
        username: str
        version: int = 1

    class Sessions(Aggregate[Versioned], pk="ACTIVE#{username}", sk="0", type="active"):
        username: str
        sessions: Annotated[int, Count()] = 0

        @classmethod
        def group(cls, session: Versioned) -> Key["Sessions"]:
            return cls.key(username=session.username)

    app = App("sessions", table="Sessions", type_attribute="kind_of")
    app.aggregate(Sessions)
    assert await world.run_worker(app)
    assert counts(world, "Sessions", "SessionToken") == {"ann": 1}


def test_a_numeric_sort_key_needs_no_control_table():
    run_virtually(numeric_sort_key)
