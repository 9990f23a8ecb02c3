"""Specifications: the parts of a CreateTable or UpdateTable request are validated.

These functions read key schemas, attribute types, throughput and stream specifications
from a request, and refuse contradictions in the service's words. They do not access tables.
"""

from typing import Any

from streamkit.local.errors import ApiError, validation
from streamkit.local.parameters import (
    array,
    at_least_length,
    at_most_length,
    name_violation,
    one_of,
    structure,
    text,
    violation,
    violations,
    whole,
)
from streamkit.local.streams import VIEW_TYPES

INVALID = "One or more parameter values were invalid: "

MOST_NAME_BYTES = 255
_MOST_OF_A_KIND = 4
_KEY_TYPE = one_of("HASH", "RANGE")
_ATTRIBUTE_TYPE = one_of("B", "N", "S")
_VIEW_TYPE = one_of(*VIEW_TYPES)
_UNITS = whole(1)


def refuse(*found: tuple[object, str, str | None]) -> None:
    """Refuse if any value breaks a constraint; each is given as value, place and constraint."""
    broken = [
        violation(value, where, constraint)
        for value, where, constraint in found
        if constraint is not None
    ]
    if broken:
        raise violations(broken)


def invalid(message: str) -> ApiError:
    """Return a refusal in the usual form of this module."""
    return validation(INVALID + message)


def check_name(name: str, where: str) -> None:
    """Refuse a text that cannot be the name of a new table or index."""
    constraint = at_least_length(name, 3) or at_most_length(name, 255) or name_violation(name)
    refuse((name, where, constraint))


def attribute_types(given: Any) -> dict[str, str]:
    """Return the types in `AttributeDefinitions`, by attribute."""
    types: dict[str, str] = {}
    for number, definition in enumerate(array(given), 1):
        where = f"attributeDefinitions.{number}.member"
        name, kind = structure(definition).get("AttributeName"), definition.get("AttributeType")
        refuse(
            (name, f"{where}.attributeName", attribute_name_violation(name)),
            (kind, f"{where}.attributeType", not_null(kind) or _ATTRIBUTE_TYPE(kind)),
        )
        if name in types:
            raise validation(f"Attribute Name is duplicated: {name}")
        types[text(name)] = kind
    return types


def not_null(value: Any) -> str | None:
    """Return the constraint that a missing value breaks; None if there is a value."""
    return "Member must not be null" if value is None else None


def attribute_name_violation(name: Any) -> str | None:
    """Return the constraint that an attribute's name in a key or projection breaks, if any."""
    if name is None:
        return not_null(name)
    return at_least_length(text(name), 1) or at_most_length(name, MOST_NAME_BYTES)


def key_elements(given: Any, where: str, *, several: bool = False) -> list[dict[str, str]]:
    """Return the elements of a `KeySchema`; those of a global index may be several of a kind."""
    elements = array(given)
    shown = ", ".join(
        f"KeySchemaElement(attributeName={element.get('AttributeName')}, "
        f"keyType={element.get('KeyType')})"
        for element in map(structure, elements)
    )
    too_many = None if several else at_most_length(elements, 2)
    refuse((f"[{shown}]", where, at_least_length(elements, 1) or too_many))
    for number, element in enumerate(elements, 1):
        place = f"{where}.{number}.member"
        name, kind = element.get("AttributeName"), element.get("KeyType")
        refuse(
            (name, f"{place}.attributeName", attribute_name_violation(name)),
            (kind, f"{place}.keyType", not_null(kind) or _KEY_TYPE(kind)),
        )
    if elements[0]["KeyType"] != "HASH":
        raise validation("Invalid KeySchema: The first KeySchemaElement is not a HASH key type")
    kinds = [element["KeyType"] for element in elements]
    if several and kinds != ["HASH", "RANGE"]:
        _check_several(kinds, [element["AttributeName"] for element in elements])
    elif len(elements) > 1:
        if kinds[1] != "RANGE":
            raise validation(
                "Invalid KeySchema: The second KeySchemaElement is not a RANGE key type"
            )
        if elements[0]["AttributeName"] == elements[1]["AttributeName"]:
            raise validation("Invalid KeySchema: Some index key attribute have no definition")
    return [
        {"AttributeName": text(element["AttributeName"]), "KeyType": element["KeyType"]}
        for element in elements
    ]


def _check_several(kinds: list[str], names: list[str]) -> None:
    """Refuse key attributes of a global index that cannot stand together."""
    for kind in ("HASH", "RANGE"):
        if kinds.count(kind) > _MOST_OF_A_KIND:
            raise invalid(
                f"The KeySchema exceeds the maximum allowed number of {kind} key attributes"
            )
    if kinds != sorted(kinds):
        raise invalid("All HASH key attributes must precede RANGE key attributes in the KeySchema")
    if len({*names}) < len(names):
        raise validation("The KeySchema contains multiple key attributes with the same name")


def check_types(types: dict[str, str], used: list[str], *, indexed: bool) -> None:
    """Refuse attribute types that are not exactly those of the attributes used in keys."""
    keys = list(dict.fromkeys(used))
    missing = [name for name in keys if name not in types]
    if missing:
        raise invalid(
            "Some index key attributes are not defined in AttributeDefinitions. "
            f"Keys: [{', '.join(missing)}], AttributeDefinitions: [{', '.join(types)}]"
        )
    if len(types) > len(keys):
        raise invalid(
            "Some AttributeDefinitions are not used. AttributeDefinitions: "
            f"[{', '.join(types)}], keys used: [{', '.join(keys)}]"
            if indexed
            else "Number of attributes in KeySchema does not exactly match number of attributes "
            "defined in AttributeDefinitions"
        )


def units_of(given: Any, where: str) -> dict[str, int]:
    """Return the two numbers of a `ProvisionedThroughput`."""
    units: dict[str, int] = {}
    for name in ("ReadCapacityUnits", "WriteCapacityUnits"):
        value: Any = structure(given).get(name)
        place = f"{where}.{name[0].lower()}{name[1:]}"
        refuse((value, place, not_null(value) or _UNITS(value)))
        units[name] = value
    return units


def check_on_demand(given: Any, *, on_demand: bool) -> None:
    """Refuse an `OnDemandThroughput` that does not fit the billing mode, or is out of range."""
    if given is None:
        return
    for name in ("MaxReadRequestUnits", "MaxWriteRequestUnits"):
        units = structure(given).get(name)
        if units is None:
            continue
        if not on_demand:
            raise invalid(
                f"{name} for OnDemandThroughput cannot be specified when the table BillingMode is "
                "PROVISIONED"
            )
        # -1 removes a limit.
        if type(units) is not int or (units < 1 and units != -1):
            raise invalid(
                f"Requested {name} for OnDemandThroughput for table is outside of valid range"
            )


def view_type(given: Any, *, created: bool = True) -> str | None:
    """Return the view type of a `StreamSpecification`; None when it turns the stream off.

    Args:
        given: the specification.
        created: whether the request creates the table; an update has its own messages.
    """
    specification = structure(given)
    enabled, view = specification.get("StreamEnabled"), specification.get("StreamViewType")
    refuse(
        (enabled, "streamSpecification.streamEnabled", not_null(enabled)),
        (
            view,
            "streamSpecification.streamViewType",
            None if view is None else _VIEW_TYPE(view),
        ),
    )
    if enabled is not True:
        if view is not None:
            raise invalid(
                "Table is being created with a stream disabled, UpdateViewType should not be "
                "specified"
                if created
                else "If stream is being disabled, then UpdateViewType must not be specified"
            )
        return None
    if view is None:
        raise invalid(
            "Table is being created with a stream enabled, UpdateViewType is required"
            if created
            else "If stream is being enabled then UpdateViewType is required"
        )
    return str(view)
