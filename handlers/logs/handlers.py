"""What follows from what in the logs: one app for each month's table, all made by `app_for`.

A month has a table of its own, so that old months cost no write capacity and go with their table.
A table has a stream of its own: its app has its own name and positions. Around the first of a
month one worker runs the apps of both.
"""

import heapq
from collections.abc import AsyncIterator
from datetime import UTC, date, datetime, timedelta
from typing import Annotated, Any

from handlers.logs.entities import KEPT, SUFFIXES, LogLine
from streamkit import (
    Aggregate,
    App,
    Count,
    Delete,
    EpochSeconds,
    Expired,
    Inserted,
    Put,
    S3Archive,
    Send,
    Table,
    TableShape,
    Until,
    became,
    present,
)

SHAPE = TableShape(ttl="expires")
"""The shape of a month's table; tables of errors have the same keys, and nothing there expires."""


def month_table(day: date) -> str:
    """Name the table of a day's month."""
    return f"Logs-{day:%Y-%m}"


def errors_table(day: date) -> str:
    """Name the table that keeps the errors of a day's year."""
    return f"LogErrors-{day:%Y}"


class DayCounts(Aggregate[LogLine], pk="COUNT#{day}", sk="COUNT", spread=SUFFIXES):
    """How many lines a day has, and how many of them are errors.

    All lines of a day come at once, from all shards, so the counts are spread as the lines are, and
    read as one. They end with the day's lines: lines that expire in due time cost no write.
    """

    day: date
    lines: Annotated[int, Count()] = 0
    errors: Annotated[int, Count(when=lambda line: line.level == "ERROR")] = 0
    expires: Annotated[EpochSeconds | None, Until("day", keep=KEPT, tz="UTC")] = None


def app_for(month: date, *, bucket: str = "logs-archive", **options: Any) -> App:
    """Return the app of a month's table; that of the month before has to be there as well.

    Args:
        month: any day of it.
        bucket: where S3 keeps the lines that have expired.
        options: other options of the app, such as `archive=`.
    """
    own = month_table(month)
    before = month_table(month.replace(day=1) - timedelta(days=1))
    app = App(f"logs-{month:%Y-%m}", table=own, tables=[before, errors_table(month)], **options)
    archive = app.sink(S3Archive("archive", bucket, prefix=f"{own}/"))
    app.aggregate(DayCounts)

    @app.on(cycle="bounded")  # it puts lines elsewhere
    def move(change: Inserted[LogLine]) -> list[Put[LogLine] | Delete[LogLine]] | None:
        """Move a line that came to the wrong table to that of its month, whole or not at all."""
        line = change.new
        if month_table(line.day) == own:
            return None
        here = Delete(line.item_key).only_if(present, otherwise="skip")
        return [here, Put(line).to(month_table(line.day))]

    @app.on(when=became("level", "ERROR"), writes=())  # nothing in this table
    def keep_error(change: Inserted[LogLine]) -> Put[LogLine] | None:
        """Keep an error with those of its year, also when the month is gone."""
        line = change.new
        if month_table(line.day) != own:
            return None  # it is kept from where it is moved to
        return Put(line.model_copy(update={"expires": None})).to(errors_table(line.day))

    @app.on
    def archive_line(change: Expired[LogLine]) -> Send:
        """Archive a line that has expired; one that was deleted or moved is not."""
        return Send(archive, change.old)

    return app


async def lines_of(table: Table, day: date) -> AsyncIterator[LogLine]:
    """Yield the lines of a day in order: one query for each suffix, merged."""
    pages = [
        [line async for line in table.query(LogLine.query(day=day, suffix=suffix))]
        for suffix in range(1, SUFFIXES + 1)
    ]
    for line in heapq.merge(*pages, key=lambda line: (line.at, line.line_id)):
        yield line


def first_of_month(moment: datetime) -> date:
    """Return the first day of a moment's month, in UTC."""
    return moment.astimezone(UTC).date().replace(day=1)


this_month = first_of_month(datetime.now(UTC))
app = app_for(this_month)
previous = app_for(this_month - timedelta(days=1))
