"""Reset an aggregate: delete its stored items and its parked changes before it is counted again.

In: an aggregate whose build is `emptying`, and every shard captured: no process counts. Out: its
items are deleted (with `onto=`, the measures' attributes are removed), page by page, and so are its
handler's parked changes with their queues. Each transaction checks that the generation is still the
same, so that a process that froze in the middle deletes nothing that was counted since. On failure:
`LeaseLost` when another process took the next step.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from streamkit.aws import Aws
from streamkit.core.parked.head import take_off
from streamkit.core.parked.queues import parked_queues, read_head
from streamkit.core.tables import Tables
from streamkit.effects import Guard
from streamkit.errors import ConfigurationError, LeaseLost
from streamkit.fleet.generation import Generation, same_builds
from streamkit.kinds.aggregate.aggregate import Aggregate, stored_as
from streamkit.kinds.aggregate.measures import adds_up
from streamkit.model.conditions import Attr, present
from streamkit.progress.actions import LEASE, OURS, Action, GuardSource, Verb, Wire, item_ref
from streamkit.progress.clock import Clock
from streamkit.progress.cursor import CursorStore
from streamkit.progress.scan.pages import Reply, ScanPages, patient
from streamkit.progress.scan.segment import Segment
from streamkit.progress.transaction import transact
from streamkit.progress.verdicts import Invalid, RefusedCommit
from streamkit.table import Table

_TOGETHER = 99


@dataclass
class Reset:
    """Clears one aggregate in one generation."""

    aggregate: type[Aggregate[Any]]
    generation: Generation
    aws: Aws
    store: CursorStore
    tables: Tables
    rng: random.Random
    clock: Clock

    def __post_init__(self) -> None:
        """Find which items are stored for the aggregate."""
        self._table = Table(self.aws.dynamodb, self.tables.own, tables=self.tables)
        self._stored = stored_as(self.aggregate)

    async def drop(self) -> None:
        """Drop the parked changes of the aggregate's handler.

        Raises:
            LeaseLost: the generation is another one by now.
        """
        for queue in await parked_queues(self.store):
            if queue.handler == self.aggregate.__name__:
                await self._drop(queue.name)

    @property
    def pages(self) -> ScanPages:
        """How the table is read."""
        return ScanPages(patient(self.aws.dynamodb), self.tables.own.name)

    async def visit(self, segment: Segment, reply: Reply) -> None:
        """Clear the items of a page, and then move its segment.

        Raises:
            LeaseLost: another process has the segment, or the generation is another one by now.
        """
        found = [item for item in reply["Items"] if self._table.is_of(self._stored, item)]
        actions = [a for number, item in enumerate(found) if (a := self._cleared(item, number))]
        for start in range(0, len(actions), _TOGETHER):
            await self._send(actions[start : start + _TOGETHER])
        await segment.advance(reply.get("LastEvaluatedKey"))

    @property
    def _fence(self) -> Action:
        check = Action(self.store.space.ref("consumer"), Verb.CHECK)
        same = Attr("generation").eq(self.generation.number) & same_builds(self.generation)
        return check.only_if(same)

    async def _drop(self, queue: str) -> None:
        """Drop the parked changes of a queue, first to last."""
        while (found := await read_head(self.store, queue)) is not None:
            parked, first = found
            place, fence = (self.store, self.tables, parked, first), (self._fence,)
            sent = await take_off(*place, fence, self.rng, self.clock)
            if isinstance(sent, RefusedCommit) and any(s.effect == LEASE for s in sent.sources):
                raise LeaseLost("another step of the build was taken")

    def _cleared(self, item: dict[str, Wire], number: int) -> Action | None:
        """Return the action that clears one item; None if it holds nothing of the aggregate."""
        ref = item_ref(self.tables.own, item)
        if self.aggregate.__options__.onto is None:
            return Action(ref, Verb.DELETE)
        is_ours = adds_up(self.aggregate.__measures__)
        removes = {name for name in item if is_ours(name)}
        if not removes:
            return None
        still = (Guard(present), GuardSource(str(number), "", 0))
        return Action(ref, Verb.UPDATE, removes=removes, guards=[still])

    async def _send(self, actions: Sequence[Action]) -> None:
        left = list(actions)
        while left:
            everything = [self._fence, *left]
            sent = await transact(self.aws.dynamodb, self.tables, everything, self.rng)
            if sent is None:
                return
            if isinstance(sent, Invalid):
                raise ConfigurationError(
                    f"{self.aggregate.__name__} cannot be emptied: DynamoDB answers {sent.code}"
                )
            if any(source == OURS for source in sent.sources):
                raise LeaseLost("another step of the build was taken")
            gone = {source.position for source in sent.sources}  # deleted by the application
            left = [a for a in left if not any(s.position in gone for _, s in a.guards)]
