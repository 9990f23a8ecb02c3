"""Going live: how one shard counts the aggregates that are being built, and when that changes.

In: the builds of the worker's generation, the cursor's marks, records. Out: the handler that runs
for a record, and the marks that the cursor may take. A shard goes *live* for good once everything
that it has read and committed is much younger than the end of the scan. A live shard that then
meets an older change marks the aggregate *needs rebuild*: the scan may have counted that change.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from streamkit.core.checkpoints import Checkpoints
from streamkit.core.handler import Handler
from streamkit.model.builds import GUARD_SECONDS, Build, due_to_turn, mode_of
from streamkit.observe.logger import get_logger
from streamkit.progress.control import Cursor
from streamkit.progress.cursor import CursorStore
from streamkit.stream.decode import Record
from streamkit.stream.loss import mark_rebuild
from streamkit.worker.taking_over import TakeOver

log = get_logger("streamkit.shard")


@dataclass
class GoLive:
    """How one shard counts; `builds` returns the builds of the worker's generation as known now.

    `doubt` is called for a change that is passed over.
    """

    builds: Callable[[], Mapping[str, Build]]
    cursor: Callable[[], Cursor]
    store: CursorStore
    doubt: Callable[[], object] = lambda: None
    taking: TakeOver | None = None
    late: set[str] = field(default_factory=set)
    _in_builds: dict[tuple[str, Build], Handler] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Look for marks of handlers that have joined, and for handlers that join."""
        self._joined = bool(self.cursor().joined or self.taking)

    async def begin(self, checkpoints: Checkpoints) -> None:
        """Do what a shard does before anything is read, while an app takes a handler over."""
        if self.taking is not None:
            await self.taking.begin(checkpoints)

    def as_run(self, handler: Handler, record: Record) -> Handler | None:
        """Return the handler that runs instead for a record; None if the record does not count."""
        if self._joined and self.cursor().is_done(handler.name, record.position):
            return None
        if self.taking is not None and handler.name in self.taking.apart:
            return None
        if handler.in_build is None:
            return handler
        build = self.builds().get(handler.name)
        if build is None:
            return handler
        mode = mode_of(handler.name, build, self.cursor().live)
        if mode == "off":
            self.doubt()  # the next step of the build is a new generation, which reads this again
            return None
        if mode == "live":
            if record.created_at <= build.scanned + GUARD_SECONDS:
                self.late.add(handler.name)
            return handler
        place = (handler.name, build)
        if place not in self._in_builds:
            self._in_builds[place] = handler.in_build(build)
        return self._in_builds[place]

    def turns(self, seen: float) -> bool:
        """Return whether the shard takes a step, once all that was read is committed."""
        return (self.taking is not None and self.taking.due) or bool(self.due(seen))

    def due(self, seen: float) -> frozenset[str]:
        """Return the marks that the cursor may take, once all that was read is committed.

        Args:
            seen: every record created before this (epoch seconds) was read.
        """
        builds = self.builds()
        return due_to_turn(builds, self.cursor().live, seen) if builds else frozenset()

    def marks_with(self, due: frozenset[str]) -> frozenset[str]:
        """Return the cursor's marks with these, and without those of earlier builds."""
        counted = {mark.partition(":")[0] for mark in due}
        kept = {mark for mark in self.cursor().live if mark.partition(":")[0] not in counted}
        return due | kept

    async def turn(self, checkpoints: Checkpoints, seen: float) -> float:
        """Take the steps that are due; all read must be committed.

        Builds that are due count without ledgers from now on, and handlers are taken over. Returns
        for how many seconds nothing may be read.
        """
        if self.taking is not None and self.taking.waits:
            return await self.taking.ahead_of_all(checkpoints)
        if self.taking is not None and self.taking.due:
            await self.taking.attempt(checkpoints)
        due = self.due(seen)
        if due:
            # If the process dies before this write, the next owner uses ledgers, and goes live
            # itself. After it, the mark in the cursor tells every owner.
            await checkpoints.live(self.marks_with(due))
            log.info("shard.live", shard=self.cursor().name, builds=sorted(due))
        return 0.0

    async def settle(self) -> None:
        """Mark aggregates *needs rebuild* that met too old a change, before it is committed."""
        if self.late:
            late, self.late = frozenset(self.late), set()
            # Before the commit that counts the change. After a death in between, the next owner
            # meets the change again; in the other order a wrong sum would look right (model
            # `rebuilds`, rule `guard`).
            await mark_rebuild(self.store, late)
            log.error("aggregate.overtaken", shard=self.cursor().name, aggregates=sorted(late))
