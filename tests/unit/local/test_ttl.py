"""Time to live."""

import pytest

DAY = 86_400
HOUR = 3600


@pytest.fixture
def table(db):
    db.table(StreamSpecification={"StreamEnabled": True, "StreamViewType": "OLD_IMAGE"})
    enable(db)
    return db.engine.tables["table"]


def enable(db, name="expires", *, enabled=True):
    wanted = {"AttributeName": name, "Enabled": enabled}
    body = db("UpdateTimeToLive", TableName="table", TimeToLiveSpecification=wanted)
    assert body == {"TimeToLiveSpecification": wanted}


def put(db, build, sk, expires):
    db("PutItem", TableName="table", Item=build.item(pk="a", sk=sk, expires=expires))


def left(db):
    return sorted(item["sk"]["S"] for item in db.everything())


def test_what_is_past_is_deleted_in_the_name_of_the_service(db, build, table):
    put(db, build, "past", int(db.now) - 1)
    put(db, build, "now", int(db.now))
    put(db, build, "future", int(db.now) + 1)
    before = len(db.records())
    assert db.engine.expire("table") == 2
    assert left(db) == ["future"]
    assert [
        (record["eventName"], record["userIdentity"], record["dynamodb"]["Keys"]["sk"]["S"])
        for record in db.records()[before:]
    ] == [
        ("REMOVE", {"Type": "Service", "PrincipalId": "dynamodb.amazonaws.com"}, sk)
        for sk in ("past", "now")
    ]
    db.now += 1
    assert db.engine.expire("table") == 1
    assert db.engine.expire("table") == 0


def test_what_is_no_number_of_the_last_five_years_never_expires(db, build, table):
    put(db, build, "text", {"S": str(int(db.now) - 5)})
    put(db, build, "map", {"M": {"N": {"N": "1"}}})
    put(db, build, "old", int(db.now) - 5 * 365 * DAY - 1)
    put(db, build, "zero", 0)
    put(db, build, "oldest", int(db.now) - 5 * 365 * DAY)
    assert db.engine.expire("table") == 1
    assert left(db) == ["map", "old", "text", "zero"]


def test_the_time_counts_that_is_stored_last(db, build, table):
    put(db, build, "kept", int(db.now) - 5)
    put(db, build, "kept", int(db.now) + 5)
    put(db, build, "cleared", int(db.now) - 5)
    db(
        "UpdateItem",
        TableName="table",
        Key=build.item(pk="a", sk="cleared"),
        UpdateExpression="REMOVE expires",
    )
    put(db, build, "gone", int(db.now) - 5)
    db("DeleteItem", TableName="table", Key=build.item(pk="a", sk="gone"))
    assert db.engine.expire("table") == 0


def test_items_stored_before_it_was_turned_on_expire_too(db, build):
    db.table()
    put(db, build, "past", int(db.now) - 1)
    assert db.engine.expire("table") == 0
    enable(db)
    assert db.engine.expire("table") == 1


def test_nothing_expires_once_it_is_off(db, build, table):
    put(db, build, "past", int(db.now) - 1)
    db.now += HOUR
    enable(db, enabled=False)
    assert db.engine.expire("table") == 0
    assert db("DescribeTimeToLive", TableName="table") == {
        "TimeToLiveDescription": {"TimeToLiveStatus": "DISABLED"}
    }


def test_the_setting_is_described(db, table):
    assert db("DescribeTimeToLive", TableName="table") == {
        "TimeToLiveDescription": {"TimeToLiveStatus": "ENABLED", "AttributeName": "expires"}
    }


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ({"AttributeName": "expires", "Enabled": True}, "TimeToLive is already enabled"),
        (
            {"AttributeName": "other", "Enabled": True},
            "TimeToLive is active on a different AttributeName: current AttributeName is expires",
        ),
        (
            {"AttributeName": "other", "Enabled": False},
            "TimeToLive is active on a different AttributeName: current AttributeName is expires",
        ),
        (
            {"AttributeName": "", "Enabled": True},
            (
                "1 validation error detected: Value '' at 'timeToLiveSpecification.attributeName' "
                "failed to satisfy constraint: Member must have length greater than or equal to 1"
            ),
        ),
        (
            {"AttributeName": "x"},
            (
                "1 validation error detected: Value null at 'timeToLiveSpecification.enabled' failed "
                "to satisfy constraint: Member must not be null"
            ),
        ),
    ],
)
def test_a_setting_that_changes_nothing_or_makes_no_sense_is_refused(db, table, wanted, message):
    request = {"TableName": "table", "TimeToLiveSpecification": wanted}
    assert db.invalid("UpdateTimeToLive", **request) == message


def test_turning_it_off_twice_is_refused(db):
    db.table()
    wanted = {"AttributeName": "expires", "Enabled": False}
    message = db.invalid("UpdateTimeToLive", TableName="table", TimeToLiveSpecification=wanted)
    assert message == "TimeToLive is already disabled"


def test_it_is_changed_once_an_hour(db, table):
    def switch(**wanted):
        return {"TableName": "table", "TimeToLiveSpecification": wanted}

    off = switch(AttributeName="expires", Enabled=False)
    on = switch(AttributeName="other", Enabled=True)
    db.now += HOUR - 1
    refusal = "Time to live has been modified multiple times within a fixed interval"
    assert db.invalid("UpdateTimeToLive", **off) == refusal
    db.now += 1  # what was refused does not count
    db("UpdateTimeToLive", **off)
    assert db.invalid("UpdateTimeToLive", **on) == refusal
    db.now += HOUR
    db("UpdateTimeToLive", **on)


def test_a_table_that_is_not_there_has_no_time_to_live(db):
    wanted = {"AttributeName": "expires", "Enabled": True}
    code, _ = db.refused("UpdateTimeToLive", TableName="none", TimeToLiveSpecification=wanted)
    assert code == "ResourceNotFoundException"
    assert db.refused("DescribeTimeToLive", TableName="none")[0] == "ResourceNotFoundException"


def test_expired_items_leave_the_indexes_and_cost_nothing(db, build):
    db.table(GlobalSecondaryIndexes=[build.gsi("gsi", "v")])
    enable(db)
    db("PutItem", TableName="table", Item=build.item(pk="a", sk="b", v="x", expires=int(db.now)))
    seen = []
    db.engine.observers.append(seen.append)
    assert db.engine.expire("table") == 1
    assert seen == []
    assert db.everything(IndexName="gsi") == []
