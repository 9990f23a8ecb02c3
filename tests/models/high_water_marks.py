"""High-water marks: an executable specification of how functions do each change once, in order.

Item A changes three times and item B once, in one shard; the second change of A may fail until it
heals. A mapping gives a function the next records, few or many; it may think a function dead that
goes on, and give the same records to another. A function reads the marks of its items, and sends
one transaction for all that is not done: effects, or changes that are parked, with the marks of
their items. It may die before, or after the transaction has landed. A mapping may give records up,
whose payload comes at any later time. A redriver takes parked changes off their queue. Marks
expire, a week after their last change; a consumer may be deleted and begin anew. Checked:

    twice       no change is applied or parked again, by one consumer
    order       no change of an item is applied after a later one, or past one that is parked
    lost        what the mapping has gone past is applied, parked, or with the late ones

In: the rules. Out: the steps that break them. The naive rules are BAD, each for a reason of its
own. A call of DynamoDB is one step, and also what the function does until its next call that counts.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

LOG: tuple[tuple[int, int], ...] = ((0, 1), (1, 1), (0, 2), (0, 3))
"""Item and number of each change: A1, B1, A2, A3."""
FAILS = (0, 2)
ITEMS = 2

Step = tuple[str | int, ...]


class Mark(NamedTuple):
    """How far an item is done, and whether its mark says that changes of it are parked."""

    position: int = 0
    queued: bool = False


NO_MARK = Mark()


class Run(NamedTuple):
    """An invocation of the records from `start` to `end`, by index.

    `marks` are those it has read, None before; `todo` what it has not done, `failed` says that the
    change that may fail did so; `part` is the next part of its transaction, `passed` what it found
    behind a mark that a later change had moved.
    """

    start: int
    end: int
    late: bool = False
    marks: tuple[Mark, ...] | None = None
    todo: tuple[int, ...] = ()
    failed: bool = False
    part: int = 0
    passed: tuple[int, ...] = ()


class Redrive(NamedTuple):
    """The head of the queue as it was read, whether it is the last in it, and its item's mark."""

    head: int
    last: bool
    mark: Mark


class World(NamedTuple):
    """All that is stored and under way.

    `written` is how many records there are, `gone` how many the mapping has gone past, `current`
    the function that it waits for. `applied` has each item's changes in the order in which they
    were applied, `begun` how many these were when the consumer began anew.
    """

    written: int = 1
    gone: int = 0
    current: int = -1
    runs: tuple[Run | None, ...] = (None, None)
    marks: tuple[Mark, ...] = (NO_MARK,) * ITEMS
    applied: tuple[tuple[int, ...], ...] = ((),) * ITEMS
    begun: tuple[int, ...] | None = None
    queue: tuple[int, ...] = ()
    payloads: tuple[tuple[int, int], ...] = ()
    late: frozenset[int] = frozenset()
    redrive: Redrive | None = None
    healed: bool = False
    troubles: int = 0

    def has_done(self, item: int) -> tuple[int, ...]:
        """Return what this consumer has applied of an item, in order."""
        return self.applied[item][self.begun[item] if self.begun else 0 :]


@dataclass(frozen=True)
class Rules:
    """How functions do it; ours by default."""

    parts: tuple[str, ...] = ("both",)
    """The transactions of a commit, one after the other: both, effects, marks."""
    below: Literal["first", "equal", "last", "none"] = "first"
    """What an item's mark has to be below: the first of its changes in the commit."""
    queues: bool = True
    """Later changes of an item go behind one that is parked."""
    parking_marks: bool = True
    """A parked change moves the mark."""
    as_read: bool = True
    """A commit asks whether the item's changes are parked as they were when it was planned."""
    stops: bool = True
    """Nothing of what is behind a change that has to come again is applied."""
    kept: bool = True
    """The mark of an item whose changes are parked does not expire."""
    anew: bool = True
    """A consumer that begins anew has marks of its own."""
    passed: Literal["aside", "dropped", "applied"] = "aside"
    """What becomes of a late change of whose item a later change is done."""


@dataclass(frozen=True)
class Regime:
    """What may happen: in how many `troubles` functions die or are thought dead."""

    fails: Literal["", "parks", "blocks"] = ""
    troubles: int = 2
    gives_up: bool = False
    weeks: bool = False
    anew: bool = False


class Model:
    """All that may happen next in a world, by rules, in a regime."""

    def __init__(self, rules: Rules, regime: Regime) -> None:
        self.rules, self.regime = rules, regime

    def first(self) -> World:
        """Return the world in which one record is written."""
        return World(healed=not self.regime.fails)

    def steps(self, world: World) -> Iterator[tuple[Step, World]]:
        """Yield what may happen next."""
        if world.written < len(LOG):
            yield ("write",), world._replace(written=world.written + 1)
        if not world.healed:
            yield ("heal",), world._replace(healed=True)
        for k, run in enumerate(world.runs):
            yield from self.begins(world, k) if run is None else self.goes_on(world, k, run)
        yield from self.redriver(world)
        if not any(world.runs) and world.redrive is None and not world.payloads:
            yield from self.quiet(world)

    def begins(self, world: World, k: int) -> Iterator[tuple[Step, World]]:
        """The mapping gives a function records, or a person gives it a payload."""
        again = world.current >= 0
        if again and world.troubles == self.regime.troubles:
            return
        for end in range(world.gone + 1, world.written + 1):
            after = world._replace(current=k, troubles=world.troubles + again)
            yield ("batch", k, end), _with(after, k, Run(world.gone, end))
        if world.payloads and not any(run and run.late for run in world.runs):
            yield ("late", k), _with(world, k, Run(*world.payloads[0], late=True))

    def goes_on(self, world: World, k: int, run: Run) -> Iterator[tuple[Step, World]]:
        """A function makes its next call, or dies."""
        if run.marks is None:
            yield ("read", k), self.read(world, k, run)
        else:
            yield ("commit", k), self.commit(world, k, run)
        if world.troubles == self.regime.troubles:
            return
        for name in ("die", "die after") if run.marks else ("die",):
            after = self.commit(world, k, run) if name == "die after" else world
            still = after.runs[k] is not None or name == "die"
            dead = _with(after, k, None)._replace(
                current=-1 if world.current == k else world.current,
                gone=world.gone,
                late=world.late,
                payloads=world.payloads,
                troubles=world.troubles + 1,
            )
            yield (name, k), dead
            if self.regime.gives_up and world.current == k and still:
                payloads = (*world.payloads, (run.start, run.end))
                yield (name, k, "given up"), dead._replace(gone=run.end, payloads=payloads)

    # -- a function --------------------------------------------------------------------------------

    def read(self, world: World, k: int, run: Run) -> World:
        """Read the marks, and leave out what is done; the handlers run."""
        first = not run.todo and not run.passed
        todo, passed = [], list(run.passed)
        for n in run.todo or range(run.start, run.end):
            item, number = LOG[n]
            if self.rules.below == "none" or self.rules.below == "equal":
                done = False
            else:
                done = world.marks[item].position >= number
            if done and world.marks[item].position != number and run.late:
                passed.append(n)
            if not done:
                todo.append(n)
        failed = not world.healed if first else run.failed
        run = run._replace(
            marks=world.marks, todo=tuple(todo), failed=failed, part=0, passed=tuple(passed)
        )
        return self.next(world, k, run)

    def next(self, world: World, k: int, run: Run) -> World:
        """Go on to the next transaction, or end if there is nothing that can be sent."""
        if run.todo and self.plan(run):
            return _with(world, k, run)
        left = run.todo[0] if run.todo else run.end
        world = _with(world, k, None)
        if run.late:
            if left < run.end:
                return world  # the payload comes again
            aside, apply = set(run.passed), ()
            if self.rules.passed == "dropped":
                aside = set()
            elif self.rules.passed == "applied":
                aside, apply = set(), run.passed
            world = world._replace(payloads=world.payloads[1:], late=world.late | aside)
            for n in apply:
                world = _applied(world, n)
            return world
        if world.current == k:
            world = world._replace(current=-1, gone=left)
        return world

    def plan(self, run: Run) -> tuple[tuple[int, bool], ...]:
        """Return what the next transaction is for: changes, and whether each is parked."""
        assert run.marks is not None
        planned: list[tuple[int, bool]] = []
        queued = {item for item in range(ITEMS) if run.marks[item].queued and self.rules.queues}
        for n in run.todo:
            item, _ = LOG[n]
            fails = LOG[n] == FAILS and run.failed
            if fails and self.regime.fails == "blocks" and item not in queued:
                if self.rules.stops:
                    break
                continue
            parks = fails or item in queued
            if parks and self.rules.queues:
                queued.add(item)
            planned.append((n, parks))
        return tuple(planned)

    def commit(self, world: World, k: int, run: Run) -> World:
        """Let a function's transaction arrive, whole or not at all."""
        planned, part = self.plan(run), self.rules.parts[run.part]
        items = {LOG[n][0] for n, _ in planned}
        if run.part == 0 and not all(self.stands(world, run, planned, item) for item in items):
            return _with(world, k, run._replace(marks=None))
        marks = list(world.marks)
        for n, parks in planned:
            item, number = LOG[n]
            if part in ("both", "marks") and (self.rules.parking_marks or not parks):
                marks[item] = Mark(max(number, marks[item].position), marks[item].queued)
            if part in ("both", "effects"):
                marks[item] = marks[item]._replace(queued=marks[item].queued or parks)
                world = world._replace(queue=(*world.queue, n)) if parks else _applied(world, n)
        world = world._replace(marks=tuple(marks))
        if run.part + 1 < len(self.rules.parts):
            return _with(world, k, run._replace(part=run.part + 1))
        todo = tuple(n for n in run.todo if n not in dict(planned))
        run = run._replace(todo=todo, marks=world.marks, part=0)
        return self.next(world, k, run)

    def stands(
        self, world: World, run: Run, planned: tuple[tuple[int, bool], ...], item: int
    ) -> bool:
        """Return whether an item's mark is as the transaction asks for."""
        assert run.marks is not None
        numbers = [(LOG[n][1], parks) for n, parks in planned if LOG[n][0] == item]
        mark, (first, _), (last, _) = world.marks[item], numbers[0], numbers[-1]
        fresh = {
            "first": mark.position < first,
            "equal": mark.position <= first,
            "last": mark.position < last,
            "none": True,
        }[self.rules.below]
        if not self.rules.parking_marks and all(parks for _, parks in numbers):
            fresh = True
        as_read = mark == NO_MARK or mark.queued == run.marks[item].queued
        return fresh and (as_read or not self.rules.as_read)

    # -- beside functions --------------------------------------------------------------------------

    def redriver(self, world: World) -> Iterator[tuple[Step, World]]:
        """Take the head off a queue, IF it is still that; the last takes the queue off the mark."""
        found, redrive = self.head(world), world.redrive
        if redrive is None:
            if found is not None and world.healed:
                yield ("redrive",), world._replace(redrive=found)
            return
        mark = world.marks[LOG[redrive.head][0]]
        same = found is not None and found.head == redrive.head
        same = same and (not redrive.last or (found == redrive and mark == redrive.mark))
        if same:
            world = _applied(world, redrive.head)._replace(queue=world.queue[1:])
            if redrive.last:
                marks = list(world.marks)
                marks[LOG[redrive.head][0]] = mark._replace(queued=False)
                world = world._replace(marks=tuple(marks))
        yield ("redriven",), world._replace(redrive=self.head(world))

    def head(self, world: World) -> Redrive | None:
        """Read the head of the queue."""
        if not world.queue:
            return None
        head = world.queue[0]
        return Redrive(head, len(world.queue) == 1, world.marks[LOG[head][0]])

    def quiet(self, world: World) -> Iterator[tuple[Step, World]]:
        """What happens when nothing is under way: marks expire, the consumer begins anew."""
        if self.regime.weeks and world.gone == world.written < len(LOG):
            left = (mark if mark.queued and self.rules.kept else NO_MARK for mark in world.marks)
            yield ("week",), world._replace(marks=tuple(left))
        if self.regime.anew and world.begun is None and any(mark.position for mark in world.marks):
            yield (
                ("anew",),
                world._replace(
                    gone=0,
                    marks=(NO_MARK,) * ITEMS if self.rules.anew else world.marks,
                    begun=tuple(len(numbers) for numbers in world.applied),
                    queue=(),
                    late=frozenset(),
                ),
            )

    # -- what is wrong -----------------------------------------------------------------------------

    def wrong(self, world: World) -> Iterator[str]:
        """Yield what does not hold."""
        waiting = [n for start, end in world.payloads for n in range(start, end)]
        for item in range(ITEMS):
            applied = world.has_done(item)
            parked = [LOG[n][1] for n in world.queue if LOG[n][0] == item]
            done = (*applied, *parked)
            if len(set(done)) < len(done):
                yield "twice"
            if list(applied) != sorted(applied) or (parked and max(applied, default=0) > parked[0]):
                yield "order"
            aside = {LOG[n][1] for n in (*world.late, *waiting) if LOG[n][0] == item}
            if any(i == item and q not in aside and q not in done for i, q in LOG[: world.gone]):
                yield "lost"


def _with(world: World, k: int, run: Run | None) -> World:
    return world._replace(runs=(*world.runs[:k], run, *world.runs[k + 1 :]))


def _applied(world: World, n: int) -> World:
    item, number = LOG[n]
    applied = list(world.applied)
    applied[item] = (*applied[item], number)
    return world._replace(applied=tuple(applied))


REGIMES: dict[str, Regime] = {
    "troubles": Regime(),
    "parks": Regime("parks", troubles=1),
    "blocks": Regime("blocks", troubles=0),
    "gives up": Regime(gives_up=True),
    "gives up, parks": Regime("parks", troubles=1, gives_up=True),
    "weeks": Regime("parks", troubles=0, weeks=True),
    "anew": Regime(troubles=1, anew=True),
}

NAIVE: dict[str, tuple[Rules, str, str]] = {
    "effects, then marks": (Rules(parts=("effects", "marks")), "troubles", "twice"),
    "marks, then effects": (Rules(parts=("marks", "effects")), "troubles", "lost"),
    "the mark may be there already": (Rules(below="equal"), "troubles", "twice"),
    "no mark": (Rules(below="none"), "troubles", "twice"),
    "below the last of the fold": (Rules(below="last"), "troubles", "twice"),
    "goes on behind a change that has to come again": (Rules(stops=False), "blocks", "lost"),
    "parked, and nothing queues behind it": (Rules(queues=False), "parks", "order"),
    "parked, and the mark stays": (Rules(parking_marks=False), "parks", "twice"),
    "parked meanwhile, and not asked for": (Rules(as_read=False), "gives up, parks", "order"),
    "marks expire while changes are parked": (Rules(kept=False), "weeks", "order"),
    "marks of the consumer before": (Rules(anew=False), "anew", "lost"),
    "late, and dropped below the mark": (Rules(passed="dropped"), "gives up", "lost"),
    "late, and applied below the mark": (Rules(passed="applied"), "gives up", "twice"),
}
"""Rules that look simpler, and in which regime each breaks what."""
