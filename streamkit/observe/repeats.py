"""Repeats: an event that happens at the rate of changes or polls is logged once, then summed up.

      first of its kind ──► logged at once, as it is
      more of it        ──► one line each `every` seconds: the newest, `times`, `errors`
      none for `quiet`  ──► a last line, `over`, with the total; only if there was more than one

An outage of an hour gives a few lines for each handler, however many changes fail. What is tried
again after ever longer pauses has a `quiet` that is longer than any pause, so that all tries of an
outage are one course; the time between its lines grows, too. Counts belong to
one event loop and one consumer; the time is the loop's.

In: an event and what it is summed up `by`. Out: lines, through the logger that it came from. When a
worker or an invocation ends, pending counts are logged.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

from streamkit.observe.meters import Meters, current

EVERY_SECONDS = 60.0
"""The default time between two lines about the same thing."""
OUTAGE_SECONDS = 1000.0
"""A handler that has not failed for so long works again; failed changes are tried every 900 s."""
_GROWTH, _EVERY_MAX = 4, 3600.0
"""The time between two lines of an outage becomes so many times as long, up to an hour."""

_KINDS_MAX = 10
"""So many errors are counted by name; names are classes and codes, so there are few."""

Say = Callable[..., object]
_Key = tuple[str, str, str]


@dataclass(slots=True)
class _Course:
    """A repeated event: since when, how often, and what is not logged yet."""

    say: Say
    event: str
    every: float
    quiet: float
    due: float
    began: float
    last: float
    fields: dict[str, Any]
    times: int = 0
    pending: int = 0
    summed: bool = False
    errors: Counter[str] = field(default_factory=Counter)
    timer: asyncio.TimerHandle | None = None

    def note(self, fields: dict[str, Any], count: int, now: float) -> None:
        self.fields, self.last = fields, now
        self.times += count
        self.pending += count
        name = str(fields.get("error", fields.get("code", "")))
        if name and (name in self.errors or len(self.errors) < _KINDS_MAX):
            self.errors[name] += count

    def sum_up(self, **more: Any) -> None:
        """Log the newest event, with the counts since the first one."""
        errors = {"errors": dict(self.errors)} if self.errors else {}
        within = round(self.last - self.began, 1)
        known = {"times": self.times, "within_seconds": within, **errors, **more}
        self.pending, self.summed = 0, True
        if self.quiet > EVERY_SECONDS:
            self.every = min(_GROWTH * self.every, _EVERY_MAX)
        self.due += self.every
        self.say(self.event, **{**self.fields, **known})


_courses: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[_Key, _Course]] = WeakKeyDictionary()


def often(
    say: Say, event: str, by: str, pauses: tuple[float, float], count: int, fields: dict[str, Any]
) -> None:
    """Log an event, or only count it if one of its kind was logged a moment ago.

    `pauses` are the seconds between two lines, and those of silence after which it is over.
    """
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        say(event, **fields)  # without a loop no timer could log the count later
        return
    meters, now = current.get(), loop.time()
    key = (meters.consumer if meters is not None else "", event, by)
    courses = _courses_of(loop)
    course = courses.get(key)
    if course is not None:
        course.note(fields, count, now)
        return
    every, quiet = pauses
    course = courses[key] = _Course(
        say, event, every, max(every, quiet), now + every, now, now, fields
    )
    course.note(fields, count, now)
    course.pending = 0
    say(event, **fields)
    course.timer = loop.call_later(every, _tick, loop, courses, key)


def _courses_of(loop: asyncio.AbstractEventLoop) -> dict[_Key, _Course]:
    courses = _courses.get(loop)
    if courses is None:
        # A timer refers to its loop, and fields to a handler's data: nothing would be freed.
        for closed in [one for one in _courses if one.is_closed()]:
            del _courses[closed]
        courses = _courses[loop] = {}
    return courses


@contextmanager
def counted_as(meters: Meters) -> Iterator[None]:
    """Count calls and repeated events for a consumer; log pending counts at the end."""
    mine = current.set(meters)
    try:
        yield
    finally:
        current.reset(mine)
        courses = _courses.get(asyncio.get_running_loop(), {})
        for key in [key for key in courses if key[0] == meters.consumer]:
            course = courses.pop(key)
            if course.timer is not None:
                course.timer.cancel()
            if course.pending:
                course.sum_up(over=True)


def _tick(loop: asyncio.AbstractEventLoop, courses: dict[_Key, _Course], key: _Key) -> None:
    course = courses[key]
    over = course.last + course.quiet
    if course.pending and loop.time() >= course.due:
        course.sum_up()
        # Not also over in this moment: what comes soon after it belongs to it.
        over = max(over, loop.time() + EVERY_SECONDS)
    if loop.time() < over:
        when = min(over, max(course.due, loop.time() + EVERY_SECONDS))
        course.timer = loop.call_at(when, _tick, loop, courses, key)
        return
    del courses[key]
    if course.summed:
        course.sum_up(over=True)
