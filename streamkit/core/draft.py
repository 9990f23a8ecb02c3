"""Draft: what goes into one transaction, as long as it fits. Pure.

In: actions, in the order of their changes. Out: at most one action per item, within DynamoDB's
limits of items and bytes; what does not fit any more is left to the next transaction.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from streamkit.changes import ItemKey
from streamkit.core.outcome import Outcome, PendingChange
from streamkit.core.reads import Version
from streamkit.progress.actions import BYTES_MAX, ITEMS_MAX, Action, ItemRef
from streamkit.progress.commit import Batch
from streamkit.progress.control import Cursor, QueuedKey
from streamkit.progress.fold import join_read, merge

CLAUSES_MAX = 250
"""The most attributes that one update may change: its expression may have 4 KB, and each attribute
takes up to 15 bytes of it."""


@dataclass(slots=True)
class Draft:
    """A batch that is being filled; `offer` takes all of some actions, or none.

    `room` is how many actions it may hold. `marked` are the items whose high-water marks have taken
    a part of that already. `written` says which runs of handlers write each item.
    """

    room: int = ITEMS_MAX
    marked: set[ItemKey] = field(default_factory=set)
    actions: dict[ItemRef, Action] = field(default_factory=dict)
    size: int = 0
    queued: dict[str, QueuedKey] = field(default_factory=dict)
    sends: list[tuple[PendingChange, Outcome]] = field(default_factory=list)
    plain: dict[ItemRef, Action] = field(default_factory=dict)
    written: dict[ItemRef, tuple[Version, ...]] = field(default_factory=dict)

    def mark(self, change: PendingChange) -> None:
        """Leave room for the high-water mark of each item of a change."""
        for key, _ in change.steps:
            if key not in self.marked:
                self.marked.add(key)
                self.room -= 1

    def offer(self, writes: Sequence[Action], checks: Sequence[Action]) -> bool:
        """Add the actions if they can be folded in and the batch stays within its limits."""
        changed: dict[ItemRef, Action] = {}
        plain: dict[ItemRef, Action] = {}
        for action in writes:
            mine, before = (plain, self.plain) if action.plain else (changed, self.actions)
            there = mine.get(action.ref) or before.get(action.ref)
            merged = action if there is None else _merged(there, action)
            if merged is None:
                return False
            mine[action.ref] = merged
        for check in checks:
            there = changed.get(check.ref) or self.actions.get(check.ref)
            changed[check.ref] = join_read(there, check)
        size, items = self.size, len(self.actions)
        for ref, action in changed.items():
            there = self.actions.get(ref)
            size += action.size() - (there.size() if there else 0)
            items += there is None
        if size > BYTES_MAX or items > self.room:
            return False
        self.actions.update(changed)
        self.plain.update(plain)
        self.size = size
        return True

    def batch(self, cursor: Cursor, changes: int, **then: Any) -> Batch:
        """Return the transaction of so many changes; `then` are the cursor's fields after it."""
        chunks = cursor.chunks | {key.chunk for key in self.queued.values()}
        return Batch(
            replace(cursor, chunks=chunks, **then),
            list(self.actions.values()),
            changes,
            self.queued,
            sends=self.sends,
            plain=list(self.plain.values()),
            written=self.written,
        )


def _merged(first: Action, second: Action) -> Action | None:
    """Merge two actions; None if their sum exceeds 38 digits, or they have too many clauses.

    Alone the second may be valid; if DynamoDB finds it invalid, its change is parked.
    """
    try:
        merged = merge(first, second)
    except ArithmeticError:
        return None
    return merged if merged is None or merged.clauses <= CLAUSES_MAX else None
