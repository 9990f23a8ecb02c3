"""Items as they were read: a model that remembers the key that its item was read with.

Copies remember it too, as long as the fields in the key stay the same. So an update goes to the
item that was seen, even if its fields would build another key.
"""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Self, TypeVar

from pydantic import BaseModel

from streamkit.model.keys import StoredKey
from streamkit.model.spec import EntitySpec

T = TypeVar("T", bound="ItemAsRead")


class ItemAsRead(BaseModel):
    """The base of entities: an item, and the key that it was read with, if it was read."""

    __slots__ = ("__stored_key__",)

    __entity__: ClassVar[EntitySpec | None] = None
    __keyless__: ClassVar[str] = "an abstract base has no keys; declare pk"

    def __copy__(self) -> Self:
        """Copy the item; the copy is of the same stored item."""
        return _same_item(self, super().__copy__())

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> Self:
        """Copy the item and its values; the copy is of the same stored item."""
        return _same_item(self, super().__deepcopy__(memo))

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """Copy the item with other values; with another key field it is another item."""
        copied = super().model_copy(update=update, deep=deep)
        spec = type(self).__entity__
        for name in (update or {}).keys() & (spec.key_fields if spec else ()):
            if getattr(copied, name) != getattr(self, name):
                object.__setattr__(copied, "__stored_key__", None)
        return copied

    def __setattr__(self, name: str, value: Any) -> None:
        """Set a field of an entity that is declared mutable."""
        super().__setattr__(name, value)
        spec = type(self).__entity__
        if spec is not None and name in spec.key_fields:
            object.__setattr__(self, "__stored_key__", None)


def stored_key(item: ItemAsRead) -> StoredKey | None:
    """Return the key that an item was read with; `None` for an item that was not read."""
    try:
        return _read_stored_key(item)
    except AttributeError:
        return None


# Past pydantic's `__getattr__`, which takes three times as long to say that there is none.
_read_stored_key: Callable[[ItemAsRead], StoredKey | None] = vars(ItemAsRead)[
    "__stored_key__"
].__get__


def remember_key(item: ItemAsRead, key: StoredKey) -> None:
    """Store in an item the key that it was read with."""
    object.__setattr__(item, "__stored_key__", key)


def _same_item(item: ItemAsRead, other: T) -> T:
    key = stored_key(item)
    if key is not None:
        remember_key(other, key)
    return other
