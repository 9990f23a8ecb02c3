"""Roll-outs: which generation of handlers a worker runs in, next to workers of other generations.

    a fingerprint never seen before      starts a generation at once
    the newest fingerprint               joins its generation; when another worker starts a newer
                                         one of it, or it takes a step, the worker gives everything
                                         back and joins under a new name
    an older one, when it starts         waits while a worker of the newest is alive
    an older one, while it runs          keeps its shards until they are claimed, takes none; when
                                         the newest's workers are all gone it starts the next one

"Gone" means gone for `patience_seconds`, so that an interrupted roll-out is not undone by the
workers it left running.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from streamkit.core.handler import Handler
from streamkit.fleet.founding import Founding
from streamkit.fleet.generation import Generation, newest_generation
from streamkit.fleet.hosting import TAKEN, WORKERS
from streamkit.fleet.joining import join_generation
from streamkit.fleet.members import Member
from streamkit.fleet.taken import marks_of
from streamkit.observe.logger import get_logger
from streamkit.progress.clock import Clock
from streamkit.progress.cursor import CursorStore

log = get_logger("streamkit.fleet")

_ASK_SECONDS = 3.0
"""The pause between two looks of a waiting worker at the newest generation."""
_DISBELIEF_SECONDS = 60.0
"""How long a worker ignores a generation that a cursor names but that no process has created."""


@dataclass
class Rollout:
    """One worker's place among the roll-outs; `newest` is the newest generation it knows of.

    `joined` is the generation that it runs in; `founding` is for the first one of the consumer.

    `patience_seconds` is how long no worker of the newest may be seen before an older one takes
    over; `take_over` says that an operator wants the older one now. `renew` is called once, when
    there is a newer generation of these handlers: from then on this worker is `superseded`. It is
    `doubted` while this worker has a reason to read the newest generation, and has not done so.
    """

    store: CursorStore
    fingerprint: str
    handlers: Sequence[Handler]
    clock: Clock
    patience_seconds: float
    founding: Founding
    take_over: bool = False
    newest: int = 0
    renew: Callable[[], object] = lambda: None
    joined: Generation | None = None
    superseded: bool = False
    doubted: bool = False
    _told: int = 0
    _asked: int = 0
    _unknown: int = 0
    _believes_at: float = 0.0
    _alone_since: float | None = None
    _ask_at: float = 0.0
    _refresh_at: float = 0.0

    async def position(self, me: Member, members: Mapping[str, Member]) -> dict[str, Any]:
        """Return the state and generation that this worker reports from now on.

        Args:
            me: this worker.
            members: all members that are alive.
        """
        others = [member for member in members.values() if member.name != me.name]
        self.newest = max([self.newest, *(member.generation for member in others)])
        if self.superseded or (me.state == "active" and me.generation >= self.newest):
            return {}
        if me.state == "active" and any(m.generation == self.newest for m in others):
            twin = any(
                m.generation == self.newest and m.fingerprint == me.fingerprint for m in others
            )
            if twin or await self._takes_over():
                self._begin_anew()
            return {}
        if self.clock.monotonic() < self._ask_at:
            return {}
        heard = self.newest
        generation = await self._join(others, starting=me.state != "active")
        if generation is None:
            self._ask_at = self.clock.monotonic() + _ASK_SECONDS
            return {} if me.state == "active" else {"state": "waiting"}
        self.newest = generation.number
        if me.state == "active" and generation.number <= me.generation:
            self._disbelieve(heard)
            return {}
        if me.state == "active":
            self._begin_anew()
            return {}
        self.joined = generation
        log.info(
            "generation.joined",
            generation=generation.number,
            needs_rebuild=sorted(generation.rebuild),
        )
        return {"state": "active", "generation": generation.number}

    def hear(self, number: int) -> None:
        """Record that a cursor is in a generation, which may be newer than all known ones."""
        if number != self._unknown or self.clock.monotonic() >= self._believes_at:
            self.newest = max(self.newest, number)

    def _disbelieve(self, heard: int) -> None:
        """Ignore a reported generation that does not exist, as after a table was restored in part.

        Starting again would not help, so this worker would restart without end.
        """
        now = self.clock.monotonic()
        if heard != self._unknown:
            log.error("generation.unknown", seen=heard, newest=self.newest)
        self._unknown, self._believes_at = heard, now + _DISBELIEF_SECONDS
        self._ask_at = now + _ASK_SECONDS

    async def _join(self, others: list[Member], *, starting: bool) -> Generation | None:
        """Join or start a generation; None means: leave the shards to the newest roll-out."""
        joined = await self._try(take_over=self.take_over and starting)
        if joined is not None:
            return joined
        newest = await newest_generation(self.store)
        if self._misses(newest):
            self._begin_anew()
            return None
        if newest and self._told != newest.number:
            self._told = newest.number
            log.info("worker.stands_by", newest=newest.number)
        now = self.clock.monotonic()
        if newest and any(member.fingerprint == newest.fingerprint for member in others):
            self._alone_since = None
            return None
        if self._alone_since is None:
            self._alone_since = now
        if now - self._alone_since < self.patience_seconds:
            return None
        return await self._try(take_over=True)

    def doubt(self) -> None:
        """Read the newest generation at the next refresh: this worker may be of an older one."""
        self.doubted = True

    async def refresh(self, every: float, *, leads: bool) -> None:
        """Read the newest generation, if this worker leads or has doubts, or while builds go on.

        Args:
            every: seconds between two looks.
            leads: whether this worker leads.
        """
        joined, now = self.joined, self.clock.monotonic()
        if joined is None or self.superseded:
            return
        wanted = leads or any(build.state != "live" for build in joined.builds.values())
        if not self.doubted and not (wanted and now >= self._refresh_at):
            return
        self._refresh_at, self.doubted = now + every, False
        newest = await newest_generation(self.store)
        if newest is None or newest.number < joined.number:
            return
        if newest.number == joined.number:
            self.joined = newest
        elif newest.fingerprint == self.fingerprint or self._misses(newest):
            self.newest = max(self.newest, newest.number)
            self._begin_anew()

    def _misses(self, newest: Generation | None) -> bool:
        """Return whether a generation takes over a listener of this app, or this consumer itself.

        The worker then starts again with that handler, or ends.
        """
        if newest is None or not newest.joins:
            return newest is not None and newest.host == TAKEN
        mine = {handler.name for handler in self.handlers}
        return bool(marks_of(newest.joins).keys() & self.founding.listeners - mine)

    async def _takes_over(self) -> bool:
        """Return whether another version's generation takes a handler over; read each once."""
        if self._asked == self.newest:
            return False
        self._asked = self.newest
        return self._misses(await newest_generation(self.store))

    def _begin_anew(self) -> None:
        """Mark this worker superseded: it has to start again, under a new name."""
        if not self.superseded:
            self.superseded = True
            log.info("generation.superseded", newest=self.newest)
            self.renew()

    async def _try(self, *, take_over: bool) -> Generation | None:
        return await join_generation(
            self.store,
            self.fingerprint,
            self.handlers,
            take_over=take_over,
            founding=self.founding,
            host=WORKERS,
        )
