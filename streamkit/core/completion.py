"""Completions: the changes that a handler with its own I/O has finished, remembered for later runs.

    @app.on(delivery="at_least_once")
    async def mail(
        change: Inserted[Order], mailer: Mailer, completions: Completions
    ) -> Completed | None:
        if await completions.has(change):
            return None
        await mailer.send(change.new, idempotency_key=change.idempotency_key)
        return Completed(change)

In: a change. Out: whether the table has a record of it, which `Completed` writes in the commit of
the change's position. The records are control items, named by the change's idempotency key alone.
So they are valid for a rewind, and for every consumer with a handler of that name. If the process
crashes between the I/O and the commit, the I/O is done again.

On failure: a table that does not answer is `Unavailable`, and the handler runs again.
"""

from typing import Any

from streamkit.aws import PASSING, AwsError, code_of, trouble_of
from streamkit.changes import Change
from streamkit.effects import Completed
from streamkit.errors import Unavailable
from streamkit.model.schema import TableSchema
from streamkit.progress.actions import Action
from streamkit.progress.control import ControlSpace

_ALL = "-"
"""Stands in keys for a consumer's name and its stream's label: the records belong to no
consumer."""


class Completions:
    """Tells whether changes are completed; a handler gets one when its signature asks for it."""

    def __init__(self, dynamodb: Any, schema: TableSchema) -> None:
        self._dynamodb = dynamodb
        self._space = _space(schema)

    async def has(self, change: Change[Any]) -> bool:
        """Return whether this handler has completed this change before; strongly consistent.

        Raises:
            Unavailable: the table throttles or does not answer.
        """
        try:
            reply = await self._dynamodb.get_item(
                TableName=self._space.schema.name,
                Key=self._space.key("done", change.idempotency_key),
                ConsistentRead=True,
            )
        except AwsError as error:
            if trouble_of(error) in PASSING:
                raise Unavailable(f"the table cannot be read now: {code_of(error)}") from error
            raise
        return "Item" in reply


def completion(effect: Completed, schema: TableSchema) -> Action:
    """Return the action that writes a completion.

    Raises:
        ConfigurationError: the table cannot hold control items.
    """
    return _space(schema).put({"expires": {"N": str(effect.until)}}, "done", effect.id)


def _space(schema: TableSchema) -> ControlSpace:
    return ControlSpace.of(schema, _ALL, _ALL)
