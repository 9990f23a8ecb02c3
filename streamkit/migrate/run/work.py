"""Choose what a pass does with one item in each phase of a migration; `live` has the changes.

In: an item of a pass. Out: calls of `in_place`, `pairs` and `families`. The mode and the phase
decide which; this module itself writes only the marks of `touch`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from streamkit.core.matching import Matcher
from streamkit.entity import Entity, spec_of
from streamkit.errors import USER_ERRORS, ConfigurationError
from streamkit.kinds.migration import Migration
from streamkit.migrate.book.errors import ErrorBook
from streamkit.migrate.book.state import SWITCHED, State
from streamkit.migrate.book.tallies import Tally
from streamkit.migrate.families.families import Families, Step
from streamkit.migrate.families.family import Rules
from streamkit.migrate.items.rewrites import Key, WireItem, plain
from streamkit.migrate.items.transform import Transform, reversed_migration
from streamkit.migrate.items.writes import delete, unchanged, update
from streamkit.migrate.run.in_place import InPlace
from streamkit.migrate.run.pairs import Pairs
from streamkit.migrate.sending.attempts import FailedItems
from streamkit.migrate.sending.calls import DONE, Calls
from streamkit.model.conditions import Attr, Condition, any_of, attribute, present
from streamkit.model.copies import COPY
from streamkit.model.schema import TableSchema
from streamkit.progress.clock import Clock

TOUCH = "_sk_touch"
"""The mark of `touch`: different for each run, so that it changes the item."""

NEW_COUNTS_TOO = frozenset(
    {
        *("ready", "switching", "soaking", "comparing"),
        *("returning", "following", "unturning", "dropping"),
    }
)
"""The phases in which a new item without an old one gets one, if `reverse` says how."""
NEW_MAY_WRITE = NEW_COUNTS_TOO | {"contracting", "closing"}
"""The phases in which new code may write."""
_OVERLAP = frozenset({"switching", "soaking", "comparing", "contracting", "closing"})
"""The phases in which old code that still runs writes at keys that are not read any more."""
_STEPS: Final[Mapping[str, Step]] = {
    "switching": "turn",
    "unturning": "unturn",
    "contracting": "contract",
    "closing": "close",
    "done": "close",
    "dropping": "drop",
    "rolled back": "drop",
}
"""What is done with a family that is settled, by what a phase does."""


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
        self._clock = clock
        self._step: Step = _STEPS.get(state.does, "")
        run = f"{state.run} {state.direction}"
        failed = self.failed = FailedItems(book, clock, f"{app}.{migration.id}", state.phase, run)
        back = state.direction == "back" and not migration.is_pairs
        if back and migration.reverse is None:
            raise ConfigurationError(f"{migration.declared}: it has no reverse= to roll back with")
        chosen = reversed_migration(migration) if back else migration
        self.transform = Transform(chosen, schemas.source, schemas.target, schemas.entities)
        self.in_place = InPlace(self.transform, calls, failed)
        self.pairs = Pairs(self.transform, calls, failed)
        mirrored_split = migration.mode == "split" and migration.reverse is not None
        rules = Rules(
            counts_new=state.phase in SWITCHED,
            makes_new=state.direction == "forward" and state.phase != "done",
            makes_old=state.does in NEW_COUNTS_TOO,
            drops=state.does == "dropping",
            stubs=not state.at_once,
            late=state.waits_where_gone,
            keeps_parts=mirrored_split and state.does in NEW_MAY_WRITE,
            gate=state.gate,
        )
        self.families = Families(self.transform, calls, failed, rules, self._note_written)
        made = migration.target if migration.is_pairs else None
        self._target = Matcher(made, schemas.target, schemas.entities) if made else None

    @property
    def tables(self) -> list[TableSchema]:
        """The tables that the passes of this phase read in turn.

        A pass over families reads their records, and the items that may have none.
        """
        if not self.migration.moves:
            return [self.transform.target if self.state.does == "dropping" else self.schema]
        if self.state.does == "following":
            return [self.transform.target]
        control = self.families.records.space.schema
        if control.name == self.schema.name or self.state.does == "scanning":
            return [self.schema]
        return [control] if self.state.direction == "back" else [self.schema, control]

    @property
    def table(self) -> TableSchema:
        """The table whose items the present pass reads."""
        return self.tables[self.state.attempt % len(self.tables)]

    # -- a pass --------------------------------------------------------------------------------

    async def visit(self, item: WireItem, *, blind: bool = False) -> Tally:
        """Do with one item what the phase requires; `blind`: an index has shown only its key."""
        if self.migration.moves:
            key = await self._family_of(item)
            if key is not None:
                seen = item if self.state.phase == "scanning" else None
                new = self.transform.target.key_of(item) if self.state.does == "following" else None
                return await self.families.settle(key, step=self._step, seen=seen, new=new)
            # For `--first` count also those at which the stream was faster.
            faster = self.state.phase == "scanning" and self.families.side(item) == "old"
            return Tally(skipped=faster)
        if self.state.does == "dropping" and self.migration.is_pairs:
            return await self.pairs.drop(item)
        return await self._bring(item, blind=blind) if self.transform.matches(item) else Tally()

    async def _family_of(self, item: WireItem) -> Key | None:
        """Return the old key of the family that a pass looks at, when it reads this item.

        An old item with a stamp has a record, which the pass reads, too.
        """
        if self.state.does == "following":
            new = self.is_target(item) and COPY not in item
            return await self.families.old_key(item) if new else None
        record = self.families.records.of(item)
        if self.state.does == "contracting" and record and record.left:
            return None  # it is a stub; `closing` looks at it
        if record is not None or self.table.name != self.schema.name:
            return record.old if record and self.state.phase != "scanning" else None
        copied = COPY in item and not self.families.is_carried(item)
        if self.families.side(item) or copied or not self.transform.matches(item):
            return None
        return self.schema.key_of(item)

    async def _bring(self, item: WireItem, *, blind: bool) -> Tally:
        if self.migration.mode == "touch" and self.state.phase == "scanning":
            return await self._touch(item, blind=blind)
        if self.migration.is_pairs:
            seen = item if self.state.phase == "scanning" else None
            tally = await self.pairs.forward(self.schema.key_of(item), seen=seen)
        else:
            tally = await self.in_place.reconcile(item, live=False)
        if self.state.phase == "verifying":
            tally.add(await self._check(item))
        return tally

    async def _touch(self, item: WireItem, *, blind: bool) -> Tally:
        """Mark an item, so that the stream delivers it.

        An item for which the function fails is written down. The stream's run would find out, too,
        but only once a bad release has touched thousands.
        """
        key, touch = self.schema.key_of(item), self.state.consumer
        if not blind:
            try:
                rewrite = self.transform.of(plain(item))
            except USER_ERRORS as error:
                return await self.failed.note(key, "transform", error)
            if not (rewrite.changes_item or rewrite.targets):
                return Tally(skipped=1)
        held: list[Condition] = [present, any_of(Attr(TOUCH).not_exists(), Attr(TOUCH).ne(touch))]
        typed = self.schema.type_attribute
        if typed is not None and typed not in item:  # the index does not show it
            own, there = spec_of(self.migration.entity).type, attribute(typed)
            held.append(any_of(there.not_exists(), there.eq(own)))
        sets = {TOUCH: {"S": touch}}
        action = update(self.schema, key, held, self.failed.writer, sets=sets)
        done = await self.calls.write(action) is DONE
        return Tally(changed=done, skipped=not done)

    async def _check(self, item: WireItem) -> Tally:
        """Run the migration's own check on an item in the new shape."""
        check, key = self.migration.check, self.schema.key_of(item)
        now = None if check is None else await self.calls.get(self.schema.name, key)
        if check is None or now is None:
            return Tally()
        what: str | BaseException = "the migration's own check says no"
        try:
            if check(self.transform.entity(now)):
                return Tally()
        except USER_ERRORS as error:  # the application's check may raise anything
            what = error
        return await self.failed.note(key, "check", what)

    async def failing(self) -> int:
        """Retry what has failed; return how many items are still not right."""
        for error in await self._book.open():
            if error.kind == "ping_pong":
                continue  # such an item may be right only for a moment
            if not (await self.retry(error.key)).errors:
                await self._book.remove(error)
        return len(await self._book.open())

    async def retry(self, key: Key) -> Tally:
        """Retry a failed item; it may fail again."""
        if self.migration.moves:
            return await self.families.settle(key, step=self._step)
        item = await self.calls.get(self.schema.name, key)
        if item is not None and not self.transform.matches(item):
            return Tally()  # it is another entity's by now
        if self.migration.is_pairs:
            return await self.pairs.forward(key)
        tally = Tally()
        if item is not None:
            tally = await self.in_place.reconcile(item, live=False)
            tally.add(await self._check(item))
        return tally

    async def drop(self, key: Key, copy: WireItem) -> bool:
        """Delete a copy without a source, if it is as it was read; return whether it is gone."""
        if not self.migration.moves:
            await self.pairs.drop(copy)
            return True
        target = self.transform.target
        if not await self.families.has_place(copy):  # a duplicate, put by application code
            await self.look_again(target.name, key)
            return False
        held = unchanged(target, copy, copy.keys())
        return await self.calls.write(delete(target, key, held)) is DONE

    async def _note_written(self, key: Key, at: float) -> None:
        """Write down that old code has written at an old key, carried over or not.

        Where people have said that no code writes there any more, all was compared before. So a
        write that is seen there is later, also if the change that led to it is older.
        """
        at = 0 if self.state.at_once else at
        if self.state.does in _OVERLAP:
            await self._book.written(key, at or await self._book.store.time(self._clock))

    # -- what was late -------------------------------------------------------------------------

    async def look_again(self, table: str, item: WireItem) -> None:
        """Process an item, or its key, that was written under a phase that is over."""
        if self.migration.moves:
            await self._look_again_at_family(table, item)
            return
        dropping = self.migration.is_pairs and self.state.phase in ("dropping", "rolled back")
        schema = self.transform.target if dropping else self.schema
        if table == schema.name and (now := await self.calls.get(table, schema.key_of(item))):
            await (self.pairs.drop(now) if dropping else self.visit(now))

    async def _look_again_at_family(self, table: str, item: WireItem) -> None:
        """Settle a family of which something was written too late, and do its phase's step."""
        schemas = (self.schema, self.transform.target, self.families.records.space.schema)
        schema = next(one for one in schemas if one.name == table)
        now = await self.calls.get(table, schema.key_of(item))
        if now is None:
            return
        record = self.families.records.of(now)
        key, new = record.old if record else None, None
        if key is None and self.families.side(now) == "new":
            key, new = await self.families.old_key(now), self.transform.target.key_of(now)
        elif key is None and table == self.schema.name and self.transform.matches(now):
            key = self.schema.key_of(now)
        if key is not None:
            for _ in range(2):  # the first time leaves a stub, the second one removes it
                await self.families.settle(key, step=self._step, new=new)

    def is_target(self, item: WireItem) -> bool:
        """Return whether an item, by its entity, may be one that the migration makes."""
        return self._target is not None and self._target.matches(item)
