"""The handler of an aggregate: the effects of one change, or the totals of many. Pure.

Totals hold what the effects of the changes would come to, one after the other. They are there for
speed: most changes of a page leave nothing but a number to add to.
"""

from collections.abc import Callable, Mapping, Sequence
from decimal import Context, Decimal, Inexact, InvalidOperation, Overflow
from typing import TYPE_CHECKING, Any

from streamkit.changes import Change
from streamkit.core.handler import Adder
from streamkit.effects import Accumulate, Effect
from streamkit.entity import Entity, spec_of
from streamkit.kinds.aggregate.contributions import difference, placed, stored_as
from streamkit.kinds.aggregate.measures import Count, Sum
from streamkit.kinds.aggregate.options import Options
from streamkit.model.codec import NUMBERS
from streamkit.model.keys import Key

if TYPE_CHECKING:
    from streamkit.kinds.aggregate.aggregate import Aggregate

Delta = tuple[Key[Any], Mapping[str, int | Decimal]]
"""What a change adds to one group, by attribute."""

_LEAST, _MOST = -(10**37), 10**37
_KEYS_MAX = 10_000
"""Keys of groups that are kept, so that they need not be built again for each change."""
_EXACT = Context(prec=500, traps=[Inexact, InvalidOperation, Overflow])
"""Sums of any number of 38 digits are exact; whether one can be stored shows at the end."""


class EffectsOf:
    """Makes the effects of one change; the `run` of an aggregate that has further options."""

    def __init__(self, aggregate: "type[Aggregate[Any]]") -> None:
        self._aggregate = aggregate

    def __call__(self, change: Change[Any], /) -> list[Effect]:
        """Return one effect for each group that the change affects."""
        return placed(self._aggregate, difference(self._aggregate, change.old, change.new), change)


class Adding(EffectsOf, Adder):
    """The `run` of an aggregate whose effects are plain sums."""

    def __init__(self, aggregate: "type[Aggregate[Any]]", *, derived: bool) -> None:
        """Make it; `derived` says that an item's group follows from the fields of the key."""
        super().__init__(aggregate)
        measures = aggregate.__measures__
        plain = {n: m for n, m in measures.items() if isinstance(m, Count | Sum) and not m.when}
        sums = {n: m.value for n, m in plain.items() if isinstance(m, Sum)}
        self._sums = {n: field for n, field in sums.items() if isinstance(field, str)}
        self._others = {
            n: m for n, m in measures.items() if n not in plain or callable(sums.get(n))
        }
        self._names = spec_of(stored_as(aggregate)).key_names
        self._derived = derived
        self._keys: dict[tuple[Any, ...], Key[Any] | None] = {}

    def totals(self) -> "GroupTotals":
        """Return totals of no changes yet."""
        return GroupTotals(self._deltas)

    def _deltas(self, old: Entity | None, new: Entity | None) -> Sequence[Delta]:
        if old is None or new is None or not self._derived:
            return [(e.key, e.amounts) for e in difference(self._aggregate, old, new)]
        before, after = self._key(old), self._key(new)
        if before != after:
            return [(e.key, e.amounts) for e in difference(self._aggregate, old, new)]
        if after is None:
            return ()
        amounts = self._changed(old, new)
        return ((after, amounts),) if amounts else ()

    def _key(self, item: Entity) -> Key[Any] | None:
        """Return an item's group; texts and whole numbers make the same key each time."""
        values = tuple([getattr(item, name) for name in self._names])
        for value in values:
            if type(value) is not str and type(value) is not int:
                return self._built(item)
        found = self._keys.get(values)
        if found is None:  # or no group, which is as quick to find
            found = self._keys[values] = self._built(item)
            if len(self._keys) >= _KEYS_MAX:
                self._keys.clear()
        return found

    def _built(self, item: Entity) -> Key[Any] | None:
        key = self._aggregate.group(item)
        assert key is None or isinstance(key, Key)  # noqa: S101 - the group was derived
        return key

    def _changed(self, old: Entity, new: Entity) -> dict[str, int | Decimal]:
        """Return what a change within a group adds to it; a count without `when` stays the same."""
        changed: dict[str, int | Decimal] = {}
        for name, field in self._sums.items():
            left, right = getattr(old, field), getattr(new, field)
            if type(left) is int and type(right) is int and _LEAST < left < _MOST > right > _LEAST:
                amount: int | Decimal = right - left
            else:
                measure = self._aggregate.__measures__[name]
                amount = _between(measure.amounts(name, old), measure.amounts(name, new), name)
            if amount:
                changed[name] = amount
        for name, measure in self._others.items():
            taken, given = measure.amounts(name, old), measure.amounts(name, new)
            for attribute in {**taken, **given}:
                amount = _between(taken, given, attribute)
                if amount:
                    changed[attribute] = amount
        return changed


class GroupTotals:
    """What the changes of a block add to each group."""

    def __init__(self, deltas: Callable[[Any, Any], Sequence[Delta]]) -> None:
        self.deltas = deltas
        self._groups: dict[Key[Any], tuple[Key[Any], dict[str, int | Decimal]]] = {}

    def add(self, deltas: Sequence[Delta]) -> None:
        """Sum up what `deltas` returned."""
        for key, amounts in deltas:
            there = self._groups.get(key)
            if there is None:
                self._groups[key] = (key, dict(amounts))
                continue
            if there[0] is not key:  # the last change says what fields the item has
                self._groups[key] = there = (key, there[1])
            sums = there[1]
            for name, amount in amounts.items():
                before = sums.get(name, 0)
                if type(before) is int and type(amount) is int:
                    sums[name] = before + amount
                else:
                    sums[name] = _EXACT.add(Decimal(before), Decimal(amount))

    def __len__(self) -> int:
        """Return the number of groups."""
        return len(self._groups)

    def effects(self) -> tuple[Effect, ...]:
        """Return one effect for each group.

        Raises:
            ArithmeticError: a sum has more than 38 digits.
        """
        return tuple(
            Accumulate(key, {name: NUMBERS.create_decimal(sum_) for name, sum_ in sums.items()})
            for key, sums in self._groups.values()
        )


def _between(taken: Mapping[str, Decimal], given: Mapping[str, Decimal], name: str) -> Decimal:
    return NUMBERS.subtract(given.get(name, Decimal(0)), taken.get(name, Decimal(0)))


def effects_of(aggregate: "type[Aggregate[Any]]", *, derived: bool) -> EffectsOf:
    """Return the `run` of an aggregate's handler; `derived`: its group follows from its key."""
    is_plain = aggregate.__options__ == Options() and aggregate.__until__ is None
    return Adding(aggregate, derived=derived) if is_plain else EffectsOf(aggregate)
