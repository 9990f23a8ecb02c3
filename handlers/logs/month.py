"""A month in a minute: logs with an archive, in virtual time, with a weekend without workers.

    python -m handlers.logs.month

Lines are written every day. Shards end, as they do. From the third to the fifth day the app is
paused, for longer than its stream keeps anything; then it goes on in the archive. At the end each
day's count is compared with its lines, the archive is verified, and the table of the eighth day is
restored from it.
"""

import sys
from collections import Counter
from datetime import UTC, date, datetime, timedelta

from handlers.logs.entities import Level, LogLine, new_line
from handlers.logs.handlers import SHAPE, DayCounts, app_for, errors_table, month_table
from streamkit import TableShape
from streamkit.archive import Flush
from streamkit.aws import Aws, connect
from streamkit.local.engine import Engine
from streamkit.local.transport import session_class
from streamkit.operate.consumers import pause_consumer, resume_consumer
from streamkit.operate.past.archives import verify_archive
from streamkit.operate.restore.restore import restore_into_engine
from streamkit.operate.restore.target import TABLE, RestoreWish
from streamkit.settings import Settings
from streamkit.testing import Harness
from streamkit.testing.archives import MemoryArchive
from streamkit.testing.loop import EPOCH

DAYS = 30
AWAY = range(3, 6)
LOOKED_AT = 8
_RARELY = Settings(
    poll_ceiling=1800, heartbeat=900, lease=2000, list_interval=3600, look_interval=1800
)
_REST = "23h"
"""What is left of a day; the first hour or so passes while the worker settles."""


class Month:
    """One month of logs, and what was seen of it."""

    def __init__(self, lines: int, days: int = DAYS) -> None:
        began = datetime.fromtimestamp(EPOCH, UTC)
        month = began.date().replace(day=1)
        self.app = app_for(month, archive=MemoryArchive(flush=Flush(seconds=3600)))
        others = [month_table(month - timedelta(days=1)), errors_table(month)]
        shapes = [TableShape().create_table(name, (), stream=False) for name in others]
        self.harness = Harness(self.app, shape=SHAPE, others=shapes, settings=_RARELY, shards=2)
        self.days = days
        self.lines, self.month = lines, datetime(month.year, month.month, 1, tzinfo=UTC)
        self.written: Counter[date] = Counter()
        self.then, self.there = 0.0, 0

    def play(self) -> int:
        """Play the month; return how many things are not as they must be."""
        with self.harness:
            for day in range(1, self.days + 1):
                self._day(day)
            return self._compared()

    def _day(self, day: int) -> None:
        harness, clock = self.harness, self.harness.world.clock
        if day == AWAY.start:
            harness.operate(lambda aws: pause_consumer(self.app, aws, clock=clock))
        for number in range(self.lines):
            at = self.month + timedelta(days=day - 1, minutes=number)
            level: Level = "ERROR" if number % 7 == 0 else "INFO"
            line = new_line(f"{day:02d}-{number:04d}", at, level, "hello", expires=None)
            self.written[line.day] += 1
            harness.put(line)
        if day not in AWAY:
            harness.settle()
        if day == LOOKED_AT:
            harness.advance(60)
            self.then, self.there = clock.time(), len(harness.scan(LogLine))
        harness.advance(_REST)
        if day % 3 == 0:
            harness.roll()
        if day == AWAY.stop - 1:
            behind = sum(harness.get(DayCounts.key(day=one)) is None for one in self.written)
            _say(f"day {day}: away for {len(AWAY)} days; {behind} days are not counted")
            harness.operate(lambda aws: resume_consumer(self.app, aws))
            harness.settle()

    def _compared(self) -> int:
        harness, clock = self.harness, self.harness.world.clock
        harness.settle()
        counted = {one.day: one.lines for one in harness.scan(DayCounts)}
        wrong = sum(counted.get(day) != lines for day, lines in self.written.items())
        lines = sum(self.written.values())
        _say(f"{lines} lines of {len(self.written)} days; {wrong} counts differ")
        found = harness.operate(lambda aws: verify_archive(self.app, aws, sample=100, clock=clock))
        size = f"{found.records} changes in {found.links} objects"
        _say(f"the archive has {size}; whole: {found.whole}")
        restored = harness.operate(self._restored)
        _say(f"the table of day {LOOKED_AT}, from the archive: {restored} of {self.there} lines")
        return wrong + (not found.whole) + (restored != self.there)

    async def _restored(self, aws: Aws) -> int:
        """Restore the table as it was on the eighth day, and count its lines."""
        wish, clock = RestoreWish(self.then, TABLE), self.harness.world.clock
        async with connect(http_session=session_class(Engine())) as local:
            await restore_into_engine(self.app, aws, local, wish, clock)
            items = await local.dynamodb.scan(TableName=self.app.table)
            return sum("level" in item for item in items["Items"])


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main(*, lines: int = 8) -> int:
    """Play a month with so many lines a day; 0 if everything is as it must be, else 1."""
    return int(Month(lines).play() > 0)


if __name__ == "__main__":
    sys.exit(main())
