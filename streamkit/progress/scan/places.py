"""Places: keys of a table as text, and the order in which segments of a scan are taken. Pure."""

import base64
import json
from collections.abc import Mapping

from streamkit.progress.actions import Wire

_quoted = json.JSONEncoder().encode


def place_text(key: Mapping[str, Wire]) -> str:
    """Return a key of the table, such as a `LastEvaluatedKey`, as a cursor's position."""
    parts = []
    for name in sorted(key):
        ((kind, value),) = key[name].items()
        text = base64.b64encode(value).decode() if kind == "B" else value
        parts.append(f'{_quoted(name)}:{{"{kind}":{_quoted(text)}}}')
    return f"{{{','.join(parts)}}}"


def place_of(text: str) -> dict[str, Wire]:
    """Read what `place_text` wrote."""
    return {
        name: {kind: base64.b64decode(value) if kind == "B" else value}
        for name, attribute in json.loads(text).items()
        for kind, value in attribute.items()
    }


def strided(total: int) -> list[int]:
    """Return the numbers below `total`, ordered so that neighbours lie far apart.

    Neighbouring segments lie on the same partition (AWS: parallel scan). The order is that of the
    numbers with their bits reversed.
    """
    bits = max(1, (total - 1).bit_length())
    turned = (int(f"{number:0{bits}b}"[::-1], 2) for number in range(1 << bits))
    return [number for number in turned if number < total]
