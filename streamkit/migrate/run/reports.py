"""Report the speed of each process that runs a migration.

Every few seconds a process writes one item: what it uses a second, why it waits, and the recent
tallies of the pass as it saw them, by its own clock. A list of the processes is stored beside. The
report of a killed process is recognised by its age, and the next process that joins deletes it. The
age is by AWS's clock: by those of two processes, a live one would look dead or a dead one alive.

In: a `Runner`. Out: items, and `Report` for their readers. On failure: an error of the table
ends the reports, not the migration.
"""

from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

import anyio
import msgspec

from streamkit.aws import AwsError
from streamkit.migrate.book.state import PASSES
from streamkit.migrate.run.running import Runner
from streamkit.observe.logger import get_logger
from streamkit.progress.control import names_in
from streamkit.progress.cursor import CursorStore

log = get_logger("streamkit.migrate")

REPORT_SECONDS = 10.0
"""Seconds between two reports; each costs a write and a few reads."""
STALE_SECONDS = 60.0
"""Seconds without a report after which a process does not count, by the table's clock."""
_LOOKS = 13


@dataclass(frozen=True, slots=True)
class Look:
    """The tallies of a pass at one moment (epoch seconds): items read, rewritten, refused."""

    at: float
    scanned: int
    changed: int
    conflicts: int


@dataclass(frozen=True, slots=True)
class Report:
    """The report of one process: units a second, `writes` by index ("" is the table).

    `at` is the table's time, in epoch seconds. `reason` says why it waits: for a consumer that lags
    it is `lag of CONSUMER`, since an earlier release reads no other field. `looks` are of the pass
    `of`, oldest first. `worker` is the name under which it captures changes, empty while it does
    not.
    """

    name: str
    at: float
    of: str = ""
    reads: float = 0.0
    writes: dict[str, float] = field(default_factory=dict)
    reason: str = ""
    looks: tuple[Look, ...] = ()
    worker: str = ""


@dataclass(frozen=True)
class ReportBook:
    """The reports of one migration."""

    store: CursorStore
    migration: str

    async def all(self) -> list[Report]:
        """Return every report, those of dead processes too."""
        names = await self._names()
        items = await self.store.items([("runner", self.migration, n) for n in sorted(names)])
        texts = [item["text"]["S"] for item in items if "text" in item]
        return [msgspec.json.decode(text, type=Report) for text in texts]

    async def write(self, report: Report) -> None:
        """Write a report in place of the previous one."""
        action = self.store.space.update("runner", self.migration, report.name)
        action.sets["text"] = {"S": msgspec.json.encode(report).decode()}
        await self.store.write(action)

    async def join(self, name: str, now: float) -> None:
        """Add a process to the list, and remove those that have been silent for long.

        Its report is written before its name is in the list, or another joining process would
        remove it.
        """
        await self.write(Report(name, now))
        await self.store.write(self.store.space.with_name(name, "runners", self.migration))
        there = {report.name: report.at for report in await self.all()}
        for one in await self._names() - {name}:
            if now - there.get(one, 0.0) > 10 * STALE_SECONDS:
                await self.leave(one)

    async def leave(self, name: str) -> None:
        """Remove a process."""
        space = self.store.space
        await self.store.write(space.delete("runner", self.migration, name))
        await self.store.write(space.without_name(name, "runners", self.migration))

    async def _names(self) -> set[str]:
        return names_in(await self.store.item("runners", self.migration))


class Reporter:
    """Reports for a process, as long as it runs a migration."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self._looks: deque[Look] = deque(maxlen=_LOOKS)
        self._of = ""
        self._spent: tuple[float, float, dict[str, float]] | None = None

    async def run(self) -> None:
        """Report until it is cancelled; then remove the report.

        What AWS refuses is tried again at the next report: people give a lost permission back.
        """
        runner = self._runner
        while runner.state.phase == "new":  # noqa: ASYNC110 - it sets no event
            await anyio.sleep(0.05)
        book = ReportBook(runner.book.store, runner.migration.id)
        joined = False
        try:
            while True:
                try:
                    if not joined:
                        await book.join(runner.owner, await runner.book.store.time(runner.clock))
                    joined = True
                    await book.write(await self._report())
                    await runner.opened.old_writes.flush()
                except AwsError as error:
                    kind = type(error).__name__
                    log.often("migration.unreported", level="warning", by=kind, error=kind)
                await anyio.sleep(REPORT_SECONDS)
        finally:
            with anyio.CancelScope(shield=True), anyio.move_on_after(5):
                await self._leave(book)

    async def _leave(self, book: ReportBook) -> None:
        try:
            await self._runner.opened.old_writes.flush()
            await book.leave(self._runner.owner)
        except AwsError:
            return  # its age shows that it is over

    async def _report(self) -> Report:
        runner, now = self._runner, self._runner.clock.time()
        reads, writes = self._speeds(now)
        state = runner.state
        if state.pass_name != self._of:
            self._of = state.pass_name
            self._looks.clear()
        if state.phase in PASSES:
            tally = await runner.tallies.read(self._of)
            self._looks.append(Look(now, tally.scanned, tally.changed, tally.conflicts))
        looks = tuple(self._looks)
        worker, reason = runner.capture.worker, str(runner.rate.told())
        at = await runner.book.store.time(runner.clock)
        if reason == "lag" and runner.rate.behind:
            reason = f"{reason} of {runner.rate.behind}"
        return Report(
            runner.owner,
            at,
            self._of,
            reads=reads,
            writes=writes,
            reason=reason,
            looks=looks,
            worker=worker,
        )

    def _speeds(self, now: float) -> tuple[float, dict[str, float]]:
        """Return the units a second since the last report."""
        rate, before = self._runner.rate, self._spent
        self._spent = (now, rate.reads, dict(rate.writes))
        if before is None or now <= before[0]:
            return 0.0, {}
        passed = now - before[0]
        writes = {n: (u - before[2].get(n, 0.0)) / passed for n, u in rate.writes.items()}
        return (rate.reads - before[1]) / passed, writes


def fresh(reports: Sequence[Report], now: float, workers: Collection[str]) -> list[Report]:
    """Return the reports of processes that are alive `now`, by the table's clock.

    `workers` capture the migration's changes; those known to be dead are not among them.
    """
    return [
        report
        for report in reports
        if abs(now - report.at) < STALE_SECONDS and (not report.worker or report.worker in workers)
    ]


def longest(reports: Sequence[Report], of: str) -> tuple[Look, ...]:
    """Return the looks of the process that has followed a pass for longest."""
    mine: list[Any] = [report.looks for report in reports if report.of == of]
    return max(mine, key=len, default=())
