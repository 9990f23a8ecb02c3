"""BatchGetItem and BatchWriteItem."""

import pytest


@pytest.fixture
def table(db):
    return db.table(keys="pk:S")


def put(build, *names):
    return [{"PutRequest": {"Item": build.item(pk=name)}} for name in names]


def test_what_is_written_in_a_batch_is_read_in_a_batch(db, table, build):
    db.table("other")
    body = db(
        "BatchWriteItem",
        RequestItems={
            "table": put(build, "a", "b"),
            "other": [{"PutRequest": {"Item": build.item(pk="x", sk="y", v="z")}}],
        },
    )
    assert body == {"UnprocessedItems": {}}
    body = db(
        "BatchGetItem",
        RequestItems={
            "table": {"Keys": [build.item(pk=name) for name in "cab"], "ConsistentRead": True},
            "other": {
                "Keys": [build.item(pk="x", sk="y")],
                "ProjectionExpression": "#v",
                "ExpressionAttributeNames": {"#v": "v"},
            },
        },
    )
    body["Responses"]["table"].sort(key=str)
    assert body == {
        "Responses": {
            "table": [build.item(pk="a"), build.item(pk="b")],
            "other": [build.item(v="z")],
        },
        "UnprocessedKeys": {},
    }
    db("BatchWriteItem", RequestItems={"table": [{"DeleteRequest": {"Key": build.item(pk="a")}}]})
    assert db.everything() == [build.item(pk="b")]


def test_more_than_16_mb_leave_unprocessed_keys(db, table, build):
    for n in range(45):
        db("PutItem", TableName="table", Item=build.item(pk=f"{n}", x="x" * 400_000))
    request = {"Keys": [build.item(pk=f"{n}") for n in range(45)], "ConsistentRead": True}
    found = 0
    rounds = 0
    while request:
        body = db("BatchGetItem", RequestItems={"table": request})
        found += len(body["Responses"]["table"])
        rounds += 1
        request = body["UnprocessedKeys"].get("table")
        assert request is None or request["ConsistentRead"] is True
    assert (found, rounds) == (45, 2)


def test_more_than_1_mb_of_a_partition_leaves_unprocessed_keys(db, build):
    db.table(keys="pk:S sk:N")
    keys = [build.item(pk=pk, sk=sk) for sk in range(3) for pk in "ab"]
    for key in keys:
        db("PutItem", TableName="table", Item=key | {"x": {"S": "x" * 400_000}})
    body = db("BatchGetItem", RequestItems={"table": {"Keys": keys}})
    left = body["UnprocessedKeys"]["table"]["Keys"]
    assert sorted(key["pk"]["S"] for key in left) == ["a", "b"]
    rest = db("BatchGetItem", RequestItems=body["UnprocessedKeys"])
    assert rest["UnprocessedKeys"] == {}
    items = body["Responses"]["table"] + rest["Responses"]["table"]
    found = [{name: item[name] for name in ("pk", "sk")} for item in items]
    assert sorted(found, key=str) == sorted(keys, key=str)


@pytest.mark.parametrize("one_partition", [True, False])
def test_items_of_a_batch_do_not_come_in_the_order_asked_for(db, build, one_partition):
    db.table()
    keys = [build.item(pk="a" if one_partition else f"{n}", sk=f"{n}") for n in range(9)]
    for key in keys:
        db("PutItem", TableName="table", Item=key)
    for asked in (keys, keys[::-1]):
        body = db("BatchGetItem", RequestItems={"table": {"Keys": asked}})
        items = body["Responses"]["table"]
        assert items not in (keys, keys[::-1])
        assert sorted(items, key=str) == sorted(keys, key=str)


def test_a_batch_that_is_invalid_anywhere_writes_nothing(db, table, build):
    message = db.invalid(
        "BatchWriteItem",
        RequestItems={
            "table": [*put(build, "a"), {"PutRequest": {"Item": build.item(pk={"N": "1"})}}]
        },
    )
    assert message == "The provided key element does not match the schema"
    assert db.everything() == []


@pytest.mark.parametrize(
    ("items", "message"),
    [
        ({}, "The requestItems parameter is required for BatchWriteItem"),
        (
            {"table": [{"DeleteRequest": {"Key": {"pk": {"S": ""}}}}]},
            (
                "One or more parameter values are not valid. The AttributeValue for a key attribute "
                "cannot contain an empty string value. Key: pk"
            ),
        ),
        (
            {
                "table": [
                    {"PutRequest": {"Item": {"pk": {"S": "a"}}}},
                    {"DeleteRequest": {"Key": {"pk": {"S": "a"}}}},
                ]
            },
            "Provided list of item keys contains duplicates",
        ),
        (
            {
                "table": [
                    {
                        "PutRequest": {"Item": {"pk": {"S": "a"}}},
                        "DeleteRequest": {"Key": {"pk": {"S": "a"}}},
                    }
                ]
            },
            (
                "Supplied AttributeValue has more than one datatypes set, must contain exactly one of "
                "the supported datatypes"
            ),
        ),
        (
            {"table": [{"PutRequest": {"Item": {"pk": {"S": "a"}, "x": {"S": "x" * 409_600}}}}]},
            "Item size has exceeded the maximum allowed size",
        ),
    ],
)
def test_a_write_batch_that_makes_no_sense_is_refused(db, table, items, message):
    assert db.invalid("BatchWriteItem", RequestItems=items) == message


def test_a_write_batch_has_at_most_25_requests(db, table, build):
    db.table("other", keys="pk:S")
    many = put(build, *map(str, range(26)))
    message = db.invalid("BatchWriteItem", RequestItems={"table": many})
    assert message.startswith("1 validation error detected: Value '{table=[")
    assert message.endswith(
        "}' at 'requestItems' failed to satisfy constraint: Map value must satisfy constraint: "
        "[Member must have length less than or equal to 25, Member must have length greater than "
        "or equal to 1]"
    )
    message = db.invalid("BatchWriteItem", RequestItems={"table": many[:13], "other": many[:13]})
    assert message == "Too many items requested for the BatchWriteItem call"
    db("BatchWriteItem", RequestItems={"table": many[:25]})


def test_a_read_batch_has_at_most_100_keys_that_all_differ(db, table, build):
    db.table("other", keys="pk:S")
    keys = [build.item(pk=f"{n}") for n in range(101)]
    assert db.invalid("BatchGetItem", RequestItems={"table": {"Keys": keys}}) == (
        "1 validation error detected: Value at 'RequestItems.table.member.Keys' failed to satisfy "
        "constraint: Member must have length less than or equal to 100"
    )
    halves = {"table": {"Keys": keys[:51]}, "other": {"Keys": keys[:51]}}
    assert db.invalid("BatchGetItem", RequestItems=halves) == (
        "Too many items requested for the BatchGetItem call"
    )
    assert db.invalid("BatchGetItem", RequestItems={"table": {"Keys": keys[:1] * 2}}) == (
        "Provided list of item keys contains duplicates"
    )
    assert db.invalid("BatchGetItem", RequestItems={}) == (
        "The requestItems parameter is required for BatchGetItem"
    )


def test_old_and_new_projections_do_not_mix_over_tables(db, table, build):
    db.table("other", keys="pk:S")
    message = db.invalid(
        "BatchGetItem",
        RequestItems={
            "table": {"Keys": [build.item(pk="a")], "ProjectionExpression": "pk"},
            "other": {"Keys": [build.item(pk="a")], "AttributesToGet": ["pk"]},
        },
    )
    assert message.startswith("Can not use both expression and non-expression parameters")


def test_a_table_that_is_not_there_is_not_found(db, build):
    expected = ("ResourceNotFoundException", "Requested resource not found")
    assert db.refused("BatchWriteItem", RequestItems={"none": put(build, "a")}) == expected
    keys = {"none": {"Keys": [build.item(pk="a")]}}
    assert db.refused("BatchGetItem", RequestItems=keys) == expected


def test_metrics_are_told_once_per_collection(db, build):
    db.table(LocalSecondaryIndexes=[build.gsi("lsi", "pk", "v")])
    writes = [{"PutRequest": {"Item": build.item(pk="a", sk=sk)}} for sk in "xy"]
    body = db("BatchWriteItem", RequestItems={"table": writes}, ReturnItemCollectionMetrics="SIZE")
    assert [m["ItemCollectionKey"] for m in body["ItemCollectionMetrics"]["table"]] == [
        {"pk": {"S": "a"}}
    ]
