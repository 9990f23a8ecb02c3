"""Recording: recorders replace an app's sinks and keep the deliveries.

    with recording(app) as sent:
        ...
    assert [delivery.body for delivery in sent["orders"].once] == [...]

A recorder takes what its sink takes, with the same limits, and can fail now and then on request.
"""

import random
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Self

from streamkit.app import App
from streamkit.errors import RetryableError
from streamkit.sinks.sink import Delivery, Limits, Sink


@dataclass
class Recorder:
    """A sink that keeps its deliveries.

    Attributes:
        name: the name of the sink that it replaces.
        trouble: how often a delivery fails, 0 to 1; half of the failed ones arrive nevertheless.
        deliveries: the deliveries that arrived, in order, repetitions included.
    """

    name: str
    limits: Limits = field(default_factory=Limits)
    trouble: float = 0.0
    rng: random.Random = field(default_factory=lambda: random.Random(0))
    deliveries: list[Delivery] = field(default_factory=list)

    @property
    def once(self) -> list[Delivery]:
        """Return the deliveries without repetitions, which have the same key."""
        return list({delivery.key: delivery for delivery in self.deliveries}.values())

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[Self]:
        """Yield the recorder itself; there is nothing to open."""
        yield self

    async def deliver(self, deliveries: Sequence[Delivery]) -> Sequence[Exception | None]:
        """Keep the deliveries, or fail."""
        return [self._one(delivery) for delivery in deliveries]

    def _one(self, delivery: Delivery) -> Exception | None:
        fails = self.rng.random() < self.trouble
        if not fails or self.rng.random() < 0.5:
            self.deliveries.append(delivery)
        return RetryableError("the receiver has trouble") if fails else None


@contextmanager
def recording(
    app: App, *, trouble: float = 0.0, rng: random.Random | None = None
) -> Iterator[dict[str, Recorder]]:
    """Replace the sinks of an app and its listeners by recorders; yield these by name.

    A sink that is a recorder already stays.
    """
    consumers = [app, *app.listeners.values()]
    known: dict[str, Recorder] = {}
    declared: dict[tuple[int, int], Sink] = {}
    for one in consumers:
        for place, sink in enumerate(one.sinks):
            if isinstance(sink, Recorder):
                known[sink.name] = sink
                continue
            recorder = Recorder(sink.name, sink.limits, trouble, rng or random.Random(0))
            recorder = known.setdefault(sink.name, recorder)
            one.sinks[place], declared[id(one), id(recorder)] = recorder, sink
    try:
        yield known
    finally:
        for one in consumers:
            one.sinks[:] = [declared.get((id(one), id(sink)), sink) for sink in one.sinks]
