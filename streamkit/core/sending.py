"""Sending: deliver the `Send` effects of outcomes, before their commit.

In: outcomes that a commit is about to take in. Out: the same outcomes, marked sent; or failed, as
their handlers' policies say; or deferred to their parked queues, because a sink is slow. A slow
sink holds up the items of its own handler, and nothing else.
"""

import hashlib
import math
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from itertools import groupby

import anyio

from streamkit.changes import ItemKey
from streamkit.core.attempts import Attempts
from streamkit.core.handler import Handler
from streamkit.core.outcome import Outcome, PendingChange
from streamkit.effects import Effect, Send
from streamkit.observe.logger import get_logger
from streamkit.sinks.outlets import Outlets
from streamkit.sinks.sink import Delivery

log = get_logger("streamkit.dispatch")


@dataclass(frozen=True)
class Sending:
    """Delivers for one worker."""

    outlets: Outlets
    attempts: Attempts

    async def send_all(
        self, batch: Iterable[tuple[PendingChange, Outcome]], shard_id: str, until: anyio.Event
    ) -> bool:
        """Deliver the sends of a commit's outcomes; an item's changes go one after the other.

        In a fan-out, those for one recipient do. What several handlers send for one change goes at
        the same time, so that receivers that do not answer are waited for together.

        Returns:
            Whether all is delivered; if not, some outcomes have changed.
        """
        chains: dict[tuple[ItemKey | None, str], list[tuple[PendingChange, Outcome]]] = {}
        for change, outcome in batch:
            chains.setdefault((change.key, outcome.to), []).append((change, outcome))
        async with anyio.create_task_group() as group:
            for chain in chains.values():
                group.start_soon(self._send_chain, chain, shard_id, until)
        return all(outcome.sent for chain in chains.values() for _, outcome in chain)

    async def _send_chain(
        self, chain: list[tuple[PendingChange, Outcome]], shard_id: str, until: anyio.Event
    ) -> None:
        stopped: set[str] = set()
        for _, pairs in groupby(chain, key=lambda pair: id(pair[0])):
            # Behind a change that was not delivered, later ones of its handler will queue.
            going = [pair for pair in pairs if pair[1].handler.name not in stopped]
            if len(going) == 1:  # most changes are sent once, and a task costs more than a call
                await self.send(*going[0], shard_id, until=until)
            else:
                async with anyio.create_task_group() as group:
                    for pair in going:
                        group.start_soon(partial(self.send, *pair, shard_id, until=until))
            stopped |= {outcome.handler.name for _, outcome in going if not outcome.sent}

    async def send(
        self,
        change: PendingChange,
        outcome: Outcome,
        shard_id: str,
        *,
        until: anyio.Event | None = None,
    ) -> None:
        """Deliver the sends of one outcome, with its handler's retries.

        Args:
            change: the change.
            outcome: the handler's outcome for the change.
            shard_id: the shard.
            until: is set when sends that cannot be delivered now must be left to another worker.
        """
        blocks = self.attempts.failures.blocks(outcome.handler)
        seconds = math.inf if blocks else self.attempts.patience.sink_seconds
        slow = any(self.outlets.is_slow(send.sink) for send in outcome.sends)
        if slow and seconds < math.inf:
            outcome.defer()
            return
        left = list(deliveries(change, outcome))

        async def attempt() -> None:
            while left:
                await self.outlets.deliver(*left[0], outcome.handler.policy.timeout_seconds)
                del left[0]
            outcome.sent = True

        with anyio.move_on_after(seconds) as scope:
            await self.attempts.persist(attempt, change, outcome, shard_id, until, sends=True)
        if scope.cancelled_caught:
            name = outcome.handler.name
            log.often("sink.slow", by=name, handler=name, shard=shard_id)
            outcome.defer()


def deliveries(change: PendingChange, outcome: Outcome) -> Iterator[tuple[str, Delivery]]:
    """Yield each delivery of an outcome, with the name of its sink.

    A delivery's key is made from the change, the handler, the recipient of a fan-out, and the place
    among the handler's sends. So it is the same whenever this send is delivered again.
    """
    record, key = change.record, change.key
    if record is None or key is None:
        return
    numbers: Counter[str] = Counter()
    for send in outcome.sends:
        name = send.recipient or outcome.to
        number, group = numbers[name], group_of(key, name)
        numbers[name] += 1
        text = f"{outcome.handler.name}\0{record.event_id}\0{record.position}\0{number}\0{name}"
        delivery = Delivery(
            key=hashlib.blake2b(text.encode(), digest_size=16).hexdigest(),
            id=send.id or group,
            group=group,
            sequence=record.position,
            body=send.body,
            created_at=datetime.fromtimestamp(record.created_at, UTC),
            attributes=send.attributes,
            traceparent=outcome.trace,
        )
        yield send.sink, delivery


def group_of(key: ItemKey, to: str = "") -> str:
    """Return a hash (32 hex digits) of the item's key and, in a fan-out, the recipient."""
    text = f"{key.pk!r}\0{key.sk!r}" + (f"\0{to}" if to else "")
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def allowed(
    effects: tuple[Effect, ...], change: PendingChange, handler: Handler
) -> tuple[Effect, ...]:
    """Leave out sends that would notify people or systems of a migration."""
    if change.origin.writer != "migration" or handler.migrations != "default":
        return effects
    return tuple(effect for effect in effects if not isinstance(effect, Send))
