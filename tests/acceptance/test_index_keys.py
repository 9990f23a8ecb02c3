"""Indexes with several attributes in a key, over HTTP with boto3: what the service says of them.

On the engine this is a test of the engine; `make aws` runs it in an account, where it tests what
the engine knows of the service.
"""

import time
from itertools import count

import pytest
from botocore.exceptions import ClientError

from tests.acceptance import account
from tests.acceptance.conftest import DEADLINE

KEYS = (("HASH", "tournament", "region"), ("RANGE", "round", "bracket"))
TYPES = {"tournament": "S", "region": "S", "round": "N", "bracket": "S"}
MATCHES = [("EU", 10, "LOWER"), ("EU", 9, "UPPER"), ("EU", 9, "LOWER"), ("NA", 1, "LOWER")]
NAMES = {"#t": "tournament", "#r": "region", "#n": "round", "#b": "bracket"}
INVALID = "One or more parameter values were invalid: "
_numbers = count(1)


def index(*groups):
    limit = {"OnDemandThroughput": account.THROUGHPUT} if account.prefix() else {}
    return limit | {
        "IndexName": "by_round",
        "KeySchema": [
            {"AttributeName": name, "KeyType": kind} for kind, *names in groups for name in names
        ],
        "Projection": {"ProjectionType": "ALL"},
    }


def types(**kinds):
    return [{"AttributeName": name, "AttributeType": kind} for name, kind in kinds.items()]


def created(dynamodb, **more):
    name = f"{account.prefix()}index-keys-{next(_numbers)}"
    limit = {"OnDemandThroughput": account.THROUGHPUT} if account.prefix() else {}
    request = {
        "TableName": name,
        "KeySchema": [{"AttributeName": "id", "KeyType": "HASH"}],
        "AttributeDefinitions": types(id="S"),
        "BillingMode": "PAY_PER_REQUEST",
        **limit,
        **more,
    }
    dynamodb.create_table(**request)
    dynamodb.get_waiter("table_exists").wait(TableName=name)
    return name


def fill(dynamodb, name):
    for number, (region, round_, bracket) in enumerate(MATCHES):
        item = {
            "id": {"S": str(number)},
            "tournament": {"S": "WINTER"},
            "region": {"S": region},
            "round": {"N": str(round_)},
            "bracket": {"S": bracket},
        }
        dynamodb.put_item(TableName=name, Item=item)
    dynamodb.put_item(TableName=name, Item={"id": {"S": "x"}, "tournament": {"S": "WINTER"}})


def asked(dynamodb, name, text, **more):
    values = {
        ":t": {"S": "WINTER"},
        ":r": {"S": "EU"},
        ":n": {"N": "9"},
        ":b": {"S": "LOWER"},
    }
    return dynamodb.query(
        TableName=name,
        IndexName="by_round",
        KeyConditionExpression=text,
        ExpressionAttributeNames={short: full for short, full in NAMES.items() if short in text},
        ExpressionAttributeValues={short: one for short, one in values.items() if short in text},
        **more,
    )


def until(look):
    """Return the first answer that is true; an index follows its table a little later."""
    end = time.monotonic() + DEADLINE
    while not (found := look()):
        assert time.monotonic() < end
        time.sleep(0.03)
    return found


def refusal(call, *arguments, **more):
    with pytest.raises(ClientError) as refused:
        call(*arguments, **more)
    assert refused.value.response["Error"]["Code"] == "ValidationException"
    return refused.value.response["Error"]["Message"]


EU = "#t = :t AND #r = :r"


@pytest.fixture
def table(dynamodb):
    kinds = types(id="S", **TYPES)
    name = created(dynamodb, AttributeDefinitions=kinds, GlobalSecondaryIndexes=[index(*KEYS)])
    fill(dynamodb, name)
    until(lambda: asked(dynamodb, name, EU)["Count"] == 3)
    yield name
    dynamodb.delete_table(TableName=name)


def test_queries_give_the_partition_key_and_the_sort_key_from_its_left(dynamodb, table):
    def found(text, **more):
        return [item["id"]["S"] for item in asked(dynamodb, table, text, **more)["Items"]]

    assert found(EU) == ["2", "1", "0"]
    assert found(EU, ScanIndexForward=False) == ["0", "1", "2"]
    assert found(f"{EU} AND #n > :n") == ["0"]
    assert found(f"{EU} AND #n = :n AND #b > :b") == ["1"]
    assert found(f"#b = :b AND #n = :n AND {EU}") == ["2"]
    page = asked(dynamodb, table, EU, Limit=2)
    assert page["LastEvaluatedKey"].keys() == {"id", *TYPES}
    assert found(EU, ExclusiveStartKey=page["LastEvaluatedKey"]) == ["0"]


def test_queries_with_gaps_are_refused_in_the_words_of_the_service(dynamodb, table):
    rest = (
        "must have equality conditions specified in the query because a condition is present on key"
        " attribute bracket"
    )
    for text in (f"{EU} AND #b = :b", f"{EU} AND #n > :n AND #b = :b"):
        assert refusal(asked, dynamodb, table, text) == f"RANGE key attributes round {rest}"
    missing = refusal(asked, dynamodb, table, "#t = :t")
    assert missing.startswith("HASH key attributes region must have equality conditions")


@pytest.mark.parametrize(
    ("groups", "expected"),
    [
        (
            [("HASH", *"abcde")],
            f"{INVALID}The KeySchema exceeds the maximum allowed number of HASH key attributes",
        ),
        (
            [("HASH", "a"), ("RANGE", *"bcdef")],
            f"{INVALID}The KeySchema exceeds the maximum allowed number of RANGE key attributes",
        ),
        (
            [("HASH", "a"), ("RANGE", "b"), ("HASH", "c")],
            f"{INVALID}All HASH key attributes must precede RANGE key attributes in the KeySchema",
        ),
    ],
)
def test_key_schemas_that_cannot_be_are_refused_in_the_words_of_the_service(
    dynamodb, groups, expected
):
    names = [name for _, *attributes in groups for name in attributes]
    kinds = types(id="S", **dict.fromkeys(names, "S"))
    request = {"AttributeDefinitions": kinds, "GlobalSecondaryIndexes": [index(*groups)]}
    assert refusal(created, dynamodb, **request) == expected


def test_an_index_that_is_added_later_is_filled_by_the_service(dynamodb):
    name = created(dynamodb)
    fill(dynamodb, name)
    dynamodb.update_table(
        TableName=name,
        AttributeDefinitions=types(**TYPES),
        GlobalSecondaryIndexUpdates=[{"Create": index(*KEYS)}],
    )

    def status():
        (there,) = dynamodb.describe_table(TableName=name)["Table"]["GlobalSecondaryIndexes"]
        return there["IndexStatus"] == "ACTIVE"

    until(status)
    assert asked(dynamodb, name, EU)["Count"] == 3
    dynamodb.delete_table(TableName=name)
