"""Final: the contents of the tables at the end of a run, and comparisons with what must be there.

In: items in wire form, the application's writes, the deliveries to sinks. Out: entities by type,
and `Comparison`s that list differences in words. A difference raises nothing here; the code that
runs the comparisons does.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeVar

from streamkit.core.tables import Tables
from streamkit.effects import Effect, Put
from streamkit.entity import Entity, spec_of
from streamkit.kinds.aggregate.aggregate import Aggregate
from streamkit.kinds.aggregate.extremes import extremes_of
from streamkit.table import Table
from streamkit.testing.recording import Recorder

E = TypeVar("E", bound=Entity)

Items = Sequence[Mapping[str, Any]]
"""The items of one table, in wire form."""


@dataclass(frozen=True, slots=True)
class Written:
    """One write of the application that succeeded."""

    effect: Effect
    at: datetime


@dataclass
class Comparison:
    """The number of things that were compared, and the differences."""

    title: str
    compared: int = 0
    differences: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, title: str, found: Mapping[Any, Any], wanted: Mapping[Any, Any]) -> "Comparison":
        """Compare two mappings, key by key; a missing key counts as None."""
        comparison = cls(title)
        for key in sorted(found.keys() | wanted.keys(), key=str):
            comparison.compare(str(key), found.get(key), wanted.get(key))
        return comparison

    @property
    def holds(self) -> bool:
        """Return True if nothing differs and at least one thing was compared."""
        return self.compared > 0 and not self.differences

    def compare(self, what: str, found: object, wanted: object) -> None:
        """Compare one thing, and count it."""
        self.compared += 1
        if found != wanted:
            self.differences.append(f"{what}: found {_told(found)}, expected {_told(wanted)}")


@dataclass
class Final:
    """The end of a run.

    Attributes:
        now: when expired items were last deleted; items that expire by then are gone.
        log: the application's writes, in order.
        sent: the recorder of each sink, by the sink's name.
    """

    now: datetime
    log: Sequence[Written]
    sent: Mapping[str, Recorder]
    tables: Tables
    items: Mapping[str, Items]
    _found: dict[tuple[str, type[Entity]], list[Any]] = field(default_factory=dict)

    def __getitem__(self, entity: type[E]) -> list[E]:
        return self._found[self.tables.own.name, entity]

    def of(self, table: str, entity: type[E]) -> list[E]:
        """Return the items of an entity in another table."""
        return self._found[table, entity]

    def puts(self, entity: type[E]) -> Iterator[E]:
        """Yield every version of an entity's items that the application put, in order."""
        for written in self.log:
            if isinstance(written.effect, Put) and isinstance(written.effect.entity, entity):
                yield written.effect.entity

    def compare(
        self,
        entity: type[E],
        wanted: Iterable[E],
        *,
        title: str | None = None,
        table: str | None = None,
        ignore: Collection[str] = (),
    ) -> Comparison:
        """Compare all items of an entity with those that must be there.

        Items of an aggregate whose every measure is as in an empty group count as missing.

        Args:
            entity: the entity whose items are compared.
            wanted: all items that must be there.
            title: a name for the output; by default the entity's name.
            table: the table of the items, if it is not the app's.
            ignore: fields that are not compared.
        """
        found = self[entity] if table is None else self.of(table, entity)
        return Comparison.of(
            title or entity.__name__, _by_key(found, ignore), _by_key(wanted, ignore)
        )

    async def read(self, entities: Iterable[type[Entity]]) -> "Final":
        """Decode the items of each entity, in every table.

        Raises:
            DecodeError: an item does not fit its entity.
        """
        for name, items in self.items.items():
            schema = self.tables.known(name)
            table = Table(_Kept(items), schema)
            for entity in entities:
                if schema.sk is None or spec_of(entity).sk is not None:
                    self._found[name, entity] = [item async for item in table.scan(entity)]
        return self


class _Kept:
    """A client that answers scans from items that were read before."""

    def __init__(self, items: Items) -> None:
        self._items = items

    async def scan(self, **_: Any) -> dict[str, Any]:
        return {"Items": self._items}


def _by_key(items: Iterable[Entity], ignore: Collection[str]) -> dict[str, dict[str, Any]]:
    found = {}
    for item in items:
        if not _is_empty_group(item):
            key = item.item_key
            name = key.pk if key.sk in (None, key.pk) else f"{key.pk} {key.sk}"
            found[name] = item.model_dump(exclude=set(ignore))
    return found


def _is_empty_group(item: Entity) -> bool:
    if not isinstance(item, Aggregate):
        return False
    by_attribute = {info.serialization_alias or n: n for n, info in type(item).model_fields.items()}
    names = [*(by_attribute[a] for a in item.__measures__), *extremes_of(type(item))]
    fields = type(item).model_fields
    return all(getattr(item, name) == fields[name].get_default() for name in names)


def _told(value: object) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, dict):
        return ", ".join(f"{name}={part!r}" for name, part in value.items())
    return repr(value)
