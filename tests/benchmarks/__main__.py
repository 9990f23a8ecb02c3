"""`python -m tests.benchmarks [WORDS]`: measure the rows whose names have one of the words.

`--record` keeps the figures as the table that later runs are compared with, and shows them on the
page; `--growth` measures how costs grow, too, which takes some minutes more. The exit code is 1 if a
row does not reach its bar.
"""

import argparse
import contextlib
import importlib
import io
import sys
from pathlib import Path

from streamkit.observe.logs import configure
from tests.benchmarks import page
from tests.benchmarks.growth import CURVES
from tests.benchmarks.recording import Recorded, rounded, this_machine, today
from tests.benchmarks.report import HEAD, failures, line, number, spaced
from tests.benchmarks.yardstick import ROWS, Figure


def load_rows() -> None:
    """Import the modules that have rows, in the order of their names."""
    for path in sorted((Path(__file__).parent / "rows").glob("*.py")):
        importlib.import_module(f"tests.benchmarks.rows.{path.stem}")


def measure(words: list[str], before: Recorded) -> dict[str, Figure]:
    """Measure rows and print their lines; whatever else is printed meanwhile is dropped."""
    figures: dict[str, Figure] = {}
    print(spaced(HEAD), flush=True)
    for name, row in ROWS.items():
        if words and not any(word in name for word in words):
            continue
        with contextlib.redirect_stdout(io.StringIO()):
            figures[name] = row.taken()
        print(line(row, figures[name], before.figures.get(name)), flush=True)
    return figures


def measure_growth() -> dict[str, list[list[float]]]:
    """Measure and print the curves of growth."""
    found = {}
    for name, curve in CURVES.items():
        found[name] = [[x, rounded(y)] for x, y in curve()]
        print(f"{name}: " + ", ".join(f"{x:,} {number(y)}" for x, y in found[name]), flush=True)
    return found


def main() -> int:
    """Do what the command line says."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks")
    parser.add_argument("words", nargs="*", help="parts of the names of rows; all rows without")
    parser.add_argument("--record", action="store_true", help="keep the figures")
    parser.add_argument("--growth", action="store_true", help="also measure how costs grow")
    given = parser.parse_args()
    configure("json", "error")
    load_rows()
    before = Recorded.read()
    figures = measure(given.words, before)
    growth = {**before.growth, **(measure_growth() if given.growth else {})}
    if given.record:
        kept = {**before.figures, **figures}
        kept = {name: kept[name] for name in ROWS if name in kept}
        recorded = Recorded(this_machine(), today(), kept, growth)
        recorded.write()
        page.write(Recorded.read())
    failed = failures(ROWS, figures)
    print("\n".join(f"FAILS {text}" for text in failed), file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
