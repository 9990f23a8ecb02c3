"""A handler that joins: an executable specification of how an app takes over a consumer of its own.

A handler H with a start of its own reads the past as a consumer of its own, with cursors of its
own. The app is live, and knows H as joining. Shard by shard the owner of the app's cursor reads H's
cursor and, if H is ahead, takes it over in one transaction: from then on the app runs H for what
comes after that position. One item has its changes in a shard and its child; another one may have a
change in a root that is found late. Shards change hands, requests arrive late, changes are parked
or done by half, and a version without H may take the app's shards in between. A root that the app
finds is the app's from its birth, unless H's consumer has it already; H's consumer makes a root's
cursor only where the app has it, and does not run H there. So what is handed over stays so, and
when all is, one write ends the join and closes H's consumer.

The other way is a command: both consumers stand still, first H's and then the app's, and all shards
are handed over at once, if both are in the same shards and H is nowhere behind. The command may die
between any two steps and be given again, and a worker of the app that begins makes it give up.
Every interleaving is looked at. Checked:

    twice      H does nothing twice, and no part of a change twice
    missed     H does the changes of an item in their order, and overtakes none
    flows      the app gets to the end of the shard although H's consumer does nothing
    seen       H does every change in the end

In: the rules. Out: what breaks them, each with a shortest trace. The naive rules are BAD. A writer
that has lost its lease is refused (`leased_commit`), so only the join itself is a request that may
arrive late. Left out: rates, the records before H's start, several handlers.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from tests.models.explorer import LARGE

PARENT, CHILD, ROOT = 0, 1, 2


class AppCursor(NamedTuple):
    """The app's cursor of a shard, with what its owner has read and believes.

    The app runs H for what comes after `joined`. `saw` is H's cursor as the owner has read it, and
    `asks` says that its join is under way. `older` says that its owner is a version without H. `mark`
    is what a command has stored for a decision that may never come.
    """

    pos: int
    finished: bool = False
    epoch: int = 0
    joined: int | None = None
    believes: int | None = None
    saw: "OwnCursor | None" = None
    asks: bool = False
    older: bool = False
    half: bool = False
    mark: int | None = None


class OwnCursor(NamedTuple):
    """The cursor of H's own consumer; `half` says that the next change is done by half.

    `behind` says that it was given back while the app had parked changes of H.
    """

    pos: int
    state: Literal["active", "finished", "handed over"] = "active"
    half: bool = False
    behind: bool = False


class Join(NamedTuple):
    """A join under way: what it asks of both cursors."""

    shard: int
    epoch: int
    pos: int
    saw: OwnCursor


class World(NamedTuple):
    """All that is stored and under way.

    `did` has for each item the changes that H has done, in order; `begun` those that were done by
    half. `own_queue` and `app_queue` are H's parked changes of the first item. `phase` is what the
    app's generation says: no consumer knows of the join while it is *apart*. `still` says which consumers a command
    has stopped, `looked` what it has seen of H's cursors, and `marked` that it has marked the
    app's cursors, and `begun_anew` that a worker of the app has begun since it stopped the app. It
    `lives` until it has decided, given up or died.
    """

    app: tuple[AppCursor | None, ...]
    own: tuple[OwnCursor | None, ...]
    air: frozenset[Join] = frozenset()
    did: tuple[tuple[int, ...], ...] = ((), ())
    begun: tuple[int, ...] = ()
    own_queue: tuple[int, ...] = ()
    app_queue: tuple[int, ...] = ()
    phase: Literal["apart", "joining", "joined", "closed"] = "joining"
    still: frozenset[str] = frozenset()
    looked: "tuple[OwnCursor | None, ...] | None" = None
    marked: bool = False
    begun_anew: bool = False
    lives: bool = False
    takes: int = 0
    older: int = 0
    parks: int = 0
    halves: int = 0


@dataclass(frozen=True)
class Rules:
    """How it joins; ours by default."""

    how: Literal["take over", "push", "barrier", "wait", "stop"] = "take over"
    """The app's owner takes H over; H's consumer writes into the app's cursor; the app sets a
    barrier at its own position, at which H's consumer ends, and perhaps the app waits there; or a
    command stops both, and takes all over at once."""
    stands: frozenset[str] = frozenset({"app", "own"})
    """Which of the consumers stand still between the command's look and its decision."""
    same: bool = True
    """The command asks that both are in the same shards."""
    known: bool = True
    """The command asks that both know the same shards, also those that are finished."""
    asked: bool = True
    """A worker of the app that begins makes the command's decision fail."""
    marks: bool = True
    """The command marks cursors anew that a command before it has marked."""
    told: bool = True
    """The app's owner notices what H's consumer has written into its cursor."""
    ahead: bool = True
    """H is not behind the app."""
    fresh: bool = True
    """The join asks that H's cursor is as it was read."""
    lease: bool = True
    """The join asks that the app's cursor has not changed hands."""
    position: bool = True
    """The join asks that the app's cursor has not moved."""
    ends: bool = True
    """The join ends the lease of H's consumer."""
    clear: bool = True
    """The join asks that nothing of H is parked there."""
    whole: bool = True
    """The join asks that no change is done by half."""
    inherits: bool = True
    """A child is joined if its parent is."""
    stops: bool = True
    """H's consumer makes no children of what it has handed over."""
    back: bool = True
    """A version without H that has taken a shard gives H back, with its first commit."""
    carries: bool = True
    """What is given back carries that the next change is done by half."""
    waits: bool = True
    """H's consumer waits until the app has parked nothing of H, before it does what it got back."""
    checks: bool = True
    """H's lister makes a root's cursor only IF the app's is there, and not joined."""
    anew: bool = True
    """What ends the join asks that no version without H has begun since all was seen joined."""
    raised: bool = True
    """It counts no shard as joined that a version without H has taken, and may still give back."""
    born: bool = True
    """A root that the app finds is joined from its birth."""
    absent: bool = True
    """And it is only IF H's consumer has no cursor of it."""
    leaves: bool = True
    """A finished shard whose children are not known yet counts as open."""


@dataclass(frozen=True)
class Bound:
    """How many changes a shard and its child have, and how often what happens.

    `root` says that a root is found late. Each of `own_parks`, `app_parks` lets H's consumer or the
    app park a change; `halves` is how many changes take two commits.
    """

    lengths: tuple[int, int] = (2, 1)
    takes: int = 1
    older: int = 0
    own_parks: int = 0
    app_parks: int = 0
    halves: int = 0
    root: bool = False


BOUNDS = {
    "changes hands": Bound(takes=2),
    "parked": Bound(own_parks=1, app_parks=1),
    "an older version": Bound(older=1, takes=2, app_parks=1),
    "by half": Bound(older=1, halves=1),
    "a late root": Bound((1, 1), root=True),
}
if LARGE:
    BOUNDS |= {
        "longer": Bound((3, 2), takes=3, own_parks=1),
        "two older versions": Bound(older=2, takes=3, own_parks=1, app_parks=1, halves=1),
        "a late root and an older version": Bound((1, 1), older=1, takes=2, root=True),
    }

Step = tuple[Any, ...]


class Model:
    """All that may happen next in a world, by rules, within a bound."""

    def __init__(self, rules: Rules = Rules(), bound: Bound = Bound()) -> None:
        self.rules, self.bound = rules, bound
        parent, child = bound.lengths
        self.begins = (0, parent, 100)
        self.last = (parent, parent + child, 101)

    def first(self) -> World:
        """Return the world in which both consumers are at the beginning of the first shard."""
        phase: Literal["apart", "joining"] = "apart" if self.bound.root else "joining"
        return World((AppCursor(0), None, None), (OwnCursor(0), None, None), phase=phase)

    def steps(self, world: World) -> Iterator[tuple[Step, World]]:
        """Yield what may happen next."""
        for shard in (PARENT, CHILD, ROOT):
            cursor, mine = world.app[shard], world.own[shard]
            if cursor is not None and not cursor.finished and "app" not in world.still:
                yield from self.hands(world, shard, cursor)
                if not cursor.asks:
                    yield from self.works(world, shard, cursor)
                    yield from self.joins(world, shard, cursor)
            runs = world.phase != "closed" and "own" not in world.still
            if mine is not None and mine.state == "active" and runs:
                yield from self.catches_up(world, shard, mine)
        for join in world.air:
            yield ("arrives", join), self.arrives(world, join)
            yield ("is lost", join), self.answered(world, join)
        yield from self.lists_shards(world)
        yield from self.ends(world)
        if self.rules.how == "stop" and world.phase == "joining":
            yield from self.stops(world)
        if world.own_queue:  # a person may redrive it while the consumer stands still
            change, *rest = world.own_queue
            yield ("own redrive",), self.does(world._replace(own_queue=tuple(rest)), change)
        if world.app_queue:
            change, *rest = world.app_queue
            yield ("app redrive",), self.does(world._replace(app_queue=tuple(rest)), change)

    # -- the app -----------------------------------------------------------------------------------

    def hands(self, world: World, shard: int, cursor: AppCursor) -> Iterator[tuple[Step, World]]:
        """A worker takes a shard of the app, perhaps one of a version without H."""
        fresh = cursor._replace(epoch=cursor.epoch + 1, saw=None, asks=False)
        if world.takes < self.bound.takes:
            taken = fresh._replace(believes=cursor.joined, older=False)
            yield ("takes", shard), _app(world._replace(takes=world.takes + 1), shard, taken)
        if world.older < self.bound.older and world.phase in ("joining", "joined"):
            half = cursor.half and self.rules.back
            taken = fresh._replace(older=True, half=half, believes=None)
            begun = world._replace(older=world.older + 1)
            if self.rules.anew:  # it begins a generation of its own
                begun = begun._replace(phase="joining")
            yield ("older takes", shard), _app(begun, shard, taken)
        if self.gives(cursor):
            at, half = max(cursor.pos, cursor.joined or 0), cursor.half and self.rules.carries
            behind = self.rules.waits and bool(world.app_queue)
            given = _own(world, shard, OwnCursor(at, half=half, behind=behind))
            rest = cursor._replace(joined=None, half=False)
            yield ("older gives back", shard), _app(given, shard, rest)

    def gives(self, cursor: AppCursor) -> bool:
        """Return whether its owner gives H back, before it commits anything else."""
        return self.rules.back and cursor.older and cursor.joined is not None

    def works(self, world: World, shard: int, cursor: AppCursor) -> Iterator[tuple[Step, World]]:
        """The owner of a shard of the app commits a change, or finishes the shard."""
        if self.gives(cursor):
            return
        joined, mine = cursor.believes, world.own[shard]
        active = mine is not None and mine.state == "active"
        if self.rules.how == "wait" and joined is not None and active and cursor.pos >= joined:
            return
        change = cursor.pos + 1
        if change > self.last[shard]:
            yield from self.finishes(world, shard, cursor)
            return
        mark = cursor.mark if (cursor.mark or 0) > change else None
        moved = cursor._replace(pos=change, saw=None, half=False, mark=mark)
        after = _app(world, shard, moved)
        if joined is None or change <= joined:
            yield ("commits", shard), after
        elif world.app_queue and shard != ROOT:
            queued = after._replace(app_queue=(*world.app_queue, change))
            yield ("queues", shard), queued
        else:
            yield ("commits", shard), self.does(after, change, goes_on=cursor.half)
            if world.parks < self.bound.app_parks and shard != ROOT and not cursor.half:
                parked = after._replace(app_queue=(change,), parks=world.parks + 1)
                yield ("parks", shard), parked
            if world.halves < self.bound.halves and not cursor.half:
                half = _app(world._replace(halves=world.halves + 1), shard, _halved(cursor))
                yield ("begins", shard), half._replace(begun=(*half.begun, change))

    def finishes(self, world: World, shard: int, cursor: AppCursor) -> Iterator[tuple[Step, World]]:
        """The owner finishes a shard, with its child if that is listed."""
        done = _app(world, shard, cursor._replace(finished=True, saw=None))
        yield ("finishes", shard), done
        if shard == PARENT and world.app[CHILD] is None:
            yield ("finishes with its child", shard), self.child(done, cursor)

    def child(self, world: World, parent: AppCursor) -> World:
        """Make the child's cursor: H is the app's from its beginning, if it was in the parent."""
        begins = self.begins[CHILD]
        joined = begins if self.rules.inherits and parent.joined is not None else None
        return _app(world, CHILD, AppCursor(begins, joined=joined, believes=joined))

    def joins(self, world: World, shard: int, cursor: AppCursor) -> Iterator[tuple[Step, World]]:
        """The owner of a shard of the app looks at H's cursor, and asks to take it over."""
        mine, rules = world.own[shard], self.rules
        if cursor.believes is not None or cursor.older or mine is None or mine.state != "active":
            return
        if world.phase == "apart":
            return
        if rules.how in ("barrier", "wait"):
            if rules.how == "barrier" or mine.pos <= cursor.pos:
                set_ = cursor._replace(joined=cursor.pos, believes=cursor.pos)
                yield ("sets the barrier", shard), _app(world, shard, set_)
        elif rules.how == "take over":
            clear = not (rules.clear and world.own_queue and shard != ROOT)
            whole = not (rules.whole and mine.half)
            ahead = mine.pos >= cursor.pos or not rules.ahead
            if cursor.saw is None and clear and whole and ahead:
                yield ("looks", shard), _app(world, shard, cursor._replace(saw=mine))
            if cursor.saw is not None and len(world.air) < 1:
                join = Join(shard, cursor.epoch, cursor.pos, cursor.saw)
                asked = _app(world, shard, cursor._replace(asks=True))
                yield ("asks", shard), asked._replace(air=world.air | {join})

    def arrives(self, world: World, join: Join) -> World:
        """A join reaches the table: both cursors change, or none."""
        cursor, mine, rules = world.app[join.shard], world.own[join.shard], self.rules
        after = self.answered(world, join)
        if cursor is None or cursor.finished or mine is None or mine.state != "active":
            return after
        if rules.lease and cursor.epoch != join.epoch:
            return after
        if rules.position and cursor.pos != join.pos:
            return after
        if rules.fresh and (mine.pos, mine.half) != (join.saw.pos, join.saw.half):
            return after
        heard = cursor.epoch == join.epoch
        upto = join.saw.pos
        joined = cursor._replace(joined=upto, believes=upto if heard else cursor.believes)
        after = _app(after, join.shard, joined._replace(asks=False, saw=None))
        handed = mine._replace(state="handed over") if rules.ends else mine
        return _own(after, join.shard, handed)

    def answered(self, world: World, join: Join) -> World:
        """A join is not under way any more; its owner looks again."""
        cursor, after = world.app[join.shard], world._replace(air=world.air - {join})
        if cursor is None or not cursor.asks or cursor.epoch != join.epoch:
            return after
        return _app(after, join.shard, cursor._replace(asks=False, saw=None))

    # -- the command -------------------------------------------------------------------------------

    def stops(self, world: World) -> Iterator[tuple[Step, World]]:
        """A command stops the consumers, looks, and decides; a worker of the app may begin."""
        goes_on = [who for who in ("own", "app") if who in self.rules.stands - world.still]
        if goes_on:
            stopped = world._replace(still=world.still | {goes_on[0]}, begun_anew=False)
            stopped = stopped._replace(lives=True)
            yield (f"command stops {goes_on[0]}",), stopped
        elif world.looked is None and self.fits(world):
            yield ("command looks",), world._replace(looked=world.own, lives=True)
        elif world.looked is None:
            yield ("command gives up",), self.goes_on(world)
        if world.looked is not None and not world.marked:
            yield ("command marks",), self.marks(world, world.looked)
        if world.marked:
            yield ("command decides",), self.decides(world)
        if world.looked is not None or world.begun_anew:
            yield ("command dies",), self.goes_on(world)._replace(still=world.still)
        if world.begun_anew:
            yield ("command gives up",), self.goes_on(world)
        if "app" in world.still and world.takes < self.bound.takes:
            begun = world._replace(still=world.still - {"app"}, takes=world.takes + 1)
            begun = begun._replace(begun_anew=world.lives)
            outdated = begun._replace(looked=None, marked=False)
            yield ("worker begins",), outdated if self.rules.asked else begun

    def goes_on(self, world: World) -> World:
        """Both consumers go on as they were."""
        after = world._replace(still=frozenset(), looked=None, marked=False)
        return after._replace(begun_anew=False, lives=False)

    def fits(self, world: World) -> bool:
        """Return whether H may be taken over where both consumers stand."""
        if world.own_queue and self.rules.clear:
            return False
        for shard, (cursor, mine) in enumerate(zip(world.app, world.own, strict=True)):
            here = cursor is not None and not cursor.finished
            there = mine is not None and mine.state == "active"
            unknown = shard != ROOT and (cursor is None) != (mine is None) and self.rules.known
            if (here != there and self.rules.same) or unknown:
                return False
            if not here or mine is None or cursor is None:
                continue
            if (mine.half and self.rules.whole) or (mine.pos < cursor.pos and self.rules.ahead):
                return False
        return True

    def marks(self, world: World, looked: tuple[OwnCursor | None, ...]) -> World:
        """Each open cursor of the app says up to where H is done, if it is not where the app is."""
        after = world._replace(marked=True)
        for shard, (cursor, mine) in enumerate(zip(world.app, looked, strict=True)):
            kept = not self.rules.marks and cursor is not None and cursor.mark is not None
            if cursor is not None and not cursor.finished and mine is not None and not kept:
                is_there = mine.pos in (self.begins[shard], cursor.pos)
                mark = None if is_there else mine.pos
                after = _app(after, shard, cursor._replace(mark=mark))
        return after

    def decides(self, world: World) -> World:
        """The app runs H from its marks on; H's consumer never runs again."""
        after = self.goes_on(world)._replace(phase="joined", still=frozenset({"own"}))
        for shard, cursor in enumerate(world.app):
            if cursor is not None:
                upto = cursor.pos if cursor.mark is None else cursor.mark
                after = _app(after, shard, cursor._replace(joined=upto, believes=upto))
        return after

    # -- H's consumer ------------------------------------------------------------------------------

    def catches_up(self, world: World, shard: int, mine: OwnCursor) -> Iterator[tuple[Step, World]]:
        """The owner of H's cursor does a change, finishes the shard, or hands it over."""
        cursor, rules = world.app[shard], self.rules
        barrier = cursor.joined if cursor and rules.how in ("barrier", "wait") else None
        if barrier is not None and mine.pos >= barrier:
            yield ("own ends", shard), _own(world, shard, mine._replace(state="handed over"))
            return
        free = not (world.own_queue or mine.half)
        pushes = cursor and not cursor.finished and cursor.joined is None and free
        if rules.how == "push" and cursor and pushes and mine.pos >= cursor.pos:
            told = mine.pos if rules.told else cursor.believes
            pushed = _app(world, shard, cursor._replace(joined=mine.pos, believes=told))
            yield ("own pushes", shard), _own(pushed, shard, mine._replace(state="handed over"))
        if mine.behind:
            if not world.app_queue:
                yield ("own goes on", shard), _own(world, shard, mine._replace(behind=False))
            return
        change = mine.pos + 1
        if change > self.last[shard]:
            yield ("own finishes", shard), _own(world, shard, mine._replace(state="finished"))
            return
        after = _own(world, shard, mine._replace(pos=change, half=False))
        if world.own_queue and shard != ROOT:
            queued = after._replace(own_queue=(*world.own_queue, change))
            yield ("own queues", shard), queued
            return
        yield ("own commits", shard), self.does(after, change, goes_on=mine.half)
        if world.parks < self.bound.own_parks and shard != ROOT and not mine.half:
            parked = after._replace(own_queue=(change,), parks=world.parks + 1)
            yield ("own parks", shard), parked
        if world.halves < self.bound.halves and not mine.half:
            half = _own(world._replace(halves=world.halves + 1), shard, mine._replace(half=True))
            yield ("own begins", shard), half._replace(begun=(*half.begun, change))

    def does(self, world: World, change: int, *, goes_on: bool = False) -> World:
        """H does a change; unless it goes on with a half, all of it."""
        item = int(change > self.begins[ROOT])
        begun = world.begun if goes_on or change not in world.begun else (*world.begun, change)
        did = (*world.did[item], change)
        return world._replace(did=_put(world.did, item, did), begun=begun)

    # -- listers, and the end ----------------------------------------------------------------------

    def lists_shards(self, world: World) -> Iterator[tuple[Step, World]]:
        """A lister makes the cursor of a child or of a root."""
        parent, mine = world.app[PARENT], world.own[PARENT]
        there = parent is not None and parent.finished and "app" not in world.still
        if there and parent is not None and world.app[CHILD] is None:
            yield ("lists", CHILD), self.child(world, parent)
        makes = mine is not None and (
            mine.state == "finished" or (mine.state == "handed over" and not self.rules.stops)
        )
        if makes and world.own[CHILD] is None and "own" not in world.still:
            yield ("own lists", CHILD), _own(world, CHILD, OwnCursor(self.begins[CHILD]))
        if not self.bound.root:
            return
        begins, root, theirs = self.begins[ROOT], world.app[ROOT], world.own[ROOT]
        knows = world.phase != "apart"
        if root is None:
            born = knows and self.rules.born and (theirs is None or not self.rules.absent)
            joined = begins if born else None
            made = AppCursor(begins, joined=joined, believes=joined)
            yield ("lists", ROOT), _app(world, ROOT, made)
        allowed = (root is not None and root.joined is None) or not (knows and self.rules.checks)
        if allowed and theirs is None and world.phase != "closed":
            yield ("own lists", ROOT), _own(world, ROOT, OwnCursor(begins))

    def ends(self, world: World) -> Iterator[tuple[Step, World]]:
        """Both consumers hear of the join; in the end H's is closed, whatever was seen before."""
        if not self.bound.root or self.rules.how == "stop":
            return
        if world.phase == "apart":
            yield ("begins",), world._replace(phase="joining")
        if world.phase == "joining" and self.all_joined(world):
            yield ("sees all joined",), world._replace(phase="joined")
        if world.phase == "joined":
            yield ("closes",), world._replace(phase="closed")

    def all_joined(self, world: World) -> bool:
        """Return whether the app runs H in every open shard, and H's own consumer does nothing."""
        for shard, cursor in enumerate(world.app):
            leaf = self.rules.leaves and (shard != PARENT or world.app[CHILD] is None)
            if cursor is not None and cursor.older and self.rules.raised and not cursor.finished:
                return False
            if cursor is not None and cursor.joined is None and (leaf or not cursor.finished):
                return False
        busy = any(c is not None and c.state == "active" for c in world.own)
        return not busy and not world.own_queue

    # -- what must hold ----------------------------------------------------------------------------

    def wrong(self, world: World) -> Iterator[str]:
        """Yield what does not hold."""
        twice = any(len(set(did)) < len(did) for did in world.did)
        if twice or len(set(world.begun)) < len(world.begun):
            yield "twice"
        for begins, did in zip((0, self.begins[ROOT]), world.did, strict=True):
            if any(change > place for place, change in enumerate(did, begins + 1)):
                yield "missed"

    def seen(self, world: World) -> bool:
        """Return whether H has done every change."""
        root = (self.last[ROOT],) if self.bound.root else ()
        return world.did == (tuple(range(1, self.last[CHILD] + 1)), root)


def helps(step: Step) -> bool:
    """Return whether a step happens without a fault, and without a version without H."""
    return step[0] not in ("takes", "older takes", "is lost", "parks", "own parks")


def of_the_app(step: Step) -> bool:
    """Return whether a step happens without H's consumer."""
    return helps(step) and not step[0].startswith("own")


def flows(world: World) -> bool:
    """Return whether the app has finished the first shard."""
    cursor = world.app[PARENT]
    return cursor is not None and cursor.finished


def _halved(cursor: AppCursor) -> AppCursor:
    return cursor._replace(half=True, saw=None)


def _app(world: World, shard: int, cursor: AppCursor) -> World:
    return world._replace(app=_put(world.app, shard, cursor))


def _own(world: World, shard: int, cursor: OwnCursor) -> World:
    return world._replace(own=_put(world.own, shard, cursor))


def _put(values: Any, place: int, value: object) -> Any:
    return (*values[:place], value, *values[place + 1 :])


NAIVE: dict[str, tuple[Rules, Bound, str]] = {
    "the app's owner does not notice a push": (Rules(how="push", told=False), Bound(), "missed"),
    "H may be behind": (Rules(ahead=False), Bound(), "missed"),
    "H's cursor may have moved": (Rules(fresh=False), Bound(), "twice"),
    "a join of an owner before": (Rules(lease=False), Bound(), "missed"),
    "H's consumer goes on": (Rules(ends=False), Bound(), "twice"),
    "parked changes are not looked at": (Rules(clear=False), Bound(own_parks=1), "missed"),
    "a half is not looked at": (Rules(whole=False), Bound(halves=1), "twice"),
    "handed over is finished": (Rules(stops=False), Bound(), "twice"),
    "a barrier": (Rules(how="barrier"), Bound(), "missed"),
    "a version without H leaves a gap": (Rules(back=False), Bound(older=1), "missed"),
    "a half is not given back": (Rules(carries=False), Bound(older=1, halves=1), "twice"),
    "what is given back overtakes": (
        Rules(waits=False),
        Bound(older=1, app_parks=1),
        "missed",
    ),
    "the app goes on while it stands still": (
        Rules(how="stop", stands=frozenset({"own"})),
        Bound(),
        "missed",
    ),
    "H's consumer goes on while it stands still": (
        Rules(how="stop", stands=frozenset({"app"})),
        Bound(),
        "twice",
    ),
    "marks of a command before": (Rules(how="stop", marks=False), Bound(), "twice"),
    "a worker begins, and it decides": (Rules(how="stop", asked=False), Bound(), "missed"),
    "H is in a child": (Rules(how="stop", same=False, known=False), Bound(), "twice"),
    "H has finished a child": (Rules(how="stop", known=False), Bound(), "twice"),
    "H stands still behind the app": (Rules(how="stop", ahead=False), Bound(), "missed"),
    "H stands still with parked changes": (
        Rules(how="stop", clear=False),
        Bound(own_parks=1),
        "missed",
    ),
    "H stands still in a half": (Rules(how="stop", whole=False), Bound(halves=1), "twice"),
    "a root is made without asking": (Rules(checks=False), Bound((1, 0), root=True), "twice"),
    "a root that H has is the app's": (Rules(absent=False), Bound((1, 0), root=True), "twice"),
}
"""Rules that look simpler, and what each breaks."""

SAFE = {
    "H's consumer pushes, and the owner notices": Rules(how="push"),
    "the lease without the position": Rules(position=False),
}
"""Rules that are as good."""

UNSEEN: dict[str, tuple[Rules, Bound]] = {
    "a child inherits nothing": (Rules(inherits=False), Bound()),
    "closed although a version without H has begun": (
        Rules(anew=False),
        Bound((1, 0), older=1, root=True),
    ),
    "closed before a shard is given back": (
        Rules(raised=False),
        Bound((1, 0), older=1, root=True),
    ),
    "closed before a root is found": (Rules(born=False), Bound((1, 0), root=True)),
    "closed before children are listed": (Rules(leaves=False), Bound((1, 1), root=True)),
}
"""Rules under which H never does some change."""

STANDS_STILL = Rules(how="wait")
"""A rule under which the app waits for H's consumer."""
