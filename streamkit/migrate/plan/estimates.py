"""Estimate units, money and time of a whole migration from those of a sample. Pure.

In: what the parts of a sample take. Out: a `Forecast`, step by step. Money is that of on-demand
tables; a provisioned table pays for its capacity, and takes the time that the budget says.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from streamkit.kinds.migration import Migration
from streamkit.migrate.book.limits import UnitLimits
from streamkit.migrate.plan.expenses import (
    AT_ONCE,
    PAGE_ITEMS,
    PASSES,
    STEPS,
    Spent,
    Step,
    moving_passes,
)
from streamkit.migrate.run.passing import PAGE_WRITES
from streamkit.migrate.run.sampling import Sample, SampleEstimate
from streamkit.observe.pricing import DOLLARS

_TO_REST: tuple[tuple[Step, ...], ...] = (("scan", "rewrite"), ("verify",))
"""The steps that run at the same time, group after group, until the migration rests."""


@dataclass(frozen=True, slots=True)
class StepCost:
    """The units of one step; `writes` by index, "" is the table."""

    step: Step
    reads: SampleEstimate
    writes: dict[str, SampleEstimate]
    dollars: SampleEstimate


@dataclass(frozen=True, slots=True)
class Choice:
    """What a migration takes as a whole if people choose a way to its end.

    `writes` are units of the table and of its indexes; `seconds` is None if no budget limits it.
    """

    name: str
    reads: SampleEstimate
    writes: SampleEstimate
    dollars: SampleEstimate
    seconds: float | None


@dataclass(frozen=True, slots=True)
class Forecast:
    """The units, money and time of a migration; `seconds` is None if no budget limits it.

    `choices` are the ways to its end, if there are several. `one_pass` are the read units of one
    pass of `switch`, for items that move: the steps count the passes without writers.
    """

    steps: tuple[StepCost, ...]
    dollars: SampleEstimate
    seconds: float | None
    choices: tuple[Choice, ...] = ()
    one_pass: SampleEstimate | None = None


def forecast(
    migration: Migration,
    sample: Sample,
    pass_reads: Sequence[float],
    scanned: Sequence[float],
    spent: Sequence[Spent],
    budget: UnitLimits,
) -> Forecast:
    """Return what a migration takes.

    Args:
        migration: the migration.
        sample: the sample that was read.
        pass_reads: read units of one pass over each part, strongly consistent.
        scanned: items of each part.
        spent: what its items take in addition.
        budget: units a second that it may use; for writes, of the table and of each index.
    """
    parts = [one.copy() for one in spent]
    passes = (*PASSES, *moving_passes(migration))
    for part, units, items in zip(parts, pass_reads, scanned, strict=True):
        for step in passes:
            part[step, "read", ""] += units
            part[step, "write", ""] += PAGE_WRITES * items / PAGE_ITEMS
    steps = tuple(_step(step, sample, parts) for step in STEPS if _named(step, parts))
    dollars = sample.total_of([_dollars(part, STEPS) for part in parts])
    choices, passes_of = _choices(steps, sample, parts, budget), passes.count("switch")
    reads = [part["switch", "read", ""] / passes_of for part in parts if passes_of]
    one_pass = sample.total_of(reads) if reads else None
    return Forecast(steps, dollars, _seconds(steps, budget), choices, one_pass)


def _choices(
    steps: Sequence[StepCost],
    sample: Sample,
    parts: Sequence[Spent],
    budget: UnitLimits,
) -> tuple[Choice, ...]:
    """Return the ways to the end of a migration that moves items; other migrations have one."""
    if not _named(AT_ONCE, parts):
        return ()
    every = *steps, _step(AT_ONCE, sample, parts)
    later = tuple(step for step in STEPS if step not in ("scan", "rewrite", "contract"))
    found = []
    for name, last in (("contract", STEPS[-1]), ("contract --old-code none", AT_ONCE)):
        way = ("scan", "rewrite", *later, last)
        reads = sample.total_of([_units(part, way, "read") for part in parts])
        writes = sample.total_of([_units(part, way, "write") for part in parts])
        dollars = sample.total_of([_dollars(part, way) for part in parts])
        groups = (("scan", "rewrite"), *((step,) for step in (*later, last)))
        found.append(Choice(name, reads, writes, dollars, _seconds(every, budget, groups)))
    return tuple(found)


def _units(part: Spent, steps: Sequence[Step], kind: str) -> float:
    return sum(units for (of, what, _), units in part.items() if of in steps and what == kind)


def _named(step: Step, parts: Sequence[Spent]) -> bool:
    return any(units for part in parts for (of, _, _), units in part.items() if of == step)


def _step(step: Step, sample: Sample, parts: Sequence[Spent]) -> StepCost:
    indexes = sorted({name for part in parts for of, _, name in part if of == step} | {""})
    return StepCost(
        step,
        sample.total_of([part[step, "read", ""] for part in parts]),
        {name: sample.total_of([part[step, "write", name] for part in parts]) for name in indexes},
        sample.total_of([_dollars(part, (step,)) for part in parts]),
    )


def _dollars(part: Spent, steps: Sequence[Step]) -> float:
    return sum(units * DOLLARS[kind] for (of, kind, _), units in part.items() if of in steps)


def _seconds(
    steps: Sequence[StepCost],
    budget: UnitLimits,
    groups: Iterable[tuple[Step, ...]] = _TO_REST,
) -> float | None:
    """Return how long steps take, by default those before the first rest.

    The scarcest kind of units decides, in each group of steps that run at the same time.
    """
    reads, writes = budget.reads, budget.writes
    if not (reads or writes):
        return None
    total = 0.0
    for together in groups:
        mine = [step for step in steps if step.step in together]
        times = [0.0]
        if reads:
            times.append(sum(step.reads.value for step in mine) / reads)
        if writes:
            names = {name for step in mine for name in step.writes}
            units = (sum(s.writes[n].value for s in mine if n in s.writes) for n in names)
            times += [one / writes for one in units]
        total += max(times)
    return total
