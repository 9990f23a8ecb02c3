"""Find what handlers would make of a change; those that may do more than return it are not run.

In: an app with its listeners, and a record. Out: a text for each handler that listens: the effects
that it returns, by their kinds, entities and fields, never their values. Handlers that are async or
ask for something are not run: they may do I/O. The run is that of a replay (`replayer.made_of`).
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from streamkit.app import App
from streamkit.core.dispatch import Dispatcher
from streamkit.core.handler import Handler
from streamkit.core.outcome import Outcome
from streamkit.core.tables import AppTables
from streamkit.core.writes import entity_of
from streamkit.effects import Effect, Send
from streamkit.fleet.lag import listeners
from streamkit.operate.replay.replayer import made_of
from streamkit.progress.clock import SystemClock
from streamkit.progress.own_effects import Accumulate
from streamkit.stream.decode import Record

NOTHING = "nothing"
_NOT_RUN = "not run: it may do more than it returns"


@dataclass
class DryRuns:
    """Runs the pure handlers of some consumers of one table."""

    consumers: Sequence[App]
    tables: AppTables
    _dispatchers: dict[tuple[str, str], Dispatcher] = field(default_factory=dict)

    async def of(self, record: Record, shard: str) -> dict[str, str]:
        """Return what each handler that listens would make of a change, by `consumer/handler`."""
        found = {}
        for consumer in self.consumers:
            for handler in listeners(consumer, self.tables.table)(record):
                name = f"{consumer.name}/{handler.name}"
                found[name] = await self._made(consumer, handler, record, shard)
        return found

    async def _made(self, consumer: App, handler: Handler, record: Record, shard: str) -> str:
        if handler.is_async or handler.needs:
            return _NOT_RUN
        dispatcher = self._dispatchers.get((consumer.name, handler.name))
        if dispatcher is None:
            dispatcher = self._dispatcher(consumer, handler)
            self._dispatchers[consumer.name, handler.name] = dispatcher
        pending = await made_of(dispatcher, record, shard)
        return NOTHING if pending is None else _text_of(pending.outcomes[0])

    def _dispatcher(self, consumer: App, handler: Handler) -> Dispatcher:
        policy = replace(handler.policy, on_failure="park", breaker=False, attempts=1)
        alone = replace(handler, policy=policy, shadow=False)
        routes = consumer.routes(self.tables.schemas)
        return Dispatcher([alone], routes, lambda *_: {}, SystemClock(), random.Random(0))


def _text_of(outcome: Outcome) -> str:
    if outcome.failure is not None:
        return f"it fails: {outcome.failure.kind}"
    return ", ".join(map(_effect, outcome.effects)) or NOTHING


def _effect(effect: Effect) -> str:
    if isinstance(effect, Send):
        return "Send"
    entity, kind = entity_of(effect), type(effect).__name__
    kind = "Add" if isinstance(effect, Accumulate) else kind
    fields = sorted(getattr(effect, "fields", {}) or {})
    text = f"{kind} {entity.__name__}" if entity else kind
    return f"{text} ({', '.join(fields)})" if fields else text
