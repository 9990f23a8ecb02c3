"""A replay of old changes: an executable specification of how they run again beside a live handler.

A handler H had a bug while the changes 1 and 2 of an item went through it. The mended H is live,
and the application goes on writing the item. A replay runs old changes again into the same table.
A *bounded* one runs some changes; a replay *to the end* runs all of them, in their order, until it
has done whatever H has done live, and only then may it stop. Its processes stand still and die;
requests arrive late; changes fail, or are parked by the live H. Checked:

    stale      at rest, the target is what the item's latest change makes of it
    back       the target never shows an older change than H has done live
    edited     what the application wrote into a target since then stays

In: the rules, and what H makes of a change. Out: what breaks them, each with a shortest trace.
`kind` is what H makes: one target of the new image (`state`), of both images (`pair`), of the item
as it is when H writes, which the transaction checks (`latest`, a mirror), a sum (`sum`), a target
for each change that replaces the one before (`trail`), or one that the application may edit
(`event`). Left out: how the past is read, and several items and shards: the
changes of an item are in one shard and its children, and each shard ends for itself.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from tests.models.explorer import LARGE

Step = tuple[Any, ...]


class Process(NamedTuple):
    """A process of the replay: its lease, where it believes to be, and the call that it is at.

    `at` is "read", "commit", "look" or "end"; `writes` says whether its commit will write. `saw` is
    how far H had come live when the process began.
    """

    epoch: int
    pos: int
    saw: int
    at: str = "read"
    writes: bool = True


class World(NamedTuple):
    """What is stored, and each process.

    `x` is the item's latest change and `live` the last one that H has done live, or has queued.
    `pos` and `epoch` are the replay's cursor; `state` is "under way", "ended" or "given up".
    """

    x: int
    live: int
    target: Any
    processes: tuple[Process | None, ...]
    air: frozenset[tuple[int, int, int]] = frozenset()
    pos: int = 0
    epoch: int = 0
    state: str = "under way"
    mark: int = 0
    queue: tuple[int, ...] = ()
    user: str = ""
    fails: int = 0
    back: bool = False


@dataclass(frozen=True)
class Rules:
    """What a replay asks for; the defaults are those of a replay to the end.

    `guard`: nothing is asked for (`none`); the item is looked at before (`look`), or also in the
    transaction (`check`); the target says which change made it, always (`mark`) or from now on
    (`late mark`); a target is only created (`absent`); or all changes run in order (`end`). `out`:
    H does not run live meanwhile. `fenced`: a commit asks for the lease and the position.
    `after`: how far H has come is read behind the last commit, not when the process begins.
    `looks`: it is read at all.
    `stays`: a change that fails stays, with all behind it. `whole`: it is not given up. `skips`: a
    bounded replay passes over items with parked changes.
    """

    guard: Literal["none", "look", "check", "mark", "late mark", "absent", "end"] = "end"
    out: bool = False
    fenced: bool = True
    after: bool = True
    looks: bool = True
    stays: bool = True
    whole: bool = True
    skips: bool = True


@dataclass(frozen=True)
class Bound:
    """How large a world is, and what happens in it. `returns`: change 4 has the image of 2."""

    kind: Literal["state", "pair", "latest", "sum", "trail", "event"] = "state"
    changes: int = 4
    takes: int = 2
    fails: int = 0
    parked: bool = False
    returns: bool = False
    calm: bool = False


OLD = 2
"""The last change that went through H while it had a bug."""


@dataclass(frozen=True)
class Model:
    """One item, a live H, and the processes of one replay."""

    rules: Rules
    bound: Bound = Bound()

    def image(self, change: int) -> int:
        """Return what the item looks like after a change."""
        return 2 if self.bound.returns and change == 4 else change

    def made(self, target: Any, change: int) -> Any:
        """Return a target after the mended H ran for a change."""
        if self.bound.kind == "sum":
            return target + 1
        if self.bound.kind == "trail":
            return (target | {change}) - {change - 1}
        if self.bound.kind == "event":
            return target
        before = self.image(change - 1) if self.bound.kind == "pair" else 0
        return "mended", before, self.image(change)

    def reads_of(self, world: World, change: int) -> int:
        """Return the change whose image H uses when it writes: a mirror takes the latest one."""
        return world.x if self.bound.kind == "latest" else change

    def first(self) -> World:
        """Return the world when the mended H has gone live."""
        buggy: Any = ("bug", 1 if self.bound.kind == "pair" else 0, 2)
        target = {"sum": OLD, "trail": frozenset({1, 2}), "event": 0}.get(self.bound.kind, buggy)
        queue = (OLD,) if self.bound.parked else ()
        mark = OLD if self.rules.guard == "mark" else 0
        return World(OLD, OLD, target, (None, None), queue=queue, mark=mark)

    def steps(self, world: World) -> Iterator[tuple[Step, World]]:
        """Yield what may happen next."""
        if world.x < self.bound.changes:
            yield ("writes",), world._replace(x=world.x + 1)
        if self.bound.kind == "event" and not world.user:
            yield ("edits",), world._replace(user="edited")
        yield from self.lives(world)
        for n, process in enumerate(world.processes):
            free = world.epoch < self.bound.takes + world.fails and process is None
            if free and world.state == "under way":
                begun = world._replace(epoch=world.epoch + 1)
                yield ("takes", n), _with(begun, n, Process(begun.epoch, world.pos, world.live))
            if process is not None:
                yield from self.replays(world, n, process)
        for request in sorted(world.air):
            yield (
                ("arrives late", *request),
                self.arrives(world._replace(air=world.air - {request}), *request),
            )
        if not self.rules.whole and world.state == "under way" and world.epoch:
            after = world._replace(state="given up", processes=(None, None))
            yield ("gives up",), after

    def lives(self, world: World) -> Iterator[tuple[Step, World]]:
        """H does a change live, or queues it; or a person redrives what it has parked."""
        if world.live < world.x and not (self.rules.out and world.state == "under way"):
            change = world.live + 1
            if world.queue:
                yield ("queues",), world._replace(live=change, queue=(*world.queue, change))
            else:
                yield ("live",), self.wrote(world._replace(live=change), change)
        if world.queue:
            change, after = world.queue[0], world._replace(queue=world.queue[1:])
            yield ("redrives",), self.wrote(after, change)

    def wrote(self, world: World, change: int) -> World:
        """H has done a change live."""
        mark = world.mark if self.rules.guard == "late mark" else change
        target = self.made(world.target, self.reads_of(world, change))
        return world._replace(target=target, mark=mark)

    # -- the replay --------------------------------------------------------------------------------

    def replays(self, world: World, n: int, process: Process) -> Iterator[tuple[Step, World]]:
        """A process of the replay takes a step."""
        if process.at == "read":
            yield from self.reads(world, n, process)
        elif process.at == "commit":
            change = process.pos + 1
            request = (process.epoch, change, int(process.writes))
            arrived = self.arrives(_with(world, n, None), *request)
            if (arrived.pos, arrived.epoch, arrived.state) == (change, process.epoch, "under way"):
                arrived = _with(arrived, n, process._replace(pos=change, at="read"))
            yield ("arrives", n), arrived
            if world.epoch < self.bound.takes + world.fails:  # its call is late
                late = world._replace(air=world.air | {request})
                yield ("stands still", n), _with(late, n, None)
        elif process.at == "look":
            upto = world.live if self.rules.after else process.saw
            asks = self.rules.looks and self.rules.guard == "end"
            reached = not asks or process.pos >= upto
            after = process._replace(at="end" if reached else "read")
            yield ("looks", n), _with(world, n, after)
        else:
            after = _with(world, n, None)
            fits = world.epoch == process.epoch or not self.rules.fenced
            if fits and world.state == "under way":
                live = max(world.live, process.pos) if self.rules.out else world.live
                after = after._replace(state="ended", live=live)
            yield ("ends", n), after

    def reads(self, world: World, n: int, process: Process) -> Iterator[tuple[Step, World]]:
        """A process reads the next change and runs H for it; or it gets no more records.

        That need not be the tip: a page may be empty although there are records behind it.
        """
        change, to_end = process.pos + 1, self.rules.guard == "end"
        if to_end or change > OLD:
            yield ("tip", n), _with(world, n, process._replace(at="look"))
        if change > (world.x if to_end else OLD):
            return
        reads = process._replace(at="commit", writes=self.runs(world, change))
        yield ("sends", n), _with(world, n, reads)
        if world.fails < self.bound.fails:
            failed = world._replace(fails=world.fails + 1)
            passes = None if self.rules.stays else process._replace(at="commit", writes=False)
            yield ("fails", n), _with(failed, n, passes)

    def runs(self, world: World, change: int) -> bool:
        """Return whether a change is about to be written, as far as its process can see."""
        if self.rules.guard in ("look", "check"):
            queued = bool(world.queue) and self.rules.skips
            return self.image(world.x) == self.image(change) and not queued
        return True

    def arrives(self, world: World, epoch: int, change: int, writes: int) -> World:
        """A commit reaches the table."""
        rules = self.rules
        before = (world.epoch, world.pos, world.state)
        if rules.fenced and before != (epoch, change - 1, "under way"):
            return world
        world = world._replace(pos=max(world.pos, change)) if epoch == world.epoch else world
        refused = (
            not writes
            or (rules.guard == "check" and not self.runs(world, change))
            or (rules.guard in ("mark", "late mark") and world.mark > change)
        )
        if refused:
            return world
        if self.bound.kind == "event":
            lost = world.user == "edited" and change == OLD and rules.guard != "absent"
            return world._replace(user="lost") if lost else world
        mark = change if "mark" in rules.guard else world.mark
        used = self.reads_of(world, change)
        after = world._replace(target=self.made(world.target, used), mark=mark)
        older = self.image(used) != self.image(world.live) and used < world.live
        return after._replace(back=after.back or (older and self.bound.calm))

    # -- what must hold ----------------------------------------------------------------------------

    def wrong(self, world: World) -> Iterator[str]:
        """Yield what does not hold."""
        if world.user == "lost":
            yield "edited"
        if world.back:
            yield "back"
        if world.state == "under way" or world.live < world.x or world.queue or world.air:
            return
        if any(process is not None and process.at == "commit" for process in world.processes):
            return
        if not self.right(world):
            yield "stale"

    def right(self, world: World) -> bool:
        """Return whether the target follows from the item's latest change."""
        if self.bound.kind == "event":
            return True
        if self.bound.kind == "sum":
            return bool(world.target == world.x)
        if self.bound.kind == "trail":
            return bool(world.target == {world.x})
        if world.state == "given up":  # nothing was promised of what the bug made
            return bool(world.target[2] == self.image(world.x))
        return bool(world.target == self.made(None, world.x))


def ended(world: World) -> bool:
    """Return whether the replay has ended."""
    return world.state == "ended"


def helps(step: Step) -> bool:
    """Return whether a step happens without a fault, and without the application."""
    return step[0] not in ("stands still", "fails", "gives up", "edits")


def _with(world: World, n: int, process: Process | None) -> World:
    processes = world.processes
    return world._replace(processes=(*processes[:n], process, *processes[n + 1 :]))


TO_THE_END = Rules()
CHECKED = Rules("check")

SAFE: dict[str, tuple[Rules, Bound]] = {
    "P3 the item as the change left it": (CHECKED, Bound(calm=True)),
    "P4 it comes back to an earlier image": (CHECKED, Bound(returns=True)),
    "P17 changes are parked": (CHECKED, Bound(parked=True)),
    "P20 given up half way": (Rules("check", whole=False), Bound(calm=True)),
    "P8 a mark that is always there": (Rules("mark"), Bound()),
    "P10 to the end, not live": (Rules(out=True), Bound()),
    "P11 older changes have effects, not live": (Rules(out=True), Bound("trail")),
    "P14 to the end": (TO_THE_END, Bound(takes=3 if LARGE else 2, fails=1)),
    "P14 both images": (TO_THE_END, Bound("pair")),
    "P14 it comes back to an earlier image": (TO_THE_END, Bound("pair", returns=True)),
    "P14 mirrors, whose targets never go back": (TO_THE_END, Bound("latest", fails=1, calm=True)),
    "P14 changes are parked": (TO_THE_END, Bound(parked=True, fails=1)),
    "P16 created if absent": (Rules("absent"), Bound("event")),
    "P18 older changes have effects": (TO_THE_END, Bound("trail", fails=1)),
    "P18 and changes are parked": (TO_THE_END, Bound("trail", parked=True)),
}
"""Rules that hold, with their rows in the table of the archive's model."""

NAIVE: dict[str, tuple[Rules, Bound, str]] = {
    "P1 nothing is asked for": (Rules("none"), Bound(), "stale"),
    "P2 the item is looked at before": (Rules("look"), Bound(), "stale"),
    "P5 both images count": (CHECKED, Bound("pair", returns=True), "stale"),
    "P6 older changes have effects": (CHECKED, Bound("trail"), "stale"),
    "P7 it adds": (CHECKED, Bound("sum"), "stale"),
    "P9 a mark from now on": (Rules("late mark"), Bound(), "stale"),
    "P12 targets may not go back": (Rules(out=True), Bound(calm=True), "back"),
    "P13 it adds, to the end": (TO_THE_END, Bound("sum"), "stale"),
    "P15 the application edits": (Rules("none"), Bound("event"), "edited"),
    "P19 given up half way": (Rules(whole=False), Bound(), "stale"),
    "the end is read when it begins": (Rules(after=False), Bound(), "stale"),
    "no more records are taken for the end": (Rules(looks=False), Bound(), "stale"),
    "a commit without its lease": (Rules(fenced=False), Bound(), "stale"),
    "what fails is passed over": (Rules(stays=False), Bound(fails=1), "stale"),
}
"""Rules that look simpler, and what each breaks."""
