"""The replay of a model's traces: processes of the real code whose calls happen when a step says so.

An `Actor` is a process of the real code: it does one thing at a time (`begins`), and each of its
calls that counts is held before it reaches the table, until a step lets it arrive, loses it, or
lets its reply be lost; others pass at once. A `Driver` has the steps of a model. Small parts run on
a `Bench`, a table on the local engine; whole workers, functions and commands in a `World`.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, Protocol, TypeVar, cast

import anyio

from streamkit.aws import Aws
from streamkit.core.outcome import PendingChange
from streamkit.core.planning import Planner
from streamkit.core.queued_keys import QueuedKeys
from streamkit.core.stage import CommitStage
from streamkit.core.tracing import NO_TRACING
from streamkit.local.control import Control
from streamkit.local.engine import Engine
from streamkit.local.errors import ApiError
from streamkit.local.transport import Call, Response, session_class
from streamkit.progress.actions import Action
from streamkit.progress.commit import Committer
from streamkit.progress.control import Cursor
from streamkit.progress.cursor import CursorStore
from streamkit.progress.fold import fold
from streamkit.progress.pacing import ByteBudget, Pace, Pacing
from streamkit.progress.transaction import transact
from streamkit.testing.chance import repeatable
from streamkit.testing.clients import deferred
from streamkit.testing.loop import VirtualClock, run_virtually
from streamkit.testing.sightings import WRITES
from streamkit.testing.world import Process
from tests.models.explorer import follow
from tests.pending import SCHEMA
from tests.tables import streamed

A = TypeVar("A", bound="Actor")

_PATIENCE_SECONDS = 60_000.0
"""Virtual seconds after which an actor is taken to be stuck."""


@dataclass(eq=False)
class Held:
    """A call that has not reached the table yet; `reply` is what its caller waits for."""

    name: str
    call: Call
    apply: Callable[[], Response]
    reply: asyncio.Future[Response]

    def arrives(self) -> None:
        """Let it reach the table, and its caller hear of it."""
        self.reply.set_result(self.apply())

    def breaks(self) -> None:
        """Let its caller give it up, without knowing what became of it."""
        self.reply.set_exception(TimeoutError("the reply never came"))

    def conflicts(self) -> None:
        """Answer that something else is at its items: it is not applied."""
        reasons = [{"Code": "TransactionConflict"}]
        error = ApiError("TransactionCanceledException", "busy", CancellationReasons=reasons)
        self.reply.set_result(Response.of_error(error))


class Actor(Process):
    """A process whose calls that count are held, each until a step lets it arrive.

    In between no other process does anything, so what it does from one such call to the next is one
    step, as it is in a model. `counts` names a call that is held; it returns "" for others. `held`
    are the calls; `task` is what it does. With `loses` the reply of its next write is lost that is
    not held.
    """

    def __init__(self, counts: Callable[[Call], str], name: str = "an actor") -> None:
        super().__init__(name)
        self._counts, self._moved = counts, anyio.Event()
        self.held: list[Held] = []
        self.task: asyncio.Task[Any] | None = None
        self.loses = False

    async def intercept(self, call: Call, apply: Callable[[], Response]) -> Response:
        """Stand between the process's clients and the engine."""
        await self._runs()
        name = self._counts(call)
        if not name:
            reply = apply()
            if self.loses and call.operation in WRITES:
                self.loses = False
                raise TimeoutError("the reply never came")
            return reply
        held = Held(name, call, apply, asyncio.get_running_loop().create_future())
        self.held.append(held)
        self._moved.set()
        try:
            reply = await held.reply
        finally:
            self.held = [one for one in self.held if one is not held]
        await self._runs()
        return reply

    def start(self, doing: Coroutine[Any, Any, Any]) -> None:
        """Let it begin to do something."""
        assert self.task is None or self.task.done(), "it does one thing at a time"
        self.task = asyncio.create_task(doing)
        self.task.add_done_callback(lambda _: self._moved.set())

    async def begins(self, doing: Coroutine[Any, Any, Any]) -> None:
        """Let it do something, up to its first call that is held or to the end."""
        self.start(doing)
        await self.settles()

    async def settles(self) -> None:
        """Wait until it is done, or has a call that is held."""
        with anyio.fail_after(_PATIENCE_SECONDS):
            while not self.ended and self.waiting is None:
                self._moved = anyio.Event()
                await self._moved.wait()

    @property
    def waiting(self) -> Held | None:
        """Return the call that it waits for."""
        return next((held for held in self.held if not held.reply.done()), None)

    @property
    def at(self) -> str:
        """Return what `counts` said of the call that it waits for; "" if there is none."""
        return self.waiting.name if self.waiting else ""

    @property
    def ended(self) -> bool:
        """Return whether it does nothing."""
        return self.task is None or self.task.done()

    @property
    def error(self) -> BaseException | None:
        """Return what it has raised, if it has ended."""
        done = self.task is not None and self.task.done() and not self.task.cancelled()
        return self.task.exception() if self.task is not None and done else None

    async def step(self) -> None:
        """Let the calls arrive that it waits for, and let it go on to the next, or to its end."""
        self.let_go()
        await self.settles()

    def let_go(self) -> None:
        """Let the calls arrive that it waits for."""
        while self.waiting is not None:
            self.waiting.arrives()

    async def does(self, doing: Coroutine[Any, Any, Any]) -> Any:
        """Let it do something to the end, whatever it calls; return its result, or raise."""
        await self.begins(doing)
        return await self.ends()

    async def ends(self) -> Any:
        """Let all that it calls arrive, until it is done; return its result, or raise."""
        assert self.task is not None
        await self.settles()
        while self.waiting is not None:
            await self.step()
        return self.task.result()

    async def dies(self, *, after: bool = False) -> None:
        """Let it do nothing any more; with `after`, what it waits for reaches the table first.

        Another process may take its clients. A call that it has given up may still arrive.
        """
        if after and self.waiting is not None:
            self.waiting.apply()
        self.kill()
        if self.task is not None:
            self.task.cancel()
            await asyncio.gather(self.task, return_exceptions=True)
        self.task, self.held, self.dead, self.frozen = None, [], anyio.Event(), None


@dataclass
class Troupe:
    """The actors of a trace, which die with it."""

    actors: list[Actor] = field(default_factory=list)

    def enters(self, actor: A) -> A:
        """Return an actor that has entered."""
        self.actors.append(actor)
        return actor

    @classmethod
    @asynccontextmanager
    async def on_stage(cls) -> AsyncIterator["Troupe"]:
        """Return a troupe, and let all of it die in the end."""
        troupe = cls()
        try:
            yield troupe
        finally:
            for actor in troupe.actors:
                await actor.dies()


@dataclass
class Bench:
    """A table, its engine's controls, and some actors with clients of their own."""

    engine: Engine
    control: Control
    clock: VirtualClock
    actors: Sequence[Actor]
    aws: Sequence[Aws]

    def items(self, prefix: str, kind: str | None = None) -> list[dict[str, Any]]:
        """Return the items whose partition keys begin so, or the control items of a kind."""
        _, body = self.engine.call("dynamodb", "Scan", {"TableName": SCHEMA.name})
        found = [item for item in body["Items"] if item["pk"]["S"].startswith(prefix)]
        return [i for i in found if kind is None or i.get("_sk_kind") == {"S": kind}]


def transactions(call: Call) -> str:
    """Name a call if it is a transaction: what most replays hold."""
    return "transaction" if call.operation == "TransactWriteItems" else ""


@asynccontextmanager
async def bench(
    actors: int, *, holds: Callable[[Call], str] = transactions
) -> AsyncIterator[Bench]:
    """Open a table, and so many actors on it."""
    clock = VirtualClock()
    engine = Engine(clock=clock.time, rng=random.Random(0), shards=1)
    status, _ = engine.call("dynamodb", "CreateTable", streamed(SCHEMA.name, "pk", "sk"))
    assert status == 200
    async with Troupe.on_stage() as troupe, AsyncExitStack() as clients:
        them = [troupe.enters(Actor(holds, f"actor {n}")) for n in range(actors)]
        aws = []
        for actor in them:
            session = session_class(engine, intercept=actor.intercept, read_timeout=False)
            aws.append(await clients.enter_async_context(deferred(session, engine.region)))
        yield Bench(engine, Control(engine), clock, them, aws)


class Dispatcher:
    """Stands behind commits that no handler has led to."""

    tracing = NO_TRACING
    runs = SimpleNamespace(have_read=True)

    def committed(self, one: PendingChange) -> None:
        """Count nothing."""


def stage_of(place: Bench, store: CursorStore, owned: Cursor) -> CommitStage:
    """Return the commit stage of a cursor that an actor has taken."""
    space, rng, idle = store.space, random.Random(0), cast(Any, Dispatcher())
    committer = Committer(store.dynamodb, space, owned, {SCHEMA.name: SCHEMA}, rng)
    planner, pacing = Planner(space, place.clock, owned.name), Pacing(Pace(), rng)
    held = QueuedKeys(store, planner.queues)
    return CommitStage(idle, planner, committer, held, pacing, ByteBudget(), lambda: None)


async def write(store: CursorStore, actions: Sequence[Action]) -> None:
    """Apply some actions, all of them, which nothing refuses."""
    schemas = {SCHEMA.name: SCHEMA}
    assert await transact(store.dynamodb, schemas, fold(actions), random.Random(0)) is None


class Driver(Protocol):
    """Drives the real code through the steps of one trace."""

    async def begin(self) -> None:
        """Make what is there in the first world."""

    async def do(self, step: Any) -> None:
        """Let the code take a step."""

    async def state(self) -> Any:
        """Return what the code and the table are now, in the model's terms."""


def on_bench(
    drive: Callable[[Bench], Driver],
    *,
    actors: int = 2,
    holds: Callable[[Call], str] = transactions,
) -> Callable[[], AbstractAsyncContextManager[Driver]]:
    """Return what opens a bench, and a driver on it.

    Args:
        drive: makes the driver of a trace.
        actors: how many processes there are.
        holds: which calls of theirs wait for a step.
    """

    @asynccontextmanager
    async def opened() -> AsyncIterator[Driver]:
        async with bench(actors, holds=holds) as place:
            yield drive(place)

    return opened


def replay(
    model: Any,
    traces: Iterable[Sequence[Any]],
    opened: Callable[[], AbstractAsyncContextManager[Driver]],
    seen: Callable[[Any], Any],
) -> int:
    """Drive the code through the steps of each trace that can happen in the model.

    Before the first step and after each one the code has to be where the model is.

    Args:
        model: the right one.
        traces: its own walks, or counter-examples of naive variants.
        opened: opens the driver of a trace.
        seen: of a world of the model, what a driver's `state` returns of the code.

    Returns:
        How many steps were compared.

    Raises:
        AssertionError: the code is elsewhere; it says after which steps.
    """

    async def scenario() -> int:
        compared = 0
        for trace in traces:
            taken = list[Any]()
            async with opened() as driver:
                await driver.begin()
                assert await driver.state() == seen(model.first())
                for step, world in follow(model, trace):
                    taken.append(step)
                    try:
                        await driver.do(step)
                    except Exception as error:
                        raise AssertionError(f"after {taken}: {error!r}") from error
                    there, wanted = await driver.state(), seen(world)
                    assert there == wanted, f"after {taken}: {there} is not {wanted}"
                    compared += 1
        return compared

    with repeatable(1):
        return run_virtually(scenario)
