"""Bring families into step: read one, decide, and write it in one transaction.

    read      the old item, the new ones and the pair record, strongly consistent
    decide    see `plans`
    write     items, record and stamps, IF each is as it was read, whole; refused: read again

The stream only says where to look: what is written is made of what was read, never of the image of
a change. So repeated and late changes do no harm, and a pass over pair records finds what no
process followed.

The first pass has just read the old item, and most places are free: it sends the transaction
without reading anything again, and reads only if that is refused. Where a place was not free, the
next ones are looked at before.

In: a key. Out: what was done, in a `Tally`. On failure: a record of the family's error; `conflict`
if both sides have written the same field, `taken` if another item is in the place of one, `early`
if new code has written what a rollback cannot bring back, and `alone` if a part has no item.
"""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Literal
from weakref import WeakValueDictionary

import anyio

from streamkit.core.querying import query_request
from streamkit.errors import USER_ERRORS
from streamkit.migrate.book.errors import place_id
from streamkit.migrate.book.tallies import Tally
from streamkit.migrate.families.family import Family, FamilyPlan, Rules, Views, undecided
from streamkit.migrate.families.family_writes import FamilyWrites
from streamkit.migrate.families.plans import Plans
from streamkit.migrate.families.records import PairRecords
from streamkit.migrate.families.settlement import Take
from streamkit.migrate.families.shapes import BothShapes
from streamkit.migrate.items.rewrites import Items, Key, WireItem
from streamkit.migrate.items.sources import queries_of_parts
from streamkit.migrate.items.transform import Transform
from streamkit.migrate.sending.attempts import FailedItems, ItemAttempts, Undecided
from streamkit.migrate.sending.calls import DONE, Calls
from streamkit.model.copies import COPY, PAIR
from streamkit.progress.scan.places import place_of, place_text
from streamkit.progress.verdicts import RefusedCommit

Step = Literal["", "turn", "unturn", "contract", "close", "drop"]
"""What a pass does with a family that is settled; "" is nothing."""
WrittenHook = Callable[[Key, float], Awaitable[None]]
"""Is told when other code has written an old item."""


@dataclass
class Families:
    """The families of one migration in one phase; `written` is told what old code writes."""

    transform: Transform
    calls: Calls
    failed: FailedItems
    rules: Rules
    written: WrittenHook
    _turns: WeakValueDictionary[str, anyio.Lock] = field(
        default_factory=WeakValueDictionary[str, anyio.Lock], init=False
    )

    def __post_init__(self) -> None:
        """Prepare to read families."""
        self._attempts = ItemAttempts(self.calls, self.failed)
        self.shapes = BothShapes(self.transform)
        self.plans = Plans(Views(self.shapes), self.rules)
        book = self.failed.book
        self.records = PairRecords(book.store.space, book.migration, self.calls)
        self._writes = FamilyWrites(self.shapes, self.failed.writer)

    # -- reading -------------------------------------------------------------------------------

    async def read(self, key: Key, new: Key | None = None) -> Family:
        """Read a family by the key of an old item; `new` is that of one that may belong to it.

        Raises:
            TransformError: the old key does not say which items are of its family.
        """
        transform, key = self.transform, self.transform.sources.family(key)
        record = await self.records.read(Family(key).name)
        old: dict[str, WireItem | None] = {}
        others: dict[str, WireItem | None] = {}
        for place in transform.sources.places(key):
            old[place] = one = await self.calls.get(transform.schema.name, place_of(place))
            if one and not (transform.matches(one) and (record is None or self._is_ours(one))):
                old[place], others[place] = None, one
        places = set() if record is None else record.places
        if new is not None:
            places.add(place_text(new))
        if record is None or not record.left or self.shapes.is_split:
            places |= self.shapes.targets(old).keys()
        for item in filter(None, old.values()):
            places |= await self._collected(item)
        # Old code's item may look like a new one: its key fits both.
        own = old.keys() if transform.target.name == transform.schema.name else set[str]()
        family = Family(key, record, old, await self._at(places - own), others)
        more = self._said_at_stubs(family) - places - own
        return replace(family, new=await self._at((places - own) | more)) if more else family

    async def _at(self, places: set[str]) -> Items:
        """Read the new items in some places."""
        table = self.transform.target.name
        return {place: await self.calls.get(table, place_of(place)) for place in sorted(places)}

    def _said_at_stubs(self, family: Family) -> set[str]:
        """Return the places that follow from what other code has written at old stubs.

        What its functions refuse is told when the family is settled.
        """
        if family.record is None or family.record.left != "old" or self.shapes.is_split:
            return set()
        with suppress(*USER_ERRORS):
            return set(self.plans.views.of(family).targets)
        return set()

    def _is_ours(self, old: WireItem) -> bool:
        """Return whether an item is no copy that another migration keeps."""
        mine = f"{self.transform.migration.id}:"
        return COPY not in old or str(old[COPY]["S"]).startswith(mine)

    async def _collected(self, old: WireItem) -> set[str]:
        """Return the places of parts that are there, whether or not they follow from the item."""
        transform = self.transform
        if transform.migration.collect is None:
            return set()
        found: list[WireItem] = []
        for query in queries_of_parts(transform.migration, transform.entity(old)):
            found += await self.calls.query(**query_request(query, transform.target))
        return {self._place(item) for item in found}

    def side(self, item: WireItem | None) -> str:
        """Return on which side of a family an item is: `old` or `new`; empty if it has no stamp."""
        owner, name, side = self.stamp_of(item)
        return side if owner and not self._is_anothers(item or {}, name, side) else ""

    def is_carried(self, item: WireItem) -> bool:
        """Return whether application code has put an old item with the marks of another one."""
        owner, name, side = self.stamp_of(item)
        return owner and self._is_anothers(item, name, side)

    async def has_place(self, new: WireItem) -> bool:
        """Return whether a new item is where its family has one; a duplicate of it is not."""
        record = await self.records.read(self.stamp_of(new)[1])
        return record is None or self._place(new) in record.places

    def _place(self, new: WireItem) -> str:
        return place_text(self.transform.target.key_of(new))

    def stamp_of(self, item: WireItem | None) -> tuple[bool, str, str]:
        """Return whether an item has a stamp of this migration, its family's name, and its side."""
        owner, _, rest = str((item or {}).get(PAIR, {}).get("S", "")).partition(":")
        name, _, side = rest.partition(":")
        return owner == self.transform.migration.id, name, side

    def _is_anothers(self, item: WireItem, name: str, side: str) -> bool:
        """Return whether the stamp of an old item names another place than its own."""
        return side == "old" and Family(self.transform.sources.family(item)).name != name

    async def old_key(self, *images: WireItem | None) -> Key | None:
        """Return the key of the old item of a new one, from what its images say."""
        for image in images:
            owner, name, side = self.stamp_of(image)
            record = await self.records.read(name) if owner else None
            if record is not None and (side != "new" or self._place(image or {}) in record.places):
                return record.old
        shown = next((image for image in images if image is not None), None)
        if shown is None or not self.shapes.mirrors:
            return None
        if self.shapes.is_split:
            source = self.transform.migration.source
            assert source is not None  # noqa: S101 - checked at declaration
            key = source(self.shapes.reverse.entity(shown))
            return None if key is None else key.wire(self.transform.schema)
        sources = [place_of(place) for place in self.shapes.reverse.sources(shown)]
        return sources[0] if sources else None

    # -- settling ------------------------------------------------------------------------------

    async def settle(
        self,
        key: Key,
        *,
        step: Step = "",
        seen: WireItem | None = None,
        new: Key | None = None,
        at: float = 0,
    ) -> Tally:
        """Bring the family of an old item into step, and do its phase's step with one that is.

        The old item was `seen` if the first pass has just read it, strongly consistent. `new` is
        the key of the new item that led here, `at` when it was written, if a change says so.
        """
        key = self.transform.sources.family(key)

        async def attempt(read: WireItem | None) -> Any:
            if read is None:
                family = await self.read(key, new)
            else:
                old = {place_text(key): read}
                family = Family(key, None, old, dict.fromkeys(self.shapes.targets(old)))
            return await self._bring(family, step, at, new)

        if not self.shapes.is_merge:
            return await self._attempts.persist(key, attempt, seen)
        # One of several items is no family, so all are read. A page of the pass often has all of
        # them: side by side, they would only refuse each other.
        async with self._turns.setdefault(Family(key).name, anyio.Lock()):
            return await self._attempts.persist(key, attempt)

    async def _bring(self, family: Family, step: Step, at: float, new: Key | None) -> Any:
        """Settle a family as it was read, and go on to its step; return the last outcome."""
        done = None
        while True:
            try:
                plan = self.plans.settle(family)
            except Undecided as error:
                # Its parts were read one after the other. Two reads that are alike are of one
                # moment; else another process may have written them all in between.
                if await self.read(family.key, new) != family:
                    return RefusedCommit()
                if error.kind == "conflict" or self.rules.late:
                    await self.written(family.key, at)
                raise
            settles = plan is not None
            plan = plan or self._step(family, step)
            if plan is None:
                return done
            done = await self.send(plan)
            wrote = settles and done is DONE and self._old_was_written(family, at)
            if wrote:
                await self.written(family.key, at)
            stays = wrote and (step == "close" or not self.rules.stubs)
            goes_on = step or self.plans.is_alone(plan.after)
            if done is not DONE or not settles or not goes_on or stays:
                return done
            family = await self.read(family.key)

    def _old_was_written(self, family: Family, at: float) -> bool:
        if family.record is None and not at:
            return False  # no change says so: it may be an item of before the switch
        # The item of a split that stays may be of new code, which has made its parts beside it.
        return bool(self.plans.views.of(family).old.changed)

    def _step(self, family: Family, step: Step) -> FamilyPlan | None:
        match step:
            case "turn" | "unturn":
                return self.plans.turn(family, counts_new=step == "turn")
            case "contract":
                return self.plans.contract(family)
            case "close":
                return self.plans.close(family) or self.plans.contract(family)
            case "drop":
                return self.plans.drop(family)
        return None

    async def take(self, key: Key, side: Take, shown: str) -> Tally | None:
        """Write what a person has decided about exactly what the person was shown.

        Returns None if the item is not as it was shown: then nothing is written.
        """
        is_as_shown = True

        async def attempt(_seen: WireItem | None) -> Any:
            nonlocal is_as_shown
            family = await self.read(key)
            is_as_shown = family.shown == shown
            plan = self.plans.settle(family, side) if is_as_shown else None
            return None if plan is None else await self.send(plan)

        tally = await self._attempts.persist(key, attempt)
        return tally if is_as_shown else None

    # -- writing -------------------------------------------------------------------------------

    async def send(self, plan: FamilyPlan) -> Any:
        """Send the transaction of a plan.

        Raises:
            Undecided: an old item would have to be put where another one is.
        """
        before, after = plan.before, plan.after
        if taken := [place for place in before.others if after.old.get(place)]:
            text = f"another item is in its old place, {place_id(min(taken))}"
            raise undecided(before, "taken", text)
        actions = self._writes.of(plan)
        same = before.record is not None and before.record == after.record
        if not same and (before.record is not None or after.record is not None):
            actions.append(self.records.writes(before.record, after.record))
        gated = before.record is None and after.record is not None and self.rules.gate != ""
        if gated:
            actions.append(self.records.gate(before.name, self.rules.gate))
        outcome = await self.calls.transact(actions)
        if gated and isinstance(outcome, RefusedCommit) and len(actions) - 1 in outcome.items:
            await self.calls.renew()  # a process that stood still finds out that its phase is over
        return outcome
