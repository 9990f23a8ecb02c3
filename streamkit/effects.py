"""Effects: what a handler wants done to the table, as data.

A handler returns effects; streamkit folds the effects of many changes and commits them in one
transaction with the cursor, so that each is applied exactly once. All effects of one handler for
one change are a *result*, and a result is applied whole or not at all (at most 99 items, 4 MB).

    Put(Message(...)).only_if(absent, otherwise="omit")
    Set(Order.key(username="ann", order_id="7"), status="SHIPPED")
    Add(Brand.key(brand="ACME"), likes=1)

Field names are the entity's Python names. All conditions of one result look at the items as they
were before the result.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any, Generic, Literal, Self, TypeVar

from streamkit.conditions import Condition
from streamkit.entity import Entity, Key

E_co = TypeVar("E_co", bound=Entity, covariant=True)

Otherwise = Literal["park", "skip", "omit", "retry"]
"""What happens when an effect's condition does not hold.

`park`: the change is parked for this handler (the default). `skip`: the whole result is dropped.
`omit`: this one effect is left out and the rest of the result is applied. `retry`: the handler
runs again, a few times, with fresh reads; then the change is parked.
"""


@dataclass(frozen=True, slots=True)
class Guard:
    """A condition on an item, and what happens when it does not hold."""

    condition: Condition
    otherwise: Otherwise = "park"


@dataclass(frozen=True, slots=True)
class Effect:
    """One intended write (or check) of one item. The subclasses are the kinds."""

    guard: Guard | None = field(default=None, kw_only=True)

    def only_if(self, condition: Condition, *, otherwise: Otherwise = "park") -> Self:
        """Return the same effect, applied only if `condition` holds for its item.

        `condition` is `absent`, `present`, or an expression built with `Attr`.
        """
        return replace(self, guard=Guard(condition, otherwise))


@dataclass(frozen=True, slots=True)
class Put(Effect, Generic[E_co]):
    """Write the whole item, replacing what is there: for items that the app owns.

    Attributes that the entity does not know are lost; to change a few, use `Set`.
    """

    entity: E_co

    @property
    def key(self) -> Key[Any]:
        """The key of the item, built from the entity's fields."""
        return self.entity.item_key


@dataclass(frozen=True, slots=True, init=False)
class _FieldEffect(Effect, Generic[E_co]):
    key: Key[E_co]
    fields: dict[str, Any]

    def __init__(self, key: Key[E_co], /, **fields: Any) -> None:
        unknown = fields.keys() - key.entity.model_fields.keys()
        if unknown:
            raise ValueError(
                f"{type(self).__name__}: {key.entity.__name__} has no field"
                f" {', '.join(sorted(unknown))}"
            )
        object.__setattr__(self, "guard", None)
        object.__setattr__(self, "key", key)
        object.__setattr__(self, "fields", fields)

    def only_if(self, condition: Condition, *, otherwise: Otherwise = "park") -> Self:
        """Return the same effect, applied only if `condition` holds for its item."""
        copy = type(self)(self.key, **self.fields)
        object.__setattr__(copy, "guard", Guard(condition, otherwise))
        return copy


class Set(_FieldEffect[E_co]):
    """Set the named fields, creating the item if it is not there; `None` removes the attribute.

    Keys of indexes are not recomputed: a field that an index template uses is set by `Put`.
    """


class Add(_FieldEffect[E_co]):
    """Add to number fields; a missing attribute (or item) counts as zero."""


class AddToSet(_FieldEffect[E_co]):
    """Add members to set fields; a missing set is empty."""


class RemoveFromSet(_FieldEffect[E_co]):
    """Remove members from set fields; an emptied set leaves the item."""


@dataclass(frozen=True, slots=True)
class Delete(Effect, Generic[E_co]):
    """Delete the item; deleting what is not there is fine."""

    key: Key[E_co]


@dataclass(frozen=True, slots=True)
class Accumulate(Effect):
    """Add amounts to attributes by their names in the table: what aggregates are made of."""

    key: Key[Any]
    amounts: dict[str, Decimal]


@dataclass(frozen=True, slots=True, init=False)
class Check(Effect, Generic[E_co]):
    """Write nothing, but let the result stand only if the condition holds for the item."""

    key: Key[E_co]

    def __init__(
        self, key: Key[E_co], condition: Condition, *, otherwise: Otherwise = "park"
    ) -> None:
        object.__setattr__(self, "guard", Guard(condition, otherwise))
        object.__setattr__(self, "key", key)


Result = Iterable[Effect] | Effect | None
"""What a handler may return: nothing, one effect, or several."""


def as_effects(result: Result) -> tuple[Effect, ...]:
    """Normalise what a handler returned.

    Raises:
        TypeError: it holds something that is not an effect.
    """
    if result is None:
        return ()
    if isinstance(result, Effect):
        return (result,)
    effects = tuple(result)
    for effect in effects:
        if not isinstance(effect, Effect):
            raise TypeError(f"a handler returns effects, not {type(effect).__name__}")
    return effects
