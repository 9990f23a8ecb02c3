"""Note which attributes of an item a migration's function reads.

In: an item's plain values. Out: the same, and the names that were read: a write of the migration
checks these. On failure: `NoSuchAttribute` for one that is not there.
"""

from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from typing import Any

from streamkit.migrate.items.rewrites import TransformError


class NoSuchAttribute(TransformError, KeyError):
    """A function reads an attribute that an item does not have, without a default."""

    def __str__(self) -> str:
        """Return the attribute's name; a `KeyError` quotes its argument, and nothing more."""
        return f"an item has no {self.args[0]}; read it with item.get() if that may happen"


class TrackedItem(Mapping[str, Any]):
    """An item that notes which of its attributes are read."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = values
        self.read: set[str] = set()

    def __getitem__(self, name: str) -> Any:
        self.read.add(name)
        if name not in self._values:
            raise NoSuchAttribute(name)
        return self._values[name]

    def __contains__(self, name: object) -> bool:
        self.read.add(str(name))
        return name in self._values

    def __iter__(self) -> Iterator[str]:
        self.read |= self._values.keys()
        return iter(self._values)

    def __len__(self) -> int:
        self.read |= self._values.keys()
        return len(self._values)

    def keys(self) -> AbstractSet[str]:  # type: ignore[override]
        """Return the names of all attributes; each counts as read."""
        self.read |= self._values.keys()
        return self._values.keys()
