"""Convert plain Python values to DynamoDB's typed attribute values, and back.

Numbers keep their 38 digits: an `N` becomes an `int` when it is integral, else a `Decimal`, and a
number that does not fit raises instead of being rounded. Binary is `bytes` in Python; an attribute
value that is read may hold it as bytes (an SDK's reply) or as base64 (the wire). Errors name the
path to the value, never the value itself.
"""

import base64
import binascii
import hashlib
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from decimal import Context, Decimal, DecimalException, Inexact, Overflow, Underflow
from enum import Enum
from typing import Any

import msgspec
from pydantic import SecretBytes, SecretStr
from pydantic_core import PydanticSerializationError, to_jsonable_python

AttributeValue = dict[str, Any]
"""One typed value as an SDK takes it, such as `{"S": "x"}`; binary as `bytes`."""

# DynamoDB keeps 38 significant digits between 1E-130 and 9.99E+125.
_DIGITS = 38
_FAR: int = 10**_DIGITS
NUMBERS = Context(prec=_DIGITS, Emin=-130, Emax=125, traps=[Overflow, Inexact, Underflow])


def encode(value: Any, path: str = "value") -> AttributeValue:
    """Return the attribute value that stores `value`.

    Dates, UUIDs, enums and the like are stored as the strings (or numbers) that pydantic reads
    back; a float is stored by its shortest decimal form.

    Raises:
        ValueError: DynamoDB cannot store the value (an empty or mixed set, a number of more than 38
            digits, an unknown type); the message names `path`.
    """
    kind = type(value)  # the commonest types come first
    if kind is str:
        return {"S": value}
    if kind is int or kind is Decimal:
        return {"N": _encode_number(value, path)}
    if kind is dict:
        return {"M": {_map_key(k, path): encode(v, f"{path}.{k}") for k, v in value.items()}}
    if kind is list:
        return {"L": [encode(member, f"{path}[{i}]") for i, member in enumerate(value)]}
    match value:
        case None:
            return {"NULL": True}
        case bool():
            return {"BOOL": value}
        case float() if kind is float:
            return {"N": _encode_number(value, path)}
        case bytes() | bytearray() | memoryview():
            return {"B": bytes(value)}
        case Mapping():
            return {"M": {_map_key(k, path): encode(v, f"{path}.{k}") for k, v in value.items()}}
        case AbstractSet():
            return _encode_set(value, path)
        case Sequence() if not isinstance(value, str):
            return {"L": [encode(member, f"{path}[{i}]") for i, member in enumerate(value)]}
    return encode(_jsonable(value, path), path)


def decode(attribute: Mapping[str, Any]) -> Any:
    """Return the plain value of an attribute value from an SDK or a JSON parser.

    Raises:
        ValueError: it is not an attribute value; the message never holds the value.
    """
    try:
        ((kind, content),) = attribute.items()
        return _DECODERS[kind](content)
    except (ValueError, TypeError, AttributeError, KeyError, DecimalException) as error:
        raise ValueError(f"not an attribute value ({type(error).__name__})") from None


def decode_item(item: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return the plain values of an item, by attribute name.

    Raises:
        ValueError: an attribute cannot be decoded; the message names it.
    """
    values = {}
    for name, attribute in item.items():
        try:
            ((kind, content),) = attribute.items()
            values[name] = _DECODERS[kind](content)
        except (ValueError, TypeError, AttributeError, KeyError, DecimalException) as error:
            raise ValueError(f"{name} is not an attribute value ({type(error).__name__})") from None
    return values


def decode_image(raw: bytes | msgspec.Raw) -> dict[str, Any]:
    """Return the plain values of an item in a wire document.

    Raises:
        ValueError: it is not JSON, or not an item.
    """
    return decode_item(_item(raw))


def _item(raw: bytes | msgspec.Raw) -> dict[str, dict[str, Any]]:
    try:
        return _IMAGE.decode(raw)
    except msgspec.MsgspecError as error:
        raise ValueError(f"not an item ({type(error).__name__})") from None


def wire_image(raw: bytes | msgspec.Raw) -> dict[str, AttributeValue]:
    """Return an item of a wire document as an SDK has it, with binary values as bytes.

    Raises:
        ValueError: it is not JSON, or not an item.
    """
    item = _item(raw)
    others = {n: a for n, a in item.items() if len(a) != 1 or type(a.get("S")) is not str}
    return item | {name: encode(value, name) for name, value in decode_item(others).items()}


def decode_number(text: str) -> int | Decimal:
    """Return an `int` when the number is integral, else a `Decimal`; never rounded.

    Raises:
        ValueError: the text is not a number that DynamoDB stores.
        ArithmeticError: it has more than 38 digits, or is out of range.
    """
    # DynamoDB nearly always sends one of the first two cases; they only save time.
    if len(text) < _DIGITS:
        digits = text.removeprefix("-")
        if digits.isdecimal():
            return int(text)
        if text[-1:] > "0" and digits.replace(".", "", 1).isdecimal():
            return Decimal(text)
    number = NUMBERS.create_decimal(text)
    if not number.is_finite():
        raise ValueError("not a number that DynamoDB stores")
    return int(number) if number == number.to_integral_value() else number


def encode_key(text: str, kind: str) -> AttributeValue:
    """Return a key as the table's key type (`S`, `N` or `B`) stores it."""
    return {kind: text.encode() if kind == "B" else text}


def key_text(value: AttributeValue) -> str:
    """Return a key's text, as a template has built it; empty if no template can have built it."""
    ((kind, content),) = value.items()
    if kind != "B":
        return str(content)
    try:
        return (content if isinstance(content, bytes) else base64.b64decode(content)).decode()
    except ValueError:
        return ""


def key_digest(*values: object) -> str:
    """Return a short hash of key values, for logs and messages, which must not show the values."""
    hashed = hashlib.blake2b(digest_size=8)
    for value in values:
        part = value if isinstance(value, bytes) else str(value).encode()
        hashed.update(b"%d:" % len(part))
        hashed.update(part)
    return hashed.hexdigest()


_IMAGE = msgspec.json.Decoder(dict[str, dict[str, Any]])


def is_short(value: int) -> bool:
    """Return whether an integer has so few digits that DynamoDB keeps all of them."""
    return -_FAR < value < _FAR


def _encode_number(value: float | Decimal, path: str) -> str:
    if type(value) is int and is_short(value):
        return str(value)
    text = repr(value) if isinstance(value, float) else str(value)
    try:
        number = NUMBERS.create_decimal(text)
    except DecimalException:
        raise ValueError(f"{path}: a number of more than 38 digits or out of range") from None
    if not number.is_finite():
        raise ValueError(f"{path}: neither infinity nor NaN can be stored")
    return str(number)


def _encode_set(members: AbstractSet[Any], path: str) -> AttributeValue:
    if not members:
        raise ValueError(f"{path}: DynamoDB has no empty set; leave the attribute out")
    encoded = [encode(member, f"{path}{{}}") for member in members]
    kinds = {kind for member in encoded for kind in member}
    kind = kinds.pop()
    if kinds or kind not in ("S", "N", "B"):
        raise ValueError(f"{path}: a set holds only strings, only numbers or only binary values")
    # Sorted, so that equal sets have equal wire forms.
    return {f"{kind}S": sorted(member[kind] for member in encoded)}


def _map_key(key: object, path: str) -> str:
    if not isinstance(key, str):
        kind = type(key).__name__
        # A ValueError as for every value that cannot be stored, so that callers catch one thing.
        raise ValueError(f"{path}: the keys of a map are strings, not {kind}")  # noqa: TRY004
    return str.__str__(key)


def _jsonable(value: object, path: str) -> Any:
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, SecretStr | SecretBytes):
        problem = "a secret is masked when dumped; give its field a serializer"
        raise ValueError(f"{path}: {problem}")  # noqa: TRY004
    try:
        plain = to_jsonable_python(value)
    except PydanticSerializationError:
        plain = value
    if type(plain) is type(value):
        raise ValueError(f"{path}: {type(value).__name__} cannot be stored")
    return plain


def _binary(content: bytes | str) -> bytes:
    if isinstance(content, bytes):
        return content
    try:
        return base64.b64decode(content, validate=True)
    except binascii.Error:
        raise ValueError("not base64") from None


def _is(kind: type) -> Callable[[Any], Any]:
    def exactly(content: Any) -> Any:
        if isinstance(content, kind):
            return content
        raise TypeError

    return exactly


def _map(content: dict[str, dict[str, Any]]) -> dict[str, Any]:
    values = {}
    for name, attribute in content.items():
        ((kind, inner),) = attribute.items()
        values[name] = _DECODERS[kind](inner)
    return values


def _list(content: list[dict[str, Any]]) -> list[Any]:
    values = []
    for attribute in content:
        ((kind, inner),) = attribute.items()
        values.append(_DECODERS[kind](inner))
    return values


_DECODERS: dict[str, Callable[[Any], Any]] = {
    "S": _is(str),
    "N": decode_number,
    "BOOL": _is(bool),
    "NULL": lambda _: None,
    "M": _map,
    "L": _list,
    "SS": set,
    "NS": lambda numbers: {decode_number(number) for number in numbers},
    "B": _binary,
    "BS": lambda values: {_binary(value) for value in values},
}
