"""Define the measures that keep the best of a group instead of adding up. Pure.

    first: Annotated[datetime | None, Min("date")] = None
    last_state: Annotated[str | None, Last("state", by="date")] = None
    latest: Annotated[tuple[LatestDeal, ...], Top(25, by="deal_id", of=LatestDeal.of)] = ()

Items can be ordered by numbers, strings, dates and moments, each stored as its field's type stores
it. If two items are equal the one with the larger key wins for `Max`, `Last` and `Top`, with the
smaller for `Min` and `First`. Keys are compared as text, also those that are numbers. An item whose
value (or `by`) is None is left out.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from streamkit.entity import Entity, attribute_names
from streamkit.errors import DeclarationError
from streamkit.kinds.aggregate.entries import (
    RankedEntry,
    Ranking,
    has_order,
    rank_of,
    read_entries,
    source_of_entry,
)
from streamkit.kinds.aggregate.measures import Value, When
from streamkit.kinds.aggregate.options import Options
from streamkit.model.codec import AttributeValue
from streamkit.model.fields import classes_of
from streamkit.model.schema import TableSchema

REVISION = "_rev"
"""Counts every contribution to an item with extremes: a recompute only commits if it is unchanged.
"""
ENTRIES_REVISION = "_entries_rev"
"""Counts contributions that changed entries: additions to the entries only commit if it is
unchanged.
"""


def ranks_attribute(attribute: str) -> str:
    """Return the attribute that stores which items the values of `attribute` come from."""
    return f"{attribute}_entries"


@dataclass(frozen=True)
class Extreme(ABC):
    """The options that the five measures have in common; `when` leaves items out."""

    when: When | None = field(default=None, kw_only=True)
    highest: ClassVar[bool] = True
    several: ClassVar[bool] = False

    @property
    def ranking(self) -> Ranking:
        """How many entries it keeps, and from which end."""
        return Ranking(1, self.highest)

    @property
    @abstractmethod
    def ordered_by(self) -> Value:
        """The value by which entries are ordered."""

    def shown(self, item: Any) -> Any:
        """Return what an item's entry shows."""
        return _read(self.ordered_by, item)

    @property
    def fields(self) -> tuple[str, ...]:
        """The fields of the source that it names."""
        values = (self.ordered_by, getattr(self, "value", None))
        return tuple(value for value in values if isinstance(value, str))


@dataclass(frozen=True)
class Max(Extreme):
    """The largest value of the group's items; None for an empty group."""

    value: Value

    @property
    def ordered_by(self) -> Value:
        """The value itself."""
        return self.value


@dataclass(frozen=True)
class Min(Max):
    """The smallest value of the group's items; None for an empty group."""

    highest: ClassVar[bool] = False


@dataclass(frozen=True)
class Last(Extreme):
    """A value of the item that comes last by something else, such as a date."""

    value: Value
    by: Value = field(kw_only=True)

    @property
    def ordered_by(self) -> Value:
        """The field or function that decides which item is the last."""
        return self.by

    def shown(self, item: Any) -> Any:
        """Return the value."""
        return _read(self.value, item)


@dataclass(frozen=True)
class First(Last):
    """A value of the item that comes first by something else."""

    highest: ClassVar[bool] = False


@dataclass(frozen=True)
class Top(Extreme):
    """The n highest items, in order; the lowest with `lowest=True`.

    All are kept in one attribute, which is written whole whenever one of them changes: n times the
    size of what `of` makes, plus about 20 bytes and the item's key for each. Together they count
    towards the 400 KB of an item and the price of each write; keep `of` small.

    Args:
        n: how many, 1 to 1000.
        by: a field, or a function of the item.
        of: makes what is kept of an item; without it, the value that items are ordered by is kept.
        lowest: begin with the lowest.
    """

    n: int
    by: Value = field(kw_only=True)
    of: Callable[[Any], Any] | None = field(default=None, kw_only=True)
    lowest: bool = field(default=False, kw_only=True)
    several: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not 1 <= self.n <= _TOP_MAX:
            raise DeclarationError(f"Top({self.n}): it keeps between 1 and {_TOP_MAX} items")
        if self.of is not None and not callable(self.of):
            raise DeclarationError(
                f"Top({self.n}): of={self.of!r} is no function of the item, such as"
                " of=lambda order: order.total"
            )

    @property
    def ranking(self) -> Ranking:
        """The n highest, or lowest."""
        return Ranking(self.n, highest=not self.lowest)

    @property
    def ordered_by(self) -> Value:
        """The field or function that ranks the items."""
        return self.by

    def shown(self, item: Any) -> Any:
        """Return what is kept of an item."""
        return _read(self.by, item) if self.of is None else self.of(item)


_TOP_MAX = 1000


def extremes_of(aggregate: type[Entity]) -> dict[str, Extreme]:
    """Return the extremes that an aggregate's fields are annotated with, by field name."""
    return {
        name: note
        for name, info in aggregate.model_fields.items()
        for note in info.metadata
        if isinstance(note, Extreme)
    }


def entries_of(
    aggregate: type[Entity], item: Entity, schema: TableSchema
) -> dict[str, RankedEntry]:
    """Return what one item offers, by field name.

    Raises:
        TypeError: what a measure is ordered by has no order.
        ValueError: what it shows does not fit the aggregate's field, or cannot be stored.
    """
    found: dict[str, RankedEntry] = {}
    names = attribute_names(aggregate)
    for name, extreme in extremes_of(aggregate).items():
        if extreme.when is not None and not extreme.when(item):
            continue
        rank = rank_of(_read(extreme.ordered_by, item))
        if rank is None:
            continue
        shown = extreme.shown(item)
        given = {name: (shown,) if extreme.several else shown}
        stored: Any = aggregate.set_attributes(schema, given)[names[name]]
        value = stored["L"][0] if extreme.several else stored
        found[name] = RankedEntry(rank, source_of_entry(item.item_key), value)
    return found


def stored_entries(
    aggregate: type[Entity], name: str, item: Mapping[str, AttributeValue]
) -> list[RankedEntry]:
    """Read the entries of one field of an aggregate's item, best first."""
    attribute = attribute_names(aggregate)[name]
    several = extremes_of(aggregate)[name].several
    return read_entries(item, ranks_attribute(attribute), attribute, several=several)


def check_extremes(aggregate: Any, source: type[Entity]) -> None:
    """Refuse measures with an error that otherwise only a change would show.

    Raises:
        DeclarationError: a measure names a field that the source does not have, or whose
            values have no order, its own field could not be empty, or the items are kept in a way
            that extremes cannot be.
    """
    _check_options(aggregate, aggregate.__options__)
    for name, extreme in extremes_of(aggregate).items():
        where = f"{aggregate.__declaration__}: {name}"
        for value in extreme.fields:
            if value not in source.model_fields:
                raise DeclarationError(
                    f"{where} measures {value!r}, and {source.__name__} has no such field"
                )
        by = extreme.ordered_by
        kinds = list(classes_of(source.model_fields[by].annotation)) if isinstance(by, str) else []
        if kinds and not any(map(has_order, kinds)):
            raise DeclarationError(
                f"{where} is ordered by {by!r}, and a {kinds[0].__name__} has no order that could"
                " be kept; take a number, a text or a date"
            )
        empty: Any = () if extreme.several else None
        if aggregate.model_fields[name].get_default(call_default_factory=False) != empty:
            raise DeclarationError(
                f"{where} needs the default {empty!r}, which is what an empty group has"
            )


def _check_options(aggregate: type[Entity], options: Options) -> None:
    """Refuse options that restart a group's revision, or that keep it in several places."""
    refused = {
        "spread=": options.spread > 1,
        "remove_empty=": options.remove_empty,
        "onto=": options.onto is not None,
        "approximate=": options.approximate,
    }
    for keyword, given in refused.items():
        if given:
            raise DeclarationError(
                f"{aggregate.__declaration__}: {', '.join(extremes_of(aggregate))} need one item a"
                f" group, which stays and which only streamkit writes; leave out {keyword}"
            )


def _read(value: Value, item: Any) -> Any:
    return value(item) if callable(value) else getattr(item, value)
