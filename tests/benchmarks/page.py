"""The page of the figures: its table and plots are made from the recorded table."""

from pathlib import Path

from tests.benchmarks.plots import plot
from tests.benchmarks.recording import Recorded
from tests.benchmarks.report import number
from tests.benchmarks.yardstick import ROWS

DOCS = Path(__file__).parents[2] / "docs"
PAGE = DOCS / "performance.md"
BEGIN, END = "<!-- figures: `make bench RECORD=1` writes them -->\n", "<!-- end of figures -->\n"

GROWTH = (
    "Changes per CPU second of all processes together, as so many times the usual way to read. A"
    " flat line means that twice the work takes twice the time."
)

PLOTS = {
    "shards": ("An aggregate over shards, pages of 100", "shards of one worker"),
    "handlers": ("Handlers that write nothing, full pages", "handlers of the app"),
    "backlog": ("An aggregate over a backlog, pages of 100", "pages that wait"),
    "fleet": ("An aggregate over a fleet, 16 shards, full pages", "workers"),
}
"""The title of each curve, and the name of its horizontal axis."""


def figures(recorded: Recorded) -> str:
    """Return the part of the page that is made: where and when, and the table."""
    lines = [
        f"Measured on {recorded.date}: {recorded.machine}.",
        "",
        "| what | measured | times the yardstick | which is | bar |",
        "| --- | ---: | ---: | --- | ---: |",
    ]
    for name, figure in recorded.figures.items():
        row = ROWS[name]
        ratio = "" if figure.ratio is None else number(figure.ratio)
        bar = f"{'≤' if row.less else '≥'} {number(row.bar)}"
        lines.append(f"| {name} | {number(figure.value)} {row.unit} | {ratio} | {row.of} | {bar} |")
    drawn = [
        f"![{title}](performance/{name}.svg)"
        for name, (title, _) in PLOTS.items()
        if name in recorded.growth
    ]
    if drawn:
        lines += ["", GROWTH]
    return "\n".join([*lines, *(text for one in drawn for text in ("", one)), ""])


def page(text: str, recorded: Recorded) -> str:
    """Return the page with the figures of a recorded table."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return before + BEGIN + figures(recorded) + END + after


def plots(recorded: Recorded) -> dict[Path, str]:
    """Return the files of the plots."""
    return {
        DOCS / "performance" / f"{name}.svg": plot(
            f"{title}: changes per CPU second, times the usual way", below, recorded.growth[name]
        )
        for name, (title, below) in PLOTS.items()
        if name in recorded.growth
    }


def write(recorded: Recorded) -> None:
    """Bring the page and its plots up to date."""
    PAGE.write_text(page(PAGE.read_text(), recorded))
    for place, text in plots(recorded).items():
        place.parent.mkdir(exist_ok=True)
        place.write_text(text)
