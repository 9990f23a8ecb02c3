"""The explorer that the models of `tests/models` share: all worlds, some walks, and a replay.

A *model* says what a world is, which steps may follow it, and what is wrong with it. A world is an
immutable, hashable value; a step is one, too, and names what happens (`("commit", 1)`), so that
other code can be driven by it. A step and a world determine the world after it.

`explore` looks at every world, breadth first, so that a trace that it returns is a shortest one.
`walks` takes random legal steps. `follow` lets the steps of one model happen in another: those of a
naive variant in the right one. `stuck` looks for a world from which a goal cannot be reached.
"""

import gc
import os
import random
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Generic, Protocol, TypeVar

World = TypeVar("World", bound=Hashable)
Step = TypeVar("Step", bound=Hashable)

LARGE = bool(os.environ.get("EVERY_WORLD"))
"""Whether the larger bounds are explored: `make models` says so, ordinary runs do not."""


class Model(Protocol[World, Step]):
    """What may happen, and what is wrong with that."""

    def first(self) -> World:
        """Return the world in which it begins."""

    def steps(self, world: World) -> Iterable[tuple[Step, World]]:
        """Return what may happen next, each step with the world that it leads to."""

    def wrong(self, world: World) -> Iterable[str]:
        """Return the names of the invariants that do not hold in a world."""


@dataclass
class Explored(Generic[World, Step]):
    """What an exploration found.

    `worlds` has a number for each world, in the order in which they were reached; `broken` has a
    shortest trace for each invariant that does not hold somewhere. A world of a number was reached
    first from the one in `came`; `steps` are all steps, each between two numbers.
    """

    worlds: dict[World, int]
    broken: dict[str, tuple[Step, ...]] = field(default_factory=dict)
    came: list[tuple[int, Step] | None] = field(default_factory=lambda: [None])
    steps: list[tuple[int, Step, int]] = field(default_factory=list)

    def trace(self, number: int) -> tuple[Step, ...]:
        """Return the steps that lead to the world of a number."""
        steps: list[Step] = []
        while (came := self.came[number]) is not None:
            number, step = came
            steps.append(step)
        return tuple(reversed(steps))


@contextmanager
def _no_collecting() -> Iterator[None]:
    """Look for no garbage: worlds are no cycles, and there are very many of them."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


def explore(model: Model[World, Step], *, until: str | None = None) -> Explored[World, Step]:
    """Look at every world that can be reached; stop early once the invariant `until` is broken."""
    todo = [model.first()]
    found = Explored[World, Step]({todo[0]: 0})
    numbers, steps = found.worlds.setdefault, found.steps.append
    with _no_collecting():
        for before, world in enumerate(todo):  # which grows
            for name in model.wrong(world):
                if name not in found.broken:
                    found.broken[name] = found.trace(before)
                if name == until:
                    return found
            for step, after in model.steps(world):
                number = numbers(after, len(todo))
                if number == len(todo):
                    todo.append(after)
                    found.came.append((before, step))
                steps((before, step, number))
    return found


@cache
def counter_example(
    make: Callable[..., Model[Any, Step]], *within: Any, breaks: str
) -> tuple[Step, ...] | None:
    """Return a shortest trace to what a naive model breaks, or None; it is looked for once."""
    return explore(make(*within), until=breaks).broken.get(breaks)


def stuck(
    found: Explored[World, Step], goal: Callable[[World], bool], helps: Callable[[Step], bool]
) -> tuple[Step, ...] | None:
    """Return a shortest trace to a world from which no steps that help lead to a goal, or None.

    found: all worlds of a model, explored to the end.
    """
    before: list[list[int]] = [[] for _ in found.worlds]
    for number, step, after in found.steps:
        if helps(step):
            before[after].append(number)
    todo = [number for world, number in found.worlds.items() if goal(world)]
    reached = set(todo)
    while todo:
        for number in before[todo.pop()]:
            if number not in reached:
                reached.add(number)
                todo.append(number)
    return next((found.trace(n) for n in found.worlds.values() if n not in reached), None)


def walks(
    model: Model[World, Step],
    count: int,
    length: int,
    *,
    seed: int = 0,
    weigh: Callable[[Step], float] = lambda step: 1.0,
) -> Iterator[tuple[Step, ...]]:
    """Yield random legal traces of at most so many steps; the same for the same seed.

    weigh: how often a step is taken, relative to others that may be taken at that moment.
    """
    for number in range(count):
        chance, world, trace = random.Random(f"{seed}/{number}"), model.first(), list[Step]()
        while len(trace) < length and (steps := list(model.steps(world))):
            ((step, world),) = chance.choices(steps, [weigh(step) for step, _ in steps])
            trace.append(step)
        yield tuple(trace)


def follow(model: Model[World, Step], trace: Sequence[Step]) -> Iterator[tuple[Step, World]]:
    """Let steps happen in a model; yield each with the world after it.

    A step that cannot happen there is left out: a naive variant takes steps that the right protocol
    never takes.
    """
    world = model.first()
    for step in trace:
        after = dict(model.steps(world)).get(step)
        if after is not None:
            world = after
            yield step, world


def told(trace: Iterable[Any]) -> str:
    """Return a trace as one line."""
    steps = (step if isinstance(step, str) else " ".join(map(str, step)) for step in trace)
    return "; ".join(steps)
