"""Estimate units, money and time of a whole migration from those of a sample. Pure.

In: what the parts of a sample take. Out: a `Forecast`, step by step. Money is that of on-demand
tables; a provisioned table pays for its capacity, and takes the time that the budget says.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from streamkit.kinds.migration import Migration
from streamkit.migrate.expenses import (
    PAGE_ITEMS,
    PAGE_WRITES,
    PASSES,
    STEPS,
    Spent,
    Step,
    moving_passes,
)
from streamkit.migrate.sampling import Sample, SampleEstimate
from streamkit.observe.pricing import DOLLARS, PRICED

_TOGETHER: dict[Step, tuple[Step, ...]] = {
    "scan": ("scan", "rewrite"),
    "verify": ("verify",),
}
"""The steps that run at the same time, group after group, until the migration rests."""


@dataclass(frozen=True, slots=True)
class StepCost:
    """The units of one step; `writes` by index, "" is the table."""

    step: Step
    reads: SampleEstimate
    writes: dict[str, SampleEstimate]
    dollars: SampleEstimate

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON types."""
        return {
            "step": self.step,
            "reads": self.reads.to_dict(),
            "writes": {name: one.to_dict() for name, one in self.writes.items()},
            "dollars": self.dollars.to_dict(),
        }


@dataclass(frozen=True, slots=True)
class Forecast:
    """The units, money and time of a migration; `seconds` is None if no budget limits it."""

    steps: tuple[StepCost, ...]
    dollars: SampleEstimate
    seconds: float | None

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON types."""
        return {
            "steps": [step.to_dict() for step in self.steps],
            "dollars": self.dollars.to_dict(),
            "seconds": self.seconds,
            "prices": PRICED,
        }


def forecast(
    migration: Migration,
    sample: Sample,
    pass_reads: Sequence[float],
    scanned: Sequence[float],
    spent: Sequence[Spent],
    *,
    reads: float | None,
    writes: float | None,
) -> Forecast:
    """Return what a migration takes.

    Args:
        migration: the migration.
        sample: the sample that was read.
        pass_reads: read units of one pass over each part, strongly consistent.
        scanned: items of each part.
        spent: what its items take in addition.
        reads: read units a second that it may use.
        writes: write units a second, of the table and of each index.
    """
    parts = [one.copy() for one in spent]
    passes = (*PASSES, *moving_passes(migration))
    for part, units, items in zip(parts, pass_reads, scanned, strict=True):
        for step in passes:
            part[step, "read", ""] += units
            part[step, "write", ""] += PAGE_WRITES * items / PAGE_ITEMS
    steps = tuple(_step(step, sample, parts) for step in STEPS if _named(step, parts))
    dollars = sample.total_of([_dollars(part) for part in parts])
    return Forecast(steps, dollars, _seconds(steps, reads, writes))


def _named(step: Step, parts: Sequence[Spent]) -> bool:
    return any(units for part in parts for (of, _, _), units in part.items() if of == step)


def _step(step: Step, sample: Sample, parts: Sequence[Spent]) -> StepCost:
    indexes = sorted({name for part in parts for of, _, name in part if of == step} | {""})
    return StepCost(
        step,
        sample.total_of([part[step, "read", ""] for part in parts]),
        {name: sample.total_of([part[step, "write", name] for part in parts]) for name in indexes},
        sample.total_of([_dollars(part, step) for part in parts]),
    )


def _dollars(part: Spent, step: Step | None = None) -> float:
    return sum(units * DOLLARS[kind] for (of, kind, _), units in part.items() if step in (None, of))


def _seconds(steps: Sequence[StepCost], reads: float | None, writes: float | None) -> float | None:
    """Return how long the passes before the first rest take; the scarcest kind of units decides."""
    if not (reads or writes):
        return None
    total = 0.0
    for together in _TOGETHER.values():
        longest = 0.0
        mine = [step for step in steps if step.step in together]
        if reads:
            longest = sum(step.reads.value for step in mine) / reads
        if writes:
            names = {name for step in mine for name in step.writes}
            longest = max(
                longest,
                *(
                    sum(s.writes[name].value for s in mine if name in s.writes) / writes
                    for name in names
                ),
            )
        total += longest
    return total
