"""See both sides of a family in the new shape, and make the items of one side of the other. Pure.

In: items as they are stored. Out: their fields and digests, and items with what was carried. What
follows from other fields, the keys of indexes, is no field: it is computed anew. On failure: any
error of the migration's functions, or `TransformError` for an impossible result.
"""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet

from streamkit.core.matching import Matcher
from streamkit.entity import Entity, attribute_names
from streamkit.migrate.reverse import Reverse
from streamkit.migrate.settlement import THERE, Field, digest
from streamkit.migrate.transform import (
    Rewrite,
    Target,
    Transform,
    TransformError,
    plain,
    visible,
    wire,
)
from streamkit.migrate.writes import Key, WireItem
from streamkit.progress.scan.places import place_text
from streamkit.stream.decode import ImageDecoder

Items = Mapping[str, WireItem | None]
"""New items by their places; None where nothing is."""


class BothShapes:
    """The two shapes of what one migration moves."""

    def __init__(self, transform: Transform) -> None:
        self.transform = transform
        self.reverse = Reverse(transform)
        migration, schema = transform.migration, transform.target
        self.is_split = migration.mode == "split"
        self._makes = [
            (Matcher(one, schema, ()), ImageDecoder(one, schema)) for one in migration.makes
        ]
        known = {name for one in migration.makes for name in attribute_names(one).values()}
        self.names = frozenset(known | {*attribute_names(migration.entity).values()})
        types = {schema.type_attribute} if schema.type_attribute is not None else set[str]()
        followed = schema.reserved_attributes - known - types if migration.makes else frozenset()
        self._no_fields = followed | schema.key_attributes

    @property
    def mirrors(self) -> bool:
        """Whether old items can take up what new code writes."""
        return self.transform.migration.reverse is not None

    def key(self, item: WireItem) -> dict[str, dict[str, str]]:
        """Return the key of an old item."""
        return {name: item[name] for name in self.transform.schema.key_attributes}

    def rewrite(self, old: WireItem | None) -> Rewrite:
        """Return what the migration makes of an old item."""
        return self.transform.of(plain(visible(old))) if old else Rewrite(frozenset())

    def targets(self, old: WireItem | None) -> dict[str, Target]:
        """Return the new items that follow from an old one, by their places."""
        return {place_text(target.key): target for target in self.rewrite(old).targets}

    # -- fields --------------------------------------------------------------------------------

    def view(self, items: Mapping[str, WireItem | None]) -> dict[Field, str]:
        """Return the digests of the fields of new items."""
        found: dict[Field, str] = {}
        for place, item in items.items():
            if item is None:
                continue
            found[place, THERE] = "+"
            for name, value in plain(visible(item)).items():
                if name not in self._no_fields:
                    found[place, name] = digest(value)
        return found

    def view_of_old(self, old: WireItem | None) -> dict[Field, str]:
        """Return the digests of the fields of an old item, in the new shape."""
        return self.view({place: one.item for place, one in self.targets(old).items()})

    def says(self, item: WireItem, *, new: bool) -> dict[str, dict[str, str]]:
        """Return the attributes of an item that is more than a stub."""
        schema = self.transform.target if new else self.transform.schema
        return {n: v for n, v in visible(item).items() if n not in schema.key_attributes}

    # -- items ---------------------------------------------------------------------------------

    def new_item(
        self, there: WireItem | None, target: Target | None, names: AbstractSet[str]
    ) -> WireItem | None:
        """Return a new item that takes up fields of its old one; None if it goes.

        Args:
            there: the item as it is.
            target: what follows from the old item.
            names: the fields that are taken up.
        """
        if not names:
            return there
        if target is None:
            if THERE in names:
                return None
            return {n: v for n, v in (there or {}).items() if n not in names}
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

    def old_item(
        self, key: Key, old: WireItem | None, seen: Sequence[WireItem], now: Sequence[WireItem]
    ) -> WireItem | None:
        """Return an old item that takes up what was written to its new ones; None if it goes.

        Args:
            key: the key of the old item.
            old: the item as it is.
            seen: the new items as they follow from it.
            now: the new items as they are to be.

        Raises:
            TransformError: what `reverse=` makes has another key.
        """
        if self.is_split:
            return None if old is None else self._whole_again(old, now)
        if not now:
            return None
        after = self.reverse.source(now[0])
        if {name: after[name] for name in key} != dict(key):
            raise TransformError("reverse= leads from the new item to another old key")
        if old is None:
            return after
        before = self.reverse.source(seen[0]) if seen else {}
        changed = {n: v for n, v in after.items() if before.get(n) != v}
        gone = before.keys() - after.keys()
        return {n: v for n, v in old.items() if n not in gone} | changed

    def _whole_again(self, old: WireItem, parts: Sequence[WireItem]) -> WireItem:
        """Return an old item with what its parts make of it."""
        transform = self.transform
        reverse = transform.migration.reverse
        assert reverse is not None  # noqa: S101 - nobody comes here without
        result = reverse(transform.entity(old), [self.reverse.entity(part) for part in parts])
        return rewritten(old, transform.interpret(result, plain(visible(old)), frozenset()))


def rewritten(item: WireItem, rewrite: Rewrite) -> WireItem:
    """Return an item as a rewrite leaves it."""
    kept = {name: value for name, value in item.items() if name not in rewrite.removes}
    return kept | wire(rewrite.sets)
