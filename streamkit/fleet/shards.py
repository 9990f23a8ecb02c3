"""What the coordinator does to the shards of its worker; the worker's shard set implements it."""

from collections.abc import Mapping
from typing import Protocol

from streamkit.progress.control import Cursor


class Shards(Protocol):
    """The shards of this worker."""

    @property
    def held(self) -> Mapping[str, Cursor]:
        """Return the shards that it reads, or is about to take, with their cursors."""

    def take(self, cursor: Cursor) -> None:
        """Begin to take a shard whose cursor was read."""

    def give(self, name: str) -> None:
        """Begin to release a shard."""

    def lose(self, cursor: Cursor) -> None:
        """Drop a shard, if its cursor says that another worker has taken it."""

    def pause(self, *, paused: bool) -> None:
        """Stop reading, and keep the shards; or continue."""
