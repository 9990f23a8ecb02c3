"""Repeating: a handler's run is repeated, and so are the runs behind it that have seen its effects.

In: the run that planning asks for, and the works. Out: the outcomes, made anew, in order. Where a
handler's changes meet at one item, as in a group's extremes, each has seen what the one before it
leaves behind: repeated one by one, each would need a commit of its own. On failure: an outcome says
so; nothing raises.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import anyio

from streamkit.processing.dispatch import Dispatcher
from streamkit.processing.holds import HeldLanes
from streamkit.processing.outcome import Work
from streamkit.processing.planning import Rerun
from streamkit.processing.reading import Memory
from streamkit.processing.refusal import REFUSALS_MAX

_BEHIND_MAX = 500
"""Runs that follow one that had to be repeated, at most, before the next commit."""


@dataclass(frozen=True)
class Repeating:
    """Repeats runs of one shard or batch. `until` is set when the rest is left to others."""

    dispatcher: Dispatcher
    held: HeldLanes
    shard: str
    until: anyio.Event

    async def run(self, rerun: Rerun, works: Sequence[Work]) -> None:
        """Repeat a run, and those of its handler that have seen its effects."""
        outcome, memory = rerun.outcome, Memory()
        await self.dispatcher.run(
            rerun.work, outcome, works, self.shard, until=self.until, memory=memory
        )
        if outcome.handler.together is not None and not outcome.waiting:
            await self._run_behind(rerun, works, memory)

    async def _run_behind(self, rerun: Rerun, works: Sequence[Work], memory: Memory) -> None:
        handler, left = rerun.outcome.handler, _BEHIND_MAX
        touched = {read.ref for read in rerun.outcome.reads}
        for work in works:
            if work.position <= rerun.work.position or work.key is None:
                continue
            for outcome in work.outcomes:
                if outcome.handler is not handler or self.held.holds(handler, work.key):
                    continue
                if not outcome.waiting and touched.isdisjoint(read.ref for read in outcome.reads):
                    continue
                if outcome.refusals > REFUSALS_MAX or self.until.is_set() or not left:
                    return
                left -= 1
                await self.dispatcher.run(
                    work, outcome, works, self.shard, until=self.until, memory=memory
                )
                touched |= {read.ref for read in outcome.reads}
