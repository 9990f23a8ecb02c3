"""Querying: the request of a `Query`, and which items it means. Pure.

In: a query and the table's schema. Out: the request, or whether an item's key is in the range of
the query. A group that is spread over parts is at the group's key: `widened` also finds its parts,
and `group_ref` returns the group of a part.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any

from streamkit.entity import Entity
from streamkit.errors import DecodeError
from streamkit.model.codec import encode_key
from streamkit.model.keys import Query
from streamkit.model.parts import LAST_SUFFIX, is_part, without_suffix
from streamkit.model.schema import TableSchema
from streamkit.progress.actions import ItemRef, Wire


def query_request(query: Query[Any], schema: TableSchema) -> dict[str, Any]:
    """Return the request of a query, without its consistency.

    Raises:
        DeclarationError: the table does not have the query's index.
    """
    request: dict[str, Any] = {"TableName": schema.name, "ScanIndexForward": True}
    if query.index is None:
        pk, sk = (schema.pk, schema.pk_type), None
        if schema.sk is not None and schema.sk_type is not None:
            sk = (schema.sk, schema.sk_type)
    else:
        request["IndexName"] = query.index.name
        pk, sk = query.index.key_attributes(schema)
    condition = "#pk = :pk"
    names, values = {"#pk": pk[0]}, {":pk": encode_key(query.pk, pk[1])}
    if sk is not None:
        bounds = {":prefix": query.sk_prefix, ":low": query.lower, ":high": query.upper}
        given = {name: text for name, text in bounds.items() if text is not None}
        if given:
            names["#sk"] = sk[0]
            values |= {name: encode_key(text, sk[1]) for name, text in given.items()}
            condition += " AND " + _sort_condition(given)
    request["KeyConditionExpression"] = condition
    request["ExpressionAttributeNames"] = names
    request["ExpressionAttributeValues"] = values
    request["ScanIndexForward"] = not query.descending
    if query.maximum is not None:
        request["Limit"] = query.maximum
    return request


def widened(query: Query[Any]) -> Query[Any]:
    """Return a query that also finds the parts of the groups in its range, and maybe others."""
    upper = None if query.upper is None else query.upper + LAST_SUFFIX
    return replace(query, upper=upper, maximum=None)


def part_of(ref: ItemRef) -> bool:
    """Return whether an item is a part of a group, other than its first."""
    return is_part(str((ref.sk or ref.pk)[1]))


def group_ref(ref: ItemRef) -> ItemRef:
    """Return the key of the group that an item may be a part of."""
    if not part_of(ref):
        return ref
    if ref.sk is None:
        return ref._replace(pk=(ref.pk[0], without_suffix(ref.pk[1])))
    return ref._replace(sk=(ref.sk[0], without_suffix(ref.sk[1])))


def sort_value(ref: ItemRef) -> Any:
    """Return the value that orders the items of one query on the table."""
    return "" if ref.sk is None else _comparable(*ref.sk)


def in_bounds(query: Query[Any], ref: ItemRef) -> bool:
    """Return whether a sort key is in the query's range; the partition key is not checked."""
    if ref.sk is None:
        return True
    kind, text = ref.sk
    sort = _comparable(kind, text)
    if query.sk_prefix is not None and not text.startswith(encode_key(query.sk_prefix, kind)[kind]):
        return False
    low, high = (
        None if bound is None else _comparable(kind, encode_key(bound, kind)[kind])
        for bound in (query.lower, query.upper)
    )
    return (low is None or sort >= low) and (high is None or sort <= high)


def _comparable(kind: str, text: Any) -> Any:
    return Decimal(text) if kind == "N" else text


def _sort_condition(given: Mapping[str, str]) -> str:
    if ":prefix" in given:
        return "begins_with(#sk, :prefix)"
    if ":low" in given and ":high" in given:
        return "#sk BETWEEN :low AND :high"
    return "#sk >= :low" if ":low" in given else "#sk <= :high"


def whole(
    entity: type[Entity], key: Mapping[str, Wire], parts: Sequence[Mapping[str, Wire]]
) -> Mapping[str, Wire]:
    """Return one item for the group that has this key and these parts.

    Raises:
        DecodeError: a sum of its parts has more than 38 digits.
    """
    if entity.__parts__ is None:
        return parts[0]
    try:
        merged = entity.__parts__.merge(parts)
    except ArithmeticError:
        raise DecodeError(f"{entity.__name__}: a sum of more than 38 digits") from None
    return {**merged, **key}
