"""The replay of a model's traces: processes of the real code whose calls happen when a step says so.

A `Bench` is a table on the local engine, in virtual time. An `Actor` is a process on it: it does
one thing at a time (`begins`), and each of its calls that `holds` says is held before it reaches
the table, until a step lets it arrive, loses it, or lets its reply be lost; others pass at once.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol, cast

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
from streamkit.testing.clients import deferred
from streamkit.testing.loop import VirtualClock, run_virtually
from streamkit.testing.sightings import WRITES
from tests.models.explorer import follow
from tests.tables import streamed
from tests.works import SCHEMA

_LOOKS_MAX = 1000
"""Looks, up to a virtual minute apart, after which an actor is taken to be stuck."""


@dataclass(eq=False)
class Held:
    """A call that has not reached the table yet; `reply` is what its caller waits for."""

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


@dataclass(eq=False)
class Actor:
    """A process. `held` are its calls that wait for a step; `task` is what it does.

    With `loses` the reply of its next write is lost that is not held.
    """

    holds: Callable[[Call], bool]
    held: list[Held] = field(default_factory=list)
    task: asyncio.Task[Any] | None = None
    loses: bool = False

    async def intercept(self, call: Call, apply: Callable[[], Response]) -> Response:
        """Stand between the process's clients and the engine."""
        if not self.holds(call):
            reply = apply()
            if self.loses and call.operation in WRITES:
                self.loses = False
                raise TimeoutError("the reply never came")
            return reply
        held = Held(call, apply, asyncio.get_running_loop().create_future())
        self.held.append(held)
        return await held.reply

    async def begins(self, doing: Coroutine[Any, Any, Any]) -> None:
        """Let it do something, up to its first call that is held or to the end."""
        assert self.task is None or self.task.done(), "it does one thing at a time"
        self.task = asyncio.create_task(doing)
        await self.settles()

    async def settles(self) -> None:
        """Wait until it is done, or has a call that is held."""
        for look in range(_LOOKS_MAX):
            await asyncio.sleep(min(0.01 * 2**look, 60.0))
            if self.task is None or self.task.done() or self.waiting is not None:
                return
        raise AssertionError("it neither ends nor calls")

    @property
    def waiting(self) -> Held | None:
        """Return the call that it waits for."""
        return next((held for held in self.held if not held.reply.done()), None)

    async def does(self, doing: Coroutine[Any, Any, Any]) -> Any:
        """Let it do something to the end, whatever it calls; return its result, or raise."""
        await self.begins(doing)
        return await self.ends()

    async def ends(self) -> Any:
        """Let all that it calls arrive, until it is done; return its result, or raise."""
        assert self.task is not None
        await self.settles()
        while self.waiting is not None:
            self.waiting.arrives()
            await self.settles()
        return self.task.result()

    async def dies(self) -> None:
        """Let it do nothing any more; what it has called may still arrive."""
        if self.task is not None:
            self.task.cancel()
            await asyncio.gather(self.task, return_exceptions=True)
        self.task, self.held = None, []


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

    def clear(self) -> None:
        """Delete every item: what a trace leaves would slow the next one down."""
        for item in self.items(""):
            key = {name: item[name] for name in ("pk", "sk")}
            self.engine.call("dynamodb", "DeleteItem", {"TableName": SCHEMA.name, "Key": key})


def transactions(call: Call) -> bool:
    """Return whether a call is a transaction: what most replays hold."""
    return call.operation == "TransactWriteItems"


@asynccontextmanager
async def bench(
    actors: int, *, holds: Callable[[Call], bool] = transactions
) -> AsyncIterator[Bench]:
    """Open a table, and so many actors on it."""
    clock = VirtualClock()
    engine = Engine(clock=clock.time, rng=random.Random(0), shards=1)
    status, _ = engine.call("dynamodb", "CreateTable", streamed(SCHEMA.name, "pk", "sk"))
    assert status == 200
    them = [Actor(holds) for _ in range(actors)]
    async with _clients(engine, them) as aws:
        yield Bench(engine, Control(engine), clock, them, aws)


@asynccontextmanager
async def _clients(engine: Engine, actors: Sequence[Actor]) -> AsyncIterator[list[Aws]]:
    if not actors:
        yield []
        return
    session = session_class(engine, intercept=actors[0].intercept, read_timeout=False)
    async with (
        deferred(session, engine.region) as aws,
        _clients(engine, actors[1:]) as others,
    ):
        yield [aws, *others]


class Dispatcher:
    """Stands behind commits that no handler has led to."""

    tracing = NO_TRACING

    def committed(self, one: PendingChange) -> None:
        """Count nothing."""


def stage_of(place: Bench, store: CursorStore, owned: Cursor) -> CommitStage:
    """Return the commit stage of a cursor that an actor has taken."""
    space, rng, idle = store.space, random.Random(0), cast(Any, Dispatcher())
    committer = Committer(store.dynamodb, space, owned, {SCHEMA.name: SCHEMA}, rng)
    planner, pacing = Planner(space, place.clock, owned.name), Pacing(Pace(), rng)
    held = QueuedKeys(store, planner.holds)
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

    async def close(self) -> None:
        """End what is still under way."""


def replay(
    model: Any,
    traces: Iterable[Sequence[Any]],
    drive: Callable[[Bench, int], Driver],
    seen: Callable[[Any], Any],
    *,
    actors: int = 2,
    holds: Callable[[Call], bool] = transactions,
) -> int:
    """Drive the code through the steps of each trace that can happen in the model.

    After each step the code has to be where the model is. Traces share a table: a driver is given
    its number, for names of its own.

    Args:
        model: the right one.
        traces: its own walks, or counter-examples of naive variants.
        drive: makes the driver of a trace.
        seen: of a world of the model, what a driver's `state` returns of the code.
        actors: how many processes there are.
        holds: which calls of theirs wait for a step.

    Returns:
        How many steps were compared.

    Raises:
        AssertionError: the code is elsewhere; it says after which steps.
    """

    async def scenario() -> int:
        compared = 0
        async with bench(actors, holds=holds) as place:
            for number, trace in enumerate(traces):
                driver, taken = drive(place, number), list[Any]()
                await driver.begin()
                for step, world in follow(model, trace):
                    taken.append(step)
                    try:
                        await driver.do(step)
                    except Exception as error:
                        raise AssertionError(f"after {taken}: {error!r}") from error
                    there, wanted = await driver.state(), seen(world)
                    assert there == wanted, f"after {taken}: {there} is not {wanted}"
                    compared += 1
                await driver.close()
                place.clear()
        return compared

    return run_virtually(scenario)
