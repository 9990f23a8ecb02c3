"""Find what is wrong with an item, from a migration's view.

In: items of a table, as they are read. Out: an `ItemDifference` each, or None; and sums that say,
once everything was read, which copies may have no source: see `orphans`. On failure: what the
function raises is a difference, too.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from streamkit.errors import USER_ERRORS
from streamkit.migrate.book.errors import error_id, place_id
from streamkit.migrate.book.state import SWITCHED
from streamkit.migrate.families.family import FamilyPlan
from streamkit.migrate.families.settlement import digest
from streamkit.migrate.items.marks import mark_of, place_is
from streamkit.migrate.items.rewrites import plain, visible
from streamkit.migrate.run.work import MigrationWork
from streamkit.migrate.sending.attempts import Undecided, located
from streamkit.migrate.verify.orphans import PairBalance, PairSearch, pair_digest
from streamkit.model.copies import COPY, FROM
from streamkit.progress.actions import Wire
from streamkit.progress.scan.places import place_text

Kind = Literal[
    "unmigrated",
    "fails",
    "check",
    "missing",
    "differs",
    "taken",
    "conflict",
    "early",
    "alone",
    "behind",
    "late",
    "orphan",
]
"""The kinds of differences.

`unmigrated`: the function would change it. `fails`: the function raises. `check`: the migration's
own check returns no. For targets: `missing`, `differs`, `taken` by another item; `conflict`: both
sides have written the same; `early`: new code wrote what a rollback cannot bring back; `alone`: a
part whose item is gone; `behind`: the old item does not follow the new one; `late`: an item is at
an old key after the end. `orphan`: a copy without a source.
"""

_TEXTS: dict[Kind, str] = {
    "unmigrated": "it is not in the new shape",
    "check": "the migration's own check says no",
    "missing": "an item that follows from it is not there",
    "differs": "an item that follows from it is not as it should be",
    "taken": "another item is where one that follows from it belongs",
    "conflict": "its old and its new item were written differently, and people have to decide",
    "early": "it was written at its new key, and there is no reverse= to bring it back",
    "alone": "its item is gone, and a part of it is there",
    "behind": "the old item does not follow the new one",
    "late": "it was written at its old key after the end",
    "orphan": "a copy whose source is gone, or leads elsewhere",
}


@dataclass(frozen=True, slots=True)
class ItemDifference:
    """One item that is wrong; `key` is for a later look at it, and never printed.

    `image` is a digest of the item as it was read.
    """

    id: str
    kind: Kind
    text: str
    key: Mapping[str, Wire] = field(repr=False)
    image: str = field(repr=False)

    @property
    def can_be_repaired(self) -> bool:
        """Whether a repair brings it into the new shape; else people decide what is right."""
        return self.kind not in ("conflict", "early", "alone", "taken", "late")

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON types, without item data."""
        return {"id": self.id, "kind": self.kind, "text": self.text}


class ItemInspection:
    """Looks at items one by one; `matching` and `balance` are of the items so far.

    `has_copies` says whether there are copies: not once the old items are deleted.
    """

    def __init__(self, work: MigrationWork) -> None:
        self.matching = 0
        self.balance = PairBalance()
        self._migration = work.migration
        self._work = work
        self._ended = work.migration.moves and work.state.phase == "done"
        self.has_copies = work.migration.is_pairs and not self._ended

    @property
    def knows_orphans(self) -> bool:
        """Whether only this migration makes copies, and copies can be told from the truth."""
        if not self.has_copies or self._migration.owner is not None:
            return False
        return self._work.state.phase not in (*SWITCHED, "returning")

    async def of(self, table: str, item: Mapping[str, Wire]) -> ItemDifference | None:
        """Return what is wrong with an item, if anything is.

        It is named by its family, as errors are: a person may have waived that one.
        """
        found = await self._found(table, item)
        if found is None:
            return None
        return replace(found, id=error_id(self._work.transform.sources.family(found.key)))

    async def _found(self, table: str, item: Mapping[str, Wire]) -> ItemDifference | None:
        if table == self._work.transform.target.name and self._migration.is_pairs:
            pair = self._pair_of_copy(item)
            if pair is not None:
                self.balance.there(pair)
        if self._migration.moves and (record := self._work.families.records.of(item)):
            return await self._of_family(record.old, item, is_record=True)
        if table != self._work.schema.name or not self._work.transform.matches(item):
            here = table == self._work.transform.target.name
            self.matching += self._ended and here and self._work.is_target(item)
            return None
        self.matching += 1
        key = self._work.schema.key_of(item)
        try:
            if self._migration.is_pairs:
                return await self._of_source(key, item)
            return self._of_item(key, item)
        except USER_ERRORS as error:
            text = f"the function raised: {located(error)}"
            return ItemDifference(error_id(key), "fails", text, key, image_digest(item))

    def trace(
        self, table: str, item: Mapping[str, Wire], search: PairSearch[ItemDifference]
    ) -> None:
        """Count an item in a search as a copy, as a source of copies, or as both."""
        if table == self._work.transform.target.name:
            pair = self._pair_of_copy(item)
            if pair is not None and search.wanted(pair):
                key = self._work.transform.target.key_of(item)
                search.there(pair, self._difference("orphan", key, item))
        if table != self._work.schema.name or not self._is_source(item):
            return
        source = error_id(self._work.transform.sources.family(item))
        try:
            targets = self._work.transform.of(plain(item)).targets
        except USER_ERRORS:  # it is a difference of its own
            return
        for target in targets:
            search.led_to(pair_digest(error_id(target.key), source))

    def _of_item(self, key: Mapping[str, Wire], item: Mapping[str, Wire]) -> ItemDifference | None:
        if self._work.transform.of(plain(item)).changes_item:
            return self._difference("unmigrated", key, item)
        check = self._migration.check
        if check is None or self._work.state.direction == "back":
            return None
        right = check(self._work.transform.entity(item))
        return None if right else self._difference("check", key, item)

    async def _of_source(
        self, key: Mapping[str, Wire], item: Mapping[str, Wire]
    ) -> ItemDifference | None:
        if not self._is_source(item):
            return None
        if self._migration.moves and not self._ended:
            return await self._of_family(key, item)
        rewrite = self._work.transform.of(plain(item))
        if self._ended:
            left = rewrite.targets or rewrite.changes_item
            return self._difference("late", key, item) if left else None
        mark = mark_of(self._migration, self._work.schema, key)
        for target in rewrite.targets:
            there = await self._work.calls.get(self._work.transform.target.name, target.key)
            if there is not None and there.get(mark[0]) == mark[1]:
                self.balance.led_to(pair_digest(error_id(target.key), error_id(key)))
            place = place_is(self._migration, mark, target, there)
            if place != "right":
                return self._difference(place, key, item)
        return None

    async def _of_family(
        self, key: Mapping[str, Wire], item: Mapping[str, Wire], *, is_record: bool = False
    ) -> ItemDifference | None:
        """Return what is wrong with a family, as its items and record are now.

        It is looked at by its first old item; by its record only if all are gone.
        """
        families = self._work.families
        family = await families.read(key)
        first = next((place for place, one in family.old.items() if one is not None), None)
        if first is not None and (is_record or first != place_text(key)):
            return None
        for place, there in family.new.items():
            leads = there is not None and self._pair_of_copy(there) is not None
            if leads and place in families.shapes.targets(family.old):
                self.balance.led_to(pair_digest(place_id(place), family.name))
        try:
            plan = families.plans.settle(family)
        except Undecided as error:
            return self._difference(error.kind, key, item)  # type: ignore[arg-type]
        if plan is None or not _changes(plan):
            return None
        if any(plan.after.new[p] and not plan.before.new.get(p) for p in plan.after.new):
            return self._difference("missing", key, item)
        after, before = (
            [visible(one or {}) for one in side.old.values()] for side in (plan.after, plan.before)
        )
        behind = after != before
        return self._difference("behind" if behind else "differs", key, item)

    def _is_source(self, item: Mapping[str, Wire]) -> bool:
        """Return whether an item may lead to copies of this migration."""
        taken_back = self._work.state.phase in ("rolled back", "dropping")
        if taken_back or not self._work.transform.matches(item):
            return False
        return COPY not in item or str(item[COPY]["S"]).startswith(f"{self._migration.id}:")

    def _pair_of_copy(self, item: Mapping[str, Wire]) -> int | None:
        """Return the digest of an item and its source, if the item names its source."""
        name = COPY if self._migration.moves else FROM
        owner, _, source = str(item.get(name, {}).get("S", "")).partition(":")
        if owner != self._migration.id:
            return None
        return pair_digest(error_id(self._work.transform.target.key_of(item)), source)

    def _difference(
        self, kind: Kind, key: Mapping[str, Wire], item: Mapping[str, Wire]
    ) -> ItemDifference:
        return ItemDifference(error_id(key), kind, _TEXTS[kind], key, image_digest(item))


def _changes(plan: FamilyPlan) -> bool:
    """Return whether a plan is about more than our own attributes."""
    before, after = plan.before, plan.after
    both = [(before.old.get(p), one) for p, one in after.old.items()]
    both += [(before.new.get(p), one) for p, one in after.new.items()]
    return any(visible(one or {}) != visible(other or {}) for one, other in both)


def image_digest(item: Mapping[str, Wire]) -> str:
    """Return a digest of all that an item holds, streamkit's own attributes included."""
    return digest(plain(item))
