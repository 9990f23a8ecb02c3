"""Waste: records that are forgotten are freed a few at a time.

Python frees a million records at once when the last reference to them goes, and nothing else can
run for seconds. So code that forgets many records at once puts them here, and later calls free a
few of them each.
"""

from collections import deque
from collections.abc import Iterable
from typing import Any

_SLICE = 8


class Waste:
    """Lists that are not needed any more."""

    __slots__ = ("_lists",)

    def __init__(self) -> None:
        self._lists: deque[list[Any]] = deque()

    def __len__(self) -> int:
        return len(self._lists)

    def add(self, lists: Iterable[list[Any]]) -> None:
        """Take lists, of some hundred members each, to which there is no other reference."""
        self._lists.extend(lists)

    def free(self) -> None:
        """Free a few of the lists."""
        lists = self._lists
        for _ in range(min(_SLICE, len(lists))):
            lists.popleft()
