"""Compile conditions to the expression of one write, most of them without an object for each. Pure.

What was read of an item is nearly always what a write is conditional on, attribute by attribute:
its expression depends only on which of them are there, and its values are in wire form already.
"""

from functools import lru_cache
from typing import Any

from streamkit.model.conditions import (
    EQUAL,
    GONE,
    THERE,
    AsRead,
    Condition,
    Existence,
    absent,
    all_of,
    compile_condition,
)

_NAMES, _VALUES = (tuple(f"{kind}{place}" for place in range(300)) for kind in ("#n", ":v"))
"""The placeholders of an expression, which has 300 terms at most."""
_SHORT = frozenset({AsRead, Existence})


def compile_all(
    conditions: list[Condition], pk_name: str
) -> tuple[str, dict[str, str], dict[str, Any]]:
    """Return (expression, names, values) of conditions that all have to hold.

    What was read of an item is compiled from its wire form: a condition for each attribute would
    take fifteen times as long.
    """
    if not all(type(one) in _SHORT for one in conditions):
        return compile_condition(all_of(conditions, pk_name))
    forms: list[str] = []
    names: list[str] = []
    values: list[Any] = []
    for one in dict.fromkeys(conditions):
        if isinstance(one, AsRead):
            found = [one.item.get(name) for name in one.names]
            forms += [GONE if value is None else EQUAL for value in found]
            names += one.names
            values += [value for value in found if value is not None]
        else:
            forms.append(GONE if one is absent else THERE)
            names.append(pk_name)
    text = _joined(tuple(forms))
    placed = dict(zip(_NAMES[: len(names)], names, strict=True))
    return text, placed, dict(zip(_VALUES[: len(values)], values, strict=True))


@lru_cache(maxsize=64)
def _joined(forms: tuple[str, ...]) -> str:
    """Return terms as one expression; cached, because most items of a table are alike."""
    values = iter(_VALUES)
    pairs = zip(forms, _NAMES[: len(forms)], strict=True)
    texts = [form.format(n, next(values) if form == EQUAL else "") for form, n in pairs]
    return f"({' AND '.join(texts)})" if len(texts) > 1 else texts[0]
