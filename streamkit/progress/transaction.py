"""Transaction: actions that commit together without a cursor.

In: actions that carry their own conditions; the transaction itself makes at least one of them
false. That condition, not the client token, makes a repeated send harmless. Out: None when applied;
else the effects whose conditions did not hold, or that DynamoDB finds an action invalid.

On failure: an unknown fate, a conflict and throttling are tried again with growing pauses; after
the last try the service's own error is raised.
"""

import random
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from streamkit.aws import PASSING, ErrorKind, code_of, is_throttled, trouble_of, until_known
from streamkit.errors import ConfigurationError
from streamkit.model.schema import TableSchema
from streamkit.model.sdk.signing_again import SENDER_REFUSED
from streamkit.observe.logger import get_logger
from streamkit.observe.meters import current
from streamkit.progress.actions import Action, render
from streamkit.progress.probing import blamed
from streamkit.progress.verdicts import Again, Invalid, RefusedCommit, judge

Send = Callable[[Sequence[Action], random.Random], Awaitable[RefusedCommit | Invalid | None]]
"""A function that applies all actions or none, like `transact`; it may add a condition of its
own."""

ACTIONS_MAX = 100
"""The most actions that `TransactWriteItems` takes."""
SENT_AGAIN = PASSING | {ErrorKind.CONFLICT, ErrorKind.CANCELED}
"""Problems after which the same transaction may be sent again later, when its tries are used up."""

_TRIES = 12
"""With pauses of 50 ms to 5 s these take about 30 seconds; a client token lives for ten minutes."""

log = get_logger("streamkit.transaction")


async def transact(
    dynamodb: Any,
    schemas: Mapping[str, TableSchema],
    actions: Sequence[Action],
    rng: random.Random,
) -> RefusedCommit | Invalid | None:
    """Apply all actions or none; return None once they are applied, or why they cannot be.

    Raises:
        ConfigurationError: the credentials may not write, or a table is missing.
        ClientError: the service could not be reached, or was too busy, for half a minute.
    """
    request = [render(action, schemas[action.ref.table]) for action in actions]
    token = uuid.uuid4().hex

    async def send() -> None:
        # A death here leaves all actions applied or none. The token makes AWS drop repetitions for
        # ten minutes only; after that the actions' own conditions do, which a success makes false.
        await dynamodb.transact_write_items(TransactItems=request, ClientRequestToken=token)

    async def meaning(error: Exception) -> RefusedCommit | Invalid | None:
        verdict = await _verdict(error, actions, dynamodb, schemas)
        if verdict is None:
            _count(error)
            log.often("transaction.repeated", by=code_of(error), code=code_of(error))
        return verdict

    return await until_known(send, meaning, rng=rng, tries=_TRIES)


def _count(error: Exception) -> None:
    """Count a conflict in the current meters; throttling is counted call by call elsewhere."""
    meters, reply = current.get(), getattr(error, "response", None)
    conflict = trouble_of(error) in (ErrorKind.CONFLICT, ErrorKind.CANCELED)
    if meters is not None and reply is not None and conflict and not is_throttled(reply):
        meters.conflicts.add()


async def _verdict(
    error: Exception,
    actions: Sequence[Action],
    dynamodb: Any,
    schemas: Mapping[str, TableSchema],
) -> RefusedCommit | Invalid | None:
    """Return the final meaning of an error; None means that another try may succeed."""
    verdict = judge(error)
    if isinstance(verdict, RefusedCommit):
        sources = await blamed(dynamodb, schemas, [actions[place] for place in verdict.items])
        return RefusedCommit(sources) if sources else None
    if isinstance(verdict, Again):
        return None
    if verdict is not None:
        return verdict
    raise refused("a transaction", error) from error


def refused(what: str, error: Exception) -> ConfigurationError:
    """Return the error for a write that AWS refuses, whatever is in it; it says what to mend."""
    code = code_of(error)
    permitted = "; check the credentials' permission to write items and the tables' names"
    return ConfigurationError(
        f"the table refuses {what}: {code}{'' if code in SENDER_REFUSED else permitted}"
    )
