"""Keep the best few entries of a group, each with the item that it comes from. Pure.

In: the present entries, one source item and what it offers now. Out: the entries after it, or None
if they cannot be computed from these, because one of the best has left and the next one was never
kept: then the group has to be read again.

An item has at most one entry, found by its key: the key distinguishes equal values, and it is not
necessary to know what an item offered before. Entries are stored beside the aggregate's own
attribute, as a list of `[rank, partition key, sort key]` in order, best first; the values
themselves are in the attribute.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum
from typing import Any

from pydantic import BaseModel

from streamkit.model.codec import NUMBERS, AttributeValue, decode, encode
from streamkit.model.keys import Key

Rank = Decimal | str
"""What entries are ordered by: numbers by value, all other values by a text that sorts correctly.
"""

Source = tuple[str, str]
"""A source item's keys; without a sort key the second is empty."""


@dataclass(frozen=True, slots=True)
class RankedEntry:
    """What one item offers: its rank, its key, and the value to show (None shows nothing)."""

    rank: Rank
    source: Source
    value: AttributeValue | None

    @property
    def order(self) -> tuple[Rank, Source]:
        """Return what orders entries; the item's key breaks a tie, so that every worker agrees."""
        return self.rank, self.source


@dataclass(frozen=True, slots=True)
class Ranking:
    """How many entries are kept, and which end is the best."""

    size: int
    highest: bool

    def best(self, entries: Iterable[RankedEntry]) -> list[RankedEntry]:
        """Return the best entries, in order.

        Raises:
            TypeError: ranks of one group are text and numbers.
        """
        return sorted(entries, key=lambda entry: entry.order, reverse=self.highest)[: self.size]

    def step(
        self, entries: Sequence[RankedEntry], source: Source, offered: RankedEntry | None
    ) -> list[RankedEntry] | None:
        """Return the entries once `source` offers only this; None if the group has to be read.

        No read is needed when an entry improves, when it stays ahead of another entry that is kept,
        or when there is room: then every item of the group has its entry.
        """
        rest = [entry for entry in entries if entry.source != source]
        mine = next((entry for entry in entries if entry.source == source), None)
        if mine is not None and (offered is None or self._behind(offered, mine)):
            stays = offered is not None and rest and not self._behind(offered, rest[-1])
            if len(entries) >= self.size and not stays:
                return None
        return self.best(rest if offered is None else [*rest, offered])

    def _behind(self, one: RankedEntry, other: RankedEntry) -> bool:
        return one.order < other.order if self.highest else one.order > other.order


def source_of_entry(key: Key[Any]) -> Source:
    """Return the source item that an entry names: partition key, and sort key or empty text."""
    return key.pk, key.sk or ""


def has_order(kind: type) -> bool:
    """Return whether values of a class may have a rank; False only if they surely have none.

    A class such as pydantic's `AwareDatetime` does not say what its values are.
    """
    if issubclass(kind, bool):
        return False
    ordered = issubclass(kind, str | int | float | Decimal | date)
    return ordered or not issubclass(kind, Collection | Enum | BaseModel)


def rank_of(value: Any) -> Rank | None:
    """Return what a value is ordered by; None has no rank.

    A moment with a time zone is ordered as an instant, one without as its text.

    Raises:
        TypeError: values of this type have no order that could be kept.
        ArithmeticError: a number has more than 38 digits.
    """
    if isinstance(value, datetime):
        if value.tzinfo is not None:
            return _text(value.astimezone(UTC).replace(tzinfo=None))
        return _text(value)
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int | Decimal | float) and not isinstance(value, bool):
        number = repr(value) if isinstance(value, float) else value
        return NUMBERS.create_decimal(number)
    if value is None:
        return None
    raise TypeError(f"{type(value).__name__} has no order that could be kept")


def _text(moment: datetime) -> str:
    return moment.isoformat(timespec="microseconds")


def stored_ranks(entries: Sequence[RankedEntry]) -> AttributeValue:
    """Return the ranks and keys of the entries, as they are stored."""
    return encode([[entry.rank, *entry.source] for entry in entries])


def read_entries(
    item: Mapping[str, AttributeValue], ranks: str, attribute: str, *, several: bool
) -> list[RankedEntry]:
    """Read the entries of an item: their keys from one attribute, their values from another.

    Raises:
        ValueError: the attributes do not belong together; something else has written them.
    """
    sources: list[list[Any]] = decode(item[ranks]) if ranks in item else []
    values: list[AttributeValue | None] = [item.get(attribute)] if sources else []
    if several:
        values = item[attribute]["L"] if attribute in item else []
    if len(sources) != len(values):
        raise ValueError(f"{attribute} was not written by streamkit: it does not fit {ranks}")
    return [
        RankedEntry(rank if isinstance(rank, str) else Decimal(rank), (pk, sk), value)
        for (rank, pk, sk), value in zip(sources, values, strict=True)
    ]
