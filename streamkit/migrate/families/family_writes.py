"""Build the writes of a family: each item as it is to be, IF it is as it was read, whole. Pure.

In: a plan. Out: an `Action` for each item that it is about, of one transaction.
"""

from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from streamkit.migrate.families.family import Family, FamilyPlan, Rules, Views
from streamkit.migrate.families.plans import Plans
from streamkit.migrate.families.settlement import OLD, THERE
from streamkit.migrate.families.shapes import BothShapes
from streamkit.migrate.items.rewrites import Items, Key, TransformError, WireItem, plain, visible
from streamkit.migrate.items.transform import Transform
from streamkit.migrate.items.writes import check, delete, put, unchanged, update
from streamkit.model.conditions import Condition, absent, as_it_was
from streamkit.model.copies import COPY, PAIR
from streamkit.model.origin import ORIGIN
from streamkit.model.schema import TableSchema
from streamkit.progress.actions import Action
from streamkit.progress.scan.places import place_of


@dataclass(frozen=True)
class FamilyWrites:
    """Builds the writes of the families of one migration; `writer` is its name in origins."""

    shapes: BothShapes
    writer: str

    def of(self, plan: FamilyPlan) -> list[Action]:
        """Return the writes of the items that a plan is about."""
        before, after, known = plan.before, plan.after, self._known(plan.before)
        actions = []
        if plan.only != "new":
            actions += [self._old(place, before, after, known) for place in after.old]
        if plan.only != "old":
            target = self.shapes.transform.target
            actions += [
                self._item(target, place, before.new.get(place), item, None, known)
                for place, item in after.new.items()
            ]
        return actions

    def _known(self, family: Family) -> set[str]:
        """Return the names of attributes that items of a family may have."""
        record, items = family.record, (*family.old.values(), *family.new.values())
        names = {name for one in items for name in visible(one or {})}
        for base in (record.base_old, record.base_new) if record is not None else ():
            names |= {name for place, name in base if place != OLD and name != THERE}
        return names | self.shapes.names

    def _old(self, place: str, before: Family, after: Family, known: AbstractSet[str]) -> Action:
        """Return the write of an old item.

        Of one that is split both sides write the rest: only what the functions read is asked for.
        """
        held: list[Condition] | None = None
        schema, old, then = self.shapes.transform.schema, before.old[place], after.old[place]
        if (other := before.others.get(place)) is not None:
            return check(schema, schema.key_of(other), unchanged(schema, other, {COPY}))
        carried = bool(then and old and self.shapes.is_split and visible(old) != visible(then))
        if self.shapes.is_split and old is not None and not carried:
            rewrite = self.shapes.rewrite(before.old)
            names = rewrite.reads | rewrite.removes | rewrite.sets.keys()
            held = unchanged(schema, old, names)
            held += as_it_was((PAIR,), plain(old))
        return self._item(schema, place, old, then, held, known)

    def _item(
        self,
        schema: TableSchema,
        place: str,
        before: WireItem | None,
        after: WireItem | None,
        held: list[Condition] | None,
        known: AbstractSet[str],
    ) -> Action:
        """Return the action that leaves an item as it is to be, IF it is as it was read.

        That it has no other attributes can only be asked of those that are `known` by name.
        """
        key = before or after or place_of(place)
        if held is None and before is not None:
            held = unchanged(schema, before, before.keys() | known)
        held = [absent] if held is None else held
        if after is None:
            return delete(schema, key, held) if before is not None else check(schema, key, held)
        if before is None:
            return put(schema, after, held, self.writer)
        sets = {n: v for n, v in after.items() if before.get(n) != v}
        removes = before.keys() - after.keys() - {ORIGIN}
        if not sets and not removes:
            return check(schema, key, held)
        return update(schema, key, held, self.writer, sets=sets, removes=removes)


class FamilyRoom:
    """Tells before a move whether one condition holds all that a write of a family asks for.

    Each write asks for every attribute of its items by name, and DynamoDB takes about 120 names in
    a condition. The writes are the one that makes the new items and a later one, which knows the
    names of both sides.
    """

    def __init__(self, transform: Transform) -> None:
        self.transform = transform
        self._shapes = BothShapes(transform)
        self._plans = Plans(Views(self._shapes), Rules())
        self._writes = FamilyWrites(self._shapes, transform.migration.id)

    def is_enough(self, key: Key, old: Items) -> bool:
        """Return whether the writes of the family of some old items can be made.

        Raises:
            Exception: any error of the migration's function.
        """
        made = self._plans.settle(Family(key, None, old, dict.fromkeys(self._shapes.targets(old))))
        turned = made and self._plans.turn(made.after, counts_new=True)
        try:
            for plan in filter(None, (made, turned)):
                self._writes.of(plan)
        except TransformError:
            return False
        return True
