"""Stamp the items of a family, so that handlers count one side of it.

A *stamp* says that the migration wrote an item, of which family it is, and on which side. The side
that does not count is a copy, and says so.

In: a family, and its items as they are to be. Out: a `FamilyPlan` with their marks. Pure.
"""

from dataclasses import dataclass, replace

from streamkit.migrate.book.errors import place_id
from streamkit.migrate.families.family import (
    Family,
    FamilyPlan,
    Only,
    Rules,
    Sides,
    Views,
    bare,
    without,
)
from streamkit.migrate.families.records import PairRecord
from streamkit.migrate.items.rewrites import Items, WireItem
from streamkit.model.copies import COPY, PAIR


@dataclass(frozen=True)
class Stamps:
    """Stamps the families of one migration in one phase."""

    views: Views
    rules: Rules

    def counts_new(self, family: Family) -> bool:
        """Return whether handlers count the new items of a family, and not the old one."""
        for old in family.old.values():
            if old is not None and self.views.is_stamped(old, family, "old") and COPY in old:
                return True
        for item in family.new.values():
            if item is not None and self.views.is_stamped(item, family, "new"):
                return COPY not in item
        return self.rules.counts_new

    def marked(self, family: Family, sides: Sides) -> FamilyPlan | None:
        """Return a family whose items have their stamps; None if they do.

        What new code has put, and is not carried back, has no stamp: all its fields are written.
        """
        if family.record is None or family.record.left:
            return None
        only: Only = "old" if sides.new.changed else ""
        plan = self.plan(family, family.old, family.new, family.record, only=only)
        if only:
            plan = replace(plan, after=replace(plan.after, new=family.new))
        same = plan.after.old == family.old and plan.after.new == family.new
        return None if same else plan

    def plan(
        self,
        family: Family,
        old: Items,
        new: Items,
        record: PairRecord | None,
        *,
        counts_new: bool | None = None,
        only: Only = "",
    ) -> FamilyPlan:
        """Return a plan that stamps its items; without a record it takes their marks away."""
        if record is None:
            return FamilyPlan(family, Family(family.key, None, bare(old), bare(new)), only)
        turned = self.counts_new(family) if counts_new is None else counts_new
        copy = {COPY: {"S": f"{self.views.id}:{place_id(next(iter(new)))}"}} if new else {}
        theirs = copy if turned and not self.views.shapes.is_split else {}
        olds = {
            p: one and {**without(one, COPY), **self.views.stamp(family, "old"), **theirs}
            for p, one in old.items()
        }
        mine = {} if turned else {COPY: {"S": f"{self.views.id}:{family.name}"}}
        items = {
            p: one and {**without(one, COPY), **self.views.stamp(family, "new"), **mine}
            for p, one in new.items()
        }
        return FamilyPlan(family, replace(family, old=olds, new=items, record=record), only)


def as_stamped(before: WireItem | None, after: WireItem | None) -> WireItem | None:
    """Return an item without a stamp, if it had none."""
    if before is None or after is None or PAIR in before:
        return after
    return without(after, PAIR)
