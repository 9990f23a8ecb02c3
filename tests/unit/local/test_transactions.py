"""TransactWriteItems and TransactGetItems."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

STREAM = {"StreamSpecification": {"StreamEnabled": True, "StreamViewType": "NEW_AND_OLD_IMAGES"}}


@pytest.fixture
def table(db):
    return db.table(keys="pk:S", **STREAM)


def put(build, pk, **more):
    return {"Put": {"TableName": "table", "Item": build.item(pk=pk, **more)}}


def add(build, pk, **more):
    return {
        "Update": {
            "TableName": "table",
            "Key": build.item(pk=pk),
            "UpdateExpression": "ADD n :one",
            "ExpressionAttributeValues": {":one": {"N": "1"}},
            **more,
        }
    }


def check(build, pk, text="attribute_exists(pk)", **more):
    return {
        "ConditionCheck": {
            "TableName": "table",
            "Key": build.item(pk=pk),
            "ConditionExpression": text,
            **more,
        }
    }


def delete(build, pk, **more):
    return {"Delete": {"TableName": "table", "Key": build.item(pk=pk), **more}}


def cancelled(db, *actions, **more):
    payload = {"TransactItems": list(actions), **more}
    status, body = db.engine.call("dynamodb", "TransactWriteItems", payload)
    assert status == 400
    assert body["__type"] == "com.amazonaws.dynamodb.v20120810#TransactionCanceledException", body
    codes = ", ".join(reason["Code"] for reason in body["CancellationReasons"])
    assert body["Message"] == (
        f"Transaction cancelled, please refer cancellation reasons for specific reasons [{codes}]"
    )
    return body["CancellationReasons"]


def test_all_four_actions_are_carried_out_together(db, table, build):
    db.table("other")
    for pk in "bcd":
        db("PutItem", TableName="table", Item=build.item(pk=pk, n=1))
    body = db(
        "TransactWriteItems",
        TransactItems=[
            put(build, "a"),
            add(build, "b"),
            delete(build, "c"),
            check(build, "d"),
            {"Put": {"TableName": "other", "Item": build.item(pk="x", sk="y")}},
        ],
    )
    assert body == {}
    assert sorted(db.everything(), key=str) == sorted(
        [build.item(pk="a"), build.item(pk="b", n=2), build.item(pk="d", n=1)], key=str
    )
    assert len(db.everything("other")) == 1


def test_every_failed_condition_has_its_reason_in_its_position(db, table, build):
    for pk in "ab":
        db("PutItem", TableName="table", Item=build.item(pk=pk, n=1))
    reasons = cancelled(
        db,
        put(build, "new"),
        {
            "Put": put(build, "a")["Put"]
            | {
                "ConditionExpression": "attribute_not_exists(pk)",
                "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
            }
        },
        check(build, "none", ReturnValuesOnConditionCheckFailure="ALL_OLD"),
        check(build, "b", "attribute_not_exists(pk)"),
    )
    failed = {"Code": "ConditionalCheckFailed", "Message": "The conditional request failed"}
    assert cancelled(db, check(build, "a", "attribute_not_exists(pk)")) == [failed]
    old = {"Item": build.item(pk="a", n=1)}
    assert reasons == [{"Code": "None"}, failed | old, failed, failed]
    assert {item["pk"]["S"] for item in db.everything()} == {"a", "b"}
    assert len(db.records()) == 2


def test_conditions_see_the_items_before_the_transaction(db, table, build):
    db(
        "TransactWriteItems",
        TransactItems=[put(build, "a"), check(build, "b", "attribute_not_exists(pk)")],
    )
    reasons = cancelled(db, delete(build, "a"), check(build, "b"))
    assert [reason["Code"] for reason in reasons] == ["None", "ConditionalCheckFailed"]


@pytest.mark.parametrize(
    ("action", "message"),
    [
        (
            {"Put": {"TableName": "table", "Item": {"pk": {"N": "5"}}}},
            "One or more parameter values were invalid: Type mismatch for key pk expected: S actual: N",
        ),
        (
            {"Delete": {"TableName": "table", "Key": {"pk": {"N": "5"}}}},
            "The provided key element does not match the schema",
        ),
        (
            {
                "Update": {
                    "TableName": "table",
                    "Key": {"pk": {"S": "a"}},
                    "UpdateExpression": "SET n = n + :one",
                    "ExpressionAttributeValues": {":one": {"N": "1"}},
                }
            },
            "The provided expression refers to an attribute that does not exist in the item",
        ),
        (
            {
                "Update": {
                    "TableName": "table",
                    "Key": {"pk": {"S": "a"}},
                    "UpdateExpression": "SET x = :x",
                    "ExpressionAttributeValues": {":x": {"S": "x" * 409_600}},
                }
            },
            "Item size to update has exceeded the maximum allowed size",
        ),
    ],
)
def test_what_is_invalid_only_for_the_table_or_item_cancels(db, table, build, action, message):
    reasons = cancelled(db, action, put(build, "other"))
    assert reasons == [{"Code": "ValidationError", "Message": message}, {"Code": "None"}]
    assert db.everything() == []


def test_the_first_invalid_action_is_the_only_one_with_a_reason(db, table, build):
    """The service stops there: it does not say that conditions, before and after it, fail."""
    db("PutItem", TableName="table", Item=build.item(pk="a", n="text"))
    db("PutItem", TableName="table", Item=build.item(pk="b", n="text"))
    reasons = cancelled(
        db, check(build, "x"), add(build, "a"), check(build, "y"), add(build, "b"), put(build, "z")
    )
    codes = [reason["Code"] for reason in reasons]
    assert codes == ["None", "ValidationError", "None", "None", "None"]
    refused = cancelled(db, check(build, "x"), put(build, "z"), check(build, "y"))
    codes = [reason["Code"] for reason in refused]
    assert codes == ["ConditionalCheckFailed", "None", "ConditionalCheckFailed"]


@pytest.mark.parametrize(
    ("actions", "message"),
    [
        (
            [],
            (
                "1 validation error detected: Value '[]' at 'transactItems' failed to satisfy "
                "constraint: Member must have length greater than or equal to 1"
            ),
        ),
        ([{}], "TransactItems can only contain one of Check, Put, Update or Delete"),
        (
            [{"Put": {"TableName": "table", "Item": {"pk": {"S": ""}}}}],
            (
                "One or more parameter values are not valid. The AttributeValue for a key attribute "
                "cannot contain an empty string value. Key: pk"
            ),
        ),
        (
            [
                {
                    "Put": {
                        "TableName": "table",
                        "Item": {"pk": {"S": "a"}, "x": {"S": "x" * 409_600}},
                    }
                }
            ],
            "Item size has exceeded the maximum allowed size",
        ),
        (
            [{"ConditionCheck": {"TableName": "table", "Key": {"pk": {"S": "a"}}}}],
            (
                "1 validation error detected: Value null at 'conditionExpression' failed to satisfy "
                "constraint: Member must not be null"
            ),
        ),
    ],
)
def test_what_is_invalid_in_itself_is_refused_at_once(db, table, actions, message):
    assert db.invalid("TransactWriteItems", TransactItems=actions) == message


def test_the_same_key_in_two_tables_is_two_items(db, table, build):
    db.table("other", keys="pk:S")
    twice = [put(build, "a"), {"Put": put(build, "a")["Put"] | {"TableName": "other"}}]
    db("TransactWriteItems", TransactItems=twice)
    assert db.everything() == db.everything("other") == [build.item(pk="a")]


def test_no_item_occurs_twice(db, table, build):
    message = "Transaction request cannot include multiple operations on one item"
    actions = [put(build, "a"), check(build, "a")]
    assert db.invalid("TransactWriteItems", TransactItems=actions) == message
    gets = [{"Get": {"TableName": "table", "Key": build.item(pk="a")}}] * 2
    assert db.invalid("TransactGetItems", TransactItems=gets) == message


def test_equal_keys_in_two_tables_are_two_items(db, table, build):
    db.table("other", keys="pk:S")
    names = ("table", "other")
    actions = [{"Put": put(build, "a")["Put"] | {"TableName": name}} for name in names]
    db("TransactWriteItems", TransactItems=actions)
    gets = [{"Get": {"TableName": name, "Key": build.item(pk="a")}} for name in names]
    body = db("TransactGetItems", TransactItems=gets)
    assert body == {"Responses": [{"Item": build.item(pk="a")}] * 2}


def test_a_transaction_has_at_most_100_actions_and_4_mb(db, table, build):
    many = [put(build, f"{n}") for n in range(101)]
    message = db.invalid("TransactWriteItems", TransactItems=many)
    assert message.endswith(
        "at 'transactItems' failed to satisfy constraint: Member must have length less than or "
        "equal to 100"
    )
    db("TransactWriteItems", TransactItems=many[:100])
    rest = (4 << 20) - 10 * 409_600
    whole = [put(build, f"y{n}", x="x" * (409_600 - 5)) for n in range(10)]
    db("TransactWriteItems", TransactItems=[*whole, put(build, "yy", x="x" * (rest - 5))])
    more = [*whole, put(build, "yy", x="x" * (rest - 4))]
    assert "4 MB" in db.invalid("TransactWriteItems", TransactItems=more)
    large = [put(build, f"x{n}", x="x" * 380_000) for n in range(12)]
    assert "4 MB" in db.invalid("TransactWriteItems", TransactItems=large)
    db("TransactWriteItems", TransactItems=large[:11])
    db("PutItem", **large[11]["Put"])
    gets = [{"Get": {"TableName": "table", "Key": build.item(pk=f"x{n}")}} for n in range(12)]
    assert "4 MB" in db.invalid("TransactGetItems", TransactItems=gets)
    assert len(db("TransactGetItems", TransactItems=gets[:11])["Responses"]) == 11
    growing = [
        {
            "Update": {
                "TableName": "table",
                "Key": build.item(pk=f"x{n}"),
                "UpdateExpression": "SET y = :y",
                "ExpressionAttributeValues": {":y": {"S": "y" * 10_000}},
            }
        }
        for n in range(11)
    ]
    assert "4 MB" in db.invalid("TransactWriteItems", TransactItems=growing)


def test_a_table_that_is_not_there_is_not_found(db, build):
    expected = ("ResourceNotFoundException", "Requested resource not found")
    assert db.refused("TransactWriteItems", TransactItems=[put(build, "a")]) == expected
    gets = [{"Get": {"TableName": "table", "Key": build.item(pk="a")}}]
    assert db.refused("TransactGetItems", TransactItems=gets) == expected


def test_a_token_carries_out_a_transaction_once_in_ten_minutes(db, table, build):
    request = {
        "ClientRequestToken": "token",
        "TransactItems": [add(build, "a"), check(build, "b", "attribute_not_exists(pk)")],
    }
    db("TransactWriteItems", **request)
    db.now += 599
    repeated = db("TransactWriteItems", **request, ReturnConsumedCapacity="TOTAL")
    assert repeated["ConsumedCapacity"] == [
        {"TableName": "table", "CapacityUnits": 4.0, "ReadCapacityUnits": 4.0}
    ]
    assert db.everything() == [build.item(pk="a", n=1)]
    others = [add(build, "b")], [add(build, "c"), request["TransactItems"][1]]
    for other in (*others, [add(build, "a")], [add(build, "a"), check(build, "a")]):
        code, _ = db.refused("TransactWriteItems", ClientRequestToken="token", TransactItems=other)
        assert code == "IdempotentParameterMismatchException"
    db.now += 1
    assert len(db.engine.tokens) == 1
    db("TransactWriteItems", **request)
    assert db.everything() == [build.item(pk="a", n=2)]
    assert len(db.records()) == 2


def test_members_in_another_order_are_the_same_request(db, table, build):
    action = add(build, "a")
    turned = {"Update": dict(reversed(action["Update"].items()))}
    for each in (action, turned):
        db("TransactWriteItems", ClientRequestToken="token", TransactItems=[each])
    assert db.everything() == [build.item(pk="a", n=1)]


def test_a_cancelled_transaction_does_not_use_up_its_token(db, table, build):
    request = {"ClientRequestToken": "token", "TransactItems": [add(build, "a"), check(build, "b")]}
    cancelled(db, *request["TransactItems"], ClientRequestToken="token")
    db("PutItem", TableName="table", Item=build.item(pk="b"))
    db("TransactWriteItems", **request)
    assert build.item(pk="a", n=1) in db.everything()


def test_a_no_op_inside_a_transaction_leaves_no_record(db, table, build):
    db("PutItem", TableName="table", Item=build.item(pk="a", n=1))
    db(
        "TransactWriteItems",
        TransactItems=[
            put(build, "a", n={"N": "1.0"}),
            check(build, "a2", "attribute_not_exists(pk)"),
            delete(build, "gone"),
        ],
    )
    assert len(db.records()) == 1


def test_records_of_a_transaction_come_in_any_order(database, build):
    orders = set()
    for seed in range(30):
        db = database(seed)
        db.table(keys="pk:S", **STREAM)
        db("TransactWriteItems", TransactItems=[put(build, pk) for pk in "abc"])
        orders.add("".join(record["dynamodb"]["Keys"]["pk"]["S"] for record in db.records()))
    assert len(orders) == 6


def test_a_defect_in_the_middle_leaves_nothing_changed(db, build, monkeypatch):
    db.table(keys="pk:S", GlobalSecondaryIndexes=[build.gsi("gsi", "v")], **STREAM)
    db("PutItem", TableName="table", Item=build.item(pk="a", v="x"))
    table = db.engine.tables["table"]
    write = table.write

    def failing(key, *args, **options):
        if key["pk"]["S"] == "c":
            raise RuntimeError("defect")
        return write(key, *args, **options)

    monkeypatch.setattr(table, "write", failing)
    with pytest.raises(RuntimeError, match="defect"):
        db(
            "TransactWriteItems",
            TransactItems=[put(build, "a", v="y"), put(build, "b", v="y"), put(build, "c", v="y")],
        )
    assert db.everything() == [build.item(pk="a", v="x")]
    assert db.everything(IndexName="gsi") == [build.item(pk="a", v="x")]
    assert len(db.records()) == 1


def test_reads_of_a_transaction_come_in_the_order_asked_for(db, table, build):
    db("PutItem", TableName="table", Item=build.item(pk="a", n=1, m=2))
    get = {"TableName": "table", "Key": build.item(pk="a"), "ProjectionExpression": "n"}
    body = db(
        "TransactGetItems",
        TransactItems=[{"Get": {"TableName": "table", "Key": build.item(pk="b")}}, {"Get": get}],
    )
    assert body == {"Responses": [{}, {"Item": build.item(n=1)}]}
    status, body = db.engine.call(
        "dynamodb",
        "TransactGetItems",
        {"TransactItems": [{"Get": get}, {"Get": {"TableName": "table", "Key": {}}}]},
    )
    assert status == 400
    assert [reason["Code"] for reason in body["CancellationReasons"]] == ["None", "ValidationError"]


actions = st.lists(
    st.tuples(
        st.sampled_from(["put", "add", "delete", "check"]), st.sampled_from("abcd"), st.booleans()
    ),
    min_size=1,
    max_size=4,
    unique_by=lambda action: action[1],
)


@settings(deadline=None, max_examples=100)
@given(transactions=st.lists(actions, max_size=12))
def test_a_transaction_equals_its_actions_when_all_conditions_hold_and_nothing_else(
    database, build, transactions
):
    db = database()
    db.table(keys="pk:S", **STREAM)
    model: dict = {}
    for number, transaction in enumerate(transactions):
        wire = []
        for kind, pk, must_exist in transaction:
            action = {"put": put, "add": add, "delete": delete, "check": check}[kind](build, pk)
            ((_, body),) = action.items()
            if kind == "put":
                body["Item"]["v"] = {"N": str(number)}
            body["ConditionExpression"] = (
                "attribute_exists(pk)" if must_exist else "attribute_not_exists(pk)"
            )
            wire.append(action)
        holds = [(pk in model) is must_exist for _, pk, must_exist in transaction]
        if not all(holds):
            reasons = cancelled(db, *wire)
            assert [reason["Code"] == "None" for reason in reasons] == holds
            continue
        db("TransactWriteItems", TransactItems=wire)
        for kind, pk, _ in transaction:
            if kind == "put":
                model[pk] = build.item(pk=pk, v=number)
            elif kind == "delete":
                model.pop(pk, None)
            elif kind == "add":
                old = model.get(pk, build.item(pk=pk))
                model[pk] = old | {"n": {"N": str(int(old.get("n", {"N": "0"})["N"]) + 1)}}
    assert {item["pk"]["S"]: item for item in db.everything()} == model
