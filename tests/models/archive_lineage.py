"""Lineage over stream and archive: an executable specification of which shard may begin.

A consumer begins in the past: it has no cursors, and some shards are in the archive alone. P splits
into C and D; C rolls into G. P has records of the keys of C and of D. A shard that has ended is
archived to its end, then it leaves the stream. A lister looks at the stream's list and at the
archive's, one after the other, and creates cursors; the end of a shard creates those of the
children that are known then. Checked:

    order      no shard is read before one whose records come before its own, unless that is lost
    false      no shard is named as lost that the archive has

In: the rules. Out: what breaks them, each with a shortest trace. Left out: records, owners, and
what becomes of cursors (`lineage`).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Literal, NamedTuple

PARENT = {"P": None, "C": "P", "D": "P", "G": "C"}
ORDER = [("P", "C"), ("P", "D"), ("C", "G"), ("P", "G")]
OPEN = "DG"
"""Shards that never end."""

Step = tuple[Any, ...]


class World(NamedTuple):
    """What there is: `listed` in the stream, `kept` in the archive, `born` so far.

    `active` and `done` are the consumer's shards, the latter in order; `first` is the list that the
    lister has taken, and `look` both. `false` says that a loss was named of what the archive has.
    """

    listed: frozenset[str] = frozenset("P")
    kept: frozenset[str] = frozenset()
    born: frozenset[str] = frozenset("P")
    active: frozenset[str] = frozenset()
    done: tuple[str, ...] = ()
    first: frozenset[str] | None = None
    look: frozenset[str] | None = None
    lost: frozenset[str] = frozenset()
    false: bool = False


@dataclass(frozen=True)
class Rules:
    """How shards are found; ours by default. The names are rows of the reference model.

    `sources`: both lists are asked, or the stream's alone (L4). `order`: which one comes first
    (L3). `orphan`: a shard whose parent is in neither list begins when every known shard without
    known children is read, or at once (L5). `lists`: children that come later are still found
    (L6).
    """

    sources: Literal["both", "stream"] = "both"
    order: Literal["stream", "archive"] = "stream"
    orphan: Literal["waits", "at once"] = "waits"
    lists: bool = True


@dataclass(frozen=True)
class Bound:
    """What may happen: C is never archived (`skips`), children are archived first (`free`)."""

    skips: bool = False
    free: bool = False


@dataclass(frozen=True)
class Model:
    """A family of shards, and one consumer of it."""

    rules: Rules
    bound: Bound = Bound()

    def first(self) -> World:
        """Return the world in which only P is there; without a lister it is begun already."""
        return World() if self.rules.lists else World(active=frozenset("P"))

    def steps(self, world: World) -> Iterator[tuple[Step, World]]:
        """Yield what may happen next."""
        yield from self.happens(world)
        if self.rules.lists:
            yield from self.looks(world)
        for shard in sorted(world.active):
            yield from self.reads(world, shard)

    def happens(self, world: World) -> Iterator[tuple[Step, World]]:
        """Shards appear, are archived, and leave the stream."""
        for shard, parent in PARENT.items():
            if shard not in world.born and (parent is None or parent in world.born):
                found = world._replace(listed=world.listed | {shard}, born=world.born | {shard})
                yield ("appears", shard), found
            if shard not in world.listed or not self.ended(world, shard):
                continue
            after = parent is None or parent in world.kept
            if shard not in world.kept and (self.bound.free or after):
                yield ("archived", shard), world._replace(kept=world.kept | {shard})
            if shard in world.kept or (self.bound.skips and shard == "C"):
                yield ("leaves", shard), world._replace(listed=world.listed - {shard})

    def ended(self, world: World, shard: str) -> bool:
        """Return whether a shard is closed, and has children."""
        return shard != "G" and any(PARENT[child] == shard for child in world.born)

    def looks(self, world: World) -> Iterator[tuple[Step, World]]:
        """A lister takes the two lists, one after the other, and acts on both."""
        if world.look is not None:
            yield ("acts", "".join(sorted(world.look))), self.acts(world, world.look)
        elif self.rules.sources == "stream":
            yield ("lists", "stream"), world._replace(look=world.listed)
        elif world.first is None:
            taken = world.listed if self.rules.order == "stream" else world.kept
            yield ("lists", "first"), world._replace(first=taken)
        else:
            other = world.kept if self.rules.order == "stream" else world.listed
            yield ("lists", "second"), world._replace(first=None, look=world.first | other)

    def acts(self, world: World, shards: frozenset[str]) -> World:
        """The cursors of shards are created that may begin, as far as the lister knows."""
        active, lost, false = set(world.active), set(world.lost), world.false
        heads = {s for s in shards if not any(PARENT[child] == s for child in shards)}
        for shard in sorted(shards):
            parent = PARENT[shard]
            known = shard in active or shard in world.done or shard in lost
            if known or parent in active or (parent in shards and parent not in world.done):
                continue
            if parent is not None and parent not in shards and parent not in (*world.done, *lost):
                unread = heads - {shard, *OPEN[1:]} - {*world.done}
                if self.rules.orphan == "waits" and any(s in "PCD" for s in unread):
                    continue
                false = false or parent in world.kept
                lost.add(parent)
            active.add(shard)
        after = world._replace(active=frozenset(active), lost=frozenset(lost), false=false)
        return after._replace(look=None)

    def reads(self, world: World, shard: str) -> Iterator[tuple[Step, World]]:
        """A shard is read to its end, or was found to be gone."""
        rest = world._replace(active=world.active - {shard})
        if shard not in world.listed and shard not in world.kept:
            yield ("gone", shard), rest._replace(lost=world.lost | {shard})
            return
        known = world.listed | (world.kept if self.rules.sources == "both" else frozenset())
        children = sorted(child for child in known if PARENT[child] == shard)
        late = self.bound.skips and shard == "P" and shard not in world.listed
        if shard not in OPEN and not (self.ended(world, shard) and (children or late)):
            return
        for some in _subsets(children):
            if some or not children:
                begun = {child for child in some if child not in world.done}
                after = rest._replace(active=rest.active | begun, done=(*world.done, shard))
                yield ("read", shard, "".join(some)), after

    def wrong(self, world: World) -> Iterator[str]:
        """Yield what does not hold."""
        place = {shard: number for number, shard in enumerate(world.done)}
        for before, after in ORDER:
            if after not in place or before not in world.born or before in world.lost:
                continue
            if place.get(before, len(place)) > place[after]:
                yield "order"
        if world.false:
            yield "false"


def all_read(world: World) -> bool:
    """Return whether every shard that was born is read, or named as lost."""
    return world.born <= {*world.done, *world.lost}


def helps(step: Step) -> bool:
    """Return whether a step happens in the end: shards need not leave the stream."""
    return step[0] != "leaves"


def _subsets(items: list[str]) -> list[tuple[str, ...]]:
    return [some for count in range(len(items) + 1) for some in combinations(items, count)]


BOUNDS = {
    "L1 both lists": Bound(),
    "L2 the archive may have missed a shard": Bound(skips=True),
    "L7 children may be archived first": Bound(skips=True, free=True),
}

NAIVE: dict[str, tuple[Rules, Bound, str]] = {
    "L3 the archive's list first": (Rules(order="archive"), Bound(), "order"),
    "L4 the stream's list alone": (Rules(sources="stream"), Bound(), "order"),
    "L5 an orphan begins at once": (Rules(orphan="at once"), Bound(skips=True), "order"),
}
"""Rules that look simpler, and what each breaks."""

STRANDING = {"L6 children of a parent's end alone": (Rules(lists=False), Bound())}
"""Rules under which a shard may never be read."""
