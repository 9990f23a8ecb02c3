"""Compute what a migration makes of one item. Pure.

In: an item as it is stored. Out: a `Rewrite`: which attributes change, which other items are to
exist, and which attributes the function read; nothing changes if the item is as it should be. On
failure: any error of the function, or `TransformError` for an impossible result.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from streamkit.effects import Delete, Effect, Put, Remove, Set
from streamkit.entity import Entity, attribute_names, built_key
from streamkit.kinds.migration import Migration, MigrationOptions
from streamkit.kinds.migration_function import read_migration
from streamkit.migrate.items.rewrites import (
    ITEMS_MAX,
    BadIndexKey,
    FamilyTooLarge,
    Image,
    ItemTooLarge,
    Rewrite,
    Target,
    TransformError,
    WireItem,
    is_oversized,
    is_too_large,
    plain,
    require_one_meaning,
    same,
    visible,
    wire,
)
from streamkit.migrate.items.set_indexes import follow_indexes, key_types
from streamkit.migrate.items.sources import Sources
from streamkit.migrate.items.tracked import TrackedItem
from streamkit.model.codec import decode_item, encode
from streamkit.model.declaration import Declaration, named
from streamkit.model.fields import validate_fields
from streamkit.model.keys import wire_key
from streamkit.model.schema import TableSchema
from streamkit.progress.scan.places import place_text


def reversed_migration(migration: Migration) -> Migration:
    """Return the migration that undoes one in place.

    Raises:
        DeclarationError: its `reverse` does not fit.
    """
    mode = MigrationOptions(mode=migration.mode)
    back = read_migration(migration.id, migration.entity, migration.reverse, mode)
    return replace(back, digest=migration.digest, index=migration.index)


class Transform:
    """One migration on one table; `target` is its targets' schema, `others` the app's entities."""

    def __init__(
        self,
        migration: Migration,
        schema: TableSchema,
        target: TableSchema | None = None,
        others: Iterable[type[Entity]] = (),
    ) -> None:
        self.migration = migration
        self.schema = schema
        self.target = target or schema
        self.sources = Sources(migration, schema, others)
        self.matches, self.entity = self.sources.matches, self.sources.entity
        self._names = attribute_names(migration.entity)
        self._attributes = frozenset(self._names.values())
        self._own = self.sources.own
        self._known = set(self._names) | set(self._names.values())
        self._follow = partial(follow_indexes, migration.entity, self.schema, self.entity)
        self._key_types = key_types(schema)
        self._needed = _needed(migration, self._names) if migration.mode == "split" else frozenset()

    def of(self, image: Image) -> Rewrite:
        """Return what an item becomes.

        Raises:
            TransformError: the result is impossible.
            DecodeError: the item does not fit the entity that the function takes.
            Exception: any error of the function.
        """
        shown = visible(image)
        if self.migration.mode == "merge":
            return self.of_several([wire(shown)])
        return self._of(shown, None)

    def _of(self, shown: Image, item: WireItem | None) -> Rewrite:
        """Return what an item becomes; `item` is the same in wire form, if that is known."""
        result, reads = self._call(shown, item)
        return self.interpret(result, shown, reads | self.schema.key_attributes)

    def of_several(self, items: Sequence[WireItem]) -> Rewrite:
        """Return what those old items of a family that exist become.

        Raises:
            TransformError: the result is impossible.
            DecodeError: an item does not fit its entity.
            Exception: any error of the function.
        """
        if self.migration.mode != "merge":
            (item,) = items
            shown = visible(item)
            return self._of(plain(shown), shown)
        function, merged = self.migration.function, self.migration.merged
        assert function is not None  # noqa: S101 - a mode without one does not come here
        found = {type(one): one for one in map(self.entity, items)}
        result = function(**{name: found.get(one) for name, one in merged.items()})
        rewrite = self.interpret(result, {}, frozenset())
        places = self.sources.places(items[0])
        for target in rewrite.targets:
            if place_text(target.key) in places or self.matches(target.item):
                declared = self.migration.declared
                raise TransformError(f"{declared}: its key is that of an item that it reads")
        carried = [Target(t.key, self.sources.carried(t.item, items)) for t in rewrite.targets]
        return replace(rewrite, targets=tuple(carried))

    # -- calling -------------------------------------------------------------------------------

    def _call(self, shown: Image, item: WireItem | None) -> tuple[Any, frozenset[str]]:
        function = self.migration.function
        assert function is not None  # noqa: S101 - a mode without one does not come here
        if self.migration.takes == "item":
            tracked = TrackedItem(shown)
            result = function(tracked)
            if isinstance(result, Iterator):
                result = list(result)  # what a generator reads counts, too
            return result, frozenset(tracked.read)
        if self.migration.takes == "entity":
            entity = self.entity(wire(shown) if item is None else item)
            return function(entity), self._attributes.union(shown)
        values = self._fields(shown)
        attributes = (attribute for attribute, _ in self.migration.parameters.values())
        return function(**values), frozenset(attributes)

    def _fields(self, shown: Image) -> dict[str, Any]:
        given: dict[str, Any] = {}
        for name, (attribute, required) in self.migration.parameters.items():
            if attribute in shown:
                given[name] = shown[attribute]
            elif required:
                raise TransformError(
                    f"{self.migration.declared}: an item has no {attribute}; give the parameter a"
                    " default if that may be"
                )
        where = f"{self.migration.declared}"
        return validate_fields(self.migration.entity, given, where=where) if given else {}

    # -- reading the result --------------------------------------------------------------------

    def interpret(self, result: Any, shown: Image, reads: frozenset[str]) -> Rewrite:
        """Return what a function's result means for an item without streamkit's attributes.

        Raises:
            TransformError: the result is impossible.
        """
        sets: dict[str, Any] = {}
        removes: set[str] = set()
        targets: list[Target] = []
        delete = False
        parts = _parts(result, self.migration.declared)
        for part in parts:
            before = sets.copy()
            if isinstance(part, Entity | Put):
                entity = part if isinstance(part, Entity) else part.entity
                if self.migration.is_pairs:
                    targets += self._target(entity, shown)
                else:
                    self._reshape(entity, shown, sets, removes)
            elif isinstance(part, Set):
                self._set(part, shown, sets, removes)
            elif isinstance(part, Remove):
                removes |= {self._names.get(name, name) for name in part.names}
            elif isinstance(part, Delete):
                delete = True
            else:
                raise TransformError(
                    f"{self.migration.declared}: a migration returns entities, Set, Remove or"
                    f" Delete, not {named(part)}"
                )
            require_one_meaning(self.migration.declared, before, sets, removes)
        if any(isinstance(part, Set | Remove) for part in parts):
            reads |= self._follow(shown, sets, removes)
        changed = {n: v for n, v in sets.items() if n not in shown or not same(v, shown[n])}
        gone = frozenset(name for name in removes if name in shown)
        if targets and self.migration.mode not in ("split", "derive"):
            reads |= shown.keys()  # a target also carries attributes that its entity does not know
        rewrite = Rewrite(reads, changed, gone, tuple(targets), delete)
        self._check(rewrite, shown)
        return rewrite

    def _set(self, part: Set[Any], shown: Image, sets: Image, removes: set[str]) -> None:
        if part.key is not None:
            own = {name: encode(shown[name]) for name in self.schema.key_attributes}
            if part.key.wire(self.schema) != own:
                raise TransformError(
                    f"{self.migration.declared}: Set without a key sets the item itself; other"
                    " items are returned as entities"
                )
        fields = {name: value for name, value in part.fields.items() if name in self._known}
        for name, value in self.migration.entity.set_attributes(self.schema, fields).items():
            if value is None:
                removes.add(name)
            else:
                sets |= decode_item({name: value})
        for name, value in part.fields.items():
            if name not in self._known and value is None:
                removes.add(name)
            elif name not in self._known:
                sets |= decode_item({name: encode(value, name)})

    def _reshape(self, entity: Entity, shown: Image, sets: Image, removes: set[str]) -> None:
        """Read an item that is returned whole: it is stored as a put would store it today.

        Attributes that the entity does not know stay.
        """
        item = decode_item(entity.attributes(self.schema))
        key = {name: item.pop(name) for name in self.schema.key_attributes}
        if any(value != shown[name] for name, value in key.items()) and (
            key != self._built_key(shown)
        ):
            raise TransformError(
                f"{self.migration.declared}: the item's key changes; that is mode='rekey'"
            )
        sets |= item
        removes |= {name for name in self._own & shown.keys() if name not in item}
        removes -= self.schema.key_attributes

    def _built_key(self, shown: Image) -> Image:
        """Return the key that an item's fields build, which may not be the key that it has."""
        pk, sk = built_key(self.entity(wire(shown)))
        return decode_item(wire_key(self.schema, self.migration.entity, pk, sk))

    def _target(self, entity: Entity, shown: Image) -> list[Target]:
        item = entity.attributes(self.target)
        key = self.target.key_of(item)
        if self.migration.to is None and all(
            name in shown and encode(shown[name]) == item[name]
            for name in self.schema.key_attributes
        ):
            return []  # it is there already
        if self.migration.mode not in ("split", "derive"):
            unknown = {n: v for n, v in shown.items() if n not in self._own and n not in item}
            item = {**wire(unknown), **item}
        return [Target(key, item)]

    def _check(self, rewrite: Rewrite, shown: Image) -> None:
        declared = self.migration.declared
        changed = rewrite.sets.keys() | rewrite.removes
        if changed & self.schema.key_attributes:
            raise TransformError(f"{declared}: a key attribute cannot be set; use mode='rekey'")
        if needed := rewrite.removes & self._needed:
            text = "needs a default, such as None: what is left of an item is read again"
            raise TransformError(f"{declared}: {', '.join(sorted(needed))} {text}")
        beside = (
            self.migration.mode in ("rekey", "merge", "derive") or self.migration.to is not None
        )
        if beside and rewrite.changes_item:
            how = f"mode={self.migration.mode!r}" if self.migration.to is None else "to="
            raise TransformError(f"{declared}: {how} leaves the item itself as it is")
        for name in self._key_types.keys() & rewrite.sets.keys():
            kind, what = self._key_types[name]
            value = rewrite.sets[name]
            if value is not None and (kind not in encode(value) or value in ("", b"")):
                raise BadIndexKey(f"{declared}: {name} is a key of {what} and must be {kind}")
        if any(is_oversized(target.item) for target in rewrite.targets) or (
            rewrite.sets and is_too_large(shown, rewrite)
        ):
            raise ItemTooLarge(f"{declared}: an item would be larger than 400 KB")
        if self.migration.moves and len(rewrite.targets) >= ITEMS_MAX:
            raise FamilyTooLarge(len(rewrite.targets))
        if self.migration.mode == "merge" and len(rewrite.targets) > 1:
            raise TransformError(f"{declared}: several items become one, and it returns more")
        keys = [sorted(map(repr, target.key.items())) for target in rewrite.targets]
        if any(key in keys[:place] for place, key in enumerate(keys)):
            raise TransformError(f"{declared}: it returns two items with one key")


def _needed(migration: Migration, names: Mapping[str, str]) -> frozenset[str]:
    """Return the attributes without which what is left of a split item could not be read."""
    found = {attribute for attribute, required in migration.parameters.values() if required}
    if migration.takes == "entity" or migration.collect is not None:
        fields = migration.entity.model_fields
        found |= {names[name] for name, info in fields.items() if info.is_required()}
    return frozenset(found)


def _parts(result: Any, declared: Declaration) -> list[Any]:
    if result is None:
        return []
    if isinstance(result, Entity | Effect):
        return [result]
    if isinstance(result, Iterable) and not isinstance(result, str | bytes | Mapping):
        return list(result)
    raise TransformError(f"{declared}: it returned {named(result)}, not effects")
