"""Scan: segments, pages and filters."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

V3 = {"S": "v3"}


@pytest.fixture
def table(db, build):
    db.table(keys="pk:S sk:N")
    for n in (3, 1, 2, 10, -5):
        db("PutItem", TableName="table", Item=build.item(pk="a", sk=n, v=f"v{n}"))
    db("PutItem", TableName="table", Item=build.item(pk="b", sk=1))
    return "table"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"Segment": 0},
            (
                "The TotalSegments parameter is required but was not present in the request when "
                "Segment parameter is present"
            ),
        ),
        (
            {"TotalSegments": 4},
            (
                "The Segment parameter is required but was not present in the request when parameter "
                "TotalSegments is present"
            ),
        ),
        (
            {"Segment": 5, "TotalSegments": 5},
            (
                "The Segment parameter is zero-based and must be less than parameter TotalSegments: "
                "Segment: 5 is not less than TotalSegments: 5"
            ),
        ),
        (
            {"Limit": 0},
            (
                "1 validation error detected: Value '0' at 'limit' failed to satisfy constraint: "
                "Member must have value greater than or equal to 1"
            ),
        ),
        (
            {"FilterExpression": "v = :v", "ExpressionAttributeValues": {":v": V3, ":w": V3}},
            "Value provided in ExpressionAttributeValues unused in expressions: keys: {:w}",
        ),
        ({"IndexName": "none"}, "The table does not have the specified index: none"),
    ],
)
def test_a_scan_that_makes_no_sense_is_refused(db, table, options, message):
    assert db.invalid("Scan", TableName="table", **options) == message


def test_a_starting_key_of_another_segment_is_refused(db, table):
    key = {"pk": {"S": "b"}, "sk": {"N": "1"}}
    where = next(
        n
        for n in range(2)
        if any(item["pk"] == {"S": "b"} for item in db.everything(Segment=n, TotalSegments=2))
    )
    message = db.invalid(
        "Scan", TableName="table", Segment=1 - where, TotalSegments=2, ExclusiveStartKey=key
    )
    assert "Please use ExclusiveStartKey with correct Segment." in message


def test_a_scan_filters_by_keys_too(db, table):
    page = db(
        "Scan",
        TableName="table",
        FilterExpression="pk = :b",
        ExpressionAttributeValues={":b": {"S": "b"}},
    )
    assert (page["Count"], page["ScannedCount"]) == (1, 6)


keys = st.tuples(st.sampled_from("abcdefg"), st.integers(-20, 20))


@settings(deadline=None, max_examples=60)
@given(
    stored=st.dictionaries(keys, st.integers(0, 3), max_size=40),
    segments=st.integers(1, 5),
    limit=st.integers(1, 7),
    deleted=st.sets(keys, max_size=20),
)
def test_a_paged_scan_over_segments_returns_each_item_exactly_once(
    database, build, stored, segments, limit, deleted
):
    db = database()
    db.table(keys="pk:S sk:N", GlobalSecondaryIndexes=[build.gsi("gsi", "v")], types={"v": "N"})
    for (pk, sk), v in stored.items():
        item = build.item(pk=pk, sk=sk, v=v) if v else build.item(pk=pk, sk=sk)
        db("PutItem", TableName="table", Item=item)

    def found(**options):
        return [
            (item["pk"]["S"], int(item["sk"]["N"]))
            for segment in range(segments)
            for item in db.everything(
                Segment=segment, TotalSegments=segments, Limit=limit, **options
            )
        ]

    assert sorted(found()) == sorted(stored)
    assert sorted(found(IndexName="gsi")) == sorted(key for key, v in stored.items() if v)
    for pk, sk in deleted:
        db("DeleteItem", TableName="table", Key=build.item(pk=pk, sk=sk))
    assert sorted(found()) == sorted(stored.keys() - deleted)


def test_older_filters_work(db, table):
    page = db(
        "Scan",
        TableName="table",
        ScanFilter={"v": {"ComparisonOperator": "NULL"}},
        AttributesToGet=["pk"],
    )
    assert page["Items"] == [{"pk": {"S": "b"}}]
