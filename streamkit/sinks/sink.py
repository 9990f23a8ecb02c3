"""The protocol of a sink, through which `Send` effects are delivered.

    class Printer:
        name = "printer"
        limits = Limits(items=10)

        @asynccontextmanager
        async def opened(self):
            yield self

        async def deliver(self, deliveries):
            print(*(delivery.body for delivery in deliveries))
            return [None] * len(deliveries)

A delivery happens at least once, and before its position is committed: after a crash it comes
again, with the same `key`. While one worker owns the shard, two deliveries with the same `group`
are never under way at once and come in the order of their `sequence`. After a crash or a hand-over
an older delivery may come again after a newer one; `sequence` shows this.
"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from typing import Any, Protocol

import msgspec


class Delivery(msgspec.Struct, frozen=True):
    """One thing to deliver.

    Attributes:
        key: the same for every delivery of the same effect, and for nothing else (32 hex digits).
        id: what the delivery is about, such as a document's id; the group, unless `Send` sets it.
        group: order is kept within a group: the item's key, hashed (32 hex digits); in a fan-out
            each recipient of an item has a group of its own.
        sequence: that of the change, 40 digits; it orders the deliveries of a group.
        body: what to deliver: JSON's types, with decimals and moments; None for a deletion.
        attributes: text beside the body, as far as the sink can carry it.
        created_at: when the change was made, to the second, in UTC.
        traceparent: that of the handler's run (W3C Trace Context); empty if it was not traced.
    """

    key: str
    id: str
    group: str
    sequence: str
    body: Any
    created_at: datetime
    attributes: Mapping[str, str] = msgspec.field(default_factory=dict)
    traceparent: str = ""


class Limits(msgspec.Struct, frozen=True):
    """The limits of a sink: deliveries and bytes of bodies in a call, calls at once, seconds.

    A call that takes longer than `seconds` is cancelled and fails as a whole, so that a receiver
    that never answers does not occupy one of the `calls` for ever. Its deliveries may have been
    made. `math.inf` is for a sink whose requests have time-outs of their own.
    """

    items: int = 1
    size: int = 1_000_000
    calls: int = 4
    seconds: float = 60.0


class Sender(Protocol):
    """An open sink."""

    async def deliver(self, deliveries: Sequence[Delivery]) -> Sequence[Exception | None]:
        """Deliver, in this order; return for each delivery None, or the error that stopped it.

        `PoisonChange` means that it can never be delivered: it is parked for an operator. After any
        other error it is tried again. Raising means that none was delivered. The call is cancelled
        after `Limits.seconds`. A thread does not notice that: use
        `anyio.to_thread.run_sync(..., abandon_on_cancel=True)`.
        """


class Sink(Protocol):
    """A destination of deliveries. `name` is unique in an app."""

    @property
    def name(self) -> str:
        """Return the sink's name in the log and in `Send`."""

    @property
    def limits(self) -> Limits:
        """Return what one call takes."""

    def opened(self) -> AbstractAsyncContextManager[Sender]:
        """Connect; called once in a process."""
