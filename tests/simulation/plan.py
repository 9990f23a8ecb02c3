"""Plans: all events of a run, as data, and the search for a smaller plan that still fails.

A run that follows from a seed and a plan can be repeated, printed, kept as a test, and made
smaller: `shrunk` leaves out events, by halves and then one by one, while the run still fails.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

Value: TypeAlias = int | float | str | bool | None


class PlannedEvent:
    """One event of a run, with details such as time and target, in the form of the run's driver.

    Event("split", at=12.3, shard=1), Event("kill", worker=2, call=113, moment="after")
    """

    __slots__ = ("details", "what")

    def __init__(self, what: str, **details: Value) -> None:
        self.what = what
        self.details: Mapping[str, Value] = details

    def __getitem__(self, name: str) -> Any:
        return self.details[name]

    def __contains__(self, name: str) -> bool:
        return name in self.details

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PlannedEvent) and repr(self) == repr(other)

    def __hash__(self) -> int:
        return hash(repr(self))

    def __repr__(self) -> str:
        details = "".join(f", {name}={value!r}" for name, value in self.details.items())
        return f'Event("{self.what}"{details})'


@dataclass(frozen=True)
class Plan:
    """A run without its seed: the shape of the world, and the events in it.

    The driver of the run defines the form of `shape` and of the events.
    """

    shape: Mapping[str, Any] = field(default_factory=dict)
    events: tuple[PlannedEvent, ...] = ()

    def named(self, *whats: str) -> list[PlannedEvent]:
        """Return the events of these names, in order."""
        return [event for event in self.events if event.what in whats]

    def literal(self) -> str:
        """Return the plan as Python code, one event a line."""
        shape = "".join(f"        {name!r}: {value!r},\n" for name, value in self.shape.items())
        events = "".join(f"        {event!r},\n" for event in self.events)
        return f"Plan(\n    shape={{\n{shape}    }},\n    events=(\n{events}    ),\n)"


def shrunk(plan: Plan, fails: Callable[[Plan], bool], *, runs: int = 100) -> Plan:
    """Return a smaller plan that still fails, found by leaving out events.

    Args:
        plan: a plan that fails.
        fails: runs a plan, and returns whether it fails in the same way.
        runs: how often `fails` is called at most.
    """
    size = max(len(plan.events) // 2, 1)
    while runs > 0 and plan.events:
        start, smaller = 0, False
        while start < len(plan.events) and runs > 0:
            left = plan.events[:start] + plan.events[start + size :]
            candidate = replace(plan, events=left)
            runs -= 1
            if fails(candidate):
                plan, smaller = candidate, True
            else:
                start += size
        if size == 1 and not smaller:
            break
        size = size if smaller and size == 1 else max(size // 2, 1)
    return plan
