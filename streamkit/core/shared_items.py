"""Shared items: what several runs of handlers read is read once."""

from collections.abc import Awaitable, Callable

import anyio

from streamkit.progress.actions import ItemRef, Wire

Item = dict[str, Wire] | None


class SharedItems:
    """The items as the table had them, for runs between which the shard commits nothing."""

    def __init__(self) -> None:
        self._items: dict[ItemRef, Item] = {}
        self._turns: dict[ItemRef, anyio.Lock] = {}

    async def once(self, ref: ItemRef, read: Callable[[], Awaitable[Item]]) -> Item:
        """Return an item; it is read by the first run that asks, also if they ask together."""
        if ref not in self._items:
            # A lock, and not a shared task: a run that is canceled while it reads leaves its turn.
            async with self._turns.setdefault(ref, anyio.Lock()):
                if ref not in self._items:
                    self._items[ref] = await read()
        return self._items[ref]
