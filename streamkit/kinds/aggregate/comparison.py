"""Compare an aggregate's groups with what their items add up to.

In: the aggregate, its table, and a wait until its consumer has caught up. Out: which groups differ,
and which could not be judged. The source is read completely and added up. A difference from what is
stored may only mean that one was read later than the other, or that the consumer is behind. So a
difference counts only if it was there before, and then, twice in a row,

    the group is read, then its items; the consumer has processed all that was written until then;
    both are read again, none of them has changed, and they differ as they did.

On failure: a consumer that does not catch up, a group that keeps changing and one whose parked
changes will be retried leave their differences unsettled.
"""

from collections.abc import AsyncIterator, Callable, Collection, Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

from streamkit.entity import Entity
from streamkit.errors import USER_ERRORS, DecodeError
from streamkit.fleet.catching_up import CatchUp
from streamkit.kinds.aggregate.aggregate import Aggregate, fields_read, source_of, stored_as
from streamkit.kinds.aggregate.ranked import has_members, members_of
from streamkit.kinds.aggregate.recount import Facts, Place, Recount, differing, stored_facts
from streamkit.model.codec import key_text
from streamkit.model.copies import COPY
from streamkit.model.keys import Key
from streamkit.model.parts import without_suffix
from streamkit.progress.pacing import Turn
from streamkit.progress.scan.pages import Reply, ScanPages
from streamkit.progress.scan.places import strided
from streamkit.progress.scan.segment import Segment
from streamkit.table import Table

_RESTS = 2
"""Looks in a row that must agree: values that change back and forth may look equal by chance."""
_QUERIES_MAX = 50
"""Groups that are looked at again one by one; for more groups the source is read again."""

Image = dict[str, Any]
"""An item in wire form."""


@dataclass(frozen=True, slots=True)
class GroupDifference:
    """One attribute of one group that is not what the group's items say.

    Its values are amounts, or the entries of an extreme as `[value, partition key, sort key]`; None
    is nothing.
    """

    pk: str
    sk: str
    attribute: str
    stored: Any
    expected: Any


@dataclass(frozen=True, slots=True)
class Verification:
    """The result; `different` is wrong; `unsettled` could not be judged, and may be right.

    `items` of the source were read; the `unreadable` do not fit it, or cannot be added up, and are
    left out, because their changes are parked. `behind`: the consumer had not processed in time
    what was written before the last look. `repaired` counts groups that were wrong before a repair.
    """

    aggregate: str
    groups: int
    items: int
    unreadable: int
    different: tuple[GroupDifference, ...]
    unsettled: tuple[GroupDifference, ...]
    parked: int
    behind: bool
    looks: int
    repaired: int = 0

    @property
    def ok(self) -> bool:
        """Whether nothing was found to be wrong, and no item had to be left out."""
        return not (self.different or self.unreadable)

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON types; amounts are numbers as text."""
        return {"ok": self.ok, **asdict(self)}


@dataclass
class GroupComparison:
    """Compares one aggregate's groups; `doubtful` are those that differed at the last look."""

    aggregate: type[Aggregate[Any]]
    table: Table
    catch_up: CatchUp
    horizon: float
    pages: ScanPages
    segments: int
    turn: Turn
    groups: int = 0
    items: int = 0
    unreadable: int = 0
    looks: int = 0
    behind: bool = False
    doubtful: dict[Place, tuple[Facts, Facts]] = field(default_factory=dict)
    _sure: set[Place] = field(default_factory=set)
    _rests: dict[Place, int] = field(default_factory=dict)
    _keys: dict[Place, Key[Any]] = field(default_factory=dict)

    async def run(self, looks: int) -> None:
        """Compare everything, and look again at what differs until it is settled."""
        first = await self._expected(None)
        self.behind = not await self.catch_up.with_all_until_now()
        expected = first.facts()
        stored = await self._all_stored()
        self.groups = len(expected.keys() | stored.keys())
        for place in self._comparable(expected, stored):
            pair = stored.get(place, {}), expected.get(place, {})
            if differing(*pair):
                self.doubtful[place] = pair
        while self._open() and self.looks < looks and not self.behind:
            self.looks += 1
            await self._look(self._open())

    def report(self, parked: int, *, retried: bool) -> Verification:
        """Return what was found; parked changes that are retried may still correct a difference."""
        found: dict[bool, list[GroupDifference]] = {True: [], False: []}
        for place, (stored, expected) in sorted(self.doubtful.items()):
            sure = place in self._sure and not retried
            found[sure] += _differences(place, stored, expected)
        return Verification(
            aggregate=self.aggregate.__name__,
            groups=self.groups,
            items=self.items,
            unreadable=self.unreadable,
            different=tuple(found[True]),
            unsettled=tuple(found[False]),
            parked=parked,
            behind=self.behind,
            looks=self.looks,
        )

    # -- comparing -----------------------------------------------------------------------------

    def _open(self) -> list[Place]:
        return [place for place in self.doubtful if place not in self._sure]

    async def _look(self, places: list[Place]) -> None:
        """Drop groups that agree; settle those that differed in the same way, at rest, twice."""
        held = await self._stored(places)
        before = await self._expected(places)
        self.behind = not await self.catch_up.with_all_until_now()
        if self.behind:
            return
        stored = await self._stored(places)
        after = await self._expected(places)
        expected = after.facts()
        for place in places:
            pair = self._facts(stored[place]), expected.get(place, {})
            if not differing(*pair):
                del self.doubtful[place]
                continue
            same = pair == self.doubtful[place] and held[place] == stored[place]
            at_rest = before.marks.get(place) == after.marks.get(place)
            self._rests[place] = self._rests.get(place, 0) + 1 if same and at_rest else 0
            self.doubtful[place] = pair
            if self._rests[place] >= _RESTS:
                self._sure.add(place)

    def _comparable(
        self, expected: dict[Place, Facts], stored: dict[Place, Facts]
    ) -> Collection[Place]:
        """Return the groups to compare: with `missing="skip"`, no missing item of `onto=`."""
        options = self.aggregate.__options__
        if options.onto is None or options.missing != "skip":
            return expected.keys() | stored.keys()
        return stored.keys()

    # -- reading -------------------------------------------------------------------------------

    async def _expected(self, places: Collection[Place] | None) -> Recount:
        """Add up what groups should hold: those at these places, or all."""
        recount = Recount(self.aggregate, self.table.schema, self.horizon, places)
        first, source = places is None, source_of(self.aggregate)
        fields = fields_read(self.aggregate)

        def add(item: Entity) -> None:
            try:
                recount.add(item)
            except USER_ERRORS:  # the app's code raises the same at a change
                self.unreadable += first

        def read(raw: Image) -> None:
            try:
                item = self.table.entity_of(source, raw, fields)
            except DecodeError:
                self.unreadable += first
                return
            self.items += first
            add(item)

        keys = [self._keys.get(place) for place in places or ()]
        few = not first and len(keys) <= _QUERIES_MAX and None not in keys
        # A query returns whole entities, but items whose other fields do not fit count, too.
        if few and fields is None and has_members(self.aggregate):
            async for item in self._members(keys):
                add(item)
        else:
            await self._whole(source, read)
        self._keys |= recount.keys
        return recount

    async def _members(self, keys: Iterable[Key[Any] | None]) -> AsyncIterator[Entity]:
        seen: set[Key[Any]] = set()
        for key in keys:
            if key is not None:
                async for item in self.table.query(members_of(self.aggregate, key)):
                    if item.item_key not in seen:  # the partitions of two groups may overlap
                        seen.add(item.item_key)
                        yield item

    async def _whole(self, entity: type[Entity], each: Callable[[Image], object]) -> None:
        """Read the whole table, several segments at once; copies of a migration do not count."""

        async def visit(segment: Segment, reply: Reply) -> None:
            for item in reply["Items"]:
                await self.turn.give_way()
                if COPY not in item and self.table.is_of(entity, item):
                    each(item)
            await segment.advance(reply.get("LastEvaluatedKey"))

        await self.pages.visit_all(strided(self.segments), self.segments, visit)

    async def _all_stored(self) -> dict[Place, Facts]:
        """Return what every group holds, except groups whose time is over."""
        groups: dict[Place, list[Image]] = {}

        def add(item: Image) -> None:
            schema = self.table.schema
            pk, sk = key_text(item[schema.pk]), key_text(item[schema.sk]) if schema.sk else ""
            place = (pk, without_suffix(sk)) if sk else (without_suffix(pk), "")
            groups.setdefault(place, []).append(item)

        await self._whole(stored_as(self.aggregate), add)
        found = {
            place: stored_facts(self.aggregate, self._merged(parts), self.horizon)
            for place, parts in groups.items()
        }
        return {place: facts for place, facts in found.items() if facts is not None}

    async def _stored(self, places: Iterable[Place]) -> dict[Place, list[Image]]:
        """Return the items of groups, one or several parts each."""
        entity = stored_as(self.aggregate)
        return {
            (pk, sk): list((await self.table.parts(Key(entity, pk, sk or None))).values())
            for pk, sk in places
        }

    def _facts(self, parts: list[Image]) -> Facts:
        return stored_facts(self.aggregate, self._merged(parts), self.horizon) or {}

    def _merged(self, parts: list[Image]) -> Image:
        merge = self.aggregate.__parts__
        if merge is not None:
            return merge.merge(parts)
        return parts[0] if parts else {}


def _differences(place: Place, stored: Facts, expected: Facts) -> list[GroupDifference]:
    return [
        GroupDifference(*place, name, stored.get(name), expected.get(name))
        for name in differing(stored, expected)
    ]
