"""One engine and one moto with the same tables, and their answers in one form."""

import random
from base64 import b64decode, b64encode
from collections.abc import Callable
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from botocore.exceptions import ClientError
from botocore.session import get_session

from streamkit.local.engine import Engine


@dataclass(frozen=True)
class Answer:
    """What came back, as far as both sides can agree on it."""

    error: str | None
    body: Any


class Pair:
    """An engine and a moto with the same tables."""

    def __init__(self, client: Any, prefix: str) -> None:
        self.engine = Engine(rng=random.Random(1))
        self.client = client
        self.hash_table = f"{prefix}-hash"
        self.range_table = f"{prefix}-range"
        for name, keys in ((self.hash_table, "pk"), (self.range_table, "pk sk")):
            self.both("CreateTable", table_definition(name, keys.split()))

    def both(self, operation: str, payload: dict[str, Any]) -> tuple[Answer, Answer]:
        """Play one call to both: our answer and moto's."""
        return self.ours(operation, payload), self.theirs(operation, payload)

    def ours(self, operation: str, payload: dict[str, Any]) -> Answer:
        """The engine's answer."""
        status, body = self.engine.call("dynamodb", operation, copied(payload))
        error = None if status == 200 else body["__type"].partition("#")[2]
        return Answer(error, normal(payload, body, error))

    def theirs(self, operation: str, payload: dict[str, Any]) -> Answer:
        """moto's answer, through boto3."""
        method, asked = getattr(self.client, METHODS[operation]), with_bytes(payload)
        try:
            body = method(**asked)
        except ClientError as error:
            code = error.response["Error"]["Code"]
            return Answer(code, normal(payload, from_bytes(error.response), code))
        except (LookupError, TypeError, ValueError):  # its server makes a status of it
            return Answer("500", normal(payload, {}, "500"))
        return Answer(None, normal(payload, from_bytes(body), None))

    def contents(self, side: Callable[[str, dict[str, Any]], Answer]) -> dict[str, Any]:
        """Both tables of one side, and the indexes."""
        found = {}
        for name in (self.hash_table, self.range_table):
            for index in (None, "all", "keys", "some"):
                payload = {"TableName": name} | ({} if index is None else {"IndexName": index})
                found[f"{name}/{index}"] = side("Scan", payload).body
        return found

    def resynchronise(self) -> None:
        """Make moto's tables equal to ours, after a difference that is known."""
        for name, keys in ((self.hash_table, ("pk",)), (self.range_table, ("pk", "sk"))):
            ours, theirs = (
                {
                    tuple(str(item[key]) for key in keys): item
                    for item in side("Scan", {"TableName": name}).body["Items"]
                }
                for side in (self.ours, self.theirs)
            )
            for key, item in theirs.items():
                if key not in ours:
                    gone = {part: item[part] for part in keys}
                    self.theirs("DeleteItem", {"TableName": name, "Key": gone})
            for key, item in ours.items():
                if item != theirs.get(key):
                    self.theirs("PutItem", {"TableName": name, "Item": item})


METHODS = {
    operation: "".join(f"_{c.lower()}" if c.isupper() else c for c in operation).lstrip("_")
    for operation in get_session().get_service_model("dynamodb").operation_names
}


def table_definition(name: str, keys: list[str]) -> dict[str, Any]:
    """A table with three global indexes."""

    def schema(*names: str) -> list[dict[str, str]]:
        pairs = zip(names, ("HASH", "RANGE"), strict=False)
        return [{"AttributeName": key, "KeyType": kind} for key, kind in pairs]

    return {
        "TableName": name,
        "KeySchema": schema(*keys),
        "AttributeDefinitions": [
            {"AttributeName": key, "AttributeType": "N" if key == "n" else "S"}
            for key in (*keys, "g", "n")
        ],
        "BillingMode": "PAY_PER_REQUEST",
        "GlobalSecondaryIndexes": [
            {
                "IndexName": "all",
                "KeySchema": schema("g", "n"),
                "Projection": {"ProjectionType": "ALL"},
            },
            {
                "IndexName": "keys",
                "KeySchema": schema("g"),
                "Projection": {"ProjectionType": "KEYS_ONLY"},
            },
            {
                "IndexName": "some",
                "KeySchema": schema("n"),
                "Projection": {"ProjectionType": "INCLUDE", "NonKeyAttributes": ["s"]},
            },
        ],
    }


def copied(value: Any) -> Any:
    """A copy that shares nothing."""
    if isinstance(value, dict):
        return {name: copied(member) for name, member in value.items()}
    if isinstance(value, list):
        return [copied(member) for member in value]
    return value


def with_bytes(value: Any) -> Any:
    """A payload as boto3 wants it: binary values are bytes."""
    if isinstance(value, dict):
        if value.keys() == {"B"}:
            return {"B": b64decode(value["B"])}
        return {name: with_bytes(member) for name, member in value.items()}
    return [with_bytes(member) for member in value] if isinstance(value, list) else value


def from_bytes(value: Any) -> Any:
    """The inverse of `with_bytes`."""
    if isinstance(value, bytes):
        return b64encode(value).decode()
    if isinstance(value, dict):
        return {name: from_bytes(member) for name, member in value.items()}
    return [from_bytes(member) for member in value] if isinstance(value, list) else value


def normal(payload: dict[str, Any], body: dict[str, Any], error: str | None) -> Any:
    """The part of a reply that must agree, in one form."""
    if error is not None:
        reasons = [
            (reason["Code"], plain(reason.get("Item")))
            for reason in body.get("CancellationReasons", ())
        ]
        return {"reasons": reasons, "Item": plain(body.get("Item"))}
    kept = {
        name: plain(value)
        for name, value in body.items()
        if name in ("Item", "Items", "Attributes", "Count", "LastEvaluatedKey", "Responses")
    }
    if isinstance(kept.get("Responses"), dict):
        responses = kept["Responses"].items()
        kept["Responses"] = {table: sorted(items, key=repr_of) for table, items in responses}
    if "Items" in kept and "KeyConditionExpression" not in payload:
        kept["Items"].sort(key=repr_of)
    elif "Items" in kept and "IndexName" in payload:
        # Items of equal index keys have no order.
        kept["Items"] = [
            item
            for _, group in groupby(kept["Items"], key=lambda item: item.get("n"))
            for item in sorted(group, key=repr_of)
        ]
    return kept


def plain(value: Any) -> Any:
    """A value whose sets are in order."""
    if isinstance(value, dict):
        return {
            name: sorted(member)
            if name in ("SS", "NS", "BS") and isinstance(member, list)
            else plain(member)
            for name, member in value.items()
        }
    return [plain(member) for member in value] if isinstance(value, list) else value


def repr_of(item: dict[str, Any]) -> str:
    """An item as text, whatever the order of its attributes."""
    return repr(sorted((name, repr(value)) for name, value in item.items()))
