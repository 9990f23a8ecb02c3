"""A rewind: an executable specification of how a consumer comes to read again, beside workers.

One item has two changes, in one shard. Workers join, take the cursor, commit (a commit applies a
change or parks it), redrive, leave, and freeze at any moment for as long as one likes: then others
take them for dead, and what they do next is late. Operators take the steps of a rewind one by one,
may die between any two, and try again. Every interleaving in a *regime* (which workers and
operators there are, and what they may do) is looked at. Checked:

    stale      once all is read and redriven, the item is as its last change says
    again      after a rewind that was decided, all is read again
    refused    a rewind that was refused, or died, stops no worker from going on: also an older one
    paused     functions that run while a consumer is rewound leave nothing behind either
    back       a mirror's copy, which workers write as its source is when they write, and not as the
               change was, never shows an older state after a newer one

In: the rules. Out: what breaks them, as texts; none of ours. The naive rules are BAD, each for a
reason of its own. A call of DynamoDB is one step; between a read and the write that follows from it
anything may happen. The lister is left out: its cursor is raised and deleted as that of the shard.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import Literal, NamedTuple

from tests.models.explorer import explore, told

CHANGES = 2

OURS = ("read", "parked", "live", "ask", "raise", "parked", "decide", "drop", "finish")
FUNCTIONS = ("read", "parked", "wait", "parked", "decide", "finish")
TURNS = 2
"""A consumer that functions run is paused so often, and resumed in between."""


class Consumer(NamedTuple):
    """The consumer's item. `asks` is the generation that is asked for, 0 if none is."""

    number: int = 1
    asks: int = 0
    fits: bool = True  # the fingerprint is the workers'
    rewinding: bool = False
    paused: int = 0


class Cursor(NamedTuple):
    """The shard's; for functions the item's mark, whose generation is the incarnation.

    `queued` says that a later change of the item has to go behind one that is parked.
    """

    generation: int
    owner: int = -1
    epoch: int = 0
    position: int = 0
    queued: bool = False


class Plan(NamedTuple):
    """A commit that is under way: under which lease, of which change, and what it does.

    `source` is the state of the source that a mirror has read, 0 for other handlers.
    """

    cursor: Cursor
    parks: bool
    source: int = 0


Phase = Literal["off", "joining", "withdrawing", "finishing", "active", "gone"]


class Worker(NamedTuple):
    """`seen` is the generation that was read, or that it is in; `beats` that it is not silent."""

    phase: Phase = "off"
    beats: bool = False
    seen: int = 0
    dropped: bool = False
    plan: Plan | None = None
    froze: bool = False


class Operator(NamedTuple):
    """The next step of a rewind, and the consumer as read. `tries` counts how often it began."""

    step: int = 0
    seen: Consumer = Consumer()
    outcome: Literal["", "refused", "done"] = ""
    tries: int = 0


class World(NamedTuple):
    """All that is stored and under way. `again` is how much was read since the last decision.

    `source` is the latest change that the application has made. `back` says that the item showed an
    older change after a newer one.
    """

    consumer: Consumer = Consumer()
    cursor: Cursor | None = Cursor(1)
    item: int = 0
    parked: tuple[int, ...] = ()
    workers: tuple[Worker, ...] = ()
    operators: tuple[Operator, ...] = ()
    again: int = CHANGES
    former: Cursor | None = None  # marks of the incarnation before
    turns: int = 0
    source: int = CHANGES
    back: bool = False


@dataclass(frozen=True)
class Rules:
    """How a rewind is done; ours by default."""

    steps: tuple[str, ...] = OURS
    fenced: bool = True
    """A commit asks for the generation of its cursor, not for its owner and epoch alone."""
    same_number: bool = False
    """What is decided keeps the number that was asked for."""
    withdraws: bool = True
    """A worker that joins takes the question back."""
    fits: bool = False
    """The generation that is asked for has the fingerprint of the workers' handlers."""
    below: bool = True
    """Only cursors of older generations are deleted."""
    patience: bool = True
    """An older worker that stands by starts a generation in the end."""
    paused: bool = True
    """What is decided of a paused consumer asks for that very pause."""
    latest: bool = True
    """A mirror writes what its source is, and not what its change has made of it."""


@dataclass(frozen=True)
class Regime:
    """Who is there: for each worker whether it is of an older build; and what may happen."""

    older: tuple[bool, ...] = (False,)
    joined: int = 1
    freezes: int = 0
    parks: bool = True
    operators: int = 1
    tries: int = 1
    functions: bool = False
    mirror: bool = False


Step = tuple[str, World]


class Model:
    """All that may happen next in a world, by rules, in a regime."""

    def __init__(self, rules: Rules, regime: Regime) -> None:
        self.rules, self.regime = rules, regime

    def first(self) -> World:
        """Return the world in which some workers have joined already."""
        off = len(self.regime.older) - self.regime.joined
        there = Worker("active", beats=True, seen=1)
        workers = (there,) * self.regime.joined + (Worker(),) * off
        source = 1 if self.regime.mirror else CHANGES
        operators = (Operator(),) * self.regime.operators
        return World(workers=workers, operators=operators, source=source)

    def steps(self, world: World) -> Iterator[Step]:
        """Yield what may happen next."""
        for n in range(len(world.workers)):
            yield from self.worker(world, n)
        for n, operator in enumerate(world.operators):
            if not operator.outcome:
                yield self.operator(world, n)
            if operator.step and operator.tries + 1 < self.regime.tries:
                again = Operator(tries=operator.tries + 1)
                yield f"operator {n} dies", _with_operator(world, n, again)
        if self.regime.functions and world.turns < 2 * TURNS:
            turns = world.turns + 1
            turned = world.consumer._replace(paused=turns % 2 and turns)
            yield "pause or resume", world._replace(consumer=turned, turns=turns)
        if world.source < CHANGES:
            yield "the application writes", world._replace(source=world.source + 1)

    # -- workers -----------------------------------------------------------------------------------

    def worker(self, world: World, n: int) -> Iterator[Step]:
        """Yield what a worker may do next."""
        worker = world.workers[n]
        if self.regime.functions:
            yield from self.function(world, n)
        elif worker.phase == "off":
            yield f"{n} begins", _with(world, n, Worker("joining", beats=True))
        elif worker.phase == "joining":
            yield from self.join(world, n)
        elif worker.phase in ("withdrawing", "finishing"):
            yield from self.settle(world, n)
        elif worker.plan is not None:
            yield f"{n}'s commit arrives", self.commit(world, n)
        elif worker.phase == "active":
            yield from self.work(world, n)
        if n < self.regime.freezes and worker.beats and not worker.froze:
            silent = worker._replace(beats=False, froze=True)
            yield f"{n} freezes", _with(world, n, silent)

    def join(self, world: World, n: int) -> Iterator[Step]:
        """A worker reads the consumer's item; what follows from it is a step of its own."""
        consumer, old = world.consumer, self.regime.older[n]
        worker = Worker("active", True, consumer.number, froze=world.workers[n].froze)
        if consumer.rewinding:
            yield f"{n} finishes", _with(world, n, worker._replace(phase="finishing"))
        elif consumer.asks and not old and self.rules.withdraws:
            yield f"{n} withdraws", _with(world, n, worker._replace(phase="withdrawing"))
        elif consumer.fits or not old:
            yield f"{n} joins {consumer.number}", _with(world, n, worker)
        elif self.rules.patience:  # it stands by until that ends
            newer = consumer._replace(number=consumer.number + 1, fits=True)
            world = world._replace(consumer=newer)
            yield f"{n} takes over", _with(world, n, worker._replace(seen=newer.number))

    def settle(self, world: World, n: int) -> Iterator[Step]:
        """A worker takes a question back, or finishes a rewind, as it was read; then it joins."""
        worker, consumer = world.workers[n], world.consumer
        if worker.phase == "finishing" and not worker.dropped:
            world = self.drop(world, worker.seen)
            yield f"{n} drops", _with(world, n, worker._replace(dropped=True))
            return
        if worker.phase == "finishing" and consumer.number == worker.seen:
            consumer = consumer._replace(rewinding=False)
        elif worker.phase == "withdrawing" and consumer.asks and consumer.number == worker.seen:
            consumer = consumer._replace(asks=0, fits=True)
        world = world._replace(consumer=consumer)
        yield f"{n} settled", _with(world, n, worker._replace(phase="joining", dropped=False))

    def work(self, world: World, n: int) -> Iterator[Step]:
        """A worker takes the shard, sends a commit, redrives, or leaves."""
        worker, cursor = world.workers[n], world.cursor
        if cursor is None:
            if worker.seen == world.consumer.number:
                yield f"{n} creates", world._replace(cursor=Cursor(worker.seen))
        elif cursor.generation > worker.seen:
            yield f"{n} begins anew", _with(world, n, worker._replace(phase="joining"))
        elif cursor.owner != n:
            if cursor.owner < 0 or not world.workers[cursor.owner].beats:
                taken = cursor._replace(generation=worker.seen, owner=n, epoch=cursor.epoch + 1)
                yield f"{n} takes", world._replace(cursor=taken)
        else:
            yield from self.sends(world, n, cursor)
        if world.parked and cursor is not None and cursor.owner == n:
            redriven = world._replace(parked=world.parked[1:])
            yield f"{n} redrives", self.shows(redriven, world.parked[0], world.source)
        if worker.beats and (cursor is None or cursor.owner != n or worker.plan is None):
            if cursor is not None and cursor.owner == n:
                world = world._replace(cursor=cursor._replace(owner=-1))
            yield f"{n} leaves", _with(world, n, Worker("gone"))

    def sends(self, world: World, n: int, cursor: Cursor) -> Iterator[Step]:
        """A change is applied, or parked because it fails or is behind one that is parked."""
        if cursor.position == world.source:
            return
        behind = cursor.queued and bool(world.parked)
        for parks in (True,) if behind else (False, True) if self.regime.parks else (False,):
            plan = Plan(cursor, parks, world.source if self.regime.mirror else 0)
            planned = world.workers[n]._replace(plan=plan)
            yield f"{n} sends {cursor.position + 1} {parks=}", _with(world, n, planned)

    def function(self, world: World, n: int) -> Iterator[Step]:
        """A function looks once whether it may run, and of which incarnation its marks are."""
        worker, consumer = world.workers[n], world.consumer
        if worker.plan is not None:
            yield f"{n}'s commit arrives", self.commit(world, n)
        elif worker.phase == "off" and not consumer.paused:
            began = Worker("active", seen=consumer.number)
            yield f"{n} begins", _with(world, n, began)
        elif worker.phase == "active":
            marks = _marks(world, worker.seen)
            if marks is not None:
                yield from self.sends(world, n, marks)
            yield f"{n} leaves", _with(world, n, Worker("gone"))

    def commit(self, world: World, n: int) -> World:
        """Let a commit arrive: it stands IF the cursor is as it was planned under."""
        plan = world.workers[n].plan
        idle = world.workers[n]._replace(plan=None)
        assert plan is not None
        cursor = world.cursor
        if self.regime.functions:
            cursor = _marks(world, plan.cursor.generation)
        as_read = cursor
        if cursor is not None and not self.rules.fenced:
            as_read = cursor._replace(generation=plan.cursor.generation)
        refused = cursor is None or as_read != plan.cursor
        changed = self.regime.mirror and not plan.parks and plan.source != world.source
        if cursor is None or refused or changed:
            return _with(world, n, idle)
        change = cursor.position + 1
        done = cursor._replace(position=change, queued=cursor.queued or plan.parks)
        if cursor == world.cursor:
            again = world.again + (change == world.again + 1)
            world = world._replace(cursor=done, again=again)
        else:
            world = world._replace(former=done)
        if plan.parks:
            world = world._replace(parked=(*world.parked, change))
        else:
            world = self.shows(world, change, plan.source)
        return _with(world, n, idle)

    def shows(self, world: World, change: int, source: int) -> World:
        """Write the item for a change; a mirror writes the source's state that it has read."""
        item = source if self.regime.mirror and self.rules.latest else change
        return world._replace(item=item, back=world.back or item < world.item)

    def drop(self, world: World, below: int) -> World:
        """Delete cursors of older generations."""
        cursor = world.cursor
        if cursor is not None and (cursor.generation < below or not self.rules.below):
            return world._replace(cursor=None)
        return world

    # -- operators ---------------------------------------------------------------------------------

    def operator(self, world: World, n: int) -> Step:
        """Let an operator take its next step."""
        operator = world.operators[n]
        if operator.step == len(self.rules.steps):
            return f"operator {n} is done", _with_operator(
                world, n, operator._replace(outcome="done")
            )
        name = self.rules.steps[operator.step]
        act: Callable[[World, Operator], tuple[World, Operator | None]] = getattr(self, f"_{name}")
        world, after = act(world, operator)
        if after is None:
            after = operator._replace(outcome="refused")
        elif after.step == operator.step:
            after = after._replace(step=operator.step + 1)
        return f"operator {n}: {name}", _with_operator(world, n, after)

    def _read(self, world: World, operator: Operator) -> tuple[World, Operator | None]:
        operator = operator._replace(seen=world.consumer)
        if world.consumer.rewinding:
            operator = operator._replace(step=self.rules.steps.index("decide"))
        return world, operator

    def _live(self, world: World, operator: Operator) -> tuple[World, Operator | None]:
        return world, None if any(worker.beats for worker in world.workers) else operator

    def _parked(self, world: World, operator: Operator) -> tuple[World, Operator | None]:
        if not world.parked:
            return world, operator
        consumer, asked = world.consumer, "ask" in self.rules.steps[: operator.step]
        if asked and operator.seen == consumer:
            world = world._replace(consumer=consumer._replace(asks=0, fits=True))
        return world, None

    def _wait(self, world: World, operator: Operator) -> tuple[World, Operator | None]:
        """Look that it was paused for longer than a function runs."""
        runs = any(worker.phase == "active" for worker in world.workers)
        return world, None if runs or not operator.seen.paused else operator

    def _pause(self, world: World, operator: Operator) -> tuple[World, Operator | None]:
        """Look that it is paused, and no more."""
        return world, operator if operator.seen.paused else None

    def _ask(self, world: World, operator: Operator) -> tuple[World, Operator | None]:
        if world.consumer != operator.seen:
            return world, None
        number = world.consumer.number + 1
        asked = world.consumer._replace(number=number, asks=number, fits=self.rules.fits)
        return world._replace(consumer=asked), operator._replace(seen=asked)

    def _raise(self, world: World, operator: Operator) -> tuple[World, Operator | None]:
        number, cursor = operator.seen.number, world.cursor
        if cursor is not None and cursor.generation < number:
            world = world._replace(cursor=cursor._replace(generation=number))
        return world, operator

    def _decide(self, world: World, operator: Operator) -> tuple[World, Operator | None]:
        seen, consumer = operator.seen, world.consumer
        if not self.rules.paused:
            seen = seen._replace(paused=consumer.paused)
        if consumer != seen:
            return world, None
        number = consumer.number + (not self.rules.same_number)
        decided = Consumer(number, rewinding=True, paused=consumer.paused)
        if self.regime.functions:
            world = world._replace(former=world.cursor, cursor=Cursor(number))
        return world._replace(consumer=decided, again=0), operator._replace(seen=decided)

    def _drop(self, world: World, operator: Operator) -> tuple[World, Operator | None]:
        return self.drop(world, operator.seen.number), operator

    def _finish(self, world: World, operator: Operator) -> tuple[World, Operator | None]:
        if world.consumer.number == operator.seen.number:
            world = world._replace(consumer=world.consumer._replace(rewinding=False))
        return world, operator

    # -- in the end --------------------------------------------------------------------------------

    def wrong(self, world: World) -> Iterator[str]:
        """Yield what is wrong after one more worker, of any build, has read and redriven all."""
        cursor = None if world.cursor is None else world.cursor._replace(owner=-1, epoch=0)
        calm = world._replace(cursor=cursor, workers=(Worker(),), operators=())
        calm = calm._replace(consumer=world.consumer._replace(paused=0), former=None, turns=0)
        calm = calm._replace(source=CHANGES)
        for old in {*self.regime.older}:
            yield from _end(self.rules, calm, replace(self.regime, older=(old,), parks=False))


@cache
def _end(rules: Rules, end: World, alone: Regime) -> tuple[str, ...]:
    model = Model(rules, alone)
    for _ in range(30):
        steps = [a for what, a in model.worker(end, 0) if not what.endswith(("redrives", "leaves"))]
        if not steps:
            break
        end = steps[0]
    wrong = {
        "refused": end.cursor is None or end.cursor.position < CHANGES,
        "again": end.again < CHANGES,
        "stale": (end.parked[-1] if end.parked else end.item) != CHANGES,
        "back": alone.mirror and end.back,
    }
    return tuple(name for name, is_so in wrong.items() if is_so)


def _marks(world: World, incarnation: int) -> Cursor | None:
    """Return what functions have noted under an incarnation; nothing of one long ago."""
    both = (world.cursor, world.former)
    return next((c for c in both if c is not None and c.generation == incarnation), None)


def _with(world: World, n: int, worker: Worker) -> World:
    return world._replace(workers=(*world.workers[:n], worker, *world.workers[n + 1 :]))


def _with_operator(world: World, n: int, operator: Operator) -> World:
    operators = world.operators
    return world._replace(operators=(*operators[:n], operator, *operators[n + 1 :]))


REGIMES: dict[str, Regime] = {
    "leaves": Regime(),
    "freezes": Regime(freezes=1),
    "joins": Regime((False, False), joined=0),
    "older": Regime((True,), joined=0),
    "mixed": Regime((False, True), freezes=1),
    "dies": Regime((False, False), freezes=1, tries=2),
    "two": Regime(operators=2, freezes=1),
    "mirror": Regime(mirror=True, freezes=1),
    "mirrors": Regime((False, False), joined=0, mirror=True),
}
PAUSED = Regime((False, False), joined=0, functions=True)

NAIVE: dict[str, tuple[Rules, str, str]] = {
    "parked changes first": (
        Rules(("read", "parked", "live", "decide", "drop", "finish")),
        "leaves",
        "stale",
    ),
    "one generation, workers first": (
        Rules(("read", "live", "parked", "decide", "drop", "finish")),
        "freezes",
        "stale",
    ),
    "the number that was asked for": (Rules(same_number=True), "leaves", "again"),
    "raised once it is decided": (
        Rules(("read", "live", "ask", "parked", "decide", "raise", "drop", "finish")),
        "freezes",
        "stale",
    ),
    "raised before it is asked for": (
        Rules(("read", "live", "raise", "parked", "ask", "decide", "drop", "finish")),
        "freezes",
        "stale",
    ),
    "not fenced by generation": (Rules(fenced=False), "freezes", "stale"),
    "not withdrawn by joiners": (Rules(withdraws=False), "joins", "stale"),
    "joined by older builds": (Rules(fits=True), "older", "stale"),
    "shut to older builds": (Rules(patience=False), "older", "refused"),
    "every cursor is deleted": (Rules(below=False), "freezes", "stale"),
    "a mirror of the change's own image": (Rules(latest=False), "mirror", "back"),
}
"""Rules that look simpler, and in which regime each breaks what."""

FUNCTIONS_NAIVE: dict[str, Rules] = {
    "paused, and some still run": Rules(("read", "parked", "pause", "parked", "decide", "finish")),
    "resumed meanwhile": Rules(FUNCTIONS, paused=False),
    "looked before they ended": Rules(("read", "parked", "wait", "decide", "finish")),
}


def broken(rules: Rules, regime: Regime) -> tuple[int, dict[str, str]]:
    """Look at every world that can be reached; return how many there are, and what breaks how."""
    found = explore(Model(rules, regime))
    return len(found.worlds), {name: told(trace) for name, trace in found.broken.items()}
