"""What observers are told that calls cost: the sums that users are shown come from here."""

import pytest

KB = 1000  # with its key and the names, an item of so many bytes still is within its KB


@pytest.fixture
def units(db, build):
    """Carry out an operation on a table with items a (5 KB), b and c (1 KB), and tell its units."""
    db.table()
    for sk, size in (("a", 5 * KB), ("b", KB), ("c", KB)):
        db("PutItem", TableName="table", Item=build.item(pk="p", sk=sk, x="x" * size))
    seen = []
    db.engine.observers.append(seen.append)

    def carry_out(operation, service="dynamodb", **payload):
        seen.clear()
        db.engine.call(service, operation, payload)
        (record,) = seen
        return record.status, record.units["read"], record.units["write"]

    return carry_out


@pytest.fixture
def key(build):
    return lambda sk: build.item(pk="p", sk=sk)


def query(pk, **more):
    return {
        "TableName": "table",
        "KeyConditionExpression": "pk = :p",
        "ExpressionAttributeValues": {":p": {"S": pk}},
        **more,
    }


@pytest.mark.parametrize(
    ("request_", "read"),
    [
        # 7 KB are two times 4 KB: a page is rounded up as a whole, not item by item.
        (query("p"), 1.0),
        (query("p", ConsistentRead=True), 2.0),
        (query("none"), 0.5),
        (query("none", ConsistentRead=True), 1.0),
        (query("p", Limit=1, ScanIndexForward=False), 0.5),
        (query("p", Limit=1, ConsistentRead=True), 2.0),
    ],
)
def test_a_query_costs_what_its_page_measures_and_never_nothing(units, request_, read):
    assert units("Query", **request_) == (200, read, 0.0)


@pytest.mark.parametrize(
    ("keys", "eventual"),
    [("a", 1.0), ("b", 0.5), ("bc", 1.0), ("abc", 2.0), ("z", 0.5), ("az", 1.5)],
)
def test_a_batch_read_costs_its_items_one_by_one_and_missing_ones_too(units, key, keys, eventual):
    for consistent, factor in ((False, 1), (True, 2)):
        wanted = {"Keys": [key(sk) for sk in keys], "ConsistentRead": consistent}
        expected = (200, eventual * factor, 0.0)
        assert units("BatchGetItem", RequestItems={"table": wanted}) == expected


@pytest.mark.parametrize(
    ("keys", "read"), [("a", 4.0), ("b", 2.0), ("bc", 4.0), ("z", 2.0), ("az", 6.0)]
)
def test_a_transaction_of_reads_costs_twice_the_strong_reads(units, key, keys, read):
    gets = [{"Get": {"TableName": "table", "Key": key(sk)}} for sk in keys]
    assert units("TransactGetItems", TransactItems=gets) == (200, read, 0.0)


def put(key, sk, size):
    return {"Put": {"TableName": "table", "Item": key(sk) | {"x": {"S": "x" * size}}}}


def action(kind, key, sk, **more):
    return {kind: {"TableName": "table", "Key": key(sk), **more}}


EXISTS = {"ConditionExpression": "attribute_exists(pk)"}
COUNT = {
    "UpdateExpression": "ADD n :n",
    "ExpressionAttributeValues": {":n": {"N": "1"}},
}


@pytest.mark.parametrize(
    ("actions", "write"),
    [
        (lambda key: [put(key, "new", 10)], 2.0),
        (lambda key: [put(key, "new", 3 * KB)], 6.0),
        # The larger of the two images counts.
        (lambda key: [put(key, "a", 10)], 10.0),
        (lambda key: [action("Update", key, "new", **COUNT)], 2.0),
        (lambda key: [action("Update", key, "a", **COUNT)], 10.0),
        (lambda key: [action("Delete", key, "a")], 10.0),
        (lambda key: [action("Delete", key, "none")], 2.0),
        (lambda key: [action("ConditionCheck", key, "b", **EXISTS)], 2.0),
        (lambda key: [action("ConditionCheck", key, "a", **EXISTS)], 10.0),
        # A commit: a cursor, two effects and a check.
        (
            lambda key: [
                action("Update", key, "b", **COUNT),
                action("Update", key, "n1", **COUNT),
                action("Update", key, "n2", **COUNT),
                action("ConditionCheck", key, "c", **EXISTS),
            ],
            8.0,
        ),
    ],
)
def test_a_transaction_of_writes_costs_twice_each_of_them(units, key, actions, write):
    assert units("TransactWriteItems", TransactItems=actions(key)) == (200, 0.0, write)


def test_a_transaction_that_is_sent_again_costs_transactional_reads(units, key):
    request = {
        "TransactItems": [put(key, "new", 10), put(key, "large", 5 * KB), put(key, "a", 10)],
        "ClientRequestToken": "once",
    }
    assert units("TransactWriteItems", **request) == (200, 0.0, 22.0)
    assert units("TransactWriteItems", **request) == (200, 10.0, 0.0)


def test_a_cancelled_transaction_costs_twice_what_is_stored(units, key):
    actions = [
        action("ConditionCheck", key, "none", **EXISTS),
        action("Update", key, "a", **COUNT),
    ]
    assert units("TransactWriteItems", TransactItems=actions) == (400, 0.0, 12.0)


def test_a_batch_of_writes_costs_what_single_writes_do(units, key):
    requests = [
        {"PutRequest": {"Item": put(key, "new", 10)["Put"]["Item"]}},
        {"DeleteRequest": {"Key": key("a")}},
        {"DeleteRequest": {"Key": key("none")}},
    ]
    assert units("BatchWriteItem", RequestItems={"table": requests}) == (200, 0.0, 7.0)


def test_what_is_refused_before_it_is_tried_and_what_reads_streams_costs_no_units(units, key):
    assert units("Query", TableName="table") == (400, 0.0, 0.0)
    assert units("TransactGetItems", TransactItems=[]) == (400, 0.0, 0.0)
    assert units("ListStreams", "dynamodbstreams") == (200, 0.0, 0.0)
