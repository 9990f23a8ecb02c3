"""What the coordinator does to the shards of its worker; the worker's shard set does it."""

from collections.abc import Mapping
from typing import Protocol

from streamkit.control import Cursor


class Shards(Protocol):
    """The shards of this worker."""

    @property
    def held(self) -> Mapping[str, Cursor]:
        """Those that it reads, or is about to take, with their cursors."""

    def take(self, cursor: Cursor) -> None:
        """Begin to take a shard, as its cursor was read."""

    def give(self, name: str) -> None:
        """Begin to release a shard."""

    def lose(self, cursor: Cursor) -> None:
        """Drop a shard, if another worker has taken it, as its cursor says now."""

    def pause(self, *, paused: bool) -> None:
        """Stop reading, and keep the shards; or go on."""
