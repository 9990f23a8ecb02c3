"""Envelopes: a delivery as one JSON object, for services that carry nothing beside the bytes. Pure.

    {"key": "9f…", "id": "3c…", "group": "3c…", "sequence": "000…42",
     "created_at": "2026-03-01T12:00:00+00:00", "attributes": {"kind": "sale"}, "body": {…}}

`attributes` and `traceparent` are left out when there are none; `body` is null for a deletion. A
`key` that a receiver has seen before means that it has seen this delivery. A receiver that keeps
the latest state of an `id` ignores a delivery with a smaller `sequence` than it already knows.
"""

import json
from typing import Any

from streamkit.sinks.body import to_plain
from streamkit.sinks.sink import Delivery


def to_envelope(delivery: Delivery) -> dict[str, Any]:
    """Return a delivery in JSON's types.

    Raises:
        TypeError: its body holds something that has no such form.
    """
    envelope: dict[str, Any] = {
        "key": delivery.key,
        "id": delivery.id,
        "group": delivery.group,
        "sequence": delivery.sequence,
        "created_at": delivery.created_at.isoformat(),
    }
    if delivery.attributes:
        envelope["attributes"] = dict(delivery.attributes)
    if delivery.traceparent:
        envelope["traceparent"] = delivery.traceparent
    envelope["body"] = to_plain(delivery.body)
    return envelope


def to_line(delivery: Delivery) -> bytes:
    """Return the envelope as one line of UTF-8 text, without the line feed.

    Raises:
        TypeError: the body holds something that JSON has no form for.
        ValueError: it holds text that UTF-8 cannot encode, or a number that JSON cannot.
    """
    return to_json(to_envelope(delivery)).encode()


def to_json(plain: Any) -> str:
    """Return JSON text, as short as it can be.

    Raises:
        ValueError: JSON has no form for one of the numbers.
    """
    return json.dumps(plain, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
