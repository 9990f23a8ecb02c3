"""Broadcasting: fan-outs go on in their lanes, page by page, beside the shards.

In: the first change of a lane, whose handler is a fan-out. Out: transactions, each with the effects
for some recipients and the place that they reach, IF the lane is still at the place before. So a
crash doubles and leaves out nobody, and two workers that hold one lane do not hurt each other.

The audience is read some transactions ahead; what was read and not served is read again, later.
On failure: see `serving`; a fan-out that cannot go on says why, and stays where it is.
"""

import math
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import anyio

from streamkit.actions import LANE, Action, GuardSource
from streamkit.changes import Change
from streamkit.clock import Clock
from streamkit.cursor import CursorStore
from streamkit.effects import Guard
from streamkit.errors import InvariantError
from streamkit.fan_outs.serving import TOGETHER, FanOutChange, Served, Serving, give_up_alone
from streamkit.handler import AUDIENCE, Broadcast, Handler
from streamkit.kinds.audience import AudiencePage
from streamkit.model.conditions import Attr, ConditionBase
from streamkit.model.tables import Tables
from streamkit.observe.logger import get_logger
from streamkit.parked.listing import HeldLane
from streamkit.processing.dispatch import Tools
from streamkit.processing.outcome import Work
from streamkit.processing.parking import Failure, Hold, Parked
from streamkit.processing.reading import ReadTracker
from streamkit.processing.transaction import transact
from streamkit.processing.verdicts import Invalid, Refused
from streamkit.sinks.outlets import Outlets

Progress = Literal["served", "more", "overtaken"]
"""Everybody is served; there are more; or another worker serves this audience."""

AHEAD = 5 * TOGETHER
"""Recipients that are read at once: a query costs a call and its time, however few it returns."""
_SLICE_SECONDS = 2.0
"""How long one fan-out goes on before another gets its turn."""

log = get_logger("streamkit.fan_out")


@dataclass(frozen=True, slots=True)
class Place:
    """How far a fan-out has come, as its lane says; `token` is None at the beginning.

    `apart` are those of the recipients served who are parked instead.
    """

    token: str | None
    served: int
    apart: int


@dataclass(slots=True)
class _Ahead:
    """What is read of an audience and not served yet; `after` is the token behind it all."""

    after: str | None
    batch: list[Served] = field(default_factory=list)
    ended: bool = False

    @property
    def done(self) -> bool:
        """Whether nobody is left."""
        return self.ended and not self.batch


@dataclass
class Broadcaster:
    """Serves audiences for one worker.

    `set_aside` is told of the lanes of recipients that are parked, by the name of the fan-out's.
    """

    store: CursorStore
    tables: Tables
    tools: Tools
    outlets: Outlets
    rng: random.Random
    clock: Clock
    set_aside: Callable[[str, Mapping[str, Hold]], object] = lambda _lane, _lanes: None
    _paced: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Serve with what it is given."""
        self._serving = Serving(
            self.store.space, self.tables, self.tools, self.outlets, self.rng, self.clock
        )

    async def advance(
        self,
        handler: Handler,
        change: Change[Any],
        work: Work,
        held: HeldLane,
        head: Parked,
        *,
        whole: bool,
    ) -> tuple[Progress | Failure, float]:
        """Serve the audience of a change on: for a while, or (`whole`, by hand) to its end.

        Returns:
            What became of it, and in how many seconds to go on.
        """
        broadcast = handler.broadcast
        if broadcast is None:
            raise InvariantError(f"{handler.name} is not a fan-out")
        fanned = FanOutChange.of(handler, broadcast, change, work, held, head, by_hand=whole)
        until = math.inf if whole else self.clock.monotonic() + _SLICE_SECONDS
        place, ahead = Place(held.token, held.served, held.apart), _Ahead(held.token)
        while not ahead.done:
            pause = max(self._paced.get(handler.name, 0.0) - self.clock.monotonic(), 0.0)
            if self.clock.monotonic() + pause > until:
                if not ahead.batch and ahead.after != place.token:
                    # Nobody was among what was read since: let that count.
                    await self._write(fanned, place, Place(ahead.after, place.served, place.apart))
                return "more", pause
            await anyio.sleep(pause)
            if len(ahead.batch) < _together(broadcast) and not ahead.ended:
                await self._read(fanned, place, ahead)
            if ahead.batch:
                reached = await self._serve(fanned, place, ahead)
                if not isinstance(reached, Place):
                    return reached, 0.0
                self._pace(fanned, reached.served - place.served)
                place = reached
        known: dict[str, Any] = {"handler": handler.name, "lane": held.name, "served": place.served}
        log.often("fan_out.served", by=handler.name, **known)
        return "served", 0.0

    def _pace(self, fanned: FanOutChange, served: int) -> None:
        rate = fanned.broadcast.rate
        if rate is not None:
            name, now = fanned.handler.name, self.clock.monotonic()
            self._paced[name] = max(self._paced.get(name, 0.0), now) + served / rate

    async def _read(self, fanned: FanOutChange, place: Place, ahead: _Ahead) -> None:
        """Read on in the audience, no further than can be served soon."""
        rate = fanned.broadcast.rate
        limit = AHEAD if rate is None else max(1, min(AHEAD, math.ceil(rate * _SLICE_SECONDS)))
        table = self.tools(fanned.handler, ReadTracker())[AUDIENCE]
        page: AudiencePage = await fanned.broadcast.page(fanned.change, ahead.after, table, limit)
        number = place.served + len(ahead.batch)
        known = {served.recipient.name for served in ahead.batch}
        new = {found.name: found for found in page.recipients if found.name not in known}
        ahead.batch += self._serving.begin(fanned, number, new.values())
        ahead.ended = page.next is None
        if page.next is not None:
            ahead.after = page.next

    async def _serve(
        self, fanned: FanOutChange, place: Place, ahead: _Ahead
    ) -> Place | Progress | Failure:
        """Serve as many as one transaction holds; return the place reached, or why not to go on."""
        serving, most = self._serving, _together(fanned.broadcast)
        while True:
            batch = ahead.batch[:most]
            failing = await serving.run(fanned, batch)
            if failing is not None:
                return failing
            draft, taken = serving.pack(fanned, batch, place.apart)
            if not taken:
                if batch[0].outcome.failure is not None:
                    return batch[0].outcome.failure
                batch[0].outcome.fail(Failure("TooLarge", "it does not fit in one transaction"))
                continue
            if not await serving.send(fanned, taken):
                continue  # some have failed, and are parked instead
            last = len(taken) == len(ahead.batch) and not ahead.ended
            lanes = serving.lanes(fanned, taken)
            reached = Place(
                ahead.after if last else taken[-1].recipient.token,
                place.served + len(taken),
                place.apart + len(lanes),
            )
            verdict = await self._write(fanned, place, reached, *draft.actions.values())
            if verdict is None:
                del ahead.batch[: len(taken)]
                if lanes:
                    self.set_aside(fanned.held.name, lanes)
                return reached
            if isinstance(verdict, Invalid) and len(taken) > 1:
                most = len(taken) // 2
            elif isinstance(verdict, Invalid):
                failure = give_up_alone(taken, verdict)
                if failure is not None:
                    return failure
            elif fanned.held.name in {source.handler for source in verdict.sources}:
                return "overtaken"
            else:
                serving.refused(fanned, taken, verdict)

    async def _write(
        self, fanned: FanOutChange, place: Place, reached: Place, *actions: Action
    ) -> Refused | Invalid | None:
        """Write effects and the place that they reach, IF the lane is where it was."""
        held = fanned.held
        lane = self.store.space.update("lane", held.name)
        lane.sets |= {"token": {"S": reached.token or ""}, "served": {"N": str(reached.served)}}
        if reached.apart:
            lane.sets["apart"] = {"N": str(reached.apart)}
        source = GuardSource(fanned.head.position, held.name, LANE)
        # Recipients that it parks are listed where it is.
        is_first = Attr("head").eq(fanned.head.position) & Attr("chunk").eq(held.chunk)
        lane.guards.append((Guard(is_first & _is_at(place)), source))
        return await transact(self.store.dynamodb, self.tables, [lane, *actions], self.rng)


def _is_at(place: Place) -> ConditionBase:
    """Return the condition that a fan-out has come as far as this.

    By its count, too: tokens of a generator are the user's, and may not move on.
    """
    if place.token is None:
        return Attr("token").not_exists()
    return Attr("token").eq(place.token) & Attr("served").eq(place.served)


def _together(broadcast: Broadcast) -> int:
    """Return how many are served at once: those of a second, if there is a rate."""
    rate = broadcast.rate
    return TOGETHER if rate is None else max(1, min(TOGETHER, int(rate)))
