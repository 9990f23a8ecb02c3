"""Tell which indexes a migration waits for, and which index would make it unnecessary. Pure.

DynamoDB fills a new global index by itself, which takes hours for a large table and costs the
index's write units for each item; it cannot be read before. An index whose keys are several
attributes of the items needs no migration at all.

In: a migration, schemas, and items of a sample. Out: what is being created, what that costs, and
which index would do instead.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from streamkit.entity import spec_of
from streamkit.errors import ConfigurationError
from streamkit.kinds.migration import Migration
from streamkit.migrate.items.rewrites import Rewrite
from streamkit.migrate.run.sampling import SampleEstimate
from streamkit.model.key_fields import MOST_FIELDS
from streamkit.model.schema import IndexSchema, TableSchema
from streamkit.model.templates import KeyTemplate, Placeholder

_NUMBER = re.compile(r"\d+(?:\.\d+)?")


@dataclass(frozen=True, slots=True)
class IndexBuild:
    """An index that DynamoDB is filling: how many items it will show, and what that costs."""

    name: str
    entries: SampleEstimate
    writes: SampleEstimate
    dollars: SampleEstimate


def unreadable_indexes(migration: Migration, schemas: Iterable[TableSchema]) -> list[str]:
    """Return the indexes that a migration's entities declare, and that cannot be read yet."""
    entities = (*migration.sources, *migration.makes)
    declared = {index.name for one in entities for index in spec_of(one).indexes.values()}
    missing = {name for schema in schemas for name in schema.indexes_created}
    return sorted(declared & missing)


def require_indexes(migration: Migration, schemas: Iterable[TableSchema]) -> None:
    """Refuse to go on while new code could not read the new items by their indexes.

    Raises:
        ConfigurationError: one of them is being created; it names it.
    """
    found = unreadable_indexes(migration, schemas)
    if found:
        raise ConfigurationError(
            f"index {', '.join(found)} is being created, so that nothing can be read from it; wait"
            " until its IndexStatus is ACTIVE, or say --anyway with a reason"
        )


def waits_for_indexes(migration: Migration, schemas: Iterable[TableSchema]) -> list[str]:
    """Return in words what of a migration waits for indexes that cannot be read yet."""
    found = unreadable_indexes(migration, schemas)
    scanned = [one for one in found if migration.index is not None and migration.index.name == one]
    texts = [f"{one} is being created: the scan waits until it can be read" for one in scanned]
    if found and migration.moves:
        names = ", ".join(found)
        texts.append(f"{names} is being created: `switch` is refused until it can be read")
    return texts


@dataclass
class KeyJoins:
    """Whether all that a migration changes is to join attributes into the keys of indexes.

    A global index has up to four attributes in a key, so that nothing needs to be joined.
    """

    migration: Migration
    schema: TableSchema
    _found: dict[str, tuple[str, ...]] = field(default_factory=dict)
    _other: bool = False

    def see(self, item: Mapping[str, Any], rewrite: Rewrite) -> None:
        """Look at what an item becomes; `item` has plain values."""
        if not rewrite.changes_item or self._other:
            return
        keys = {name for index in self._joined for name, _ in index.keys}
        names = rewrite.sets.keys()
        if rewrite.removes or rewrite.delete or not names <= keys:
            self._other = True
            return
        for name, value in rewrite.sets.items():
            parts = self._parts(name, value, item)
            if parts is None or self._found.setdefault(name, parts) != parts:
                self._other = True

    @property
    def _joined(self) -> list[IndexSchema]:
        """The global indexes with one attribute in a key."""
        return [
            index
            for index in self.schema.indexes.values()
            if index.is_global and len(index.pk) == 1 and len(index.sk) <= 1
        ]

    @property
    def advice(self) -> str | None:
        """The index that would do instead, in words; None if the migration does something else."""
        if self._other or not self._found:
            return None
        said = []
        for index in self._joined:
            for role, key in (("pk", index.pk), ("sk", index.sk)):
                parts = self._found.get(key[0][0]) if key else None
                if parts is not None:
                    said.append(
                        f"{key[0][0]} of {index.name} only joins {', '.join(parts)}, which the"
                        f" items have: a global index with {role}={parts} answers the same queries"
                    )
        return f"{'; '.join(said)}; DynamoDB fills it by itself, and no item has to be migrated"

    def _parts(self, name: str, value: object, item: Mapping[str, Any]) -> tuple[str, ...] | None:
        """Return the fields that a key consists of, in their order; None if it is not so."""
        if not isinstance(value, str):
            return None
        if self.migration.takes == "entity":
            fields = self._template_fields(name)
        else:
            read = self.migration.parameters.items()
            fields = _fields_in(value, {field: item.get(there) for field, (there, _) in read})
        return fields if fields and len(fields) <= MOST_FIELDS else None

    def _template_fields(self, name: str) -> tuple[str, ...] | None:
        for index in spec_of(self.migration.entity).indexes.values():
            keys = zip((index.pk, index.sk), index.key_attributes(self.schema), strict=True)
            for key, there in keys:
                if index.when is None and isinstance(key, KeyTemplate) and there[0][0] == name:
                    plain = all(map(_is_plain, key.placeholders))
                    return key.fields if plain and key.fields == key.order else None
        return None


def _is_plain(part: Placeholder) -> bool:
    """Return whether a template has the whole value, in the order of the values."""
    return not part.is_temporal and not part.is_descending


def _fields_in(text: str, values: Mapping[str, Any]) -> tuple[str, ...] | None:
    """Return the fields whose values stand in a text one after the other, all that were read."""
    places = {}
    for name, value in values.items():
        place = _place_of(text, value)
        if place is None:
            return None
        places[name] = place
    return tuple(sorted(places, key=lambda name: places[name])) or None


def _place_of(text: str, value: object) -> int | None:
    if isinstance(value, str) and value:
        place = text.find(value)
        return None if place < 0 else place
    if isinstance(value, int | Decimal) and not isinstance(value, bool):
        numbers = _NUMBER.finditer(text)
        return next((found.start() for found in numbers if Decimal(found[0]) == value), None)
    return None
