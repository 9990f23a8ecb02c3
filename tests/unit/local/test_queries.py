"""Query, of tables and of indexes."""

from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st


@pytest.fixture
def table(db, build):
    db.table(
        keys="pk:S sk:N",
        GlobalSecondaryIndexes=[
            build.gsi("all", "g", "sk"),
            build.gsi("keys", "g", projection="KEYS_ONLY"),
            build.gsi("some", "g", projection=["v"]),
        ],
        LocalSecondaryIndexes=[build.gsi("local", "pk", "v", projection="KEYS_ONLY")],
    )
    for n in (3, 1, 2, 10, -5):
        db("PutItem", TableName="table", Item=build.item(pk="a", sk=n, v=f"v{n}", w="w", g="x"))
    db("PutItem", TableName="table", Item=build.item(pk="b", sk=1))
    return "table"


def query(db, text="pk = :p", more=None, **options):
    values = {":p": {"S": "a"}} | (more or {})
    return db(
        "Query",
        TableName="table",
        KeyConditionExpression=text,
        ExpressionAttributeValues=values,
        **options,
    )


def numbers(page):
    return [int(item["sk"]["N"]) for item in page["Items"]]


def test_a_query_gives_a_partition_in_the_order_of_numbers_or_backwards(db, table):
    page = query(db)
    assert (page["Count"], page["ScannedCount"]) == (5, 5)
    assert "LastEvaluatedKey" not in page
    assert numbers(page) == [-5, 1, 2, 3, 10]
    assert numbers(query(db, ScanIndexForward=False)) == [10, 3, 2, 1, -5]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("sk = :n", [2]),
        ("sk < :n", [-5, 1]),
        ("sk <= :n", [-5, 1, 2]),
        ("sk > :n", [3, 10]),
        ("sk >= :n", [2, 3, 10]),
        ("sk BETWEEN :n AND :n", [2]),
    ],
)
def test_a_condition_on_the_sort_key_is_a_range(db, table, text, expected):
    assert numbers(query(db, f"pk = :p AND {text}", {":n": {"N": "2"}})) == expected


def test_older_key_conditions_and_filters_work(db, table):
    page = db(
        "Query",
        TableName="table",
        KeyConditions={
            "pk": {"ComparisonOperator": "EQ", "AttributeValueList": [{"S": "a"}]},
            "sk": {"ComparisonOperator": "GT", "AttributeValueList": [{"N": "1"}]},
        },
        QueryFilter={"v": {"ComparisonOperator": "NE", "AttributeValueList": [{"S": "v3"}]}},
        AttributesToGet=["sk"],
    )
    assert page["Items"] == [{"sk": {"N": "2"}}, {"sk": {"N": "10"}}]
    assert page["ScannedCount"] == 3


def test_a_filter_counts_what_it_leaves_out(db, table):
    page = query(db, FilterExpression="v <> :v", more={":v": {"S": "v3"}})
    assert (numbers(page), page["Count"], page["ScannedCount"]) == ([-5, 1, 2, 10], 4, 5)
    counted = query(db, FilterExpression="v <> :v", more={":v": {"S": "v3"}}, Select="COUNT")
    assert counted == {"Count": 4, "ScannedCount": 5}


def test_a_limit_counts_items_before_the_filter(db, table):
    page = query(db, FilterExpression="v = :v", more={":v": {"S": "v3"}}, Limit=2)
    assert (page["Items"], page["ScannedCount"]) == ([], 2)
    assert page["LastEvaluatedKey"] == {"pk": {"S": "a"}, "sk": {"N": "1"}}


def test_pages_end_at_the_limit_and_resume_behind_an_item_that_is_gone(db, table):
    page = query(db, Limit=2)
    assert page["LastEvaluatedKey"] == {"pk": {"S": "a"}, "sk": {"N": "1"}}
    db("DeleteItem", TableName="table", Key=page["LastEvaluatedKey"])
    page = query(db, Limit=2, ExclusiveStartKey=page["LastEvaluatedKey"])
    assert numbers(page) == [2, 3]
    page = query(db, Limit=2, ExclusiveStartKey=page["LastEvaluatedKey"])
    assert numbers(page) == [10]
    assert "LastEvaluatedKey" not in page
    assert "LastEvaluatedKey" in query(db, Limit=4)


def test_pages_backwards_meet_every_item_once(db, table):
    found, key = [], {}
    while key is not None:
        page = query(db, Limit=2, ScanIndexForward=False, **key)
        found += numbers(page)
        last = page.get("LastEvaluatedKey")
        key = None if last is None else {"ExclusiveStartKey": last}
    assert found == [10, 3, 2, 1, -5]


def test_a_page_ends_before_it_is_over_one_megabyte(db, build):
    db.table(keys="pk:S sk:N")
    for n in range(5):
        db("PutItem", TableName="table", Item=build.item(pk="a", sk=n, x="x" * 300_000))
    page = query(db)
    assert numbers(page) == [0, 1, 2]
    assert page["LastEvaluatedKey"] == {"pk": {"S": "a"}, "sk": {"N": "2"}}
    assert len(db.everything()) == 5


def test_a_page_of_an_index_holds_one_megabyte_of_what_it_projects(db, build):
    db.table(
        keys="pk:S sk:N",
        GlobalSecondaryIndexes=[build.gsi("keys", "pk", "sk", projection="KEYS_ONLY")],
        types={"sk": "N"},
    )
    for n in range(5):
        db("PutItem", TableName="table", Item=build.item(pk="a", sk=n, x="x" * 300_000))
    assert numbers(query(db, IndexName="keys")) == [0, 1, 2, 3, 4]


def test_indexes_show_what_they_project(db, table):
    def names(index, **options):
        page = db(
            "Query",
            TableName="table",
            IndexName=index,
            KeyConditionExpression="g = :g",
            ExpressionAttributeValues={":g": {"S": "x"}},
            **options,
        )
        assert page["Count"] == 5
        return set(page["Items"][0])

    assert names("all") == {"pk", "sk", "g", "v", "w"}
    assert names("keys") == {"pk", "sk", "g"}
    assert names("some") == {"pk", "sk", "g", "v"}
    assert names("some", Select="ALL_PROJECTED_ATTRIBUTES") == {"pk", "sk", "g", "v"}
    assert names("some", ProjectionExpression="v") == {"v"}


def test_a_local_index_fetches_what_it_does_not_project(db, table):
    page = query(db, IndexName="local", ConsistentRead=True)
    assert [item["v"]["S"] for item in page["Items"]] == ["v-5", "v1", "v10", "v2", "v3"]
    assert set(page["Items"][0]) == {"pk", "sk", "v"}
    page = query(db, IndexName="local", Select="ALL_ATTRIBUTES")
    assert set(page["Items"][0]) == {"pk", "sk", "v", "w", "g"}
    page = query(db, IndexName="local", ProjectionExpression="w")
    assert page["Items"][0] == {"w": {"S": "w"}}
    page = query(db, IndexName="local", FilterExpression="w = :w", more={":w": {"S": "w"}})
    assert page["Count"] == 5


@pytest.mark.parametrize("index", ["local", "global"])
def test_equal_keys_of_an_index_are_in_no_order(db, build, index):
    db.table(
        GlobalSecondaryIndexes=[build.gsi("global", "g")],
        LocalSecondaryIndexes=[build.gsi("local", "pk", "g")],
    )
    keys = [f"{n}" for n in range(9)]
    for sk in keys:
        db("PutItem", TableName="table", Item=build.item(pk="a", sk=sk, g="same"))
    wanted = {"global": "g = :g", "local": "pk = :p AND g = :g"}[index]
    values = {":g": {"S": "same"}} | ({":p": {"S": "a"}} if index == "local" else {})
    request = {
        "TableName": "table",
        "IndexName": index,
        "KeyConditionExpression": wanted,
        "ExpressionAttributeValues": values,
    }
    found = [item["sk"]["S"] for item in db("Query", **request)["Items"]]
    assert found not in (keys, keys[::-1])
    assert sorted(found) == keys
    back = db("Query", **request, ScanIndexForward=False)["Items"]
    assert [item["sk"]["S"] for item in back] == found[::-1]


def test_pages_of_an_index_resume_among_equal_keys(db, table):
    for index, size in (("keys", {"pk", "sk", "g"}), ("all", {"pk", "sk", "g"})):
        found, key = [], {}
        while key is not None:
            page = db(
                "Query",
                TableName="table",
                IndexName=index,
                KeyConditionExpression="g = :g",
                ExpressionAttributeValues={":g": {"S": "x"}},
                Limit=1,
                **key,
            )
            found += numbers(page)
            last = page.get("LastEvaluatedKey")
            assert last is None or set(last) == size
            key = None if last is None else {"ExclusiveStartKey": last}
        assert sorted(found) == [-5, 1, 2, 3, 10]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"KeyConditionExpression": None},
            "Either the KeyConditions or KeyConditionExpression parameter must be specified in the request.",
        ),
        (
            {"Limit": 0},
            (
                "1 validation error detected: Value at 'Limit' failed to satisfy constraint: Member "
                "must have value greater than or equal to 1"
            ),
        ),
        ({"IndexName": "none"}, "The table does not have the specified index: none"),
        (
            {"IndexName": "all", "ConsistentRead": True},
            "Consistent reads are not supported on global secondary indexes",
        ),
        (
            {"Select": "INVALID"},
            (
                "1 validation error detected: Value 'INVALID' at 'select' failed to satisfy "
                "constraint: Member must satisfy enum value set: [SPECIFIC_ATTRIBUTES, COUNT, "
                "ALL_ATTRIBUTES, ALL_PROJECTED_ATTRIBUTES]"
            ),
        ),
        (
            {"Select": "ALL_PROJECTED_ATTRIBUTES"},
            "ALL_PROJECTED_ATTRIBUTES can be used only when Querying using an IndexName",
        ),
        (
            {"Select": "SPECIFIC_ATTRIBUTES"},
            (
                "Must specify the AttributesToGet or ProjectionExpression when choosing to get "
                "SPECIFIC_ATTRIBUTES"
            ),
        ),
        (
            {"Select": "ALL_ATTRIBUTES", "ProjectionExpression": "sk"},
            "Cannot specify the ProjectionExpression when choosing to get ALL_ATTRIBUTES",
        ),
        (
            {"Select": "COUNT", "ProjectionExpression": "sk"},
            "Cannot specify the ProjectionExpression when choosing to get only the Count",
        ),
        (
            {"FilterExpression": "sk = :p"},
            "Filter Expression can only contain non-primary key attributes: Primary key attribute: sk",
        ),
        (
            {"ExclusiveStartKey": {"pk": {"S": "a"}}},
            "The provided starting key is invalid",
        ),
        (
            {"ExclusiveStartKey": {"pk": {"S": "a"}, "sk": {"N": "1"}, "v": {"S": "v1"}}},
            "The provided starting key is invalid",
        ),
        (
            {"ExclusiveStartKey": {"pk": {"S": "a"}, "sk": {"S": "x"}}},
            "The provided starting key is invalid: The provided key element does not match the schema",
        ),
        (
            {"ExclusiveStartKey": {"pk": {"S": "b"}, "sk": {"N": "1"}}},
            "The provided starting key is outside query boundaries based on provided conditions",
        ),
        (
            {"KeyConditionExpression": "sk = :p"},
            "Query condition missed key schema element: pk",
        ),
    ],
)
def test_a_query_that_makes_no_sense_is_refused(db, table, options, message):
    request = {
        "TableName": "table",
        "KeyConditionExpression": "pk = :p",
        "ExpressionAttributeValues": {":p": {"S": "a"}},
    }
    assert db.invalid("Query", **request | options) == message


def test_a_starting_key_outside_the_range_is_refused(db, table):
    message = db.invalid(
        "Query",
        TableName="table",
        KeyConditionExpression="pk = :p AND sk > :n",
        ExpressionAttributeValues={":p": {"S": "a"}, ":n": {"N": "5"}},
        ExclusiveStartKey={"pk": {"S": "a"}, "sk": {"N": "1"}},
    )
    assert message == "The provided starting key does not match the range key predicate"


def test_a_global_index_gives_only_what_it_has(db, table):
    request = {
        "TableName": "table",
        "IndexName": "some",
        "KeyConditionExpression": "g = :g",
        "ExpressionAttributeValues": {":g": {"S": "x"}},
    }
    assert db.invalid("Query", **request, Select="ALL_ATTRIBUTES") == (
        "One or more parameter values were invalid: Select type ALL_ATTRIBUTES is not supported "
        "for global secondary index some because its projection type is not ALL"
    )
    assert db.invalid("Query", **request, ProjectionExpression="w, v") == (
        "One or more parameter values were invalid: Global secondary index some does not project [w]"
    )
    values = {":g": {"S": "x"}, ":w": {"S": "w"}}
    hidden = request | {"FilterExpression": "w = :w", "ExpressionAttributeValues": values}
    assert db("Query", **hidden)["Count"] == 0


bounds = st.one_of(
    st.just(("pk = :p", lambda _n, _a, _b: True)),
    st.just(("pk = :p AND sk = :a", lambda n, a, _b: n == a)),
    st.just(("pk = :p AND sk < :a", lambda n, a, _b: n < a)),
    st.just(("pk = :p AND sk <= :a", lambda n, a, _b: n <= a)),
    st.just(("pk = :p AND sk > :a", lambda n, a, _b: n > a)),
    st.just(("pk = :p AND sk >= :a", lambda n, a, _b: n >= a)),
    st.just(("pk = :p AND sk BETWEEN :a AND :b", lambda n, a, b: a <= n <= b)),
)
decimals = st.decimals(-50, 50, places=2)


@settings(deadline=None, max_examples=80)
@given(
    stored=st.sets(decimals, max_size=30),
    bound=bounds,
    a=decimals,
    width=st.decimals(0, 20, places=1),
    forward=st.booleans(),
    limit=st.integers(1, 9),
)
def test_a_query_equals_a_filter_over_a_plain_model(
    database, build, stored, bound, a, width, forward, limit
):
    text, holds = bound
    b = a + width
    db = database()
    db.table(keys="pk:S sk:N")
    for n in stored:
        db("PutItem", TableName="table", Item=build.item(pk="a", sk=n))
    values = {":p": {"S": "a"}, ":a": {"N": str(a)}, ":b": {"N": str(b)}}
    found, key = [], {}
    while key is not None:
        page = db(
            "Query",
            TableName="table",
            KeyConditionExpression=text,
            ExpressionAttributeValues={n: v for n, v in values.items() if n in text},
            ScanIndexForward=forward,
            Limit=limit,
            **key,
        )
        found += [Decimal(item["sk"]["N"]) for item in page["Items"]]
        last = page.get("LastEvaluatedKey")
        key = None if last is None else {"ExclusiveStartKey": last}
    model = sorted(n for n in stored if holds(n, a, b))
    assert found == (model if forward else model[::-1])
