"""Outlets: the open sinks of one worker."""

from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field

import anyio

from streamkit.clock import Clock, SystemClock
from streamkit.errors import PoisonChange
from streamkit.sinks.batching import Batcher
from streamkit.sinks.sink import Delivery, Sink

SLOW_SECONDS = 3.0
"""How long a commit waits for a sink, before what is not delivered yet is left to its lanes."""


@dataclass
class Outlets:
    """Where deliveries go, by the sink's name."""

    batchers: dict[str, Batcher] = field(default_factory=dict)

    def is_slow(self, sink: str) -> bool:
        """Say whether deliveries have been waiting for so long that no more should wait."""
        batcher = self.batchers.get(sink)
        return batcher is not None and batcher.waited > SLOW_SECONDS

    async def deliver(self, sink: str, delivery: Delivery, seconds: float) -> None:
        """Wait until a delivery is made: so long for its call, and longer for its turn.

        Raises:
            TimeoutError: it takes longer.
            PoisonChange: the app has no such sink.
            Exception: what the sink says of it.
        """
        batcher = self.batchers.get(sink)
        if batcher is None:
            raise PoisonChange(f"the app has no sink {sink!r}: register it with app.sink(...)")
        await batcher.deliver(delivery, seconds)


@asynccontextmanager
async def open_outlets(sinks: Iterable[Sink], clock: Clock | None = None) -> AsyncIterator[Outlets]:
    """Connect an app's sinks; deliveries under way at the end are broken off."""
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
