"""The tail of a chain: what a writer has read of a shard, and has not stored yet.

    stored ──► [hole] ──► records, as they are read          one link, or two if some were trimmed

In: pages, in order. Out: links, once there is enough or time has passed. streamkit's own records
move the position, and are left out. A hole is known to be one when the stream says that records are
trimmed, and its end only when the next record comes.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from streamkit.archive.chain import Chain
from streamkit.archive.link import BEYOND, Lines, Link, LinkKind, key_of
from streamkit.archive.objects import Flush
from streamkit.progress.actions import CONTROL_PREFIX
from streamkit.stream.decode import Record
from streamkit.stream.decode.envelope import POSITION_DIGITS


@dataclass(frozen=True, slots=True)
class ReadLink:
    """A link that is ready to be stored, with its records."""

    link: Link
    lines: Lines

    def behind(self, position: str) -> "ReadLink":
        """Return what is behind a position up to which other workers have stored."""
        if position <= self.link.after:
            return self
        last = max(self.link.last, position)
        link = msgspec.structs.replace(self.link, after=position, last=last)
        return ReadLink(link, self.lines.behind(position))


class Tail:
    """What was read of one shard behind `begin`, up to `last`; `dated` is of its last record.

    `pk` is the name of the partition key, by which streamkit's own items are told.
    """

    def __init__(self, chain: Chain, pk: str, flush: Flush, begin: str) -> None:
        self.chain = chain
        self.begin = self.last = key_of(begin)
        self.dated = 0.0
        self._pk, self._flush = pk, flush
        self._lines = Lines()
        self._gap = ""
        self._behind_gap = ""
        self._resumed = 0.0
        self._since = 0.0

    @property
    def waits(self) -> bool:
        """Return whether records were trimmed and none was read since: the end is not known."""
        return bool(self._gap and not self._behind_gap)

    def due(self, now: float, room: int) -> float:
        """Return the seconds until the tail must be stored; it may take `room` bytes."""
        if self._behind_gap:
            return 0.0  # readers wait for a hole
        if not self._lines.count:
            return self._flush.seconds
        full = self._lines.size >= min(self._flush.size, room)
        return 0.0 if full else self._since + self._flush.seconds - now

    def add(self, records: Sequence[Record], now: float) -> int:
        """Add the records of a page; return how many of them are the application's."""
        if not records:
            return 0
        if self.waits:
            before = f"{int(records[0].position) - 1:0{POSITION_DIGITS}}"
            self._behind_gap, self._resumed = max(before, self.last), records[0].created_at
        fresh = [r for r in records if r.position > self.last and not self._is_own(r)]
        if fresh and not self._lines.count:
            self._since = now
        self._lines.add(fresh)
        self.last = max(self.last, records[-1].position)
        self.dated = records[-1].created_at
        return len(fresh)

    def _is_own(self, record: Record) -> bool:
        return record.keys.get(self._pk, {}).get("S", "").startswith(CONTROL_PREFIX)

    def lose(self, *, gone: bool) -> None:
        """Record that the following records were trimmed; `gone`: all up to the shard's end.

        What was read before must be stored already.
        """
        self._gap = self._gap or self.last
        if gone:
            self._behind_gap = self.last = BEYOND

    def take(self, kind: LinkKind = "data") -> list[ReadLink]:
        """Return the links that were read, and begin again behind them."""
        if self.waits:
            return []
        parts: list[ReadLink] = []
        begin, lines = self.begin, self._lines
        if self._gap and self._gap < self._behind_gap:
            hole = msgspec.structs.replace(
                self.chain.link(self._gap, self._behind_gap),
                kind="hole",
                reason="they were trimmed before they were archived",
                until=self._resumed,
            )
            parts.append(ReadLink(hole, Lines()))
            begin = self._behind_gap
        if begin < self.last or kind == "end":
            link = msgspec.structs.replace(self.chain.link(begin, self.last), kind=kind)
            parts.append(ReadLink(link, lines))
        self.begin, self._lines, self._gap, self._behind_gap = self.last, Lines(), "", ""
        return parts

    def go_to(self, position: str) -> None:
        """Begin behind what another worker has stored, and drop the records before that."""
        if position > self.begin:
            self._lines = self._lines.behind(position)
            self.begin, self.last = position, max(self.last, position)
