"""Effects that streamkit itself returns, beside those that handlers of applications do. Pure.

Aggregates, derived items and builds write attributes by their names in the table, in wire form.
They are folded and committed as all effects are.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, TypeVar

from streamkit.effects import Effect, Put
from streamkit.entity import Entity, Key
from streamkit.model.codec import AttributeValue

E_co = TypeVar("E_co", bound=Entity, covariant=True)


@dataclass(frozen=True, slots=True)
class Owned(Put[E_co]):
    """Write the whole item, with text attributes `beside` its fields that name its source."""

    beside: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Accumulate(Effect):
    """Add amounts to attributes by their names in the table; aggregates use it.

    `stored` is written along, in wire form. A `plain` one is no part of the transaction: it is sent
    once the change is committed, and a failure is only logged.
    """

    key: Key[Any]
    amounts: Mapping[str, Decimal]
    stored: dict[str, AttributeValue] = field(default_factory=dict)
    plain: bool = False


@dataclass(frozen=True, slots=True)
class Store(Effect):
    """Set attributes by their names in the table, in wire form; None removes one."""

    key: Key[Any]
    attributes: Mapping[str, Mapping[str, Any] | None]


@dataclass(frozen=True, slots=True)
class Noted(Effect):
    """Write one of streamkit's own items along; `action` says how, see `actions`."""

    action: Any
