"""Commit: write the cursor and the effects of many changes in one transaction.

In: a `Batch`. Out: a verdict. The transaction's first action moves the cursor IF owner, epoch,
generation, position and last commit id are as this worker believes; the other actions are effects.
This one condition refuses a zombie's commit, and makes a repeated commit harmless for ever (the
client token only lasts ten minutes). After a time-out, the commit id in the cursor tells *which* of
the plans sent since the last known position won; that one is adopted, even after later plans.

On failure: another owner or an unknown commit id raises `LeaseLost`. A failed condition of an
effect, an invalid action, a conflict and throttling are verdicts; the caller plans again.
"""

import random
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import msgspec

from streamkit.aws import ErrorKind, code_of, patiently, tell_repeated, trouble_of, until_known
from streamkit.errors import InvariantError, LeaseLost
from streamkit.model.schema import TableSchema
from streamkit.observe.logger import get_logger
from streamkit.observe.meters import UNMETERED, Meters
from streamkit.progress.actions import Action, ItemRef, Wire, own_attributes, render
from streamkit.progress.control import ControlSpace, Cursor, QueuedKey, read_cursor
from streamkit.progress.cursor import advance, claim
from streamkit.progress.probing import blamed
from streamkit.progress.transaction import refused
from streamkit.progress.verdicts import Again, Invalid, RefusedCommit, judge, reasons_of

if TYPE_CHECKING:
    from streamkit.core.outcome import Outcome, PendingChange
    from streamkit.core.reads import Version

_SENT_MAX = 16
"""Plans that are remembered while their fate is unknown; forgetting one costs another read of the
lease.
"""

log = get_logger("streamkit.commit")


@dataclass(slots=True)
class Batch:
    """One commit: where the cursor goes, and what is written with it.

    `changes`, `queued` and `written` are for the caller, which may learn later that this batch won:
    how many pending changes it finishes, which keys it begins to queue, which runs wrote each item.
    `sends` are delivered before the commit; `plain` actions are written after it.
    """

    cursor: Cursor  # as it will be; owner, epoch, generation and commit id are filled in
    actions: list[Action] = field(default_factory=list)
    changes: int = 0
    queued: dict[str, QueuedKey] = field(default_factory=dict)
    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    sends: "list[tuple[PendingChange, Outcome]]" = field(default_factory=list)
    plain: list[Action] = field(default_factory=list)
    written: "Mapping[ItemRef, tuple[Version, ...]]" = field(default_factory=dict)


class Applied(msgspec.Struct, frozen=True):
    """The cursor and all effects of `batch` are in the table; it may be a batch sent earlier."""

    batch: Batch


Verdict = Applied | RefusedCommit | Invalid | Again


class Committer:
    """Commits for one leased cursor, one batch at a time."""

    def __init__(
        self,
        dynamodb: Any,
        space: ControlSpace,
        cursor: Cursor,
        tables: Mapping[str, TableSchema],
        rng: random.Random,
        meters: Meters = UNMETERED,
    ) -> None:
        self.cursor = cursor
        self._dynamodb = dynamodb
        self._space = space
        self.tables = tables
        self._rng = rng
        self._meters = meters
        self._sent: dict[str, Batch] = {}

    async def commit(self, batch: Batch) -> Verdict:
        """Send a batch until its fate is known.

        Raises:
            LeaseLost: the cursor is not this worker's any more, or holds an unknown commit.
            ConfigurationError: the credentials may not write.
        """
        try:
            verdict = await self._send(batch)
        except LeaseLost:
            self._meters.fenced.add()
            raise
        if isinstance(verdict, Applied):
            self._meters.commits.add()
        elif isinstance(verdict, Again) and not verdict.throttled:
            self._meters.conflicts.add()
        return verdict

    async def _send(self, batch: Batch) -> Verdict:
        self._sent[batch.id] = batch
        if len(self._sent) > _SENT_MAX:
            del self._sent[next(iter(self._sent))]
        request = self._request(batch)

        async def send() -> Verdict:
            # If the process dies here, the next owner finds the old position or the new one:
            # effects and position are never in the table without each other. A marker for each
            # change would do the same, at the price of a write and a TTL for each.
            await self._dynamodb.transact_write_items(
                TransactItems=request, ClientRequestToken=batch.id
            )
            return self._applied(batch)

        async def meaning(error: Exception) -> Verdict | None:
            if trouble_of(error) is not ErrorKind.UNKNOWN:
                verdict = await self._verdict(batch, error)
                if isinstance(verdict, Again) and verdict.throttled:
                    tell_repeated(error)
                return verdict
            # Send the same plan again: if the first attempt won, its own success makes the
            # condition false, and the commit id in the refusal says so.
            log.warning("commit.unknown", cursor=self.cursor.name, code=code_of(error))
            return None

        return await until_known(send, meaning, rng=self._rng)

    def _request(self, batch: Batch) -> list[dict[str, Any]]:
        """Render the transaction, the cursor first, because its refusal decides everything."""
        cursor = advance(self._space, self.cursor, batch.cursor, batch.id)
        first = render(cursor, self._space.schema)
        first["Update"]["ReturnValuesOnConditionCheckFailure"] = "ALL_OLD"
        rest = [render(action, self.tables[action.ref.table]) for action in batch.actions]
        return [first, *rest]

    def _applied(self, batch: Batch) -> Applied:
        mine = self.cursor
        self.cursor = replace(
            batch.cursor,
            owner=mine.owner,
            epoch=mine.epoch,
            generation=mine.generation,
            commit=batch.id,
        )
        self._sent.clear()
        return Applied(batch)

    async def _verdict(self, batch: Batch, error: Exception) -> Verdict:
        reasons = reasons_of(error)
        if reasons and reasons[0].get("Code") == "ConditionalCheckFailed":
            return self._cursor_refused(reasons[0].get("Item"))
        verdict = judge(error)
        if isinstance(verdict, Invalid) and verdict.actions == (0,):
            return Again(throttled=False)  # the cursor's action is invalid; no result is to blame
        if isinstance(verdict, Invalid):
            effects = tuple(place - 1 for place in verdict.actions)  # behind the cursor's action
            return await self._invalid(Invalid(effects, verdict.code))
        if isinstance(verdict, RefusedCommit):
            actions = [batch.actions[place - 1] for place in verdict.items]
            # The service names the refused action, not which of its joined conditions failed.
            # Nothing is applied, so a death here costs only these reads.
            sources = await blamed(self._dynamodb, self.tables, actions)
            return RefusedCommit(sources) if sources else Again(throttled=False)
        if verdict is not None:
            return verdict
        if code_of(error) == "IdempotentParameterMismatchException":
            raise InvariantError(
                f"commit {batch.id} was sent twice with different contents"
            ) from error
        raise refused("commits", error) from error

    async def _invalid(self, verdict: Invalid) -> Verdict:
        """Check that the cursor is still as this worker believes, before blaming a result.

        DynamoDB stops at the first invalid action, and then says nothing about the cursor. An
        earlier plan whose effects make this one invalid may have won, or another worker may have
        the cursor.
        """
        request = {
            "TableName": self._space.schema.name,
            "Key": self._space.key("cursor", self.cursor.name),
            "ConsistentRead": True,
        }
        reply = await patiently(lambda: self._dynamodb.get_item(**request))
        item, mine = reply.get("Item"), self.cursor
        there = read_cursor(own_attributes(item)) if item else None
        if there is not None and claim(there) == claim(mine):
            return verdict
        return self._cursor_refused(item)

    def _cursor_refused(self, item: dict[str, Wire] | None) -> Verdict:
        mine = self.cursor
        there = read_cursor(own_attributes(item)) if item else None
        if (
            there is None
            or (there.owner, there.epoch, there.generation)
            != (mine.owner, mine.epoch, mine.generation)
            or there.commit not in self._sent
        ):
            raise LeaseLost(f"cursor {mine.name}: another worker has it, or an unknown commit won")
        log.info("commit.adopted", cursor=mine.name, commit=there.commit)
        return self._applied(self._sent[there.commit])
