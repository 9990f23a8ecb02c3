"""Generations: an executable specification of roll-outs: which worker may read which shard.

An old version of an app has no aggregate, a new one has: `totals`. A shard has two changes, and a
child with one more; the lister, a cursor too, makes the child's. Workers start as any version, die,
read the consumer's item and write it any time later, take cursors from live owners (a wrong
judgement is always possible), and commit. A rebuild raises every cursor to the newest generation,
and then makes the aggregate right, in one step here. Every interleaving is looked at. Checked:

    missed     an aggregate that is not marked *needs rebuild* has counted each change once
    undone     no known older version starts a generation while one of the newest is alive
    back       no cursor is in a generation above the consumer's
    read       while a worker is alive, everything can be read without another one's start

In: the rules. Out: what breaks them, each with a shortest trace. The naive rules are BAD. Parked
changes are left out.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from tests.models.explorer import LARGE

OLD, NEW = 1, 2
ROOT, CHILD, LISTER = 0, 1, 2
LENGTHS = (2, 1)
"""How many changes are in the shard and in its child."""


class Consumer(NamedTuple):
    """The consumer's item; `totals` is what it says of the aggregate, empty where it has none."""

    number: int = 1
    version: int = OLD
    known: frozenset[int] = frozenset({OLD})
    totals: Literal["", "right", "needs rebuild"] = ""


class Cursor(NamedTuple):
    """What a cursor says, and what an owner believes that it says."""

    generation: int = 1
    owner: int | None = None
    epoch: int = 0
    position: int = 0


class Worker(NamedTuple):
    """A worker of a version. Its generation is 0 while it stands by or joins for the first time.

    `decided` is the consumer as it read it when it decided to start a generation; `marks` says that
    it still has to mark the aggregate; `owns` are the cursors that it has taken.
    """

    version: int
    generation: int = 0
    decided: Consumer | None = None
    marks: bool = False
    owns: tuple[Cursor | None, ...] = (None, None, None)


class World(NamedTuple):
    """The consumer, its cursors, the workers, and how often the aggregate has counted each change."""

    consumer: Consumer = Consumer()
    cursors: tuple[Any, ...] = (Cursor(), None, Cursor())
    workers: tuple[Worker | None, ...] = (None, None)
    counts: tuple[tuple[int, ...], ...] = tuple((0,) * length for length in LENGTHS)
    starts: int = 0
    takes: int = 0
    undone: bool = False


@dataclass(frozen=True)
class Rules:
    """How generations begin, and what a take asks for; ours by default."""

    known: Literal["stand by", "start", "never"] = "stand by"
    """What a known older version does: stand by until no worker of the newest is alive; start a
    generation at once; or stand by for ever."""
    take: bool = True
    """A cursor is taken IF its generation is not above mine."""
    marked: Literal["along", "later", "if new"] = "along"
    """An aggregate that was away is marked in the write that creates its generation; in a later one;
    or only if it was never there before."""
    lister: bool = True
    """The lister's cursor is raised with the others."""


@dataclass(frozen=True)
class Bound:
    """How many workers start, and how many cursors are taken."""

    starts: int = 3
    takes: int = 4


BOUNDS = {"three starts": Bound(3, 3)}
if LARGE:
    BOUNDS |= {"more takes": Bound(), "four starts": Bound(4, 5), "many takes": Bound(3, 7)}

Step = tuple[object, ...]


class Model:
    """All that may happen next in a world, by rules, within a bound."""

    def __init__(self, rules: Rules = Rules(), bound: Bound = Bound()) -> None:
        self.rules, self.bound = rules, bound

    def first(self) -> World:
        """Return the world in which the old version was rolled out, and no worker is alive."""
        return World()

    def steps(self, world: World) -> Iterator[tuple[Step, World]]:
        """Yield what may happen next."""
        for n, worker in enumerate(world.workers):
            if worker is None:
                for version in (OLD, NEW) if world.starts < self.bound.starts else ():
                    begun = _with(world, n, Worker(version))
                    begun = begun._replace(starts=world.starts + 1)
                    yield ("starts", n, version), self.joins(begun, n)
                continue
            yield ("dies", n), _with(world, n, None)
            if worker.decided is not None:
                yield ("writes", n), self.writes(world, n, worker, worker.decided)
            elif worker.marks:
                marked = world.consumer._replace(totals="needs rebuild")
                marked_it = _with(world, n, worker._replace(marks=False))
                yield ("marks", n), marked_it._replace(consumer=marked)
            elif not worker.generation:
                yield ("waits", n), self.joins(world, n, patient=True)
            else:
                yield from self.works(world, n, worker)
        totals, number = world.consumer.totals, world.consumer.number
        if totals == "needs rebuild":
            yield ("captures",), self.captures(world)
            if all(world.cursors[place].generation == number for place in self.open(world)):
                yield ("rebuilds",), rebuilt(world)

    # -- roll-outs ---------------------------------------------------------------------------------

    def joins(self, world: World, n: int, *, patient: bool = False) -> World:
        """A worker reads the consumer's item: it joins, decides to start a generation, or goes on.

        One that runs goes on in its generation, and another one stands by.
        """
        worker, consumer, rules = world.workers[n], world.consumer, self.rules
        assert worker is not None
        if worker.version == consumer.version:
            fresh = Worker(worker.version, consumer.number, marks=worker.marks)
            return _with(world, n, fresh)
        others = [other for m, other in enumerate(world.workers) if other and m != n]
        alone = not any(other.version == consumer.version for other in others)
        if worker.version in consumer.known and rules.known != "start":
            if rules.known == "never" or not (patient and alone):
                return world
        elif worker.version in consumer.known:
            world = world._replace(undone=world.undone or not alone)
        return _with(world, n, worker._replace(decided=consumer))

    def writes(self, world: World, n: int, worker: Worker, decided: Consumer) -> World:
        """A worker starts the generation that it has decided on, or looks again."""
        if world.consumer != decided:
            return self.joins(_with(world, n, worker._replace(decided=None)), n)
        totals: Any = ""
        if worker.version == NEW:
            news = NEW not in decided.known or self.rules.marked != "if new"
            marks = self.rules.marked != "later" and news
            totals = "needs rebuild" if marks else "right"
        started = Consumer(
            decided.number + 1, worker.version, decided.known | {worker.version}, totals
        )
        late = self.rules.marked == "later" and worker.version == NEW
        active = Worker(worker.version, started.number, marks=late)
        return _with(world._replace(consumer=started), n, active)

    # -- a worker at work --------------------------------------------------------------------------

    def works(self, world: World, n: int, worker: Worker) -> Iterator[tuple[Step, World]]:
        """A worker takes a cursor, commits, makes the child, or hears of a newer generation."""
        consumer = world.consumer
        if worker.version == consumer.version and worker.generation < consumer.number:
            yield ("joins anew", n), self.joins(world, n)
        elif worker.generation < consumer.number:
            yield ("waits", n), self.joins(world, n, patient=True)
        for shard, cursor in enumerate(world.cursors):
            if cursor is None:
                continue
            takes = world.takes < self.bound.takes and worker.owns[shard] != cursor
            if takes and not _finished(world, shard):
                yield ("takes", n, shard), self.takes(world, n, shard)
            owns = worker.owns[shard] is not None and shard != LISTER
            if owns and (not _finished(world, shard) or cursor != worker.owns[shard]):
                yield ("commits", n, shard), self.commits(world, n, shard)
        if worker.owns[LISTER] is not None and _finished(world, ROOT) and not world.cursors[CHILD]:
            yield ("lists", n), self.lists(world, n)

    def takes(self, world: World, n: int, shard: int) -> World:
        """A worker takes a cursor, for its generation."""
        worker, cursor = world.workers[n], world.cursors[shard]
        assert worker is not None
        assert cursor is not None
        if self.rules.take and cursor.generation > worker.generation:
            return world
        taken = Cursor(worker.generation, n, cursor.epoch + 1, cursor.position)
        world = world._replace(cursors=_put(world.cursors, shard, taken), takes=world.takes + 1)
        return _with(world, n, worker._replace(owns=_put(worker.owns, shard, taken)))

    def commits(self, world: World, n: int, shard: int) -> World:
        """An owner commits a change, or finds out that it owns the cursor no more."""
        worker, cursor = world.workers[n], world.cursors[shard]
        assert worker is not None
        if cursor is None or cursor != worker.owns[shard]:
            return _with(world, n, worker._replace(owns=_put(worker.owns, shard, None)))
        at, moved = cursor.position, cursor._replace(position=cursor.position + 1)
        if worker.version == NEW:
            row = _put(world.counts[shard], at, world.counts[shard][at] + 1)
            world = world._replace(counts=_put(world.counts, shard, row))
        world = world._replace(cursors=_put(world.cursors, shard, moved))
        owns = None if moved.position == LENGTHS[shard] else moved
        return _with(world, n, worker._replace(owns=_put(worker.owns, shard, owns)))

    def lists(self, world: World, n: int) -> World:
        """A lister makes the child's cursor, in a commit of its own cursor."""
        worker, parent = world.workers[n], world.cursors[ROOT]
        assert worker is not None
        assert parent is not None
        mine = worker.owns[LISTER]
        if mine is None or mine != world.cursors[LISTER]:
            return _with(world, n, worker._replace(owns=_put(worker.owns, LISTER, None)))
        generation = max(mine.generation, parent.generation)
        return world._replace(cursors=_put(world.cursors, CHILD, Cursor(generation)))

    # -- a rebuild ---------------------------------------------------------------------------------

    def open(self, world: World) -> list[int]:
        """Return whose cursors a rebuild raises."""
        shards = [s for s in (ROOT, CHILD) if world.cursors[s] and not _finished(world, s)]
        return [*shards, *([LISTER] if self.rules.lister else [])]

    def captures(self, world: World) -> World:
        """Raise the cursors to the newest generation, without asking their owners."""
        for place in self.open(world):
            raised = world.cursors[place]._replace(generation=world.consumer.number)
            world = world._replace(cursors=_put(world.cursors, place, raised))
        return world

    # -- what must hold ----------------------------------------------------------------------------

    def wrong(self, world: World) -> Iterator[str]:
        """Yield what does not hold."""
        if world.consumer.totals == "right" and world.counts != read(world):
            yield "missed"
        if world.undone:
            yield "undone"
        if any(c is not None and c.generation > world.consumer.number for c in world.cursors):
            yield "back"


def read(world: World) -> tuple[tuple[int, ...], ...]:
    """Return for each change whether a cursor is behind it."""
    rows = []
    for shard, length in enumerate(LENGTHS):
        cursor = world.cursors[shard]
        position = 0 if cursor is None else cursor.position
        rows.append(tuple(int(at < position) for at in range(length)))
    return tuple(rows)


def rebuilt(world: World) -> World:
    """Return a world in which the aggregate holds what the cursors have read."""
    right = world.consumer._replace(totals="right")
    return world._replace(consumer=right, counts=read(world))


def is_read(world: World) -> bool:
    """Return whether everything is read, or no worker is alive that could read it."""
    alive = any(world.workers)
    return not alive or (_finished(world, ROOT) and _finished(world, CHILD))


def helps(step: Step) -> bool:
    """Return whether a step happens without a person or a fault."""
    return step[0] not in ("starts", "dies")


def _finished(world: World, shard: int) -> bool:
    cursor = world.cursors[shard]
    return shard != LISTER and cursor is not None and cursor.position == LENGTHS[shard]


def _with(world: World, n: int, worker: Worker | None) -> World:
    return world._replace(workers=_put(world.workers, n, worker))


def _put(values: Any, place: int, value: object) -> Any:
    return (*values[:place], value, *values[place + 1 :])


NAIVE: dict[str, tuple[Rules, Bound, str]] = {
    "an old version starts at once": (Rules(known="start"), Bound(), "undone"),
    "taken whatever its generation": (Rules(take=False), Bound(), "missed"),
    "marked later": (Rules(marked="later"), Bound(), "missed"),
    "right again when it is back": (Rules(marked="if new"), Bound(), "missed"),
    "a lister of before makes a child": (Rules(lister=False), Bound(3, 6), "missed"),
}
"""Rules that look simpler, and what each breaks."""

UNREAD = Rules(known="never")
"""A rule under which nothing may be read after a roll-back."""
