"""What follows from what in the device logs: counts by day and hour, spans, notifications."""

from datetime import datetime, timedelta
from typing import Annotated

from handlers.devices.entities import STAMP, DeviceLog, Moment, Notification
from streamkit import (
    Aggregate,
    App,
    Count,
    EpochSeconds,
    First,
    Inserted,
    Key,
    Last,
    Max,
    Min,
    Modified,
    Put,
    Query,
    TableShape,
    Until,
    absent,
    bucket,
    changed,
)

PLANT = "Europe/Berlin"
"""Where the devices are: days are those of the plant, with 23 or 25 hours when clocks change."""
WARNINGS_KEPT = timedelta(days=7)

app = App("devices", table="DeviceLogs", entities=[Notification])

SHAPE = TableShape(ttl="expires")


@app.aggregate
class StatesPerDay(
    Aggregate[DeviceLog], pk="STATES#{device}", sk="{day:%Y-%m-%d}#{state}", remove_empty=True
):
    """How often a device was in a state, on a day of the plant."""

    device: str
    day: datetime
    state: str
    logs: Annotated[int, Count()] = 0

    @classmethod
    def group(cls, log: DeviceLog) -> Key["StatesPerDay"]:
        """Count by device, day and state."""
        day = bucket(log.date, "day", tz=PLANT)
        return cls.key(device=log.device, day=day, state=log.state)


@app.aggregate
class WarningsPerHour(Aggregate[DeviceLog], pk="WARNINGS#{operator}", sk="{hour:%Y-%m-%dT%HZ}"):
    """How many warnings an operator had within an hour (UTC); kept for a week."""

    operator: str
    hour: datetime
    warnings: Annotated[int, Count()] = 0
    expires: Annotated[EpochSeconds | None, Until("hour", keep=WARNINGS_KEPT)] = None

    @classmethod
    def group(cls, log: DeviceLog) -> Key["WarningsPerHour"] | None:
        """Count warnings alone; a log that is given to another operator moves."""
        if not log.is_warning:
            return None
        return cls.key(operator=log.operator, hour=bucket(log.date, "hour", tz="UTC"))


@app.aggregate
class Seen(Aggregate[DeviceLog], pk="SEEN#{device}", sk="SEEN#{device}"):
    """When a device was first and last seen, and in which states, as far as its logs go back."""

    device: str
    first: Annotated[Moment | None, Min("date")] = None
    last: Annotated[Moment | None, Max("date")] = None
    first_state: Annotated[str | None, First("state", by="date")] = None
    last_state: Annotated[str | None, Last("state", by="date")] = None

    @classmethod
    def members(cls, device: str) -> Query[DeviceLog]:
        """Return a device's logs: who is first if the first one goes."""
        return DeviceLog.query(device=device)


@app.on(when=changed("escalated_to"))
def notify(
    change: Inserted[DeviceLog] | Modified[DeviceLog],
) -> Put[Notification] | None:
    """Tell a supervisor of a log that was escalated to them, once for each log."""
    log = change.new
    if log.escalated_to is None:
        return None
    told = Notification(
        supervisor=log.escalated_to,
        device=log.device,
        state=log.state,
        stamp=log.date.strftime(STAMP),
        operator=log.operator,
    )
    return Put(told).only_if(absent, otherwise="omit")
