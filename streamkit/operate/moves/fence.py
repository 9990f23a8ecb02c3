"""Prove that a mover of a consumer is still the current one, in each of its transactions.

A mover that seems to be dead may only be slow, and the same call again finishes its move. So a
mover writes a token of its own (the move token) into the consumer's item, and each of its later
transactions checks that the token is still there: a second mover replaces it and shuts out the
first, and the end of the move removes it. Marks that follow from workers' positions need no token:
they stay true.

The same check shuts a mover out while people have paused its move; then the mover waits.

A rebuild that begins removes the token, too. What must be true before a mover begins is checked in
the write that stores its token.

In: a consumer's control items. Out: the condition, as an action. On failure: `MoveRefused`.
"""

import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from random import Random

import anyio

from streamkit.core.tables import AppTables
from streamkit.effects import Guard
from streamkit.fleet.generation import Generation, consumer_operation, move_mark
from streamkit.fleet.hosting import LAMBDA, WORKERS
from streamkit.model.conditions import Attr
from streamkit.model.schema import TableSchema
from streamkit.operate.moves.moved import OVERTAKEN, MoveRefused
from streamkit.progress.actions import LEASE, Action, GuardSource, Verb
from streamkit.progress.clock import Clock
from streamkit.progress.cursor import CursorStore
from streamkit.progress.operation import Operation, Step, said_of
from streamkit.progress.transaction import Send, transact
from streamkit.progress.verdicts import Invalid, RefusedCommit

_SOURCE = GuardSource("", "mover", LEASE)


Unfit = Callable[[Generation | None], Iterable[str]]
"""Yields the reasons why a consumer cannot be moved now."""


@dataclass(frozen=True)
class MoveFence:
    """Shuts out other movers of a consumer; `began` is the consumer as the token was stored."""

    store: CursorStore
    clock: Clock
    began: Generation
    _turn: anyio.Lock = field(default_factory=anyio.Lock)

    @classmethod
    async def raised(
        cls,
        store: CursorStore,
        clock: Clock,
        unfit: Unfit,
        *,
        needs_rebuild: frozenset[str] = frozenset(),
    ) -> "MoveFence":
        """Shut out every other mover of a consumer, IF there is no reason against the move.

        Args:
            store: the consumer's control items.
            clock: dates the audit entry.
            unfit: yields the reasons; none may hold at the moment of the write.
            needs_rebuild: aggregates that miss changes because of the move.

        Raises:
            MoveRefused: there is a reason against it.
        """
        token = uuid.uuid4().hex[:8]

        async def raises(newest: Generation | None) -> Step[Generation | None]:
            MoveRefused.raise_for(unfit(newest))
            assert newest is not None  # noqa: S101 - it would have been refused
            raised = replace(newest, mover=token, rebuild=newest.rebuild | needs_rebuild)
            return Step(raised.noted(said_of(clock, f"move from {newest.host!r}")))

        began = await consumer_operation(store, "move").change(raises)
        assert began is not None  # noqa: S101 - it was raised
        return cls(store, clock, began)

    @property
    def _check(self) -> Action:
        action, mover = Action(self.store.space.ref("consumer"), Verb.CHECK), self.began.mover
        stands = Attr("mover").eq(mover) & ~Attr("held").contains(move_mark(mover))
        action.guards.append((Guard(stands), _SOURCE))
        return action

    @property
    def _operation(self) -> Operation[Generation | None]:
        return consumer_operation(self.store, "move")

    async def transact(
        self, actions: Sequence[Action], rng: Random
    ) -> RefusedCommit | Invalid | None:
        """Apply actions on control items, IF this is still the mover.

        Raises:
            MoveRefused: it is not.
        """
        schema = self.store.space.schema
        return await self._transact({schema.name: schema}, actions, rng)

    def sending(self, tables: AppTables) -> Send:
        """Return a function that applies actions on an app's tables, IF this is still the mover."""
        return partial(self._transact, tables.schemas)

    async def _transact(
        self, schemas: Mapping[str, TableSchema], actions: Sequence[Action], rng: Random
    ) -> RefusedCommit | Invalid | None:
        while True:
            async with self._turn:  # transactions that check the same item conflict
                everything = [*actions, self._check]
                sent = await transact(self.store.dynamodb, schemas, everything, rng)
            if not isinstance(sent, RefusedCommit) or _SOURCE not in sent.sources:
                return sent
            newest = await self._operation.resumed()
            if newest is None or newest.mover != self.began.mover:
                raise MoveRefused([OVERTAKEN])

    async def turn(self, host: str) -> None:
        """Make this the consumer's host; if the host is one that runs it, the move is over.

        Raises:
            MoveRefused: another mover is the current one, and has not set the same host.
        """

        async def turned(newest: Generation | None) -> Step[Generation | None] | None:
            if newest is None or newest.mover != self.began.mover:
                if newest is None or newest.host != host:
                    raise MoveRefused([OVERTAKEN])
                return None
            ends = host in (WORKERS, LAMBDA)
            after = replace(newest, host=host, mover="" if ends else newest.mover)
            return Step(after.noted(said_of(self.clock, f"move: {host}")))

        await self._operation.change(turned)
