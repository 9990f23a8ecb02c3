"""Segments: a part of a table that is scanned, and how far it is read.

A `Segment` belongs to one process, which keeps its progress in memory. A `LeasedSegment` is a
leased cursor in the table. Its position is the last key that was read, so that any process can
continue where another one stopped. Up to 99 actions are committed together with its progress.

On failure: after another process has taken a segment, the commits of its former owner are refused
with `LeaseLost`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import anyio

from streamkit.errors import LeaseLost
from streamkit.progress.actions import Action, Wire
from streamkit.progress.commit import Applied, Batch, Committer, Verdict
from streamkit.progress.control import START, Cursor
from streamkit.progress.scan.places import place_of, place_text
from streamkit.progress.verdicts import Again


class Segment:
    """A segment that one process reads; once `stopping` is set, it is left at the next page."""

    def __init__(self, number: int, total: int, stopping: anyio.Event | None = None) -> None:
        self.number = number
        self.total = total
        self.stopping = stopping or anyio.Event()
        self._last: Mapping[str, Wire] | None = None
        self._finished = False

    @property
    def finished(self) -> bool:
        """Return whether it is read to its end."""
        return self._finished

    @property
    def last(self) -> Mapping[str, Wire] | None:
        """Return the last key that was read; None at the beginning."""
        return self._last

    @property
    def request(self) -> dict[str, Any]:
        """Return the `Scan` request for the next page, strongly consistent."""
        place = {"ExclusiveStartKey": self.last} if self.last else {}
        of = {"Segment": self.number, "TotalSegments": self.total}
        return {**of, **place, "ConsistentRead": True}

    async def advance(self, last: Mapping[str, Wire] | None) -> None:
        """Move to the last key of a page, None at the end.

        Raises:
            LeaseLost: it is leased, and another process has it.
        """
        self._last, self._finished = last, last is None


class LeasedSegment(Segment):
    """A segment under lease."""

    def __init__(
        self, number: int, total: int, committer: Committer, stopping: anyio.Event
    ) -> None:
        super().__init__(number, total, stopping)
        self.committer = committer
        self._busy = anyio.Lock()

    @property
    def cursor(self) -> Cursor:
        """Return the cursor, as this owner last wrote it."""
        return self.committer.cursor

    @property
    def finished(self) -> bool:
        """Return whether it is read to its end, and the table says so."""
        return self.cursor.finished

    @property
    def last(self) -> Mapping[str, Wire] | None:
        """Return the last key that was read, as the table says."""
        return None if self.cursor.position == START else place_of(self.cursor.position)

    async def commit(self, last: Mapping[str, Wire] | None, actions: Sequence[Action]) -> Verdict:
        """Move to the last key of a page, None at the end, together with up to 99 actions.

        Returns:
            The verdict: applied, or what was refused or invalid. Never `Again`.

        Raises:
            LeaseLost: another process has the segment.
        """
        async with self._busy:
            then = replace(self.cursor, takes=0)
            if last is None:
                then = replace(then, state="finished")
            else:
                then = replace(then, position=place_text(last))
            return await self._send(Batch(then, list(actions)))

    async def advance(
        self, last: Mapping[str, Wire] | None, actions: Sequence[Action] = ()
    ) -> None:
        """Move to the last key of a page like `commit`, with actions that carry no condition.

        Raises:
            LeaseLost: another process has the segment, or an action is invalid.
        """
        verdict = await self.commit(last, actions)
        if not isinstance(verdict, Applied):
            raise LeaseLost(f"segment {self.cursor.name}: {verdict}")

    async def renew_for_ever(self, seconds: float) -> None:
        """Write to the segment while a page takes long, so that no other process takes it."""
        while True:
            before = self.cursor.commit
            await anyio.sleep(seconds)
            async with self._busy:
                if self.cursor.commit == before and not self.finished:
                    await self._send(Batch(self.cursor))

    async def _send(self, batch: Batch) -> Verdict:
        pause = 0.05
        while True:
            verdict = await self.committer.commit(batch)
            if not isinstance(verdict, Again):
                return verdict
            await anyio.sleep(pause)
            pause = min(2 * pause, 2.0)
