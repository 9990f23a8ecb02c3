"""Repeating: a handler's run is repeated, and so are the runs behind it that are stale for it.

In: the run that planning asks for, and the works. Out: the outcomes, made again, in order. Where a
handler's changes meet at one item, as in a group's extremes, each has seen what the one before it
leaves behind: repeated one by one, each would need a commit of its own. On failure: an outcome says
so; nothing raises.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import anyio

from streamkit.actions import ItemRef
from streamkit.processing.dispatch import Dispatcher
from streamkit.processing.holds import HeldLanes
from streamkit.processing.outcome import Outcome, Read, Work
from streamkit.processing.planning import Rerun
from streamkit.processing.reading import Pending, Uncommitted
from streamkit.processing.refusal import REFUSALS_MAX


@dataclass(frozen=True)
class Repeating:
    """Repeats runs of one shard or batch. `until` is set when the rest is left to another owner."""

    dispatcher: Dispatcher
    held: HeldLanes
    shard: str
    until: anyio.Event

    async def run(self, rerun: Rerun, works: Sequence[Work], most: int) -> None:
        """Repeat a run, and those of its handler in the `most` works from there that are stale.

        `most` is what a commit takes: further ones would only be repeated once more behind it.
        """
        outcome, uncommitted = rerun.outcome, Uncommitted(works)
        await self.dispatcher.run(rerun.work, outcome, uncommitted, self.shard, until=self.until)
        if outcome.waiting:
            return
        found = {read.ref: read for read in outcome.reads}
        handler, left = outcome.handler, most
        for work in works:
            if work.position <= rerun.work.position or work.key is None:
                continue
            left -= 1
            if left <= 0 or self.until.is_set():
                return
            for behind in work.outcomes:
                if behind.handler is not handler or self.held.holds(handler, work.key):
                    continue
                if behind.refusals > REFUSALS_MAX:
                    return
                if behind.waiting or self._is_stale(work, behind, uncommitted, found):
                    await self.dispatcher.run(
                        work, behind, uncommitted, self.shard, until=self.until
                    )
                    found |= {read.ref: read for read in behind.reads if read.ref not in found}

    def _is_stale(
        self, work: Work, outcome: Outcome, uncommitted: Uncommitted, found: dict[ItemRef, Read]
    ) -> bool:
        """Say whether a result saw other pending writes than there are now, or an older item."""
        pending = Pending(uncommitted, work.position)
        return any(
            pending.is_stale(read) or read.expect(found[read.ref].stored) != read.conditions
            for read in outcome.reads
            if read.ref in found
        )
