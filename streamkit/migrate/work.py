"""Choose what is done with one item in each phase of a migration, by the pass and by the stream.

In: an item of a pass, or a change. Out: calls of `in_place`, `pairs` and `switched`. The mode and
the phase decide which; this module itself writes only the marks of `touch`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from streamkit.changes import Change
from streamkit.core.matching import Matcher
from streamkit.entity import Entity, spec_of
from streamkit.errors import ConfigurationError
from streamkit.kinds.migration import Migration
from streamkit.migrate.agreement import digest_of
from streamkit.migrate.calls import DONE, Calls
from streamkit.migrate.ending import Ending
from streamkit.migrate.errors import ErrorBook
from streamkit.migrate.failing import FailedItems
from streamkit.migrate.in_place import InPlace
from streamkit.migrate.pairs import Pairs
from streamkit.migrate.state import SWITCHED, State
from streamkit.migrate.switched import Switched
from streamkit.migrate.tallies import Tally
from streamkit.migrate.transform import Transform, plain, reversed_migration, visible
from streamkit.migrate.writes import update
from streamkit.model.conditions import Attr, Condition, any_of, attribute, present
from streamkit.model.copies import BASE, COPY, FROM
from streamkit.model.origin import ORIGIN
from streamkit.model.schema import TableSchema
from streamkit.progress.actions import Wire
from streamkit.progress.clock import Clock

TOUCH = "_sk_touch"
"""The mark of `touch`: different for each run, so that it changes the item."""

_FOLLOWING = frozenset({"switching", "soaking", "comparing", "returning", "following", "unturning"})
"""The phases in which sources follow their targets."""
_OVERLAP = frozenset({"switching", "soaking", "comparing", "contracting", "closing"})
"""The phases in which old code that still runs writes at keys that are not read any more."""

Item = Mapping[str, Wire]


@dataclass(frozen=True)
class Schemas:
    """The table that is migrated, the one that targets go to, and the app's entities."""

    source: TableSchema
    target: TableSchema
    entities: tuple[type[Entity], ...] = ()


class MigrationWork:
    """One migration's work in one phase; make a new one for each state."""

    def __init__(
        self,
        app: str,
        migration: Migration,
        state: State,
        schemas: Schemas,
        calls: Calls,
        book: ErrorBook,
        clock: Clock,
    ) -> None:
        self.migration = migration
        self.state = state
        self.schema = schemas.source
        self.calls = calls
        self._book = book
        failed = FailedItems(book, clock, f"{app}.{migration.id}", state.phase)
        self._failed = failed
        back = state.direction == "back" and not migration.is_pairs
        if back and migration.reverse is None:
            raise ConfigurationError(f"{migration.declared}: it has no reverse= to roll back with")
        self.transform = Transform(
            reversed_migration(migration) if back else migration,
            schemas.source,
            schemas.target,
            schemas.entities,
        )
        self.in_place = InPlace(self.transform, calls, failed)
        self.pairs = Pairs(self.transform, calls, failed, state.phase in SWITCHED)
        self.switched = Switched(self.pairs)
        self.ending = Ending(self.pairs)
        self._target: Matcher | None = None
        if migration.target is not None and migration.is_pairs:
            self._target = Matcher(migration.target, schemas.target, schemas.entities)

    @property
    def table(self) -> TableSchema:
        """The table whose items the pass of this phase reads."""
        elsewhere = self.state.does == "comparing" and self.state.attempt % 2
        if self.state.does in ("following", "dropping", "closing") or elsewhere:
            return self.transform.target
        return self.schema

    # -- a pass --------------------------------------------------------------------------------

    async def visit(self, item: Item, tally: Tally) -> None:
        """Do with one item what the phase requires."""
        match self.state.does:
            case "following":
                await self._return(item, tally)
            case "unturning":
                await self.switched.switch_back(item, tally)
            case "dropping":
                await self.switched.drop(item, tally)
            case "comparing":
                await self.ending.compare(item, tally)
            case "contracting":
                await self.ending.contract(item, tally)
            case "closing":
                await self.ending.close(item, tally)
            case "switching":
                if self.transform.matches(item) and not self.pairs.is_switched(item):
                    await self.pairs.forward(self._key(item), tally, switch=True)
            case _:
                if self.transform.matches(item):
                    await self._bring(item, tally)

    async def _return(self, target: Item, tally: Tally) -> None:
        """Check that the source of a target has followed it."""
        if self._is_target(target) and COPY not in target:
            key = {name: target[name] for name in self.transform.target.key_attributes}
            await self.switched.backward(key, tally)

    async def _bring(self, item: Item, tally: Tally) -> None:
        if self.migration.mode == "touch" and self.state.phase == "scanning":
            await self.touch(item, tally)
        elif self.migration.is_pairs:
            seen = item if self.state.phase == "scanning" else None
            await self.pairs.forward(self._key(item), tally, seen=seen)
        else:
            await self.in_place.reconcile(item, tally, live=False)
        if self.state.phase == "verifying" and self.migration.check is not None:
            await self._check(item, tally)

    async def touch(self, item: Item, tally: Tally, *, blind: bool = False) -> None:
        """Mark an item, so that the stream delivers it; `blind`: only its key was read."""
        if not blind and not self._needs_touch(item):
            tally.skipped += 1
            return
        touch = self.state.consumer
        held: list[Condition] = [present, any_of(Attr(TOUCH).not_exists(), Attr(TOUCH).ne(touch))]
        typed = self.schema.type_attribute
        if typed is not None and typed not in item:  # the index does not show it
            own, there = spec_of(self.migration.entity).type, attribute(typed)
            held.append(any_of(there.not_exists(), there.eq(own)))
        sets = {TOUCH: {"S": touch}}
        action = update(self.schema, self._key(item), held, self._failed.writer, sets=sets)
        outcome = await self.calls.write(action)
        tally.changed += outcome is DONE
        tally.skipped += outcome is not DONE

    def _needs_touch(self, item: Item) -> bool:
        try:
            rewrite = self.transform.of(plain(item))
            return rewrite.changes_item or bool(rewrite.targets)
        except Exception:  # noqa: BLE001 - the stream's run reports what is wrong with it
            return True

    async def _check(self, item: Item, tally: Tally) -> None:
        """Run the migration's own check on an item in the new shape."""
        key = self._key(item)
        now = await self.calls.get(self.schema.name, key)
        if now is None or self.migration.check is None:
            return
        try:
            right = self.migration.check(self.transform.entity(now))
        except Exception as error:  # noqa: BLE001 - whatever the application's check raises
            await self._failed.note(key, tally, "check", error)
            return
        if not right:
            await self._failed.note(key, tally, "check", "the migration's own check says no")

    async def failing(self) -> int:
        """Retry what has failed; return how many items are still not right."""
        for error in await self._book.open():
            if error.kind == "ping_pong":
                continue  # such an item may be right only for a moment
            tally = Tally()
            await self.retry(error.key, tally, error.kind)
            if not tally.errors:
                await self._book.remove(error.id)
        return len(await self._book.open())

    async def retry(self, key: Item, tally: Tally, kind: str = "") -> None:
        """Retry a failed item, whose error was `kind`; it may fail again."""
        if kind in ("late", "deleted") and self.state.does in (*_OVERLAP, *_FOLLOWING, "done"):
            await self._retry_old(key, tally, kind)
            return
        if kind == "late" and self.state.direction == "forward":
            tally.errors += 1  # what new code wrote too early is in no source; a person decides
            return
        if self.state.does in _FOLLOWING:
            there = await self.calls.get(self.transform.target.name, key)
            if there is not None:
                await self._return(there, tally)
        item = await self.calls.get(self.schema.name, key)
        if self.state.phase == "following":
            return
        if self.state.phase == "unturning":
            if item is not None:
                await self.visit(item, tally)
        elif item is not None and not self.transform.matches(item):
            return  # it is another entity's by now
        elif self.migration.is_pairs:
            await self.pairs.forward(key, tally)
        elif item is not None:
            await self.in_place.reconcile(item, tally, live=False)
            if self.migration.check is not None:
                await self._check(item, tally)

    async def _retry_old(self, key: Item, tally: Tally, kind: str) -> None:
        """Look again at what old code did after the switch: a retry alone decides nothing."""
        back = self.state.direction == "back"
        if kind == "deleted":
            there = await self.calls.get(self.transform.target.name, key)
            if there is not None and back:
                await self.switched.backward(key, tally)
            else:
                tally.errors += there is not None and COPY not in there
            return
        source = await self.calls.get(self.schema.name, key)
        if source is None:
            tally.errors += 1  # it was deleted since; only its new item shows whether it matters
        elif back:
            await self.switched.switch_back(source, tally)
        elif not self.pairs.agreement.holds(source):
            await self.pairs.forward(key, tally, switch=True, carry=False)

    # -- the stream ----------------------------------------------------------------------------

    async def live(self, change: Change[Any]) -> None:
        """Do with a change what the pass would do with its item."""
        tally = Tally()
        old: Any = change.old
        new: Any = change.new
        if not self.migration.is_pairs:
            if new is not None and self.transform.matches(new):
                await self.in_place.reconcile(new, tally, live=True)
            return
        item = new if new is not None else old
        if item is None or self._is_end(old, new):
            return
        if new is not None and await self._is_late(old, new):
            return
        key = self._key(item)
        switched = new is not None and (self._by_us(old, new) or self.pairs.is_switched(new))
        if self.transform.matches(item) and self.state.direction == "forward" and not switched:
            await self.pairs.forward(key, tally, old=old)
            await self._note_written(key, change, tally)
        if self.migration.to is None:
            await self._follow_target(key, item, old, gone=new is None)

    def is_old_write(self, change: Change[Any]) -> bool:
        """Return whether a change is a write of the application in the old shape, or at an old key.

        A deletion has no shape; at an old key it is a write.
        """
        old: Any = change.old
        new: Any = change.new
        item, moves = new if new is not None else old, self.migration.moves
        if item is None or not self.transform.matches(item) or self.state.direction == "back":
            return False
        if not moves and (self.migration.is_pairs or new is None):
            return False
        touched = new is not None and TOUCH in new and (old or {}).get(TOUCH) != new[TOUCH]
        if touched or (new is not None and self._by_us(old, new)):
            return False
        if moves:
            is_new = (COPY in item and BASE not in item) or self._is_mine(item, FROM)
            return not is_new and not self._is_end(old, new)
        try:
            return self.transform.of(plain(new)).changes_item
        except Exception:  # noqa: BLE001 - it is an error of the item, written down elsewhere
            return False

    async def _note_written(self, key: Item, change: Change[Any], tally: Tally) -> None:
        """Write down that old code has written at an old key, carried over or not."""
        at = change.created_at.timestamp()
        late = self.state.does in _OVERLAP and self.migration.moves and at >= self.state.switched
        if late and (tally.changed or tally.errors):
            await self._book.written(key, at)

    async def live_target(self, change: Change[Any]) -> None:
        """Do with a change of a target in another table what its source needs."""
        old: Any = change.old
        new: Any = change.new
        item = new if new is not None else old
        if item is None or self._is_end(old, new):
            return
        if new is not None and self._is_mine(new, COPY):
            return
        key = {name: item[name] for name in self.transform.target.key_attributes}
        await self._follow_target(key, item, old, gone=new is None)

    async def _follow_target(self, key: Item, item: Item, old: Item | None, *, gone: bool) -> None:
        """Let a source follow its target, if the item is a target and counts by now."""
        if self.state.does in _FOLLOWING and self._is_target(item):
            await self.switched.backward(key, Tally(), old=old, gone=gone)

    # -- what was late -------------------------------------------------------------------------

    async def look_again(self, table: str, item: Item) -> None:
        """Process an item that was written under a phase that is over, as the present one requires.

        Args:
            table: the table of the item.
            item: the item itself, or its key.
        """
        phase, moves = self.state.phase, self.migration.moves
        dropping = self.migration.is_pairs and phase in ("dropping", "rolled back")
        if table == self.schema.name:
            key = {name: item[name] for name in self.schema.key_attributes}
            now = await self.calls.get(table, key)
            if now is not None and dropping and moves:
                await self.switched.switch_back(now, Tally())
            elif now is not None and phase == "done" and moves:
                await self.ending.contract(now, Tally())
            elif now is not None and not dropping:
                await self.visit(now, Tally())
        if table == self.transform.target.name and dropping:
            key = {name: item[name] for name in self.transform.target.key_attributes}
            there = await self.calls.get(table, key)
            if there is not None:
                await self.switched.drop(there, Tally())

    async def _is_late(self, old: Item | None, new: Item) -> bool:
        """Return whether other code has written a target that is a copy; write that down."""
        if not self._is_mine(new, COPY) or BASE in new:
            return False
        ours = old is None or self._by_us(old, new)
        if not ours and old is not None and visible(old) != visible(new):
            text, shown = "a copy was written, and not by us", digest_of(new)
            await self._failed.note(self._key(new), Tally(), "late", text, shown=shown)
        return True

    def _is_end(self, old: Item | None, new: Item | None) -> bool:
        """Return whether a change ends what a pair was: its copy is deleted, or became the truth.

        Its other item was written in the same transaction, or does not belong to the old one any
        more.
        """
        if old is None or not self._is_mine(old, COPY) or (new is None and self._may_be_late(old)):
            return False
        return new is None or (self._is_mine(new, FROM) and new.get(ORIGIN) != old.get(ORIGIN))

    def _by_us(self, old: Item | None, new: Item) -> bool:
        """Return whether a change is this migration's own."""
        origin = new.get(ORIGIN, {"S": ""})
        text, end = origin["S"], f":{self._failed.writer}"
        ours = text.startswith("migration:") and text.endswith(end)
        touched = old is not None and old.get(TOUCH) != new.get(TOUCH)
        return ours and not touched and (old is None or old.get(ORIGIN) != origin)

    def _may_be_late(self, old: Item) -> bool:
        """Return whether an old item that is gone may have been deleted by old code."""
        return BASE in old and self.state.does in ("switching", "soaking", "comparing")

    def _is_target(self, item: Item) -> bool:
        return self._target is not None and self._target.matches(item)

    def _is_mine(self, item: Item, name: str) -> bool:
        return str(item.get(name, {}).get("S", "")).startswith(f"{self.migration.id}:")

    def _key(self, item: Item) -> dict[str, Wire]:
        return {name: item[name] for name in self.schema.key_attributes}
