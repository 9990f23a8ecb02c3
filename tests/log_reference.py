"""The page of log events, written from the code: `make pages`."""

import ast
import functools
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import streamkit
from streamkit.observe.events import ACTIONS, EVENTS

PAGE = Path(__file__).parents[1] / "docs" / "logs.md"
LEVELS = {"exception": "error"}
HEAD = """# Log events

What does this line mean, and what do I do? Each line has an event, and its name never changes. Alarms and searches may rely on names, levels
and on the fields `handler`, `shard`, `queue`, `error`, `code` and `times`. A key is a hash, as `streamkit explain` prints it. What could
happen for every change is told once, then summed up: `times` counts since the first line, `errors` counts by kind, and `over` is the last line
of an outage. After an outage of a handler, `over` comes when it has not failed for 17 minutes, because failed changes are tried again after
pauses of up to 15.

This page is written from the code by `make pages`.
"""
TITLES = (
    ("error", "Errors: somebody has to act"),
    ("warning", "Warnings: look, if they last"),
    ("info", "News: nothing to do"),
)


@functools.cache
def logged() -> dict[str, set[str]]:
    """Return the levels at which the code logs each event."""
    found: dict[str, set[str]] = defaultdict(set)
    for path in sorted(Path(streamkit.__file__).parent.rglob("*.py")):
        for node in calls(ast.parse(path.read_text())):
            found[node.args[0].value].add(level_of(node))
    return dict(found)


def calls(tree: ast.Module) -> Iterator[ast.Call]:
    for node in ast.walk(tree):
        match node:
            case ast.Call(
                func=ast.Attribute(value=ast.Name(id="log")), args=[ast.Constant(value=str()), *_]
            ):
                yield node


def level_of(node: ast.Call) -> str:
    if node.func.attr != "often":
        return LEVELS.get(node.func.attr, node.func.attr)
    given = [word.value.value for word in node.keywords if word.arg == "level"]
    return given[0] if given else "info"


def page() -> str:
    parts, levels = [HEAD], {name: worst(found) for name, found in logged().items()}
    for level, title in TITLES:
        names = [name for name in EVENTS if levels.get(name) == level]
        heads = ("event", "means") if level == "info" else ("event", "means", "do")
        rows = [row(name, acts=level != "info") for name in names]
        lines = [f"| {' | '.join(heads)} |", f"| {' | '.join('---' for _ in heads)} |", *rows]
        parts.append("\n".join([f"## {title}", "", *lines, ""]))
    return "\n".join(parts)


def worst(levels: set[str]) -> str:
    """Return under which title an event stands: what is logged at debug is news."""
    return next((level for level, _ in TITLES if level in levels), "info")


def row(name: str, *, acts: bool) -> str:
    cells = [f"`{name}`", EVENTS[name], *([ACTIONS[name]] if acts else [])]
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    PAGE.write_text(page())
