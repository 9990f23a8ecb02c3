"""Probing: find which of several conditions on one item does not hold.

A cancelled transaction names the action whose condition failed, but not which part of it. The
conditions of several effects, and of handlers' reads, may have been joined on one item. In: the
refused action. Out: the effects and reads whose conditions do not hold. Each condition is checked
alone, on the item as it is now, so a stale read of one handler never drops the effect of another.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import anyio

from streamkit.aws import AwsError, ErrorKind, patiently, trouble_of
from streamkit.model.conditions import identity
from streamkit.model.schema import TableSchema
from streamkit.progress.actions import OURS, Action, GuardSource, Verb, render
from streamkit.progress.verdicts import reasons_of

_NEVER = ("ConditionalCheckFailed", "ValidationError")
"""Codes for a condition that is false, or invalid and therefore never true."""
_CONFLICT_SECONDS = 0.05
"""The pause until the transaction that uses the item has settled."""


async def blamed(
    dynamodb: Any, schemas: Mapping[str, TableSchema], refused: Sequence[Action]
) -> tuple[GuardSource, ...]:
    """Return the sources of the conditions on refused actions that do not hold; see `failing`."""
    found: list[GuardSource] = []
    for action in refused:
        found += await failing(dynamodb, schemas[action.ref.table], action)
    return tuple(found)


async def failing(dynamodb: Any, schema: TableSchema, action: Action) -> list[GuardSource]:
    """Return the sources of an action's conditions that do not hold.

    Several conditions are checked on the item as it is now: none is left if it has changed. A
    single one is not checked again.

    Raises:
        ClientError: the credentials may not check items.
    """
    parts = {identity(guard.condition): guard for guard, _ in action.guards}
    failed = set(parts)
    if len(parts) > 1:
        for name, guard in parts.items():
            check = Action(action.ref, Verb.CHECK, guards=[(guard, OURS)])
            if await _holds(dynamodb, schema, check):
                failed.discard(name)
    return [source for guard, source in action.guards if identity(guard.condition) in failed]


async def _holds(dynamodb: Any, schema: TableSchema, check: Action) -> bool:
    request = [render(check, schema)]
    while True:
        try:
            await patiently(lambda: dynamodb.transact_write_items(TransactItems=request))
        except AwsError as error:
            if trouble_of(error) not in (ErrorKind.CANCELED, ErrorKind.CONFLICT):
                raise
            if any(reason.get("Code") in _NEVER for reason in reasons_of(error)):
                return False
            await anyio.sleep(_CONFLICT_SECONDS)
        else:
            return True
