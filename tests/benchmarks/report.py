"""The table that `make bench` prints: one line a row, and the names of the rows that fail."""

from collections.abc import Mapping

from tests.benchmarks.yardstick import Figure, Row

NOTED = 0.10
"""A change from the last record that is told; smaller ones are noise."""
HEAD = ("", "measured", "ratio", "bar", "recorded", "change", "")
_WIDTHS = (58, 26, 9, 9, 9, 8, 6)


def number(value: float) -> str:
    """Return a number with three digits that matter."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def change(row: Row, figure: Figure, before: Figure | None) -> float | None:
    """Return by how much a figure is better than the recorded one: -0.2 for a fifth worse."""
    if before is None or not before.judged or not figure.judged:
        return None
    return (before.judged / figure.judged if row.less else figure.judged / before.judged) - 1


def line(row: Row, figure: Figure, before: Figure | None) -> str:
    """Return the line of a row."""
    changed = change(row, figure, before)
    verdict = "" if row.holds(figure) else "FAILS"
    if not verdict and changed is not None and changed < -NOTED:
        verdict = "worse"
    cells = (
        row.name,
        f"{number(figure.value)} {row.unit}",
        "" if figure.ratio is None else number(figure.ratio),
        f"{'≤' if row.less else '≥'} {number(row.bar)}",
        "" if before is None else number(before.judged),
        "" if changed is None else f"{changed:+.0%}",
        verdict,
    )
    return spaced(cells)


def spaced(cells: tuple[str, ...]) -> str:
    """Return cells as a line: the first to the left, the others to the right."""
    first, *others = zip(cells, _WIDTHS, strict=True)
    return (f"{first[0]:<{first[1]}}" + "".join(f"{cell:>{w}}" for cell, w in others)).rstrip()


def failures(rows: Mapping[str, Row], figures: Mapping[str, Figure]) -> list[str]:
    """Return the rows that do not reach their bar, in words."""
    return [
        f"{name}: {number(figure.judged)}, and the bar is"
        f" {'at most' if rows[name].less else 'at least'} {number(rows[name].bar)}"
        for name, figure in figures.items()
        if not rows[name].holds(figure)
    ]
