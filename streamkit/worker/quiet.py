"""Quiet: whether a shard has had changes since this worker wrote anything."""

from dataclasses import dataclass

from streamkit.stream.decode import Page

_BUSY_BYTES = 500_000
_BUSY_RECORDS = 100
"""A page of so many bytes or records is likely to be followed by another."""


@dataclass
class WriteCount:
    """Counts the writes that come back as changes, perhaps in another shard of this worker."""

    number: int = 0

    def note(self) -> None:
        """Count a write: a shard that was quiet must be seen to be quiet again."""
        self.number += 1


@dataclass
class QuietPages:
    """Counts the pages in a row without a change, since this worker wrote something."""

    writes: WriteCount
    _pages: int = 0
    _since: int = 0

    @property
    def number(self) -> int:
        """Return how many quiet pages in a row were read since this worker's last write."""
        return self._pages if self._since == self.writes.number else 0

    def note(self, page: Page, traffic: int) -> None:
        """Count a page with that many records of the application."""
        busy = traffic > 0 or page.size > _BUSY_BYTES or len(page.records) >= _BUSY_RECORDS
        self._pages, self._since = 0 if busy else self.number + 1, self.writes.number

    def note_unread(self) -> None:
        """Count a page that was not read, because something else has to happen first."""
        self._pages, self._since = self.number + 1, self.writes.number
