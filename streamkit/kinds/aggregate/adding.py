"""Compute what an aggregate adds: the effects of one change, or the totals of many. Pure.

Totals hold what the effects of the changes would come to, one after the other. They are there for
speed: most changes of a page leave nothing but a number to add to.
"""

from collections.abc import Callable, Mapping, Sequence
from decimal import Context, Decimal, Inexact, InvalidOperation, Overflow
from operator import attrgetter
from typing import Any

from streamkit.changes import Change
from streamkit.core.handler import Adder
from streamkit.effects import Effect
from streamkit.entity import Entity, spec_of
from streamkit.kinds.aggregate.aggregate import Aggregate, stored_as
from streamkit.kinds.aggregate.contributions import difference, groups_of, placed
from streamkit.kinds.aggregate.measures import Count, Sum
from streamkit.kinds.aggregate.options import Options
from streamkit.model.codec import NUMBERS
from streamkit.model.keys import Key
from streamkit.progress.own_effects import Accumulate

Delta = tuple[Key[Any], Mapping[str, int | Decimal]]
"""What a change adds to one group, by attribute."""

_LEAST, _MOST = -(10**37), 10**37
_KEYS_MAX = 10_000
"""The most keys of groups that are kept, so that they need not be built for each change."""
_EXACT = Context(prec=500, traps=[Inexact, InvalidOperation, Overflow])
"""Sums of any number of values of 38 digits are exact; at the end it shows whether one can be
stored.
"""


class EffectsOf:
    """Makes the effects of one change; the `run` of an aggregate that has further options."""

    def __init__(self, aggregate: type[Aggregate[Any]]) -> None:
        self._aggregate = aggregate

    def __call__(self, change: Change[Any], /) -> list[Effect]:
        """Return one effect for each group that the change affects."""
        return placed(self._aggregate, difference(self._aggregate, change.old, change.new), change)


class Adding(EffectsOf, Adder):
    """The `run` of an aggregate whose effects are plain sums."""

    def __init__(self, aggregate: type[Aggregate[Any]], *, derived: bool) -> None:
        """Make it; `derived` says that an item's group follows from the fields of the key."""
        super().__init__(aggregate)
        measures = aggregate.__measures__
        plain = {n: m for n, m in measures.items() if isinstance(m, Count | Sum) and not m.when}
        self._counts = [n for n, m in plain.items() if isinstance(m, Count)]
        sums = {n: m.value for n, m in plain.items() if isinstance(m, Sum)}
        self._sums = {n: field for n, field in sums.items() if isinstance(field, str)}
        self._others = {
            n: m for n, m in measures.items() if n not in plain or callable(sums.get(n))
        }
        names = spec_of(stored_as(aggregate)).key_names
        self._values: Callable[[Entity], Any] = attrgetter(*names) if names else lambda _: ()
        self._derived = derived
        self._keys: dict[Any, Key[Any] | None] = {}

    def totals(self) -> "GroupTotals":
        """Return totals that contain no change yet."""
        return GroupTotals(self._deltas)

    def _deltas(self, old: Entity | None, new: Entity | None) -> Sequence[Delta]:
        if self._derived and old is not None and new is not None:
            key = self._key(new)
            if key is not None and key is self._key(old):  # as for nearly every change
                changed = self._changed(old, new)
                return ((key, changed),) if changed else ()
        before, after = self._groups(old), self._groups(new)
        left = [(key, self._changed(old, None)) for key in before if key not in after]
        found = [(key, self._changed(old if key in before else None, new)) for key in after]
        return [delta for delta in (*left, *found) if delta[1]]

    def _groups(self, item: Entity | None) -> Sequence[Key[Any]]:
        if item is None or not self._derived:
            return groups_of(self._aggregate, item)
        key = self._key(item)
        return () if key is None else (key,)

    def _key(self, item: Entity) -> Key[Any] | None:
        """Return an item's group; texts and whole numbers give the same key object each time."""
        values = self._values(item)
        for value in values if type(values) is tuple else (values,):
            if type(value) is not str and type(value) is not int:
                return self._built(item)
        found = self._keys.get(values)
        if found is None:  # an item without a group is as quick to look at again
            found = self._keys[values] = self._built(item)
            if len(self._keys) >= _KEYS_MAX:
                self._keys.clear()
        return found

    def _built(self, item: Entity) -> Key[Any] | None:
        key = self._aggregate.group(item)
        assert key is None or isinstance(key, Key)  # noqa: S101 - the group was derived
        return key

    def _changed(self, old: Entity | None, new: Entity | None) -> dict[str, int | Decimal]:
        """Return what a group gains when an item of it changes, enters it or leaves it."""
        changed: dict[str, int | Decimal] = {}
        if old is None or new is None:
            changed = dict.fromkeys(self._counts, -1 if new is None else 1)
        for name, field in self._sums.items():
            left = 0 if old is None else getattr(old, field)
            right = 0 if new is None else getattr(new, field)
            if type(left) is int and type(right) is int and _LEAST < left < _MOST > right > _LEAST:
                if left != right:
                    changed[name] = right - left
            else:
                changed |= self._by_measure(name, old, new)
        for name in self._others:
            changed |= self._by_measure(name, old, new)
        return changed

    def _by_measure(self, name: str, old: Entity | None, new: Entity | None) -> dict[str, Decimal]:
        measure = self._aggregate.__measures__[name]
        taken = {} if old is None else measure.amounts(name, old)
        given = {} if new is None else measure.amounts(name, new)
        zero = Decimal(0)
        amounts = {
            attribute: NUMBERS.subtract(given.get(attribute, zero), taken.get(attribute, zero))
            for attribute in {**taken, **given}
        }
        return {attribute: amount for attribute, amount in amounts.items() if amount}


class GroupTotals:
    """What the changes of a block add to each group; `widest` is the most attributes of one."""

    def __init__(self, deltas: Callable[[Any, Any], Sequence[Delta]]) -> None:
        self.deltas = deltas
        self.widest = 0
        self._groups: dict[Key[Any], tuple[Key[Any], dict[str, int | Decimal]]] = {}

    def add(self, deltas: Sequence[Delta]) -> None:
        """Sum up what `deltas` returned."""
        for key, amounts in deltas:
            there = self._groups.get(key)
            if there is None:
                self._groups[key] = (key, dict(amounts))
                self.widest = max(self.widest, len(amounts))
                continue
            if there[0] is not key:  # the last change says which fields the item has
                self._groups[key] = there = (key, there[1])
            sums = there[1]
            for name, amount in amounts.items():
                before = sums.get(name, 0)
                if type(before) is int and type(amount) is int:
                    sums[name] = before + amount
                else:
                    sums[name] = _EXACT.add(Decimal(before), Decimal(amount))
            self.widest = max(self.widest, len(sums))

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


def effects_of(aggregate: type[Aggregate[Any]], *, derived: bool) -> EffectsOf:
    """Return the `run` of an aggregate's handler; `derived`: its group follows from its key."""
    is_plain = aggregate.__options__ == Options() and aggregate.__until__ is None
    return Adding(aggregate, derived=derived) if is_plain else EffectsOf(aggregate)
