"""Diffs: what a migration would change in one item, attribute by attribute. Pure.

In: a trial of an item. Out: lines with a sign, `-` for what goes and `+` for what comes. They hold
item data, and are for the terminal of whoever asked for them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from streamkit.actions import Wire
from streamkit.migrate.errors import error_id
from streamkit.migrate.transform import plain, same, visible
from streamkit.migrate.trials import Trial

Sign = Literal["-", "+", " "]
Line = tuple[Sign, str]

_WIDE = 120


@dataclass(frozen=True, slots=True)
class Diff:
    """What would change of one item, which is named by its key or a hash of it."""

    item: str
    lines: tuple[Line, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return it in JSON's types."""
        return {"item": self.item, "lines": [f"{sign} {text}" for sign, text in self.lines]}


def diff_of(item: str, trial: Trial, there: Sequence[Mapping[str, Wire] | None]) -> Diff:
    """Return what a trial changes; `there` is what is where its targets belong."""
    lines: list[Line] = []
    if trial.rewrite is not None and trial.rewrite.changes_item:
        lines += _lines(trial.before, trial.after or {})
    for target, now in zip(trial.rewrite.targets if trial.rewrite else (), there, strict=True):
        before = {} if now is None else plain(visible(now))
        changed = _lines(before, plain(target.item))
        if changed:
            lines += [(" ", f"item {error_id(target.key)}"), *changed]
    return Diff(item, tuple(lines))


def _lines(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[Line]:
    lines: list[Line] = []
    for name in sorted({*before, *after}):
        if name in before and name in after and same(before[name], after[name]):
            continue
        if name in before:
            lines.append(("-", f"{name}: {_short(before[name])}"))
        if name in after:
            lines.append(("+", f"{name}: {_short(after[name])}"))
    return lines


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _WIDE else f"{text[: _WIDE - 3]}..."
