"""The names of an archive's objects: an executable specification of what a name must say.

Two writers copy the records of one shard into objects, in ranges of any length; the second one is
there because a lease was judged wrongly, or because the first died. Puts may be late or lost.
Records are trimmed, and the range is then a hole. A reader follows what is there. Our name is the
position *after which* an object begins, created only if it is absent: then each position has one
answer. Other names were thought of; what breaks them is found here. Checked:

    twice      no record is delivered twice, or out of order
    skipped    every record that the reader has passed was delivered or named as lost
    false      nothing is named as lost that the archive has
    cursor     what is before the writers' cursor can be read, or is a recorded hole

In: the rules. Out: what breaks them, each with a shortest trace. Left out: the stream behind the
archive's end, hashes and the recording of a hole (`archive_chain`).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Literal, NamedTuple

from tests.models.explorer import LARGE

Step = tuple[Any, ...]
Name = tuple[int, ...]
RECORDS = 3


class Object(NamedTuple):
    """What was read after one position up to another; a `hole` has no records.

    `half`: it is a file that is still being written.
    """

    after: int
    last: int
    hole: bool = False
    half: bool = False

    @property
    def records(self) -> tuple[int, ...]:
        """Return the records that are in it."""
        last = self.after + 1 if self.half else self.last
        return () if self.hole else tuple(range(self.after + 1, last + 1))


class Writer(NamedTuple):
    """A process that copies: where it believes to be, and its put; `stored` says it has arrived."""

    epoch: int
    pos: int
    put: tuple[Name, Object] | None = None
    stored: bool = False


class World(NamedTuple):
    """The objects, the writers' cursor with what it lists, puts under way, and a reader."""

    objects: frozenset[tuple[Name, Object]] = frozenset()
    owner: int = 0
    epoch: int = 1
    pos: int = 0
    manifest: frozenset[Name] = frozenset()
    air: frozenset[tuple[int, int, Name, Object]] = frozenset()
    writers: tuple[Writer | None, ...] = (Writer(1, 0), None)
    gone: int = 0
    r: int = 0
    out: tuple[int, ...] = ()
    lost: frozenset[int] = frozenset()
    seen: Name = ()
    takes: int = 0
    removed: bool = False


@dataclass(frozen=True)
class Rules:
    """What a name is, and how objects are written and found; ours by default.

    `name`: the position before (`after`), the first record, both borders (`range`), something
    `unique`, or the position and the writer's file format (`codec`). `creates`: only if absent, or
    over what is there. `finds`: what begins at the reader's position (`chain`), any object around
    it (`cover`), the next name (`names`), that without what is known (`known`), what the manifest
    in the table lists, or what begins here in any format (`codec`). `fenced`: a commit asks for the
    lease. `whole`: an object appears at once, with all its records.
    """

    name: Literal["after", "first", "range", "unique", "codec"] = "after"
    creates: Literal["absent", "over"] = "absent"
    finds: Literal["chain", "cover", "names", "known", "manifest", "codec"] = "chain"
    fenced: bool = True
    whole: bool = True


@dataclass(frozen=True)
class Bound:
    """What may happen: so many takes and trims, lists that `lag`, an object that is removed."""

    takes: int = 2
    trims: int = 1
    lags: bool = False
    removes: bool = False


@dataclass(frozen=True)
class Model:
    """Two writers, and a reader, of one shard."""

    rules: Rules
    bound: Bound = Bound()

    def first(self) -> World:
        """Return the world in which nothing is archived."""
        return World()

    def named(self, thing: Object, epoch: int, n: int) -> Name:
        """Return the name of an object."""
        first = thing.records[0] if thing.records else thing.last
        return {
            "after": (thing.after,),
            "first": (first,),
            "range": (thing.after, thing.last),
            "unique": (thing.after, thing.last, epoch),
            "codec": (thing.after, n),
        }[self.rules.name]

    def steps(self, world: World) -> Iterator[tuple[Step, World]]:
        """Yield what may happen next."""
        for n, writer in enumerate(world.writers):
            if world.takes < self.bound.takes and world.owner != n:
                new = Writer(world.epoch + 1, world.pos)
                taken = world._replace(owner=n, epoch=new.epoch, takes=world.takes + 1)
                yield ("takes", n), _with(taken, n, new)
            if writer is not None:
                yield from self.writes(world, n, writer)
        for put in sorted(world.air):
            yield from self.arrives(world, put)
        if world.gone < self.bound.trims:
            yield ("trims",), world._replace(gone=world.gone + 1)
        for name, thing in sorted(world.objects) if self.bound.removes else ():
            if not world.removed:
                rest = world._replace(objects=world.objects - {(name, thing)}, removed=True)
                yield ("removes", name), rest
        yield from self.reads(world)

    def writes(self, world: World, n: int, writer: Writer) -> Iterator[tuple[Step, World]]:
        """A writer puts an object, moves the cursor behind it, or dies."""
        if writer.put is None:
            ends = range(writer.pos + 1, RECORDS + 1)
            things = [Object(writer.pos, last) for last in ends]
            if writer.pos < world.gone:
                things = [Object(writer.pos, world.gone, hole=True)]
            for thing in things if len(world.air) < 2 else ():
                put = self.named(thing, writer.epoch, n), thing
                sent = world._replace(air=world.air | {(n, writer.epoch, *put)})
                yield ("puts", n, thing.last), _with(sent, n, writer._replace(put=put))
        elif not writer.stored:
            yield ("dies", n), _with(world, n, None)
        else:
            name, thing = writer.put
            mine = (world.owner, world.epoch, world.pos) == (n, writer.epoch, writer.pos)
            if not mine and self.rules.fenced:
                yield ("is refused", n), _with(world, n, None)
                return
            listed = world.manifest | {name} if self.rules.finds == "manifest" else frozenset()
            moved = world._replace(pos=thing.last, manifest=listed)
            yield ("commits", n), _with(moved, n, Writer(writer.epoch, thing.last))

    def arrives(
        self, world: World, put: tuple[int, int, Name, Object]
    ) -> Iterator[tuple[Step, World]]:
        """A put reaches the archive, is lost, or finds its name taken."""
        n, epoch, name, thing = put
        writer, after = world.writers[n], world._replace(air=world.air - {put})
        waits = writer is not None and not writer.stored and writer.put == (name, thing)
        waits = waits and writer is not None and writer.epoch == epoch
        yield ("is lost", n), _with(after, n, None) if waits else after
        objects = dict(world.objects)
        there = objects.get(name)
        free = there is None or there.half or self.rules.creates == "over"
        if not self.rules.whole and free and len(thing.records) > 1 and there is None:
            half = objects | {name: thing._replace(half=True)}
            yield ("begins", n), world._replace(objects=frozenset(half.items()))
        if free:
            after = after._replace(objects=frozenset((objects | {name: thing}).items()))
        border = thing if free or there is None else there  # of what is there already
        if waits and writer is not None:
            after = _with(after, n, writer._replace(put=(name, border), stored=True))
        yield ("arrives", n), after

    # -- the reader --------------------------------------------------------------------------------

    def found(
        self, world: World, shown: frozenset[tuple[Name, Object]]
    ) -> list[tuple[Name, Object]]:
        """Return what a reader may take next, of the objects that a list has shown."""
        finds, r = self.rules.finds, world.r
        if finds in ("names", "known"):
            return sorted(one for one in shown if one[0] > world.seen)[:1]
        if finds == "cover":
            return sorted(one for one in shown if one[1].after <= r < one[1].last)
        there = [one for one in sorted(world.objects) if one[1].after == r]
        if finds == "chain":
            return [one for one in there if one[0] == (r,)]
        return [one for one in there if finds == "codec" or one[0] in world.manifest]

    def reads(self, world: World) -> Iterator[tuple[Step, World]]:
        """A reader takes an object, or names as lost what is missing before the next one."""
        for shown in _shown(world.objects) if self.bound.lags else (world.objects,):
            found = self.found(world, shown)
            for name, thing in found:
                yield ("reads", name), self.took(world, name, thing)
            later = [one.after for _, one in shown if one.after > world.r]
            if not found and later and self.rules.finds in ("chain", "cover"):
                lost = world.lost | set(range(world.r + 1, min(later) + 1))
                yield ("names lost", min(later)), world._replace(lost=lost, r=min(later))

    def took(self, world: World, name: Name, thing: Object) -> World:
        """The reader has taken an object."""
        lost = set(range(world.r + 1, thing.last + 1)) if thing.hole else set()
        fresh = [x for x in thing.records if x > world.r or self.rules.finds == "names"]
        return world._replace(
            r=max(world.r, thing.last),
            out=(*world.out, *fresh),
            lost=world.lost | lost,
            seen=name,
        )

    def wrong(self, world: World) -> Iterator[str]:
        """Yield what does not hold."""
        if list(world.out) != sorted(set(world.out)):
            yield "twice"
        if set(range(1, world.r + 1)) - {*world.out} - world.lost:
            yield "skipped"
        if self.bound.removes:
            return
        fresh = self.all_read(world)
        if world.lost & {*fresh.out}:
            yield "false"
        if set(range(1, world.pos + 1)) - {*fresh.out} - fresh.lost:
            yield "cursor"

    def all_read(self, world: World) -> World:
        """Return what a reader would have that begins now, and reads all there is."""
        fresh = world._replace(r=0, out=(), lost=frozenset(), seen=())
        while found := self.found(fresh, world.objects):
            fresh = self.took(fresh, *max(found, key=lambda one: (one[1].last, one[0])))
        return fresh


def _shown(objects: frozenset[tuple[Name, Object]]) -> Iterator[frozenset[tuple[Name, Object]]]:
    for count in range(len(objects) + 1):
        yield from map(frozenset, combinations(sorted(objects), count))


def _with(world: World, n: int, writer: Writer | None) -> World:
    return world._replace(writers=(*world.writers[:n], writer, *world.writers[n + 1 :]))


CALM = Bound(trims=0)
MOST = 2 if LARGE else 1

SAFE: dict[str, tuple[Rules, Bound]] = {
    "W1 the position before, created if absent": (Rules(), Bound(MOST, trims=2)),
    "W2 and commits that ask for nothing": (Rules(fenced=False), Bound(MOST)),
    "W3 and lists that lag": (Rules(), Bound(lags=True, takes=1)),
    "W4 and an object is removed": (Rules(), Bound(removes=True, takes=1)),
    "W9 both borders, any object around": (
        Rules(name="range", creates="over", finds="cover"),
        CALM,
    ),
    "W19 a manifest in the table": (
        Rules(name="unique", creates="over", finds="manifest"),
        Bound(MOST),
    ),
}
"""Names that are right, with their rows in the reference model."""

NAIVE: dict[str, tuple[Rules, Bound, str]] = {
    "W7 both borders, in the order of names": (
        Rules(name="range", creates="over", finds="names"),
        Bound(),
        "twice",
    ),
    "W8 and what is known is dropped": (
        Rules(name="range", creates="over", finds="known"),
        Bound(trims=0, removes=True),
        "skipped",
    ),
    "W10 any object around, lists lag": (
        Rules(name="range", creates="over", finds="cover"),
        Bound(trims=0, lags=True),
        "false",
    ),
    "W22 any object around, records are trimmed": (
        Rules(name="range", creates="over", finds="cover"),
        Bound(),
        "false",
    ),
    "W11 the first record, written over": (
        Rules(name="first", creates="over", finds="known"),
        Bound(),
        "cursor",
    ),
    "W12 the position before, written over": (Rules(creates="over"), Bound(), "cursor"),
    "W17 the first record, an object is removed": (
        Rules(name="first", finds="known"),
        Bound(trims=0, removes=True),
        "skipped",
    ),
    "W18 a file that is written in place": (Rules(whole=False), CALM, "skipped"),
    "W20 a manifest, and commits that ask for nothing": (
        Rules(name="unique", creates="over", finds="manifest", fenced=False),
        CALM,
        "cursor",
    ),
    "W21 something unique, any object around": (
        Rules(name="unique", creates="over", finds="cover"),
        Bound(),
        "false",
    ),
    "W23 two file formats": (Rules(name="codec", finds="codec"), CALM, "cursor"),
}
"""Names that look simpler, and what each breaks."""
