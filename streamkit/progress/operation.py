"""Operation: a command in several phases is a named state in the table, which moves by one write.

    look    the state is read, strongly consistent
    act     what its phase asks for is done; each process that runs the command may do it again
    step    the next state is written IF the state is still as it was read

Migrations, rebuilds, moves between hosts and rewinds are operations. A process that is killed
leaves a state from which the same command goes on, on any machine. If two processes step at once,
one writes; the other looks again, or refuses, as its command says. A process that stood still
writes nothing, because the state is not as it was read any more.

People may pause an operation: the state says so, and the write that says it makes the next step of
each process fail. The processes wait, and go on when the state says so; so does a process that
begins meanwhile. What people want is a command: it is written once, with who said it and when, and
not at all if another command came first.

Each operation itself decides what it does in a phase, how it fences that work, and whether it waits
for people: see `migrate.state`, `fleet.generation` (where builds, moves and rewinds share one item)
and `operate.moves.fence`.

In: how a state is read, and the action that writes one. Out: states, and an audit trail in them. On
failure: `LeaseLost` says that another process took a step; `Refusal` tells people what is wrong.
"""

import getpass
import random
import socket
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, Protocol, Self, TypeVar

import anyio

from streamkit.errors import ConfigurationError, InvariantError, LeaseLost
from streamkit.observe.logger import get_logger
from streamkit.progress.actions import Action
from streamkit.progress.clock import Clock
from streamkit.progress.cursor import CursorStore
from streamkit.progress.transaction import transact
from streamkit.progress.verdicts import Invalid

log = get_logger("streamkit.operation")

S = TypeVar("S")

_LOOK_SECONDS = 5.0
"""Seconds between two looks at the state: whether a pause has begun, or has ended."""


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """One line of an audit trail: which person or process did what, and when (epoch seconds)."""

    at: float
    by: str
    what: str


Audit = tuple[AuditEntry, ...]


def read_audit(entries: Iterable[Mapping[str, Any]]) -> Audit:
    """Return a trail from its entries in JSON's types."""
    return tuple(AuditEntry(**entry) for entry in entries)


def said_of(clock: Clock, what: str) -> AuditEntry:
    """Return an audit entry for what is done at this terminal now."""
    return AuditEntry(int(clock.time()), operator(), what)


def noted(audit: Audit, entry: AuditEntry, most: int) -> Audit:
    """Return a trail with one more entry, keeping the newest `most`."""
    return (*audit, entry)[-most:]


def operator() -> str:
    """Return the user and host of this terminal, for an audit trail."""
    try:
        return f"{getpass.getuser()}@{socket.gethostname()}"
    except (OSError, KeyError):
        return socket.gethostname()


class Refusal(ConfigurationError):
    """An operation would go wrong, and was not begun; `reasons` are for people."""

    def __init__(self, reasons: Iterable[str]) -> None:
        self.reasons = list(reasons)
        super().__init__("\n".join(self.reasons))

    @classmethod
    def raise_for(cls, reasons: Iterable[str]) -> None:
        """Refuse if there is any reason.

        Raises:
            Refusal: with all of them.
        """
        found = list(reasons)
        if found:
            raise cls(found)


class Commanded(Protocol):
    """A state that people change by commands."""

    @property
    def audit(self) -> Audit:
        """Return the audit trail of the state, oldest entry first."""
        ...

    @property
    def commands(self) -> object:
        """Return a value that changes with each command, and with nothing else."""
        ...

    def commanded(self, said: AuditEntry) -> Self:
        """Return the state with one more command, and its line in the trail."""
        ...


C = TypeVar("C", bound=Commanded)


@dataclass(frozen=True, slots=True)
class Step(Generic[S]):
    """The next state, and the actions that are written `along` with it, in one call."""

    after: S
    along: Sequence[Action] = ()


@dataclass(frozen=True)
class Operation(Generic[S]):
    """The state of one operation.

    `read` reads it. `writes` returns the action that turns one state into another. It is guarded by
    all that the decision was based on, and its own success makes its guard false. `held` says
    whether people have paused it; `run` and `change` wait then.
    """

    store: CursorStore
    read: Callable[[], Awaitable[S]]
    writes: Callable[[S, S], Action]
    held: Callable[[S], bool] = lambda _: False

    async def resumed(self, stopping: anyio.Event | None = None) -> S:
        """Return the state, once the operation is not paused, or as soon as it has to stop."""
        waited = False
        while True:
            state = await self.read()
            if not self.held(state) or (stopping is not None and stopping.is_set()):
                if waited:
                    log.info("operation.goes_on")
                return state
            if not waited:
                log.info("operation.paused")
            waited = True
            with anyio.move_on_after(_LOOK_SECONDS):
                await (stopping or anyio.Event()).wait()

    async def step(self, before: S, after: S, along: Sequence[Action] = ()) -> S:
        """Write the next state IF the state is as it was read; return it.

        Up to 99 actions may go `along`, in the same transaction.

        Raises:
            LeaseLost: the state has changed, or a condition of an action in `along` does not hold.
        """
        try:
            # If the process dies here, the table holds the state before or after, and the same
            # command continues from it. A lock that a process holds during a phase would have to be
            # broken after its death; this needs none.
            await self._write([self.writes(before, after), *along])
        except LeaseLost:
            # The SDK repeats a call whose reply was lost: the first call may have taken the step.
            if await self.read() != after:
                raise
        return after

    async def _write(self, actions: Sequence[Action]) -> None:
        if len(actions) == 1:
            await self.store.write(actions[0])
            return
        schema = self.store.space.schema
        sent = await transact(self.store.dynamodb, {schema.name: schema}, actions, random.Random())
        if isinstance(sent, Invalid):
            raise InvariantError(f"{actions[0].ref.pk[1]} cannot take this step: {sent.code}")
        if sent is not None:
            raise LeaseLost(f"{actions[0].ref.pk[1]} was changed by another process")

    async def change(
        self, decide: Callable[[S], Awaitable[Step[S] | None]], seen: S | None = None
    ) -> S:
        """Take the step that is decided, however often other processes step at the same time.

        Args:
            decide: returns the step from a state, or None if there is nothing to do. It is asked
                again about each state that is found, and an error that it raises ends the change.
            seen: the state as it was read before; without it the state is read first. A state that
                is read again is one in which the operation is not paused.

        Returns:
            The state after that.
        """
        before = await self.resumed() if seen is None else seen
        while True:
            step = await decide(before)
            if step is None:
                return before
            try:
                return await self.step(before, step.after, step.along)
            except LeaseLost:
                before = await self.resumed()

    async def command(
        self: "Operation[C]",
        change: Callable[[C], Awaitable[Step[C]]],
        said: AuditEntry,
    ) -> C:
        """Do what a person says, unless another command came between its read and write.

        Without this, a command that stood still would undo a later one. Steps of processes in
        between do not matter. A command that changes nothing writes nothing.

        Args:
            change: returns the step to the state as the person wants it, or raises an error.
            said: the line for the audit trail.

        Returns:
            The state after that.

        Raises:
            ConfigurationError: another command came between.
        """
        seen: list[object] = []

        async def decide(state: C) -> Step[C] | None:
            step = await change(state)
            if step.after == state or (seen and said in state.audit):
                return None  # in the second case the reply of its write was lost
            if state.commands not in (seen or [state.commands]):
                raise ConfigurationError(
                    f"another command was given meanwhile, and so {said.what!r} was not done; look"
                    " at the status, and run the command again if it is still wanted"
                )
            seen.append(state.commands)
            return replace(step, after=step.after.commanded(said))

        return await self.change(decide)

    async def watch(
        self, ending: anyio.Event, look: Callable[[S], bool], stopping: anyio.Event
    ) -> None:
        """Look at the state every few seconds, and end the work of its phase once it has to end.

        Args:
            ending: an event that is set then: on request, at a pause, or if `look` says so.
            look: is told each state that is read, and returns whether the work goes on.
            stopping: an event that asks for an end.
        """
        while not ending.is_set():
            with anyio.move_on_after(_LOOK_SECONDS):
                await stopping.wait()
            state = await self.read()
            if not look(state) or stopping.is_set() or self.held(state):
                ending.set()

    async def run(
        self, act: Callable[[S], Awaitable[bool]], stopping: anyio.Event | None = None
    ) -> S:
        """Act on one state after the other until nothing is left to do; return the last.

        Args:
            act: does what a state asks for, takes the step, and returns whether to look again. If
                it raises `LeaseLost`, because another process took a step, that state is next.
            stopping: an event that ends the wait for the end of a pause.
        """
        while True:
            state = await self.resumed(stopping)
            try:
                if not await act(state):
                    return state
            except LeaseLost:
                continue
