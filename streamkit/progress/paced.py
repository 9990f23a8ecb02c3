"""Writes at a rate: how many write units a second something long may use.

In: clients, and a rate in write units a second. Out: pauses before commits, measured by what AWS
says that the commits before them have used. A worker that catches up with a stream waits only
before it commits old changes, so that it gets to the end, however much is written meanwhile. On
failure: nothing waits any more while a worker ends, so that it gives its shards back within its
grace period.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from streamkit.aws import Aws
from streamkit.observe.meters import Meters
from streamkit.observe.metrics import NoMetrics
from streamkit.observe.repeats import counted_as
from streamkit.progress.clock import Clock
from streamkit.progress.commit import Batch, Committer, Verdict
from streamkit.progress.metering import meter
from streamkit.progress.pacing import UnitRate

_RECENT_SECONDS = 60.0
"""Changes as young as this are committed at once."""


class CommitRate(UnitRate):
    """Lets one process commit old changes at a rate, and recent ones at once."""

    async def ready(self, dated: float) -> None:
        """Wait until a change that was created at some time (epoch seconds) may be committed."""
        if self.clock.time() - dated >= _RECENT_SECONDS:
            await self.turn()  # the commits of all shards together keep to the rate


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


@contextmanager
def counted_rate(
    aws: Aws, name: str, units: float | None, clock: Clock
) -> Iterator[CommitRate | None]:
    """Count what a command writes, under a name, and yield its rate; None without `units`."""
    meters = Meters(NoMetrics(), name)
    with counted_as(meters):
        if units is None:
            yield None
        else:
            meter(aws)
            yield CommitRate(units, lambda: meters.used.write, lambda: False, clock)
