"""The fence of a move: one mover at a time writes what the next host begins with.

A mover that is thought dead may only be slow, and the same call again finishes its move. So a mover
writes a token of its own into the consumer's item, and each of its transactions from then on asks
whether it still stands there: whoever comes second shuts out whoever came first, and the end of the
move takes the token away. Marks that workers' positions prove need none: they stay true.

A rebuild that begins takes the token away, too: a mover counts as if there was none. What a mover
has to see before it begins is asked in the write that raises its fence.

In: a consumer's control items. Out: the condition, as an action. On failure: `MoveRefused`.
"""

import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from random import Random

import anyio

from streamkit.actions import LEASE, Action, GuardSource, Verb
from streamkit.clock import Clock
from streamkit.cursor import CursorStore
from streamkit.effects import Guard
from streamkit.fleet.generation import Generation, consumer_operation
from streamkit.fleet.hosting import LAMBDA, WORKERS
from streamkit.model.conditions import Attr, Condition
from streamkit.model.schema import TableSchema
from streamkit.moving.moved import OVERTAKEN, MoveRefused
from streamkit.operation import Step, said_of
from streamkit.processing.transaction import Send, transact
from streamkit.processing.verdicts import Invalid, Refused
from streamkit.surroundings import Surroundings

_SOURCE = GuardSource("", "mover", LEASE)


Unfit = Callable[[Generation | None], Iterable[str]]
"""Yields why a consumer cannot be moved as it is now."""


@dataclass(frozen=True)
class Fence:
    """Shuts out other movers of a consumer. `began` is what the consumer was when it was raised."""

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
    ) -> "Fence":
        """Shut out everybody else who moves a consumer, IF nothing speaks against the move.

        Args:
            store: the consumer's control items.
            clock: tells when.
            unfit: yields what does. It holds in the moment of the write.
            needs_rebuild: aggregates that miss changes by the move.

        Raises:
            MoveRefused: something does.
        """
        token = uuid.uuid4().hex[:8]

        async def raises(newest: Generation | None) -> Step[Generation | None]:
            MoveRefused.raise_for(unfit(newest))
            assert newest is not None  # noqa: S101 - it would have been refused
            raised = replace(newest, mover=token, rebuild=newest.rebuild | needs_rebuild)
            return Step(raised.noted(said_of(clock, f"move from {newest.host!r}")))

        began = await consumer_operation(store).change(raises)
        assert began is not None  # noqa: S101 - it was raised
        return cls(store, clock, began)

    @property
    def refusal(self) -> MoveRefused:
        """What is raised when somebody else is the mover, or nobody is any more."""
        return MoveRefused([OVERTAKEN])

    @property
    def _check(self) -> Action:
        action = Action(self.store.space.ref("consumer"), Verb.CHECK)
        action.guards.append((Guard(self._stands), _SOURCE))
        return action

    @property
    def _stands(self) -> Condition:
        return Attr("mover").eq(self.began.mover)

    async def transact(self, actions: Sequence[Action], rng: Random) -> Refused | Invalid | None:
        """Apply actions on control items, IF this is still the mover.

        Raises:
            MoveRefused: it is not.
        """
        schema = self.store.space.schema
        return await self._transact({schema.name: schema}, actions, rng)

    def sending(self, around: Surroundings) -> Send:
        """Return what applies actions on any of an app's tables, IF this is still the mover."""
        return partial(self._transact, around.schemas)

    async def _transact(
        self, schemas: Mapping[str, TableSchema], actions: Sequence[Action], rng: Random
    ) -> Refused | Invalid | None:
        async with self._turn:  # transactions that check the same item get into each other's way
            everything = [*actions, self._check]
            sent = await transact(self.store.dynamodb, schemas, everything, rng)
        if isinstance(sent, Refused) and _SOURCE in sent.sources:
            raise self.refusal
        return sent

    async def turn(self, host: str) -> None:
        """Let the consumer have this host from now on; with one that runs it, the move is over.

        Raises:
            MoveRefused: somebody else is the mover, and has not come to the same.
        """

        async def turned(newest: Generation | None) -> Step[Generation | None] | None:
            if newest is None or newest.mover != self.began.mover:
                if newest is None or newest.host != host:
                    raise self.refusal
                return None
            ends = host in (WORKERS, LAMBDA)
            after = replace(newest, host=host, mover="" if ends else newest.mover)
            return Step(after.noted(said_of(self.clock, f"move: {host}")))

        await consumer_operation(self.store).change(turned)
