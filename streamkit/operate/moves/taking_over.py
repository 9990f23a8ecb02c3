"""Take over: an app takes a handler over from a consumer of its own, while both run.

    begin     one write: the app's generation knows the handler as joining, and has the fingerprint
              of the version that declares it without a start; both consumers begin generations, and
              the lister of the handler's own consumer is shut out until it knows of the join
    per shard the owner of the app's cursor takes the handler over, see `worker.taking_over`
    end       every open shard of the app runs the handler, and its own consumer does nothing: one
              write ends the join, closes that consumer, and shuts out its lister

In: the version of the app that runs, which declares the handler with a start. Out: the shards of
the app that run the handler. The same call again goes on; the workers do the work.
"""

from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace

from streamkit.app import App
from streamkit.aws import Aws
from streamkit.core.parked.queues import parked_queues
from streamkit.core.tables import open_store
from streamkit.errors import LeaseLost
from streamkit.fleet.capture import capture
from streamkit.fleet.cursors import LISTER, every_cursor
from streamkit.fleet.generation import (
    Generation,
    newest_generation,
    next_generation,
    transition,
    write_generation,
)
from streamkit.fleet.hosting import JOINED, TAKEN, TAKING_OVER, WORKERS
from streamkit.fleet.taken import marks_of, own_store, taken_mark
from streamkit.model.conditions import Attr
from streamkit.model.json_fields import JsonFields
from streamkit.operate.moves.moved import OVERTAKEN, MoveRefused, joins_by_rebuild
from streamkit.progress.actions import Action
from streamkit.progress.clock import Clock, SystemClock
from streamkit.progress.control import Cursor
from streamkit.progress.cursor import CursorStore
from streamkit.progress.operation import said_of
from streamkit.worker.joined_app import joined_app


@dataclass(frozen=True, slots=True)
class TakingOver(JsonFields):
    """How far an app has taken a handler over: `taken` of its open `shards` run it.

    A shard of which the handler's own consumer has parked a change waits: `queues` counts those.
    """

    consumer: str
    handler: str
    shards: int
    taken: int
    queues: int = 0
    ended: bool = False


async def take_over(
    app: App, aws: Aws, name: str, *, clock: Clock | None = None
) -> AsyncIterator[TakingOver]:
    """Let an app take a handler over from its own consumer, and yield how far it is.

    It looks again whenever the next value is asked for, and ends with the join.

    Raises:
        MoveRefused: the handler cannot be taken over.
        ConfigurationError: the table is missing or has no stream, or may not be described.
    """
    clock = clock or SystemClock()
    store = await open_store(app, aws)
    run = _Run(app, name, store, own_store(store, name), clock)
    await run.begin()
    while True:
        found = await run.look()
        yield found
        if found.ended:
            return


@dataclass(frozen=True)
class _Run:
    app: App
    name: str
    store: CursorStore
    own: CursorStore
    clock: Clock

    async def begin(self) -> None:
        while True:
            newest, theirs = await newest_generation(self.store), await newest_generation(self.own)
            lister = await self.own.read(LISTER)
            runs = await joined_app(self.app, self.store)
            MoveRefused.raise_for([*self._unfit(runs, newest, theirs if lister else None)])
            assert newest is not None  # noqa: S101 - it would have been refused
            assert theirs is not None  # noqa: S101 - it would have been refused
            assert lister is not None  # noqa: S101 - it would have been refused
            if theirs.host == TAKEN:
                return
            if self.name in marks_of(newest.joins):
                # Workers of earlier generations are shut out: they know nothing of the join.
                # After a death some go on until their leaders notice. Their shards are not taken.
                await capture(self.own, theirs, read=False)
                await capture(self.store, newest, read=False)
                return
            with suppress(LeaseLost):
                await self._begin(runs.with_joined([self.name]), newest, theirs, lister)

    async def _begin(
        self, joined: App, newest: Generation, theirs: Generation, lister: Cursor
    ) -> None:
        started = next_generation(newest, joined.fingerprint(), joined.handlers)
        mark = taken_mark(self.name, started.number)
        started = replace(started, joins=newest.joins | {mark}, host=TAKING_OVER)
        started = started.noted(said_of(self.clock, f"take over {self.name}: begun"))
        own = replace(theirs, number=theirs.number + 1, host=TAKING_OVER)
        # If the process dies after this, the same command goes on, and workers that join meanwhile.
        await write_generation(self.store, newest, started, self._turns(theirs, own, lister))

    def _unfit(
        self, runs: App, newest: Generation | None, theirs: Generation | None
    ) -> Iterator[str]:
        child = self.app.listeners.get(self.name)
        if child is None or not child.exact:
            yield f"{self.app.name} declares no handler {self.name} with a start="
            return
        if newest is None or theirs is None:
            yield f"{self.app.name} and {self.name} have not both run on this stream"
            return
        if self.name in marks_of(newest.joins) or theirs.host == TAKEN:
            return
        if theirs.host == JOINED:
            yield f"{self.name} has joined {self.app.name} already"
            return
        yield from (joins_by_rebuild(one) for one in child.handlers if one.is_aggregate)
        for one, app in ((newest, runs), (theirs, child)):
            if one.host not in ("", WORKERS, TAKING_OVER) or one.rewinding or one.asks:
                yield OVERTAKEN
            elif one.fingerprint != app.fingerprint():
                yield f"the workers run another version of {app.name}: deploy this one first"

    async def look(self) -> TakingOver:
        newest, theirs = await newest_generation(self.store), await newest_generation(self.own)
        if theirs is not None and theirs.host == TAKEN:
            return TakingOver(self.app.name, self.name, 0, 0, ended=True)
        mark = marks_of(newest.joins).get(self.name) if newest else None
        lister = await self.own.read(LISTER)
        mine, own = await every_cursor(self.store), await every_cursor(self.own)
        if newest is None or theirs is None or mark is None or lister is None:
            raise MoveRefused([OVERTAKEN])
        parents = {cursor.parent for cursor in mine.values()}
        leaves = [c for c in mine.values() if not c.finished or c.name not in parents]
        done = sum(mark in c.live for c in leaves)
        queues = len(await parked_queues(self.own, own))
        found = TakingOver(self.app.name, self.name, len(leaves), done, queues)
        raised = all(c.generation >= newest.number for c in leaves if not c.finished)
        busy = any(c.state == "active" for c in own.values())
        runs = await joined_app(self.app, self.store)
        ours = runs.fingerprint() == newest.fingerprint
        if done < len(leaves) or busy or queues or not (raised and ours):
            return found
        joins = newest.joins - {mark}
        after = replace(newest, joins=joins, host=TAKING_OVER if joins else WORKERS)
        after = after.noted(said_of(self.clock, f"take over {self.name}: ended"))
        try:
            # If the process dies before this, the same command looks again. After it, workers of
            # the handler's own consumer end, and the version without the start may be deployed.
            closed = replace(theirs, number=theirs.number + 1, host=TAKEN)
            await write_generation(self.store, newest, after, self._turns(theirs, closed, lister))
        except LeaseLost:
            return found
        return replace(found, ended=True)

    def _turns(self, theirs: Generation, then: Generation, lister: Cursor) -> list[Action]:
        """Return the actions that change the handler's consumer, IF its lister made nothing since.

        Its leader may be a worker of the generation before, which knows nothing of the join. So its
        lister is shut out from here on. Otherwise it would make the cursor of a new root, on which
        the app runs the handler from the beginning.
        """
        shut_out = self.own.space.update("cursor", LISTER)
        shut_out.sets["generation"] = {"N": str(then.number)}
        as_read = Attr("epoch").eq(lister.epoch) & Attr("commit").eq(lister.commit)
        return [transition(self.own, theirs, then), shut_out.only_if(as_read)]
