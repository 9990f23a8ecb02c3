"""Join: an app takes over a handler that has run as a consumer of its own.

    stand still   the handler's consumer lets no process begin, and every cursor of both consumers
                  is raised: what was sent before is refused
    look          both stand in the same shards; the handler is nowhere behind the app, nothing of
                  it is parked or half done
    mark          each cursor of the app says up to where the handler is done there (`joined`)
    decide        one write starts the app's generation with the handler, and says that the
                  handler's consumer has joined it

The handler may be ahead of the app, never behind. A worker passes over what is before a mark, for
this handler alone; so each change reaches it once, and the changes of an item in order.

In: the next version of an app, which declares the handler without a start; no worker is alive. Out:
the app's generation. On failure: a refusal with every reason, and both consumers go on as they
were. After a crash before the decision the same command goes on. Marks without a decision are
harmless: what is before them is done, and no version of the app runs the handler before a decision.
"""

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from streamkit.app import App
from streamkit.aws import Aws
from streamkit.core.handler import fingerprint_of
from streamkit.core.parked.queues import parked_queues
from streamkit.core.tables import open_store
from streamkit.errors import LeaseLost
from streamkit.fleet.capture import capture
from streamkit.fleet.cursors import every_cursor
from streamkit.fleet.founding import run_apart
from streamkit.fleet.generation import (
    Generation,
    begin_move,
    newest_generation,
    next_generation,
    same_consumer,
    write_generation,
)
from streamkit.fleet.hosting import JOINED, JOINING, WORKERS, set_host
from streamkit.fleet.liveness import live_workers
from streamkit.fleet.rewinding import ask_rewind, withdraw_rewind
from streamkit.fleet.taken import reaches
from streamkit.model.conditions import Attr
from streamkit.model.json_fields import JsonFields
from streamkit.operate.moves.moved import OVERTAKEN, MoveRefused, joins_by_rebuild
from streamkit.progress.actions import Action
from streamkit.progress.clock import Clock, SystemClock
from streamkit.progress.control import START, Cursor
from streamkit.progress.cursor import CursorStore
from streamkit.progress.fenced import Fenced
from streamkit.progress.operation import AuditEntry, said_of


@dataclass(frozen=True, slots=True)
class Joined(JsonFields):
    """A handler that has become one of its app; `ahead` counts the shards in which it was ahead."""

    consumer: str
    handler: str
    generation: int
    shards: int
    ahead: int


async def join_handler(
    app: App,
    aws: Aws,
    name: str,
    *,
    lease_seconds: float = 7.0,
    clock: Clock | None = None,
) -> Joined:
    """Let an app take over a handler at the point that it has reached as a consumer of its own.

    Args:
        app: the version of the app that declares the handler without a start.
        aws: open clients.
        name: the handler's name.
        lease_seconds: how long silent workers are watched before they count as dead.
        clock: for simulations.

    Raises:
        MoveRefused: the handler would miss changes, or run twice for them.
        ConfigurationError: the table is missing or has no stream, or may not be described.
    """
    clock = clock or SystemClock()
    store = await open_store(app, aws)
    space = replace(store.space, consumer=f"{app.name}.{name}")
    own = CursorStore(store.dynamodb, space)
    newest, theirs = await newest_generation(store), await newest_generation(own)
    others = [handler for handler in app.handlers if handler.name != name]
    reasons = [*_unfit(app, name, newest, theirs)]
    reasons += [
        f"{one.declared}: it runs as a consumer of its own, too: keep its start= until {name} has"
        " joined, and let it join with the version after that"
        for one in await run_apart(store, app.table, others)
    ]
    MoveRefused.raise_for(reasons)
    assert newest is not None  # noqa: S101 - it would have been refused
    assert theirs is not None  # noqa: S101 - it would have been refused
    alive = {*await live_workers(store, clock, lease_seconds)}
    alive |= {*await live_workers(own, clock, lease_seconds)}
    if alive:
        text = ", ".join(sorted(alive))
        raise MoveRefused([f"workers are alive, stop them first: {text}"])
    try:
        return await _Join(app, name, store, own, clock).run(newest, theirs)
    except LeaseLost:
        raise MoveRefused(
            ["a worker began meanwhile, or another command changed a consumer; try again"]
        ) from None


def _unfit(
    app: App, name: str, newest: Generation | None, theirs: Generation | None
) -> Iterator[str]:
    handlers = [one for one in app.handlers if one.name == name]
    if name in app.listeners:
        yield f"{app.name} still declares {name} with a start=; join with the version without it"
    elif not handlers:
        yield f"{app.name} has no handler {name!r}"
    for handler in handlers:
        if handler.is_aggregate:
            yield joins_by_rebuild(handler)
        elif theirs is not None and theirs.fingerprint != fingerprint_of([handler]):
            yield (
                f"{handler.declared}: {app.name}.{name} runs another handler; join with the handler"
                " as it is there, and change it afterwards"
            )
    if theirs is None:
        yield f"{name} has never run as a consumer of its own"
    if newest is None:
        yield f"{app.name} has never run on this stream"
    for one, hosts in ((newest, ("", WORKERS)), (theirs, ("", WORKERS, JOINING))):
        if one is not None and one.host == JOINED:
            yield f"{name} has joined {app.name} already: deploy this version"
        elif one is not None and (one.host not in hosts or one.rewinding):
            yield OVERTAKEN
    if newest is not None and newest.fingerprint == app.fingerprint():
        yield f"{app.name} runs this version already"


@dataclass(frozen=True)
class _Join:
    """One run of the command; `own` has the control items of the handler's consumer."""

    app: App
    name: str
    store: CursorStore
    own: CursorStore
    clock: Clock

    async def run(self, newest: Generation, theirs: Generation) -> Joined:
        """Take all steps, or none.

        Raises:
            MoveRefused: the handler is behind, or something of it is parked or half done.
            LeaseLost: one of the consumers has changed meanwhile.
        """
        # Also if an earlier run has done this already: its decision is refused from here on.
        theirs = await begin_move(self.own, theirs, JOINING, self._said("stands still"))
        try:
            await capture(self.own, theirs, read=False, stopped=True)
            return await self._decided(newest, theirs)
        except (LeaseLost, MoveRefused):
            await set_host(self.own, JOINING, WORKERS)
            raise

    async def _decided(self, newest: Generation, theirs: Generation) -> Joined:
        asked = await ask_rewind(self.store, newest, self._said("asked for"))
        await capture(self.store, asked, read=False, stopped=True)
        mine, done = await every_cursor(self.store), await every_cursor(self.own)
        reasons = [*self._reasons(mine, done)]
        if queues := len(await parked_queues(self.own, done)):
            reasons.append(
                f"changes of {self.name} are parked (queues: {queues}); redrive or discard them"
            )
        if reasons:
            await withdraw_rewind(self.store, asked)
            raise MoveRefused(reasons)
        ahead = await self._mark(asked, mine, done)
        # One write of both consumers. Before it, the old version may go on; after it, the
        # handler's consumer never runs again, and the app runs the handler.
        started = next_generation(asked, self.app.fingerprint(), self.app.handlers)
        started = started.noted(self._said("joined"))
        await write_generation(self.store, asked, started, [self._joined(theirs)])
        open_ = sum(not cursor.finished for cursor in mine.values())
        return Joined(self.app.name, self.name, started.number, open_, ahead)

    def _said(self, what: str) -> AuditEntry:
        return said_of(self.clock, f"join {self.name}: {what}")

    def _reasons(self, mine: Mapping[str, Cursor], done: Mapping[str, Cursor]) -> Iterator[str]:
        """Yield why the handler cannot join where both consumers stand."""
        behind, ahead = apart(mine, done)
        if behind:
            yield (
                f"{self.name} is behind {self.app.name} in {len(behind)} shards"
                f" ({', '.join(behind[:3])}): let it run alone until it is ahead, and stop it:"
                f" `streamkit worker MODULE:APP.{self.name}`, of the version before"
            )
        if ahead:
            yield (
                f"{self.name} is ahead of {self.app.name} by whole shards ({', '.join(ahead[:3])}):"
                " run both until they have read all, then try again"
            )

    async def _mark(
        self, asked: Generation, mine: Mapping[str, Cursor], done: Mapping[str, Cursor]
    ) -> int:
        """Mark in each cursor of the app up to where the handler is done; return how many."""
        still = Attr("asks").eq(asked.asks) & Attr("generation").eq(asked.number)
        actions, marked = list[Action](), 0
        for shard, cursor in mine.items():
            if cursor.finished:
                continue
            others = {mark for mark in cursor.joined if mark.partition(":")[2] != self.name}
            if (upto := done[shard].position) not in (START, cursor.position):
                others |= {f"{upto}:{self.name}"}
                marked += 1
            if others != cursor.joined:
                action = self.store.space.update("cursor", shard)
                action.sets |= {"joined": {"SS": sorted(others)}} if others else {}
                action.removes |= set() if others else {"joined"}
                actions.append(action)
        await Fenced(self.store, still & same_consumer(asked), random.Random()).apply_all(actions)
        return marked

    def _joined(self, theirs: Generation) -> Action:
        """Return the action that ends the handler's consumer, IF it still stands still."""
        action = self.own.space.update("consumer")
        action.sets["host"] = {"S": JOINED}
        still = Attr("host").eq(JOINING) & Attr("generation").eq(theirs.number)
        return action.only_if(still & same_consumer(theirs))


def apart(mine: Mapping[str, Cursor], done: Mapping[str, Cursor]) -> tuple[list[str], list[str]]:
    """Return the shards in which a handler is behind its app, and those of which it is ahead.

    Half done counts as behind; ahead means by the whole shard. Both must know the same shards: the
    app would read all of a shard that the handler alone knows, and no process would read for the
    handler what the app alone has finished. A shard that is older than all that the other consumer
    knows does not count.

    Args:
        mine: the app's cursors.
        done: those of the handler's consumer.
    """
    behind, ahead = list[str](), list[str]()
    older, begun = _ancestors(mine, done), _ancestors(done, mine)
    for shard in sorted(mine.keys() | done.keys()):
        here, there = mine.get(shard), done.get(shard)
        if here is None:
            if shard not in older:
                ahead.append(shard)
            elif there is not None and not there.finished:
                behind.append(shard)
        elif here.finished:
            if shard not in begun if there is None else not there.finished:
                behind.append(shard)
        elif there is not None and there.finished:
            ahead.append(shard)
        elif there is None or there.done or not reaches(there, here):
            behind.append(shard)
    return behind, ahead


def _ancestors(known: Mapping[str, Cursor], others: Mapping[str, Cursor]) -> set[str]:
    """Return the shards from which those that one consumer knows descend, as far as both know."""
    parents = {c.name: c.parent for c in (*others.values(), *known.values())}
    found = set[str]()
    for shard in known:
        parent = parents.get(shard)
        while parent is not None and parent not in found:
            found.add(parent)
            parent = parents.get(parent)
    return found
