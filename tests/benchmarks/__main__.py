"""`python -m tests.benchmarks [WORDS]`: measure the rows whose names have one of the words.

`--record` keeps the figures as the table that later runs are compared with. The exit code is 1 if
a row does not reach its bar.
"""

import argparse
import contextlib
import importlib
import io
import sys
from dataclasses import replace
from pathlib import Path

from streamkit.observe.logs import configure
from tests.benchmarks.recording import Recorded, this_machine, today
from tests.benchmarks.report import HEAD, failures, line, spaced
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


def main() -> int:
    """Do what the command line says."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks")
    parser.add_argument("words", nargs="*", help="parts of the names of rows; all rows without")
    parser.add_argument("--record", action="store_true", help="keep the figures")
    given = parser.parse_args()
    configure("json", "error")
    load_rows()
    before = Recorded.read()
    figures = measure(given.words, before)
    if given.record:
        kept = {**before.figures, **figures}
        kept = {name: kept[name] for name in ROWS if name in kept}
        replace(before, machine=this_machine(), date=today(), figures=kept).write()
    failed = failures(ROWS, figures)
    print("\n".join(f"FAILS {text}" for text in failed), file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
