"""Reads: what a handler has read, and the checks that its result needs at its commit. Pure."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from streamkit.core.handler import Handler
from streamkit.effects import Guard
from streamkit.model.conditions import Condition
from streamkit.progress.actions import READ, Action, GuardSource, ItemRef, Verb, Wire

Version = tuple[str, str, int]
"""The run that wrote an item: position, handler, number of the run."""

Expect = Callable[[Mapping[str, Wire] | None], tuple[Condition, ...]]


def nothing_expected(item: Mapping[str, Wire] | None) -> tuple[Condition, ...]:  # noqa: ARG001
    """Accept any item: it was read only for its pending writes."""
    return ()


@dataclass(frozen=True, slots=True)
class Read:
    """One read of a handler: an item as the table had it, and the pending writes it saw on it.

    The handler's result is valid if the `conditions` hold for the item at the commit. `expect`
    makes them from `stored`, the item without the pending writes.
    """

    ref: ItemRef
    seen: tuple[Version, ...]
    stored: Mapping[str, Wire] | None = None
    expect: Expect = nothing_expected
    conditions: tuple[Condition, ...] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "conditions", self.expect(self.stored))


def checks(reads: Iterable[Read], position: str, handler: Handler) -> list[Action]:
    """Return the checks that a result needs, because its handler has read these items."""
    found = []
    for read in reads:
        source = GuardSource(position, handler.name, READ)
        guards = [(Guard(condition, "retry"), source) for condition in read.conditions]
        if guards:
            found.append(Action(read.ref, Verb.CHECK, guards=guards))
    return found
