"""Where moto is known not to do as DynamoDB does."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.integration.moto_pair import Answer

VALIDATION = "ValidationException"
CANCELLED = "TransactionCanceledException"


@dataclass(frozen=True)
class Known:
    """A known difference.

    Attributes:
        reason: why the engine is right.
        explains: whether it accounts for two answers (ours, theirs) to one call.
        probe: calls of which the last has different answers.
    """

    reason: str
    explains: Callable[[str, dict[str, Any], Answer, Answer], bool]
    probe: tuple[tuple[str, dict[str, Any]], ...]


H = "probe-hash"
R = "probe-range"
KEY = {"pk": {"S": "a"}}
ONE = {":one": {"N": "1"}}


def texts(operation: str, payload: dict[str, Any]) -> str:
    """A call as text, to look for what is in it."""
    return f"{operation} {payload}"


def put_action(**item: Any) -> dict[str, Any]:
    """A transaction's Put into the probed table."""
    return {"Put": {"TableName": H, "Item": KEY | item}}


def update_call(text: str, **more: Any) -> dict[str, Any]:
    """An update of the probed item."""
    return {"TableName": H, "Key": KEY, "UpdateExpression": text, **more}


KNOWN = {
    "numbers as sent": Known(
        "DynamoDB stores numbers, not their spelling; moto gives 1.0 back as it came.",
        lambda *_: False,  # the traffic's numbers are canonical
        (
            ("PutItem", {"TableName": H, "Item": KEY | {"n": {"N": "1.0"}}}),
            ("GetItem", {"TableName": H, "Key": KEY}),
        ),
    ),
    "unlike types": Known(
        "Comparing values of different types is false in DynamoDB; moto answers status 500.",
        lambda *_: False,  # the traffic compares like with like
        (
            ("PutItem", {"TableName": H, "Item": KEY | {"n": {"N": "1"}}}),
            (
                "DeleteItem",
                {
                    "TableName": H,
                    "Key": KEY,
                    "ConditionExpression": "n < :s",
                    "ExpressionAttributeValues": {":s": {"S": "x"}},
                },
            ),
        ),
    ),
    "size of nothing": Known(
        "A condition on the size of a missing attribute is false; moto fails over it.",
        lambda operation, payload, _ours, theirs: (
            "size(" in texts(operation, payload)
            and (
                theirs.error in ("500", VALIDATION)
                or any(code == "ValueError" for code, _ in theirs.body.get("reasons", ()))
            )
        ),
        (
            (
                "PutItem",
                {
                    "TableName": H,
                    "Item": KEY,
                    "ConditionExpression": "size(s) = :one",
                    "ExpressionAttributeValues": ONE,
                },
            ),
        ),
    ),
    "undefined values": Known(
        "A value that is not defined is a ValidationException; moto answers status 500.",
        lambda *_: False,  # the traffic defines what it uses
        (("PutItem", {"TableName": H, "Item": KEY, "ConditionExpression": "n = :none"}),),
    ),
    "end at the limit": Known(
        "A page that reaches its Limit has a LastEvaluatedKey, whether or not items follow; "
        "moto looks ahead.",
        lambda operation, payload, ours, theirs: (
            operation == "Query"
            and ours.error is None
            and "Limit" in payload
            and {**theirs.body, "LastEvaluatedKey": ours.body["LastEvaluatedKey"]} == ours.body
        ),
        (
            ("PutItem", {"TableName": R, "Item": KEY | {"sk": {"S": "b"}}}),
            (
                "Query",
                {
                    "TableName": R,
                    "KeyConditionExpression": "pk = :k",
                    "ExpressionAttributeValues": {":k": {"S": "a"}},
                    "Limit": 1,
                },
            ),
        ),
    ),
    "removal that creates": Known(
        "An update that only removes does not bring an item into being; with moto it does.",
        lambda *_: False,  # every update of the traffic sets or adds something too
        (
            ("UpdateItem", update_call("REMOVE x")),
            ("GetItem", {"TableName": H, "Key": KEY}),
        ),
    ),
    "updated attributes of a new item": Known(
        "UPDATED_NEW returns what the update names; moto adds the key of an item it creates.",
        lambda operation, payload, ours, theirs: (
            operation == "UpdateItem"
            and payload["ReturnValues"] == "UPDATED_NEW"
            and theirs.error is None
            and theirs.body.get("Attributes") == payload["Key"] | ours.body["Attributes"]
        ),
        (
            (
                "UpdateItem",
                update_call(
                    "SET n = :one", ExpressionAttributeValues=ONE, ReturnValues="UPDATED_NEW"
                ),
            ),
        ),
    ),
    "updates that change nothing": Known(
        "UPDATED_OLD and UPDATED_NEW return what the update names; moto leaves out what keeps its "
        "value.",
        lambda operation, payload, ours, theirs: (
            operation == "UpdateItem"
            and payload["ReturnValues"].startswith("UPDATED_")
            and ours.error is theirs.error is None
            and all(
                ours.body["Attributes"].get(name) == value
                for name, value in theirs.body.get("Attributes", {}).items()
            )
        ),
        (
            ("PutItem", {"TableName": H, "Item": KEY | {"n": {"N": "1"}}}),
            (
                "UpdateItem",
                update_call(
                    "SET n = :one", ExpressionAttributeValues=ONE, ReturnValues="UPDATED_OLD"
                ),
            ),
        ),
    ),
    "removal within nothing": Known(
        "Removing from a document that is not there is a ValidationException; moto may answer "
        "status 500.",
        lambda operation, payload, ours, theirs: (
            "REMOVE g, h, e.x" in texts(operation, payload)
            and ours.error in (VALIDATION, CANCELLED)
            and theirs.error == "500"
        ),
        (
            ("PutItem", {"TableName": H, "Item": KEY | {"e": {"L": []}}}),
            ("UpdateItem", update_call("REMOVE e.x")),
        ),
    ),
    "paths into what has no members": Known(
        "A projected path that leads nowhere is left out; moto answers status 500.",
        lambda operation, payload, ours, theirs: (
            operation == "GetItem"
            and "e.x" in payload.get("ProjectionExpression", "")
            and ours.error is None
            and theirs.error == "500"
        ),
        (
            ("PutItem", {"TableName": H, "Item": KEY | {"e": {"SS": ["x"]}}}),
            ("GetItem", {"TableName": H, "Key": KEY, "ProjectionExpression": "e.x"}),
        ),
    ),
    "types of index keys": Known(
        "An index key of the wrong type is refused; moto stores it.",
        lambda *_: False,  # the traffic's index keys have their types
        (("PutItem", {"TableName": H, "Item": KEY | {"g": {"N": "1"}}}),),
    ),
    "types of keys in reads": Known(
        "A key of the wrong type is refused; moto finds nothing.",
        lambda *_: False,  # the traffic's keys have their types
        (("GetItem", {"TableName": H, "Key": {"pk": {"N": "1"}}}),),
    ),
    "validation within transactions": Known(
        "What is invalid only for the stored item cancels a transaction, and is among its "
        "reasons; moto raises a ValidationException.",
        lambda operation, _payload, ours, theirs: (
            operation == "TransactWriteItems"
            and ours.error == CANCELLED
            and any(code == "ValidationError" for code, _ in ours.body["reasons"])
            and theirs.error in (VALIDATION, CANCELLED)
        ),
        (("TransactWriteItems", {"TransactItems": [{"Update": update_call("SET n = x")}]}),),
    ),
    "filters on keys": Known(
        "A query's filter must not name the key; moto filters by it.",
        lambda *_: False,  # the traffic's filters do not
        (
            (
                "Query",
                {
                    "TableName": H,
                    "KeyConditionExpression": "pk = :k",
                    "FilterExpression": "pk = :k",
                    "ExpressionAttributeValues": {":k": {"S": "a"}},
                },
            ),
        ),
    ),
    "missing indexes": Known(
        "An index that does not exist is a ValidationException; moto's error is "
        "ResourceNotFoundException.",
        lambda *_: False,  # the traffic's indexes exist
        (
            (
                "Query",
                {
                    "TableName": H,
                    "IndexName": "none",
                    "KeyConditionExpression": "pk = :k",
                    "ExpressionAttributeValues": {":k": {"S": "a"}},
                },
            ),
        ),
    ),
    "put and delete in one batch": Known(
        "A batch must not name an item twice; moto finds duplicates only among equal requests.",
        lambda *_: False,  # the traffic's batches name different items
        (
            (
                "BatchWriteItem",
                {
                    "RequestItems": {
                        H: [{"PutRequest": {"Item": KEY}}, {"DeleteRequest": {"Key": KEY}}]
                    }
                },
            ),
        ),
    ),
    "empty transactions": Known(
        "A transaction has at least one action; moto carries out none.",
        lambda operation, payload, ours, _theirs: (
            operation == "TransactWriteItems"
            and payload["TransactItems"] == []
            and ours.error == VALIDATION
        ),
        (("TransactWriteItems", {"TransactItems": []}),),
    ),
    "request tokens": Known(
        "A transaction repeated with its token takes effect once; moto carries it out again.",
        lambda *_: False,  # the traffic has no tokens
        (
            *(
                (
                    "TransactWriteItems",
                    {
                        "ClientRequestToken": "token",
                        "TransactItems": [
                            {"Update": update_call("ADD n :one", ExpressionAttributeValues=ONE)}
                        ],
                    },
                ),
            )
            * 2,
            ("GetItem", {"TableName": H, "Key": KEY}),
        ),
    ),
    "4 MB in a transaction": Known(
        "A transaction's items have at most 4 MB together; moto does not count.",
        lambda *_: False,  # the traffic's items are small
        (
            (
                "TransactWriteItems",
                {
                    "TransactItems": [
                        put_action(pk={"S": f"{n}"}, x={"S": "x" * 390_000}) for n in range(11)
                    ]
                },
            ),
        ),
    ),
}
