"""Keep the differences that a verification finds, and report them at the end. Pure.

In: differences, one by one. Out: the first `KEPT_MAX` of them, how many there are beyond, and the
report for people and programs.
"""

from dataclasses import dataclass, field
from typing import Any

from streamkit.migrate.differences import Difference

KEPT_MAX = 10_000
"""How many differing items are looked at again, named and perhaps repaired.

Further ones are only counted. Items that a person has waived do not count.
"""


@dataclass(frozen=True, slots=True)
class Verified:
    """What a verification has found.

    `looked_at` items were read, `matching` of them are the migration's. `waived` differ, and a
    person has accepted it. `repaired` are right now. `orphans` says whether all copies without a
    source were looked for; None where nothing is copied. `beyond` counts further items that
    differed when they were read, and were not looked at again.
    """

    migration: str
    phase: str
    sampled: float
    looked_at: int
    matching: int
    different: tuple[Difference, ...]
    unsettled: tuple[Difference, ...]
    waived: int
    repaired: int
    orphans: bool | None
    beyond: int = 0

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong that is not waived, as far as all was read."""
        return not self.different and not self.beyond

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON types."""
        return {
            "migration": self.migration,
            "phase": self.phase,
            "ok": self.ok,
            "sampled": self.sampled,
            "looked_at": self.looked_at,
            "matching": self.matching,
            "different": [one.to_dict() for one in self.different],
            "unsettled": [one.to_dict() for one in self.unsettled],
            "waived": self.waived,
            "repaired": self.repaired,
            "orphans": self.orphans,
            "beyond": self.beyond,
        }


@dataclass
class Found:
    """What differs, by the hash of the key, as far as it is kept."""

    waived: frozenset[str]
    kept: dict[str, Difference] = field(default_factory=dict)
    beyond: int = 0
    _counted: int = 0

    @property
    def is_full(self) -> bool:
        """Whether no more differences are kept."""
        return self._counted >= KEPT_MAX

    def add(self, one: Difference) -> None:
        """Keep a difference, or count it."""
        if one.id in self.waived or one.id in self.kept:
            self.kept[one.id] = one
        elif self.is_full:
            self.beyond += 1
        else:
            self._counted += 1
            self.kept[one.id] = one
