"""Refusals: what a refused commit means for each result in it. Pure.

In: an outcome, and which of its conditions did not hold. Out: the outcome, changed as its effects'
`otherwise` say: parked, dropped, without the effect, or to be made again. Commits and redrives both
use it.
"""

from collections.abc import Collection

from streamkit.core.outcome import Outcome, resolve
from streamkit.core.parking import Failure
from streamkit.model.schema import TableSchema
from streamkit.progress.actions import READ

REFUSALS_MAX = 5
"""How often a result may be refused for what it read, or asked to retry, before it has failed."""


def refuse(outcome: Outcome, effects: Collection[int], position: str, schema: TableSchema) -> None:
    """Change an outcome whose conditions did not hold, so that the next commit differs.

    A stale read comes first, because the handler's next run makes other effects. Otherwise the
    first effect whose condition did not hold decides; effects that may be omitted do not decide
    unless all may.

    Args:
        outcome: what the handler made of the change.
        effects: indexes of its effects, or `READ`.
        position: the change's position.
        schema: the table's schema.
    """
    outcome.refusals += 1
    ways = {index: _otherwise(outcome, index) for index in sorted(effects)}
    way = next((way for way in ways.values() if way != "omit"), "omit")
    if way == "retry":
        outcome.waiting = True
    elif way != "omit" and outcome.handler.broadcast is not None:
        outcome.defer()  # only one recipient is concerned; in the parked queue each is alone
    elif way == "skip":
        outcome.drop()
    elif way == "omit":
        _omit(outcome, ways, position, schema)
    else:
        outcome.fail(Failure("ConditionFailed", "the condition of an effect did not hold"))


def contended(outcome: Outcome) -> bool:
    """Give up on an outcome if it was refused too often; return whether it was.

    The outcome of a fan-out is deferred instead, because its change has not failed.
    """
    if not outcome.waiting or outcome.refusals <= REFUSALS_MAX:
        return False
    if outcome.handler.broadcast is not None:
        outcome.defer()  # of many recipients one often changes; in the parked queue each is alone
        return True
    detail = "what it read or checked kept changing before the commit"
    outcome.give_up(Failure("Contended", detail, outcome.refusals))
    return True


def _otherwise(outcome: Outcome, index: int) -> str:
    if index == READ:
        return "retry"
    guard = outcome.effects[index].guard
    return guard.otherwise if guard else "park"


def _omit(outcome: Outcome, indexes: Collection[int], position: str, schema: TableSchema) -> None:
    outcome.omitted |= set(indexes)
    outcome.run += 1  # results that saw the omitted effects are stale now
    try:
        resolve(outcome, outcome.effects, outcome.reads, position, schema)
    except (ValueError, ArithmeticError) as error:
        outcome.give_up(Failure.of(error, 1))
