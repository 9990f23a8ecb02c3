"""Repeating: repeat a handler's run, and the runs behind it that become stale through it.

In: the run that planning asks for, and the pending changes. Out: the outcomes, made again, in
order. Where a handler's changes meet at one item, as in a group's extremes, each run has seen what
the one before it leaves. Repeated one by one, each would need a commit of its own. On failure: an
outcome says so; nothing raises.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import anyio

from streamkit.core.dispatch import Dispatcher
from streamkit.core.outcome import Outcome, PendingChange
from streamkit.core.planning import Rerun
from streamkit.core.queued_keys import QueuedKeys
from streamkit.core.reading import Pending, Uncommitted
from streamkit.core.reads import Read
from streamkit.core.refusal import REFUSALS_MAX
from streamkit.progress.actions import ItemRef
from streamkit.progress.clock import Clock

_BEHIND_SECONDS = 1.0
"""For so many seconds, runs behind the first are repeated in advance; then ready changes are
committed."""


@dataclass(frozen=True)
class Repeating:
    """Repeats runs of one shard or batch; `until` is set when the rest is left to another owner."""

    dispatcher: Dispatcher
    queued_keys: QueuedKeys
    shard: str
    until: anyio.Event

    async def run(self, rerun: Rerun, pending: Sequence[PendingChange], most: int) -> None:
        """Repeat a run, and the stale runs of its handler in the `most` pending changes from there.

        `most` is how many a commit takes: runs further behind would have to be repeated once more.
        """
        outcome = rerun.outcome
        at = next(i for i, change in enumerate(pending) if change is rerun.change)
        uncommitted = Uncommitted(pending[: at + most])
        until = self._clock.monotonic() + _BEHIND_SECONDS
        repeat = partial(self.dispatcher.runs.run, shard_id=self.shard, until=self.until)
        await repeat(rerun.change, outcome, uncommitted)
        # A later change that blocks must not keep earlier changes from being committed.
        if outcome.waiting or outcome.handler.policy.on_failure == "block":
            return
        found = {read.ref: read for read in outcome.reads}
        for change in pending[at + 1 : at + most]:
            for behind in change.outcomes:
                # Compare names: in a fan-out each recipient has a handler of its own.
                if behind.handler.name != outcome.handler.name or not self._is_stale(
                    change, behind, uncommitted, found
                ):
                    continue
                late = self.until.is_set() or self._clock.monotonic() >= until
                if late or behind.refusals > REFUSALS_MAX:
                    return
                await repeat(change, behind, uncommitted)
                found |= {read.ref: read for read in behind.reads if read.ref not in found}

    @property
    def _clock(self) -> Clock:
        return self.dispatcher.clock

    def _is_stale(
        self,
        change: PendingChange,
        outcome: Outcome,
        uncommitted: Uncommitted,
        found: dict[ItemRef, Read],
    ) -> bool:
        """Return whether a result saw other pending writes to these items, or an older item."""
        reads = [read for read in outcome.reads if read.ref in found]
        if not reads or change.key is None or self.queued_keys.has(outcome.handler, change.key):
            return False
        pending = Pending(uncommitted, change.position)
        return outcome.waiting or any(
            pending.is_stale(read) or read.expect(found[read.ref].stored) != read.conditions
            for read in reads
        )
