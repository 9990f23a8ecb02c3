"""Pausing: a consumer does nothing until it is resumed, whatever host runs it.

Workers see it beside the members, functions in the consumer's item; one transaction writes both.
The consumer's item counts how often it was paused or resumed, so that a late command that other
ones have overtaken does nothing.

In: a consumer's control items. Out: it is paused, or is not. On failure: `ConfigurationError`.
"""

import random

from streamkit.effects import Guard
from streamkit.errors import ConfigurationError
from streamkit.fleet.hosting import DELETING, WORKERS, check_host
from streamkit.fleet.members import Roster
from streamkit.model.conditions import Attr, ConditionBase
from streamkit.progress.actions import OURS
from streamkit.progress.cursor import CursorStore
from streamkit.progress.transaction import transact

_TURNS = "turns"


async def set_paused(store: CursorStore, since: int) -> str:
    """Stop a consumer's reading since a moment (epoch seconds); 0 lets it continue.

    Returns:
        The consumer's host.

    Raises:
        ConfigurationError: there is no such consumer, it is being deleted, or another process has
            paused or resumed it meanwhile.
    """
    first: str | None = None
    schemas = {store.space.schema.name: store.space.schema}
    while True:
        item = await store.item("consumer")
        if item is None:
            raise ConfigurationError(f"{store.space.consumer} has not run on this stream yet")
        host = item.get("host", {"S": ""})["S"]
        if host == DELETING:
            check_host(store.space.consumer, host, WORKERS)
        turns = item.get(_TURNS, {"N": "0"})["N"]
        if first not in (None, turns):
            if ("paused" in item) == bool(since):
                return host or WORKERS
            raise ConfigurationError("another command paused or resumed it meanwhile; try again")
        first = turns
        action = store.space.update("consumer")
        action.sets[_TURNS] = {"N": str(int(turns) + 1)}
        if since:
            action.sets["paused"] = {"N": str(since)}
        else:
            action.removes.add("paused")
        as_read = _is("host", host) & _is(_TURNS, int(turns))
        action.guards.append((Guard(Attr("generation").exists() & as_read), OURS))
        together = [action, Roster(store).pausing(since)]
        if await transact(store.dynamodb, schemas, together, random.Random()) is None:
            return host or WORKERS


def _is(name: str, value: str | int) -> ConditionBase:
    return Attr(name).eq(value) if value else Attr(name).not_exists()
