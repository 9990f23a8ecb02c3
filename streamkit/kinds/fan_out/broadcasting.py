"""Run fan-outs in their parked queues, page by page, beside the shards.

In: the first change of a queue, whose handler is a fan-out. Out: its audience is served, some
recipients at a time: their handlers run, and a commit loop commits the results, fenced by the
fan-out's place. It runs for a slice of time, and no faster than its rate.

The audience is read some transactions ahead; recipients that were read and not served are read
again later. On failure: see `serving`; a fan-out that cannot go on says why, and keeps its place.
"""

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import anyio

from streamkit.changes import ItemKey
from streamkit.core.by_item import Run
from streamkit.core.dispatch import Dispatcher
from streamkit.core.handler import AUDIENCE, Broadcast
from streamkit.core.loop import CommitLoop
from streamkit.core.parking import Failure
from streamkit.core.queued_keys import QueuedKeys
from streamkit.core.reading import ReadTracker
from streamkit.core.tables import Tables
from streamkit.kinds.fan_out.audience import AudiencePage, Recipient
from streamkit.kinds.fan_out.place import FanOutPlace
from streamkit.kinds.fan_out.serving import TOGETHER, FanOutChange, RecipientPlanner
from streamkit.observe.logger import get_logger
from streamkit.progress.activity import first_error
from streamkit.progress.clock import Clock
from streamkit.progress.control import QueuedKey
from streamkit.progress.cursor import CursorStore
from streamkit.progress.pacing import Pace, Pacing

Progress = Literal["served", "more", "overtaken"]
"""All recipients are served; there are more; or another worker serves this audience."""

AHEAD = 5 * TOGETHER
"""The most recipients that are read at once: a query costs a call and its time, even if it returns
few.
"""
_SLICE_SECONDS = 2.0
"""How long one fan-out runs before another gets its turn."""

log = get_logger("streamkit.fan_out")


@dataclass(slots=True)
class _Ahead:
    """Recipients that were read and not served yet; `after` is the audience's token behind them."""

    after: str | None
    recipients: list[Recipient] = field(default_factory=list)
    ended: bool = False

    @property
    def done(self) -> bool:
        """Return whether all are served."""
        return self.ended and not self.recipients

    def take(self, count: int) -> list[Recipient]:
        """Take the next recipients."""
        some, self.recipients = self.recipients[:count], self.recipients[count:]
        return some


SetAside = Callable[[str, Mapping[str, QueuedKey]], object]
"""A function that is told of the queues that a fan-out has begun, and the name of its own queue."""


def nothing_aside(fan_out: str, queues: Mapping[str, QueuedKey]) -> None:
    """Do nothing: other code finds the queues in the table."""


@dataclass
class Broadcaster:
    """Serves audiences for one worker.

    `set_aside` is told of the queues of recipients that are parked, with the name of the fan-out's.
    """

    store: CursorStore
    tables: Tables
    rng: random.Random
    clock: Clock
    set_aside: SetAside = nothing_aside
    _paced: dict[str, float] = field(default_factory=dict)

    async def advance(
        self, fanned: FanOutChange, dispatcher: Dispatcher, *, whole: bool
    ) -> tuple[Progress | Failure, float]:
        """Continue serving the audience of a change: for a while, or (`whole`, by hand) to its end.

        Returns:
            The progress, or the failure that stops it, and in how many seconds to go on.
        """
        name, queue = fanned.handler.name, fanned.queue
        until = math.inf if whole else self.clock.monotonic() + _SLICE_SECONDS
        place = FanOutPlace(self.store, self.tables, queue, fanned.head, self.rng, self.set_aside)
        ahead = _Ahead(queue.token)
        while not ahead.done:
            pause = max(self._paced.get(name, 0.0) - self.clock.monotonic(), 0.0)
            if self.clock.monotonic() + pause > until:
                await place.persist()
                return "more", pause
            await anyio.sleep(pause)
            if len(ahead.recipients) < _together(fanned.broadcast) and not ahead.ended:
                await self._read(fanned, dispatcher, place, ahead)
            some = ahead.take(_together(fanned.broadcast))
            served = place.reached.served
            loop = await self._serve(fanned, dispatcher, place, some)
            self._pace(fanned, place.reached.served - served)
            if place.overtaken:
                return "overtaken", 0.0
            if loop.left:
                return loop.failure or "more", 0.0
        served = place.reached.served
        log.often("fan_out.served", by=name, handler=name, queue=queue.name, served=served)
        return "served", 0.0

    def _pace(self, fanned: FanOutChange, served: int) -> None:
        rate = fanned.broadcast.rate
        if rate is not None:
            name, now = fanned.handler.name, self.clock.monotonic()
            self._paced[name] = max(self._paced.get(name, 0.0), now) + served / rate

    async def _read(
        self, fanned: FanOutChange, dispatcher: Dispatcher, place: FanOutPlace, ahead: _Ahead
    ) -> None:
        """Read the next recipients, no more than can be served soon."""
        rate = fanned.broadcast.rate
        limit = AHEAD if rate is None else max(1, min(AHEAD, math.ceil(rate * _SLICE_SECONDS)))
        table = dispatcher.tools(fanned.handler, ReadTracker())[AUDIENCE]
        page: AudiencePage = await fanned.broadcast.page(fanned.change, ahead.after, table, limit)
        known = {recipient.name for recipient in ahead.recipients}
        new = {found.name: found for found in page.recipients if found.name not in known}
        ahead.recipients += new.values()
        ahead.ended = page.next is None
        if page.next is None:
            return
        ahead.after = page.next
        if ahead.recipients:  # when the last of them is served, the page is served
            ahead.recipients[-1] = replace(ahead.recipients[-1], token=page.next)
        else:
            place.pass_over(page.next)

    async def _serve(
        self,
        fanned: FanOutChange,
        dispatcher: Dispatcher,
        place: FanOutPlace,
        some: Sequence[Recipient],
    ) -> CommitLoop:
        """Run the handler for some recipients concurrently, and commit the results."""
        pending, shard = fanned.pending_changes(place.number(some)), fanned.head.shard
        outcomes = [change.outcomes[0] for change in pending]
        runs = [
            Run(change, change.outcomes[0], ItemKey(change.position, None)) for change in pending
        ]
        try:
            await dispatcher.runs.run_chains(runs, pending, shard, queued=lambda *_: False)
        except BaseExceptionGroup as errors:
            raise first_error(errors) from None
        lost = frozenset(recipient.name for recipient in some if recipient.item is None)
        space, pacing = self.store.space, Pacing(Pace(), self.rng)
        known: dict[str, Any] = {"fanned": fanned, "place": place, "outcomes": outcomes}
        planner = RecipientPlanner(space, self.clock, shard, **known, lost=lost)
        queued = QueuedKeys(self.store, planner.queues)
        loop = CommitLoop(place, dispatcher, planner, queued, self.tables, pacing, patient=False)
        loop.pending.extend(pending)
        await loop.run()
        return loop


def _together(broadcast: Broadcast) -> int:
    """Return how many recipients are served at once: those of a second, if there is a rate."""
    rate = broadcast.rate
    return TOGETHER if rate is None else max(1, min(TOGETHER, int(rate)))
