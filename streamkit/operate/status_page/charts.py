"""Charts: small pictures of numbers over time, as SVG in the page. Pure; without scripts."""

from collections.abc import Sequence

from streamkit.operate.status_page.history import Point
from streamkit.operate.status_page.markup import Markup, element

_WIDTH, _HEIGHT = 240, 48
_SPAN_SECONDS = 3600.0
"""A chart shows this much at least, so that a young process has a short line and no steep one."""


def chart(points: Sequence[Point], label: str, *, small: bool = False) -> Markup | None:
    """Draw values over the last hour or more; nothing if there are fewer than two.

    Args:
        points: times and values, the oldest first.
        label: what screen readers read, and what is shown when it is pointed at.
        small: in a table's cell, without an axis.
    """
    if len(points) < 2:
        return None
    until, top = points[-1][0], max(*(value for _, value in points), 1e-9)
    span = max(_SPAN_SECONDS, until - points[0][0])
    dots = " ".join(
        f"{_WIDTH * (1 - (until - at) / span):.1f},{_HEIGHT * (1 - value / top):.1f}"
        for at, value in points
    )
    line = element("polyline", points=dots)
    base = None if small else element("path", d=f"M0 {_HEIGHT}H{_WIDTH}")
    return element(
        "svg",
        element("title", label),
        base,
        line,
        viewBox=f"0 -2 {_WIDTH} {_HEIGHT + 4}",
        preserveAspectRatio="none",
        role="img",
        class_="spark" if small else "chart",
    )


def bar(share: float) -> Markup:
    """Draw a progress bar; `share` is 0 to 1."""
    return element("progress", f"{share:.0%}", max="1", value=f"{share:.3f}", title=f"{share:.1%}")
