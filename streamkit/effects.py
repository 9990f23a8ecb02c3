"""Effects: what a handler wants to write to the table, as data.

A handler returns effects. streamkit folds the effects of many changes and commits them in one
transaction with the cursor, so that each is applied exactly once. All effects of one handler for
one change are a *result*, and a result is applied whole or not at all (at most 99 items, 4 MB).

    Put(Message(...)).only_if(absent, otherwise="omit")
    Set(Order.key(username="ann", order_id="7"), status="SHIPPED")
    Add(Brand.key(brand="ACME"), likes=1)

Field names are the entity's Python names. All conditions of one result look at the items as they
were before the result.
"""

from collections.abc import Iterable, Mapping
from copy import copy
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Generic, Literal, Protocol, Self, TypeVar, get_args

from streamkit.changes import Change
from streamkit.entity import Entity, Key
from streamkit.model.conditions import Condition
from streamkit.model.declaration import named

E_co = TypeVar("E_co", bound=Entity, covariant=True)

Otherwise = Literal["park", "skip", "omit", "retry"]
"""What happens when an effect's condition does not hold.

`park`: the change is parked for this handler (the default). `skip`: the whole result is dropped.
`omit`: this one effect is left out and the rest of the result is applied. `retry`: the handler
runs again, a few times, with fresh reads; then the change is parked.
"""
_OTHERWISE = get_args(Otherwise)


def _key_of(effect: object, key: Key[E_co]) -> Key[E_co]:
    if not isinstance(key, Key):
        text = f"{type(effect).__name__} takes a key, as in Order.key(...), not {named(key)}"
        raise TypeError(text)
    return key


@dataclass(frozen=True, slots=True)
class Guard:
    """A condition on an item, and what happens when it does not hold."""

    condition: Condition
    otherwise: Otherwise = "park"

    def __post_init__(self) -> None:
        if self.otherwise not in _OTHERWISE:
            raise ValueError(f"otherwise={self.otherwise!r}: one of {', '.join(_OTHERWISE)}")


@dataclass(frozen=True, slots=True)
class Effect:
    """One intended write (or check) of one item; the subclasses are the kinds.

    `table` is None for the app's own table.
    """

    guard: Guard | None = field(default=None, kw_only=True)
    table: str | None = field(default=None, kw_only=True)

    def only_if(self, condition: Condition, *, otherwise: Otherwise = "park") -> Self:
        """Return the same effect, applied only if `condition` holds for its item.

        `condition` is `absent`, `present`, or an expression built with `Attr`.
        """
        return self._with("guard", Guard(condition, otherwise))

    def to(self, table: str) -> Self:
        """Return the same effect on an item of another table of the account and Region.

        The commit is one transaction over both tables. The app's handlers listen only to its own
        table, so that such an effect triggers none of them.
        """
        return self._with("table", table)

    def _with(self, name: str, value: Any) -> Self:
        changed = copy(self)
        object.__setattr__(changed, name, value)
        return changed


@dataclass(frozen=True, slots=True)
class Put(Effect, Generic[E_co]):
    """Write the whole item, replacing the existing one: for items that the app owns.

    Attributes that the entity does not know are lost; to change a few, use `Set`.
    """

    entity: E_co

    def __post_init__(self) -> None:
        if not isinstance(self.entity, Entity):
            raise TypeError(f"Put takes an item, as in Put(Order(...)), not {named(self.entity)}")

    @property
    def key(self) -> Key[Any]:
        """Return the key of the item, built from the entity's fields."""
        return self.entity.item_key


@dataclass(frozen=True, slots=True, init=False)
class _FieldEffect(Effect, Generic[E_co]):
    key: Key[E_co]
    fields: dict[str, Any]

    def __init__(self, key: Key[E_co], /, **fields: Any) -> None:
        if key is not None:  # a migration's `Set` is for the item that it was given
            unknown = fields.keys() - _key_of(self, key).entity.model_fields.keys()
            if unknown:
                bad = ", ".join(sorted(unknown))
                raise ValueError(f"{type(self).__name__}: {key.entity.__name__} has no field {bad}")
        object.__setattr__(self, "guard", None)
        object.__setattr__(self, "table", None)
        object.__setattr__(self, "key", key)
        object.__setattr__(self, "fields", fields)


class Set(_FieldEffect[E_co]):
    """Set the named fields, creating the item if it does not exist; `None` removes the attribute.

    Fields of the item's key are written, too, so that a new item can be read; a change to one of
    them fails. So are the keys of indexes that follow from these fields and those that are set. If
    one needs other fields, too, the effect fails: set these as well, or `Put` the whole item.

    In a migration the key is left out: the effect sets fields, or attributes by their names in the
    table, of the item that the migration was given.
    """

    def __init__(self, key: Key[E_co] | None = None, /, **fields: Any) -> None:
        super().__init__(key, **fields)  # type: ignore[arg-type]


class Add(_FieldEffect[E_co]):
    """Add to number fields; a missing attribute (or item) counts as zero."""


class AddToSet(_FieldEffect[E_co]):
    """Add members to set fields; a missing set is empty."""


class RemoveFromSet(_FieldEffect[E_co]):
    """Remove members from set fields; an emptied set leaves the item."""


@dataclass(frozen=True, slots=True)
class Delete(Effect, Generic[E_co]):
    """Delete the item; an item that does not exist is no error.

    The deletion carries no origin: handlers that listen to it see a change of the application's,
    and hops are counted from zero again.
    """

    key: Key[E_co]

    def __post_init__(self) -> None:
        _key_of(self, self.key)


@dataclass(frozen=True, slots=True, init=False)
class Remove(Effect, Generic[E_co]):
    """In a migration: remove attributes of the item, by field or by their names in the table."""

    names: tuple[str, ...]

    def __init__(self, *names: str) -> None:
        object.__setattr__(self, "guard", None)
        object.__setattr__(self, "table", None)
        object.__setattr__(self, "names", names)


@dataclass(frozen=True, slots=True, init=False)
class Check(Effect, Generic[E_co]):
    """Write nothing, but apply the result only if the condition holds for the item."""

    key: Key[E_co]

    def __init__(
        self, key: Key[E_co], condition: Condition, *, otherwise: Otherwise = "park"
    ) -> None:
        object.__setattr__(self, "guard", Guard(condition, otherwise))
        object.__setattr__(self, "table", None)
        object.__setattr__(self, "key", _key_of(self, key))


@dataclass(frozen=True, slots=True, init=False)
class Completed(Effect):
    """Record, in the commit, that this handler is done with this change.

    For handlers with their own I/O: `Completions.has(change)` tells when the change comes again,
    after a rewind or in another consumer. `keep` counts from the change's creation; records are
    deleted by the table's TTL, and stay for ever on a table without one.
    """

    id: str
    until: int

    def __init__(self, change: Change[Any], *, keep: timedelta = timedelta(days=7)) -> None:
        object.__setattr__(self, "guard", None)
        object.__setattr__(self, "table", None)
        object.__setattr__(self, "id", change.idempotency_key)
        object.__setattr__(self, "until", int((change.created_at + keep).timestamp()))

    def only_if(self, condition: Condition, *, otherwise: Otherwise = "park") -> Self:  # noqa: ARG002
        """Refuse: whether a change is completed does not depend on an item."""
        raise TypeError("a Completed has no condition; leave it out of the result instead")

    def to(self, table: str) -> Self:  # noqa: ARG002
        """Refuse: the record is kept with streamkit's own items."""
        raise TypeError("a Completed is kept with streamkit's own items, not in another table")


class Named(Protocol):
    """The part of a sink that an effect uses."""

    @property
    def name(self) -> str:
        """Return the name of the sink in its app."""


@dataclass(frozen=True, slots=True, init=False)
class Send(Effect):
    """Deliver something to a sink of the app, at least once, before the change is committed.

    Deliveries of one item come in order while one worker owns its shard. After a crash, or if a
    condition of the same result does not hold at the commit, the delivery may come again, or
    without the result's other effects. Its idempotency key is then the same.

    Args:
        sink: what `App.sink` returned.
        body: JSON's types, with decimals and moments, or a pydantic model; None for a deletion.
        id: what it is about, such as a document's id; by default the item, by a hash of its key.
        attributes: text beside the body, as far as the sink can carry it.
    """

    sink: str
    body: Any
    id: str | None
    attributes: Mapping[str, str]
    recipient: str

    def __init__(
        self,
        sink: Named,
        body: Any,
        *,
        id: str | None = None,  # noqa: A002 - the word of the thing
        attributes: Mapping[str, str] | None = None,
    ) -> None:
        object.__setattr__(self, "guard", None)
        object.__setattr__(self, "table", None)
        object.__setattr__(self, "sink", sink.name)
        object.__setattr__(self, "body", body)
        object.__setattr__(self, "id", id)
        object.__setattr__(self, "attributes", attributes or {})
        object.__setattr__(self, "recipient", "")

    def addressed(self, recipient: str) -> Self:
        """Return this send for one recipient of a fan-out, whose name is part of key and group."""
        return self._with("recipient", recipient)

    def only_if(self, condition: Condition, *, otherwise: Otherwise = "park") -> Self:  # noqa: ARG002
        """Refuse: there is no item for a condition."""
        raise TypeError("a Send has no condition; put one on another effect of the result")

    def to(self, table: str) -> Self:  # noqa: ARG002
        """Refuse: a send goes to its sink."""
        raise TypeError("a Send goes to its sink, not to a table")


Result = Iterable[Effect] | Effect | None
"""What a handler may return: nothing, one effect, or several."""


def as_effects(result: Result) -> tuple[Effect, ...]:
    """Return a handler's result as a tuple of effects.

    Raises:
        TypeError: it holds something that is not an effect.
    """
    if result is None:
        return ()
    if isinstance(result, Effect):
        return (result,)
    # A dict and an entity can be iterated, and an error about their parts would mislead.
    several = isinstance(result, Iterable) and not isinstance(result, str | Mapping | Entity)
    effects: tuple[Any, ...] = tuple(result) if several else (result,)
    for effect in effects:
        if not isinstance(effect, Effect):
            given = named(effect)
            raise TypeError(f"a handler returns effects, as in Put(Order(...)), not {given}")
    return effects
