"""Derived items: items that follow from one item, and are there as long as it is.

    @app.derive
    def email_marker(customer: Customer) -> CustomerEmail:
        return CustomerEmail(email=customer.email, username=customer.username)

The function turns an item into the items that it implies: one, several or none. They are put and
deleted with their source, and say in an attribute of their own, `_sk_of`, which source that is. An
item of the application's, or of another source, is never overwritten: the change is parked, and
tried again until the place is free. One that is there already and equal is taken over.
"""

import inspect
import json
from collections.abc import Callable, Iterable, Iterator
from collections.abc import Set as AbstractSet
from typing import Any, Literal, get_args, get_type_hints

from streamkit.changes import Change, Kind
from streamkit.effects import Delete, Effect, Otherwise, Owned
from streamkit.entity import Entity, spec_of
from streamkit.errors import DeclarationError
from streamkit.handler import Handler, Policy
from streamkit.model.conditions import Attr, ConditionBase, absent, any_of, attribute
from streamkit.model.declaration import Declaration
from streamkit.model.keys import Key
from streamkit.model.writes import ANY_KIND

OWNER = "_sk_of"
"""The attribute of a derived item that names its source."""

Conflict = Literal["park", "skip"]
"""Whether a change whose derived item finds its place taken is parked, or the item left out."""


def derive_handler(
    function: Callable[..., Any], *, name: str | None, conflict: Conflict, policy: Policy
) -> Handler:
    """Make the handler that keeps the items a function derives.

    Raises:
        DeclarationError: it does not take one entity.
    """
    declared = Declaration.of(function)
    parameters = list(inspect.signature(function).parameters.values())
    hints = get_type_hints(function)
    source = hints.get(parameters[0].name) if len(parameters) == 1 else None
    if not (isinstance(source, type) and issubclass(source, Entity)):
        raise DeclarationError(
            f"{declared}: it takes the source alone, as in (customer: Customer) -> CustomerEmail"
        )
    if inspect.iscoroutinefunction(function):
        raise DeclarationError(f"{declared}: what is derived follows from the item alone: use def")
    if conflict not in ("park", "skip"):
        raise DeclarationError(f"{declared}: conflict={conflict!r}: park or skip")
    spec_of(source)
    own_name = name or function.__name__

    def run(change: Change[Any]) -> list[Effect]:
        old, new = (_derived(function, item) for item in (change.old, change.new))
        owner = json.dumps([own_name, str(change.key.pk), str(change.key.sk)])
        return difference(old, new, owner, conflict)

    written = frozenset(_entities(hints.get("return"))) or None
    return Handler(
        name=own_name,
        entity=source,
        kinds=frozenset(Kind),
        run=run,
        declared=declared,
        policy=policy,
        writes=written,
        causes=dict.fromkeys(written or (), ANY_KIND),
        converges=True,
    )


def difference(
    old: dict[Key[Any], Entity], new: dict[Key[Any], Entity], owner: str, conflict: Conflict
) -> list[Effect]:
    """Return the effects that turn a source's old derived items into its new ones."""
    mine = Attr(OWNER).eq(owner)
    effects: list[Effect] = [
        Delete(key).only_if(mine, otherwise="omit") for key in old if key not in new
    ]
    for key, item in new.items():
        if old.get(key) != item:
            free = any_of(absent, mine, _equals(item))
            otherwise: Otherwise = "park" if conflict == "park" else "omit"
            effects.append(Owned(item, {OWNER: owner}).only_if(free, otherwise=otherwise))
    return effects


def _equals(item: Entity) -> ConditionBase:
    """Return the condition that an item nobody derives is there, and is the same."""
    condition = Attr(OWNER).not_exists()
    for name, value in item.model_dump(by_alias=True).items():
        empty = value is None or (isinstance(value, AbstractSet) and not value)
        there = attribute(name)
        condition = condition & (there.not_exists() if empty else there.eq(value))
    return condition


def _entities(annotation: Any) -> Iterator[type[Entity]]:
    """Yield the entities that an annotation names, in unions and collections too."""
    if isinstance(annotation, type) and issubclass(annotation, Entity):
        yield annotation
    for argument in get_args(annotation):
        yield from _entities(argument)


def _derived(function: Callable[..., Any], item: Entity | None) -> dict[Key[Any], Entity]:
    if item is None:
        return {}
    result = function(item)
    items: Iterable[Any] = () if result is None else result
    if isinstance(result, Entity):
        items = (result,)
    found = list(items)
    for entity in found:
        if not isinstance(entity, Entity):
            raise TypeError(f"an entity is derived, not a {type(entity).__name__}")
    return {entity.item_key: entity for entity in found}
