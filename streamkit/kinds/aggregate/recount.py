"""Compute what an aggregate's groups should hold, from the items themselves, to compare. Pure.

In: source items, one by one, and stored items of groups in wire form. Out: facts by attribute, in
the same form for both: amounts that are not zero, and for extremes the entries in order. So an
emptied group and a missing one are equal. On failure: what `group` or a measure raises.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from hashlib import blake2b
from typing import Any

from streamkit.entity import Entity, attribute_names, built_key
from streamkit.kinds.aggregate.aggregate import Aggregate
from streamkit.kinds.aggregate.contributions import contributions
from streamkit.kinds.aggregate.entries import RankedEntry
from streamkit.kinds.aggregate.extremes import entries_of, extremes_of, stored_entries
from streamkit.kinds.aggregate.measures import adds_up
from streamkit.model.codec import NUMBERS, AttributeValue, decode
from streamkit.model.item_as_read import stored_key
from streamkit.model.keys import Key
from streamkit.model.schema import TableSchema

Place = tuple[str, str]
"""A group, by its partition and sort key; the second is empty without a sort key."""

Facts = dict[str, Any]
"""By attribute: an amount, or a list of `[value, partition key, sort key]`, best first."""


def place_of(key: Key[Any], schema: TableSchema) -> Place:
    """Return the place of a group's key; a table without a sort key stores none."""
    return key.pk, (key.sk or "") if schema.sk else ""


@dataclass
class Recount:
    """Adds up source items; `only` are the groups to look at, None for all.

    If `only` is given, `marks` change when what any item contributes to a group has changed, even
    if the sum has not. Groups that are over before `horizon` (epoch seconds) are left out: late
    contributions to them are dropped, and they are deleted at any time.
    """

    aggregate: type[Aggregate[Any]]
    schema: TableSchema
    horizon: float
    only: Collection[Place] | None = None
    keys: dict[Place, Key[Any]] = field(default_factory=dict)
    marks: dict[Place, int] = field(default_factory=dict)
    _amounts: dict[Place, dict[str, Decimal]] = field(default_factory=dict)
    _entries: dict[Place, dict[str, list[RankedEntry]]] = field(default_factory=dict)

    def add(self, item: Entity) -> None:
        """Add what one item contributes."""
        groups = {
            key: amounts
            for key, amounts in contributions(self.aggregate, item).items()
            if (self.only is None or place_of(key, self.schema) in self.only)
            and not self._is_over(key)
        }
        shown = entries_of(self.aggregate, item, self.schema) if groups else {}
        mark = 0 if self.only is None or not groups else _digest(item, groups, shown)
        for key, amounts in groups.items():
            place = place_of(key, self.schema)
            self.keys[place] = key
            there = self._amounts.setdefault(place, {})
            for name, amount in amounts.items():
                there[name] = NUMBERS.add(there.get(name, Decimal(0)), amount)
            self._rank(place, shown)
            self.marks[place] = self.marks.get(place, 0) ^ mark

    def facts(self) -> dict[Place, Facts]:
        """Return what the groups should hold; a group without facts is empty."""
        return {
            place: {name: amount for name, amount in amounts.items() if amount}
            | {
                name: entries_facts(self._best(name, entries))
                for name, entries in self._entries.get(place, {}).items()
            }
            for place, amounts in self._amounts.items()
        }

    def _rank(self, place: Place, shown: Mapping[str, RankedEntry]) -> None:
        there = self._entries.setdefault(place, {}) if shown else {}
        for name, entry in shown.items():
            entries = there.setdefault(name, [])
            entries.append(entry)
            if len(entries) > 2 * extremes_of(self.aggregate)[name].ranking.size:
                there[name] = self._best(name, entries)

    def _best(self, name: str, entries: list[RankedEntry]) -> list[RankedEntry]:
        return extremes_of(self.aggregate)[name].ranking.best(entries)

    def _is_over(self, key: Key[Any]) -> bool:
        until = self.aggregate.__until__
        return until is not None and until[1].moment(dict(key.fields)) < datetime.fromtimestamp(
            self.horizon, UTC
        )


def _digest(item: Entity, *contributed: Mapping[Any, Any]) -> int:
    """Return 64 bits that identify an item and what it contributes."""
    pk, sk = (stored_key(item) or built_key(item))[:2]
    text = repr((pk, sk, *([(key, part[key]) for key in part] for part in contributed)))
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest())


def stored_facts(
    aggregate: type[Aggregate[Any]], item: Mapping[str, AttributeValue], horizon: float
) -> Facts | None:
    """Return what a group's item holds; None for a group that is over before `horizon`."""
    until = aggregate.__until__
    if until is not None and float(item.get(until[0], {"N": "inf"})["N"]) < horizon:
        return None
    is_sum = adds_up(aggregate.__measures__)
    facts: Facts = {
        name: Decimal(value["N"])
        for name, value in item.items()
        if is_sum(name) and Decimal(value.get("N", "0"))
    }
    for name in extremes_of(aggregate):
        try:
            entries = stored_entries(aggregate, name, item)
        except (ValueError, KeyError, TypeError):
            facts[name] = "not written by streamkit"
        else:
            facts |= {name: entries_facts(entries)} if entries else {}
    return facts


def entries_facts(entries: list[RankedEntry]) -> list[Any]:
    """Return entries as facts: plain values, each with its source item's key."""
    return [[None if e.value is None else decode(e.value), *e.source] for e in entries]


def differing(stored: Facts, expected: Facts) -> list[str]:
    """Return the attributes in which two groups' facts differ."""
    return sorted(name for name in stored | expected if stored.get(name) != expected.get(name))


def measure_names(aggregate: type[Aggregate[Any]]) -> dict[str, str]:
    """Return an aggregate's measures, such as `Count`, by the attributes that store them."""
    names = attribute_names(aggregate)
    measures: dict[str, object] = dict(aggregate.__measures__)
    measures |= {names[name]: measure for name, measure in extremes_of(aggregate).items()}
    return {attribute: type(measure).__name__ for attribute, measure in measures.items()}
