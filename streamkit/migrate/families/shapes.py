"""See both sides of a family in the new shape, and make the items of one side of the other. Pure.

In: items as they are stored. Out: their fields and digests, and items with what was carried. What
follows from other fields, the keys of indexes, is no field: it is computed again. On failure: any
error of the migration's functions, or `TransformError` for an impossible result.
"""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import replace
from decimal import Decimal

from streamkit.core.matching import Matcher
from streamkit.entity import Entity, attribute_names
from streamkit.migrate.families.settlement import OLD, THERE, Field, counter, digest
from streamkit.migrate.items.counters import Counters, added
from streamkit.migrate.items.reverse import EMPTY, Reverse
from streamkit.migrate.items.rewrites import (
    ITEMS_MAX,
    FamilyTooLarge,
    Items,
    Rewrite,
    Target,
    TransformError,
    WireItem,
    plain,
    visible,
    wire,
)
from streamkit.migrate.items.transform import Transform
from streamkit.progress.scan.places import place_text
from streamkit.stream.decode import ImageDecoder


class BothShapes:
    """The two shapes of what one migration moves.

    `is_merge`: a family has several old items. `mirrors`: old items can take up what new code
    writes.
    """

    def __init__(self, transform: Transform) -> None:
        self.transform = transform
        self.reverse = Reverse(transform)
        migration, schema = transform.migration, transform.target
        self.is_split, self.is_merge = migration.mode == "split", migration.mode == "merge"
        self.mirrors = migration.reverse is not None
        self._makes = [
            (Matcher(one, schema, ()), ImageDecoder(one, schema)) for one in migration.makes
        ]
        self.settle, self.counters = migration.settle, Counters(migration)
        known = {name for one in migration.makes for name in attribute_names(one).values()}
        olds = (attribute_names(one).values() for one in migration.sources)
        self.names = frozenset(known.union(*olds))
        types = {schema.type_attribute} if schema.type_attribute is not None else set[str]()
        followed = schema.reserved_attributes - known - types if migration.makes else frozenset()
        self._no_fields = followed | schema.key_attributes
        self._rewritten: tuple[Items, dict[str, Target]] = {}, {}

    def rewrite(self, old: Items) -> Rewrite:
        """Return what the migration makes of old items."""
        there = [one for one in old.values() if one]
        return self.transform.of_several(there) if there else Rewrite(frozenset())

    def targets(self, old: Items) -> dict[str, Target]:
        """Return the new items that follow from old ones, by their places."""
        if old != self._rewritten[0]:  # one look at a family asks several times
            targets = {place_text(target.key): target for target in self.rewrite(old).targets}
            self.counters.require_carried(old.values(), (one.item for one in targets.values()))
            self._rewritten = old, targets
        return self._rewritten[1]

    # -- fields --------------------------------------------------------------------------------

    def view(self, items: Items) -> dict[Field, str]:
        """Return the digests of the fields of new items."""
        found: dict[Field, str] = {}
        for place, item in items.items():
            if item is None:
                continue
            found[place, THERE] = "+"
            own = {n: v for n, v in visible(item).items() if n not in self._no_fields}
            for name, value in plain(own).items():
                counts = name in self.counters.olds and "N" in item[name]
                found[place, name] = counter(value) if counts else digest(value)
        return found

    def view_of_old(self, old: Items) -> dict[Field, str]:
        """Return the digests of the fields of old items, in the new shape.

        Of several items each one that is there has a field, too, so that its delete is seen.
        """
        targets = self.targets(old)
        return self.view_of(targets) | (self.known(old) if targets else {})

    def view_of(self, targets: Mapping[str, Target]) -> dict[Field, str]:
        """Return the digests of the fields of what is to be."""
        return self.view({place: one.item for place, one in targets.items()})

    def with_defaults(self, items: Items) -> dict[Field, str]:
        """Return the digests of new items as their entities read them.

        `reverse=` has seen a default where a field is left out, so old items have it.
        """
        read = {place: self._entity(one) for place, one in items.items() if one is not None}
        schema = self.transform.target
        return self.view(
            {p: None if one is None else one.attributes(schema) for p, one in read.items()}
        )

    def known(self, old: Items) -> dict[Field, str]:
        """Return which of several old items are there, as fields."""
        return places_there(old) if self.is_merge else {}

    def spared(self, old: Items, lost: AbstractSet[str], new: Items = EMPTY) -> frozenset[Field]:
        """Return the fields that follow from old items that are there, and from none that is lost.

        A field follows from an item if it would be different without that item. One that only `new`
        items have follows from those into which `reverse=` puts it; it may be none.
        """
        if not lost or not self.is_merge:
            return frozenset()
        whole = self.view_of(self.targets(old)).items()

        def of(place: str) -> set[Field]:
            rest = self.view_of(self.targets({**old, place: None}))
            return {name for name, _ in whole ^ rest.items()}

        there = {place for place, one in old.items() if one}
        kept, mixed = (set[Field]().union(*map(of, at)) for at in (there - lost, there & lost))
        more = self.view(new).keys() - dict(whole).keys() if whole else ()
        kept |= {one for one in more if not self._leads(new, one, {*old}) & lost}
        return frozenset(kept - mixed)

    def _leads(self, new: Items, name: Field, places: set[str]) -> set[str]:
        """Return the places of the old items into which `reverse=` puts a field of a new one.

        If it raises, that may be any of them.
        """
        item = new[name[0]] or {}
        rest = {n: v for n, v in item.items() if n != name[1]}
        with suppress(Exception):  # of the user's function
            one, other = self.reverse.sources(item), self.reverse.sources(rest)
            return {p for p in one.keys() | other.keys() if one.get(p) != other.get(p)}
        return places

    def says(self, item: WireItem, *, new: bool) -> dict[str, dict[str, str]]:
        """Return the attributes of an item that is more than a stub."""
        schema = self.transform.target if new else self.transform.schema
        return {n: v for n, v in visible(item).items() if n not in schema.key_attributes}

    # -- items ---------------------------------------------------------------------------------

    def new_items(
        self,
        there: Items,
        targets: Mapping[str, Target],
        names: AbstractSet[Field],
        counted: Mapping[Field, Decimal],
    ) -> dict[str, WireItem | None]:
        """Return new items that take up fields of their old ones, and what these have counted.

        Raises:
            FamilyTooLarge: one transaction does not hold them.
        """
        found = {}
        for place in sorted(there.keys() | targets.keys()):
            own = {name for at, name in names if at == place}
            more = {name: one for (at, name), one in counted.items() if at == place}
            item, target = there.get(place), targets.get(place)
            if target is not None and more:
                sums = {name: added((item or {}).get(name), one) for name, one in more.items()}
                target = replace(target, item={**target.item, **sums})
            found[place] = self.new_item(item, target, own)
        if len(found) >= ITEMS_MAX:
            raise FamilyTooLarge(len(found))
        return found

    def new_item(
        self, there: WireItem | None, target: Target | None, names: AbstractSet[str]
    ) -> WireItem | None:
        """Return a new item that takes up fields of its target; None if it goes."""
        if not names:
            return there
        if target is None:
            # Both sides may have deleted it while they did not agree on a field.
            if there is None or THERE in names:
                return None
            return {n: v for n, v in there.items() if n not in names}
        if there is None:
            return target.item
        after = {n: v for n, v in there.items() if n not in names}
        after |= {n: v for n, v in target.item.items() if n in names}
        return self._with_what_follows(after)

    def _with_what_follows(self, item: WireItem) -> WireItem:
        """Return an item with the keys of indexes that follow from its fields."""
        entity = self._entity(item)
        if entity is None:
            return item
        schema = self.transform.target
        follows = self._no_fields - schema.key_attributes
        kept = {n: v for n, v in item.items() if n not in follows}
        built = entity.attributes(schema)
        return kept | {n: v for n, v in built.items() if n in follows}

    def _entity(self, item: WireItem) -> Entity | None:
        for matcher, decoder in self._makes:
            if matcher.matches(item):
                found: Entity = decoder.decode_item(visible(item))
                return found
        return None

    def old_items(self, old: Items, seen: Sequence[WireItem], now: Sequence[WireItem]) -> Items:
        """Return old items that take up what was written to their new ones; None where one goes.

        The new items were `seen` as they follow from the old ones, and are to be as they are `now`.

        Raises:
            TransformError: what `reverse=` makes has another key.
        """
        if self.is_split:
            found = {place: one and self._whole_again(one, now) for place, one in old.items()}
            self.counters.require_carried(found.values(), now)
            return found
        if not now:
            return dict.fromkeys(old)
        after = self.reverse.sources(now[0], old)
        before = self.reverse.sources(seen[0], old) if seen else {}
        self.counters.require_carried(after.values(), now)
        if not after.keys() <= old.keys():
            raise TransformError("reverse= leads from the new item to another old key")
        return {p: _changed(one, before.get(p), after.get(p)) for p, one in old.items()}

    def _whole_again(self, old: WireItem, parts: Sequence[WireItem]) -> WireItem:
        """Return an old item with what its parts make of it."""
        transform = self.transform
        reverse = transform.migration.reverse
        assert reverse is not None  # noqa: S101 - without it nothing is carried back
        result = reverse(transform.entity(old), [self.reverse.entity(part) for part in parts])
        return rewritten(old, transform.interpret(result, plain(visible(old)), frozenset()))


def places_there(old: Items) -> dict[Field, str]:
    """Return which old items are there, as fields."""
    return {(OLD, place): "+" for place, one in old.items() if one}


def _changed(
    item: WireItem | None, before: WireItem | None, after: WireItem | None
) -> WireItem | None:
    """Return an item with the changes from `before`, which it has taken up already, to `after`."""
    if before == after:
        return item
    if item is None or after is None:
        return after
    changed = {n: v for n, v in after.items() if (before or {}).get(n) != v}
    gone = (before or {}).keys() - after.keys()
    return {n: v for n, v in item.items() if n not in gone} | changed


def rewritten(item: WireItem, rewrite: Rewrite) -> WireItem:
    """Return an item as a rewrite leaves it."""
    kept = {name: value for name, value in item.items() if name not in rewrite.removes}
    return kept | wire(rewrite.sets)
