"""Specifications of indexes: their definitions in CreateTable and UpdateTable are validated."""

from collections.abc import Iterable
from typing import Any

from streamkit.local.indexes import TableIndex
from streamkit.local.parameters import (
    Payload,
    array,
    at_least_length,
    at_most_length,
    structure,
    text,
)
from streamkit.local.schema import KeySchema
from streamkit.local.specification import (
    attribute_name_violation,
    check_name,
    invalid,
    key_elements,
    not_null,
    refuse,
    units_of,
)

MOST_GLOBAL_INDEXES = 20
_MOST_PROJECTED = 20
_MOST_PROJECTED_OF_TABLE = 100
_MOST_LOCAL_INDEXES = 5


def index_requests(given: Any, title: str) -> list[Payload]:
    """Return the index definitions of a request, if there are any."""
    if given is None:
        return []
    requests = [structure(request) for request in array(given)]
    if not requests:
        raise invalid(f"List of {title} is empty")
    if title == "LocalSecondaryIndexes" and len(requests) > _MOST_LOCAL_INDEXES:
        raise invalid(
            f"Number of LocalSecondaryIndexes exceeds per-table limit of {_MOST_LOCAL_INDEXES}"
        )
    if title == "GlobalSecondaryIndexes" and len(requests) > MOST_GLOBAL_INDEXES:
        raise invalid(
            f"GlobalSecondaryIndex count exceeds the per-table limit of {MOST_GLOBAL_INDEXES}"
        )
    return requests


def parse_index_keys(request: Payload, where: str, *, is_global: bool) -> list[dict[str, str]]:
    """Return the key schema of an index definition; refuse names that are not valid."""
    name = request.get("IndexName")
    refuse((name, f"{where}.indexName", not_null(name)))
    check_name(text(name), f"{where}.indexName")
    schema = request.get("KeySchema")
    refuse((schema, f"{where}.keySchema", not_null(schema)))
    projection = request.get("Projection")
    if projection is not None:
        _check_projected_names(structure(projection).get("NonKeyAttributes"), where)
    return key_elements(schema, f"{where}.keySchema", several=is_global)


def _check_projected_names(given: Any, where: str) -> None:
    if given is None:
        return
    names, place = array(given), f"{where}.projection.nonKeyAttributes"
    shown = f"[{', '.join(map(str, names))}]"
    refuse((shown, place, at_least_length(names, 1) or at_most_length(names, _MOST_PROJECTED)))
    for number, name in enumerate(names, 1):
        refuse((name, f"{place}.{number}.member", attribute_name_violation(name)))


def check_projected(indexes: Iterable[TableIndex]) -> None:
    """Refuse indexes of a table that together project too many attributes."""
    count = sum(len(index.projection.get("NonKeyAttributes") or ()) for index in indexes)
    if count > _MOST_PROJECTED_OF_TABLE:
        raise invalid(
            f"The number of NonKeyAttributes over all indexes of a table, {count}, exceeds the "
            f"limit of {_MOST_PROJECTED_OF_TABLE}"
        )


def build_index(
    request: Payload,
    elements: list[dict[str, str]],
    types: dict[str, str],
    table_keys: KeySchema,
    *,
    is_global: bool,
    on_demand: bool,
) -> TableIndex:
    """Return the index that a definition describes."""
    name = request["IndexName"]
    projection = _projection(request.get("Projection"))
    keys = KeySchema(elements, types)
    if not is_global:
        _check_local(name, keys, table_keys)
        return TableIndex(name, keys, table_keys, projection=projection, is_global=False)
    throughput = request.get("ProvisionedThroughput")
    if on_demand and throughput is not None:
        raise invalid(
            f"ProvisionedThroughput should not be specified for index: {name} when BillingMode "
            "is PAY_PER_REQUEST"
        )
    if not on_demand and throughput is None:
        raise invalid(f"ProvisionedThroughput is not specified for index: {name}")
    units = None if throughput is None else units_of(throughput, "provisionedThroughput")
    return TableIndex(
        name, keys, table_keys, projection=projection, is_global=True, throughput=units
    )


def _check_local(name: str, keys: KeySchema, table_keys: KeySchema) -> None:
    if keys.hash_name != table_keys.hash_name:
        raise invalid(
            "Index KeySchema does not have the same leading hash key as table KeySchema for "
            f"index: {name}. index hash key: {keys.hash_name}, table hash key: "
            f"{table_keys.hash_name}"
        )
    if keys.range_name is None:
        raise invalid(f"Index KeySchema does not have a range key for index: {name}")


def _projection(given: Any) -> dict[str, Any]:
    projection = structure({} if given is None else given)
    kind, others = projection.get("ProjectionType"), projection.get("NonKeyAttributes")
    if kind not in ("ALL", "KEYS_ONLY", "INCLUDE"):
        raise invalid(f"Unknown ProjectionType: {'null' if kind is None else kind}")
    if kind == "INCLUDE":
        if not others:
            raise invalid("ProjectionType is INCLUDE, but NonKeyAttributes is not specified")
        for name in array(others):
            if others.count(name) > 1:
                raise invalid(f"Duplicate element in NonKeyAttributes: {name}")
        return {"ProjectionType": kind, "NonKeyAttributes": others}
    if others is not None:
        raise invalid(f"ProjectionType is {kind}, but NonKeyAttributes is specified")
    return {"ProjectionType": kind}
