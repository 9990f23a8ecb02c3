"""An engine under a clock that stands still, called the way the doors call it."""

import random
from typing import Any

import pytest

from streamkit.local.engine import Engine

START = 1_800_000_000.0


class Database:
    """An engine, its clock, and short ways to use both."""

    def __init__(self, seed: int = 1, **options: Any) -> None:
        self.now = START
        self.engine = Engine(clock=lambda: self.now, rng=random.Random(seed), **options)

    def __call__(self, operation: str, **payload: Any) -> dict[str, Any]:
        """Carry out an operation that succeeds."""
        status, body = self.engine.call("dynamodb", operation, payload)
        assert status == 200, body
        return body

    def refused(self, operation: str, **payload: Any) -> tuple[str, str]:
        """Carry out an operation that is refused; its code and message."""
        status, body = self.engine.call("dynamodb", operation, payload)
        assert status == 400, body
        code = body["__type"].partition("#")[2]
        return code, body.get("message", body.get("Message", ""))

    def invalid(self, operation: str, **payload: Any) -> str:
        """Carry out an operation that is not valid; the message."""
        code, message = self.refused(operation, **payload)
        assert code == "ValidationException", (code, message)
        return message

    def table(self, name: str = "table", keys: str = "pk:S sk:S", **options: Any) -> str:
        """Create a table; `keys` are names and types, indexes as in the API."""
        parts = [key.split(":") for key in keys.split()]
        kinds = dict(parts)
        for index in (
            *options.get("GlobalSecondaryIndexes", ()),
            *options.get("LocalSecondaryIndexes", ()),
        ):
            for element in index["KeySchema"]:
                kinds.setdefault(element["AttributeName"], "S")
        kinds |= options.pop("types", {})
        self(
            "CreateTable",
            TableName=name,
            KeySchema=schema(*(part[0] for part in parts)),
            AttributeDefinitions=[
                {"AttributeName": attribute, "AttributeType": kind}
                for attribute, kind in kinds.items()
            ],
            **{"BillingMode": "PAY_PER_REQUEST", **options},
        )
        return name

    def records(self, table: str = "table") -> list[dict[str, Any]]:
        """Everything in the streams of a table, as GetRecords shows it."""
        return [
            record.wire()
            for stream in self.engine.streams.all(table)
            for shard in stream.shards()
            for record in shard.records()
        ]

    def everything(self, table: str = "table", **options: Any) -> list[dict[str, Any]]:
        """All items of a table or index, in the order of a scan, a page at a time."""
        items: list[dict[str, Any]] = []
        while True:
            page = self("Scan", TableName=table, **options)
            items += page["Items"]
            if "LastEvaluatedKey" not in page:
                return items
            options["ExclusiveStartKey"] = page["LastEvaluatedKey"]


def schema(*names: str) -> list[dict[str, str]]:
    """A key schema of these attributes."""
    return [
        {"AttributeName": name, "KeyType": kind}
        for name, kind in zip(names, ("HASH", "RANGE"), strict=False)
    ]


def gsi(name: str, *keys: str, projection: Any = "ALL") -> dict[str, Any]:
    """The definition of an index."""
    shown = {"ProjectionType": projection}
    if not isinstance(projection, str):
        shown = {"ProjectionType": "INCLUDE", "NonKeyAttributes": list(projection)}
    return {"IndexName": name, "KeySchema": schema(*keys), "Projection": shown}


def item(**attributes: Any) -> dict[str, Any]:
    """An item of strings, numbers and wire values."""
    return {name: value(raw) for name, raw in attributes.items()}


def value(raw: Any) -> dict[str, Any]:
    """An attribute value of a string, a number, or itself."""
    if isinstance(raw, dict):
        return raw
    return {"S": raw} if isinstance(raw, str) else {"N": str(raw)}


@pytest.fixture(scope="session")
def database() -> type[Database]:
    """Makes databases, for tests that need several."""
    return Database


@pytest.fixture
def db() -> Database:
    """An empty database."""
    return Database()


@pytest.fixture(scope="session")
def build() -> Any:
    """The functions that make items and indexes."""

    class Build:
        pass

    build = Build()
    build.item, build.gsi, build.schema, build.value = item, gsi, schema, value
    return build
