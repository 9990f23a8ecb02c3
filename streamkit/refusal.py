"""Refusals: what a commit that was refused means for the results in it.

A cancelled transaction names the action whose condition failed, not which part of it: the
conditions of several effects, and of what handlers read, may have been joined on one item.
`failing` asks about each part alone, so that a stale read of one handler never drops the effect of
another. `refuse` then changes an outcome as its effects' `otherwise` say.
"""

from collections.abc import Collection
from typing import Any

import anyio

from streamkit.actions import READ, Action, GuardSource, Verb, render
from streamkit.aws import AwsError, Trouble, patiently, trouble_of
from streamkit.conditions import identity
from streamkit.outcome import Outcome, resolve
from streamkit.parking import Failure
from streamkit.schema import TableSchema

REFUSALS_MAX = 5
"""Times a result may be refused for what it read, or asked to retry, before it has failed."""
_CONFLICT_PAUSE = 0.05


async def failing(dynamodb: Any, schema: TableSchema, action: Action) -> list[GuardSource]:
    """Return whose conditions on a refused item do not hold; none if the item has changed since.

    Raises:
        ClientError: the credentials may not check items.
    """
    parts = {identity(guard.condition): guard for guard, _ in action.guards}
    failed = {
        name
        for name, guard in parts.items()
        if len(parts) == 1
        or not await _holds(dynamodb, schema, Action(action.ref, Verb.CHECK, guards=[(guard, _A)]))
    }
    return [source for guard, source in action.guards if identity(guard.condition) in failed]


_A = GuardSource("", "", 0)


async def _holds(dynamodb: Any, schema: TableSchema, check: Action) -> bool:
    request = [render(check, schema)]
    while True:
        try:
            await patiently(lambda: dynamodb.transact_write_items(TransactItems=request))
        except AwsError as error:
            if trouble_of(error) not in (Trouble.CANCELED, Trouble.CONFLICT):
                raise
            reasons = getattr(error, "response", {}).get("CancellationReasons", [])
            if any(reason.get("Code") == "ConditionalCheckFailed" for reason in reasons):
                return False
            await anyio.sleep(_CONFLICT_PAUSE)
        else:
            return True


def refuse(outcome: Outcome, effects: Collection[int], position: str, schema: TableSchema) -> None:
    """Change an outcome whose conditions did not hold, so that the next commit is another one.

    A stale read comes first, because the handler's next run makes other effects. Else the first
    effect that did not hold decides, and those that may be omitted leave that to the others.

    Args:
        outcome: what the handler made of the change.
        effects: indexes of its effects, or `READ`.
        position: of the change.
        schema: the table's.
    """
    outcome.refusals += 1
    ways = {index: _otherwise(outcome, index) for index in sorted(effects)}
    way = next((way for way in ways.values() if way != "omit"), "omit")
    if way == "retry":
        outcome.waiting = True
    elif way == "skip":
        outcome.drop()
    elif way == "omit":
        _omit(outcome, ways, position, schema)
    else:
        outcome.fail(Failure("ConditionFailed", "the condition of an effect did not hold"))


def contended(outcome: Outcome) -> bool:
    """Give up on an outcome that has to run again, if it has been refused too often."""
    if not outcome.waiting or outcome.refusals <= REFUSALS_MAX:
        return False
    detail = "what it read or checked kept changing before the commit"
    outcome.give_up(Failure("Contended", detail, outcome.refusals))
    return True


def _otherwise(outcome: Outcome, index: int) -> str:
    if index == READ:
        return "retry"
    guard = outcome.effects[index].guard
    return guard.otherwise if guard else "park"


def _omit(
    outcome: Outcome, indexes: Collection[int], position: str, schema: TableSchema
) -> None:
    outcome.omitted |= set(indexes)
    outcome.run += 1  # who saw the effects that are left out now has to look again
    try:
        resolve(outcome, outcome.effects, outcome.reads, position, schema)
    except (ValueError, ArithmeticError) as error:
        outcome.give_up(Failure.of(error, 1))
