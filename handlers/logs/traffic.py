"""The application of the demo: services that log, now and then for the month before.

The lines of debugging expire within seconds. What must be archived, moved and kept is computed from
what was written; what must be counted, from the lines that are left.
"""

from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from handlers.logs.entities import Level, LogLine, new_line
from handlers.logs.handlers import DayCounts, errors_table, month_table
from streamkit.testing import Comparison, Final, Writer

SERVICES = ("web", "shop", "mail")
LEVELS: tuple[Level, ...] = ("DEBUG", "INFO", "INFO", "INFO", "INFO", "ERROR")


class Traffic:
    """Services that log. The table is that of the month in which they begin."""

    def __init__(self) -> None:
        self._number = 0
        self._month = datetime.min.replace(tzinfo=UTC)
        self._keys: list[LogLine] = []

    async def open(self, writer: Writer) -> None:
        """Note the month."""
        self._month = writer.now.replace(day=1, hour=0, minute=0, second=0, microsecond=0)

    async def act(self, writer: Writer) -> None:
        """Log a line, or take a wrong one back."""
        rng = writer.rng
        if self._keys and rng.random() < 0.1:
            line = self._keys.pop(rng.randrange(len(self._keys)))
            await writer.delete(line.item_key)
            return
        line = self._line(writer)
        await writer.put(line)
        if self._is_own(line) and line.level == "INFO":
            self._keys.append(line)

    def _line(self, writer: Writer) -> LogLine:
        rng, now = writer.rng, writer.now
        self._number += 1
        level: Level
        if rng.random() < 0.15:  # it comes late: its month is over
            at, level = self._month - timedelta(days=rng.uniform(0.01, 20)), "INFO"
        else:
            at = now - rng.random() ** 4 * (now - self._month)
            level = rng.choice(LEVELS)
        return new_line(
            f"{self._number:06d}",
            at,
            level,
            f"{rng.choice(SERVICES)}: {rng.randrange(1000)}",
            expires=now + timedelta(seconds=rng.uniform(1, 5)) if level == "DEBUG" else None,
        )

    def _is_own(self, line: LogLine) -> bool:
        return line.at >= self._month

    # -- what must follow ----------------------------------------------------------------------

    def expected(self, final: Final) -> Iterator[Comparison]:
        """Compare everything that handlers keep with what it follows from."""
        put = list(final.puts(LogLine))
        left = final[LogLine]
        late = [line.line_id for line in put if not self._is_own(line)]
        still = {line.line_id for line in left}
        yield Comparison.of(
            "lines of another month are gone",
            {line_id: line_id not in still for line_id in late},
            dict.fromkeys(late, True),
        )
        lines = Counter(line.day for line in left)
        errors = Counter(line.day for line in left if line.level == "ERROR")
        yield final.compare(
            DayCounts,
            [DayCounts(day=day, lines=n, errors=errors[day]) for day, n in lines.items()],
            ignore=("expires",),
        )
        before = month_table(self._month - timedelta(days=1))
        moved = [line for line in put if not self._is_own(line)]
        yield final.compare(LogLine, moved, title="moved lines", table=before)
        kept = [
            line.model_copy(update={"expires": None})
            for line in put
            if line.level == "ERROR" and self._is_own(line)
        ]
        yield final.compare(LogLine, kept, title="errors", table=errors_table(self._month))
        yield Comparison.of(
            "archived lines",
            {delivery.body.line_id: delivery.body for delivery in final.sent["archive"].once},
            {line.line_id: line for line in put if line.expires and line.expires <= final.now},
        )
