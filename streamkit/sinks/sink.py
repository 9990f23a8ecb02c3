"""The protocol of a sink: what `Send` effects are delivered through.

    class Printer:
        name = "printer"
        limits = Limits(items=10)

        @asynccontextmanager
        async def opened(self):
            yield self

        async def deliver(self, deliveries):
            print(*(delivery.body for delivery in deliveries))
            return [None] * len(deliveries)

A delivery happens at least once, and before the position that it belongs to is committed: after a
crash it comes again, with the same `key`. Two deliveries with the same `group` are never under way
at once and come in the order of their `sequence`, while one worker owns the shard; across a crash
or a hand-over an older one may come again after a newer, which `sequence` tells.
"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class Delivery:
    """One thing to deliver.

    Attributes:
        key: the same for every delivery of the same effect, and for nothing else (32 hex digits).
        id: what it is about, such as a document's id; the group, unless `Send` says.
        group: within which order is kept: the item's key, hashed (32 hex digits); in a fan-out
            each recipient of an item has a group of its own.
        sequence: of the change in the stream, 40 digits; it orders the deliveries of a group.
        body: what to deliver: JSON's types, with decimals and moments; None for a deletion.
        attributes: text beside the body, as far as the sink can carry it.
        created_at: when the change was made, to the second.
        traceparent: of the handler's run (W3C Trace Context); empty if its change was not traced.
    """

    key: str
    id: str
    group: str
    sequence: str
    body: Any
    created_at: datetime
    attributes: Mapping[str, str] = field(default_factory=dict)
    traceparent: str = ""


@dataclass(frozen=True, slots=True)
class Limits:
    """What one call of a sink takes: deliveries, bytes of their bodies, calls at once, seconds.

    A call that takes longer than `seconds` is cancelled and has failed, all of it, so that what
    never answers keeps none of the `calls` for ever. Its deliveries may have been made. `math.inf`
    is for a sink whose requests have time-outs of their own.
    """

    items: int = 1
    size: int = 1_000_000
    calls: int = 4
    seconds: float = 60.0


class Sender(Protocol):
    """An open sink."""

    async def deliver(self, deliveries: Sequence[Delivery]) -> Sequence[Exception | None]:
        """Deliver, in this order; return for each None, or why it was not.

        A `PoisonChange` will never be delivered and is parked for a person; whatever else is tried
        again. Raising means that none was delivered. It is cancelled after `Limits.seconds`, which
        a thread does not notice: `anyio.to_thread.run_sync(..., abandon_on_cancel=True)` does.
        """


class Sink(Protocol):
    """Where deliveries go. `name` is unique in an app."""

    @property
    def name(self) -> str:
        """Names it in the log and in `Send`."""

    @property
    def limits(self) -> Limits:
        """What one call takes."""

    def opened(self) -> AbstractAsyncContextManager[Sender]:
        """Connect; once a process."""
