"""Count what the application writes in the old shape, by hour and phase, while processes follow it.

A process counts in memory, and adds its counts to the table with each report: a process that is
killed loses those of the last ten seconds. So the counts say whether old code still runs, and how
much it writes. For how long old items must be kept follows from the last write, where ten seconds
of a day make no difference. So it is with the last write of new code, for which a rollback waits.

In: changes that the migration's consumer has seen. Out: `OldWriteRate` for each phase.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from decimal import Decimal
from typing import Any

from streamkit.app import App
from streamkit.aws import Aws
from streamkit.migrate.book.errors import note_latest
from streamkit.migrate.book.order import migration_of
from streamkit.migrate.book.state import State
from streamkit.migrate.book.state_book import open_book
from streamkit.progress.cursor import CursorStore

_HOUR = 3600
_BEFORE_SWITCH = (
    *("capturing", "scanning", "catching up", "verifying", "blocked", "ready", "switching"),
)
_PHASES = (*_BEFORE_SWITCH, "soaking", "contracting", "closing", "done")
_NEW = "new code"
"""Stands in the place of a phase where the last write of new code is noted, from `ready` on."""
_NOTED_SECONDS = 60
_COUNT = "h"


@dataclass(frozen=True, slots=True)
class OldWriteRate:
    """What was written in the old shape in one phase; `last` is the latest such write.

    `by_hour` has the writes of each hour that had some, by its first second.
    """

    phase: str
    last: float
    by_hour: dict[int, int]

    @property
    def writes(self) -> int:
        """The writes in the whole phase."""
        return sum(self.by_hour.values())

    def lately(self, now: float, hours: int = 6) -> list[int]:
        """Return the writes of the latest hours, the present one last."""
        present = int(now) // _HOUR * _HOUR
        return [self.by_hour.get(present - back * _HOUR, 0) for back in reversed(range(hours))]

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON types."""
        return asdict(self) | {"writes": self.writes}


class OldWrites:
    """The counts of one migration: those of this process, and those in the table."""

    def __init__(self, store: CursorStore, migration: str) -> None:
        self._store = store
        self._migration = migration
        self._counted: Counter[tuple[int, str, int]] = Counter()
        self._last: dict[tuple[int, str], float] = {}
        self._before_switch: dict[int, float] = {}
        self._new = 0.0

    def count(self, state: State, at: float) -> None:
        """Count a write that the application made at `at`, in epoch seconds."""
        place = state.run, state.phase
        self._counted[*place, int(at) // _HOUR] += 1
        self._last[place] = max(at, self._last.get(place, 0.0))

    async def flush(self) -> None:
        """Add what was counted since the last time to the table.

        It is kept until it is there: a process that is stopped meanwhile flushes once more.
        """
        for (run, phase), at in [*self._last.items()]:
            counted = Counter({k: n for k, n in self._counted.items() if k[:2] == (run, phase)})
            await self._note_last(f"{run}.{phase}", at)
            action = self._store.space.update("old", self._migration, f"{run}.{phase}")
            action.adds |= {f"{_COUNT}{hour}": Decimal(n) for (*_, hour), n in counted.items()}
            await self._store.write(action)
            self._counted -= counted
            if not any(place[:2] == (run, phase) for place in self._counted):
                del self._last[run, phase]

    async def _note_last(self, place: str, at: float) -> None:
        action = self._store.space.update("old", self._migration, place)
        await note_latest(self._store, action, "last", round(at))

    async def last_before_switch(self, run: int) -> float:
        """Return when the application last wrote in the old shape; epoch seconds, 0 for never.

        Earlier runs count, too: the counts of a run that began anew begin with it.
        """
        if not self._before_switch.get(run):  # once known it does not change
            rates = [rate for number in range(1, run + 1) for rate in await self.read(number)]
            before = [rate.last for rate in rates if rate.phase in _BEFORE_SWITCH]
            self._before_switch[run] = max(before, default=0.0)
        return self._before_switch[run]

    async def note_new(self, state: State, at: float) -> None:
        """Write down when new code wrote, in epoch seconds, at most once a minute.

        It is written before the change counts as processed: new items may go because of it.
        """
        if at >= self._new + _NOTED_SECONDS:
            await self._note_last(f"{state.run}.{_NEW}", at)
            self._new = at

    async def last_of_new(self, run: int) -> float:
        """Return when new code last wrote at a new key; epoch seconds, 0 for never."""
        names = [("old", self._migration, f"{number}.{_NEW}") for number in range(1, run + 1)]
        items = await self._store.items(names)
        return max((float(item["last"]["N"]) for item in items), default=0.0)

    async def read(self, run: int) -> list[OldWriteRate]:
        """Return the counts of a run by phase, in the order of the phases."""
        found = []
        for phase in _PHASES:
            item = await self._store.item("old", self._migration, f"{run}.{phase}")
            if item is None:
                continue
            hours = {
                int(name.removeprefix(_COUNT)) * _HOUR: int(value["N"])
                for name, value in item.items()
                if name.startswith(_COUNT) and name.removeprefix(_COUNT).isdecimal()
            }
            found.append(OldWriteRate(phase, float(item["last"]["N"]), dict(sorted(hours.items()))))
        return found


async def read_old_writes(app: App, aws: Aws, number: str) -> Sequence[OldWriteRate]:
    """Return what was written in the old shape since a migration was begun, by phase.

    Raises:
        ConfigurationError: there is no such migration, or the table may not be described.
    """
    book = await open_book(app, aws)
    state = await book.read(migration_of(app, number).id)
    return await OldWrites(book.store, state.id).read(state.run)
