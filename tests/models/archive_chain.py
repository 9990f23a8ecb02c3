"""The chain of one shard: an executable specification of an archive's writers and one reader.

Records are published and trimmed. Two writers copy them (a second one because a lease was judged
wrongly, or because the first died) into links, each named by the position after which it begins. A
put may be applied although its reply is lost, or long after its writer died. The reader follows the
chain and the stream; where the stream has forgotten its position and no writer seems to live, it
records a hole itself. Objects may be removed or damaged. Every interleaving within a bound is
looked at. Checked:

    twice      no record is delivered twice, and none out of order
    skipped    every record that the reader has passed was delivered or named as lost
    false      nothing is named as lost that a link has, or that the stream still has
    cursor     what is before the writers' cursor can be read, or is a recorded hole
    applied    nothing of a damaged object is delivered

In: the rules. Out: what breaks them, each with a shortest trace. Left out: time, pages, several
shards (`archive_lineage`). "Fresh" is a fact here: nothing that was published since the shard was
last seen at its tip is trimmed yet.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

from tests.models.explorer import LARGE


class Link(NamedTuple):
    """One object: what was read after one position up to another; `bad` if it is damaged."""

    after: int
    last: int
    kind: Literal["data", "hole"] = "data"
    begins: int = 0
    bad: bool = False

    @property
    def records(self) -> range:
        """Return the records that are in it."""
        first = max(self.after, self.begins)
        return range(first + 1, self.last + 1) if self.kind == "data" else range(0)


class Writer(NamedTuple):
    """A process that copies; it may not know that another one has taken its place.

    It has stored all up to `pos`, and read up to `read`; `gap` ends a hole that comes before what
    it has read (0: none), `begins` is where it read from. `sent` is under way, of all up to `upto`. It saw the tip when `seen`
    records were published; of these `safe` are stored, `due` are when what is under way is.
    """

    epoch: int
    pos: int
    read: int
    gap: int = 0
    begins: int = 0
    sent: Link | None = None
    upto: int = 0
    stored: bool = False
    seen: int = 0
    safe: int = 0
    due: int = 0


class Cursor(NamedTuple):
    """The writers' cursor in the table."""

    epoch: int = 0
    pos: int = 0
    seen: int = 0


class World(NamedTuple):
    """The stream, the archive, the writers, and the reader: where it is, and what it has told."""

    end: int = 1
    gone: int = 0
    links: frozenset[Link] = frozenset()
    cursor: Cursor = Cursor()
    writers: tuple[Writer | None, ...] = (None, None)
    air: frozenset[Link] = frozenset()
    r: int = 0
    seen: int = 0
    opened: bool = False
    out: tuple[int, ...] = ()
    lost: frozenset[int] = frozenset()
    decides: Link | None = None
    takes: int = 0
    harms: int = 0

    def at(self, position: int) -> Link | None:
        """Return the link that begins at a position."""
        return next((link for link in self.links if link.after == position), None)


@dataclass(frozen=True)
class Rules:
    """How it is written and read; ours by default. The names are rows of the reference model."""

    exists: Literal["adopt", "mine"] = "adopt"
    """A writer that finds its name taken goes on behind what is there (else W13)."""
    creates: Literal["absent", "over"] = "absent"
    """A name is created only if there is none (else W12)."""
    first: Literal["object", "cursor"] = "object"
    """What is written first (else W14)."""
    hole: Literal["record", "claim", "jump"] = "record"
    """What becomes of a range that was trimmed before it was copied (else W15, W16)."""
    hashed: bool = True
    """Hashes are looked at (else W6)."""
    switch: Literal["after", "horizon"] = "after"
    """How the stream is opened behind the archive (else S4)."""
    tip: Literal["archive", "horizon"] = "archive"
    """A position that is trimmed again leads back to the archive (else S6)."""
    loss: Literal["decided", "at once"] = "decided"
    """When a loss is named that the archive does not know (else S7)."""
    decides: bool = True
    """A reader that finds no living writer records the hole (else S11)."""
    drops: bool = True
    """Records up to the position are dropped (else S8)."""
    missing: Literal["cursor", "list", "tip"] = "cursor"
    """How a link that was removed is told from the chain's end (else S10, S9)."""
    hole_at: Literal["chain", "reader"] = "chain"
    """Where a reader's hole begins."""
    seen: Literal["stored", "read"] = "stored"
    """What a writer's cursor says to be seen: only what it has stored."""
    adopts: Literal["same", "any"] = "same"
    """At which positions a reader believes what the writer has seen."""


@dataclass(frozen=True)
class Bound:
    """How much may happen."""

    records: int = 3
    takes: int = 2
    starts: int = 0
    removes: bool = False
    damages: bool = False
    misjudges: bool = False
    writes: bool = True
    looks: bool = False
    reads: bool = True


CALM = Bound(takes=1)
RIVALS = Bound(records=2)
LOOKS = Bound(records=2, looks=True, reads=False)
BOUNDS = {
    "one writer": CALM,
    "two writers": RIVALS,
    "a living writer is taken for dead": Bound(records=2, takes=1, misjudges=True),
    "looks at the tip": Bound(records=2, takes=1, looks=True),
    "removed": Bound(records=2, takes=1, removes=True),
    "damaged": Bound(records=2, takes=1, damages=True),
    "no writer": Bound(records=4, writes=False),
    "inside a link": Bound(takes=1, starts=1),
}
if LARGE:
    BOUNDS |= {
        "more records": Bound(records=4, takes=1),
        "more rivals": Bound(misjudges=True),
        "rivals that look": LOOKS,
        "more removed": Bound(takes=1, removes=True, misjudges=True),
    }

Step = tuple[object, ...]


class Model:
    """All that may happen next in a world, by rules, within a bound."""

    def __init__(self, rules: Rules = Rules(), bound: Bound = CALM) -> None:
        self.rules, self.bound = rules, bound

    def first(self) -> World:
        """Return a world with one record, or with one link of two records inside which it starts."""
        if not self.bound.starts:
            return World()
        return World(2, links=frozenset({Link(0, 2)}), cursor=Cursor(0, 2), r=self.bound.starts)

    def steps(self, world: World) -> Iterator[tuple[Step, World]]:
        """Yield what may happen next."""
        if world.end < self.bound.records:
            yield ("publishes",), world._replace(end=world.end + 1)
        if world.gone < world.end:
            yield ("trims",), world._replace(gone=world.gone + 1)
        yield from self.harms(world)
        for n, writer in enumerate(world.writers if self.bound.writes else ()):
            if world.takes < self.bound.takes and writer is None:
                pos, tail = world.cursor.pos, world.cursor.seen
                while (link := world.at(pos)) is not None and not (link.bad and self.rules.hashed):
                    pos = link.last
                taken = Writer(world.cursor.epoch + 1, pos, pos, seen=tail, safe=tail)
                after = self.put(world, n, taken)._replace(takes=world.takes + 1)
                yield ("takes", n), after._replace(cursor=world.cursor._replace(epoch=taken.epoch))
            if writer is not None:
                yield from self.writes(world, n, writer)
        for link in world.air:
            late = world._replace(air=world.air - {link})
            yield ("comes late", link.after, link.last), self.stored(late, link)
        if world.decides is not None:
            made = self.stored(world, world.decides, over=True)
            yield ("records",), self.reads(made._replace(decides=None), over=False, asked=True)
            return
        alive = any(world.writers)
        judged = sorted({False, not alive or self.bound.misjudges}) if self.bound.reads else ()
        for over in judged:
            after = self.reads(world, over=over and self.rules.decides)
            if after != world:
                yield ("reads", over), after

    @staticmethod
    def put(world: World, n: int, writer: Writer | None) -> World:
        """Replace a writer."""
        them = world.writers
        return world._replace(writers=(*them[:n], writer, *them[n + 1 :]))

    def harms(self, world: World) -> Iterator[tuple[Step, World]]:
        """Yield what may happen to an object, once."""
        if world.harms or world.air or world.decides:
            return
        for link in world.links:
            rest = world._replace(links=world.links - {link}, harms=1)
            if self.bound.removes:
                yield ("is removed", link.after), rest
            if self.bound.damages and link.kind == "data":
                spoiled = rest.links | {link._replace(bad=True)}
                yield ("is damaged", link.after), rest._replace(links=spoiled)

    # -- writers ---------------------------------------------------------------------------------

    def writes(self, world: World, n: int, me: Writer) -> Iterator[tuple[Step, World]]:
        """Yield what a writer may do."""
        yield ("dies", n), self.put(world, n, None)
        if me.sent is not None and not me.stored:
            air = world.air | {me.sent}
            if len(air) < 2:
                yield ("dies, its put is late", n), self.put(world, n, None)._replace(air=air)
            yield ("stores", n), self.answered(world, n, me)
            if world.at(me.sent.after) is None:
                yield ("stores, reply lost", n), self.stored(world, me.sent)
        fresh, trimmed = world.gone <= me.seen, self.trimmed(world, me.read)
        any_left = world.gone < world.end
        if (not trimmed or fresh) and me.read < world.end:
            begins = world.gone if trimmed and me.read == me.pos else me.begins
            yield ("copies", n), self.put(world, n, me._replace(read=world.end, begins=begins))
        elif trimmed and not fresh and me.read == me.pos and me.sent is None and any_left:
            yield ("copies", n), self.loses(world, n, me)
        looks = self.bound.looks and (not trimmed or fresh)
        if looks and me.read == world.end > me.seen:
            yield ("sees the tip", n), self.put(world, n, me._replace(seen=world.end))
        if me.sent is None and (me.read > me.pos or me.seen > world.cursor.seen):
            sent = me._replace(sent=self.link(me), upto=me.read, due=me.seen)
            if me.read == me.pos:
                sent = sent._replace(sent=Link(me.pos, me.pos), stored=True, safe=me.seen)
            if self.rules.first == "cursor" and world.cursor.epoch == me.epoch:
                cursor = world.cursor._replace(pos=me.read)
                yield ("sends", n), self.put(world, n, sent)._replace(cursor=cursor)
            else:
                yield ("sends", n), self.put(world, n, sent)
        if me.stored:
            yield ("commits", n), self.committed(world, n, me)

    @staticmethod
    def trimmed(world: World, position: int) -> bool:
        """Return whether the stream refuses to read on after a position."""
        return 0 < world.gone >= position

    def loses(self, world: World, n: int, me: Writer) -> World:
        """Return the world after a writer whose position is trimmed has read what is left."""
        if self.rules.hole == "jump":
            jumped = self.put(world, n, me._replace(pos=world.gone, read=world.end))
            return jumped._replace(cursor=world.cursor._replace(pos=world.gone))
        gap = world.gone if world.gone > me.pos else 0
        return self.put(world, n, me._replace(read=world.end, gap=gap))

    def link(self, me: Writer) -> Link:
        """Return the link that a writer stores next."""
        if me.gap and self.rules.hole == "record":
            return Link(me.pos, me.gap, "hole")
        return Link(me.pos, me.read, begins=max(me.gap, me.begins))

    def stored(self, world: World, link: Link, *, over: bool = False) -> World:
        """Return the world in which a put was applied: a name is decided once.

        A damaged object is replaced unless links follow it, by a process that waits for the answer.
        """
        there = world.at(link.after)
        spoiled = there is not None and there.bad and over and self.is_last(world, there)
        if there is None or spoiled or self.rules.creates == "over":
            links = world.links - {there} if there is not None else world.links
            return world._replace(links=links | {link})
        return world

    @staticmethod
    def is_last(world: World, link: Link) -> bool:
        """Return whether no link begins behind this one."""
        return all(other.after <= link.after for other in world.links)

    def answered(self, world: World, n: int, me: Writer) -> World:
        """Return the world in which a writer has heard what became of its put."""
        assert me.sent is not None
        world = self.stored(world, me.sent, over=True)
        there = world.at(me.sent.after)
        assert there is not None
        last = there.last if self.rules.exists == "adopt" else me.sent.last
        if there.bad and self.rules.hashed:  # it stays, and ends where the next one begins
            last = min(link.after for link in world.links if link.after > there.after)
        gap = me.gap if last < me.gap else 0
        me = me._replace(pos=last, read=max(me.read, last), gap=gap)
        if last < me.upto:
            kind, end = ("hole", gap) if gap and self.rules.hole == "record" else ("data", me.upto)
            return self.put(world, n, me._replace(sent=Link(last, end, kind)))
        return self.put(world, n, me._replace(stored=True, safe=max(me.safe, me.due)))

    def committed(self, world: World, n: int, me: Writer) -> World:
        """Return the world after a writer moves the cursor, if that is still its own."""
        if world.cursor.epoch != me.epoch:
            return self.put(world, n, None)
        seen = me.safe if self.rules.seen == "stored" else me.seen
        cursor = Cursor(me.epoch, me.pos, max(seen, world.cursor.seen))
        return self.put(world, n, me._replace(sent=None, stored=False))._replace(cursor=cursor)

    # -- the reader --------------------------------------------------------------------------------

    def reads(self, world: World, *, over: bool, asked: bool = False) -> World:
        """Return the world after the reader has read on once; `asked`: the stream had nothing."""
        rules, r = self.rules, world.r
        there = (world.opened and r >= world.gone) or not self.trimmed(world, r)
        if not asked and (there or (rules.switch == "horizon" and world.links)):
            return self.streamed(world, r)
        if world.gone <= world.seen:
            return self.streamed(world, world.gone)
        around = [link for link in world.links if link.after <= r < link.last]
        whole = [link for link in around if not (link.bad and rules.hashed)]
        if whole:
            return self.archived(world, max(whole))
        following = [link.after for link in world.links if link.after > r]
        until = min(following, default=None)
        if until is None and rules.missing == "cursor":
            until = world.cursor.pos
        if until is not None and until > r and rules.missing != "tip":
            return self.told(world, until)
        return self.undecided(world, over)

    def undecided(self, world: World, over: bool) -> World:
        """Return the world after the archive has said nothing about a position that is trimmed."""
        rules, r = self.rules, world.r
        if rules.loss == "at once":
            return self.told(world, world.gone)._replace(opened=True)
        if rules.tip == "horizon" and world.links:
            return self.streamed(world, world.gone)
        if over:
            if world.end == world.gone:
                return world
            begins = self.chain_end(world) if rules.hole_at == "chain" else r
            if begins <= r < world.gone:
                return world._replace(decides=Link(begins, world.gone, "hole"))
            return self.streamed(world, world.gone) if r == world.gone else world
        cursor = world.cursor
        if cursor.seen > world.seen and (cursor.pos == r or rules.adopts == "any"):
            return world._replace(seen=cursor.seen)
        return world

    @staticmethod
    def chain_end(world: World) -> int:
        """Return where the last link ends that begins at or before the reader."""
        before = [link for link in world.links if link.after <= world.r]
        last = max(before, default=Link(0, 0))
        return last.after if last.bad else last.last

    def streamed(self, world: World, after: int) -> World:
        """Return the world after the reader has read all that the stream has after a position."""
        at = world.gone if self.rules.switch == "horizon" and world.links else after
        new = tuple(n for n in range(at + 1, world.end + 1) if n > world.r)
        seen = world.seen if new else max(world.seen, world.end)
        end = max(world.r, world.end) if new else world.r
        return world._replace(out=world.out + new, r=end, seen=seen, opened=True)

    def archived(self, world: World, link: Link) -> World:
        """Return the world after the reader has read a link."""
        if link.kind == "hole":
            opened = world.gone <= link.last and world.at(link.last) is None
            return self.told(world, link.last)._replace(opened=opened)
        new = tuple(n for n in link.records if n > world.r or not self.rules.drops)
        if link.bad:
            new = tuple(-n for n in new)
        return world._replace(out=world.out + new, r=link.last, opened=False)

    @staticmethod
    def told(world: World, until: int) -> World:
        """Return the world after a loss was named."""
        lost = world.lost | set(range(world.r + 1, until + 1))
        return world._replace(lost=lost, r=until, opened=False)

    def wrong(self, world: World) -> Iterator[str]:
        """Yield what does not hold."""
        if any(n < 0 for n in world.out):
            yield "applied"
        elif list(world.out) != sorted({n for n in world.out if n > self.bound.starts}):
            yield "twice"
        told = {*world.out, *world.lost}
        if not {*range(self.bound.starts + 1, world.r + 1)} <= told:
            yield "skipped"
        if world.harms:
            return
        had = {n for link in world.links for n in link.records}
        if any(n in had or n > world.gone for n in world.lost):
            yield "false"
        known, holes = had, [link for link in world.links if link.kind == "hole"]
        known |= {n for link in holes for n in range(link.after + 1, link.last + 1)}
        if not {*range(1, world.cursor.pos + 1)} <= known:
            yield "cursor"


def is_read(world: World) -> bool:
    """Return whether the reader has come to the end of what there is to read."""
    return world.r == world.end or world.gone == world.end


def helps(step: Step) -> bool:
    """Return whether a step may be waited for: faults may not."""
    return step[0] in ("takes", "copies", "sends", "stores", "commits", "records", "reads")


NAIVE: dict[str, tuple[Rules, Bound, str]] = {
    "W6 hashes that are not looked at": (Rules(hashed=False), BOUNDS["damaged"], "applied"),
    "W12 a name that is written over": (Rules(creates="over"), RIVALS, "cursor"),
    "W13 a taken name is mine": (Rules(exists="mine"), RIVALS, "cursor"),
    "W14 the cursor before the object": (Rules(first="cursor"), RIVALS, "cursor"),
    "W15 a link that claims a hole": (Rules(hole="claim"), CALM, "cursor"),
    "W16 a cursor that jumps over a hole": (Rules(hole="jump"), CALM, "cursor"),
    "S4 the stream from its horizon": (Rules(switch="horizon"), CALM, "skipped"),
    "S6 the archive's tip is the stream's": (Rules(tip="horizon"), CALM, "skipped"),
    "S7 a loss at once": (Rules(loss="at once"), CALM, "false"),
    "S8 links from their first record": (Rules(drops=False), BOUNDS["inside a link"], "twice"),
    "a hole where the reader stands": (Rules(hole_at="reader"), CALM, "false"),
    "seen, and not stored": (Rules(seen="read"), LOOKS, "cursor"),
}
"""Rules that look simpler, and where each breaks what."""

STRANDING: dict[str, tuple[Rules, Bound]] = {
    "S9 no link is always the tip": (Rules(missing="tip"), BOUNDS["removed"]),
    "S10 the cursor is not asked": (Rules(missing="list", decides=False), BOUNDS["removed"]),
    "S11 readers never decide": (Rules(decides=False), BOUNDS["no writer"]),
}
"""Rules under which a reader may wait for ever."""

SAFE: dict[str, tuple[Rules, Bound]] = {
    "seen at any position": (Rules(adopts="any"), CALM),
}
"""Weaker rules that are as good: a position that the cursor has not reached says more, not less."""
