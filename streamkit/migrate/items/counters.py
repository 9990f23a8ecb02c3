"""Carry the counters of a migration: numbers to which old code and new code both add. Pure.

A counter is one number under a name in the old item and one in the new item, and the functions
carry it as it is. So what code adds at a stub, from which the number is gone, can be read there.

In: items as they are stored. Out: items with sums. On failure: `TransformError` for a function that
makes another number of a counter, and an arithmetic error for a sum of more than 38 digits: the
item is an error then, and nothing is rounded.
"""

from collections.abc import Iterable
from decimal import Decimal
from typing import Any

from streamkit.entity import Entity, attribute_names
from streamkit.kinds.migration import Migration
from streamkit.migrate.items.rewrites import TransformError, WireItem
from streamkit.model.codec import NUMBERS, encode
from streamkit.progress.actions import Wire


class Counters:
    """The counters of one migration: the attribute in the old item of each in the new one."""

    def __init__(self, migration: Migration) -> None:
        self._declared = migration.declared
        self.olds = {
            _attribute(new, migration.makes): _attribute(old, migration.sources)
            for new, old in migration.counters.items()
        }

    def require_carried(
        self, old: Iterable[WireItem | None], new: Iterable[WireItem | None]
    ) -> None:
        """Require that new items have the counters of their old ones.

        Raises:
            TransformError: a function makes another number of one.
        """
        if not self.olds:
            return
        olds, news = [one for one in old if one], [one for one in new if one]
        for name, before in self.olds.items():
            numbers = [{_number(i, n) for i in s} - {0} for s, n in ((olds, before), (news, name))]
            if olds and news and numbers[0] != numbers[1]:
                raise TransformError(
                    f"{self._declared}: counter {name} has to be the old item's {before} as it is,"
                    " in both directions; counters= with its old name, or without it"
                )

    def on_top(self, there: WireItem, said: WireItem, *, new: bool) -> dict[str, Wire]:
        """Return an item with what was written at its stub, where counters begin at 0."""
        names = self.olds.keys() if new else {*self.olds.values()}
        sums = {
            name: added(there.get(name), _number(said, name))
            for name in names & said.keys()
            if "N" in said[name]
        }
        return {**there, **said, **sums}


def added(there: Wire | None, more: Decimal) -> Wire:
    """Return the number that is stored after something was added to it."""
    before = Decimal((there or {}).get("N", 0))
    return encode(NUMBERS.add(before, more))


def _number(item: WireItem, name: str) -> Decimal:
    value: Any = item.get(name, {}).get("N", 0)
    return Decimal(value)


def _attribute(name: str, entities: Iterable[type[Entity]]) -> str:
    """Return the attribute of a field, of the one entity that has it."""
    return next(names[name] for names in map(attribute_names, entities) if name in names)
