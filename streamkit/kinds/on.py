"""Plain handlers: functions that turn one change into effects.

The signature says everything: the first parameter's annotation names the entity and the kinds of
changes, further parameters ask for a `Table` or for what the app's lifespan yields.
"""

import inspect
from collections.abc import Callable
from typing import Any, get_type_hints

from streamkit.changes import read_annotation
from streamkit.declaration import Declaration
from streamkit.errors import DeclarationError
from streamkit.handler import Handler, Policy
from streamkit.when import When


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
    try:
        hints = get_type_hints(function)
    except NameError as error:
        raise DeclarationError(
            f"{declared}: its annotations name {error.name!r}, unknown"
        ) from error
    first = parameters[0].name
    if first not in hints:
        raise DeclarationError(f"{declared}: annotate {first!r}, as in {first}: Inserted[Order]")
    try:
        kinds, entity = read_annotation(hints[first])
    except DeclarationError as error:
        raise DeclarationError(f"{declared}: {error}") from None
    needs = {}
    for parameter in parameters[1:]:
        wanted = hints.get(parameter.name)
        if parameter.default is not parameter.empty:
            continue
        if not isinstance(wanted, type):
            raise DeclarationError(
                f"{declared}: annotate {parameter.name!r} with the class it asks for"
            )
        needs[parameter.name] = wanted
    if when is not None:
        try:
            when.check(entity)
        except DeclarationError as error:
            raise DeclarationError(f"{declared}: {error}") from None
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
    )
