"""Decide what becomes of one family: an old item, the new items that follow from it, their record.

    settle     what only one side has written goes to the other; both sides and the record agree
    turn       handlers count the new items from now on, or, in a rollback, the old one again
    contract   the old item becomes a stub, IF it is exactly as agreed; `drop`: the new ones do
    close      the stubs and the record go, IF no other code has written a stub

Nothing is carried to a stub: its record takes up only what was carried from it.

In: a family as it was read. Out: the family as it is to be, or None where nothing is to be done.
Pure, but for the functions of the migration. On failure: `Undecided`, where people have to say what
is right.
"""

from dataclasses import dataclass, replace

from streamkit.migrate.book.errors import place_id
from streamkit.migrate.families.family import (
    Family,
    FamilyPlan,
    Rules,
    Sides,
    Views,
    bare,
    conflict,
    undecided,
)
from streamkit.migrate.families.records import PairRecord
from streamkit.migrate.families.settlement import COUNTED, OLD, Settlement, Take, compare, taken_up
from streamkit.migrate.families.shapes import BothShapes, places_there, rewritten
from streamkit.migrate.families.stamps import Stamps, as_stamped
from streamkit.migrate.items.rewrites import Items, Target
from streamkit.progress.scan.places import place_of


@dataclass(frozen=True)
class Plans:
    """Decides about the families of one migration in one phase."""

    views: Views
    rules: Rules

    @property
    def shapes(self) -> BothShapes:
        """Both shapes."""
        return self.views.shapes

    @property
    def stamps(self) -> Stamps:
        """What stamps the items of a family."""
        return Stamps(self.views, self.rules)

    # -- settling ------------------------------------------------------------------------------

    def settle(self, family: Family, take: Take = "") -> FamilyPlan | None:
        """Return what brings both sides to agree; None if they do.

        `take` is the side that a person has decided for, if one has.

        Raises:
            Undecided: both have written the same, and no person has decided.
        """
        sides = self.views.of(family)
        if family.record is None or self._has_only_parts(family, family.record):
            return self._first(family, sides, take)
        if family.record.left == "new":
            return self._from_new_stubs(family, sides, take)
        mirrors = self.shapes.mirrors and not family.record.left
        early = self.rules.drops and not self.shapes.mirrors and sides.new.changed
        if early and take != "old":
            text = "written at its new key, and there is no reverse= to bring it back"
            raise undecided(family, "early", text)
        if early:  # a person has decided for the old item, whatever it has written, too
            settled: Settlement | None = Settlement(sides.old.changed | sides.new.changed)
        else:
            policy = self.shapes.settle
            settled = compare(sides.old, sides.new, mirrors=mirrors, take=take, settle=policy)
        if settled is None:
            return self.stamps.marked(family, sides)
        if settled.clash:
            raise conflict(family, sides, settled)
        plan = self._carried(family, sides, settled, take)
        return self.stamps.marked(family, sides) if plan.after == family else plan

    def is_alone(self, family: Family) -> bool:
        """Return whether parts are left whose item is gone, and people decide about them."""
        parts = self.rules.keeps_parts and any(family.new.values())
        return parts and not any(family.old.values())

    def _has_only_parts(self, family: Family, record: PairRecord) -> bool:
        """Return whether both sides have agreed on nothing: the record only has parts' places."""
        if not self.rules.keeps_parts or record.left or record.base_old:
            return False
        return not any(self.views.is_stamped(one, family, "old") for one in family.old.values())

    def _first(self, family: Family, sides: Sides, take: Take) -> FamilyPlan | None:
        """Make what is missing on one side, and the record.

        Raises:
            Undecided: another item is in a place, or old code wrote where no stub is left, or the
                item of a part is gone.
        """
        if self.is_alone(family):
            return self._without_item(family, take)
        if sides.targets and self.rules.late:  # what was done there meanwhile is not known
            text = "written at its old key, from which it had gone, because people said none writes"
            raise undecided(family, "late", text)
        there = {place for place, one in family.new.items() if one is not None}
        for place in there & sides.targets.keys():
            both = [
                {f: d for f, d in side.fields.items() if f[0] == place}
                for side in (sides.old, sides.new)
            ]
            counts = any(digest.startswith(COUNTED) for digest in both[0].values())
            # Once both may be written, that both have counted alike is no agreement.
            if both[0] != both[1] or (counts and self.rules.makes_old):
                text = f"another item is where it belongs, {place_id(place)}"
                raise undecided(family, "taken", text)
        extra = there - sides.targets.keys()
        if extra and not (self.rules.makes_old and self.shapes.mirrors):
            there, extra = there - extra, set()
        missing = sides.targets.keys() - there
        if not (sides.targets or extra):
            return self.stamps.plan(family, family.old, family.new, None) if family.record else None
        names = frozenset(f for f in sides.old.fields if f[0] in missing)
        back = frozenset(f for f in sides.new.fields if f[0] in extra)
        if names and back and self.shapes.settle == "item":  # fields of two wholes are not mixed
            text = f"both sides made it, with other parts, {place_id(min(extra))}"
            raise undecided(family, "taken", text)
        if missing and not self.rules.makes_new:
            names = frozenset()
            if not back:
                return None
        kept = {place: family.new.get(place) for place in sides.targets.keys() | there}
        return self._carried(replace(family, new=kept), sides, Settlement(names, back), "")

    def _without_item(self, family: Family, take: Take) -> FamilyPlan:
        """Write down the places of parts whose item is gone: nothing else leads to them.

        Raises:
            Undecided: they are written down, and no person has decided for the old side.
        """
        parts = {place for place, one in family.new.items() if one is not None}
        if family.record is not None and parts <= family.record.places:
            if take == "old":
                return self.stamps.plan(family, family.old, dict.fromkeys(family.new), None)
            text = f"its item is gone, and this part of it is there, {place_id(min(parts))}"
            raise undecided(family, "alone", text)
        record = PairRecord(family.key, base_new=self.shapes.view(family.new))
        return self.stamps.plan(family, family.old, family.new, record)

    def _from_new_stubs(self, family: Family, sides: Sides, take: Take) -> FamilyPlan | None:
        """Carry what other code writes at stubs of the new items, in a rollback."""
        assert family.record is not None  # noqa: S101 - stubs have one
        turned: Take = {"old": "new", "new": "old"}.get(take, "")  # type: ignore[assignment]
        settled = compare(
            sides.new, sides.old, mirrors=False, take=turned, settle=self.shapes.settle
        )
        if settled is None:
            return None
        if settled.clash:
            raise conflict(family, sides, settled)
        if not self.shapes.mirrors and take == "old":
            settled = Settlement(overruled=True)
        if not self.shapes.mirrors and settled.to_new:
            text = "written at its new key, and there is no reverse= to bring it back"
            raise undecided(family, "early", text)
        old = family.old
        if settled.to_new:
            there = {place: target.item for place, target in sides.targets.items()}
            said = {p: Target(place_of(p), one) for p, one in sides.image.items() if one}
            now = self.shapes.new_items(there, said, settled.to_new, {})  # what was overruled stays
            old = self._old_items(family, sides, now)
        new = {p: None if one is None else place_of(p) for p, one in family.new.items()}
        base = taken_up(sides.new, sides.old, settled, turned)
        base = {f: d for f, d in base.items() if f[0] != OLD} | self.shapes.known(old)
        record = replace(family.record, base_old=base)
        gone = not any(old.values()) and not any(new.values())
        return self.stamps.plan(family, old, new, None if gone else record)

    def _carried(self, family: Family, sides: Sides, settled: Settlement, take: Take) -> FamilyPlan:
        """Return a family in which each side has taken up what is carried to it."""
        record, shapes = family.record or PairRecord(family.key), self.shapes
        new = shapes.new_items(family.new, sides.targets, settled.to_new, settled.added)
        old = self._old_items(family, sides, new) if settled.to_old else family.old
        if record.left and not shapes.is_split:
            gone = not any(old.values()) and not any(new.values())
            old = old if gone else self._stubs(old)
            base = taken_up(sides.old, sides.new, settled, take)
            base = {f: d for f, d in base.items() if f[0] != OLD}
            after = replace(record, base_old=shapes.known(old), base_new=base)
            return self.stamps.plan(family, old, new, None if gone else after)
        base_old = shapes.view_of_old(old) if settled.to_old else dict(sides.old.fields)
        whole = {p for p, one in sides.targets.items() if new.get(p) is one.item}
        base_new = {f: d for f, d in sides.old.fields.items() if f[0] in whole}
        base_new |= shapes.view({p: one for p, one in new.items() if p not in whole})
        if family.record is not None and (record.left or not shapes.mirrors):
            base_new = taken_up(sides.old, sides.new, settled, take)
        else:  # what `reverse=` does not bring back is not seen by old code
            read = shapes.with_defaults(new)
            unseen = {f for f in settled.to_old if base_old.get(f) != base_new.get(f)}
            unseen -= {f for f in unseen - base_new.keys() if base_old[f] == read.get(f)}
            base_new = {f: d for f, d in base_new.items() if f not in unseen}
            base_new |= {f: d for f, d in sides.new.base.items() if f in unseen}
        gone = not base_old and not any(new.values())
        if record.left:  # until its delete was carried, or decided
            base_old |= places_there(old)
        after = replace(record, base_old=base_old, base_new=base_new)
        return self.stamps.plan(family, old, new, None if gone else after)

    def _old_items(self, family: Family, sides: Sides, new: Items) -> Items:
        seen = [one.item for one in sides.targets.values()]
        now = [one for one in new.values() if one is not None]
        return self.shapes.old_items(family.old, seen, now)

    def _stubs(self, old: Items) -> Items:
        """Return stubs of old items; of several items only of those that are there."""
        return {
            p: place_of(p) if one or not self.shapes.is_merge else None for p, one in old.items()
        }

    # -- steps ---------------------------------------------------------------------------------

    def turn(self, family: Family, *, counts_new: bool) -> FamilyPlan | None:
        """Let the new items count from now on, or the old one again."""
        record = family.record
        if record is None or record.left or self.stamps.counts_new(family) == counts_new:
            return None
        plan = self.stamps.plan(family, family.old, family.new, record, counts_new=counts_new)
        # An item that other code has put has no stamp, and gets none here.
        old = {p: as_stamped(one, plan.after.old[p]) for p, one in family.old.items()}
        new = {p: as_stamped(family.new.get(p), one) for p, one in plan.after.new.items()}
        return replace(plan, after=replace(plan.after, old=old, new=new))

    def contract(self, family: Family) -> FamilyPlan | None:
        """Leave a stub of an old item that is exactly as agreed; or nothing, and no record."""
        record, split = family.record, self.shapes.is_split
        if record is None and split and not self.shapes.targets(family.old):
            rest = replace(family, old=self._rest(family))  # nothing is moved out of this item
            return None if rest == family else FamilyPlan(family, rest, "old")
        if record is None or record.left:
            return None
        if not self.rules.stubs:
            return self._removed(family)
        left = self._rest(family) if split else self._stubs(family.old)
        base = self.shapes.view_of_old(left) if split else {}
        base |= places_there(left) if split else self.shapes.known(left)
        after = replace(record, base_old=base, left="old")
        return self.stamps.plan(family, left, family.new, after, counts_new=True, only="old")

    def _removed(self, family: Family) -> FamilyPlan:
        """Return a family without its old side and its record; of a split, the rest is left."""
        return FamilyPlan(family, replace(family, record=None, old=bare(self._rest(family))), "old")

    def close(self, family: Family) -> FamilyPlan | None:
        """Remove stubs that no other code has written, and the record."""
        record = family.record
        if record is None or not record.left:
            return None
        if record.left == "new":
            gone: Items = dict.fromkeys(family.new)
            return FamilyPlan(family, replace(family, record=None, old=bare(family.old), new=gone))
        return FamilyPlan(family, replace(family, record=None, old=self._rest(family)), "old")

    def _rest(self, family: Family) -> Items:
        """Return what is left of old items: of a split all but what is moved out, also late."""
        if not self.shapes.is_split:
            return dict.fromkeys(family.old)
        rewrite = self.shapes.rewrite(family.old)
        return {p: one and rewritten(one, rewrite) for p, one in family.old.items()}

    def drop(self, family: Family) -> FamilyPlan | None:
        """Leave stubs of new items that are exactly as agreed."""
        record = family.record
        if record is None or record.left:
            return self.close(family)
        new = {p: one and place_of(p) for p, one in family.new.items()}
        after = replace(record, base_new={}, left="new") if any(new.values()) else None
        return self.stamps.plan(family, family.old, new, after, counts_new=False, only="new")
