"""Attribute values as they travel on the wire: their types, validation and canonical form.

An item is `{"name": {"S": "x"}}`, and it is never changed once it is stored: an update builds a
new item, which shares the unchanged values. `canonical` is the gate to the engine. Behind it every
value is well formed, numbers have one spelling and binaries one encoding, so no other code checks
them. The messages are the service's own.
"""

from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

from streamkit.local.arithmetic import canonical_number
from streamkit.local.errors import ApiError, serialization, validation

AttributeValue: TypeAlias = dict[str, Any]
Item: TypeAlias = dict[str, AttributeValue]

# An attribute is level 1, so its deepest leaf may stand at level 32.
_DEPTH = 32
_MOST_NAME_BYTES = 65_535
# No character takes more than four bytes.
_SURELY_FITS = _MOST_NAME_BYTES // 4
_INVALID = "One or more parameter values were invalid: "


def canonical_item(item: Item) -> Item:
    """Validate a whole item; return a new dict whose values are canonical."""
    if type(item) is not dict:
        raise serialization("Unexpected field type")
    check_names(item)
    return {name: canonical(value) for name, value in item.items()}


def check_names(names: Iterable[str]) -> None:
    """Refuse names that no attribute can have, at the top level of an item or in a map."""
    for name in names:
        complaint = name_complaint(name)
        if complaint:
            raise validation(complaint)


def name_complaint(name: str) -> str | None:
    """Return what is wrong with the name of an attribute; None if it is valid."""
    if not name:
        return "Empty attribute name"
    if len(name) > _SURELY_FITS and len(name.encode()) > _MOST_NAME_BYTES:
        return f"Attribute name is too large, must be less than {_MOST_NAME_BYTES + 1} bytes"
    return None


def canonical(value: AttributeValue) -> AttributeValue:
    """Validate one attribute value and return it in canonical form.

    A value that already is canonical is returned as the same dict, so the caller must not change
    it.

    Raises:
        ApiError: ValidationException or SerializationException, with DynamoDB's message.
    """
    if type(value) is dict and len(value) == 1:
        ((kind, raw),) = value.items()
        if type(raw) is str:
            if kind == "S":
                return value
            if kind == "N":
                number = canonical_number(raw)
                return value if number is raw else {"N": number}
    return _canonical(value, 0)


def _canonical(value: AttributeValue, depth: int) -> AttributeValue:
    if type(value) is not dict:
        raise _not_one_type(value)
    present = value if None not in value.values() else _without_nulls(value)
    if len(present) != 1:
        raise _not_one_type(present)
    ((kind, raw),) = present.items()
    check = _CHECKS.get(kind)
    if check is None:
        raise _not_one_type(present)
    return check(raw, depth)


def _without_nulls(value: AttributeValue) -> AttributeValue:
    return {kind: raw for kind, raw in value.items() if raw is not None}


def _canonical_string(raw: Any, _depth: int) -> AttributeValue:
    return {"S": _text(raw)}


def _canonical_numeric(raw: Any, _depth: int) -> AttributeValue:
    return {"N": canonical_number(_text(raw))}


def _canonical_binary(raw: Any, _depth: int) -> AttributeValue:
    return {"B": _base64(raw)}


def _canonical_bool(raw: Any, _depth: int) -> AttributeValue:
    return {"BOOL": _boolean(raw)}


def _canonical_null(raw: Any, _depth: int) -> AttributeValue:
    if not _boolean(raw):
        raise validation(f"{_INVALID}Null attribute value types must have the value of true")
    return {"NULL": True}


def _canonical_map(raw: Any, depth: int) -> AttributeValue:
    if type(raw) is not dict:
        raise serialization(
            "Unrecognized collection type java.util.Map<java.lang.String, "
            "com.amazonaws.dynamodb.v20120810.AttributeValue>"
            if type(raw) is list
            else "Unexpected field type"
        )
    _check_depth(raw, depth)
    check_names(raw)
    return {"M": {name: _canonical(value, depth + 1) for name, value in raw.items()}}


def _canonical_list(raw: Any, depth: int) -> AttributeValue:
    _check_is_list(raw)
    _check_depth(raw, depth)
    return {"L": [_canonical(value, depth + 1) for value in raw]}


def _check_depth(raw: Any, depth: int) -> None:
    if raw and depth + 1 >= _DEPTH:
        raise nesting_error()


def nesting_error() -> ApiError:
    """Return the refusal of a document nested deeper than 32 levels."""
    return validation(
        "Nesting Levels have exceeded supported limits: Attributes in the item have nested "
        "levels beyond supported limit"
    )


def nesting(value: AttributeValue) -> int:
    """Return the levels of a canonical value: 1 for anything but a non-empty map or list."""
    ((kind, raw),) = value.items()
    if kind == "M":
        return 1 + max(map(nesting, raw.values()), default=0)
    if kind == "L":
        return 1 + max(map(nesting, raw), default=0)
    return 1


def _canonical_string_set(raw: Any, _depth: int) -> AttributeValue:
    members = [_text(member) for member in _members(raw, "An string set  may not be empty")]
    if len(set(members)) != len(members):
        raise validation(f"{_INVALID}Input collection [{', '.join(members)}] contains duplicates.")
    return {"SS": members}


def _canonical_number_set(raw: Any, _depth: int) -> AttributeValue:
    members = [_text(member) for member in _members(raw, "An number set  may not be empty")]
    numbers = [canonical_number(member) for member in members]
    if len(set(numbers)) != len(numbers):
        raise validation("Input collection contains duplicates")
    return {"NS": numbers}


def _canonical_binary_set(raw: Any, _depth: int) -> AttributeValue:
    members = [_base64(member) for member in _members(raw, "Binary sets should not be empty")]
    if len(set(members)) != len(members):
        raise validation(
            f"{_INVALID}Input collection [{', '.join(members)}]of type BS contains duplicates."
        )
    return {"BS": members}


_CHECKS: dict[str, Callable[[Any, int], AttributeValue]] = {
    "S": _canonical_string,
    "N": _canonical_numeric,
    "B": _canonical_binary,
    "BOOL": _canonical_bool,
    "NULL": _canonical_null,
    "M": _canonical_map,
    "L": _canonical_list,
    "SS": _canonical_string_set,
    "NS": _canonical_number_set,
    "BS": _canonical_binary_set,
}


def _not_one_type(value: Any) -> ApiError:
    if type(value) is list:
        return serialization(
            "Unrecognized collection type class com.amazonaws.dynamodb.v20120810.AttributeValue"
        )
    if type(value) is not dict:
        return serialization("Unexpected value type in payload")
    if not value.keys() & _CHECKS.keys():
        return validation(
            "Supplied AttributeValue is empty, must contain exactly one of the supported datatypes"
        )
    return validation(
        "Supplied AttributeValue has more than one datatypes set, must contain exactly one of "
        "the supported datatypes"
    )


def _text(raw: Any) -> str:
    if type(raw) is str:
        return raw
    if type(raw) is dict:
        raise serialization("Start of structure or map found where not expected")
    if type(raw) is list:
        raise serialization("Unrecognized collection type class java.lang.String")
    if type(raw) is bool:
        token = "TRUE_VALUE" if raw else "FALSE_VALUE"
    else:
        token = "DECIMAL_VALUE" if type(raw) is float else "NUMBER_VALUE"
    raise serialization(f"{token} cannot be converted to String")


def _boolean(raw: Any) -> bool:
    if type(raw) is bool:
        return raw
    if type(raw) is dict:
        raise serialization("Start of structure or map found where not expected")
    if type(raw) is list:
        raise serialization("Unrecognized collection type class java.lang.Boolean")
    raise serialization("Unexpected token received from parser")


def _check_is_list(raw: Any) -> None:
    if type(raw) is not list:
        raise serialization(
            "Start of structure or map found where not expected"
            if type(raw) is dict
            else "Unexpected field type"
        )


def _members(raw: Any, empty: str) -> list[Any]:
    _check_is_list(raw)
    if not raw:
        raise validation(_INVALID + empty)
    members: list[Any] = raw
    return members


def _base64(raw: Any) -> str:
    if type(raw) is not str:
        raise serialization("only base-64-encoded strings are convertible to bytes")
    if len(raw) % 4:
        raise serialization(
            f"Base64 encoded length is expected a multiple of 4 bytes but found: {len(raw)}"
        )
    try:
        decoded = b64decode(raw, validate=True)
    except ValueError:
        odd = next((c for c in raw if not (c.isascii() and (c.isalnum() or c in "+/"))), "=")
        raise serialization(f"Invalid Base64 character: '{odd}'") from None
    if b64encode(decoded).decode("ascii") != raw:
        raise serialization("Invalid last non-pad Base64 character dectected")
    return raw
