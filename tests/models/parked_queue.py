"""Parked queues: an executable specification of changes that fail, and of those that go behind them.

One item has three changes: two in a shard, the last in its child. An owner runs each or, where the
item's queue is believed to be there, puts it into the queue; a change that fails begins one. Any
number of redrivers read the first change of the queue, run it, and take it off with its effects,
any time later. The shard ends, its child's cursor is made with that or later, owners change, and
redrivers die or lose a reply. Every interleaving is looked at. Checked:

    order      the item's changes take effect once each and in their order
    stranded   a change that was passed has taken effect, or its queue leads to it
    flows      the owner gets to the end of the stream although no redriver runs
    heals      what is parked takes effect once nothing fails any more

In: the rules. Out: what breaks them, each with a shortest trace. The naive rules are BAD. One
redriver's commits are here, an owner's are in `leased_commit`: only one is under way at a time.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

from tests.models.explorer import LARGE

FIRST, LAST = 1, 3
"""The item's changes; the last one is in the child."""


class Queue(NamedTuple):
    """The numbers of the first and the last change that are parked in it."""

    head: int
    tail: int


class Parked(NamedTuple):
    """A parked change under its number, and the number of the one behind it (0: none)."""

    number: int
    change: int
    behind: int = 0


class Plan(NamedTuple):
    """An owner's commit that is under way: the queue's tail as known, if it puts a change there."""

    does: Literal["run", "park", "queue"]
    change: int
    tail: int = 0


class World(NamedTuple):
    """All that is stored and under way.

    `passed` is the last change that an owner is done with. `named` says whether the open shard's
    cursor names the chunk that lists the queue, and `knows` which tail of the queue its owner
    believes in (0: there is no queue). `redrivers` have read the first change.
    """

    passed: int = 0
    shard: Literal["parent", "finished", "child"] = "parent"
    named: bool = False
    knows: int = 0
    plan: Plan | None = None
    queue: Queue | None = None
    parked: tuple[Parked, ...] = ()
    effects: tuple[int, ...] = ()
    redrivers: tuple[Parked | None, ...] = (None, None)
    failures: int = 0


UNREAD = -1
"""An owner believes that there is a queue, and has not read its tail yet."""


@dataclass(frozen=True)
class Rules:
    """What the writes ask for; ours by default."""

    head: bool = True
    """A redrive asks that its change is still the first."""
    present: bool = True
    """It asks that its change is still parked."""
    last: bool = True
    """It ends the queue IF nothing was put behind its change."""
    exists: bool = True
    """A change is put behind others IF the queue is there."""
    inherits: bool = True
    """A child's cursor names the chunks that its parent's named."""
    by_position: bool = True
    """Parked changes are numbered by their positions, which are never used twice."""


@dataclass(frozen=True)
class Bound:
    """How often something fails, and how many redrivers there are."""

    failures: int = 2
    redrivers: int = 2


BOUNDS = {"small": Bound(), "one redriver": Bound(3, 1)}
if LARGE:
    BOUNDS |= {"more failures": Bound(5, 2), "three": Bound(3, 3)}

Step = tuple[object, ...]


class Model:
    """All that may happen next in a world, by rules, within a bound."""

    def __init__(self, rules: Rules = Rules(), bound: Bound = Bound()) -> None:
        self.rules, self.bound = rules, bound

    def first(self) -> World:
        """Return the world in which nothing was read yet."""
        return World(redrivers=(None,) * self.bound.redrivers)

    def steps(self, world: World) -> Iterator[tuple[Step, World]]:
        """Yield what may happen next."""
        if world.plan is not None:
            yield ("commits",), self.commit(world, world.plan)
        elif self.next_change(world):
            yield from self.plans(world)
        elif world.shard == "parent":
            finished = world._replace(
                shard="finished", named=world.named and world.queue is not None
            )
            yield ("finishes", "with its child"), self.child(finished)
            yield ("finishes", "alone"), finished
        elif world.shard == "finished":
            yield ("lists",), self.child(world)
        if world.shard != "finished":
            yield ("changes hands",), self.load(world)
        for n, read in enumerate(world.redrivers):
            yield from self.redriver(world, n, read)

    # -- the owner ---------------------------------------------------------------------------------

    @staticmethod
    def next_change(world: World) -> int:
        """Return the next change of the open shard, 0 if there is none."""
        last = {"parent": LAST - 1, "finished": 0, "child": LAST}[world.shard]
        return world.passed + 1 if world.passed < last else 0

    def plans(self, world: World) -> Iterator[tuple[Step, World]]:
        """An owner reads the tail of a queue that it has not read yet, and sends a commit.

        A change that goes behind others is not run, so that it does not fail.
        """
        if world.knows == UNREAD:
            world = world._replace(knows=world.queue.tail if world.queue else 0)
        yield ("runs",), world._replace(plan=self.planned(world))
        if world.failures < self.bound.failures and not world.knows:
            plan = self.planned(world, fails=True)
            yield ("fails",), world._replace(plan=plan, failures=world.failures + 1)

    def planned(self, world: World, *, fails: bool = False) -> Plan:
        """Return what an owner does with the next change."""
        change = self.next_change(world)
        if world.knows:
            return Plan("queue", change, world.knows)
        return Plan("park" if fails else "run", change)

    def commit(self, world: World, plan: Plan) -> World:
        """An owner's commit arrives; where the queue is gone, it plans again."""
        done = world._replace(passed=plan.change, plan=None)
        if plan.does == "run":
            return done._replace(effects=(*world.effects, plan.change))
        number = plan.change if self.rules.by_position else plan.tail + 1
        parked = (*world.parked, Parked(number, plan.change))
        if plan.does == "park":
            queue = Queue(number, number)
        elif world.queue is not None:
            queue = world.queue._replace(tail=number)
            parked = tuple(
                one._replace(behind=number) if one.number == plan.tail else one for one in parked
            )
        elif self.rules.exists:
            world = world._replace(knows=0)
            return world._replace(plan=self.planned(world))
        else:
            queue = None
        return done._replace(queue=queue, parked=parked, named=True, knows=number)

    def load(self, world: World) -> World:
        """Another owner begins: it knows what the cursor names."""
        listed = world.named and world.queue is not None
        return world._replace(plan=None, knows=UNREAD if listed else 0)

    def child(self, world: World) -> World:
        """The child's cursor is made from its parent's, and its owner begins."""
        named = self.rules.inherits and world.named
        return self.load(world._replace(shard="child", named=named))

    # -- redrivers ---------------------------------------------------------------------------------

    def redriver(self, world: World, n: int, read: Parked | None) -> Iterator[tuple[Step, World]]:
        """A redriver reads the first change and runs it, or what it sent arrives."""
        if read is not None:
            taken = self.leave(world, read)
            yield ("dies", n), _with(world, n, None)
            yield ("leaves", n), _with(taken or world, n, _first(taken or world))
            if taken is not None:
                yield ("leaves, reply lost", n), taken
            return
        first = _first(world)
        if first is not None:
            yield ("reads", n), _with(world, n, first)
            if world.failures < self.bound.failures:
                yield ("fails again", n), world._replace(failures=world.failures + 1)

    def leave(self, world: World, read: Parked) -> World | None:
        """Take a change off its queue as it was read; None: its transaction is refused."""
        queue, rules = world.queue, self.rules
        there = [one for one in world.parked if one.number == read.number]
        if (
            (rules.present and not there)
            or queue is None
            or (rules.head and queue.head != read.number)
        ):
            return None
        if not read.behind and rules.last and queue.tail != read.number:
            return None
        return world._replace(
            queue=queue._replace(head=read.behind) if read.behind else None,
            parked=tuple(one for one in world.parked if one not in there),
            effects=(*world.effects, read.change),
        )

    # -- what must hold ----------------------------------------------------------------------------

    def wrong(self, world: World) -> Iterator[str]:
        """Yield what does not hold."""
        if world.effects != tuple(range(FIRST, len(world.effects) + 1)):
            yield "order"
        done = {*world.effects, *_chain(world)}
        if not done.issuperset(range(FIRST, world.passed + 1)):
            yield "stranded"


def _first(world: World) -> Parked | None:
    """Return the first change of the queue."""
    if world.queue is None:
        return None
    return next((one for one in world.parked if one.number == world.queue.head), None)


def _chain(world: World) -> Iterator[int]:
    """Yield the changes to which the queue leads."""
    there, at = {one.number: one for one in world.parked}, _first(world)
    while at is not None:
        yield at.change
        at = there.get(at.behind) if at.behind else None


def _with(world: World, n: int, read: Parked | None) -> World:
    redrivers = (*world.redrivers[:n], read, *world.redrivers[n + 1 :])
    return world._replace(redrivers=redrivers)


def is_read(world: World) -> bool:
    """Return whether an owner has got to the end of the stream."""
    return world.passed == LAST


def is_healed(world: World) -> bool:
    """Return whether everything has taken effect and nothing is parked."""
    return world.effects == tuple(range(FIRST, LAST + 1)) and world.queue is None


def by_owners(step: Step) -> bool:
    """Return whether a step is one that an owner or the lister takes when all is well."""
    return step[0] in ("commits", "runs", "finishes", "lists")


def by_anyone(step: Step) -> bool:
    """Return whether a step is one that happens when nothing fails."""
    return by_owners(step) or step[0] in ("reads", "leaves")


NAIVE: dict[str, tuple[Rules, str]] = {
    "neither first nor still parked": (Rules(head=False, present=False), "order"),
    "numbers from the start": (Rules(by_position=False), "order"),
    "ended by what was read": (Rules(last=False), "stranded"),
    "put behind whatever was there": (Rules(exists=False), "stranded"),
    "children begin afresh": (Rules(inherits=False), "order"),
}
"""Rules that look simpler, and what each breaks."""

SAFE = {"the first alone": Rules(present=False), "still parked alone": Rules(head=False)}
"""Rules that ask for less and are as safe, as long as numbers are never used twice."""
