"""The fence of a move: one mover at a time writes what the next host begins with.

A mover that is thought dead may only be slow, and the same call again finishes its move. So a mover
writes a token of its own into the consumer's item, and each of its transactions from then on asks
whether it still stands there: whoever comes second shuts out whoever came first, and the end of the
move takes the token away. Marks that workers' positions prove need none: they stay true.

A rebuild that begins takes the token away, too: a mover counts as if there was none.

In: a consumer's control items. Out: the condition, as an action. On failure: `MoveRefused`.
"""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from random import Random

import anyio

from streamkit.actions import LEASE, OURS, Action, GuardSource, Verb
from streamkit.cursor import CursorStore
from streamkit.effects import Guard
from streamkit.errors import LeaseLost
from streamkit.fleet.generation import builds_are
from streamkit.fleet.hosting import LAMBDA, WORKERS, host_of
from streamkit.model.builds import Build
from streamkit.model.conditions import Attr, Condition, any_of
from streamkit.model.schema import TableSchema
from streamkit.moving.moved import MoveRefused
from streamkit.processing.transaction import Send, transact
from streamkit.processing.verdicts import Invalid, Refused
from streamkit.surroundings import Surroundings

_SOURCE = GuardSource("", "mover", LEASE)


@dataclass(frozen=True)
class Fence:
    """Shuts out other movers of a consumer."""

    store: CursorStore
    token: str
    _turn: anyio.Lock = field(default_factory=anyio.Lock)

    @classmethod
    async def raised(cls, store: CursorStore, builds: Mapping[str, Build], *hosts: str) -> "Fence":
        """Shut out everybody else who moves a consumer, IF its host is one of these.

        Raises:
            MoveRefused: it is another one by now, or its aggregates' builds are not these any more.
        """
        fence = cls(store, uuid.uuid4().hex[:8])
        action = store.space.update("consumer")
        action.sets["mover"] = {"S": fence.token}
        is_there = any_of(*(Attr("host").eq(host) for host in hosts))
        action.guards += [(Guard(is_there), OURS), (Guard(builds_are(builds)), OURS)]
        try:
            await store.write(action)
        except LeaseLost:
            raise fence.refusal from None
        return fence

    @property
    def refusal(self) -> MoveRefused:
        """What is raised when somebody else is the mover, or nobody is any more."""
        return MoveRefused(["somebody else moves, rewinds or rebuilds this consumer; try again"])

    @property
    def _check(self) -> Action:
        action = Action(self.store.space.ref("consumer"), Verb.CHECK)
        action.guards.append((Guard(self._stands), _SOURCE))
        return action

    @property
    def _stands(self) -> Condition:
        return Attr("mover").eq(self.token)

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
        action = self.store.space.update("consumer")
        action.sets["host"] = {"S": host}
        if host in (WORKERS, LAMBDA):
            action.removes.add("mover")
        action.guards.append((Guard(self._stands), OURS))
        try:
            await self.store.write(action)
        except LeaseLost:
            # The SDK repeats a call whose reply was lost.
            if await host_of(self.store) != host:
                raise self.refusal from None
