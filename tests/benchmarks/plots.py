"""Plots: a curve becomes an SVG of a few lines, readable on a light and on a dark page."""

from collections.abc import Sequence
from xml.sax.saxutils import escape

from tests.benchmarks.report import number

WIDTH, HEIGHT = 640, 300
LEFT, RIGHT, TOP, BOTTOM = 70, 30, 40, 50
INK, LINE = "#777", "#2f7fd1"


def plot(title: str, below: str, curve: Sequence[Sequence[float]]) -> str:
    """Return a curve as SVG: equal distances for its points, and a scale that begins at 0.

    Args:
        title: what is shown.
        below: the name of the horizontal axis.
        curve: points, from left to right.
    """
    most = max(y for _, y in curve) * 1.15
    step = (WIDTH - LEFT - RIGHT) / max(1, len(curve) - 1)
    floor = HEIGHT - BOTTOM

    def height(value: float) -> float:
        return floor - (floor - TOP) * value / most

    points = [(LEFT + place * step, height(y)) for place, (_, y) in enumerate(curve)]
    parts = [_text(LEFT, 22, title, size=15, anchor="start")]
    for part in range(5):
        value = most * part / 4
        y = height(value)
        parts.append(
            f'<line x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}" stroke="{INK}"'
            ' stroke-opacity="0.25"/>'
        )
        parts.append(_text(LEFT - 8, y + 4, number(value), anchor="end"))
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    parts.append(f'<polyline points="{path}" fill="none" stroke="{LINE}" stroke-width="2.5"/>')
    for (x, y), (name, value) in zip(points, curve, strict=True):
        parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{LINE}"/>')
        parts.append(_text(x, y - 10, number(value)))
        parts.append(_text(x, floor + 18, f"{name:,}"))
    parts.append(_text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 10, below))
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}"'
    return "\n".join([f'{head} font-family="sans-serif">', *parts, "</svg>", ""])


def _text(x: float, y: float, text: str, *, size: int = 12, anchor: str = "middle") -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}"'
    return f'<text {place} fill="{INK}">{escape(text)}</text>'
