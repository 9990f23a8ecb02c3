"""How far a shard was read, and whether anything can be gone that was not.

A stream keeps its records for 24 hours. Records that may have been trimmed unread are a
`RetentionLost`; nothing is skipped in silence:

    position behind the horizon   a loss, unless age explains it: the change at the position is
                                  older than the retention, and the shard was read to its tip
                                  within it. Then nothing newer can be gone, and reading goes on at
                                  the horizon. If a younger position is trimmed, the stream does
                                  not keep what it promises
    never read                    a loss, if the last time its parent was read to the tip (or else
                                  the start of the consumer) is about as long ago as the retention
    shard gone                    a loss, unless it was never read and the consumer has just begun:
                                  it was gone before that could have read it

In: a cursor, and the pages that are read after its position. Out: the position, and the error.
"""

import msgspec

from streamkit.errors import RetentionLost
from streamkit.progress.clock import Clock
from streamkit.progress.control import START, Cursor
from streamkit.stream.decode import Page
from streamkit.stream.start import RETENTION_SECONDS

_SAFE_SECONDS = RETENTION_SECONDS - 3600
"""Records younger than this are safe from trimming, which is not exact to the second; clocks differ
too.
"""
_UNREAD_SECONDS = RETENTION_SECONDS - 900
"""The age at which an unread shard may be trimmed. No call of the service says so for a shard that
was never read: only this clock does, and it may be minutes behind."""
_SETTLED_SECONDS = _SAFE_SECONDS - 3600
"""Younger records count as still there after a loss; an hour is left to read on before the next
one."""
_TIP_PAGES = 10
"""After so many empty pages in a row the tip is reached: sparse shards were measured to need four
or five.
"""
_FOUNDING_SECONDS = 3600
"""A shard that is gone so soon after the consumer's founding was gone before it; clocks differ."""


class ReadProgress:
    """How far one shard was read, from the position of a cursor.

    `position` is where it has read to, zero-padded to 40 digits or `START`. Every record created
    before `seen` (epoch seconds) has been read, except those that a settled loss may have taken.

    `dated` is when the change at `position` was created; for `START` it is the earliest moment for
    any; 0 is unknown, or known to be trimmed. Records created before `since` are dropped. `founded`
    is when the consumer began: from then on a record trimmed unread is a loss. `half_done` says
    that a change after `position` is known to exist, because it was begun. All times are epoch
    seconds, 0 for none.
    """

    __slots__ = (
        "_empty",
        "clock",
        "dated",
        "founded",
        "half_done",
        "position",
        "seen",
        "shard_id",
        "since",
    )

    def __init__(self, begin: Cursor, clock: Clock, founded: float) -> None:
        """Start at the cursor's position."""
        self.shard_id, self.position = begin.name, begin.position
        self.dated: float = begin.dated
        self.seen: float = begin.seen
        self.since: float = begin.since
        self.half_done = bool(begin.done or begin.trying)
        self.clock, self.founded = clock, founded
        self._empty = 0

    def note_empty(self, read_at: float) -> None:
        """Record an empty page, read at that time (0 for now); some in a row mean the tip."""
        self._empty += 1
        if self._empty >= _TIP_PAGES:
            self.seen = max(self.seen, read_at or self.clock.time())
            if self.position == START:
                self.dated = self.seen

    def after_position(self, page: Page) -> Page:
        """Drop records that were read before: a page may be served twice."""
        self._empty = 0
        records = page.records
        if self.position != START and records[0].position <= self.position:
            records = tuple(r for r in records if r.position > self.position)
            page = msgspec.structs.replace(page, records=records)
        if records:
            self.position, self.dated = records[-1].position, records[-1].created_at
            self.half_done = False  # the change that was begun is read now
            self.seen = max(self.seen, records[-1].created_at)
        return page

    def accept(self, loss: RetentionLost) -> None:
        """Record a settled loss: what it may have taken counts as read."""
        settled = self.clock.time() - _SETTLED_SECONDS
        self.seen = max(self.seen, min(loss.until, settled))
        self.dated = 0.0

    @property
    def may_be_trimmed_unread(self) -> bool:
        """Return whether a shard that was never read may have lost its first records."""
        return bool(self._read_up_to) and self.clock.time() - self._read_up_to > _UNREAD_SECONDS

    @property
    def _read_up_to(self) -> float:
        """Return the time before which all is read, or was never this consumer's."""
        known = max(self.seen, self.since)
        return known or (self.founded if self.position == START else 0.0)

    def _is_fresh(self) -> bool:
        """Return whether everything older than the horizon is known to have been read."""
        if self.position == START and not self._read_up_to:
            return True
        return self.clock.time() - self._read_up_to < _SAFE_SECONDS

    def is_explained(self) -> bool:
        """Return whether age alone explains a trimmed position, so that nothing unread is gone."""
        return self._is_fresh() and not self._is_young()

    def _is_young(self) -> bool:
        """Return whether the change at the position should still be there."""
        return bool(self.dated) and self.clock.time() - self.dated < _SAFE_SECONDS

    def may_be_new(self) -> bool:
        """Return whether the shard may be so new that the service does not know it everywhere."""
        return self.position == START and self._is_fresh()

    def began_too_late(self) -> bool:
        """Return whether the shard was never read because the consumer began after its end.

        A shard that the consumer had time to read counts as readable, however young the consumer
        is.
        """
        had_time = self.founded and self.clock.time() - self.founded > _FOUNDING_SECONDS
        return self.position == START and not self.seen and self._is_fresh() and not had_time

    def loss(self, text: str, *, gone: bool = False) -> RetentionLost:
        """Return the error of a loss; `gone` says that the stream no longer has the shard."""
        certain = gone and self.half_done
        known, now = self._read_up_to, self.clock.time()
        early = self._is_young() and not gone
        if early:
            text += f"; they were trimmed early, {(now - self.dated) / 3600:.1f} h after its change"
        return RetentionLost(
            f"shard {self.shard_id}: {'loss' if certain else 'possible loss'}: {text}",
            shard=self.shard_id,
            after=self.position,
            since=known,
            until=now if early else max(known, now - _SETTLED_SECONDS),
            certain=certain,
            gone=gone,
        )
