"""Bodies: the body of a delivery becomes text. Pure."""

import base64
import json
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from datetime import date
from decimal import Decimal
from enum import Enum
from typing import Any

from pydantic import BaseModel

from streamkit.model.codec import decode, encode


def to_plain(body: Any) -> Any:
    """Return a body in JSON's types.

    Whole decimals become integers and other decimals text, so that all 38 digits arrive. Moments
    become ISO 8601 text, bytes base64, sets sorted lists. What else an entity may hold, such as
    UUIDs and durations, becomes what the table stores for it.

    Raises:
        TypeError: it holds something that has no such form.
    """
    if body is None or isinstance(body, str | bool | int | float):
        return body.value if isinstance(body, Enum) else body
    if isinstance(body, BaseModel):
        return to_plain(body.model_dump(by_alias=True))
    if isinstance(body, Decimal):
        return int(body) if body == body.to_integral_value() else str(body)
    if isinstance(body, date):
        return body.isoformat()
    if isinstance(body, bytes):
        return base64.b64encode(body).decode()
    if isinstance(body, Enum):
        return to_plain(body.value)
    if isinstance(body, Mapping):
        return {_name(name): to_plain(value) for name, value in body.items()}
    if isinstance(body, AbstractSet):
        return sorted((to_plain(member) for member in body), key=str)
    if isinstance(body, list | tuple):
        return [to_plain(member) for member in body]
    try:
        return to_plain(decode(encode(body)))
    except ValueError:
        raise TypeError(f"a {type(body).__name__} cannot be sent") from None


def _name(key: object) -> str:
    """Return a mapping's key as text: of an enum its value, as the table stores it."""
    return str(key.value if isinstance(key, Enum) else key)


def to_text(body: Any) -> str:
    """Return a body as JSON text; text stays as it is.

    Raises:
        TypeError: it holds something that has no such form.
        ValueError: it holds a number that JSON does not know, such as NaN.
    """
    plain = to_plain(body)
    if isinstance(plain, str):
        return plain
    return json.dumps(plain, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
