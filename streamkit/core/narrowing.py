"""Narrowing: find the one action of a commit that DynamoDB finds invalid.

DynamoDB does not always say which one it is. So the commit is halved until one change is left, then
one handler of it. Where one change is at fault the next ones often are, too, as with a group that
has no room left: commits grow again by doubling, so that a thousand such changes do not cost ten
refused commits each.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from streamkit.core.outcome import Outcome, PendingChange

ALL = 1_000_000
"""The number of changes that a commit may take when only its size limits it."""


@dataclass
class Narrowing:
    """What the next plan may take: at most so many changes; or a single handler, if `split`."""

    most: int = ALL
    split: bool = False

    def narrow(self, changes: int, handlers: int) -> bool:
        """Take less than an invalid commit; return False if it was the least.

        Args:
            changes: how many the commit had.
            handlers: how many of the first change have something to store.
        """
        if changes > 1:
            self.most = changes // 2
        elif self.split or handlers == 1:
            return False
        else:
            self.most, self.split = 1, True
        return True

    def widen(self) -> None:
        """Take twice as many, because a commit has won."""
        self.most, self.split = min(2 * self.most, ALL), False


def unstored(change: PendingChange, done: Iterable[str]) -> list[Outcome]:
    """Return the outcomes of a change that have anything to store which is not stored yet.

    `done` are the handlers that are done with the change, as the cursor names them.
    """
    return [
        outcome
        for outcome in change.outcomes
        if f"{change.position}:{outcome.handler.name}" not in done
        and bool(outcome.parks or outcome.items)
    ]
