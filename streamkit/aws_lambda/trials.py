"""Trials: how often a batch was begun and not ended, to find the change that ends its function.

A function that is killed reports nothing, and the mapping sends the same records again, for ever.
So each invocation writes down that it begins with a record, and takes that back when it ends in an
orderly way and asks for the record again. Several begun in a row mean that one of the next records
may be deadly: then they are taken one by one, each written down before it is run.
"""

from dataclasses import dataclass
from decimal import Decimal

from streamkit.aws_lambda.marks import KEPT_SECONDS
from streamkit.clock import Clock
from streamkit.cursor import CursorStore

SUSPICIOUS = 3
"""Invocations in a row that began with a record and did not end, from which on to be careful."""
DEADLY = 2
"""Invocations that ended while they ran one change alone, from which on it is parked unrun."""


@dataclass(frozen=True)
class Trials:
    """Counts of one consumer."""

    store: CursorStore
    clock: Clock

    async def begin(self, kind: str, position: str) -> int:
        """Write down that a batch, or a change alone, is begun; return how often it was before."""
        action = self.store.space.update("trial", kind, position)
        action.adds["tries"] = Decimal(1)
        action.sets["expires"] = {"N": str(int(self.clock.time()) + KEPT_SECONDS)}
        item = await self.store.write(action)
        return int(item["tries"]["N"]) - 1

    async def end(self, kind: str, position: str) -> None:
        """Take it back: what was begun has ended."""
        action = self.store.space.update("trial", kind, position)
        action.sets["tries"] = {"N": "0"}
        await self.store.write(action)
