"""Declare plain handlers: functions that turn one change into effects.

The signature contains everything: the first parameter's annotation names the entity and the kinds
of changes, further parameters ask for a `Table` or for what the app's lifespan yields.
"""

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Literal, get_args

from streamkit.core.handler import Delivery, Handler, Migrations, Policy, Shadow
from streamkit.core.writes import DeclaredWrites, declared_writes, named_entities, read_writes
from streamkit.entity import Entity
from streamkit.errors import DeclarationError
from streamkit.kinds.annotation import read_annotation
from streamkit.model.declaration import Declaration
from streamkit.model.when import When, checked


def function_handler(
    function: Callable[..., Any], *, name: str | None, when: When | None, policy: Policy
) -> Handler:
    """Make a handler of a function.

    Raises:
        DeclarationError: its signature, or a field that `when` names, does not fit.
    """
    declared = Declaration.of(function)
    parameters = list(inspect.signature(function).parameters.values())
    if not parameters:
        raise DeclarationError(f"{declared}: a handler takes the change, as in change: Inserted[X]")
    hints = declared.hints(function)
    first = parameters[0].name
    if first not in hints:
        raise DeclarationError(f"{declared}: annotate {first!r}, as in {first}: Inserted[Order]")
    kinds, entity = read_annotation(hints[first], declared)
    needs = needs_of(parameters[1:], hints, declared)
    writes = writes_of(hints, when, entity, declared)
    return Handler(
        name=name or function.__name__,
        entity=entity,
        kinds=kinds,
        run=function,
        declared=declared,
        is_async=inspect.iscoroutinefunction(function),
        when=when,
        needs=needs,
        policy=policy,
        writes=None if writes.entities is None else frozenset(writes.entities),
        causes=writes.entities or {},
        effects=writes.effects,
        sends=writes.sends,
        names=names_of(hints),
    )


def names_of(hints: Mapping[str, Any]) -> frozenset[type[Entity]]:
    """Return the entities that a handler's annotations name."""
    return frozenset(entity for hint in hints.values() for entity in named_entities(hint))


def needs_of(
    parameters: Iterable[inspect.Parameter], hints: Mapping[str, Any], declared: Declaration
) -> dict[str, type[Any]]:
    """Return what further parameters of a handler ask for, by their annotations.

    Raises:
        DeclarationError: one has neither a default nor a class.
    """
    needs: dict[str, type[Any]] = {}
    for parameter in parameters:
        if parameter.default is not parameter.empty:
            continue
        wanted = hints.get(parameter.name)
        if not isinstance(wanted, type):
            raise DeclarationError(
                f"{declared}: annotate {parameter.name!r} with the class that it asks for:"
                " Table, or one that the app's lifespan yields"
            )
        needs[parameter.name] = wanted
    return needs


def check_when(when: When | None, entity: type[Entity], declared: Declaration) -> None:
    """Check a handler's `when` against its entity.

    Raises:
        DeclarationError: it is no condition, or names an unknown field.
    """
    try:
        if when is not None:
            checked(when).check(entity)
    except DeclarationError as error:
        raise DeclarationError(f"{declared}: {error}") from None


def writes_of(
    hints: Mapping[str, Any], when: When | None, entity: type[Entity], declared: Declaration
) -> DeclaredWrites:
    """Return what a handler's annotations say it writes, and check its `when` against its entity.

    Raises:
        DeclarationError: it returns something that is no effect, or `when` names an unknown field.
    """
    check_when(when, entity, declared)
    try:
        return read_writes(hints["return"]) if "return" in hints else DeclaredWrites()
    except DeclarationError as error:
        raise DeclarationError(f"{declared}: {error}") from None


def with_statements(
    handler: Handler,
    writes: Iterable[type[Entity]] | None,
    cycle: Literal["bounded"] | None,
    migrations: Migrations,
    *,
    shadow: Shadow = False,
    delivery: Delivery | None = None,
) -> Handler:
    """Add what a handler's declaration says beside its signature.

    A shadow handler and the applied handler have different definitions, so that the applied one
    starts as a new handler.

    Raises:
        DeclarationError: a value is not one of the known ones.
    """
    for name, value, known in (
        ("cycle", cycle, (None, "bounded")),
        ("shadow", shadow, (False, True, "log")),
        ("delivery", delivery, (None, *get_args(Delivery))),
        ("migrations", migrations, get_args(Migrations)),
    ):
        if value not in known:
            raise DeclarationError(f"{handler.declared}: {name}={value!r}: one of {known}")
    if shadow:
        # A shadow delays nothing, also where it had parked queues as a handler that was applied.
        definition = f"{handler.definition}shadow"
        handler = replace(handler, shadow=shadow, definition=definition, commutes=True)
    if writes is not None:
        read = DeclaredWrites(None if handler.writes is None else handler.causes, handler.effects)
        said = declared_writes(writes, read, handler.declared).entities or {}
        names = handler.names | said.keys()
        handler = replace(handler, writes=frozenset(said), causes=said, names=names)
    return replace(handler, cycle=cycle, delivery=delivery, migrations=migrations)
