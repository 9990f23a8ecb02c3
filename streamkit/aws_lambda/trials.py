"""Trials: how often a batch was begun and not ended, to find the change that ends its function.

A function that is killed reports nothing, and the mapping sends the same records again, for ever.
So an invocation writes down that it begins with a record, and takes that back when it ends in an
orderly way and asks for the record again. Several begun in a row mean that one of the next records
may be deadly: then they are taken one by one, each written down before it is run.

Nothing is written for records that are young: no mapping that keeps up costs anything, and what
comes again for ever grows old.
"""

from dataclasses import dataclass
from decimal import Decimal

from streamkit.actions import Wire
from streamkit.clock import Clock
from streamkit.cursor import CursorStore
from streamkit.decode import Record
from streamkit.processing.mark import KEPT_SECONDS

YOUNG_SECONDS = 60.0
"""A record that is younger is not counted: it may come for the first time."""
SUSPICIOUS = 3
"""Invocations in a row that began with a record and did not end, from which on to be careful."""
DEADLY = 2
"""Invocations that ended while they ran one change alone, from which on it is parked unrun."""


@dataclass(frozen=True)
class Trials:
    """Counts of one consumer; one that is founded anew begins to count anew."""

    store: CursorStore
    clock: Clock
    incarnation: str

    def counts(self, record: Record) -> bool:
        """Say whether a record is so old that it may have come before."""
        return self.clock.time() - record.created_at >= YOUNG_SECONDS

    async def begin(self, record: Record) -> bool:
        """Write down that a batch is begun with a record; say whether functions end here."""
        item = await self._count(record, "tries")
        return _number(item, "tries") > SUSPICIOUS or _number(item, "alone") > 0

    async def begin_alone(self, record: Record) -> int:
        """Write down that a record is run alone; return how often it was without an end."""
        return _number(await self._count(record, "alone"), "alone") - 1

    async def end(self, record: Record) -> None:
        """Take it back: what was begun with a record has ended."""
        action = self.store.space.update(*self._path(record))
        action.sets |= {"tries": {"N": "0"}, "alone": {"N": "0"}}
        await self.store.write(action)

    async def _count(self, record: Record, name: str) -> dict[str, Wire]:
        action = self.store.space.update(*self._path(record))
        action.adds[name] = Decimal(1)
        action.sets["expires"] = {"N": str(int(self.clock.time()) + KEPT_SECONDS)}
        return await self.store.write(action)

    def _path(self, record: Record) -> tuple[str, ...]:
        names = (self.incarnation, record.position)
        return ("trial", *(name for name in names if name))


def _number(item: dict[str, Wire], name: str) -> int:
    return int(item.get(name, {"N": "0"})["N"])
