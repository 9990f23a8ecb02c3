"""A move between hosts: an executable specification of how no change is lost or done twice by it.

One item changes a few times, in one shard. A worker froze with a commit under way. Movers take an
app to functions, or back to workers, write by write; each may stand still between any two writes
for as long as one likes, and another finish its move. Functions know what is done by the item's
mark, workers by the position of their cursor. Checked, while a host may run:

    twice       no change is applied twice
    lost        what the host takes for done was applied

In: the rules. Out: the steps that break them. The naive rules are BAD, each for a reason of its
own. A step is one write of a mover, with all that the mover reads from there to its next write.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

Host = Literal["workers", "to lambda", "lambda", "to workers"]
Goal = Literal["lambda", "workers"]
Step = tuple[str | int, ...]


class Cursor(NamedTuple):
    """The shard's; without one workers begin with the oldest record."""

    generation: int = 1
    epoch: int = 1
    position: int = 1


class Mover(NamedTuple):
    """What a mover has read, and its next write.

    `raised` is how far it raises the mark, `tip` how far it has read the stream, `seen` which
    version of the consumer's item it has read.
    """

    write: str = ""
    generation: int = 0
    resumes: bool = False
    cursor: Cursor | None = None
    raised: int = 0
    mark: int = 0
    tip: int = 0
    seen: int = 0


class Late(NamedTuple):
    """A function's commit that is under way: the mark that it has read, and its last change."""

    mark: int
    last: int


class World(NamedTuple):
    """All that is stored and under way.

    `token` is the mover that is the current one, from 1, `version` counts the writes of the
    consumer's item.
    """

    host: Host = "workers"
    generation: int = 1
    version: int = 0
    token: int = 0
    cursor: Cursor | None = Cursor()
    mark: int = 0
    applied: tuple[int, ...] = (1,)
    written: int = 2
    frozen: Cursor | None = Cursor()
    function: Late | None = None
    movers: tuple[Mover | None, ...] = ()
    ran: int = 0


@dataclass(frozen=True)
class Rules:
    """How a move is done; ours by default."""

    token: bool = True
    """Each transaction asks that the mover is still the current one."""
    takes: bool = True
    """Cursors are taken in a generation that no worker is in, before marks are raised to them."""
    marks_first: bool = True
    """Marks are raised before functions may begin, and not afterwards."""
    final: bool = True
    """Marks are raised to positions as they are after the cursors were taken."""
    shuts: bool = True
    """No function begins while positions are written."""
    checks_marks: bool = True
    """A mover that does what functions have not done asks for the mark, as they do."""


@dataclass(frozen=True)
class Regime:
    """Which movers there are, and how many changes, beside a worker that froze."""

    goals: tuple[Goal, ...] = ("lambda", "lambda")
    changes: int = 3
    host: Host = "workers"
    runs: int = 2


class Model:
    """All that may happen next in a world, by rules, in a regime."""

    def __init__(self, rules: Rules, regime: Regime) -> None:
        self.rules, self.regime = rules, regime

    def first(self) -> World:
        """Return the world in which a host has done one change of two."""
        movers: tuple[Mover | None, ...] = (None,) * len(self.regime.goals)
        if self.regime.host == "lambda":
            return World("lambda", cursor=None, mark=1, frozen=None, movers=movers)
        return World(movers=movers)

    def steps(self, world: World) -> Iterator[tuple[Step, World]]:
        """Yield what may happen next."""
        if world.written < self.regime.changes:
            yield ("write",), world._replace(written=world.written + 1)
        if world.frozen is not None:
            yield ("thaw",), self.thaw(world)
        for m, mover in enumerate(world.movers):
            if mover is None and world.host in _hosts(self.regime.goals[m]):
                yield ("begin", m), self.begin(world, m)
            elif mover is not None and mover.write:
                yield ("move", m), self.move(world, m, mover)
        yield from self.hosts(world)

    def thaw(self, world: World) -> World:
        """Let the commit of the worker arrive, IF the cursor is as it was."""
        plan = world.frozen
        if plan is not None and world.cursor == plan:
            done = plan._replace(position=plan.position + 1)
            world = _applied(world, done.position, done.position)._replace(cursor=done)
        return world._replace(frozen=None)

    def hosts(self, world: World) -> Iterator[tuple[Step, World]]:
        """Let workers or functions run, whichever is the host; a function may be slow."""
        if world.function is not None:
            late, after = world.function, world._replace(function=None)
            if world.mark == late.mark:
                after = _applied(after, late.mark + 1, late.last)._replace(mark=late.last)
            yield ("function ends",), after
        if world.ran == self.regime.runs:
            return
        ran = world._replace(ran=world.ran + 1)
        if world.host == "lambda" and world.mark < world.written:
            if world.function is None:
                late = Late(world.mark, world.written)
                yield ("function begins",), ran._replace(function=late)
            done = _applied(ran, world.mark + 1, world.written)
            yield ("functions",), done._replace(mark=world.written)
        elif world.host == "workers" and world.frozen is None:
            cursor = world.cursor or Cursor(world.generation, 0, 0)
            done = _applied(ran, cursor.position + 1, world.written)
            cursor = cursor._replace(epoch=cursor.epoch + 1, position=world.written)
            yield ("workers",), done._replace(cursor=cursor)

    # -- movers ------------------------------------------------------------------------------------

    def begin(self, world: World, m: int) -> World:
        """A mover reads where it stands, and goes on to its first write."""
        if self.regime.goals[m] == "workers":
            return self.raise_token(world, m, Mover())
        cursor = world.cursor
        resumes = world.host == "to lambda"
        mover = Mover("", world.generation, resumes, cursor, seen=world.version)
        if cursor is not None and cursor.position and self.rules.marks_first:
            mover = mover._replace(raised=cursor.position, tip=world.written)
            return _with(world, m, mover._replace(write="raise first"))
        return self.decide(world, m, mover)

    def decide(self, world: World, m: int, mover: Mover) -> World:
        """Go on to let no worker begin any more, unless another mover has."""
        if mover.resumes:
            return self.raise_token(world, m, mover)
        return _with(world, m, mover._replace(write="decide"))

    def raise_token(self, world: World, m: int, mover: Mover) -> World:
        """Go on to become the current mover, if the consumer's host is one that it moves from."""
        froms = ("to lambda",) if self.regime.goals[m] == "lambda" else ("lambda", "to workers")
        if world.host not in froms:
            return _over(world, m)
        return _with(world, m, mover._replace(write="fence", seen=world.version))

    def move(self, world: World, m: int, mover: Mover) -> World:
        """A mover makes its next write, and goes on to the one after it; refused, it ends."""
        me, name = m + 1, mover.write
        stands = world.token == me or not self.rules.token
        if name == "raise first":
            world = _raised(world, mover.raised)
            return self.decide(world, m, mover)
        if name == "raise":
            return self.raise_on(_raised(world, mover.raised), m, mover)
        if name == "decide":
            if world.version != mover.seen:
                return _over(world, m)
            world = _said(world)._replace(generation=world.generation + 1, host="to lambda")
            return self.raise_token(world, m, mover)
        if name == "fence":
            return self.fence(world, m, mover)
        if name == "take":
            cursor = world.cursor
            if cursor is not None and cursor[:2] == (mover.cursor or ())[:2]:
                taken = cursor._replace(generation=mover.generation, epoch=cursor.epoch + 1)
                world = world._replace(cursor=taken)
            return self.take(world, m, mover)
        if name == "process":
            return self.process(world, m, mover, stands)
        if not stands and name in ("drop", "create"):
            return _over(world, m)
        if name == "drop":
            if world.cursor is not None and world.cursor.generation <= mover.generation:
                world = world._replace(cursor=None)
            to_lambda = self.regime.goals[m] == "lambda"
            if to_lambda:
                return self.turning(world, m, mover)
            return _with(world, m, mover._replace(write="create"))
        if name == "create":
            world = world._replace(cursor=Cursor(mover.generation, 0, mover.tip))
            return self.turning(world, m, mover)
        if name == "shut":
            if world.version != mover.seen:
                return self.turning(world, m, mover, shuts=True)
            world = _said(world)._replace(host="to workers")
            return self.look(world, m, mover, shut=True)
        if world.version != mover.seen and self.rules.token:
            return self.turning(world, m, mover)
        world = _said(world)._replace(token=0, host=self.regime.goals[m])
        if not self.rules.marks_first and mover.cursor is not None and mover.cursor.position:
            raised = mover.cursor.position
            return _with(world, m, mover._replace(write="raise last", raised=raised))
        return _over(world, m)

    def fence(self, world: World, m: int, mover: Mover) -> World:
        """Become the current mover, IF the consumer is as it was read; else read it again."""
        if world.version != mover.seen:
            return self.raise_token(world, m, mover)
        world = _said(world)._replace(token=m + 1)
        mover = mover._replace(generation=world.generation)
        if self.regime.goals[m] == "lambda":
            return self.take(world, m, mover)
        return self.look(world, m, mover, shut=world.host == "to workers")

    def turning(self, world: World, m: int, mover: Mover, *, shuts: bool = False) -> World:
        """Go on to name another host, if it is still the current mover."""
        host = "to workers" if shuts else self.regime.goals[m]
        if world.token == m + 1 or not self.rules.token:
            name = "shut" if shuts else "turn"
            return _with(world, m, mover._replace(write=name, seen=world.version))
        if world.host == host and shuts:  # another has come to the same
            return self.look(world, m, mover, shut=True)
        return _over(world, m)

    def take(self, world: World, m: int, mover: Mover) -> World:
        """Go on to take the cursor, or to raise the mark to where it stands."""
        cursor = world.cursor
        if cursor is not None and cursor.generation < mover.generation and self.rules.takes:
            return _with(world, m, mover._replace(write="take", cursor=cursor))
        if self.rules.final:
            mover = mover._replace(cursor=cursor)
        return self.raise_on(world, m, mover)

    def raise_on(self, world: World, m: int, mover: Mover) -> World:
        """Go on to raise the mark: by what was read ahead at the beginning, then by the rest."""
        position = mover.cursor.position if mover.cursor is not None else 0
        if position > mover.raised and self.rules.marks_first:
            ahead = mover.tip if mover.raised < mover.tip < position else position
            return _with(world, m, mover._replace(write="raise", raised=ahead))
        return self.leave(world, m, mover)

    def leave(self, world: World, m: int, mover: Mover) -> World:
        """Go on to delete the cursors: the lister's at once, which asks for the token."""
        if self.rules.token and world.token != m + 1:
            return _over(world, m)
        if world.cursor is None:
            return self.turning(world, m, mover)
        return _with(world, m, mover._replace(write="drop"))

    def look(self, world: World, m: int, mover: Mover, *, shut: bool) -> World:
        """Read the stream to its tip; go on to do what no mark says is done, or behind it."""
        mover = mover._replace(resumes=shut, mark=world.mark, tip=world.written)
        if world.mark < world.written:
            return _with(world, m, mover._replace(write="process"))
        if not shut and self.rules.shuts:
            return self.turning(world, m, mover, shuts=True)
        if self.rules.token and world.token != m + 1:
            return _over(world, m)
        return _with(world, m, mover._replace(write="create" if world.cursor is None else "drop"))

    def process(self, world: World, m: int, mover: Mover, stands: bool) -> World:
        """Do what no mark said is done, IF that is still so."""
        if not stands:
            return _over(world, m)
        if world.mark == mover.mark or not self.rules.checks_marks:
            world = _applied(world, mover.mark + 1, mover.tip)
            world = world._replace(mark=max(world.mark, mover.tip))
        return self.look(world, m, mover, shut=mover.resumes)

    # -- what is wrong -----------------------------------------------------------------------------

    def wrong(self, world: World) -> Iterator[str]:
        """Yield what does not hold."""
        if len(set(world.applied)) < len(world.applied):
            yield "twice"
        done = world.mark if world.host == "lambda" else 0
        if world.host == "workers" and world.cursor is not None:
            done = world.cursor.position
        if not set(range(1, done + 1)) <= set(world.applied):
            yield "lost"


def _hosts(goal: Goal) -> tuple[Host, ...]:
    return ("workers", "to lambda") if goal == "lambda" else ("lambda", "to workers")


def _said(world: World) -> World:
    return world._replace(version=world.version + 1)


def _raised(world: World, position: int) -> World:
    return world._replace(mark=max(world.mark, position))


def _applied(world: World, first: int, last: int) -> World:
    return world._replace(applied=(*world.applied, *range(first, last + 1)))


def _over(world: World, m: int) -> World:
    return _with(world, m, Mover())


def _with(world: World, m: int, mover: Mover) -> World:
    return world._replace(movers=(*world.movers[:m], mover, *world.movers[m + 1 :]))


REGIMES: dict[str, Regime] = {
    "to lambda": Regime(),
    "to workers": Regime(("workers", "workers"), host="lambda"),
    "there and back": Regime(("lambda", "lambda", "workers"), changes=2),
    "back and there": Regime(("workers", "workers", "lambda"), changes=2, host="lambda"),
}

NAIVE: dict[str, tuple[Rules, str, str]] = {
    "no token": (Rules(token=False), "there and back", "twice"),
    "positions that are not final": (Rules(takes=False), "to lambda", "twice"),
    "marks after functions begin": (Rules(marks_first=False), "to lambda", "twice"),
    "marks as workers were": (Rules(final=False), "to lambda", "twice"),
    "functions begin meanwhile": (Rules(shuts=False), "to workers", "twice"),
    "what functions do meanwhile is done again": (Rules(checks_marks=False), "to workers", "twice"),
}
"""Rules that look simpler, and in which regime each breaks what."""
