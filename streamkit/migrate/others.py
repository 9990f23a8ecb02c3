"""Others: how far the table's other consumers are behind, while a migration writes.

A migration's writes are changes that every consumer of the stream has to read; so while one of them
is some minutes behind, its rate shrinks. In: an app's table. Out: the longest lag among them, in
seconds, as far as their cursors tell.
"""

from collections.abc import Callable

import anyio

from streamkit.actions import CONTROL_PREFIX
from streamkit.app import App
from streamkit.aws import Aws
from streamkit.clock import Clock
from streamkit.control import ControlSpace
from streamkit.cursor import CursorStore
from streamkit.decode import Record
from streamkit.fleet.directory import entries
from streamkit.migrate.rate import Rate
from streamkit.migrate.state import PASSES, State
from streamkit.running.lag import measure
from streamkit.surroundings import Surroundings

_LOOK_SECONDS = 15.0
_LAG_MAX = 150.0
"""Seconds that other consumers may fall behind before a migration holds back.

Of these 60 are no lag: a position without effects is written once a minute, by default.
"""
_SHARDS_MAX = 8
"""Shards of a consumer that are looked into at most each time: the oldest."""


def _is_business(record: Record) -> bool:
    values = (value for key in record.keys.values() for value in key.values())
    return not any(str(value).startswith(CONTROL_PREFIX) for value in values)


class Others:
    """Looks at the consumers of one table, but for the migration's own."""

    def __init__(self, app: App, aws: Aws, around: Surroundings, clock: Clock) -> None:
        self._app, self._aws, self._around, self._clock = app, aws, around, clock

    async def heed(self, rate: Rate, state: Callable[[], State]) -> None:
        """Let a rate shrink while others are behind; for ever, until it is cancelled."""
        while True:
            await anyio.sleep(_LOOK_SECONDS)
            if state().phase in PASSES and await self.lag(state()) > _LAG_MAX:
                rate.ease("lag", hold=2 * _LOOK_SECONDS)

    async def lag(self, state: State) -> float:
        """Return the longest lag of a consumer; one without workers or paused counts too."""
        label = (self._around.table.stream_arn or "").rpartition("/")[2]
        worst = 0.0
        for entry in await entries(self._aws.dynamodb, self._around.control):
            mine = entry.consumer == f"{self._app.name}.{state.consumer}"
            if mine or entry.label != label or entry.table != self._app.table:
                continue
            space = ControlSpace.of(self._around.control, entry.consumer, label)
            worst = max(worst, await self._lag_of(CursorStore(self._aws.dynamodb, space)))
        return worst

    async def _lag_of(self, store: CursorStore) -> float:
        cursors = [c for c in (await store.read_all()).values() if not c.finished]
        worst = 0.0
        for cursor in sorted(cursors, key=lambda c: c.seen)[:_SHARDS_MAX]:
            arn = self._around.table.stream_arn or ""
            lag = await measure(self._aws, arn, cursor, _is_business, self._clock)
            if lag.measure == "measured":
                worst = max(worst, lag.seconds or 0.0)
        return worst
