"""Choose how one invocation counts the aggregates that are being built; see `model.builds`.

    emptying             by the ledger; items that are in no entry yet are left out
    building, scanning   by the ledger
    counting             by the ledger for a day, then live: by a change's two images alone
    live                 live

Functions have no cursor that could go live or be fenced. So an invocation counts as the consumer's
item says when the invocation begins, and earlier invocations may continue beside it: plain ones
until a rebuild has outlasted them; any two of the other states together give the same sums.

In: the builds, the time, records. Out: the handler that runs for a record. A change that is as old
as the scan although counting is live was given up by its mapping and arrives late: the scan may
have counted it, and the aggregate *needs rebuild*.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from streamkit.core.dispatch import Dispatcher
from streamkit.core.handler import Handler
from streamkit.model.builds import OUTLASTED_SECONDS, Build
from streamkit.observe.logger import get_logger
from streamkit.progress.cursor import CursorStore
from streamkit.stream.decode import Record
from streamkit.stream.loss import mark_rebuild

log = get_logger("streamkit.lambda")


@dataclass
class Counting:
    """How an invocation counts that began at `now` (epoch seconds)."""

    builds: Mapping[str, Build] = field(default_factory=dict)
    now: float = 0.0
    _in_builds: dict[str, Handler] = field(default_factory=dict)

    def as_run(self, handler: Handler, record: Record) -> Handler:  # noqa: ARG002 - as a shard's
        """Return the handler that runs in a handler's place."""
        build = self.builds.get(handler.name)
        if build is None or handler.in_build is None or self._is_live(build):
            return handler
        if handler.name not in self._in_builds:
            self._in_builds[handler.name] = handler.in_build(build)
        return self._in_builds[handler.name]

    async def settle(
        self, dispatcher: Dispatcher, store: CursorStore, records: Iterable[Record]
    ) -> None:
        """Mark the aggregates whose scan may have counted a change, before it is counted."""
        scanned = {n: b for n, b in self.builds.items() if b.scanned and self._is_live(b)}
        if not scanned:
            return
        counting = [handler for handler in dispatcher.handlers if handler.name in scanned]
        late = {
            handler.name
            for record in records
            for handler in counting
            if not scanned[handler.name].is_after(record.created_at)
            and handler.entity in [entity for entity, _ in dispatcher.router.sides(record)]
        }
        if late:
            await mark_rebuild(store, frozenset(late))
            log.error("aggregate.overtaken", aggregates=sorted(late))

    def _is_live(self, build: Build) -> bool:
        counted = build.state == "counting" and self.now > build.scanned + OUTLASTED_SECONDS
        return counted or build.state == "live"
