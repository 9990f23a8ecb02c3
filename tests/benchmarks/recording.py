"""The last recorded table: what a run is compared with, row by row.

`recorded.json` is in the repository. `make bench` compares with it, `make bench RECORD=1` writes it
and the page that shows it.
"""

import json
import platform
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.benchmarks.yardstick import Figure

PLACE = Path(__file__).with_name("recorded.json")


@dataclass(frozen=True)
class Recorded:
    """A table that was measured before, with its machine and date; and how costs grow."""

    machine: str = ""
    date: str = ""
    figures: Mapping[str, Figure] = field(default_factory=dict)
    growth: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def read(cls, place: Path = PLACE) -> "Recorded":
        """Return the last recorded table; an empty one if there is none."""
        if not place.exists():
            return cls()
        told = json.loads(place.read_text())
        figures = {name: Figure(**figure) for name, figure in told.pop("figures").items()}
        return cls(figures=figures, **told)

    def write(self, place: Path = PLACE) -> None:
        """Keep this table."""
        figures = {
            name: {"value": rounded(figure.value), "ratio": figure.ratio and rounded(figure.ratio)}
            for name, figure in self.figures.items()
        }
        told = {"machine": self.machine, "date": self.date, "figures": figures}
        place.write_text(json.dumps(told | {"growth": self.growth}, indent=1) + "\n")


def rounded(value: float) -> float:
    """Return a number with four digits: more are noise."""
    return float(f"{value:.4g}")


def this_machine() -> str:
    """Return the processor, the system and the Python of this machine."""
    processor = platform.processor() or platform.machine()
    described = Path("/proc/cpuinfo")
    if described.exists():
        models = [line for line in described.read_text().splitlines() if "model name" in line]
        processor = models[0].partition(":")[2].strip() if models else processor
    python = f"{platform.python_implementation()} {platform.python_version()}"
    return f"{processor}, {platform.system()}, {python}"


def today() -> str:
    """Return the date as it is recorded."""
    return time.strftime("%Y-%m-%d", time.gmtime())
