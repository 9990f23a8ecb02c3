"""Lineage: an executable specification of how the shards of a stream come to be read, parents first.

A shard has a record of each of two items, then it splits: each child has the next record of one of
them. An owner reads the parent and finishes its cursor, with the children's cursors as far as they
are known then. Listers list what the service shows, read cursors, and create what may be read, each
of these steps any time later; when the lead changes hands the other one may stand anywhere in between.
The parent may be listed late, as open, or not at all, and is trimmed in the end; two days later
nothing lists it any more. Every interleaving is looked at. Checked:

    order      the records of an item take effect once each, and in their order
    stranded   from everywhere every child gets to be read, without waiting for the trim

In: the rules. Out: what breaks them, each with a shortest trace. The naive rules are BAD. Losses
are left out: the parent's records are read before it is trimmed, or nobody has wanted them.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from tests.models.explorer import LARGE

PARENT, FIRST, SECOND = 0, 1, 2
CHILDREN = frozenset({FIRST, SECOND})
SUBSETS = (frozenset(), frozenset({FIRST}), frozenset({SECOND}), CHILDREN)

State = Literal["", "begun", "read", "finished"]
"""What the cursor of a shard says; empty: there is none."""


class Lister(NamedTuple):
    """What a lister has listed, which cursors it knows, and what it is about to create."""

    listed: frozenset[int] = frozenset()
    known: tuple[State, State, State] = ("", "", "")
    gone: bool = False
    creates: frozenset[int] = frozenset()
    probes: bool = False
    looked: bool = False


class World(NamedTuple):
    """The stream, the cursors, the listers, and which records of each item have taken effect.

    `fresh` says that the parent was trimmed before it had a cursor, so that nothing of it is wanted.
    """

    split: bool = False
    trimmed: bool = False
    old: bool = False
    cursors: tuple[State, State, State] = ("", "", "")
    effects: tuple[str, str] = ("", "")
    fresh: bool = False
    lead: int = 0
    takes: int = 0
    half: bool = False
    listers: tuple[Lister | None, ...] = (None, None)


@dataclass(frozen=True)
class Rules:
    """How cursors come and go; ours by default."""

    finish: Literal["together", "children first"] = "together"
    """How the parent is finished: in one transaction with its children's cursors, once all of it is
    committed; or they are created as soon as its end is seen."""
    lists: bool = True
    """A lister goes on creating the children of finished parents."""
    unlisted: Literal["gone", "no cursor", "always"] = "gone"
    """When an unlisted parent counts as trimmed: the service says so, and there is no cursor."""
    waits_open: bool = False
    """Children wait while their parent is listed."""
    fenced: bool = True
    """What a lister creates commits with its own cursor."""
    keeps: Literal["listed", "children"] = "listed"
    """A finished cursor goes when its shard can never be listed again, not when children began."""


@dataclass(frozen=True)
class Bound:
    """How often the lead changes hands, and what else happens."""

    takes: int = 1
    misses: bool = True
    trims: bool = True
    booted: bool = False


BOUNDS = {"one lister": Bound(takes=0), "a zombie": Bound(misses=False)}
if LARGE:
    BOUNDS |= {"a zombie, parents missed": Bound(), "leads change": Bound(takes=3, misses=False)}
CALM = Bound(takes=0, trims=False)
"""The parent is not trimmed: nothing may wait for that."""

Step = tuple[object, ...]


class Model:
    """All that may happen next in a world, by rules, within a bound."""

    def __init__(self, rules: Rules = Rules(), bound: Bound = Bound()) -> None:
        self.rules, self.bound = rules, bound

    def first(self) -> World:
        """Return the world before the split; a consumer that has booted reads the parent."""
        return World(cursors=("begun" if self.bound.booted else "", "", ""))

    def steps(self, world: World) -> Iterator[tuple[Step, World]]:
        """Yield what may happen next."""
        yield from self.stream(world)
        yield from self.owners(world)
        if self.rules.lists:
            for n, lister in enumerate(world.listers):
                if n == world.lead or lister is not None:
                    yield from self.lister(world, n, lister)
            if world.takes < self.bound.takes:
                takes, lead = world.takes + 1, 1 - world.lead
                listers = _put(world.listers, lead, None)
                yield ("leads", lead), world._replace(lead=lead, takes=takes, listers=listers)

    def stream(self, world: World) -> Iterator[tuple[Step, World]]:
        """The shard splits, is trimmed, and is forgotten."""
        parent = world.cursors[PARENT]
        if not world.split:
            yield ("splits",), world._replace(split=True)
        elif not world.trimmed:
            if self.bound.trims and parent != "begun":
                fresh = world.fresh or (not parent and not any(world.effects))
                yield ("is trimmed",), world._replace(trimmed=True, fresh=fresh)
        elif not world.old:
            yield ("two days pass",), world._replace(old=True)

    def owners(self, world: World) -> Iterator[tuple[Step, World]]:
        """Owners read what has a cursor, and finish the parent."""
        parent, cursors = world.cursors[PARENT], world.cursors
        if parent == "begun":
            effects = tuple(effect + "1" for effect in world.effects)
            yield (
                ("reads",),
                world._replace(cursors=_put(cursors, PARENT, "read"), effects=effects),
            )
        first = self.rules.finish == "children first"
        if world.split and not world.half and (parent == "read" or (first and parent == "begun")):
            for answer in SUBSETS:
                yield ("finishes", tuple(sorted(answer))), self.finish(world, answer)
        if world.half and parent == "read":
            finished = world._replace(cursors=_put(cursors, PARENT, "finished"), half=False)
            yield ("finishes, then",), finished
        for child in sorted(CHILDREN):
            if cursors[child] == "begun":
                effects = _put(world.effects, child - 1, world.effects[child - 1] + "2")
                read = world._replace(cursors=_put(cursors, child, "finished"), effects=effects)
                yield ("reads child", child), read

    def finish(self, world: World, answer: frozenset[int]) -> World:
        """An owner finishes the parent, with the children that it was told of."""
        made = _created(world.cursors, answer)
        if self.rules.finish == "children first":
            return world._replace(cursors=made, half=True)
        return world._replace(cursors=_put(made, PARENT, "finished"))

    # -- listers -----------------------------------------------------------------------------------

    def lister(self, world: World, n: int, lister: Lister | None) -> Iterator[tuple[Step, World]]:
        """A lister lists, reads the cursors of what it does not know, creates, or sweeps."""
        if lister is None:
            for listed in self.listings(world):
                at = Lister(listed)
                yield (
                    ("lists", n, tuple(sorted(listed))),
                    world._replace(listers=_put(world.listers, n, at)),
                )
            if n == world.lead and self.may_sweep(world):
                made = _created(world.cursors, CHILDREN)
                yield ("sweeps", n), world._replace(cursors=_put(made, PARENT, ""))
        elif not lister.looked:
            looked = self.looks(world, lister)
            yield ("looks", n), world._replace(listers=_put(world.listers, n, looked))
        elif self.rules.fenced and n != world.lead:
            yield ("creates", n), world._replace(listers=_put(world.listers, n, None))
        else:
            world = world._replace(cursors=_created(world.cursors, lister.creates))
            known = _created(lister.known, lister.creates)
            after = self.probed(world, lister._replace(known=known))
            yield ("creates", n), world._replace(listers=_put(world.listers, n, after))

    def listings(self, world: World) -> Iterator[frozenset[int]]:
        """Yield what the service may show: children late, a parent perhaps not at all."""
        there = frozenset() if world.trimmed else frozenset({PARENT})
        for children in SUBSETS if world.split else SUBSETS[:1]:
            yield there | children
            if self.bound.misses and not world.trimmed:
                yield children

    def looks(self, world: World, lister: Lister) -> Lister | None:
        """Read the cursors that are not known; say what is created, None if nothing is."""
        cursors, known = world.cursors, lister.known
        known = tuple(
            there if shard in lister.listed or shard == PARENT else before
            for shard, (there, before) in enumerate(zip(cursors, known, strict=True))
        )
        wanted, probes = self.wanted(lister._replace(known=known))
        lister = lister._replace(known=known, creates=wanted, probes=probes, looked=True)
        return lister if wanted else self.probed(world, lister)

    def wanted(self, lister: Lister) -> tuple[frozenset[int], bool]:
        """Return which listed shards get a cursor now, and whether to ask for the parent."""
        rules, listed = self.rules, lister.listed
        new = frozenset(shard for shard in listed if not lister.known[shard])
        parent, children = lister.known[PARENT], new & CHILDREN
        if rules.waits_open and PARENT in listed and PARENT not in new:
            return frozenset(), False
        if rules.unlisted == "always" and PARENT not in listed:
            return children, False
        if parent == "finished":
            return new, False
        if parent or PARENT in listed:
            return new - CHILDREN, False
        if lister.gone or rules.unlisted == "no cursor":
            return children, False
        return frozenset(), bool(children)

    def probed(self, world: World, lister: Lister) -> Lister | None:
        """Ask for the parent, if that is open; where it is gone, look again."""
        if not (lister.probes and world.trimmed and not lister.gone):
            return None
        return self.looks(world, lister._replace(gone=True))

    def may_sweep(self, world: World) -> bool:
        """Return whether the parent's finished cursor may go."""
        parent, *children = world.cursors
        if parent != "finished":
            return False
        if self.rules.keeps == "children":
            return all(children)
        return world.trimmed and world.old

    def wrong(self, world: World) -> Iterator[str]:
        """Yield what does not hold."""
        right = ("", "1", "12", "2") if world.fresh else ("", "1", "12")
        if any(effect not in right for effect in world.effects):
            yield "order"


def _created(
    cursors: tuple[State, State, State], shards: frozenset[int]
) -> tuple[State, State, State]:
    for shard in shards:
        cursors = cursors if cursors[shard] else _put(cursors, shard, "begun")
    return cursors


def _put(values: Any, place: int, value: object) -> Any:
    return (*values[:place], value, *values[place + 1 :])


def is_read(world: World) -> bool:
    """Return whether every child is read."""
    return world.cursors[1:] == ("finished", "finished")


def helps(step: Step) -> bool:
    """Return whether a step may be waited for: the trim of a shard, a day later, may not."""
    return step[0] not in ("is trimmed", "two days pass")


NAIVE: dict[str, tuple[Rules, Bound, str]] = {
    "children first": (Rules(finish="children first"), CALM, "order"),
    "unlisted is trimmed": (Rules(unlisted="always"), Bound(takes=0), "order"),
    "unlisted without a cursor is trimmed": (Rules(unlisted="no cursor"), CALM, "order"),
    "a zombie that creates": (Rules(fenced=False), Bound(misses=False), "order"),
    "swept once its children began": (Rules(keeps="children"), CALM, "order"),
}
"""Rules that look simpler, and where each breaks what."""

STRANDING: dict[str, tuple[Rules, Bound]] = {
    "nobody lists": (Rules(lists=False), Bound(takes=0, trims=False, booted=True)),
    "listed open, so not yet": (Rules(waits_open=True), Bound(takes=0, trims=False, misses=False)),
}
"""Rules under which a child may never be read."""
