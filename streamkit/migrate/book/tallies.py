"""Add up in the table what the passes of a migration have done.

A segment adds its page's numbers in the commit that moves its position, so that each page counts
once, also after a crash. The numbers are spread over a few items, because segments commit at the
same time.
"""

from dataclasses import dataclass
from decimal import Decimal

from streamkit.model.json_fields import JsonFields
from streamkit.progress.actions import Action
from streamkit.progress.cursor import CursorStore

_SPREAD = 8


@dataclass(slots=True)
class Tally(JsonFields):
    """What was done, in items: `scanned` were read, `changed` were rewritten.

    `waived` of the `errors` are of items that are waived. `missing` were chosen and are not there.
    """

    scanned: int = 0
    changed: int = 0
    skipped: int = 0
    gone: int = 0
    conflicts: int = 0
    errors: int = 0
    waived: int = 0
    missing: int = 0

    def add(self, other: "Tally") -> None:
        """Add the numbers of another tally."""
        for name in self.__slots__:
            if number := getattr(other, name):
                setattr(self, name, getattr(self, name) + number)


@dataclass(frozen=True)
class TallyBook:
    """The tallies of an app's migrations, by pass."""

    store: CursorStore

    def adding(self, name: str, segment: int, tally: Tally) -> Action:
        """Return the action that adds a page's numbers to a pass."""
        action = self.store.space.update("tally", name, str(segment % _SPREAD))
        numbers = tally.to_dict().items()
        action.adds |= {name: Decimal(number) for name, number in numbers if number}
        return action

    async def read(self, name: str) -> Tally:
        """Return the numbers of a pass."""
        items = await self.store.items([("tally", name, str(n)) for n in range(_SPREAD)])
        names = Tally.__slots__
        return Tally(**{n: sum(int(i[n]["N"]) for i in items if n in i) for n in names})
