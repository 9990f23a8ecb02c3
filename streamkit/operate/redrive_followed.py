"""Redrive: follow the parked changes of a migration's own consumers again, for an operator.

In: an app and a migration's number. Out: one report for each parked queue. Its processes try them
again themselves, until they are stuck.
"""

from typing import Any

from streamkit.app import App
from streamkit.aws import Aws
from streamkit.changes import Change
from streamkit.migrate.book.order import migration_of
from streamkit.migrate.book.refusals import require_latest
from streamkit.migrate.book.state import ENDED
from streamkit.migrate.run.capture import Capture
from streamkit.migrate.run.live import LiveWork
from streamkit.migrate.verify.mending import open_work
from streamkit.operate.redrive import QueueReport, redrive
from streamkit.progress.clock import Clock, SystemClock


async def redrive_followed(
    app: App, aws: Aws, number: str, *, clock: Clock | None = None
) -> list[QueueReport]:
    """Do with each parked change what the phase requires; nothing once the migration has ended.

    Raises:
        ConfigurationError: it was never begun, a table is missing, or a later migration of the same
            items was begun.
    """
    clock = clock or SystemClock()
    async with open_work(app, aws, migration_of(app, number), clock) as (opened, work):
        await require_latest(app, opened.book, work.migration)

        async def live(change: Change[Any], *, target: bool) -> None:
            await LiveWork(work, target).take(change)

        reports = list[QueueReport]()
        if work.state.phase not in ENDED:
            for side in Capture(opened, live).sides(work.state):
                reports += await redrive(side.app, opened.aws, clock=clock)
        return reports
