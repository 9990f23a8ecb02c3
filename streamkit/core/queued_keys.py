"""Queued keys of a shard, as its owner knows them.

They are listed in `holds` items that the cursor names; child shards inherit the names. The list is
an upper bound and may be stale, because a redrive removes parked queues: `refresh` asks the table.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from streamkit.changes import ItemKey
from streamkit.core.handler import Handler
from streamkit.core.outcome import PendingChange
from streamkit.core.parking import queue_name
from streamkit.progress.control import QueuedKey
from streamkit.progress.cursor import CursorStore


@dataclass
class QueuedKeys:
    """The parked queues of one shard; `queues` is shared with the planner.

    `began` is called when there are new ones.
    """

    store: CursorStore
    queues: dict[str, QueuedKey] = field(default_factory=dict)
    began: Callable[[], object] = lambda: None

    def begin(self, queued: Mapping[str, QueuedKey]) -> None:
        """Add parked queues that a commit created, or whose tail it moved."""
        if queued:
            self.queues |= queued
            self.began()

    def has(self, handler: Handler, key: ItemKey) -> bool:
        """Return whether an item's changes queue for a handler."""
        return bool(self.queues) and queue_name(handler.name, key) in self.queues

    def forget(self, queue: str) -> None:
        """Remove a parked queue that was emptied."""
        self.queues.pop(queue, None)

    async def load(self, chunks: Collection[str]) -> None:
        """Read the parked queues from the chunks that a cursor names."""
        for chunk, queues in (await self.in_chunks(chunks)).items():
            for queue in queues:
                self.queues[queue] = QueuedKey(chunk)
        if self.queues:
            self.began()

    async def in_chunks(self, chunks: Collection[str]) -> dict[str, list[str]]:
        """Return the parked queues of each chunk that lists any."""
        names = [("holds", chunk) for chunk in sorted(chunks)]
        items = await self.store.items(names) if names else []
        return {item["chunk"]["S"]: item["lanes"]["SS"] for item in items if "lanes" in item}

    async def refresh(self, queue: str) -> None:
        """Read one parked queue from the table: it may be gone, or new, or have another tail."""
        item = await self.store.item("lane", queue)
        if item is None:
            self.queues.pop(queue, None)
        else:
            new = queue not in self.queues  # it was emptied, and began again, during the read
            self.queues[queue] = QueuedKey(item["chunk"]["S"], item["tail"]["S"])
            if new:
                self.began()

    async def learn_tails(self, pending: Iterable[PendingChange]) -> None:
        """Read the tails of the parked queues that pending changes will join, before planning.

        `pending` may grow while a tail is read, so every pass begins at its start again.
        """
        while True:
            queue = next(self._without_tail(pending), None)
            if queue is None:
                return
            await self.refresh(queue)

    def _without_tail(self, pending: Iterable[PendingChange]) -> Iterator[str]:
        for change in pending if self.queues else ():
            for outcome in change.outcomes:
                if change.key is None or outcome.handler.commutes:
                    continue
                queue = queue_name(outcome.handler.name, change.key)
                if queue in self.queues and self.queues[queue].tail is None:
                    yield queue
