"""A starved fleet: an executable specification of how long a lease is when all are late.

Workers beat and look on one virtual clock, in every combination of the schedules of a regime. Each
looks at all, and judges which member is dead, by a *rule*: how long a lease is, from what it saw. Checked:

    takes      workers that are short of CPU in turn, and beat on time in between, do not take each
               other for dead, once each has been seen to be late
    replaced   a worker that died among healthy ones is dead in the normal time for each of the
               others, also for one that is late itself
    found      a worker that died in a starved fleet is dead within the longest lease for some other

In: a rule. Out: what breaks it, as texts; none of ours. The naive rules are BAD, each for a reason
of its own. Times are seconds; a lease is 7, a heartbeat 3, as with `cost`, or a little over 4 and 2,
as by default. A worker without CPU stands still for as long in both, so a short lease becomes more
times as long.
"""

import itertools
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

LEASE, BEAT, STEP = 7.0, 3.0, 1.0
MOST = 4
LATE = max(LEASE / 2, 1.5 * BEAT)
"""A heartbeat that comes later than this is late."""

SHORT, LONG = 3, 12
"""Between two heartbeats of a worker with CPU, and of one without."""
SECONDS = 60
WARM = 28
"""After which each has been seen to be late."""


@dataclass
class Seen:
    """What one worker has seen of another: its counter, and when that was first read.

    `silent_since` is the same, but begins anew whenever the reader cannot judge; `late_at` is when
    a heartbeat was last seen to be late, `first` when the other was first seen.
    """

    beats: int
    at: float
    first: float
    silent_since: float
    late_at: float = -1e9


@dataclass
class View:
    """All that one worker knows; `own_gap` is how late its own last heartbeat is."""

    me: int
    seen: dict[int, Seen] = field(default_factory=dict)
    looked: float = 0.0
    own_gap: float = 0.0


def late_lately(view: View, name: int, now: float) -> bool:
    """Return whether a heartbeat was seen to be late within the longest lease."""
    return now - view.seen[name].late_at <= MOST * LEASE


def known(view: View, now: float) -> list[int]:
    """Return the members that were watched for long enough to be seen to be late."""
    return [name for name, seen in view.seen.items() if now - seen.first > 2 * LATE]


Rule = Callable[[View, float], float]
"""Returns how many times longer a lease is."""


def ours(view: View, now: float) -> float:
    """Lengthen if every worker, the reader included, was seen to be late lately."""
    there = known(view, now)
    return MOST if there and all(late_lately(view, name, now) for name in there) else 1


def fixed(view: View, now: float) -> float:
    """Never lengthen."""
    return 1


def any_late(view: View, now: float) -> float:
    """Lengthen by one worker's lateness alone: also by that of the dead one."""
    return MOST if any(late_lately(view, name, now) for name in known(view, now)) else 1


def own(view: View, now: float) -> float:
    """Lengthen by the reader's own lateness."""
    return MOST if view.me in view.seen and late_lately(view, view.me, now) else 1


def forgetful(view: View, now: float) -> float:
    """Lengthen if all are late at this moment: the one that has the CPU now is not."""
    late = [now - view.seen[name].at > LATE for name in known(view, now)]
    return MOST if late and all(late) else 1


def unbounded(view: View, now: float) -> float:
    """Lengthen to twice the longest silence, whatever it is."""
    there = known(view, now)
    if not there or not all(late_lately(view, name, now) for name in there):
        return 1
    return max(1.0, 2 * max(now - view.seen[name].at for name in there) / LEASE)


NAIVE: dict[str, tuple[Rule, str]] = {
    "fixed": (fixed, "takes"),
    "any_late": (any_late, "replaced"),
    "own": (own, "replaced"),
    "forgetful": (forgetful, "takes"),
    "unbounded": (unbounded, "found"),
}
"""Rules that look simpler, and what breaks each."""


class Judge:
    """One worker's judgement by a rule. `blinds` says that blindness is lengthened, too."""

    def __init__(self, me: int, rule: Rule, *, blinds: bool = True) -> None:
        self.view, self.rule, self.blinds = View(me), rule, blinds

    def look(
        self, beats: Sequence[int], told: Sequence[bool], own_gap: float, now: float
    ) -> set[int]:
        """Read all counters, and which members say that they were late; return the dead ones."""
        view = self.view
        for name, count in enumerate(beats):
            seen = view.seen.setdefault(name, Seen(count, now, now, now))
            if told[name] or (now - seen.at) / (count - seen.beats + 1) > LATE:
                seen.late_at = now
        times = self.rule(view, now)
        patience = times if self.blinds else 1
        blind = now - view.looked > patience * LEASE / 2
        unwell = own_gap > max(patience * LEASE / 2, LATE)
        view.looked = now
        for name, count in enumerate(beats):
            seen = view.seen[name]
            if blind or unwell or count != seen.beats:
                seen.silent_since = now
            if count != seen.beats:
                seen.beats, seen.at = count, now
        return {n for n, seen in view.seen.items() if now - seen.silent_since >= times * LEASE}


MakeJudge = Callable[[int], Judge]


def schedules(
    gaps: Sequence[int], most_short: int, first: int, until: int = SECONDS
) -> Iterator[tuple[int, ...]]:
    """Yield the times of heartbeats, from `first` on, with so many short gaps in a row at most.

    Nobody looks from `until` on: the last time is that one, whenever the heartbeat would come.
    """

    def extend(times: tuple[int, ...], short: int) -> Iterator[tuple[int, ...]]:
        if times[-1] == until:
            yield times
            return
        for gap in gaps:
            if gap == SHORT and short == most_short:
                continue
            then = min(times[-1] + gap, until)
            yield from extend((*times, then), short + 1 if gap == SHORT else 0)

    yield from dict.fromkeys(extend((first,), 0))


HEALTHY = tuple(range(1, SECONDS + SHORT, SHORT))


@dataclass(frozen=True)
class Death:
    """One worker beats no more from a moment on."""

    name: int
    at: float


def run(
    make: MakeJudge,
    beats: Sequence[tuple[int, ...]],
    looks: int,
    death: Death | None = None,
    until: int = SECONDS,
) -> Iterator[tuple[float, int, set[int]]]:
    """Yield each look, in the order of time: when, whose, and which members are dead for it."""
    judges = [make(me) for me in range(len(beats))]
    counts, lasts = [0] * len(beats), [0] * len(beats)
    late, told = [-1e9] * len(beats), [False] * len(beats)
    times = [deque(b) for b in beats]
    for tick in range(1, until):
        for name, left in enumerate(times):
            if left[0] <= tick and not (death and name == death.name and tick >= death.at):
                told[name] = tick - late[name] <= MOST * LEASE
                if tick - lasts[name] > LATE:
                    late[name] = tick  # it is known once the call returns, and told with the next
                counts[name], lasts[name] = counts[name] + 1, left.popleft()
        for me, judge in enumerate(judges):
            if (tick + me) % looks or (death and me == death.name and tick >= death.at):
                continue
            yield tick, me, judge.look(counts, told, tick - lasts[me], tick)


def takes(make: MakeJudge) -> Iterator[str]:
    """Look for a living worker that is taken for dead, after each was seen to be late."""
    until = WARM + 22
    starved = [list(schedules((SHORT, LONG), 2, first, until)) for first in (1, 6)]
    for beats in itertools.product(*starved):
        for now, me, dead in run(make, beats, 2, until=until):
            if dead and now > WARM:
                yield f"at {now} worker {me} took {dead} for dead; heartbeats at {beats}"
                return


def replaced(make: MakeJudge) -> Iterator[str]:
    """Look for a dead worker that a worker does not find in the normal time, among healthy ones."""
    normal = LEASE + BEAT + 3 * STEP
    once_late = (*range(1, 10, SHORT), *range(7 + LONG, SECONDS + SHORT, SHORT))
    for second, at in itertools.product((HEALTHY, once_late), (20, 21, 25)):
        beats = (HEALTHY, second, HEALTHY)
        found: dict[int, float] = {}
        for now, me, dead in run(make, beats, 2, Death(2, at)):
            if dead - {2} and now > at:
                yield f"at {now} worker {me} took {dead} for dead; heartbeats at {beats}"
                return
            if 2 in dead:
                found.setdefault(me, now)
        if any(found.get(me, SECONDS) > at + normal for me in (0, 1)):
            yield f"worker 2 died at {at}, and was found so at {found}; heartbeats at {beats}"
            return


def found(make: MakeJudge) -> Iterator[str]:
    """Look for a dead worker in a starved fleet that no worker finds within the longest lease."""
    longest = MOST * LEASE + LONG + 2 * STEP
    for beats in itertools.product(schedules((LONG,), 0, 1), schedules((SHORT, LONG), 1, 3)):
        for looks in (1, 4):
            seen = (now for now, _, dead in run(make, beats, looks, Death(1, 20.0)) if 1 in dead)
            when = next(seen, None)
            if when is None or when > 20 + longest:
                yield f"worker 1 died at 20, and was found so at {when}; heartbeats at {beats}"
                return


CHECKS: dict[str, Callable[[MakeJudge], Iterator[str]]] = {
    "takes": takes,
    "replaced": replaced,
    "found": found,
}


def broken(make: MakeJudge) -> dict[str, str]:
    """Return what a judge breaks, with a counter-example each."""
    first = ((name, next(check(make), None)) for name, check in CHECKS.items())
    return {name: text for name, text in first if text is not None}
