"""One by one: run each change of a page alone, to find the one that kills workers.

A shard whose owners vanish one after the other with nothing committed may have a change that ends
the process: it takes all memory, or calls something that exits. Each change is recorded in the
cursor before it runs, so that the next owner can count how often that was the last thing done.

In: the records of a page. Out: all are committed, or the rest is left to the next owner. On
failure: the change that was recorded too often is parked without being run.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from streamkit.core.checkpoints import Checkpoints
from streamkit.core.outcome import PendingChange
from streamkit.core.parking import Failure
from streamkit.core.stage import CommitStage
from streamkit.observe.logger import get_logger
from streamkit.stream.decode import Page, Record
from streamkit.worker.go_live import GoLive
from streamkit.worker.reading import Reading

log = get_logger("streamkit.shard")

_TAKES_MAX = 3
"""Owners in a row that vanished with nothing committed, before changes are taken one by one."""
_TRIES_MAX = 2
"""Owners that vanished while they ran the same change, before it is parked without being run."""


@dataclass
class OneByOne:
    """Runs the changes of one shard one by one, while it `suspects` one of them."""

    stage: CommitStage
    checkpoints: Checkpoints
    go_live: GoLive
    reading: Reading
    suspects: bool = False

    def begin(self) -> None:
        """Suspect the shard if its cursor says that earlier owners died on it, again and again."""
        cursor = self.stage.cursor
        self.suspects = cursor.takes >= _TAKES_MAX or bool(cursor.trying)
        if self.suspects:
            takes, tries = cursor.takes, cursor.tries
            log.warning("shard.suspected", shard=self.stage.shard, takes=takes, tries=tries)

    async def process(self, records: Sequence[Record]) -> int | None:
        """Run and commit records; return how many had a handler, or None if the rest is left.

        A page whose changes did no harm ends the suspicion.
        """
        wanted = 0
        for record in records:
            if self.stage.stopping.is_set():
                return None
            pending: list[PendingChange] = []
            # One change at a time in all shards of the worker: if it dies, this was the change.
            async with self.reading.alone:
                if self.stage.dispatcher.wants(record):
                    wanted += 1
                    pending = await self._try(record)
                done = PendingChange(record.position, record.created_at)
                self.stage.enqueue([*pending, done], traffic=bool(pending))
                await self.stage.run()
            if self.stage.left:
                return None
        self.suspects = self.suspects and not wanted
        return wanted

    async def _try(self, record: Record) -> list[PendingChange]:
        stage, as_run = self.stage, self.go_live.as_run
        # Written before the run: if the change kills this process, the next owner can count it.
        tries = await self.checkpoints.trying(record.position)
        # Nobody is shown what a migration's consumer parks: it would be missed. It runs again.
        if tries > _TRIES_MAX and not stage.dispatcher.raw:
            log.error("change.suspected", shard=stage.shard, tries=tries - 1)
            text = f"{tries - 1} workers in a row ended while they ran this change"
            failure = Failure("WorkerKilled", text, tries - 1, heals=False)
            return stage.dispatcher.unrun(record, failure, as_run)
        pending, later, _ = await stage.dispatcher.dispatch(Page((record,)), stage.shard, as_run)
        await self.go_live.settle()
        await stage.run_later(later, pending)
        return pending
