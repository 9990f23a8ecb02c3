"""The application of the demo: devices report, operators correct, escalate and clean up.

Counts and spans are computed from the logs that are left; who was told of what from the writes,
because a notification stays when its log goes.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta

from handlers.devices.entities import STAMP, DeviceLog, Notification
from handlers.devices.handlers import (
    PLANT,
    WARNINGS_KEPT,
    Seen,
    StatesPerDay,
    WarningsPerHour,
)
from streamkit import Key, Put, Set, bucket, present
from streamkit.testing import Comparison, Final, Writer

STATES = ("NORMAL", "NORMAL", "WARNING1", "WARNING2", "WARNING3", "OFF")
OPERATORS = ("liz", "sue", "tom")
SUPERVISORS = ("sara", "paul")
HOUR = timedelta(hours=1)


class Traffic:
    """A plant.

    Args:
        devices: how many it has.
    """

    def __init__(self, *, devices: int = 25) -> None:
        self.devices = [f"{number:05d}" for number in range(devices)]
        self._keys: list[Key[DeviceLog]] = []

    async def open(self, writer: Writer) -> None:
        """Let every device report once."""
        for device in self.devices:
            await self._report(writer, device)

    async def act(self, writer: Writer) -> None:
        """Let something happen in the plant."""
        rng = writer.rng
        dice = rng.random()
        if dice < 0.55:
            await self._report(writer, rng.choice(self.devices))
        elif dice < 0.7:
            await self._change(writer, operator=rng.choice(OPERATORS))
        elif dice < 0.85:
            supervisor = rng.choice(SUPERVISORS) if rng.random() < 0.8 else None
            await self._change(writer, escalated_to=supervisor)
        else:
            await writer.delete(self._take(writer))

    async def _report(self, writer: Writer, device: str) -> None:
        rng = writer.rng
        log = DeviceLog(
            device=device,
            state=rng.choice(STATES),
            date=self._date(writer),
            operator=rng.choice(OPERATORS),
            escalated_to=rng.choice(SUPERVISORS) if rng.random() < 0.1 else None,
            expires=writer.now + timedelta(seconds=rng.uniform(1, 5))
            if rng.random() < 0.15
            else None,
        )
        if log.item_key not in self._keys:
            await writer.put(log)
            self._keys.append(log.item_key)

    async def _change(self, writer: Writer, **fields: str | None) -> None:
        key = self._take(writer)
        await writer.write(Set(key, **fields).only_if(present))
        self._keys.append(key)

    def _take(self, writer: Writer) -> Key[DeviceLog]:
        """Take a log, so that no two writers write to one at once."""
        return self._keys.pop(writer.rng.randrange(len(self._keys)))

    def _date(self, writer: Writer) -> datetime:
        """Return a moment of the last days, or near the time after which warnings are forgotten."""
        rng = writer.rng
        if rng.random() < 0.2:
            return writer.now - WARNINGS_KEPT - rng.uniform(-1, 1) * HOUR
        return writer.now - rng.uniform(0, 48) * HOUR

    # -- what must follow ----------------------------------------------------------------------

    def expected(self, final: Final) -> Iterator[Comparison]:
        """Compare everything that handlers keep with what it follows from."""
        logs = final[DeviceLog]
        days = Counter((log.device, bucket(log.date, "day", tz=PLANT), log.state) for log in logs)
        yield final.compare(
            StatesPerDay,
            [StatesPerDay(device=d, day=day, state=s, logs=n) for (d, day, s), n in days.items()],
        )
        yield _warnings(final)
        by_device = defaultdict(list)
        for log in logs:
            by_device[log.device].append(log)
        yield final.compare(Seen, [_seen(device, found) for device, found in by_device.items()])
        yield final.compare(Notification, _told(final))


def _warnings(final: Final) -> Comparison:
    """Compare the hours that are still kept; older ones are gone, or will be."""
    counts = Counter(
        (log.operator, bucket(log.date, "hour", tz="UTC"))
        for log in final[DeviceLog]
        if log.is_warning
    )
    found = {(g.operator, g.hour): g.warnings for g in final[WarningsPerHour] if g.warnings}
    kept, wanted = (
        {group: n for group, n in groups.items() if group[1] + WARNINGS_KEPT > final.now}
        for groups in (found, counts)
    )
    return Comparison.of("warnings per hour", kept, wanted)


def _seen(device: str, logs: list[DeviceLog]) -> Seen:
    """Return what must be known of a device; in one second the larger key counts as later."""
    ordered = sorted(logs, key=lambda log: (log.date, log.state))
    first, last = ordered[0], ordered[-1]
    return Seen(
        device=device,
        first=first.date,
        last=last.date,
        first_state=first.state,
        last_state=last.state,
    )


def _told(final: Final) -> Iterable[Notification]:
    """Return what supervisors were told, of logs that may be gone by now; the first time counts."""
    logs: dict[Key[DeviceLog], DeviceLog] = {}
    told: dict[Key[Notification], Notification] = {}
    for written in final.log:
        match written.effect:
            case Put(entity=DeviceLog() as log):
                logs[log.item_key] = log
            case Set(key=key, fields=fields):
                logs[key] = log = logs[key].model_copy(update=fields)
            case _:
                continue
        if log.escalated_to is not None:
            notification = Notification(
                supervisor=log.escalated_to,
                device=log.device,
                state=log.state,
                stamp=log.date.strftime(STAMP),
                operator=log.operator,
            )
            told.setdefault(notification.item_key, notification)
    return told.values()
