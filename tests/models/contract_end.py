"""The end of a pair: an executable specification of `contract` beside old code that still writes.

One old item and its new one, in every interleaving of old code's writes, of two processes that read
and act any time later, of retries, and of a person who decides about what is there. It begins in
`soaking`; old code writes and deletes until the migration has deleted the old item, and what it did
last there is lost if the migration is `done` and nobody has decided about it. Two sides that
disagree have no order, so neither is ever written over the other here.

In: a rule. Out: the shortest trace to a lost write, or none. The naive rules are BAD.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

AGREED, GONE = 0, -1
"""What the old item is: as its new one has taken it in, not there, or the number of a write."""
WRITES = 3


@dataclass(frozen=True)
class Rule:
    """What the migration sees to; each is True in ours."""

    conditional: bool = True
    """An old item is deleted IF it is what was read."""
    compares: bool = True
    """An old item is held to what its new one has taken in before it is deleted."""
    keeps: bool = True
    """A retry leaves the record of what is not agreed."""
    looks_after: bool = True
    """After the deletes it looks for new items that still name an old one."""
    shown: bool = True
    """A decision is about what was shown, and not about what is there later."""


OURS = Rule()
NAIVE = {
    "a delete without the condition": Rule(conditional=False),
    "no comparison before the deletes": Rule(compares=False),
    "a retry that removes the record": Rule(keeps=False),
    "no look after the deletes": Rule(looks_after=False),
    "a decision about whatever is there": Rule(shown=False),
}


@dataclass(frozen=True)
class World:
    """The pair, the record of its error, and how far the migration is.

    `old` is the old item, `named` whether the new one names it, `error` what is open, `decided`
    what a person has decided about; `read` is what each process has read and not acted on yet,
    `last` what old code did last, `forgot` what a naive retry takes for settled.
    """

    old: int = AGREED
    named: bool = True
    error: int | None = None
    decided: int | None = None
    phase: str = "soaking"
    read: tuple[int | None, ...] = (None, None)
    writes: int = 0
    last: int = AGREED
    forgot: int | None = None

    @property
    def is_lost(self) -> bool:
        """Return whether it is over, although no process knows the last write of old code."""
        return self.phase == "done" and self.last not in (AGREED, self.decided)


Step = tuple[str, World]


def old_code(w: World) -> Iterator[Step]:
    """Write or delete at the old key, as long as the migration has not deleted the item."""
    if w.writes == WRITES or not w.named or w.phase == "done":
        return
    wrote = w.writes + 1
    yield f"old code: write {wrote}", replace(w, old=wrote, last=wrote, writes=wrote)
    if w.old != GONE:
        yield "old code: delete", replace(w, old=GONE, last=GONE, writes=wrote)


def is_open(w: World, old: int, rule: Rule) -> bool:
    """Return whether what is at the old key is neither agreed nor decided.

    There is one record: while it shows something else, an earlier decision does not stand.
    """
    if old in (AGREED, w.forgot):
        return False
    if not rule.shown:
        return w.decided is None
    return old != w.decided or w.error not in (None, old)


def people(w: World, rule: Rule) -> Iterator[Step]:
    """Retry, or decide about what the record shows."""
    if w.error is None:
        return
    if not rule.keeps:
        yield "retry: forgets", replace(w, error=None, forgot=w.error)
    elif not is_open(w, w.old, rule):
        yield "retry: agreed", replace(w, error=None)
    yield "person: decides", replace(w, error=None, decided=w.error)


def process(w: World, rule: Rule) -> Iterator[Step]:
    """Read the old item, or act on what was read, be it long ago."""
    for me, seen in enumerate(w.read):
        if seen is None and w.named:
            yield "process: reads", replace(w, read=_set(w.read, me, w.old))
            continue
        if seen is None:
            continue
        free = replace(w, read=_set(w.read, me, None))
        same = seen == w.old
        if is_open(w, seen, rule) and (rule.compares or w.phase == "soaking"):
            error = None if seen == w.decided else seen
            yield "process: reports", replace(free, error=error) if same and w.named else free
        elif w.phase == "deleting" and seen != GONE and (same or not rule.conditional):
            yield "process: deletes", replace(free, old=GONE, named=False)
        elif w.phase == "closing" and seen == GONE and same:
            yield "process: closes", replace(free, named=False)
        else:
            yield "process: leaves it", free


def _set(read: tuple[int | None, ...], me: int, value: int | None) -> tuple[int | None, ...]:
    return (*read[:me], value, *read[me + 1 :])


def phases(w: World, rule: Rule) -> Iterator[Step]:
    """Go on to the next phase, when nothing is open."""
    if w.error is not None:
        return
    if w.phase == "soaking":
        yield "contract", replace(w, phase="comparing")
    elif w.phase == "comparing":
        if rule.compares and is_open(w, w.old, rule):
            yield "it is found, and goes back", replace(w, phase="soaking", error=w.old)
        else:
            yield "nothing is found", replace(w, phase="deleting")
    elif w.phase == "deleting" and (w.old == GONE or not w.named):
        yield "deleted", replace(w, phase="closing" if rule.looks_after else "done")
    elif w.phase == "closing" and not w.named:
        yield "closed", replace(w, phase="done")


@dataclass(frozen=True)
class Model:
    """Everything that can happen next, by a rule."""

    rule: Rule

    def first(self) -> World:
        """Return the pair as the migration has left it."""
        return World()

    def steps(self, world: World) -> Iterator[Step]:
        """Yield everything that can happen next."""
        yield from old_code(world)
        yield from people(world, self.rule)
        yield from process(world, self.rule)
        yield from phases(world, self.rule)

    def wrong(self, world: World) -> Iterator[str]:
        """Return whether a write of old code is lost."""
        if world.is_lost:
            yield "lost"
