"""A virtual-time event loop: sleeping costs nothing, and one seed gives one order of events.

When nothing is ready, the clock jumps to the next timer. Ready callbacks run in an order shuffled
by a seeded generator, so that a seed explores one interleaving and repeats it exactly. Sockets and
threads are not supported: virtual time would run ahead of them.
"""

import asyncio
import gc
import random
import re
import selectors
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import anyio

T = TypeVar("T")

EPOCH = 1_800_000_000.0
"""The wall clock at the start of a run, in epoch seconds; any fixed time is suitable."""


_COLLECTED_AFTER = 50_000
"""During a run, Python looks for cyclic garbage after this many new objects."""

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


class _VirtualSelector(selectors.SelectSelector):
    """A selector that moves the loop's clock on instead of waiting."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout is None:
            raise DeadlockError("nothing is ready and no timer is set: every task waits for ever")
        if timeout <= 0:
            return []  # sockets and threads are looked at only when the loop pauses
        self.now += timeout
        return super().select(0)


class DeadlockError(RuntimeError):
    """Every task of a virtual-time run waits for something that cannot happen."""


class _NumberedTask(asyncio.Task[Any]):
    """A task with its number in the order of creation, from 1."""

    number = 0


def _number(handle: asyncio.Handle) -> int:
    """Return the number of the task that a callback belongs to; 0 for other callbacks."""
    owner: object = getattr(handle._callback, "__self__", None)  # type: ignore[attr-defined]  # noqa: SLF001
    return owner.number if isinstance(owner, _NumberedTask) else 0


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose time moves only when no task is ready."""

    def __init__(self, seed: int) -> None:
        self._virtual = _VirtualSelector()
        super().__init__(self._virtual)
        self._shuffle = random.Random(seed).shuffle
        self._tasks = 0
        self.set_task_factory(self._numbered)

    def _numbered(
        self, loop: asyncio.AbstractEventLoop, coroutine: Any, **options: Any
    ) -> asyncio.Future[Any]:
        task = _NumberedTask(coroutine, loop=loop, **options)
        self._tasks += 1
        task.number = self._tasks
        return task

    def time(self) -> float:
        """Return virtual seconds since the start."""
        return self._virtual.now

    def spend(self, seconds: float) -> None:
        """Let time pass as in a call that blocks the loop: nothing else runs meanwhile."""
        self._virtual.now += seconds

    def _run_once(self) -> None:
        # An attribute private to CPython: the queue of callbacks that run in this turn.
        ready: Any = self._ready  # type: ignore[attr-defined]
        if len(ready) > 1:
            # A cancelled group wakes its tasks in the order of a set, which follows their
            # addresses in memory. Sorted by number, the order is the same in every run.
            callbacks = sorted(ready, key=_number)
            self._shuffle(callbacks)
            ready.clear()
            ready.extend(callbacks)
        super()._run_once()  # type: ignore[misc]


class VirtualClock:
    """The wall clock of a virtual-time run: a loop's time, counted from `EPOCH`.

    Without a given loop, the clock reads the loop that runs at the time of the call.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop | None = None) -> None:
        self._loop = loop

    def time(self) -> float:
        """Return epoch seconds."""
        return EPOCH + self.monotonic()

    def monotonic(self) -> float:
        """Return the loop's seconds."""
        return (self._loop or asyncio.get_running_loop()).time()

    def spend(self, seconds: float) -> None:
        """Let time pass while everything stands still, as in a call that blocks the loop."""
        loop: Any = self._loop or asyncio.get_running_loop()
        loop.spend(seconds)


class SkewedClock(VirtualClock):
    """The clock of one process, whose time of day is wrong by some seconds, and steps.

    Args:
        rng: chooses the error, and again after each step.
        most: the largest error in seconds, ahead or behind.
        every: seconds between two steps.
    """

    def __init__(self, rng: random.Random, most: float = 600.0, every: float = 300.0) -> None:
        super().__init__()
        self._seed, self._most, self._every = rng.random(), most, every
        self._step, self._wrong = -1, 0.0

    def time(self) -> float:
        """Return epoch seconds by this clock."""
        step = int(self.monotonic() // self._every)
        if step != self._step:
            wrong = random.Random(f"{self._seed}/{step}").uniform(-1, 1) * self._most
            self._step, self._wrong = step, wrong
        return super().time() + self._wrong


def run_virtually(main: Callable[..., Awaitable[T]], *args: Any, seed: int = 0) -> T:
    """Run a coroutine function to its end in virtual time.

    Raises:
        DeadlockError: every task waits for something that cannot happen.
    """
    results: list[T] = []

    async def run() -> None:
        # Not returned: when the loop ends, anyio logs the ended task with the representation of its
        # result, which may be a world with all of its calls.
        results.append(await main(*args))

    with rarely_collected():
        anyio.run(run, backend_options={"loop_factory": lambda: VirtualLoop(seed)})
    return results[0]


@contextmanager
def rarely_collected() -> Iterator[None]:
    """Make Python look for cyclic garbage less often until the end of the block.

    A run keeps nearly all objects that it makes: its records, its calls. By default Python looks
    through them for garbage after every 700 objects, which takes a fifth of a run's processor time.
    """
    before = gc.get_threshold()
    gc.set_threshold(max(before[0], _COLLECTED_AFTER), *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


def seconds_of(duration: str | float) -> float:
    """Return the seconds of a duration such as `"90s"`, `"15m"`, `"25h"`, `"2d"` or a number.

    Raises:
        ValueError: the duration has none of these forms.
    """
    if not isinstance(duration, str):
        return float(duration)
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd])", duration)
    if match is None:
        raise ValueError(f"a duration is a number with s, m, h or d, not {duration!r}")
    return float(match[1]) * _UNITS[match[2]]
