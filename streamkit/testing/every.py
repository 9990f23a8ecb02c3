"""Every call: a scenario is played once for each call of a process, which stops at that call.

    for _ in every_crash(scenario, lambda: Harness(make_app())):
        pass
    for _ in every_freeze(scenario, lambda: Harness(make_app()), part="operation", sample=20):
        pass

In: a scenario on a harness: what to do, and what must hold when all of it is processed. Out: the
stops that it has passed. Chance is the same each time, so the calls counted in the first run are
the calls at which later runs stop. On failure: the scenario's error, with a note that names the
stop.
"""

import os
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TypeVar

from streamkit.testing.chance import repeatable
from streamkit.testing.harness import Harness
from streamkit.testing.stops import THAWS, Moment, Part, Thaw

EVERY_CALL = "EVERY_CALL"
"""The environment variable that turns every `sample` off, so that all stops are played."""
_SEED = 0
_NEVER = 1 << 60
_MOMENTS: tuple[Moment, ...] = ("before", "after")

T = TypeVar("T")
Scenario = Callable[[Harness], None]
Make = Callable[[], Harness]


@dataclass(frozen=True, slots=True)
class Stop:
    """The call at which a process is killed or, with `thaw`, is frozen; calls count from 0."""

    part: Part
    call: int
    moment: Moment
    thaw: Thaw | None = None

    def __str__(self) -> str:
        """Return the stop in words."""
        how = "killed" if self.thaw is None else f"frozen until its {self.thaw},"
        return f"the {self.part} was {how} {self.moment} its call {self.call}"

    def play(self, scenario: Scenario, make: Make) -> None:
        """Play a scenario in which the process stops here.

        Raises:
            AssertionError: a process that had been frozen changed an item after the end.
        """
        try:
            with repeatable(_SEED), make() as harness:
                self._play(scenario, harness)
        except BaseException as error:
            error.add_note(str(self))
            raise

    def _play(self, scenario: Scenario, harness: Harness) -> None:
        if self.thaw is None:
            harness.crash(at=self.call, moment=self.moment, part=self.part)
            scenario(harness)
            return
        harness.freeze(at=self.call, moment=self.moment, thaw=self.thaw, part=self.part)
        scenario(harness)
        before = harness.items()
        harness.outlive()
        if harness.items() != before:
            raise AssertionError("what stood still has changed items after the end")


def every_crash(
    scenario: Scenario,
    make: Make,
    *,
    reads: bool = False,
    part: Part = "worker",
    sample: int | None = None,
    seed: int = 0,
) -> Iterator[int]:
    """Play a scenario for each call that writes; kill its process before the call, then after it.

    A death at a call that reads leaves the table as a death before the next write does.

    Args:
        scenario: what to do, and what must hold at the end.
        make: makes the harness, the same each time.
        reads: kill at calls that only read too, for handlers with effects outside of the table.
        part: the process that is killed: the worker, or what `Harness.operate` runs.
        sample: play only this number of stops; all if the environment sets EVERY_CALL=1.
        seed: chooses the sample.

    Yields:
        The number of the call, after the scenario has passed all stops there.
    """
    calls, writes = counted(scenario, make, part)
    numbers = range(calls) if reads else writes
    stops = [Stop(part, call, moment) for call, moment in product(numbers, _MOMENTS)]
    played = chosen(stops, sample, seed)
    for stop, after in zip(played, [*played[1:], None], strict=True):
        stop.play(scenario, make)
        if after is None or after.call != stop.call:
            yield stop.call


def every_freeze(
    scenario: Scenario,
    make: Make,
    *,
    part: Part = "worker",
    sample: int | None = None,
    seed: int = 0,
) -> Iterator[Stop]:
    """Play a scenario for each call; freeze its process there, and thaw it later.

    The process is frozen before each call, and after each call that writes. A freeze after a read
    is the same as one before the next call. The process thaws after its lease, with the next step
    of an operation, and after the end; see `stops`. After the end no item of the application may
    change any more, so the scenario must end with everything processed.

    Args:
        scenario: what to do, and what must hold at the end.
        make: makes the harness, the same each time.
        part: the process that is frozen: the worker, or what `Harness.operate` runs.
        sample: play only this number of stops; all if the environment sets EVERY_CALL=1.
        seed: chooses the sample.

    Yields:
        The stop that the scenario has passed.
    """
    calls, writes = counted(scenario, make, part)
    places = [*product(range(calls), _MOMENTS[:1]), *product(writes, _MOMENTS[1:])]
    stops = [Stop(part, *place, thaw) for place in sorted(places) for thaw in THAWS]
    for stop in chosen(stops, sample, seed):
        stop.play(scenario, make)
        yield stop


def counted(scenario: Scenario, make: Make, part: Part) -> tuple[int, list[int]]:
    """Play a scenario without a stop; return how many calls there are, and those that write."""
    with repeatable(_SEED), make() as harness:
        harness.freeze(at=_NEVER, part=part)  # starts a worker before the scenario, as a stop does
        made = harness if part == "worker" else harness.operations
        before = made.calls
        scenario(harness)
        return made.calls - before, [n - before for n in made.writes if n >= before]


def chosen(stops: Sequence[T], sample: int | None, seed: int) -> list[T]:
    """Return `sample` of these, chosen by a seed; all if the environment says so."""
    if sample is None or sample >= len(stops) or os.environ.get(EVERY_CALL):
        return list(stops)
    numbers = random.Random(seed).sample(range(len(stops)), sample)
    return [stops[number] for number in sorted(numbers)]


__all__ = ["EVERY_CALL", "Stop", "chosen", "counted", "every_crash", "every_freeze"]
