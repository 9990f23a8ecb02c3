"""What calls cost."""

import pytest

from streamkit.local.capacity import read_units, write_units


@pytest.mark.parametrize(
    ("size", "write", "eventual", "strong"),
    [(0, 1, 0.5, 1.0), (1, 1, 0.5, 1.0), (1024, 1, 0.5, 1.0), (1025, 2, 0.5, 1.0),
     (4096, 4, 0.5, 1.0), (4097, 5, 1.0, 2.0), (409_600, 400, 50.0, 100.0)],
)  # fmt: skip
def test_units_round_up_by_one_and_by_four_kilobytes(size, write, eventual, strong):
    assert write_units(size) == write
    assert read_units(size, consistent=False) == eventual
    assert read_units(size, consistent=True) == strong


def test_a_read_is_charged_for_a_missing_item_too(db, build):
    db.table()
    key = build.item(pk="a", sk="b")
    body = db("GetItem", TableName="table", Key=key, ReturnConsumedCapacity="TOTAL")
    assert body == {"ConsumedCapacity": {"TableName": "table", "CapacityUnits": 0.5}}
    db("PutItem", TableName="table", Item=key | build.item(x="x" * 5000))
    body = db(
        "GetItem",
        TableName="table",
        Key=key,
        ConsistentRead=True,
        ProjectionExpression="pk",
        ReturnConsumedCapacity="INDEXES",
    )
    assert body["ConsumedCapacity"] == {
        "TableName": "table",
        "CapacityUnits": 2.0,
        "Table": {"CapacityUnits": 2.0},
    }
    assert "ConsumedCapacity" not in db("GetItem", TableName="table", Key=key)


def test_a_write_is_charged_for_the_larger_image(db, build):
    db.table()
    key = build.item(pk="a", sk="b")

    def units(operation, **payload):
        body = db(operation, TableName="table", ReturnConsumedCapacity="TOTAL", **payload)
        return body["ConsumedCapacity"]["CapacityUnits"]

    assert units("DeleteItem", Key=key) == 1
    assert units("PutItem", Item=key | build.item(x="x" * 3000)) == 3
    assert units("PutItem", Item=key) == 3
    assert units("PutItem", Item=key) == 1
    big = {":x": {"S": "x" * 2000}}
    text = {"UpdateExpression": "SET x = :x", "ExpressionAttributeValues": big}
    assert units("UpdateItem", Key=key, **text) == 2
    assert units("DeleteItem", Key=key) == 2


def test_a_failed_condition_costs_what_the_stored_item_does(db, build):
    db.table()
    seen = []
    key = build.item(pk="a", sk="b")
    db("PutItem", TableName="table", Item=key | build.item(x="x" * 3000))
    db.engine.observers.append(seen.append)
    db.refused(
        "PutItem", TableName="table", Item=key, ConditionExpression="attribute_not_exists(pk)"
    )
    db.refused(
        "DeleteItem",
        TableName="table",
        Key=build.item(pk="a", sk="c"),
        ConditionExpression="attribute_exists(pk)",
    )
    assert [call.units["write"] for call in seen] == [3.0, 1.0]


@pytest.fixture
def indexed(db, build):
    db.table(
        GlobalSecondaryIndexes=[build.gsi("inc", "g", projection=["p"])],
        LocalSecondaryIndexes=[build.gsi("lsi", "pk", "l")],
    )
    return db


def arms(body):
    """Total, table, global and local units."""
    report = body["ConsumedCapacity"]
    index = [
        next(iter(report[title].values()))["CapacityUnits"] if title in report else None
        for title in ("GlobalSecondaryIndexes", "LocalSecondaryIndexes")
    ]
    return (report["CapacityUnits"], report["Table"]["CapacityUnits"], *index)


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        ({"g": "g1", "p": "p"}, (2, 1, 1, None)),
        ({"extra": "o"}, (1, 1, None, None)),
        ({"l": "l1"}, (2, 1, None, 1)),
        ({"g": "g1", "l": "l1", "p": "p"}, (3, 1, 1, 1)),
    ],
)
def test_a_put_is_charged_for_the_indexes_it_enters(indexed, build, attributes, expected):
    body = indexed(
        "PutItem",
        TableName="table",
        Item=build.item(pk="a", sk="1", **attributes),
        ReturnConsumedCapacity="INDEXES",
    )
    assert arms(body) == expected


FULL = {"g": "g1", "l": "l1", "p": "p", "extra": "o"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SET extra = :v", (2, 1, None, 1)),
        ("SET p = :v", (3, 1, 1, 1)),
        ("SET g = :v", (4, 1, 2, 1)),
        ("REMOVE g", (3, 1, 1, 1)),
        ("SET l = :v", (3, 1, None, 2)),
    ],
)
def test_an_update_is_charged_for_what_the_indexes_show_of_it(indexed, build, text, expected):
    indexed("PutItem", TableName="table", Item=build.item(pk="a", sk="1", **FULL))
    values = {"ExpressionAttributeValues": {":v": {"S": "new"}}} if ":v" in text else {}
    body = indexed(
        "UpdateItem",
        TableName="table",
        Key=build.item(pk="a", sk="1"),
        UpdateExpression=text,
        ReturnConsumedCapacity="INDEXES",
        **values,
    )
    assert arms(body) == expected


@pytest.mark.parametrize(("before", "after"), [(2500, 10), (10, 2500)])
def test_an_entry_of_an_index_is_charged_by_the_larger_of_its_two_sizes(
    indexed, build, before, after
):
    """Where its place changes, both are charged: one is removed, and one is made."""
    request = {"TableName": "table", "ReturnConsumedCapacity": "INDEXES"}

    def put(size, place="g1"):
        item = build.item(pk="a", sk="1", g=place, p="p" * size)
        return arms(indexed("PutItem", Item=item, **request))

    put(before)
    assert put(after) == (6, 3, 3, None)
    assert put(before, "g2") == (7, 3, 4, None)


def test_writing_the_same_again_and_deleting_are_charged_as_aws_does(indexed, build):
    request = {"TableName": "table", "ReturnConsumedCapacity": "INDEXES"}
    item = build.item(pk="a", sk="1", **FULL)
    assert arms(indexed("PutItem", Item=item, **request)) == (3, 1, 1, 1)
    assert arms(indexed("PutItem", Item=item, **request)) == (1, 1, None, None)
    key = build.item(pk="a", sk="1")
    assert arms(indexed("DeleteItem", Key=key, **request)) == (3, 1, 1, 1)


def test_a_page_is_charged_for_what_is_read_before_filter_and_projection(db, build):
    db.table()
    for n in range(6):
        db("PutItem", TableName="table", Item=build.item(pk="a", sk=f"{n}", x="x" * 2000))
    request = {
        "TableName": "table",
        "KeyConditionExpression": "pk = :p",
        "ReturnConsumedCapacity": "TOTAL",
    }

    def units(operation="Query", values=None, **more):
        values = {":p": {"S": "a"}} | (values or {})
        body = db(operation, **request, ExpressionAttributeValues=values, **more)
        return body["ConsumedCapacity"]["CapacityUnits"]

    assert units() == 1.5
    assert units(ConsistentRead=True) == 3
    assert units(FilterExpression="x = :x", values={":x": {"S": "none"}}) == 1.5
    assert units(ProjectionExpression="sk") == 1.5
    assert units(Select="COUNT") == 1.5
    assert units(Limit=1) == 0.5
    assert units(values={":p": {"S": "none"}}) == 0.5
    body = db("Scan", TableName="table", ReturnConsumedCapacity="TOTAL")
    assert body["ConsumedCapacity"]["CapacityUnits"] == 1.5


def test_reading_an_index_is_charged_to_it_and_fetching_to_the_table(db, build):
    db.table(LocalSecondaryIndexes=[build.gsi("lsi", "pk", "l", projection="KEYS_ONLY")])
    for n in range(3):
        item = build.item(pk="a", sk=f"{n}", l="x", big="x" * 4000)
        db("PutItem", TableName="table", Item=item)
    request = {
        "TableName": "table",
        "IndexName": "lsi",
        "KeyConditionExpression": "pk = :p",
        "ExpressionAttributeValues": {":p": {"S": "a"}},
        "ReturnConsumedCapacity": "INDEXES",
    }
    assert db("Query", **request)["ConsumedCapacity"] == {
        "TableName": "table",
        "CapacityUnits": 0.5,
        "Table": {"CapacityUnits": 0.0},
        "LocalSecondaryIndexes": {"lsi": {"CapacityUnits": 0.5}},
    }
    fetched = db("Query", **request, Select="ALL_ATTRIBUTES")["ConsumedCapacity"]
    assert fetched["CapacityUnits"] == 2.0
    assert fetched["Table"] == {"CapacityUnits": 1.5}


def test_transactions_cost_twice_and_tell_reads_from_writes(db, build):
    db.table()
    db("PutItem", TableName="table", Item=build.item(pk="a", sk="checked", x="x" * 1500))
    body = db(
        "TransactWriteItems",
        TransactItems=[
            {"Put": {"TableName": "table", "Item": build.item(pk="a", sk="b")}},
            {
                "ConditionCheck": {
                    "TableName": "table",
                    "Key": build.item(pk="a", sk="checked"),
                    "ConditionExpression": "attribute_exists(pk)",
                }
            },
        ],
        ReturnConsumedCapacity="INDEXES",
    )
    assert body["ConsumedCapacity"] == [
        {
            "TableName": "table",
            "CapacityUnits": 6.0,
            "WriteCapacityUnits": 6.0,
            "Table": {"CapacityUnits": 6.0, "WriteCapacityUnits": 6.0},
        }
    ]
    gets = [
        {"Get": {"TableName": "table", "Key": build.item(pk="a", sk=sk)}} for sk in ("b", "none")
    ]
    body = db("TransactGetItems", TransactItems=gets, ReturnConsumedCapacity="TOTAL")
    assert body["ConsumedCapacity"] == [
        {"TableName": "table", "CapacityUnits": 4.0, "ReadCapacityUnits": 4.0}
    ]


def test_a_cancelled_transaction_is_charged(db, build):
    db.table()
    seen = []
    db.engine.observers.append(seen.append)
    put = {
        "TableName": "table",
        "Item": build.item(pk="a", sk="b"),
        "ConditionExpression": "attribute_exists(pk)",
    }
    db.refused("TransactWriteItems", TransactItems=[{"Put": put}])
    assert seen[0].units == {"read": 0.0, "write": 2.0}


def test_batches_report_each_table(db, build):
    db.table("one", keys="pk:S")
    db.table("two", keys="pk:S")
    put = {"PutRequest": {"Item": build.item(pk="a")}}
    another = {"PutRequest": {"Item": build.item(pk="b", x="x" * 1500)}}
    body = db(
        "BatchWriteItem",
        RequestItems={"one": [put, another], "two": [put]},
        ReturnConsumedCapacity="TOTAL",
    )
    assert body["ConsumedCapacity"] == [
        {"TableName": "one", "CapacityUnits": 3.0},
        {"TableName": "two", "CapacityUnits": 1.0},
    ]
    body = db(
        "BatchGetItem",
        RequestItems={
            "one": {"Keys": [build.item(pk=pk) for pk in "abc"]},
            "two": {"Keys": [build.item(pk="a")], "ConsistentRead": True},
        },
        ReturnConsumedCapacity="TOTAL",
    )
    assert body["ConsumedCapacity"] == [
        {"TableName": "one", "CapacityUnits": 1.5},
        {"TableName": "two", "CapacityUnits": 1.0},
    ]
