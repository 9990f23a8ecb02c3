"""Keep the differences that a verification finds, and report them at the end. Pure.

In: differences, one by one, or what the parts of a pass have found. Out: the first `KEPT_MAX` of
them, how many there are beyond, and the report for people and programs. `Findings` are stored as
lines of JSON.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from streamkit.migrate.verify.differences import ItemDifference
from streamkit.migrate.verify.orphans import PairBalance, PairSearch
from streamkit.progress.scan.places import place_of, place_text

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
    differed when they were read, and were not looked at again. `missing` of those
    `looked_at` were chosen by their keys, and are not there. `later` is the last migration of the
    same items that was begun after it, empty if there is none: what it did differs, too. `failed`
    items have an error that is open. Where nothing is `compared`, because the old items are
    deleted, `matching` counts new items, too, and only items at old keys are looked for.
    """

    migration: str
    phase: str
    sampled: float
    looked_at: int
    matching: int
    different: tuple[ItemDifference, ...]
    unsettled: tuple[ItemDifference, ...]
    waived: int
    repaired: int
    orphans: bool | None
    beyond: int = 0
    missing: int = 0
    later: str = ""
    failed: int = 0
    compared: bool = True

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong that is not waived, as far as all was read."""
        return not self.different and not self.beyond and not self.failed

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON types."""
        ones = ("different", "unsettled")
        items = {name: [one.to_dict() for one in getattr(self, name)] for name in ones}
        return asdict(replace(self, different=(), unsettled=())) | items | {"ok": self.ok}


@dataclass
class Found:
    """What differs, by the hash of the key, as far as it is kept."""

    waived: frozenset[str]
    kept: dict[str, ItemDifference] = field(default_factory=dict)
    beyond: int = 0
    _counted: int = 0

    @property
    def is_full(self) -> bool:
        """Whether no more differences are kept."""
        return self._counted >= KEPT_MAX

    def add(self, one: ItemDifference) -> bool:
        """Keep a difference, or count it; return whether it is kept."""
        known = one.id in self.waived or one.id in self.kept
        if not known and self.is_full:
            self.beyond += 1
            return False
        self._counted += not known
        self.kept[one.id] = one
        return True


@dataclass
class Findings:
    """What was found on a page, in a segment, or in a whole pass.

    The first pass finds what is `different`, and a `balance` of copies and sources; a `search`
    finds copies without a source.
    """

    looked_at: int = 0
    matching: int = 0
    beyond: int = 0
    missing: int = 0
    balance: PairBalance = field(default_factory=PairBalance)
    different: list[ItemDifference] = field(default_factory=list)
    search: PairSearch[ItemDifference] = field(default_factory=PairSearch[ItemDifference])

    def lines(self) -> Iterator[str]:
        """Yield what was found one by one, a line each."""
        yield from (json.dumps(_written(one)) for one in self.different)
        for pair, one in self.search.left.items():
            yield json.dumps([pair, _written(one)])
        yield from map(str, self.search.ahead)

    def read(self, lines: Iterable[str]) -> None:
        """Add the lines of one of its parts."""
        for line in lines:
            found = json.loads(line)
            if isinstance(found, int):
                self.search.led_to(found)
            elif isinstance(found, list):
                self.search.there(found[0], _read(found[1]))
            else:
                self.different.append(_read(found))


def _written(one: ItemDifference) -> dict[str, str]:
    return {**one.to_dict(), "key": place_text(one.key), "image": one.image}


def _read(found: dict[str, Any]) -> ItemDifference:
    return ItemDifference(**{**found, "key": place_of(found["key"])})
