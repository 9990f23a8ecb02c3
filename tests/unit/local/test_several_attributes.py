"""Global indexes whose partition and sort keys have several attributes each.

The refusals of queries with gaps, and the limits of a key schema, are in the words in which AWS
gave them in October 2026. Those for a missing HASH attribute are known only by their beginning.
"""

import pytest

INVALID = "One or more parameter values were invalid: "
KEYS = (("HASH", "tournament", "region"), ("RANGE", "round", "bracket", "match"))
TYPES = {"tournament": "S", "region": "S", "round": "N", "bracket": "S", "match": "S"}
MATCHES = [
    # id, tournament, region, round, bracket, match
    ("1", "W", "EU", 10, "LOWER", "a"),
    ("2", "W", "EU", 9, "UPPER", "b"),
    ("3", "W", "EU", 9, "LOWER", "c"),
    ("4", "W", "EU", 9, "LOWER", "b"),
    ("5", "WE", "U", 1, "UPPER", "a"),
    ("6", "W", "NA", 1, "UPPER", "a"),
]


def several(*groups, name="by_round", projection="ALL"):
    return {
        "IndexName": name,
        "KeySchema": [
            {"AttributeName": attribute, "KeyType": kind}
            for kind, *attributes in groups
            for attribute in attributes
        ],
        "Projection": {"ProjectionType": projection},
    }


@pytest.fixture
def table(db, build):
    db.table(keys="id:S", types=TYPES, GlobalSecondaryIndexes=[several(*KEYS)])
    for names in MATCHES:
        keys = dict(zip(("id", *TYPES), names, strict=True))
        db("PutItem", TableName="table", Item=build.item(**keys, score=3))
    return "table"


def asked(build, text, **more):
    values = build.item(t="W", r="EU", n=9, m=10, b="LOWER", c="c", u="U", w="WE", p="L")
    return {
        "TableName": "table",
        "IndexName": "by_round",
        "KeyConditionExpression": text,
        "ExpressionAttributeNames": {"#r": "region"},
        "ExpressionAttributeValues": {
            f":{name}": value for name, value in values.items() if f":{name}" in text
        },
        **more,
    }


def ids(page):
    return "".join(item["id"]["S"] for item in page["Items"])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("tournament = :t AND #r = :r", "4321"),
        ("#r = :u AND tournament = :w", "5"),
        ("tournament = :t AND #r = :r AND round = :n", "432"),
        ("tournament = :t AND #r = :r AND round > :n", "1"),
        ("tournament = :t AND #r = :r AND round BETWEEN :n AND :m", "4321"),
        ("tournament = :t AND #r = :r AND round = :n AND bracket = :b", "43"),
        ("bracket = :b AND round = :n AND tournament = :t AND #r = :r", "43"),
        ("tournament = :t AND #r = :r AND round = :n AND bracket > :b", "2"),
        ("tournament = :t AND #r = :r AND round = :n AND bracket < :b", ""),
        ("tournament = :t AND #r = :r AND round = :n AND begins_with(bracket, :p)", "43"),
        ("tournament = :t AND #r = :r AND round = :n AND bracket = :b AND #m = :c", "3"),
    ],
)
def test_a_query_gives_the_partition_key_and_sort_attributes_from_the_left(
    db, build, table, text, expected
):
    request = asked(build, text)
    if "#m" in text:
        request["ExpressionAttributeNames"]["#m"] = "match"
    assert ids(db("Query", **request)) == expected
    assert ids(db("Query", **request, ScanIndexForward=False)) == expected[::-1]


EQUAL = (
    "RANGE key attributes {} must have equality conditions specified in the query because a "
    "condition is present on key attribute {}"
)
HASHES = "HASH key attributes {} must have equality conditions specified in the query"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("tournament = :t AND #r = :r AND bracket = :b", EQUAL.format("round", "bracket")),
        (
            "tournament = :t AND #r = :r AND round > :n AND bracket = :b",
            EQUAL.format("round", "bracket"),
        ),
        ("tournament = :t AND #r = :r AND #m = :c", EQUAL.format("round, bracket", "match")),
        ("tournament = :t", HASHES.format("region")),
        ("tournament = :t AND #r > :r", HASHES.format("region")),
        ("round = :n", HASHES.format("tournament, region")),
        ("tournament = :t AND #r = :r AND score = :n", "Query key condition not supported"),
        (
            "tournament = :t AND #r = :n",
            f"{INVALID}Condition parameter type does not match schema type",
        ),
    ],
)
def test_a_query_with_a_gap_is_refused(db, build, table, text, expected):
    request = asked(build, text)
    if "#m" in text:
        request["ExpressionAttributeNames"]["#m"] = "match"
    if "#r" not in text:
        del request["ExpressionAttributeNames"]
    assert db.invalid("Query", **request) == expected


def test_older_key_conditions_take_several_attributes_too(db, build, table):
    conditions = {
        name: {"ComparisonOperator": operator, "AttributeValueList": [build.value(value)]}
        for name, operator, value in (
            ("tournament", "EQ", "W"),
            ("region", "EQ", "EU"),
            ("round", "LT", 10),
        )
    }
    request = {"TableName": "table", "IndexName": "by_round", "KeyConditions": conditions}
    assert ids(db("Query", **request)) == "432"


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("limit", [1, 2, 3])
def test_pages_continue_after_a_key_with_all_attributes(db, build, table, limit, descending):
    more = {"Limit": limit, "ScanIndexForward": not descending}
    found = ""
    while True:
        page = db("Query", **asked(build, "tournament = :t AND #r = :r AND round = :n", **more))
        found += ids(page)
        if "LastEvaluatedKey" not in page:
            break
        assert page["LastEvaluatedKey"].keys() == {"id", *TYPES}
        more["ExclusiveStartKey"] = page["LastEvaluatedKey"]
    assert found == ("234" if descending else "432")
    scanned = db.everything(IndexName="by_round", Limit=limit)
    assert sorted(item["id"]["S"] for item in scanned) == list("123456")


def test_a_starting_key_that_lacks_an_attribute_is_refused(db, build, table):
    key = build.item(id="1", tournament="W", region="EU", round=9, bracket="LOWER")
    text = "tournament = :t AND #r = :r"
    request = asked(build, text, ExclusiveStartKey=key)
    assert db.invalid("Query", **request) == "The provided starting key is invalid"
    other = key | build.item(match="c", region="NA")
    assert db.invalid("Query", **asked(build, text, ExclusiveStartKey=other)) == (
        "The provided starting key is outside query boundaries based on provided conditions"
    )
    elsewhere = build.item(match="c", round=10, bracket="UPPER")
    for condition, start in (
        ("round > :n", build.item(match="c")),
        ("round = :n AND bracket > :b", elsewhere),
    ):
        within = asked(build, f"{text} AND {condition}", ExclusiveStartKey=key | start)
        assert db.invalid("Query", **within) == (
            "The provided starting key does not match the range key predicate"
        )
    within = asked(build, f"{text} AND round > :n", ExclusiveStartKey=key | build.item(match="c"))
    assert db.invalid("Query", **within) == (
        "The provided starting key does not match the range key predicate"
    )
    text = f"{text} AND round = :n AND bracket > :b"
    other = key | build.item(match="c", round=1, bracket="Z")
    assert db.invalid("Query", **asked(build, text, ExclusiveStartKey=other)) == (
        "The provided starting key does not match the range key predicate"
    )


@pytest.mark.parametrize("name", TYPES)
def test_an_item_that_lacks_an_attribute_is_not_in_the_index(db, build, table, name):
    request = {
        "TableName": "table",
        "Key": build.item(id="1"),
        "ExpressionAttributeNames": {"#n": name},
    }
    old = db("GetItem", TableName="table", Key=build.item(id="1"))["Item"]
    db("UpdateItem", **request, UpdateExpression="REMOVE #n")
    assert len(db.everything(IndexName="by_round")) == 5
    values = {":v": old[name]}
    db(
        "UpdateItem",
        **request,
        UpdateExpression="SET #n = :v",
        ExpressionAttributeValues=values,
    )
    assert len(db.everything(IndexName="by_round")) == 6


@pytest.mark.parametrize("name", TYPES)
def test_each_attribute_has_a_type_of_its_own(db, build, table, name):
    wrong = {"S": "x"} if TYPES[name] == "N" else {"N": "1"}
    message = db.invalid("PutItem", TableName="table", Item={"id": {"S": "7"}, name: wrong})
    assert message == (
        f"{INVALID}Type mismatch for Index Key {name} Expected: {TYPES[name]} "
        f"Actual: {next(iter(wrong))} IndexName: by_round"
    )


def test_an_attribute_of_the_queried_key_is_not_filtered(db, build, table):
    message = db.invalid(
        "Query", **asked(build, "tournament = :t AND #r = :r", FilterExpression="bracket = #r")
    )
    assert message == (
        "Filter Expression can only contain non-primary key attributes: Primary key attribute: "
        "bracket"
    )


@pytest.mark.parametrize(
    ("item", "expected"),
    [
        (
            {"tournament": "t" * 1024, "region": "r" * 1025},
            "Size of hashkey has exceeded the maximum size limit of2048 bytes",
        ),
        (
            {"bracket": "b" * 200, "match": "é" * 413},
            "Aggregated size of all range keys has exceeded the size limit of 1024 bytes",
        ),
    ],
)
def test_the_attributes_of_a_key_are_not_too_long_together(db, build, table, item, expected):
    shorter = {name: text[1:] for name, text in item.items()}
    db("PutItem", TableName="table", Item=build.item(id="7", **shorter))
    message = db.invalid("PutItem", TableName="table", Item=build.item(id="8", **item))
    assert message == f"{INVALID}{expected}"


def test_a_change_of_one_attribute_costs_a_removal_and_a_new_entry(db, build, table):
    def cost(**item):
        request = {"TableName": "table", "ReturnConsumedCapacity": "INDEXES"}
        keys = dict(zip(("id", *TYPES), MATCHES[0], strict=True)) | {"score": 3}
        reply = db("PutItem", **request, Item=build.item(**(keys | item)))
        indexes = reply["ConsumedCapacity"].get("GlobalSecondaryIndexes", {})
        return indexes.get("by_round", {}).get("CapacityUnits", 0)

    assert cost(score=4) == 1
    assert cost(score=4, bracket="UPPER") == 2
    assert cost(score=4, bracket="UPPER") == 0


def test_a_table_tells_the_attributes_of_an_index_in_their_order(db, table):
    (index,) = db("DescribeTable", TableName="table")["Table"]["GlobalSecondaryIndexes"]
    assert index["KeySchema"] == several(*KEYS)["KeySchema"]


def test_keys_alone_are_all_attributes_of_the_key(db, build):
    index = several(*KEYS, projection="KEYS_ONLY")
    db.table(keys="id:S", types=TYPES, GlobalSecondaryIndexes=[index])
    keys = dict(zip(("id", *TYPES), MATCHES[0], strict=True))
    db("PutItem", TableName="table", Item=build.item(**keys, score=3))
    assert db.everything(IndexName="by_round") == [build.item(**keys)]


MANY = "The KeySchema exceeds the maximum allowed number of {} key attributes"


@pytest.mark.parametrize(
    ("groups", "expected"),
    [
        ([("HASH", *"abcde")], INVALID + MANY.format("HASH")),
        ([("HASH", "a"), ("RANGE", *"bcdef")], INVALID + MANY.format("RANGE")),
        (
            [("HASH", "a"), ("RANGE", "b"), ("HASH", "c")],
            f"{INVALID}All HASH key attributes must precede RANGE key attributes in the KeySchema",
        ),
        (
            [("HASH", "a", "b"), ("RANGE", "a")],
            "The KeySchema contains multiple key attributes with the same name",
        ),
        (
            [("RANGE", "a", "b")],
            "Invalid KeySchema: The first KeySchemaElement is not a HASH key type",
        ),
    ],
)
def test_a_key_schema_that_cannot_be_is_refused(db, groups, expected):
    db.table(keys="id:S")
    names = list(dict.fromkeys(name for _, *attributes in groups for name in attributes))
    definitions = [{"AttributeName": name, "AttributeType": "S"} for name in names]
    request = {
        "TableName": "table",
        "AttributeDefinitions": definitions,
        "GlobalSecondaryIndexUpdates": [{"Create": several(*groups)}],
    }
    assert db.invalid("UpdateTable", **request) == expected
    definitions.append({"AttributeName": "id", "AttributeType": "S"})
    created = {
        "TableName": "other",
        "KeySchema": [{"AttributeName": "id", "KeyType": "HASH"}],
        "AttributeDefinitions": definitions,
        "BillingMode": "PAY_PER_REQUEST",
        "GlobalSecondaryIndexes": [several(*groups)],
    }
    assert db.invalid("CreateTable", **created) == expected


def test_four_attributes_of_each_kind_are_taken(db, build):
    db.table(
        keys="id:S",
        GlobalSecondaryIndexes=[several(("HASH", *"abcd"), ("RANGE", *"efgh"))],
    )
    db("PutItem", TableName="table", Item=build.item(id="1", **dict.fromkeys("abcdefgh", "x")))
    assert len(db.everything(IndexName="by_round")) == 1


@pytest.mark.parametrize("member", ["KeySchema", "LocalSecondaryIndexes"])
def test_tables_and_local_indexes_have_one_attribute_of_each_kind(db, build, member):
    keys = several(("HASH", "id"), ("RANGE", "a", "b"))
    request = {
        "TableName": "table",
        "KeySchema": build.schema("id", "a"),
        "AttributeDefinitions": [
            {"AttributeName": name, "AttributeType": "S"} for name in ("id", "a", "b")
        ],
        "BillingMode": "PAY_PER_REQUEST",
    }
    request[member] = keys["KeySchema"] if member == "KeySchema" else [keys]
    assert "Member must have length less than or equal to 2" in db.invalid("CreateTable", **request)


def test_a_new_index_with_several_attributes_needs_no_change_of_an_item(db, build):
    db.table(
        keys="id:S", StreamSpecification={"StreamEnabled": True, "StreamViewType": "NEW_IMAGE"}
    )
    for names in MATCHES:
        keys = dict(zip(("id", *TYPES), names, strict=True))
        db("PutItem", TableName="table", Item=build.item(**keys))
    before = db.records()
    db(
        "UpdateTable",
        TableName="table",
        AttributeDefinitions=[
            {"AttributeName": name, "AttributeType": kind} for name, kind in TYPES.items()
        ],
        GlobalSecondaryIndexUpdates=[{"Create": several(*KEYS)}],
    )
    assert ids(db("Query", **asked(build, "tournament = :t AND #r = :r"))) == "4321"
    assert db.records() == before
