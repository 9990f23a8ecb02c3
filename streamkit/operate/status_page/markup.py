"""Markup: HTML that its contents cannot break. Pure.

Everything put into an element is escaped, unless it is an element itself.
"""

import math
from collections.abc import Iterable
from html import escape


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


Child = str | float | None
"""An element may hold text, a number or another element; None is left out."""

_VOID = frozenset({"input", "meta"})

UNKNOWN = "\u2013"
"""A dash stands for a value that is not known or does not apply."""


def element(name: str, /, *children: Child, **attributes: str | None) -> Markup:
    """Return an element; an attribute that is None is left out, `class_` is `class`."""
    given = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    if name in _VOID:
        return Markup(f"<{name}{given}>")
    return Markup(f"<{name}{given}>{together(children)}</{name}>")


def together(children: Iterable[Child]) -> Markup:
    """Return the children one after the other."""
    return Markup("".join(_text(child) for child in children if child is not None))


def _text(child: str | float) -> str:
    if isinstance(child, Markup):
        return child
    return escape(child if isinstance(child, str) else f"{child:,}")


def duration(seconds: float | None) -> str:
    """Return a duration as text in its two largest units; a dash if it is not known."""
    if seconds is None or math.isnan(seconds):
        return UNKNOWN
    if seconds < 60:
        return f"{seconds:.1f} s" if 0 < seconds < 10 else f"{seconds:.0f} s"
    whole = round(seconds)
    for size, unit, inner_size, inner in ((86400, "d", 3600, "h"), (3600, "h", 60, "min")):
        if whole >= size:
            rest = whole % size // inner_size
            return f"{whole // size} {unit} {rest} {inner}" if rest else f"{whole // size} {unit}"
    return f"{whole // 60} min {whole % 60} s" if whole % 60 else f"{whole // 60} min"
