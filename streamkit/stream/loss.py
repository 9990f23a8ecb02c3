"""Losses: what happens after records may have been trimmed before they were read.

    halt      the worker stops, with an exit code of its own, and a person decides (the default)
    resume    it is logged and recorded, and reading continues at the oldest record there is
    a hook    an async function of the app repairs what it can, then as with `resume`

In: a `RetentionLost` of a reader. Out: whether to go on. A hook is called at least once for each
loss: again if it fails, and again if the worker dies before the loss is recorded in the cursor.
Aggregates are marked *needs rebuild* before reading goes on: nothing else makes them right.
"""

import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Literal

from streamkit.errors import DeclarationError, LeaseLost, RetentionLost
from streamkit.model.conditions import present
from streamkit.observe.logger import get_logger
from streamkit.observe.meters import UNMETERED
from streamkit.observe.metrics import Counter
from streamkit.progress.clock import utc
from streamkit.progress.cursor import CursorStore

if TYPE_CHECKING:
    from streamkit.table import Table

log = get_logger("streamkit.loss")

_PAUSE_SECONDS = (1.0, 60.0)
"""The first and the longest pause before a failed hook is called again; they double."""


@dataclass(frozen=True, slots=True)
class Loss:
    """What may be lost: changes of one shard, created between two moments (UTC).

    `shard` is empty if the whole stream is meant. `since` is None if nothing is known to have been
    read. `certain` says that a change is known to be gone; otherwise it is a possible loss, and
    there may have been none. Changes created from `until` on will still be read.
    """

    shard: str
    since: datetime | None
    until: datetime
    certain: bool
    text: str = ""

    @classmethod
    def of(cls, lost: RetentionLost) -> "Loss":
        """Describe a reader's error."""
        since = utc(lost.since) if lost.since else None
        return cls(lost.shard, since, utc(lost.until), lost.certain, str(lost))


LossHook = Callable[[Loss, "Table"], Awaitable[None]]
"""Repairs the effects of a loss, such as by comparing items; it may be called twice for one
loss."""

OnLoss = Literal["halt", "resume"] | LossHook
"""What happens when records may have been lost to the stream's retention."""


def check_on_loss(on_loss: object) -> None:
    """Refuse a value that is not a policy.

    Raises:
        DeclarationError: it is neither a known word nor an async function.
    """
    if on_loss not in ("halt", "resume") and not inspect.iscoroutinefunction(on_loss):
        raise DeclarationError(
            f"on_loss={on_loss!r}: 'halt', 'resume', or an async def that takes a Loss and a Table"
        )


async def settle_loss(lost: RetentionLost, policy: OnLoss, table: "Table") -> bool:
    """Apply the policy once; return whether to go on.

    Raises:
        Exception: the error of the app's hook.
    """
    if policy == "halt":
        return False
    if policy != "resume":
        await policy(Loss.of(lost), table)
    return True


@dataclass
class Losses:
    """Settles the losses of one worker; `settled` counts those after which it goes on.

    The metric `lost` counts every loss.
    """

    policy: OnLoss
    table: "Table"
    store: CursorStore
    aggregates: frozenset[str] = frozenset()
    lost: Counter = UNMETERED.lost
    settled: int = 0
    _pauses: dict[str, float] = field(default_factory=dict)

    async def settle(self, lost: RetentionLost) -> float | None:
        """Settle a loss; return None to go on, or the seconds until a failed hook is called again.

        The caller that goes on writes `lost` into the cursor with its next commit, which makes it
        durable.

        Raises:
            RetentionLost: the loss itself, if the policy is to halt.
        """
        try:  # A hook is the app's code: the shard waits for it, whichever error it raises.
            goes_on = await settle_loss(lost, self.policy, self.table)
        except Exception:
            first, longest = _PAUSE_SECONDS
            pause = self._pauses.get(lost.shard, first)
            self._pauses[lost.shard] = min(pause * 2, longest)
            log.exception("retention.unsettled", shard=lost.shard, pause_seconds=pause)
            return pause
        if not goes_on:
            self.lost.add()
            raise lost
        self._pauses.pop(lost.shard, None)
        self.settled += 1
        self.lost.add()
        # This comes before the cursor. If the process dies in between, the loss is settled once
        # more; in the other order the aggregates would stay wrong, and no report would say so.
        await mark_rebuild(self.store, self.aggregates)
        log.error(
            "retention.lost",
            shard=lost.shard,
            certain=lost.certain,
            since=int(lost.since),
            until=int(lost.until),
        )
        return None


async def mark_rebuild(store: CursorStore, aggregates: frozenset[str]) -> None:
    """Mark aggregates *needs rebuild*, in the consumer's item if there is one yet."""
    if not aggregates:
        return
    action = store.space.update("consumer")
    action.unions["rebuild"] = {"SS": sorted(aggregates)}
    action.only_if(present)
    try:
        await store.write(action)
    except LeaseLost:
        return  # the consumer is being created; that write marks them itself
