"""Invariants: rules that hold at every call of every run, checked on sightings alone.

In: `SeenCall`s, one after the other, from a `World` or made up by a test. Out: `Violation`s, each
with the name of the invariant, the time and a text. A `Referee` asks all invariants; none of them
asks a worker what it believes. `Lineage` and `Readers` also need to know the stream's
shards.

    Fencing      a commit is accepted only from the process and under the lease that owns the cursor
    Positions    positions only grow, over all owners, and no two commits follow the same one
    Leases       each take has the next epoch, and no process releases another one's lease
    Lineage      no record of a child is read before its parent is finished or gone
    Readers      at most two processes read a shard at the same time
    Limits       100 actions, 4 MB, 400 KB, ten `DescribeStream` a second
    HotLoop      the calls of a process per second are bounded

`iterators.Iterators` checks where readers open shards, `retention.Retention` what is trimmed.
"""

from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

from streamkit.progress.control import START, Cursor
from streamkit.testing.sightings import SeenCall, moved, shard_read, taken
from tests.simulation.iterators import Iterators

_ACTIONS_MAX = 100
_TRANSACTION_MAX = 4 << 20
_ITEM_MAX = 400 << 10
_DESCRIBES_MAX = 10
_READERS_MAX = 2


@dataclass(frozen=True, slots=True)
class Violation:
    """An invariant that did not hold: its name, the time by the engine's clock, and a text."""

    invariant: str
    at: float
    text: str

    def __str__(self) -> str:
        return f"{self.invariant} at {self.at:.3f}: {self.text}"


class Invariant(Protocol):
    """A rule that is shown every sighting in order, and yields a text for each violation."""

    def see(self, sighting: SeenCall) -> Iterator[str]:
        """Check one sighting."""
        ...


class Referee:
    """Show every sighting to all invariants, and keep the violations; a watcher of a `World`."""

    def __init__(self, *invariants: Invariant) -> None:
        self.invariants = invariants
        self.violations: list[Violation] = []

    def __call__(self, sighting: SeenCall) -> None:
        """Check one sighting."""
        for invariant in self.invariants:
            for text in invariant.see(sighting):
                name = type(invariant).__name__.lower()
                self.violations.append(Violation(name, sighting.call.at, text))


@dataclass
class Fencing:
    """A commit is accepted only from the process that owns the cursor, under its present lease."""

    _actors: dict[str, str] = field(default_factory=dict)
    _takes: dict[str, float] = field(default_factory=dict)

    def see(self, sighting: SeenCall) -> Iterator[str]:
        """Check one sighting."""
        for before, after in sighting.cursors():
            if before is not None and after is not None and moved(before, after):
                yield from self._commit(sighting, before)
            if after is not None and after.owner is not None and taken(before, after):
                self._actors[after.owner] = sighting.actor
                self._takes[after.name] = sighting.call.at

    def _commit(self, sighting: SeenCall, before: Cursor) -> Iterator[str]:
        if before.owner is None:
            yield f"{sighting.actor} committed to {before.name}, which no worker owns"
        elif self._actors.get(before.owner) != sighting.actor:
            yield f"{sighting.actor} committed to {before.name}, which {before.owner} owns"
        elif sighting.sent < self._takes[before.name]:
            yield f"{sighting.actor} committed to {before.name} under a lease of before"


@dataclass
class Positions:
    """Positions only grow, and no two commits follow the same one."""

    _cursors: dict[str, Cursor] = field(default_factory=dict)
    _commits: set[tuple[str, str]] = field(default_factory=set)

    def see(self, sighting: SeenCall) -> Iterator[str]:
        """Check one sighting."""
        for before, after in sighting.cursors():
            if after is None:
                continue
            last = self._cursors.get(after.name)
            self._cursors[after.name] = after
            if before is None and last is not None:
                yield f"{after.name} was created a second time"
            if last is not None and _number(after) < _number(last):
                yield f"{after.name} went back from {last.position} to {after.position}"
            if last is not None and last.finished and not after.finished:
                yield f"{after.name} was finished and is read again"
            if before is not None and moved(before, after):
                yield from self._commit(before, after)

    def _commit(self, before: Cursor, after: Cursor) -> Iterator[str]:
        if after.commit == before.commit:
            yield f"{after.name} moved without a commit of its own"
        elif (after.name, after.commit) in self._commits:
            yield f"{after.name} took commit {after.commit} twice"
        self._commits.add((after.name, after.commit))


def _number(cursor: Cursor) -> int:
    return 0 if cursor.position == START else int(cursor.position)


@dataclass
class Leases:
    """Each take has the next epoch, the generation never falls, and only owners release leases.

    `takes` counts the takes of each cursor.
    """

    takes: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    _actors: dict[str, str] = field(default_factory=dict)

    def see(self, sighting: SeenCall) -> Iterator[str]:
        """Check one sighting."""
        for before, after in sighting.cursors():
            if before is None or after is None:
                continue
            if after.generation < before.generation:
                yield f"{after.name} fell to generation {after.generation}"
            if taken(before, after):
                self.takes[after.name] += 1
                self._actors[str(after.owner)] = sighting.actor
                if after.epoch != before.epoch + 1:
                    yield f"{after.name} was taken with epoch {after.epoch} after {before.epoch}"
            elif after.epoch != before.epoch:
                yield f"{after.name} has epoch {after.epoch} after {before.epoch}, and no owner"
            elif after.owner is None and self._strange(before, sighting.actor):
                yield f"{sighting.actor} gave up {after.name}, which {before.owner} owns"

    def _strange(self, cursor: Cursor, actor: str) -> bool:
        return cursor.owner is not None and self._actors.get(cursor.owner) != actor


@dataclass
class Lineage:
    """No record of a child is read before its parent is finished, or gone from the stream.

    Args:
        parent: returns the parent of a shard if it still exists in the stream, else None.
    """

    parent: Callable[[str], str | None]
    _finished: set[str] = field(default_factory=set)

    def see(self, sighting: SeenCall) -> Iterator[str]:
        """Check one sighting."""
        for _, after in sighting.cursors():
            if after is not None and after.finished:
                self._finished.add(after.name)
        call = sighting.call
        if call.operation != "GetRecords" or not call.body.get("Records"):
            return
        shard = shard_read(sighting)
        parent = None if shard is None else self.parent(shard)
        if parent is not None and parent not in self._finished:
            yield f"{sighting.actor} read {shard} before its parent {parent} was finished"


@dataclass
class Readers:
    """At most two processes read a shard at the same time.

    Within any second, a process counts as a reader from its first call to its last, so owners that
    follow each other do not count as simultaneous. A call that was delayed on its way is not
    counted, because its sender cannot take it back.
    """

    _reads: dict[str, deque[tuple[float, str]]] = field(default_factory=lambda: defaultdict(deque))

    def see(self, sighting: SeenCall) -> Iterator[str]:
        """Check one sighting."""
        if sighting.call.operation != "GetRecords" or sighting.sent < sighting.call.at:
            return
        shard = shard_read(sighting)
        if shard is None:
            return
        reads, now = self._reads[shard], sighting.call.at
        reads.append((now, sighting.actor))
        while reads[0][0] <= now - 1:
            reads.popleft()
        spans: dict[str, tuple[float, float]] = {}
        for at, actor in reads:
            spans[actor] = (spans.get(actor, (at, at))[0], at)
        for moment, _ in spans.values():
            together = sorted(a for a, (first, last) in spans.items() if first <= moment <= last)
            if len(together) > _READERS_MAX:
                yield f"{', '.join(together)} read {shard} at the same time"
                return


@dataclass
class ServiceLimits:
    """No call asks for more than DynamoDB's limits, or uses up a limit of the whole fleet."""

    _describes: deque[float] = field(default_factory=deque)

    def see(self, sighting: SeenCall) -> Iterator[str]:
        """Check one sighting."""
        call = sighting.call
        if call.operation == "TransactWriteItems":
            actions = len(call.payload["TransactItems"])
            if actions > _ACTIONS_MAX:
                yield f"{sighting.actor} sent a transaction of {actions} actions"
            size = sum(write.size for write in sighting.writes)
            if size > _TRANSACTION_MAX:
                yield f"{sighting.actor} sent a transaction of {size} bytes"
        for write in sighting.writes:
            if write.size > _ITEM_MAX:
                yield f"{sighting.actor} wrote an item of {write.size} bytes"
        if call.operation == "DescribeStream" and sighting.sent == call.at:
            yield from self._describe(call.at)

    def _describe(self, now: float) -> Iterator[str]:
        self._describes.append(now)
        while self._describes[0] <= now - 1:
            self._describes.popleft()
        if len(self._describes) > _DESCRIBES_MAX:
            yield f"{len(self._describes)} DescribeStream within a second"


@dataclass
class HotLoop:
    """No process makes more than `most` calls within ten seconds.

    Args:
        most: calls of one process that are allowed within any ten seconds.
    """

    most: int
    _calls: dict[str, deque[float]] = field(default_factory=lambda: defaultdict(deque))

    def see(self, sighting: SeenCall) -> Iterator[str]:
        """Check one sighting."""
        if not sighting.actor or sighting.sent < sighting.call.at:
            return
        calls, now = self._calls[sighting.actor], sighting.call.at
        calls.append(now)
        while calls[0] <= now - 10:
            calls.popleft()
        if len(calls) > self.most:
            yield f"{sighting.actor} made {len(calls)} calls in ten seconds"
            calls.clear()


def usual(
    leases: Leases, parent: Callable[[str], str | None], calls_max: int
) -> tuple[Invariant, ...]:
    """Return the invariants of every fleet, whatever its app does.

    Args:
        leases: one of the invariants; the caller can ask it how often leases were taken.
        parent: the argument of `Lineage`.
        calls_max: the argument of `HotLoop`.
    """
    return (
        Fencing(), Positions(), leases, Iterators(), Lineage(parent), Readers(),
        ServiceLimits(), HotLoop(calls_max),
    )  # fmt: skip
