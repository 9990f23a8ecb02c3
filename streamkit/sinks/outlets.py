"""Outlets: the open sinks of one worker."""

from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field

import anyio

from streamkit.errors import PoisonChange
from streamkit.progress.clock import Clock, SystemClock
from streamkit.sinks.batching import Batcher
from streamkit.sinks.sink import Delivery, Sink

SLOW_SECONDS = 3.0
"""A commit waits this long for a sink. What is not delivered by then goes to its parked queues."""


@dataclass
class Outlets:
    """The open sinks of one worker, by name."""

    batchers: dict[str, Batcher] = field(default_factory=dict)

    def is_slow(self, sink: str) -> bool:
        """Return True if deliveries have waited so long that no more should be added."""
        batcher = self.batchers.get(sink)
        return batcher is not None and batcher.waited > SLOW_SECONDS

    async def deliver(self, sink: str, delivery: Delivery, seconds: float) -> None:
        """Wait until a delivery is made: `seconds` for its call, and longer for its turn.

        Raises:
            TimeoutError: it takes longer.
            PoisonChange: the app has no such sink.
            Exception: the error that the sink reports for this delivery.
        """
        batcher = self.batchers.get(sink)
        if batcher is None:
            known = ", ".join(map(repr, sorted(self.batchers))) or "none"
            raise PoisonChange(
                f"the app, or the listener of the handler, has no sink {sink!r} (but {known}):"
                " register it there with app.sink(...), deploy that, then redrive the change with"
                " `streamkit parked redrive`"
            )
        await batcher.deliver(delivery, seconds)


@asynccontextmanager
async def open_outlets(sinks: Iterable[Sink], clock: Clock | None = None) -> AsyncIterator[Outlets]:
    """Open an app's sinks; at the end, deliveries that are under way are cancelled."""
    clock = clock or SystemClock()
    sinks = list(sinks)
    if not sinks:
        yield Outlets()
        return
    async with AsyncExitStack() as stack:
        senders = [await stack.enter_async_context(sink.opened()) for sink in sinks]
        group = await stack.enter_async_context(anyio.create_task_group())
        yield Outlets(
            {
                sink.name: Batcher(sink.name, sink.limits, sender, group, clock)
                for sink, sender in zip(sinks, senders, strict=True)
            }
        )
        group.cancel_scope.cancel()
