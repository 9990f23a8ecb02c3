"""Estimate units, money and time of a whole migration from those of a sample. Pure.

In: what the parts of a sample take. Out: a `Forecast`, step by step. Money is that of on-demand
tables; a provisioned table pays for its capacity, and takes the time that the budget says.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain

from streamkit.kinds.migration import Migration
from streamkit.migrate.book.limits import Limit
from streamkit.migrate.plan.expenses import AT_ONCE, STEPS, Spent, Step, moving_passes
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
    migration: Migration, sample: Sample, parts: Sequence[Spent], budget: Limit
) -> Forecast:
    """Return what a migration takes, from what each part of a sample takes.

    The `budget` is units a second that it may use; for writes, of the table and of each index.
    """
    costs, passes_of = _Costs(sample, parts), moving_passes(migration).count("switch")
    reads = [part["switch", "read", ""] / passes_of for part in parts if passes_of]
    return Forecast(
        tuple(costs.step(step) for step in STEPS if costs.has(step)),
        costs.dollars(STEPS),
        costs.seconds(budget, _TO_REST),
        _choices(costs, budget),
        sample.total_of(reads) if reads else None,
    )


def _choices(costs: "_Costs", budget: Limit) -> tuple[Choice, ...]:
    """Return the ways to the end of a migration that moves items; other migrations have one."""
    if not costs.has(AT_ONCE):
        return ()
    found = []
    for name, last in (("contract", STEPS[-1]), ("contract --old-code none", AT_ONCE)):
        groups = (*_TO_REST, ("switch",), (last,))
        way = tuple(chain.from_iterable(groups))
        reads, writes = costs.units(way, "read"), costs.units(way, "write")
        found.append(Choice(name, reads, writes, costs.dollars(way), costs.seconds(budget, groups)))
    return tuple(found)


@dataclass(frozen=True)
class _Costs:
    """What the whole table takes, by steps, from the `parts` of a sample."""

    sample: Sample
    parts: Sequence[Spent]

    def has(self, step: Step) -> bool:
        return any(units for part in self.parts for (of, *_), units in part.items() if of == step)

    def units(self, steps: Sequence[Step], kind: str, index: str | None = None) -> SampleEstimate:
        """Return the units of steps, of an index or of all; "" is the table."""
        return self.sample.total_of(
            [
                sum(
                    units
                    for (of, what, name), units in part.items()
                    if of in steps and what == kind and index in (None, name)
                )
                for part in self.parts
            ]
        )

    def dollars(self, steps: Sequence[Step]) -> SampleEstimate:
        return self.sample.total_of(
            [
                sum(units * DOLLARS[kind] for (of, kind, _), units in part.items() if of in steps)
                for part in self.parts
            ]
        )

    def step(self, step: Step) -> StepCost:
        steps = (step,)
        writes = {name: self.units(steps, "write", name) for name in sorted(self._indexes(steps))}
        return StepCost(step, self.units(steps, "read"), writes, self.dollars(steps))

    def seconds(self, budget: Limit, groups: Iterable[Sequence[Step]]) -> float | None:
        """Return how long groups of steps take, one after the other; None without a budget.

        The steps of a group run at the same time, and the scarcest kind of units decides.
        """
        reads, writes = budget.max_reads, budget.max_writes
        if not (reads or writes):
            return None
        total = 0.0
        for steps in groups:
            times = [self.units(steps, "read").value / reads] if reads else []
            if writes:
                indexes = self._indexes(steps)
                times += [self.units(steps, "write", one).value / writes for one in indexes]
            total += max(times)
        return total

    def _indexes(self, steps: Sequence[Step]) -> set[str]:
        return {name for part in self.parts for of, _, name in part if of in steps} | {""}
