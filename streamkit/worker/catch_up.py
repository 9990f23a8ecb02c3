"""Catching up: the commits of a consumer that began in the past, at a rate.

In: what AWS says that the worker has used, and a rate in write units a second. Out: pauses before
commits, until what is committed is hardly older than now. On failure: nothing waits any more while
the worker ends, so that it gives its shards back within its grace period.
"""

from typing import Any

from streamkit.progress.commit import Batch, Committer, Verdict
from streamkit.progress.pacing import UnitRate

_RECENT_SECONDS = 60.0
"""Changes as young as this are committed at once."""


class CommitRate(UnitRate):
    """Lets one worker commit old changes at a rate, and recent ones at once."""

    async def ready(self, dated: float) -> None:
        """Wait until a change that was created at some time (epoch seconds) may be committed."""
        if self.clock.time() - dated >= _RECENT_SECONDS:
            await self.turn()  # the commits of all shards, one after the other


class PacedCommitter(Committer):
    """Commits at a rate."""

    def __init__(self, rate: CommitRate, *parts: Any) -> None:
        super().__init__(*parts)
        self._rate = rate

    async def commit(self, batch: Batch) -> Verdict:
        """Wait for a turn, then send a batch until its fate is known.

        Raises:
            LeaseLost: the cursor is not this worker's any more, or holds an unknown commit.
            ConfigurationError: the credentials may not write.
        """
        await self._rate.ready(batch.cursor.dated)
        return await super().commit(batch)
