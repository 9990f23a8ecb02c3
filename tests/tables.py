"""Tables that tests make: string keys, paid by request, with a stream of both images."""

from typing import Any


def streamed(name: str, *keys: str) -> dict[str, Any]:
    """Return the `CreateTable` request of a table with these key attributes, partition key first."""
    kinds = list(zip(keys, ("HASH", "RANGE"), strict=False))
    return {
        "TableName": name,
        "KeySchema": [{"AttributeName": key, "KeyType": kind} for key, kind in kinds],
        "AttributeDefinitions": [{"AttributeName": key, "AttributeType": "S"} for key in keys],
        "BillingMode": "PAY_PER_REQUEST",
        "StreamSpecification": {"StreamEnabled": True, "StreamViewType": "NEW_AND_OLD_IMAGES"},
    }
