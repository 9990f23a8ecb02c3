"""What is forgotten, until it is freed a slice at a time.

Python frees a million records when the last reference to them goes, and lets nothing else run for
seconds meanwhile. So those who forget many things at once leave them here, and whoever works with
them anyhow frees a few.
"""

from collections import deque
from collections.abc import Iterable
from typing import Any

_SLICE = 8


class Waste:
    """Lists that nobody needs any more."""

    __slots__ = ("_lists",)

    def __init__(self) -> None:
        self._lists: deque[list[Any]] = deque()

    def __len__(self) -> int:
        return len(self._lists)

    def add(self, lists: Iterable[list[Any]]) -> None:
        """Take lists that are referred to from nowhere else, of some hundred members each."""
        self._lists.extend(lists)

    def free(self) -> None:
        """Free a few of them."""
        lists = self._lists
        for _ in range(min(_SLICE, len(lists))):
            lists.popleft()
