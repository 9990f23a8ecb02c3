"""Do with a change of the stream what a pass would do with its item.

In: a change whose images are items in wire form. Out: calls of `in_place`, `pairs` and `families`,
as the phase of the work requires; and whether a change is a write of old code. On failure: as these
modules.
"""

from dataclasses import dataclass
from typing import Any, Literal

from streamkit.changes import Change
from streamkit.errors import USER_ERRORS
from streamkit.migrate.book.old_writes import OldWrites
from streamkit.migrate.items.rewrites import WireItem, plain
from streamkit.migrate.run.work import NEW_COUNTS_TOO, NEW_MAY_WRITE, MigrationWork
from streamkit.model.origin import ORIGIN
from streamkit.progress.scan.places import place_text


@dataclass(frozen=True, slots=True)
class LiveWork:
    """The work of one phase on what is written meanwhile.

    `target` says that it is written in another table, which has new items alone.
    """

    work: MigrationWork
    target: bool

    async def take(self, change: Change[Any]) -> None:
        """Do with a change what the pass would do with its item; of a target, for its source."""
        work, old, new = self.work, change.old, change.new
        if self.target:
            if not await self._is_ours(old, new):
                await self._settle_new(new, old)
            return
        if not work.migration.is_pairs:
            if new is not None and work.transform.matches(new):
                await work.in_place.reconcile(new, live=True)
            return
        if work.migration.moves:
            await self._settle(old, new, change.created_at.timestamp())
            return
        item = new if new is not None else old
        if item is not None and work.transform.matches(item):
            await work.pairs.forward(work.schema.key_of(item), old=old)

    async def _settle(self, old: WireItem | None, new: WireItem | None, at: float) -> None:
        """Settle the family of an item that other code has written."""
        work, item = self.work, new if new is not None else old
        if item is None or await self._is_ours(old, new):
            return
        side = work.families.side(new) or work.families.side(old)
        if side != "new" and work.transform.matches(item):
            await work.families.settle(work.schema.key_of(item), at=at)
        if side != "old" and work.migration.to is None and (side or work.is_target(item)):
            await self._settle_new(new, old)

    async def _settle_new(self, new: WireItem | None, old: WireItem | None) -> None:
        """Settle the family of a new item; before `ready` only that of one with a record."""
        work = self.work
        may = work.state.does in NEW_COUNTS_TOO or work.families.rules.keeps_parts
        if may or work.families.side(new) or work.families.side(old):
            key = await work.families.old_key(new, old)
            if key is not None:
                there = work.transform.target.key_of(new or old or {})
                await work.families.settle(key, new=there)

    async def count(self, change: Change[Any], counted: OldWrites) -> None:
        """Count what the application writes at an old key; from `ready` on note it at a new one."""
        if not self.target and self.is_old_write(change):
            if await self._deleted(change, "old") != "as agreed":
                counted.count(self.work.state, change.created_at.timestamp())
        elif self.is_new_write(change) or await self._deleted(change, "new") == "by other code":
            await counted.note_new(self.work.state, change.created_at.timestamp())

    async def _deleted(
        self, change: Change[Any], side: Literal["old", "new"]
    ) -> Literal["", "by other code", "as agreed"]:
        """Return what the record says of a deletion on a side from `ready` on; empty if nothing.

        A deletion has no origin. The migration deletes an item and agrees on it in one transaction;
        what other code deletes is still in the record, unless something else has led to the family
        before this change came. That is then not counted.
        """
        work, old = self.work, change.old
        both = work.migration.moves and work.migration.mode != "split"
        if change.new is not None or old is None or not both:
            return ""
        if work.state.does not in NEW_MAY_WRITE or work.families.side(old) != side:
            return ""
        _, name, _ = work.families.stamp_of(old)
        schema = work.schema if side == "old" else work.transform.target
        key = schema.key_of(old)
        record = await work.families.records.read(name)
        expected = record is not None and record.expects(side, place_text(key))
        again = expected and work.families.side(await work.calls.get(schema.name, key)) == side
        return "by other code" if expected and not again else "as agreed"

    def is_new_write(self, change: Change[Any]) -> bool:
        """Return whether new code wrote an item; a deletion may be the migration's, and is none."""
        work, old, new = self.work, change.old, change.new
        if new is None or not work.migration.moves or work.state.does not in NEW_MAY_WRITE:
            return False
        if _by_migration(old, new) and not work.families.is_carried(new):
            return False
        side = work.families.side(new) or work.families.side(old)
        if side or self.target:
            return side != "old"
        return work.is_target(new) and (not work.transform.matches(new) or self._stays(new))

    def is_old_write(self, change: Change[Any]) -> bool:
        """Return whether a change is a write of the application in the old shape, or at an old key.

        A deletion has no shape; at an old key it is a write.
        """
        work, old, new = self.work, change.old, change.new
        item, moves = new if new is not None else old, work.migration.moves
        if item is None or not work.transform.matches(item) or work.state.direction == "back":
            return False
        if not moves and (work.migration.is_pairs or new is None):
            return False
        if new is not None and _by_migration(old, new) and not work.families.is_carried(new):
            return False
        if moves:
            gone = work.state.at_once or not work.families.shapes.says(item, new=False)
            stub = new is None and gone
            side = work.families.side(new) or work.families.side(old)
            return side != "new" and not stub and (bool(side) or not self._stays(item))
        try:
            return work.transform.of(plain(item)).changes_item
        except USER_ERRORS:  # it is an error of the item, written down elsewhere
            return False

    def _stays(self, item: WireItem) -> bool:
        """Return whether the migration leaves an item where it is, as new code has put it."""
        work = self.work
        if work.migration.mode != "rekey" or not work.is_target(item):
            return False
        try:
            return not work.transform.of(plain(item)).targets
        except USER_ERRORS:  # then it cannot be told, and may be old code's
            return False

    async def _is_ours(self, old: WireItem | None, new: WireItem | None) -> bool:
        """Return whether a change is this migration's own, and no duplicate of what it has put.

        Code that duplicates an item whole takes its marks along. Most new items are made before new
        code may write, so that few records are read for this.
        """
        families, writer = self.work.families, self.work.failed.writer
        if new is None or not _by_migration(old, new, writer) or families.is_carried(new):
            return False
        doubtful = old is None and self.work.state.does in NEW_COUNTS_TOO
        return not doubtful or families.side(new) != "new" or await families.has_place(new)


def _by_migration(old: WireItem | None, new: WireItem, writer: str = "") -> bool:
    """Return whether a migration made a change: any, or the one that leaves such origins."""
    origin = new.get(ORIGIN, {"S": ""})
    text, end = origin["S"], f":{writer}" if writer else ""
    ours = text.startswith("migration:") and text.endswith(end)
    return ours and (old is None or old.get(ORIGIN) != origin)
