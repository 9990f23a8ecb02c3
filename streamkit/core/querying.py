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
from streamkit.model.codec import AttributeValue, encode_key
from streamkit.model.key_fields import KeyFields
from streamkit.model.parts import LAST_SUFFIX, is_part, without_suffix
from streamkit.model.queries import Query, Scan
from streamkit.model.schema import KeyAttributes, TableSchema
from streamkit.progress.actions import ItemRef, Wire


def query_request(query: Query[Any], schema: TableSchema) -> dict[str, Any]:
    """Return the request of a query, without its consistency.

    Raises:
        DeclarationError: the table does not have the query's index.
    """
    request: dict[str, Any] = {"TableName": schema.name, "ScanIndexForward": True}
    pk, sk = _key_attributes(query, schema)
    names: dict[str, str] = {}
    values: dict[str, AttributeValue] = {}
    conditions: list[str] = []
    equal = sk
    if query.index is not None:
        request["IndexName"] = query.index.name
    if query.index is not None and isinstance(query.index.pk, KeyFields):
        equal = pk + sk
    else:
        ((names["#pk"], kind),) = pk
        values[":pk"] = encode_key(query.pk, kind)
        conditions.append("#pk = :pk")
    for place, (kind, raw) in enumerate(query.equal):
        names[f"#k{place}"], values[f":k{place}"] = equal[place][0], {kind: raw}
        conditions.append(f"#k{place} = :k{place}")
    bounds = _bounds(query, equal[len(query.equal) :])
    if bounds:
        names["#sk"] = equal[len(query.equal)][0]
        values |= bounds
        conditions.append(_sort_condition(bounds))
    request["KeyConditionExpression"] = " AND ".join(conditions)
    request["ExpressionAttributeNames"] = names
    request["ExpressionAttributeValues"] = values
    request["ScanIndexForward"] = not query.descending
    if query.maximum is not None:
        request["Limit"] = query.maximum
    return request


def page_request(
    wanted: Query[Any] | Scan[Any], schema: TableSchema, after: Mapping[str, Wire] | None
) -> dict[str, Any]:
    """Return the request of one page of a query or scan, after the key of an item."""
    request: dict[str, Any] = {"TableName": schema.name}
    if isinstance(wanted, Query):
        request = query_request(wanted, schema)
    elif wanted.index is not None:
        request["IndexName"] = wanted.index.name
    if after is not None:
        request["ExclusiveStartKey"] = dict(after)
    return request


def _key_attributes(query: Query[Any], schema: TableSchema) -> tuple[KeyAttributes, KeyAttributes]:
    if query.index is not None:
        return query.index.key_attributes(schema)
    sk = () if schema.sk is None or schema.sk_type is None else ((schema.sk, schema.sk_type),)
    return ((schema.pk, schema.pk_type),), sk


def _bounds(query: Query[Any], left: KeyAttributes) -> dict[str, AttributeValue]:
    """Return the values that bound the first of the sort key's attributes that are left."""
    if not left:
        return {}
    texts = {":prefix": query.sk_prefix, ":low": query.lower, ":high": query.upper}
    given = {name: encode_key(text, left[0][1]) for name, text in texts.items() if text is not None}
    for name, bound in zip((":low", ":high"), query.bounds, strict=True):
        if bound is not None:
            given[name] = {bound[0]: bound[1]}
    return given


def widened(query: Query[Any]) -> Query[Any]:
    """Return a query that also finds the parts of the groups in its range, and maybe others."""
    upper = None if query.upper is None else query.upper + LAST_SUFFIX
    return replace(query, upper=upper, maximum=None)


def part_of(ref: ItemRef) -> bool:
    """Return whether an item is a further part of a group that is spread over several items."""
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


def _sort_condition(given: Mapping[str, AttributeValue]) -> str:
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
