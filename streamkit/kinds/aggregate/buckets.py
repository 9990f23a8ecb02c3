"""Group by hour, day or month, and say until when such a group lives. Pure.

    class StatesPerDay(Aggregate[Log], pk="DEVICE#{device}", sk="DAY#{day:%Y-%m-%d}"):
        device: str
        day: datetime
        logs: Annotated[int, Count()] = 0
        expires: Annotated[EpochSeconds | None, Until("day", keep=timedelta(days=30))] = None

        @classmethod
        def group(cls, log: Log) -> Key["StatesPerDay"]:
            return cls.key(device=log.device, day=bucket(log.date, "day", tz="Europe/Berlin"))

In: moments with a time zone, and the name of a time zone: none is ever guessed. On failure:
`ValueError`, which parks the change.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from typing import Any, Literal, get_args
from zoneinfo import ZoneInfo

Unit = Literal["year", "month", "week", "day", "hour", "minute"]
"""How long a bucket is; a week begins on Monday."""


def bucket(moment: datetime, unit: Unit, *, tz: str | tzinfo) -> datetime:
    """Return the start of the bucket that contains a moment, in a time zone.

    A day in which clocks change has 23 or 25 hours and is one bucket; the hour that happens twice
    is two buckets, which differ by their offsets from UTC. So put the offset into keys of hours
    (`{hour}`, or `{hour:%Y-%m-%dT%H%z}`), or take hours in UTC, which also sort.

    Args:
        moment: a moment with any time zone.
        unit: `year`, `month`, `week`, `day`, `hour` or `minute`.
        tz: a name such as `Europe/Berlin` or `UTC`, or a `tzinfo`.

    Raises:
        ValueError: the moment has no time zone, or the name or the unit is unknown.
    """
    if not isinstance(moment, datetime) or moment.tzinfo is None:
        said = "a moment without one" if isinstance(moment, datetime) else type(moment).__name__
        raise ValueError(f"a bucket needs a moment with a time zone, and not {said}")
    if unit not in get_args(Unit):
        raise ValueError(f"a bucket is a {', '.join(get_args(Unit))}, not {unit!r}")
    zone = _zone(tz)
    local = moment.astimezone(zone)
    if unit == "minute":
        start = local.replace(second=0, microsecond=0)
    elif unit == "hour":
        start = local.replace(minute=0, second=0, microsecond=0)
    else:
        # If midnight happens twice, the first one counts; if it does not happen, the day begins
        # later. The conversion to UTC and back gives both.
        start = local.replace(hour=0, minute=0, second=0, microsecond=0, fold=0)
        if unit == "week":
            start -= timedelta(days=start.weekday())
        elif unit == "month":
            start = start.replace(day=1)
        elif unit == "year":
            start = start.replace(month=1, day=1)
    start = start.astimezone(UTC).astimezone(zone)
    # This is a fixed offset: Python takes the hour that happens twice in one zone for one hour.
    return start.replace(tzinfo=timezone(start.utcoffset() or timedelta()), fold=0)


def _zone(tz: str | tzinfo) -> tzinfo:
    if isinstance(tz, tzinfo):
        return tz
    if tz == "UTC":
        return UTC
    try:
        return ZoneInfo(tz)
    except (KeyError, ValueError, OSError):
        raise ValueError(f"{tz!r} is no time zone that this machine knows") from None


@dataclass(frozen=True, slots=True)
class Until:
    """Says until when a time bucket lives: `keep` after the moment in a field of its key.

    Put it in the annotation of an `EpochSeconds` field. Every contribution writes the field; a
    contribution to a bucket that had ended before the change was made is dropped, because DynamoDB
    may have deleted the item. Give the attribute the name of the table's TTL attribute.

    A field that holds a `date` begins at the start of that day in `tz`.
    """

    field: str
    keep: timedelta
    tz: str | tzinfo | None = None

    def moment(self, fields: Mapping[str, Any]) -> datetime:
        """Return the end of the group with these key fields.

        Raises:
            ValueError: the field holds no moment, or one without a time zone.
        """
        start = fields.get(self.field)
        if isinstance(start, date) and not isinstance(start, datetime) and self.tz is not None:
            zone = _zone(self.tz)
            start = datetime(start.year, start.month, start.day, tzinfo=zone).astimezone(UTC)
        if not isinstance(start, datetime) or start.tzinfo is None:
            raise ValueError(f"Until({self.field!r}): the group's key has no such moment")
        # In UTC, because a day of `keep` is 24 hours, also when clocks change.
        return (start.astimezone(UTC) + self.keep).replace(microsecond=0)
