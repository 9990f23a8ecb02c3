"""Show what a migration would change in one item, attribute by attribute. Pure.

In: a dry run of an item. Out: lines with a sign, `-` for what goes and `+` for what comes. They
contain item data, and are only for the terminal of the operator that asked for them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from streamkit.migrate.book.errors import error_id
from streamkit.migrate.items.rewrites import differing, plain, visible
from streamkit.migrate.plan.dry_run import Trial
from streamkit.progress.actions import Wire

Sign = Literal["-", "+", " "]
Line = tuple[Sign, str]

_WIDE = 120


@dataclass(frozen=True, slots=True)
class Diff:
    """The change of one item, which is named by its key or a hash of it."""

    item: str
    lines: tuple[Line, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON types."""
        return {"item": self.item, "lines": [f"{sign} {text}" for sign, text in self.lines]}


def diff_of(item: str, trial: Trial, there: Sequence[Mapping[str, Wire] | None]) -> Diff:
    """Return what a dry run changes; `there` are the items in the places of its targets."""
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
    for name in sorted(differing(before, after)):
        if name in before:
            lines.append(("-", f"{name}: {_short(before[name])}"))
        if name in after:
            lines.append(("+", f"{name}: {_short(after[name])}"))
    return lines


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _WIDE else f"{text[: _WIDE - 3]}..."
