"""The switch of a pair: an executable specification of how items move while old code writes.

One item moves to a new key. Old code puts, updates and deletes it at its old key at any moment,
until the migration has deleted it there. Two processes do with the pair what the phase asks for:
each reads both items, and sends one transaction later; refused, it reads again. While the migration
copies, the old item is the truth. The switch turns the pair: the old item takes a digest of what
both have in common, its *base*, and the new one names it. What old code writes afterwards is found
by its base, is an error that a person decides, and stops the migration. Then the old item goes IF
it is exactly what was agreed or decided; in the end it is looked whether old code deleted one.

    lost        it is done, and what old code did last is neither in the new item nor decided

In: the rules. Out: the steps that break them. The naive rules are BAD, each for a reason of its own.
`contract_end` is the same end, rule by rule, where a phase is read later than what it is about.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

WRITES = 3
GONE = -1
"""What old code did last: it deleted the item."""

Phase = Literal["copying", "switching", "soaking", "comparing", "deleting", "closing", "done"]
Kind = Literal["copy", "turn", "follow", "compare old", "compare new", "contract", "close"]
KINDS: dict[Phase, tuple[Kind, ...]] = {
    "copying": ("copy",),
    "switching": ("turn",),
    "comparing": ("compare old", "compare new"),
    "deleting": ("contract",),
    "closing": ("close",),
}
"""What a pass of a phase does with a pair."""
NEXT: dict[Phase, Phase] = {
    "copying": "switching",
    "switching": "soaking",
    "soaking": "comparing",
    "comparing": "deleting",
    "deleting": "closing",
    "closing": "done",
}

Step = tuple[str | int, ...]


class Old(NamedTuple):
    """The item at its old key; `base` is the value that both sides had last."""

    value: int
    base: int | None = None


class New(NamedTuple):
    """The item at its new key: a copy before the switch; then it may name its old one."""

    value: int
    copy: bool = True
    named: bool = False


class Error(NamedTuple):
    """The record of what is open. A decision stands while what was decided is what is shown."""

    kind: Literal["late", "deleted"]
    shown: int
    decided: int | None = None

    @property
    def is_open(self) -> bool:
        """Return whether no person has decided about what is shown."""
        return self.shown != self.decided


class Plan(NamedTuple):
    """A transaction: both items as they were read, and as they are to be."""

    kind: Kind
    old: Old | None
    new: New | None
    old_after: Old | None
    new_after: New | None


class World(NamedTuple):
    """The pair, its error, the phase, and what is under way.

    `seen` is what the pass has done, `gone` what old code has deleted since the switch began, until
    a process has followed that change.
    """

    old: Old | None = Old(0)
    new: New | None = None
    error: Error | None = None
    phase: Phase = "copying"
    seen: frozenset[str] = frozenset()
    plans: tuple[Plan | None, ...] = (None, None)
    writes: int = 0
    last: int = 0
    removed: bool = False
    gone: Old | None = None
    decisions: frozenset[int] = frozenset()

    @property
    def is_open(self) -> bool:
        """Return whether something waits for a person."""
        return self.error is not None and self.error.is_open

    def is_decided(self, shown: int) -> bool:
        """Return whether a person has decided about this, and it is what the record shows."""
        return self.error is not None and not self.error.is_open and self.error.shown == shown


@dataclass(frozen=True)
class Rules:
    """How it is done; ours by default."""

    conditional: bool = True
    """A transaction asks that both items are as they were read."""
    agreed: bool = True
    """The old item goes only if it is what was agreed or decided, and not by its mark alone."""
    looks_after: bool = True
    """After the deletes it is looked for new items that still name an old one."""
    shown: bool = True
    """A decision is about what was shown, and not about what is there later."""


class Model:
    """All that may happen next in a world, by rules."""

    def __init__(self, rules: Rules, writes: int = WRITES) -> None:
        self.rules, self.writes = rules, writes

    def first(self) -> World:
        """Return the world in which one item is at its old key."""
        return World()

    def steps(self, world: World) -> Iterator[tuple[Step, World]]:
        """Yield what may happen next."""
        if world.phase == "done":
            return
        yield from self.old_code(world)
        yield from self.people(world)
        yield from self.phases(world)
        for m, plan in enumerate(world.plans):
            if plan is not None:
                yield ("send", m), self.send(world, m, plan)
            else:
                kinds = KINDS.get(world.phase, ())
                if world.gone is not None and world.phase in ("switching", "soaking", "comparing"):
                    kinds = (*kinds, "follow")
                for kind in kinds:
                    yield (kind, m), self.attempt(world, m, kind)

    # -- beside the migration's processes ----------------------------------------------------------

    def old_code(self, world: World) -> Iterator[tuple[Step, World]]:
        """Put, update or delete the old item, as long as the migration has not deleted it.

        What is put after the switch where no pair is left is a pair of its own.
        """
        no_pair = world.phase != "copying" and world.old is world.new is None
        if world.writes == self.writes or world.removed or no_pair:
            return
        wrote = world.writes + 1
        after = world._replace(writes=wrote, last=wrote)
        yield ("put",), after._replace(old=Old(wrote))
        if world.old is not None:
            yield ("update",), after._replace(old=world.old._replace(value=wrote))
            gone = None if world.phase == "copying" else world.gone or world.old
            yield ("delete",), after._replace(old=None, last=GONE, gone=gone)

    def people(self, world: World) -> Iterator[tuple[Step, World]]:
        """Decide about what the record shows, or look again at what is open."""
        error = world.error
        if error is None or not error.is_open:
            return
        decided = world._replace(error=error._replace(decided=error.shown))
        yield ("decide",), decided._replace(decisions=world.decisions | {error.shown})
        if error.kind == "deleted" or world.old is None:
            return
        if world.old.base == world.old.value:
            yield ("retry",), world._replace(error=None)
        else:
            found = self.settle(world, "turn", world.old)
            if isinstance(found, Plan):
                agreed = world._replace(old=found.old_after, new=found.new_after)
                yield ("retry",), agreed._replace(error=None)
            else:
                yield ("retry",), found

    def phases(self, world: World) -> Iterator[tuple[Step, World]]:
        """Go on to the next phase, when a pass has left nothing open; or back."""
        if world.phase == "comparing" and world.is_open:
            yield ("back",), world._replace(phase="soaking", seen=frozenset())
        ready = set(KINDS.get(world.phase, ())) <= world.seen and not world.is_open
        ready = ready and (world.gone is None or world.phase != "switching")
        if world.phase == "copying":
            old, new = world.old, world.new
            alike = old is not None and new is not None and old.value == new.value
            ready = (alike or old is new is None) and not any(world.plans)
        if ready:
            after = NEXT[world.phase]
            if after == "closing" and not self.rules.looks_after:
                after = "done"
            yield ("next",), world._replace(phase=after, seen=frozenset())

    # -- a process ---------------------------------------------------------------------------------

    def attempt(self, world: World, m: int, kind: Kind) -> World:
        """Read both items; go on to the transaction that follows, or be done with the pair."""
        found = self.plan(world, kind)
        if isinstance(found, Plan):
            return _with(world, m, found)
        if isinstance(found, World):
            return _with(_followed(found, kind), m, None)
        return _with(_followed(world, kind), m, None)._replace(seen=world.seen | {kind})

    def send(self, world: World, m: int, plan: Plan) -> World:
        """Let a transaction arrive; refused, both items are read again."""
        same = world.old == plan.old and world.new == plan.new
        if plan.kind in ("contract", "close") and plan.old is not None:
            # Of the new item it only asks that it still names the old one.
            names = plan.new is not None and plan.new.named
            same = world.old == plan.old
            same = same and (not names or (world.new is not None and world.new.named))
        if not same and self.rules.conditional:
            return self.attempt(world, m, plan.kind)
        removed = world.removed or plan.kind in ("contract", "close")
        removed = removed and (plan.old_after is None)
        world = world._replace(old=plan.old_after, new=plan.new_after, removed=removed)
        world = _followed(world, plan.kind)
        return _with(world, m, None)._replace(seen=world.seen | {plan.kind})

    def plan(self, world: World, kind: Kind) -> Plan | World | None:
        """Return the transaction that a pair needs; a world with an error; None for nothing."""
        old, new = world.old, world.new
        if kind == "copy":
            return self.copy(old, new)
        if kind == "compare new":
            named = new is not None and new.named
            return self.report(world, "deleted", GONE) if named and old is None else None
        if kind == "close":
            return self.close(world, old, new)
        if old is None:
            return self.follow(world, new) if kind == "follow" else None
        if kind == "contract":
            return self.contract(world, kind, old, new)
        if old.base == old.value:
            return None
        ours = kind == "follow" and world.gone is not None and world.gone.base is not None
        turns = kind in ("turn", "follow") and not ours
        if turns and old.base is None and (new is None or new.copy):
            turned = old._replace(base=old.value)
            return Plan(kind, old, new, turned, New(old.value, copy=False, named=True))
        return self.settle(world, kind, old)

    def copy(self, old: Old | None, new: New | None) -> Plan | None:
        """Bring a copy in step with its old item."""
        if old is None:
            return Plan("copy", None, new, None, None) if new is not None else None
        if new is not None and new.value == old.value:
            return None
        return Plan("copy", old, new, old, New(old.value))

    def follow(self, world: World, new: New | None) -> Plan | World | None:
        """Follow a deletion: of an item that was not turned yet, its copy goes, too."""
        if new is None or world.gone is None:
            return None
        if new.copy:
            return Plan("follow", None, new, None, None) if world.gone.base is None else None
        turned = world.gone.base is not None and new.named
        return self.report(world, "deleted", GONE) if turned else None

    def settle(self, world: World, kind: Kind, old: Old) -> Plan | World | None:
        """Take an old item that was written since for agreed, if its new one says the same."""
        new = world.new
        if new is None or new.copy or new.value != old.value:
            return self.report(world, "late", old.value)
        agreed = old._replace(base=old.value)
        return Plan(kind, old, new, agreed, new._replace(named=True))

    def contract(self, world: World, kind: Kind, old: Old, new: New | None) -> Plan | World | None:
        """Delete an old item that is what was agreed or decided."""
        by_mark = old.base is not None and not self.rules.agreed
        if old.base != old.value and not by_mark and not self.is_decided(world, old.value):
            return self.settle(world, kind, old)
        return Plan(kind, old, new, None, new and new._replace(named=False))

    def close(self, world: World, old: Old | None, new: New | None) -> Plan | World | None:
        """See that a new item which still names its old one was not bereft of it by old code."""
        if new is None or not new.named:
            return None
        if old is not None:
            return self.contract(world, "close", old, new)
        if not self.is_decided(world, GONE):
            return self.report(world, "deleted", GONE)
        return Plan("close", None, new, None, new._replace(named=False))

    def is_decided(self, world: World, shown: int) -> bool:
        """Return whether a person has decided about this."""
        if not self.rules.shown:
            return world.error is not None and world.error.decided is not None
        return world.is_decided(shown)

    def report(self, world: World, kind: Literal["late", "deleted"], shown: int) -> World | None:
        """Write an error down, unless a person has decided about it."""
        if self.is_decided(world, shown):
            return None
        decided = world.error.decided if world.error is not None else None
        return world._replace(error=Error(kind, shown, decided))

    # -- what is wrong -----------------------------------------------------------------------------

    def wrong(self, world: World) -> Iterator[str]:
        """Yield what does not hold once it is done."""
        if world.phase == "done":
            there = GONE if world.new is None else world.new.value
            if world.last not in (there, *world.decisions):
                yield "lost"


def _followed(world: World, kind: Kind) -> World:
    return world._replace(gone=None) if kind == "follow" else world


def _with(world: World, m: int, plan: Plan | None) -> World:
    return world._replace(plans=(*world.plans[:m], plan, *world.plans[m + 1 :]))


NAIVE: dict[str, Rules] = {
    "what was read is not asked for": Rules(conditional=False),
    "contract deletes by the mark": Rules(agreed=False),
    "no look after the deletes": Rules(looks_after=False),
    "a decision about whatever is there": Rules(shown=False),
}
"""Rules that look simpler, and lose a write."""
