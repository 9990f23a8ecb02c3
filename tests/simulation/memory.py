"""A sink in memory, for tests."""

from contextlib import asynccontextmanager

import anyio

from streamkit.sinks.sink import Limits


class Memory:
    """A sink that remembers; `trouble` is raised, or waited for in seconds, or None."""

    def __init__(self, name="memory", *, items=10, calls=4):
        self.name, self.limits = name, Limits(items=items, calls=calls)
        self.got, self.batches, self.trouble = [], [], None

    @asynccontextmanager
    async def opened(self):
        yield self

    async def deliver(self, deliveries):
        self.batches.append(len(deliveries))
        trouble = self.trouble(deliveries) if self.trouble else None
        if isinstance(trouble, float):
            await anyio.sleep(trouble)
        elif isinstance(trouble, Exception):
            raise trouble
        elif trouble is not None:
            return trouble
        self.got += deliveries
        return [None] * len(deliveries)

    def steps(self, order):
        bodies = [delivery.body for delivery in self.got]
        return [body["step"] for body in bodies if body["order"] == order]
