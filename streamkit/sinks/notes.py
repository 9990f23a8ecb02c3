"""Notes: a delivery takes the form of SQS and SNS, a text with attributes. Pure.

Both services check the same things, and most SNS topics end in an SQS queue. So the stricter rule
of the two is kept: at most ten attributes, none empty, and only characters of XML 1.0.
Sources: API reference of `SendMessageBatch` and `PublishBatch`, "Amazon SQS message metadata" and
"Amazon SNS message attributes" in the developer guides.
"""

import re
from typing import Any

from streamkit.errors import PoisonChange
from streamkit.sinks.body import to_text
from streamkit.sinks.sink import Delivery

OWN = ("key", "id", "group", "sequence")
"""Every delivery has these attributes, which come from the fields of `Delivery` so named."""

TRACE = "traceparent"
"""This attribute is added when the change was traced and `Send` leaves room for it."""

ATTRIBUTES_MAX = 10
"""One delivery has at most these attributes; SNS drops what it hands to SQS with more."""

_FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_NAME = re.compile(r"(?!(?i:aws|amazon)\.)[\w-]+(\.[\w-]+)*", re.ASCII)
_NAME_MAX = 256


def text_of(delivery: Delivery) -> str:
    """Return the body as text; a deletion is `null`.

    Raises:
        PoisonChange: the text is empty, or has a character that neither service takes.
        TypeError: the body holds something that has no form as text.
    """
    text = to_text(delivery.body)
    if not text or _FORBIDDEN.search(text):
        raise PoisonChange("SQS and SNS take no empty text and no control characters")
    return text


def attributes_of(delivery: Delivery) -> dict[str, dict[str, Any]]:
    """Return the delivery's own attributes and those of `Send`.

    Raises:
        PoisonChange: there are more than ten, or one has a name or a value that is not allowed.
    """
    values = dict(delivery.attributes) | {name: getattr(delivery, name) for name in OWN}
    if len(values) != len(delivery.attributes) + len(OWN) or len(values) > ATTRIBUTES_MAX:
        own = ", ".join(OWN)
        raise PoisonChange(f"beside {own}, SQS and SNS take {ATTRIBUTES_MAX - len(OWN)} attributes")
    if delivery.traceparent and len(values) < ATTRIBUTES_MAX:  # the user's attributes come first
        values.setdefault(TRACE, delivery.traceparent)
    for name, value in values.items():
        if not _NAME.fullmatch(name) or len(name) > _NAME_MAX:
            raise PoisonChange(f"SQS and SNS take no attribute named {name!r}")
        if not value or _FORBIDDEN.search(value):
            raise PoisonChange(f"SQS and SNS take no such text as attribute {name}")
    return {name: {"DataType": "String", "StringValue": value} for name, value in values.items()}


def size_of(text: str, attributes: dict[str, dict[str, Any]]) -> int:
    """Return the size in bytes as both services count it: text, names, types and values."""
    beside = sum(
        len(name) + len(value["DataType"]) + len(value["StringValue"].encode())
        for name, value in attributes.items()
    )
    return len(text.encode()) + beside
