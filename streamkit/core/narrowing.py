"""Narrowing: find the one action of a commit that DynamoDB finds invalid.

DynamoDB does not always say which one it is. So the commit is halved until one change is left, then
one handler of it.
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

    def narrow(self, changes: int) -> bool:
        """Take less than an invalid commit of so many changes; return False if it was the least."""
        if changes > 1:
            self.most = changes // 2
        elif self.split:
            return False
        else:
            self.most, self.split = 1, True
        return True

    def reset(self) -> None:
        """Take all again, because a commit has won."""
        self.most, self.split = ALL, False


def culprit(change: PendingChange, done: Iterable[str]) -> Outcome | None:
    """Return the first outcome of a change that has anything to store which is not stored yet.

    `done` are the handlers that are done with the change, as the cursor names them.
    """
    for outcome in change.outcomes:
        stored = f"{change.position}:{outcome.handler.name}" in done
        if not stored and bool(outcome.parks or outcome.items):
            return outcome
    return None
