"""Declare derived items, which follow from one source item and exist as long as it does.

    @app.derive
    def email_marker(customer: Customer) -> CustomerEmail:
        return CustomerEmail(email=customer.email, username=customer.username)

The function turns an item into the items that it implies: one, several or none. They are put and
deleted with their source, and name their source in an attribute of their own, `_sk_of`. An item of
the application's, or of another source, is never overwritten: the change is parked, and retried
until the place is free. An item that is there already and equal is taken over.

A place is also free when the source that holds it does not imply its item any more, and only that
source's own change is still to be processed: otherwise sources that exchange what they imply, in
one transaction and in a circle of any length, would wait for each other for ever. This is looked up
only where a place was found taken. A change that is out of date then also leaves out what its own
source does not imply any more: a later change of the source deletes it anyway.
"""

import inspect
import json
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args, get_origin

from streamkit.changes import Change, Kind
from streamkit.core.handler import AUDIENCE, Handler, Policy
from streamkit.core.writes import ANY_KIND, named_entities
from streamkit.effects import Delete, Effect, Otherwise
from streamkit.entity import Entity, spec_of
from streamkit.errors import USER_ERRORS, DeclarationError, Unavailable, UnknownTable
from streamkit.model.conditions import Attr, Condition, ConditionBase, absent, any_of, attribute
from streamkit.model.declaration import Declaration, named
from streamkit.model.keys import Key
from streamkit.progress.own_effects import Owned
from streamkit.table import Table

OWNER = "_sk_of"
"""The attribute of a derived item that names its source."""

Conflict = Literal["park", "skip"]
"""What happens if a derived item's place is taken: the change is parked, or the item left out."""


@dataclass(frozen=True)
class Derivation:
    """One function that derives items; `siblings` are all derivations of its app, by name."""

    name: str
    function: Callable[..., Any]
    source: type[Entity]
    conflict: Conflict
    siblings: "Mapping[str, Derivation]"

    def run(self, change: Change[Any]) -> list[Effect]:
        """Return the effects that turn a source's old derived items into its new ones.

        If a place is taken the commit is refused, and the change is run by `settle` instead.
        """
        mine = Attr(OWNER).eq(self._owner(change))
        return [
            *self._deletions(change),
            *(self._put(item, change, _free(item, mine), "retry") for item in self._news(change)),
        ]

    async def settle(self, change: Change[Any], **tools: Any) -> list[Effect]:
        """Return the same effects where places are taken; read the items that hold them."""
        table: Table = tools[AUDIENCE]
        owner, effects = self._owner(change), self._deletions(change)
        mine = Attr(OWNER).eq(owner)
        for item in self._news(change):
            free = _free(item, mine)
            place = (await table.look(item.item_key)).item
            holder = str(place[OWNER].get("S", "")) if OWNER in place else None
            if not place or holder == owner:
                effects.append(self._put(item, change, free, "retry"))
            elif not await self._implied(owner, item.item_key, table, check=False):
                continue  # a later change of this source has deleted the item, or will delete it
            elif holder is not None and not await self._implied(holder, item.item_key, table):
                left = any_of(free, Attr(OWNER).eq(holder))
                effects.append(self._put(item, change, left, "retry"))
            else:
                otherwise: Otherwise = "park" if self.conflict == "park" else "omit"
                effects.append(self._put(item, change, free, otherwise))
        return effects

    def items(self, source: Entity | None) -> dict[Key[Any], Entity]:
        """Return what a source implies, by key."""
        found = () if source is None else _derived(self.function, source)
        return {item.item_key: item for item in found}

    def _news(self, change: Change[Any]) -> list[Entity]:
        old = self.items(change.old)
        new: dict[Key[Any], Entity] = {}
        for item in () if change.new is None else _derived(self.function, change.new):
            if new.setdefault(item.item_key, item) != item:
                raise ValueError(
                    f"{self.name} derives two different items {type(item).__name__} of one key, of"
                    " which only one could be kept; give their keys what tells them apart"
                )
        return [item for key, item in new.items() if old.get(key) != item]

    def _deletions(self, change: Change[Any]) -> list[Effect]:
        mine = Attr(OWNER).eq(self._owner(change))
        old, new = self.items(change.old), self.items(change.new)
        return [Delete(key).only_if(mine, otherwise="omit") for key in old if key not in new]

    def _put(
        self, item: Entity, change: Change[Any], condition: Condition, otherwise: Otherwise
    ) -> Effect:
        owned = Owned(item, {OWNER: self._owner(change)})
        return owned.only_if(condition, otherwise=otherwise)

    def _owner(self, change: Change[Any]) -> str:
        return json.dumps([self.name, str(change.key.pk), str(change.key.sk)])

    async def _implied(
        self, owner: str, key: Key[Any], table: Table, *, check: bool = True
    ) -> bool:
        """Return whether an owner implies an item now; True also if that cannot be known.

        With `check`, the result only holds while the owner stays as it is read here.
        """
        try:
            name, pk, sk = json.loads(owner)
            other = self.siblings[name]
            there = Key(other.source, pk, None if table.schema.sk is None else sk)
            return key in other.items(await table.get(there, check=check))
        except (Unavailable, UnknownTable):
            raise
        except USER_ERRORS:  # of another release, an item that does not fit, user code
            return True


def derive_handler(
    function: Callable[..., Any],
    *,
    name: str | None,
    conflict: Conflict,
    policy: Policy,
    siblings: dict[str, Derivation],
) -> Handler:
    """Make the handler that keeps the items a function derives; add the function to the `siblings`.

    Raises:
        DeclarationError: it does not take one entity.
    """
    declared = Declaration.of(function)
    parameters = list(inspect.signature(function).parameters.values())
    hints = declared.hints(function)
    source = hints.get(parameters[0].name) if len(parameters) == 1 else None
    if not (isinstance(source, type) and issubclass(source, Entity)):
        raise DeclarationError(
            f"{declared}: it takes the source alone, as in (customer: Customer) -> CustomerEmail"
        )
    if inspect.iscoroutinefunction(function):
        raise DeclarationError(
            f"{declared}: a derived item follows from its source alone; use def, not async def"
        )
    if _names_effect(hints.get("return")):
        raise DeclarationError(
            f"{declared}: it returns the items that follow, as in -> CustomerEmail | None, and no"
            " effects: they are put and deleted by themselves"
        )
    if conflict not in ("park", "skip"):
        raise DeclarationError(f"{declared}: conflict={conflict!r}: park or skip")
    spec_of(source)
    own_name = name or function.__name__
    derivation = Derivation(own_name, function, source, conflict, siblings)
    siblings[own_name] = derivation
    written = frozenset(named_entities(hints.get("return"))) or None
    handler = Handler(
        name=own_name,
        entity=source,
        kinds=frozenset(Kind),
        run=derivation.run,
        declared=declared,
        policy=policy,
        writes=written,
        causes=dict.fromkeys(written or (), ANY_KIND),
        names=written or frozenset(),
        converges=True,
    )
    settling = replace(handler, run=derivation.settle, is_async=True, needs={AUDIENCE: Table})
    return replace(handler, contested=settling)


def _free(item: Entity, mine: ConditionBase) -> Condition:
    return any_of(absent, mine, _equals(item))


def _equals(item: Entity) -> ConditionBase:
    """Return the condition that an equal item without an owner exists."""
    condition = Attr(OWNER).not_exists()
    for name, value in item.model_dump(by_alias=True).items():
        empty = value is None or (isinstance(value, AbstractSet) and not value)
        there = attribute(name)
        condition = condition & (there.not_exists() if empty else there.eq(value))
    return condition


def _derived(function: Callable[..., Any], item: Entity) -> list[Entity]:
    result = function(item)
    if result is None:
        return []
    several = isinstance(result, Iterable) and not isinstance(result, Entity)
    found = list(result) if several else [result]
    for entity in found:
        if not isinstance(entity, Entity):
            raise TypeError(f"the items are derived, as in CustomerEmail(...), not {named(entity)}")
    return found


def _names_effect(annotation: Any) -> bool:
    kind = get_origin(annotation) or annotation
    if isinstance(kind, type) and issubclass(kind, Effect):
        return True
    return any(_names_effect(argument) for argument in get_args(annotation))
