"""Count how often a batch was begun and not ended, to find the change that kills its function.

A function that is killed reports nothing, and the mapping sends the same records again, for ever.
So an invocation writes down that it begins with a record (an attempt), and takes that back when it
ends in order and asks for the record again. Several attempts in a row mean that one of the next
records may be deadly: then they are processed one by one, each written down before it runs.

Nothing is written for young records: a mapping that keeps up costs nothing extra, and a record that
is delivered again for ever grows old.
"""

from dataclasses import dataclass
from decimal import Decimal

from streamkit.core.high_water_mark import KEPT_SECONDS
from streamkit.progress.actions import Wire
from streamkit.progress.clock import Clock
from streamkit.progress.cursor import CursorStore
from streamkit.stream.decode import Record

YOUNG_SECONDS = 60.0
"""A younger record is not counted: this may be its first delivery."""
SUSPICIOUS = 3
"""After so many attempts in a row at a record that did not end, records run one by one."""
DEADLY = 2
"""A change that killed so many invocations while it ran alone is parked without being run."""


@dataclass(frozen=True)
class AttemptCounts:
    """The counts of one consumer; a consumer that is founded again begins with new counts."""

    store: CursorStore
    clock: Clock
    incarnation: str

    def counts(self, record: Record) -> bool:
        """Return whether a record is so old that it may have been delivered before."""
        return self.clock.time() - record.created_at >= YOUNG_SECONDS

    async def begin(self, record: Record) -> bool:
        """Write down that a batch begins with a record; return whether functions die here."""
        item = await self._count(record, "tries")
        return _number(item, "tries") > SUSPICIOUS or _number(item, "alone") > 0

    async def begin_alone(self, record: Record) -> int:
        """Write down that a record runs alone; return how many such runs before did not end."""
        return _number(await self._count(record, "alone"), "alone") - 1

    async def end(self, record: Record) -> None:
        """Take the attempts at a record back: what was begun with it has ended."""
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
