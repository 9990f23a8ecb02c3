"""A rebuild: an executable specification of counting what a table holds, under live writes.

One source item, which the application puts and deletes at any moment. Its records are published
later, in order, and a shard's cursor commits each once. While an aggregate is built a change is
counted by the ledger: it adds c(new) - what the entry says is in the aggregate already, and makes
the entry *live*; the scan reads the item, looks for its entry, and counts it IF there is none. The
cursor goes live once all that it meets is an hour younger than the end of the scan: from then on a
change adds c(new) - c(old), and nothing is read. Processes stop between any two calls. Checked:

    inexact     once the scan and the records are done, the aggregate is what the table says

In: the rules. Out: the steps that break them. A cursor that says *needs rebuild* is loud, and not
wrong. The naive rules are BAD, each for a reason of its own.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

LIVE = "live"
EARLY, BETWEEN, YOUNG = 0, 1, 2
"""When a change was made: before the scan ended, within an hour of that, or later."""

Value = int | None
Entry = int | Literal["live"] | None
Step = tuple[str | int | None, ...]


class Record(NamedTuple):
    """A change of the item."""

    old: Value
    new: Value
    made: int = EARLY


class Plan(NamedTuple):
    """A change that is under way: the entry, once it `is_read`."""

    record: Record
    is_read: bool = False
    entry: Entry = None


class World(NamedTuple):
    """All that is stored and under way.

    `hidden` are the records that are not published yet, `shard` those that the cursor has not
    taken, `child` those of the shard after it, once it is `split`. `zombie` is what a scanner has
    read that froze.
    """

    item: Value = 1
    first: Value = 1
    writes: int = 0
    hidden: tuple[Record, ...] = ()
    shard: tuple[Record, ...] = ()
    child: tuple[Record, ...] = ()
    split: int = 0
    captured: bool = True
    plan: Plan | None = None
    live: bool = False
    ledger: Entry = None
    total: int = 0
    scan: Literal["scan", "look", "count", "done"] = "scan"
    image: Value = None
    zombie: Value = None
    hours: int = 0
    swept: bool = False
    halted: bool = False
    stops: int = 0


@dataclass(frozen=True)
class Rules:
    """How it is counted; ours by default."""

    captures_first: bool = True
    consistent: bool = True
    entry_as_read: bool = True
    """A change's commit asks that the entry is as it was read."""
    counts_once: bool = True
    """The scan's commit asks that there is no entry."""
    fenced: bool = True
    """The scan's commit asks for the lease of its segment."""
    keeps_removed: bool = True
    """A removal leaves the item's entry."""
    live: Literal["hour", "now"] = "hour"
    """When a cursor goes live: an hour after the end of the scan, or at that end."""
    guard: bool = True
    """A live cursor that meets a change of before the end of the scan says *needs rebuild*."""
    child: Literal["inherits", "begins", "as the build"] = "inherits"
    sweeps: Literal["live", "scanned"] = "live"
    """The ledger is deleted once the cursor is live, or when the scan is done."""


@dataclass(frozen=True)
class Regime:
    """What may happen. Without `late` records are published at once, and one waits at most."""

    writes: int = 3
    late: bool = False
    splits: bool = False
    sweeps: bool = False
    stops: int = 0
    capture: bool = False
    hours: int = 1


class Model:
    """All that may happen next in a world, by rules, in a regime."""

    def __init__(self, rules: Rules, regime: Regime) -> None:
        self.rules, self.regime = rules, regime

    def first(self) -> World:
        """Return the world in which one item is there."""
        return World(captured=not self.regime.capture)

    def steps(self, world: World) -> Iterator[tuple[Step, World]]:
        """Yield what may happen next."""
        if not world.halted:
            yield from self.application(world)
            yield from self.time(world)
            yield from self.cursor(world)
            yield from self.scanner(world)

    # -- beside the build --------------------------------------------------------------------------

    def application(self, world: World) -> Iterator[tuple[Step, World]]:
        """Put or delete the item; its records are published in order, at any later time."""
        waits = len(world.shard + world.child + world.hidden)
        if world.writes < self.regime.writes and (self.regime.late or not waits):
            for value in (1, 2, None):
                if value == world.item:
                    continue
                made = YOUNG if world.hours else BETWEEN if world.scan == "done" else EARLY
                record = Record(world.item, value, made)
                after = world._replace(item=value, writes=world.writes + 1)
                if not world.captured:
                    yield ("write", value), after
                elif self.regime.late:
                    yield ("write", value), after._replace(hidden=(*world.hidden, record))
                else:
                    yield ("write", value), _published(after, record)
        if world.hidden:
            after = world._replace(hidden=world.hidden[1:])
            yield ("publish",), _published(after, world.hidden[0])

    def time(self, world: World) -> Iterator[tuple[Step, World]]:
        """The capture begins, an hour passes, the shard splits, the ledger is swept."""
        if not world.captured:
            yield ("capture",), world._replace(captured=True)
        idle = not world.shard and world.plan is None
        if world.scan == "done" and world.hours < self.regime.hours:
            after = world._replace(hours=world.hours + 1)
            if self.regime.late:
                yield ("hour",), after
            elif idle:  # a cursor with nothing to do notices by itself
                yield ("hour",), after._replace(live=True)
        if self.regime.splits and not world.split and (self.regime.late or idle):
            after = world._replace(split=1)
            yield ("split",), after if self.regime.late else self.next_shard(after)
        can = {"live": world.live and not world.split % 2, "scanned": True}[self.rules.sweeps]
        if self.regime.sweeps and not world.swept and world.scan == "done" and can:
            yield ("sweep",), world._replace(ledger=None, swept=True)

    # -- the cursor --------------------------------------------------------------------------------

    def cursor(self, world: World) -> Iterator[tuple[Step, World]]:
        """Go live, take the next change, read its entry, commit it."""
        plan = world.plan
        if plan is None:
            head = world.shard[0] if world.shard else None
            hour = world.hours and (head is None or head.made == YOUNG)
            may = hour if self.rules.live == "hour" else True
            if not world.live and world.scan == "done" and may and self.regime.late:
                yield ("go live",), world._replace(live=True)
            if world.split == 1 and not world.shard:
                yield ("parent ends",), self.next_shard(world)
            if head is not None:
                after = world._replace(plan=Plan(head), shard=world.shard[1:])
                if not world.live:
                    yield ("take",), after
                elif head.made == EARLY and self.rules.guard:
                    yield ("take",), world._replace(halted=True)
                else:
                    yield ("take",), after._replace(plan=Plan(head, is_read=True, entry=LIVE))
            return
        if world.stops < self.regime.stops and not world.shard:
            back = world._replace(plan=None, shard=(plan.record, *world.shard))
            yield ("crash",), back._replace(stops=world.stops + 1)
        if not plan.is_read:
            read = plan._replace(is_read=True, entry=world.ledger)
            yield ("read",), world._replace(plan=read)
        else:
            yield ("commit",), self.commit(world, plan)

    def next_shard(self, world: World) -> World:
        """Go on with the child, which counts as the parent did."""
        live = {
            "inherits": world.live,
            "begins": False,
            "as the build": world.scan == "done",
        }[self.rules.child]
        return world._replace(split=2, shard=world.child, child=(), live=live)

    def commit(self, world: World, plan: Plan) -> World:
        """Count a change, IF its item's entry is as it was read."""
        record, entry = plan.record, plan.entry
        if entry == LIVE:
            total = world.total + _c(record.new) - _c(record.old)
            return world._replace(plan=None, total=total)
        if self.rules.entry_as_read and world.ledger != entry:
            return world._replace(plan=plan._replace(is_read=False, entry=None))
        seen = _c(record.old) if record.made == YOUNG else entry or 0
        gone = record.new is None and not self.rules.keeps_removed
        total = world.total + _c(record.new) - seen
        return world._replace(plan=None, total=total, ledger=None if gone else LIVE)

    # -- the scan ----------------------------------------------------------------------------------

    def scanner(self, world: World) -> Iterator[tuple[Step, World]]:
        """Read the item, look for its entry, count it; or freeze, and another begins again."""
        if world.zombie is not None:
            after = world._replace(zombie=None)
            if not self.rules.fenced and world.ledger is None:
                after = _counted(after, world.zombie)
            yield ("zombie",), after
        if world.scan == "scan" and (world.captured or not self.rules.captures_first):
            image = world.item if self.rules.consistent else world.first
            after = world._replace(image=image, scan="look")
            yield ("scan",), after if image is not None else after._replace(scan="done")
        elif world.scan == "look":
            yield ("look",), world._replace(scan="count" if world.ledger is None else "done")
        elif world.scan == "count":
            if world.ledger is None or not self.rules.counts_once:
                yield ("count",), _counted(world, world.image)._replace(scan="done")
            else:
                yield ("count",), world._replace(scan="look")
            if world.stops < self.regime.stops and world.zombie is None:
                after = world._replace(scan="scan", zombie=world.image, image=None)
                yield ("freeze",), after._replace(stops=world.stops + 1)

    # -- what is wrong -----------------------------------------------------------------------------

    def wrong(self, world: World) -> Iterator[str]:
        """Yield what does not hold once all is done."""
        left = world.hidden + world.shard + world.child
        done = world.captured and world.scan == "done" and not (left or world.plan or world.halted)
        if done and world.total != _c(world.item):
            yield "inexact"


def _c(value: Value) -> int:
    return value or 0


def _published(world: World, record: Record) -> World:
    if world.split == 1:
        return world._replace(child=(*world.child, record))
    return world._replace(shard=(*world.shard, record))


def _counted(world: World, image: Value) -> World:
    return world._replace(ledger=_c(image), total=world.total + _c(image))


REGIMES: dict[str, Regime] = {
    "at once": Regime(writes=4),
    "stops": Regime(stops=2),
    "splits": Regime(splits=True),
    "late": Regime(late=True, writes=4),
    "late, splits": Regime(late=True, splits=True),
    "late, sweeps, stops": Regime(late=True, sweeps=True, stops=2),
    "capture": Regime(capture=True),
}
PLAYED = ("at once", "stops", "splits")
"""The regimes that are replayed: no engine publishes a record later than another's."""

NAIVE: dict[str, tuple[Rules, str]] = {
    "the scan begins before the capture": (Rules(captures_first=False), "capture"),
    "a scan that is not strongly consistent": (Rules(consistent=False), "capture"),
    "a change is counted by an old entry": (Rules(entry_as_read=False), "at once"),
    "the scan counts what has an entry": (Rules(counts_once=False), "at once"),
    "a removal deletes the entry": (Rules(keeps_removed=False), "at once"),
    "live when the scan is done": (Rules(live="now", guard=False), "late"),
    "live, and old changes are counted": (Rules(guard=False), "late"),
    "a child begins by the ledger": (Rules(child="begins"), "late, splits"),
    "a child counts as the build": (Rules(child="as the build", guard=False), "late, splits"),
    "the ledger is swept after the scan": (Rules(sweeps="scanned"), "late, sweeps, stops"),
    "a frozen scan counts": (Rules(fenced=False), "late, sweeps, stops"),
}
"""Rules that look simpler, and the regime in which each breaks."""
