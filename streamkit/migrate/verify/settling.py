"""Look again at items that differ, until it is certain that they are wrong, and repair them.

In: differences, as a verification has found them. Out: those that are wrong, and those that change
all the time; after a repair, those that are left. An item is wrong if it differs again and has not
changed, after the migration's consumer has processed all that was written until then. On failure:
an item that is another one by now is left alone.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import anyio

from streamkit.migrate.book.errors import error_id
from streamkit.migrate.book.state import ENDED
from streamkit.migrate.items.rewrites import WireItem
from streamkit.migrate.run.capture import Capture
from streamkit.migrate.run.opening import Opened
from streamkit.migrate.run.work import MigrationWork
from streamkit.migrate.verify.differences import ItemDifference, ItemInspection, image_digest
from streamkit.progress.actions import Wire

LOOKS = 3
"""How often a difference is looked at again."""
_PAUSE_SECONDS = 2.0
_PATIENCE_SECONDS = 30.0

CaptureState = Literal["in step", "behind", "nobody"]
"""Whether the migration's consumer has caught up, has not, or does not run; stored like this."""


@dataclass(frozen=True)
class Settling:
    """Looks at single items as one phase of a migration requires."""

    opened: Opened
    work: MigrationWork

    async def look_at(
        self, found: Mapping[str, ItemDifference]
    ) -> tuple[list[ItemDifference], list[ItemDifference]]:
        """Look at items until they are right or stay wrong; return wrong and unsettled ones."""
        open_, settled = dict(found), list[ItemDifference]()
        for _ in range(LOOKS):
            if not open_:
                break
            capture, again = await self.catch_up(), dict[str, ItemDifference]()
            for name, before in open_.items():
                one = await self._look(before.key)
                if one is not None and is_sure(one, before, capture):
                    settled.append(one)
                elif one is not None:
                    again[name] = one
            open_ = again
        return settled, list(open_.values())

    async def _look(self, key: Mapping[str, Wire]) -> ItemDifference | None:
        inspection = ItemInspection(self.work)
        item: WireItem | None = await self.work.calls.get(self.work.schema.name, key)
        if item is None and self.work.migration.moves and not inspection.knows_orphans:
            # Its record and a new item are left, and no search for copies finds them.
            family = self.work.transform.sources.family(key)
            item = await self.work.families.records.stored(error_id(family))
        if item is None:
            return None
        return await inspection.of(self.work.schema.name, item)

    async def catch_up(self) -> CaptureState:
        """Let the migration's consumer catch up; return whether it has, or whether none runs."""
        state, capture = self.work.state, Capture(self.opened)
        beats = {} if self.work.schema.stream_arn is None else await capture.beats(state)
        if not beats:
            await anyio.sleep(_PAUSE_SECONDS)
            return "nobody"
        if await capture.caught_up(state, _PATIENCE_SECONDS):
            return "in step"
        # A process that was killed leaves its heartbeat; after the end it stays for a while.
        beat = await capture.beats(state) != beats
        return "behind" if beat and state.phase not in ENDED else "nobody"

    async def mend(
        self, one: ItemDifference, found: ItemDifference | None
    ) -> ItemDifference | None:
        """Bring an item into the new shape; return what is wrong with it then.

        It is `found` with its key, unless that was not kept.
        """
        if found is None or not one.can_be_repaired:
            return one
        if one.kind == "orphan":
            return None if await self._drop(found) else one
        await self.work.retry(found.key)
        noted = await self.opened.errors.get(found.id)
        still = await self._look(found.key)
        if still is None and noted is not None:
            await self.opened.errors.remove(noted)
        return still

    async def _drop(self, orphan: ItemDifference) -> bool:
        """Delete a copy that is still as it was found; return False if it is another by now."""
        item = await self.work.calls.get(self.work.transform.target.name, orphan.key)
        if item is None:
            return True
        if image_digest(item) != orphan.image:
            return False
        return await self.work.drop(orphan.key, item)


def is_sure(one: ItemDifference, before: ItemDifference, capture: CaptureState) -> bool:
    """Return whether an item that differs again is wrong, and not only on its way to be right."""
    unchanged = one.image == before.image
    by_hand = one.kind in ("conflict", "early", "alone")
    return capture == "nobody" or (unchanged and (capture == "in step" or by_hand))
