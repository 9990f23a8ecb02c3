"""The entities of the logs: lines, under keys that spread a day's writes over partitions.

A line's suffix is calculated from its id, so a reader that knows a line's id, day and time can get
it with one read, and a second write of the line writes the same item.
"""

import zlib
from datetime import UTC, date, datetime, timedelta
from typing import Annotated, Literal

from pydantic import AfterValidator, AwareDatetime

from streamkit import Entity, EpochSeconds

SUFFIXES = 8
"""Partitions that a day's lines are spread over."""
KEPT = timedelta(days=60)
"""How long lines stay in the table, from the beginning of their day."""

Level = Literal["DEBUG", "INFO", "ERROR"]

Instant = Annotated[AwareDatetime, AfterValidator(lambda moment: moment.astimezone(UTC))]
"""A moment in UTC, to the microsecond."""


class LogLine(Entity, pk="{day}#{suffix}", sk="{at:%Y-%m-%dT%H:%M:%S.%fZ}#{line_id}"):
    """One line of a log; make them with `new_line`, which fills in what follows."""

    day: date
    suffix: int
    at: Instant
    line_id: str
    level: Level
    text: str
    expires: EpochSeconds | None = None


def new_line(
    line_id: str, at: datetime, level: Level, text: str, *, expires: datetime | None = None
) -> LogLine:
    """Return a line under the key that follows from its id and its moment.

    Args:
        line_id: unique; ids that sort by time keep lines of one microsecond in order.
        at: with a time zone; the day is that of UTC.
        level: how grave it is.
        text: what it says.
        expires: when it goes to the archive, if it is not to stay for `KEPT`.
    """
    day = at.astimezone(UTC).date()
    midnight = datetime(day.year, day.month, day.day, tzinfo=UTC)
    return LogLine(
        day=day,
        suffix=suffix_of(line_id),
        at=at,
        line_id=line_id,
        level=level,
        text=text,
        expires=expires or midnight + KEPT,
    )


def suffix_of(line_id: str) -> int:
    """Return the suffix, 1 to `SUFFIXES`, of the partition that a line is in."""
    return zlib.crc32(line_id.encode()) % SUFFIXES + 1
