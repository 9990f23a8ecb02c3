"""GetItem, PutItem, UpdateItem and DeleteItem."""

import msgspec
import pytest


@pytest.fixture
def table(db):
    return db.table()


KEY = {"pk": {"S": "a"}, "sk": {"S": "b"}}


def test_an_item_that_is_put_is_read_back(db, table, build):
    stored = build.item(pk="a", sk="b", n="x", m={"M": {"l": {"L": [{"NULL": True}]}}})
    assert db("PutItem", TableName=table, Item=stored) == {}
    assert db("GetItem", TableName=table, Key=KEY) == {"Item": stored}
    assert db("GetItem", TableName=table, Key=build.item(pk="a", sk="c")) == {}
    arn = db.engine.tables[table].arn
    assert db("GetItem", TableName=arn, Key=KEY)["Item"] == stored


def test_numbers_are_stored_in_their_canonical_form(db, table, build):
    db("PutItem", TableName=table, Item=build.item(pk="a", sk="b", n={"N": "1.500E2"}))
    assert db("GetItem", TableName=table, Key=KEY)["Item"]["n"] == {"N": "150"}


def test_a_projection_picks_paths(db, table, build):
    db(
        "PutItem",
        TableName=table,
        Item=KEY | build.item(m={"M": {"x": {"S": "1"}, "y": {"S": "2"}}}),
    )
    found = db(
        "GetItem",
        TableName=table,
        Key=KEY,
        ProjectionExpression="m.#x, pk",
        ExpressionAttributeNames={"#x": "x"},
    )
    assert found["Item"] == {"m": {"M": {"x": {"S": "1"}}}, "pk": {"S": "a"}}
    old = db("GetItem", TableName=table, Key=KEY, AttributesToGet=["sk"])
    assert old["Item"] == {"sk": {"S": "b"}}


def test_returned_values_are_those_asked_for(db, table, build):
    put = db("PutItem", TableName=table, Item=KEY | build.item(n=1), ReturnValues="ALL_OLD")
    assert put == {}
    put = db("PutItem", TableName=table, Item=KEY | build.item(n=2), ReturnValues="ALL_OLD")
    assert put["Attributes"] == KEY | build.item(n=1)

    def update(wanted, text="SET n = n + :one, m = :one REMOVE gone"):
        return db(
            "UpdateItem",
            TableName=table,
            Key=KEY,
            UpdateExpression=text,
            ExpressionAttributeValues={":one": {"N": "1"}},
            ReturnValues=wanted,
        ).get("Attributes")

    assert update("UPDATED_OLD") == build.item(n=2)
    assert update("UPDATED_NEW") == build.item(n=4, m=1)
    assert update("ALL_OLD") == KEY | build.item(n=4, m=1)
    assert update("ALL_NEW") == KEY | build.item(n=6, m=1)
    assert update("NONE") is None
    gone = db("DeleteItem", TableName=table, Key=KEY, ReturnValues="ALL_OLD")
    assert gone["Attributes"] == KEY | build.item(n=7, m=1)
    assert db("DeleteItem", TableName=table, Key=KEY, ReturnValues="ALL_OLD") == {}


def test_an_update_makes_the_item_unless_it_only_removes(db, table, build):
    db("UpdateItem", TableName=table, Key=KEY, UpdateExpression="REMOVE a")
    assert db("GetItem", TableName=table, Key=KEY) == {}
    db(
        "UpdateItem",
        TableName=table,
        Key=KEY,
        UpdateExpression="DELETE a :s",
        ExpressionAttributeValues={":s": {"SS": ["x"]}},
    )
    assert db("GetItem", TableName=table, Key=KEY) == {}
    db("UpdateItem", TableName=table, Key=KEY)
    assert db("GetItem", TableName=table, Key=KEY) == {"Item": KEY}


def test_an_update_leaves_the_stored_item_as_it_was(db, table, build):
    db("PutItem", TableName=table, Item=KEY | build.item(m={"M": {"a": {"L": [{"N": "1"}]}}}))
    before = db("GetItem", TableName=table, Key=KEY)["Item"]
    copy = msgspec.json.decode(msgspec.json.encode(before))
    db(
        "UpdateItem",
        TableName=table,
        Key=KEY,
        UpdateExpression="SET m.a[0] = :v, m.b = :v",
        ExpressionAttributeValues={":v": {"N": "2"}},
    )
    assert before == copy
    assert db("GetItem", TableName=table, Key=KEY)["Item"] != copy


def test_a_failed_condition_changes_nothing_and_shows_the_item_when_asked(db, table, build):
    db("PutItem", TableName=table, Item=KEY | build.item(n=1))
    request = {
        "TableName": table,
        "Item": KEY | build.item(n=2),
        "ConditionExpression": "attribute_not_exists(pk)",
    }
    status, body = db.engine.call("dynamodb", "PutItem", request)
    assert (status, body["message"]) == (400, "The conditional request failed")
    assert body["__type"].endswith("#ConditionalCheckFailedException")
    assert "Item" not in body
    unasked = request | {"ReturnValuesOnConditionCheckFailure": "NONE"}
    assert "Item" not in db.engine.call("dynamodb", "PutItem", unasked)[1]
    asked = request | {"ReturnValuesOnConditionCheckFailure": "ALL_OLD"}
    assert db.engine.call("dynamodb", "PutItem", asked)[1]["Item"] == KEY | build.item(n=1)
    for operation, more in (
        ("DeleteItem", {}),
        ("UpdateItem", {"UpdateExpression": "REMOVE n"}),
    ):
        code, _ = db.refused(
            operation,
            TableName=table,
            Key=KEY,
            ConditionExpression="attribute_not_exists(n)",
            **more,
        )
        assert code == "ConditionalCheckFailedException"
    assert db("GetItem", TableName=table, Key=KEY)["Item"] == KEY | build.item(n=1)


def test_the_older_parameters_work(db, table, build):
    db("PutItem", TableName=table, Item=KEY, Expected={"pk": {"Exists": False}})
    code, _ = db.refused("PutItem", TableName=table, Item=KEY, Expected={"pk": {"Exists": False}})
    assert code == "ConditionalCheckFailedException"
    db(
        "UpdateItem",
        TableName=table,
        Key=KEY,
        AttributeUpdates={"n": {"Action": "ADD", "Value": {"N": "3"}}},
        Expected={"pk": {"ComparisonOperator": "EQ", "AttributeValueList": [{"S": "a"}]}},
    )
    assert db("GetItem", TableName=table, Key=KEY)["Item"]["n"] == {"N": "3"}
    message = db.invalid(
        "UpdateItem",
        TableName=table,
        Key=KEY,
        UpdateExpression="REMOVE n",
        AttributeUpdates={"n": {"Action": "DELETE"}},
    )
    assert message == (
        "Can not use both expression and non-expression parameters in the same request: "
        "Non-expression parameters: {AttributeUpdates} Expression parameters: {UpdateExpression}"
    )


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ({"pk": {"S": "a"}}, "The provided key element does not match the schema"),
        (KEY | {"x": {"S": "y"}}, "The provided key element does not match the schema"),
        (
            {"pk": {"S": "a"}, "sk": {"N": "1"}},
            "The provided key element does not match the schema",
        ),
        (
            {"pk": {"S": ""}, "sk": {"S": "b"}},
            (
                "One or more parameter values are not valid. The AttributeValue for a key attribute "
                "cannot contain an empty string value. Key: pk"
            ),
        ),
        (
            {"pk": {"S": "a" * 2049}, "sk": {"S": "b"}},
            (
                "One or more parameter values were invalid: Size of hashkey has exceeded the maximum "
                "size limit of2048 bytes"
            ),
        ),
        (
            {"pk": {"S": "a"}, "sk": {"S": "é" * 513}},
            (
                "One or more parameter values were invalid: Aggregated size of all range keys has "
                "exceeded the size limit of 1024 bytes"
            ),
        ),
    ],
)
@pytest.mark.parametrize("operation", ["GetItem", "DeleteItem", "UpdateItem"])
def test_a_key_must_match_the_schema(db, table, operation, key, message):
    assert db.invalid(operation, TableName=table, Key=key) == message


def test_keys_of_the_greatest_size_are_taken(db, table, build):
    db("PutItem", TableName=table, Item=build.item(pk="a" * 2048, sk="é" * 512))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"pk": {"S": "a"}},
            "One or more parameter values were invalid: Missing the key sk in the item",
        ),
        (
            {"pk": {"N": "5"}, "sk": {"S": "b"}},
            "One or more parameter values were invalid: Type mismatch for key pk expected: S actual: N",
        ),
        (
            KEY | {"g": {"N": "5"}},
            (
                "One or more parameter values were invalid: Type mismatch for Index Key g Expected: S "
                "Actual: N IndexName: first"
            ),
        ),
        (
            KEY | {"g": {"S": ""}},
            (
                "One or more parameter values are not valid. A value specified for a secondary index "
                "key is not supported. The AttributeValue for a key attribute cannot contain an empty "
                "string value. IndexName: first, IndexKey: g"
            ),
        ),
        (KEY | {"x": {"S": "x" * 409_600}}, "Item size has exceeded the maximum allowed size"),
        (
            KEY | {"x": {"SS": []}},
            "One or more parameter values were invalid: An string set  may not be empty",
        ),
    ],
)
def test_an_item_must_fit_the_table(db, build, given, message):
    db.table(GlobalSecondaryIndexes=[build.gsi("second", "g"), build.gsi("first", "g", "sk")])
    assert db.invalid("PutItem", TableName="table", Item=given) == message


def test_an_update_must_leave_an_item_that_fits_the_table(db, build):
    db.table(GlobalSecondaryIndexes=[build.gsi("index", "g")])

    def invalid(text, **values):
        return db.invalid(
            "UpdateItem",
            TableName="table",
            Key=KEY,
            UpdateExpression=text,
            ExpressionAttributeValues={f":{name}": raw for name, raw in values.items()},
        )

    assert invalid("SET g = :v", v={"N": "1"}) == (
        "One or more parameter values were invalid: Type mismatch for Index Key g Expected: S "
        "Actual: N IndexName: index"
    )
    assert invalid("SET g = :v", v={"S": ""}) == (
        "One or more parameter values are not valid. The update expression attempted to update a "
        "secondary index key to a value that is not supported. The AttributeValue for a key "
        "attribute cannot contain an empty string value."
    )
    assert invalid("SET sk = :v", v={"S": "x"}) == (
        "One or more parameter values were invalid: Cannot update attribute sk. This attribute is "
        "part of the key"
    )
    assert invalid("SET x = :v", v={"S": "x" * 409_600}) == (
        "Item size to update has exceeded the maximum allowed size"
    )
    assert db.everything() == []


@pytest.mark.parametrize("text", ["SET g.x = :v", "SET g[0] = :v", "REMOVE g.x", "ADD g.x :n"])
def test_an_update_does_not_look_into_a_key_of_an_index(db, build, text):
    """Not even where the item is not there, and a removal would do nothing."""
    db.table(GlobalSecondaryIndexes=[build.gsi("index", "g")])
    values = {":v": {"S": "x"}, ":n": {"N": "1"}}
    given = {name: raw for name, raw in values.items() if name in text}
    request = {"UpdateExpression": text} | ({"ExpressionAttributeValues": given} if given else {})
    assert db.invalid("UpdateItem", TableName="table", Key=KEY, **request) == (
        "Key attributes must be scalars; list random access '[]' and map lookup '.' are not "
        "allowed: IndexKey: g"
    )


def test_an_item_of_exactly_400_kb_is_taken(db, build):
    db.table(keys="pk:S")
    db("PutItem", TableName="table", Item={"pk": {"S": "a"}, "x": {"S": "x" * (409_600 - 4)}})
    db.invalid(
        "PutItem", TableName="table", Item={"pk": {"S": "a"}, "x": {"S": "x" * (409_600 - 3)}}
    )


def test_an_item_and_its_entries_in_local_indexes_have_400_kb_together(db, build):
    db.table(
        LocalSecondaryIndexes=[
            build.gsi("all", "pk", "v"),
            build.gsi("keys", "pk", "w", projection="KEYS_ONLY"),
        ],
        GlobalSecondaryIndexes=[build.gsi("gsi", "v")],
    )

    def put(size, **keys):
        return {"TableName": "table", "Item": KEY | build.item(x="x" * size, **keys)}

    # Key, "v" and the name of "x" have 6, 2 and 1 bytes, and are in the table and the first index.
    fits = 204_800 - 9
    db("PutItem", **put(fits, v="v"))
    message = "Item size has exceeded the maximum allowed size"
    assert db.invalid("PutItem", **put(fits + 1, v="v")) == message
    assert db.invalid("PutItem", **put(fits, v="v", w="w")) == message
    db("PutItem", **put(409_600 - 9 - 8, w="w"))  # 8 bytes are in the second index
    assert db.invalid("PutItem", **put(409_600 - 9 - 7, w="w")) == message
    grows = {"UpdateExpression": "SET v = :v", "ExpressionAttributeValues": {":v": {"S": "v"}}}
    assert db.invalid("UpdateItem", TableName="table", Key=KEY, **grows) == (
        "Item size to update has exceeded the maximum allowed size"
    )


@pytest.mark.parametrize(
    ("payload", "message"),
    [
        (
            {"Item": KEY},
            (
                "1 validation error detected: Value null at 'tableName' failed to satisfy constraint: "
                "Member must not be null"
            ),
        ),
        (
            {"TableName": "", "Item": KEY, "ReturnValues": "INVALID"},
            (
                "1 validation error detected: Value '' at 'tableName' failed to satisfy constraint: "
                "Member must have length greater than or equal to 1"
            ),
        ),
        (
            {"TableName": "bad table!@#", "Item": KEY},
            (
                "1 validation error detected: Value 'bad table!@#' at 'tableName' failed to satisfy "
                "constraint: Member must satisfy regular expression pattern: [a-zA-Z0-9_.-]+"
            ),
        ),
        (
            {"TableName": "table", "Item": KEY, "ReturnValues": "ALL_NEW"},
            "ReturnValues can only be ALL_OLD or NONE",
        ),
        (
            {"TableName": "table", "Item": KEY, "ExpressionAttributeValues": {":v": {"S": "x"}}},
            (
                "ExpressionAttributeValues can only be specified when using expressions: "
                "ConditionExpression is null"
            ),
        ),
        (
            {
                "TableName": "table",
                "Item": KEY,
                "ConditionExpression": "attribute_exists(pk)",
                "ExpressionAttributeNames": {"#x": "y"},
            },
            "Value provided in ExpressionAttributeNames unused in expressions: keys: {#x}",
        ),
    ],
)
def test_parameters_are_checked_before_anything_else(db, table, payload, message):
    assert db.invalid("PutItem", **payload) == message


def test_an_update_uses_all_its_placeholders(db, table):
    message = db.invalid(
        "UpdateItem",
        TableName=table,
        Key=KEY,
        UpdateExpression="SET n = :n",
        ExpressionAttributeValues={":n": {"N": "1"}, ":m": {"N": "1"}},
    )
    assert message == (
        "Value provided in ExpressionAttributeValues unused in expressions: keys: {:m}"
    )


def test_violations_are_reported_together(db, table):
    message = db.invalid(
        "PutItem",
        TableName="other",
        Item=KEY,
        ReturnConsumedCapacity="X",
        ReturnItemCollectionMetrics="Y",
        ReturnValues="Z",
    )
    assert message.startswith("3 validation errors detected: Value 'X' at 'returnConsumedCapacity'")
    assert message.count(";") == 2


def test_a_table_that_is_not_there_is_not_found(db):
    for operation, payload in (("GetItem", {"Key": KEY}), ("PutItem", {"Item": KEY})):
        refusal = db.refused(operation, TableName="other", **payload)
        assert refusal == ("ResourceNotFoundException", "Requested resource not found")


def test_values_of_the_wrong_json_type_are_a_serialization_exception(db, table):
    for payload in (
        {"TableName": 5, "Key": KEY},
        {"TableName": table, "Key": "x"},
        {"TableName": table, "Key": KEY, "ConsistentRead": "yes"},
    ):
        assert db.refused("GetItem", **payload)[0] == "SerializationException"


def test_an_unknown_operation_is_refused(db):
    assert db.refused("CreateBackup")[0] == "UnknownOperationException"
    assert db.engine.call("s3", "GetItem", {})[0] == 400


def test_the_engine_speaks_json_bytes(db, table):
    call = db.engine.call_bytes
    payload = msgspec.json.encode({"TableName": table, "Item": KEY})
    assert call("dynamodb", "PutItem", payload) == (200, b"{}")
    status, body = call("dynamodb", "GetItem", b"{")
    assert (status, msgspec.json.decode(body)["__type"]) == (
        400,
        "com.amazon.coral.service#SerializationException",
    )
    assert call("dynamodb", "ListTables", b"")[0] == 200
    assert call("dynamodb", "ListTables", b"[]")[0] == 400
    assert call("dynamodbstreams", "GetRecords", b"{}")[0] == 400


def test_observers_see_every_call_with_what_it_cost(db, table):
    seen = []
    db.engine.observers.append(seen.append)
    db("PutItem", TableName=table, Item=KEY)
    db.refused("PutItem", TableName=table, Item={})
    db("GetItem", TableName=table, Key=KEY, ConsistentRead=True)
    assert [(call.operation, call.status, call.units) for call in seen] == [
        ("PutItem", 200, {"read": 0.0, "write": 1.0}),
        ("PutItem", 400, {"read": 0.0, "write": 0.0}),
        ("GetItem", 200, {"read": 1.0, "write": 0.0}),
    ]
    assert seen[0].at == db.now
    assert seen[2].body == {"Item": KEY}
    db.engine.call_bytes("dynamodbstreams", "ListStreams", b"{}")
    assert seen[3].service == "dynamodbstreams"
    assert seen[3].body == {"Streams": []}


def test_collection_metrics_are_told_for_tables_with_local_indexes(db, build):
    db.table(LocalSecondaryIndexes=[build.gsi("lsi", "pk", "v")])
    db.table("plain")
    wanted = {"Item": KEY, "ReturnItemCollectionMetrics": "SIZE"}
    assert db("PutItem", TableName="table", **wanted)["ItemCollectionMetrics"] == {
        "ItemCollectionKey": {"pk": {"S": "a"}},
        "SizeEstimateRangeGB": [0.0, 1.0],
    }
    assert db("PutItem", TableName="plain", **wanted) == {}
