"""Budget claims: an executable specification of how processes share one limit without a leader.

Every process has a claim in one item, and takes the limit divided by the claims that it sees there.
Processes join, stand still in the middle of a look, before or after it has reached the table, come
back, and die, in every combination of a bounded set. Checked:

    exceeds    what all together would take is never more than the limit, at no moment
    wastes     95 % of the limit is taken once all know of each other, and of a death or a return

In: a rule. Out: what breaks it, as texts; none of ours. The naive rules are BAD, each for a reason
of its own. Times are seconds, of clocks that run on while a process stands still.
"""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass

LOOK, FRESH, WAIT, RENEW, LOST, DEAD = 0.5, 2.0, 2.5, 5.0, 10.0, 15.0
EVER = 1e9
SKEW = 20.0
"""Between the wall clocks of two processes."""

Items = dict[int, tuple[int, float]]
"""The claims by process: how often it was written, and what the wall clock of its owner said."""


class Claims:
    """What one process knows. `ask` says what to write, `answer` takes up what is there then."""

    fresh, wait, lost, dead = FRESH, WAIT, LOST, DEAD

    def __init__(self, me: int) -> None:
        self.me, self.count, self.renewed = me, 0, 0.0
        self.since: float | None = None
        self.seen: dict[int, tuple[int, float]] = {}
        self.part, self.until = 0.0, 0.0
        self.asked = 0.0

    def ask(self, now: float) -> Callable[[Items], None]:
        """Begin a look; return what it does to the claims."""
        self.asked = now
        if self.since is not None and now - self.renewed > self.lost:
            self.since = None
        if self.since is None:
            self.seen = {}
        if self.since is not None and now - self.renewed <= RENEW:
            return lambda items: None
        self.count, self.renewed = self.count + 1, now
        claim = self.count, now + SKEW * self.me
        return lambda items: items.update({self.me: claim})

    def answer(self, read: Items, now: float, items: Items) -> None:
        """Take up the claims as they were read; take those of the dead away, if still the same."""
        others = self.others(read, now)
        for name in read.keys() - others - {self.me}:
            if items.get(name) == read[name]:
                del items[name]
        if self.since is None:
            waits = bool(others) or self.count == 1
            self.since = now + (self.wait if waits else 0.0)
        self.part = 1 / (1 + len(others)) if now >= self.since else 0.0
        self.until = self.asked + self.fresh

    def others(self, read: Items, now: float) -> set[int]:
        """Return whose claims stand, as two looks by the reader's own clock say."""
        before, self.seen = self.seen, {}
        for name in read.keys() - {self.me}:
            count, since = before.get(name, (0, now))
            self.seen[name] = read[name][0], since if count == read[name][0] else now
        return {name for name, (_, since) in self.seen.items() if now - since <= self.dead}

    def taking(self, now: float) -> float:
        """Return which part of the limit it would take at a moment."""
        return self.part if now < self.until else 0.0


class Whole(Claims):
    """Takes the whole limit until it reads of others, and waits for none of them to know of it."""

    wait = 0.0


class Stale(Claims):
    """Goes on with the part of its last look, however old that is."""

    fresh = EVER


class Trusting(Claims):
    """Counts on its claim after it stood still, though others may have taken it away."""

    lost = EVER


class Eternal(Claims):
    """Never takes a claim for a dead one's."""

    dead = EVER


class Hasty(Claims):
    """Takes a claim for a dead one's before its owner gives it up."""

    dead = 6.0


class WallClocks(Claims):
    """Judges a claim by the time in it, which is another clock's."""

    def others(self, read: Items, now: float) -> set[int]:
        """Return whose claims are not too old, by its own wall clock."""
        wall = now + SKEW * self.me
        return {n for n, (_, at) in read.items() if n != self.me and wall - at <= DEAD}


Make = Callable[[int], Claims]
NAIVE: dict[str, tuple[Make, str]] = {
    "whole": (Whole, "exceeds"),
    "stale": (Stale, "exceeds"),
    "trusting": (Trusting, "exceeds"),
    "hasty": (Hasty, "exceeds"),
    "wall clocks": (WallClocks, "exceeds"),
    "eternal": (Eternal, "wastes"),
}
"""Rules that look simpler, and what breaks each."""


@dataclass(frozen=True)
class Plan:
    """One process: when it joins, and when it stands still, with a look before or behind it."""

    joins: float
    still: float = EVER
    length: float = 0.0
    reached: bool = True

    @property
    def back(self) -> float:
        """When it goes on."""
        return self.still + self.length


def plans(joins: tuple[float, ...]) -> Iterator[Plan]:
    """Yield every plan of the bounded world."""
    for at in joins:
        yield Plan(at)
        for still, length, reached in itertools.product(
            (0.0, 4.5), (2.5, 6.5, 12.0, 19.0, EVER), (True, False)
        ):
            yield Plan(at, at + still, length, reached)


def run(make: Make, processes: tuple[Plan, ...], seconds: float) -> Iterator[tuple[float, float]]:
    """Yield each moment, and what all together would take then."""
    claims = [make(me) for me in range(len(processes))]
    items: Items = {}
    waiting: dict[int, tuple[Callable[[Items], None], Items | None]] = {}
    for tick in range(int(seconds / LOOK)):
        now = tick * LOOK
        for me, plan in enumerate(processes):
            if now < plan.joins or plan.still < now < plan.back:
                continue
            if me not in waiting:
                waiting[me] = claims[me].ask(now), None
            act, read = waiting[me]
            if read is None and (now != plan.still or plan.reached):
                act(items)
                waiting[me] = act, (read := dict(items))
            if now != plan.still and read is not None:
                del waiting[me]
                claims[me].answer(read, now, items)
            yield now, sum(one.taking(now) for one in claims)


def worlds() -> Iterator[tuple[Plan, ...]]:
    """Yield processes, each of which may stand still once, or die."""
    yield from itertools.product(plans((0.0,)), plans((0.5, 3.0)))
    yield from itertools.product((Plan(0.0),), plans((1.0,)), (Plan(4.0), Plan(6.0, 8.0, 12.0)))


def exceeds(make: Make) -> Iterator[str]:
    """Look for a moment at which more than the limit would be taken."""
    for processes in worlds():
        back = max([p.back for p in processes if p.back < EVER], default=15.0)
        for now, taken in run(make, processes, back + 6.0):
            if taken > 1.0 + 1e-9:
                yield f"at {now} they take {taken:.2f} of the limit: {processes}"
                return


def wastes(make: Make) -> Iterator[str]:
    """Look for processes that leave a part of the limit unused."""
    three = [(Plan(0.0), Plan(0.5), Plan(at)) for at in (0.0, 9.0)]
    deaths = [(Plan(0.0), p) for p in plans((0.0, 3.0)) if p.still < EVER and p.length != 19.0]
    for processes in (*three, *deaths):
        last = max(t for p in processes for t in (p.joins, p.still, p.back) if t < EVER)
        knows = last + DEAD + WAIT + 2 * LOOK
        used = [taken for now, taken in run(make, processes, knows + 10) if now > knows]
        if sum(used) < 0.95 * len(used):
            yield f"of the limit {sum(used) / len(used):.2f} is taken: {processes}"
            return


CHECKS: dict[str, Callable[[Make], Iterator[str]]] = {"exceeds": exceeds, "wastes": wastes}


def broken(make: Make) -> dict[str, str]:
    """Return what a rule breaks, with a counter-example each."""
    first = ((name, next(check(make), None)) for name, check in CHECKS.items())
    return {name: text for name, text in first if text is not None}
