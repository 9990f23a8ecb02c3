"""The table of Big Time Deals, as `CreateTable` takes it."""

from typing import Any


def _index(name: str, pk: str, sk: str | None = None) -> dict[str, Any]:
    return {
        "IndexName": name,
        "KeySchema": _keys(pk, sk),
        "Projection": {"ProjectionType": "ALL"},
    }


def _keys(pk: str, sk: str | None = None) -> list[dict[str, str]]:
    keys = [{"AttributeName": pk, "KeyType": "HASH"}]
    return keys if sk is None else [*keys, {"AttributeName": sk, "KeyType": "RANGE"}]


_INDEXES = [_index(f"GSI{number}", f"GSI{number}PK", f"GSI{number}SK") for number in (1, 2, 3)]
_KEY_ATTRIBUTES = ["PK", "SK", *(f"GSI{n}{key}" for n in (1, 2, 3) for key in ("PK", "SK"))]


def table_request(name: str) -> dict[str, Any]:
    """Return the request that creates the table: three overloaded indexes, one sparse, a stream."""
    return {
        "TableName": name,
        "BillingMode": "PAY_PER_REQUEST",
        "KeySchema": _keys("PK", "SK"),
        "AttributeDefinitions": [
            {"AttributeName": attribute, "AttributeType": "S"}
            for attribute in (*_KEY_ATTRIBUTES, "UserIndex")
        ],
        "GlobalSecondaryIndexes": [*_INDEXES, _index("UserIndex", "UserIndex")],
        "StreamSpecification": {
            "StreamEnabled": True,
            "StreamViewType": "NEW_AND_OLD_IMAGES",
        },
    }


async def create_table(dynamodb: Any, name: str) -> None:
    """Create the table with its stream, and let items end by their attribute `expires`."""
    await dynamodb.create_table(**table_request(name))
    await dynamodb.get_waiter("table_exists").wait(TableName=name)
    await dynamodb.update_time_to_live(
        TableName=name, TimeToLiveSpecification={"AttributeName": "expires", "Enabled": True}
    )
