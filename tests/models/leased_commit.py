"""Lease and commit: an executable specification of how one cursor's owner commits what it read.

Three changes are in a shard, the first and the last of one item. Workers take the cursor at any
time (a wrong judgement is always possible), send commits of one or two changes, and lose replies. A
request arrives, is lost, or arrives long after its sender gave it up, planned again, or crashed. A
change is handled or, the first one, parked; then the last one goes behind it. Somebody may raise
the cursor to the next generation, without asking its owner. Every interleaving within a bound is
looked at. Checked:

    twice      no change takes effect twice
    skipped    a change has taken effect if and only if the position is behind it
    order      the last change goes behind the first one if and only if that is parked
    late       no commit is accepted that was sent under an earlier lease or generation
    belief     an owner whose next commit would be accepted knows whether the first is parked

In: the rules. Out: what breaks them, each with a shortest trace. The naive rules are BAD.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

from tests.models.explorer import LARGE

CHANGES = 3
HANDLED, PARKED, QUEUED = "hpq"
"""What becomes of a change. One that is queued goes behind a parked one of its item."""


class Claim(NamedTuple):
    """What a cursor says, and what its owner believes that it says."""

    owner: int | None = None
    epoch: int = 0
    generation: int = 1
    position: int = 0
    commit: int = 0


class Plan(NamedTuple):
    """A commit that was sent: its number is its commit id. `term` counts takes and raises."""

    number: int
    under: Claim
    term: int
    outcomes: str

    @property
    def end(self) -> int:
        """Return the position that it leads to."""
        return self.under.position + len(self.outcomes)


class Worker(NamedTuple):
    """An owner of the cursor, or one that does not know yet that it is none any more.

    `queues` says that it believes the first change to be parked; `sent` are the plans since its
    belief was last confirmed, the oldest first.
    """

    claim: Claim
    term: int
    queues: bool
    sent: tuple[Plan, ...] = ()
    waits: int = 0


class World(NamedTuple):
    """The cursor, what took effect of each change, the workers, and requests under way."""

    cursor: Claim = Claim()
    effects: tuple[str, ...] = ("",) * CHANGES
    workers: tuple[Worker | None, ...] = (None, None)
    air: frozenset[Plan] = frozenset()
    sent: int = 0
    takes: int = 0
    term: int = 0
    late: bool = False


@dataclass(frozen=True)
class Rules:
    """What a commit asks for, and what its sender concludes from a refusal; ours by default."""

    lease: bool = True
    """A commit asks for owner and epoch."""
    generation: bool = True
    """It asks for the generation."""
    position: bool = True
    """It asks for the position."""
    commit: bool = True
    """It asks for the last commit's id."""
    keeps_epoch: bool = True
    """A release leaves the epoch as it is."""
    adopts: Literal["id", "target", "never"] = "id"
    """What won: the plan that the cursor names; mine, if the position is where it leads; or unknown,
    so that the lease is dropped."""
    remembers: int = 2
    """Plans whose fate is unknown; an older one is not known to have been sent."""


@dataclass(frozen=True)
class Bound:
    """How much may happen."""

    takes: int = 2
    plans: int = 3
    air: int = 2
    raises: int = 1
    workers: int = 2


SMALL = Bound(takes=2, plans=2, raises=0)
WITH_RAISE = Bound(takes=2, plans=1, raises=1)
DOUBTS = Bound(takes=1, plans=4, raises=0)
BOUNDS = {"rivals": SMALL, "raised": WITH_RAISE, "doubts": DOUBTS}
if LARGE:
    BOUNDS |= {"more rivals": Bound(takes=3, plans=3, raises=0), "all": Bound(takes=2, plans=3)}

Step = tuple[object, ...]


class Model:
    """All that may happen next in a world, by rules, within a bound."""

    def __init__(self, rules: Rules = Rules(), bound: Bound = SMALL) -> None:
        self.rules, self.bound = rules, bound

    def first(self) -> World:
        """Return the world in which no worker has taken the cursor yet."""
        return World(workers=(None,) * self.bound.workers)

    def steps(self, world: World) -> Iterator[tuple[Step, World]]:
        """Yield what may happen next."""
        for n, worker in enumerate(world.workers):
            if world.takes < self.bound.takes and (worker is None or world.cursor.owner != n):
                taken = self.take(world, n)
                yield ("take", n), taken
                yield ("take, reply lost", n), taken
            if worker is not None:
                yield from self.work(world, n, worker)
        if world.cursor.generation <= self.bound.raises:
            raised = world.cursor._replace(generation=world.cursor.generation + 1)
            yield ("up",), world._replace(cursor=raised, term=world.term + 1)
        for plan in sorted(world.air):
            yield ("arrives", plan.number), self.arrive(world, plan, heard=True)
            yield ("arrives, reply lost", plan.number), self.arrive(world, plan, heard=False)
            yield ("lost", plan.number), world._replace(air=world.air - {plan})

    def take(self, world: World, n: int) -> World:
        """A worker becomes the owner of the cursor as it is."""
        old, term = world.cursor, world.term + 1
        cursor = old._replace(owner=n, epoch=old.epoch + 1)
        worker = Worker(cursor, term, world.effects[0] == PARKED)
        world = world._replace(cursor=cursor, takes=world.takes + 1, term=term)
        return _with(world, n, worker)

    def work(self, world: World, n: int, worker: Worker) -> Iterator[tuple[Step, World]]:
        """A worker sends a commit, gives one up, releases the cursor, or dies."""
        yield ("crash", n), _with(world, n, None)
        if worker.waits:
            yield ("time out", n), _with(world, n, worker._replace(waits=0))
            return
        yield ("release", n), self.release(world, n, worker)
        if world.sent == self.bound.plans or len(world.air) == self.bound.air:
            return
        for outcomes in _outcomes(worker):
            plan = Plan(world.sent + 1, worker.claim, worker.term, outcomes)
            sent = (*worker.sent, plan)[-self.rules.remembers :]
            after = _with(world, n, worker._replace(sent=sent, waits=plan.number))
            after = after._replace(air=world.air | {plan}, sent=plan.number)
            yield ("send", n, outcomes), after

    def release(self, world: World, n: int, worker: Worker) -> World:
        """A worker gives the cursor up IF it still has it."""
        cursor = world.cursor
        if (cursor.owner, cursor.epoch) == (worker.claim.owner, worker.claim.epoch):
            epoch = cursor.epoch if self.rules.keeps_epoch else 0
            world = world._replace(cursor=cursor._replace(owner=None, epoch=epoch))
        return _with(world, n, None)

    def accepts(self, cursor: Claim, under: Claim) -> bool:
        """Return whether a commit's condition holds."""
        rules = self.rules
        return (
            (not rules.lease or (cursor.owner, cursor.epoch) == (under.owner, under.epoch))
            and (not rules.generation or cursor.generation == under.generation)
            and (not rules.position or cursor.position == under.position)
            and (not rules.commit or cursor.commit == under.commit)
        )

    def arrive(self, world: World, plan: Plan, *, heard: bool) -> World:
        """A request reaches the table; its sender hears of it, if it still waits for that."""
        n = plan.under.owner
        assert n is not None
        worker, cursor = world.workers[n], world.cursor
        world = world._replace(air=world.air - {plan})
        hears = heard and worker is not None and worker.waits == plan.number
        if not self.accepts(cursor, plan.under):
            if hears and worker is not None:
                world = _with(world, n, self.refused(cursor, worker, plan))
            return world
        effects = list(world.effects)
        for at, outcome in enumerate(plan.outcomes, plan.under.position):
            effects[at] += outcome
        world = world._replace(
            cursor=cursor._replace(position=plan.end, commit=plan.number),
            effects=tuple(effects),
            late=world.late or plan.term != world.term,
        )
        if hears and worker is not None:
            world = _with(world, n, _moved(worker, plan))
        return world

    def refused(self, cursor: Claim, worker: Worker, plan: Plan) -> Worker | None:
        """A worker reads in a refusal what the cursor says; None: it drops the lease."""
        mine, rules = worker.claim, self.rules
        if rules.lease and (cursor.owner, cursor.epoch) != (mine.owner, mine.epoch):
            return None
        if rules.generation and cursor.generation != mine.generation:
            return None
        if rules.adopts == "target":
            return _moved(worker, plan) if cursor.position == plan.end else None
        won = next((one for one in worker.sent if one.number == cursor.commit), None)
        return None if won is None or rules.adopts == "never" else _moved(worker, won)

    def wrong(self, world: World) -> Iterator[str]:
        """Yield what does not hold."""
        first, _, last = world.effects
        if any(len(effect) > 1 for effect in world.effects):
            yield "twice"
        done = [bool(effect) for effect in world.effects]
        if done != [n < world.cursor.position for n in range(CHANGES)]:
            yield "skipped"
        if last and (last == QUEUED) != (first == PARKED):
            yield "order"
        if world.late:
            yield "late"
        for worker in world.workers:
            owns = worker is not None and self.accepts(world.cursor, worker.claim)
            if worker is not None and owns and worker.term == world.term:
                yield from ["belief"] if worker.queues != (first == PARKED) else ()


def _outcomes(worker: Worker) -> Iterator[str]:
    """Yield what one commit may make of the next one or two changes."""
    left = CHANGES - worker.claim.position
    one = {0: (HANDLED, PARKED), 1: (HANDLED,), 2: (QUEUED if worker.queues else HANDLED,)}
    if left:
        yield from one[worker.claim.position]
    if left == CHANGES:
        yield from (HANDLED + HANDLED, PARKED + HANDLED)
    elif left == CHANGES - 1:
        yield HANDLED + one[2][0]


def _moved(worker: Worker, won: Plan) -> Worker:
    """Return a worker that goes on from a plan that has won."""
    queues = won.outcomes[0] == PARKED if won.under.position == 0 else worker.queues
    claim = worker.claim._replace(position=won.end, commit=won.number)
    return worker._replace(claim=claim, queues=queues, sent=(), waits=0)


def _with(world: World, n: int, worker: Worker | None) -> World:
    return world._replace(workers=(*world.workers[:n], worker, *world.workers[n + 1 :]))


NAIVE: dict[str, tuple[Rules, Bound, str]] = {
    "no progress in the condition": (Rules(position=False, commit=False), SMALL, "twice"),
    "no lease in the condition": (Rules(lease=False), SMALL, "late"),
    "no generation in the condition": (Rules(generation=False), WITH_RAISE, "late"),
    "epochs begin anew": (Rules(keeps_epoch=False), SMALL, "late"),
    "my target, so I have won": (Rules(adopts="target", commit=False), DOUBTS, "belief"),
    "behind what was never parked": (Rules(adopts="target", commit=False), DOUBTS, "order"),
}
"""Rules that look simpler, and in which bound each breaks what."""

SAFE: dict[str, tuple[Rules, frozenset[str]]] = {
    "effects need no lease": (Rules(lease=False), frozenset({"late"})),
    "the lease is dropped at every doubt": (Rules(adopts="never"), frozenset()),
    "positions move with each commit": (Rules(commit=False), frozenset()),
}
"""Rules that differ, and what alone they may break: the effects are right under each."""
