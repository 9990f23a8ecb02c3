"""Measure how far the table's other consumers are behind while a migration writes.

A migration's writes are changes that every consumer of the stream has to read; so while one of them
is some minutes behind, the migration's rate shrinks. In: an app's table. Out: the longest lag among
them, in seconds, and whose it is, as far as their cursors tell.
"""

from collections.abc import Callable

import anyio

from streamkit.app import App
from streamkit.aws import Aws
from streamkit.core.tables import AppTables
from streamkit.fleet.directory import entries
from streamkit.fleet.lag import longest_lags
from streamkit.migrate.book.state import ENDED, PASSES, State
from streamkit.migrate.book.state_book import StateBook
from streamkit.migrate.sending.rate import Rate
from streamkit.progress.clock import Clock

_LOOK_SECONDS = 15.0
_LAG_MAX = 150.0
"""Seconds that other consumers may fall behind before a migration slows down.

Of these 60 are no lag: a position without effects is written once a minute, by default.
"""


class Others:
    """Looks at the consumers of one table, except the migration's own.

    `behind` is the one that was furthest behind at the last look; empty if none was.
    """

    def __init__(self, app: App, aws: Aws, tables: AppTables, clock: Clock) -> None:
        self._app, self._aws, self._tables, self._clock = app, aws, tables, clock
        self._ended, self.behind = set[str](), ""

    async def heed(self, rate: Rate, state: Callable[[], State]) -> None:
        """Shrink a rate while other consumers are behind; run until it is cancelled."""
        while True:
            await anyio.sleep(_LOOK_SECONDS)
            if state().phase in PASSES and await self.lag(state()) > _LAG_MAX:
                rate.ease("lag", hold=2 * _LOOK_SECONDS, behind=self.behind)

    async def lag(self, state: State) -> float:
        """Return the longest lag of a consumer; one without workers or paused counts too."""
        table, worst, self.behind = self._tables.table, 0.0, ""
        for entry in await entries(self._aws.dynamodb, self._tables.control):
            mine = entry.consumer == f"{self._app.name}.{state.consumer}"
            if mine or (entry.label, entry.table) != (table.stream_label, table.name):
                continue
            if await self._has_ended(entry.consumer):
                continue
            store = self._tables.named(entry.consumer, table, self._aws)
            lags = await longest_lags(self._aws, table.stream_arn or "", store, self._clock)
            known = [lag.seconds for lag in lags if lag.measure == "measured" and lag.seconds]
            if (lag := max(known, default=0.0)) > worst:
                worst, self.behind = lag, entry.consumer
        return worst

    async def _has_ended(self, consumer: str) -> bool:
        """Return whether a consumer belongs to a run of a migration that has ended.

        No process reads for it any more, so that its lag does not shrink.
        """
        if consumer in self._ended:
            return True
        app, _, own = consumer.rpartition(".")
        number, _, run = own.rpartition("-")
        if not (app and number and run.isdecimal()):
            return False
        state = await StateBook(self._aws.dynamodb, self._tables.control, app).read(number)
        ended = state.run > int(run) or state.phase in ENDED
        if ended:
            self._ended.add(consumer)
        return ended
