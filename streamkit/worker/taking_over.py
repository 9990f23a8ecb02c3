"""Taking over: how one shard of an app takes over handlers from consumers of their own.

    apart ──► H's cursor is read ──► it is ahead ──► one transaction: the app's cursor says that it
      ▲               │ behind, parked, half done     runs H, and after which position; H's own
      └───────────────┘ later again                   cursor is handed over, and its lease ends

In: the app's cursor of the shard, of which everything that was read is committed. Out: the handlers
that the shard does not run yet. A mark in `live` says that the shard runs a handler; a child
inherits it. On failure: `LeaseLost`, as of any commit; a refusal of H's cursor is a later try.

A version without the handler gives it back with its first commit: H's own cursor goes on where the
handler has come to. While the app has parked changes of the handler, H's consumer waits there.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

import anyio

from streamkit.core.checkpoints import Checkpoints
from streamkit.core.parked.queues import parked_queues
from streamkit.core.stage import CommitStage
from streamkit.effects import Guard
from streamkit.fleet.generation import newest_generation
from streamkit.fleet.taken import (
    BEHIND,
    HANDED_OVER,
    app_store,
    is_over,
    own_store,
    reaches,
)
from streamkit.model.conditions import Attr
from streamkit.observe.logger import get_logger
from streamkit.progress.actions import CHILD, Action, GuardSource
from streamkit.progress.clock import Clock
from streamkit.progress.control import START, Cursor, cursor_attributes
from streamkit.progress.cursor import CursorStore, creation

log = get_logger("streamkit.shard")

_LOOK_SECONDS = 0.1
_HELD_SECONDS = 1.0
"""How long a busy shard is held at most for the handler's own consumer to get ahead."""
_NEAR_SECONDS = 10
_PARKED_SECONDS = 5.0
_PAUSE_SECONDS, _LONGEST_SECONDS = 5.0, 60.0


@dataclass
class TakeOver:
    """The handlers that a shard takes over; `apart` are those that it does not run yet.

    `strange` are those that it has taken over and that this version of the app does not have. Both
    have the marks of handlers by name.
    """

    store: CursorStore
    stage: CommitStage
    clock: Clock
    apart: Mapping[str, str]
    strange: Mapping[str, str]
    _again_at: float = 0.0
    _pause: float = _PAUSE_SECONDS

    @property
    def waits(self) -> bool:
        """Return whether a handler's own consumer waits until its app has parked nothing of it."""
        return BEHIND in self.stage.cursor.live

    @property
    def due(self) -> bool:
        """Return whether it is time to look at the handlers' own cursors."""
        return self.waits or (bool(self.apart) and self.clock.monotonic() >= self._again_at)

    async def attempt(self, checkpoints: Checkpoints) -> None:
        """Take over each handler that is ahead; everything that was read must be committed.

        On a shard so busy that a handler is never ahead at such a moment, the shard is held for at
        most a second, and only if the handler's own consumer is near.
        """
        until = self.clock.monotonic() + _HELD_SECONDS
        while await self._all(checkpoints) and not self.stage.stopping.is_set():
            if self.clock.monotonic() >= until:
                break
            await anyio.sleep(_LOOK_SECONDS)
        self._again_at = self.clock.monotonic() + self._pause
        self._pause = min(2 * self._pause, _LONGEST_SECONDS)

    async def begin(self, checkpoints: Checkpoints) -> None:
        """Let the consumers of strange handlers go on where these have come to on this shard.

        Nothing else may be committed before, because this version runs no such handler.
        """
        for name, mark in sorted(self.strange.items()):
            own = own_store(self.store, name)
            while mark in self.stage.cursor.live:
                without, given = partial(self._without, name), await self._given_back(own, name)
                # If the process dies before this, the next owner does it, with its first commit.
                # After it, this shard is as one that was never taken over.
                if not await checkpoints.along(without, given):
                    await anyio.sleep(_LOOK_SECONDS)
            log.info("handler.given_back", handler=name, shard=self.stage.shard)

    async def ahead_of_all(self, checkpoints: Checkpoints) -> float:
        """End the wait if the app has parked nothing of the handler; return the seconds to wait."""
        if await self._has_parked(*app_store(self.store)):
            return _PARKED_SECONDS
        # If the process dies before this, the next owner looks again: it may take long.
        await checkpoints.live(self.stage.cursor.live - {BEHIND})
        return 0.0

    async def _has_parked(self, store: CursorStore, name: str) -> bool:
        # The app's cursor is deleted days after the shard has ended. Then all are looked at.
        there = await store.read(self.stage.shard)
        queues = await parked_queues(store, None if there is None else {there.name: there})
        return any(queue.handler == name for queue in queues)

    def _without(self, name: str) -> Cursor:
        here = self.stage.here()
        joined = frozenset(mark for mark in here.joined if mark.partition(":")[2] != name)
        done = frozenset(mark for mark in here.done if mark.partition(":")[2] != name)
        return replace(here, joined=joined, done=done, live=here.live - {self.strange[name]})

    async def _given_back(self, own: CursorStore, name: str) -> list[Action]:
        here, shard = self.stage.here(), self.stage.shard
        ahead = [mark.partition(":") for mark in here.joined]
        upto = max([here.position, *(at for at, _, one in ahead if one == name)])
        if here.position == START:
            upto = next((at for at, _, one in ahead if one == name), START)
        half = {mark for mark in here.done if mark.partition(":")[2] == name}
        there, generation = await own.read(shard), await newest_generation(own)
        number = generation.number if generation else 1
        given = replace(here, position=upto, done=frozenset(half), generation=number, epoch=0)
        live = frozenset({BEHIND} if await self._has_parked(self.store, name) else ())
        given = replace(given, joined=frozenset(), live=live, chunks=frozenset(), owner=None)
        if there is None:
            return creation(own.space, given)
        given = replace(given, epoch=there.epoch + 1, parent=there.parent)
        action = own.space.put(cursor_attributes(given), "cursor", shard)
        as_read = Attr("state").eq(HANDED_OVER) & Attr("epoch").eq(there.epoch)
        action.guards.append((Guard(as_read), GuardSource("", shard, CHILD)))
        return [action]

    async def _all(self, checkpoints: Checkpoints) -> bool:
        """Look at every handler once; return whether one of them may be ahead in a moment."""
        near = False
        for name in sorted(self.apart):
            own, here = own_store(self.store, name), self.stage.here()
            there = await own.read(self.stage.shard)
            if there is None or is_over(there):
                continue
            if not reaches(there, here):
                near = near or max(there.dated, there.seen) >= here.dated - _NEAR_SECONDS
            elif await _is_whole(own, there):
                # If the process dies before this, H's consumer goes on; after it, the next owner
                # of the app's cursor runs H after the mark.
                with_it = partial(self._with, name, there.position)
                near = not await checkpoints.along(with_it, [_handed_over(own, there)]) or near
        if won := {name for name, mark in self.apart.items() if mark in self.stage.cursor.live}:
            self.apart = {name: self.apart[name] for name in self.apart.keys() - won}
            log.info("handler.taken", handlers=sorted(won), shard=self.stage.shard)
        return near and bool(self.apart)

    def _with(self, name: str, upto: str) -> Cursor:
        here = self.stage.here()
        ahead = frozenset({f"{upto}:{name}"} if upto not in (START, here.position) else ())
        return replace(here, joined=here.joined | ahead, live=here.live | {self.apart[name]})


async def _is_whole(own: CursorStore, there: Cursor) -> bool:
    """Return whether no change of a handler is parked or done by half on a shard."""
    items = await own.items([("holds", chunk) for chunk in sorted(there.chunks)])
    return not (there.done or any("lanes" in item for item in items))


def _handed_over(own: CursorStore, there: Cursor) -> Action:
    """Return the action that ends H's own cursor, IF nothing was committed since it was read."""
    action = own.space.update("cursor", there.name)
    action.sets |= {"state": {"S": HANDED_OVER}, "epoch": {"N": str(there.epoch + 1)}}
    action.removes |= {"owner", "takes", "trying", "tries"}
    as_read = (
        Attr("state").eq(there.state)
        & Attr("epoch").eq(there.epoch)
        & Attr("position").eq(there.position)
        & Attr("commit").eq(there.commit)
    )
    action.guards.append((Guard(as_read), GuardSource("", there.name, CHILD)))
    return action
