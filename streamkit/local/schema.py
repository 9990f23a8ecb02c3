"""Primary keys: their attributes, and the values that these may have.

A `KeySchema` belongs to a table or an index. It finds the place of an item, and refuses keys that
do not fit, in the service's words. A refusal that depends on the table, not on the request alone,
is a `SchemaMismatch`: a transaction reports it among its reasons. An `EmptyKeyValue` is never among
them; it refuses the whole request.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from streamkit.local.errors import ApiError, serialization, validation
from streamkit.local.partitions import Place
from streamkit.local.values import AttributeValue, Item, canonical, sort_token, value_size

_MOST_HASH_BYTES = 2048
_MOST_RANGE_BYTES = 1024
# No character takes more than four bytes.
_SURELY_FITS = _MOST_RANGE_BYTES // 4
_TYPE_NAMES = {"S": "string", "B": "binary"}


class SchemaMismatch(ApiError):
    """A ValidationException because the request does not fit the table's keys or items."""

    def __init__(self, message: str) -> None:
        super().__init__("ValidationException", message)


class EmptyKeyValue(ApiError):
    """A ValidationException for an empty value of a key attribute."""

    def __init__(self, message: str) -> None:
        super().__init__(
            "ValidationException", f"One or more parameter values are not valid. {message}"
        )


class KeySchema:
    """The attributes of a primary key and their types.

    The partition key and the sort key of a global index may have several attributes each; those of
    a table have one.

    Args:
        elements: the `KeySchema` of a table or index, its partition key first.
        types: the types of its attributes, and perhaps of more attributes.

    Attributes:
        short: values of up to so many characters are surely not too long.
    """

    __slots__ = (
        "_single",
        "elements",
        "hash_name",
        "hash_names",
        "hash_type",
        "name_set",
        "names",
        "range_name",
        "range_names",
        "short",
        "types",
    )

    def __init__(self, elements: list[dict[str, str]], types: Mapping[str, str]) -> None:
        self.elements = elements
        self.names = tuple(element["AttributeName"] for element in elements)
        self.name_set = frozenset(self.names)
        self.types = {name: types[name] for name in self.names}
        count = sum(element["KeyType"] == "HASH" for element in elements)
        self.hash_names, self.range_names = self.names[:count], self.names[count:]
        self.hash_name = self.names[0]
        self.hash_type = self.types[self.hash_name]
        self.range_name = self.range_names[0] if self.range_names else None
        most = max(count, len(self.range_names))
        self._single = most == 1
        self.short = _SURELY_FITS // most

    def place(self, item: Item) -> Place:
        """Return the place of an item that has the key, or of the key alone."""
        if self._single:
            hash_value: str = item[self.hash_name][self.hash_type]
            if self.range_name is None:
                return hash_value, ()
            return hash_value, (sort_token(item[self.range_name]),)
        entry = tuple(sort_token(item[name]) for name in self.range_names)
        return self.partition([item[name] for name in self.hash_names]), entry

    def partition(self, values: Sequence[AttributeValue]) -> str:
        """Return what names the partition of these values of the partition key's attributes."""
        raw: list[str] = [next(iter(value.values())) for value in values]
        # With their lengths, because "a", "bc" and "ab", "c" are different keys.
        return raw[0] if len(raw) == 1 else "".join(f"{len(one)}:{one}" for one in raw)

    def key(self, item: Item) -> Item:
        """Return the key attributes of an item that has them."""
        return {name: item[name] for name in self.names}

    def holds(self, item: Item) -> bool:
        """Return whether an item has all key attributes, with valid values."""
        long = False
        for name, kind in self.types.items():
            value = item.get(name)
            raw = None if value is None else value.get(kind)
            if not raw:
                return False
            if len(raw) > self.short:
                long = True
        return not (long and self._size_complaint(item))

    def checked_key(self, key: Any) -> Item:
        """Return the canonical form of a key that a request gives.

        Raises:
            ApiError: the key is not exactly a key of this schema.
        """
        if type(key) is not dict:
            raise serialization("Unexpected value type in payload")
        values = {name: canonical(value) for name, value in key.items()}
        checked: Item = {}
        for name, kind in self.types.items():
            value = values.get(name)
            raw = None if value is None else value.get(kind)
            if value is None or raw is None:
                raise key_mismatch()
            if not raw or len(raw) > _SURELY_FITS:
                self._check_value(name, value)
            checked[name] = value
        if len(values) != len(checked):
            raise key_mismatch()
        return checked

    def check_item(self, item: Item) -> None:
        """Refuse an item whose key is not valid."""
        for name, kind in self.types.items():
            value = item.get(name)
            if value is None:
                raise SchemaMismatch(
                    f"One or more parameter values were invalid: Missing the key {name} in the item"
                )
            if kind not in value:
                raise SchemaMismatch(
                    "One or more parameter values were invalid: "
                    f"Type mismatch for key {name} expected: {kind} actual: {next(iter(value))}"
                )
            self._check_value(name, value)

    def _check_value(self, name: str, value: AttributeValue) -> None:
        ((kind, raw),) = value.items()
        if not raw:
            raise EmptyKeyValue(
                "The AttributeValue for a key attribute cannot contain an empty "
                f"{_TYPE_NAMES[kind]} value. Key: {name}"
            )
        self.check_sizes({name: value})

    def check_sizes(self, item: Item) -> None:
        """Refuse an item whose values are too long for a key; it may lack some of them."""
        complaint = self._size_complaint(item)
        if complaint:
            raise validation(f"One or more parameter values were invalid: {complaint}")

    def _size_complaint(self, item: Item) -> str | None:
        if _size(item, self.hash_names) > _MOST_HASH_BYTES:
            return f"Size of hashkey has exceeded the maximum size limit of{_MOST_HASH_BYTES} bytes"
        if _size(item, self.range_names) > _MOST_RANGE_BYTES:
            return (
                "Aggregated size of all range keys has exceeded the size limit of "
                f"{_MOST_RANGE_BYTES} bytes"
            )
        return None


def _size(item: Item, names: Iterable[str]) -> int:
    return sum(value_size(item[name]) for name in names if name in item)


def key_mismatch() -> ApiError:
    """Return the refusal of a key that has other attributes or types than the schema."""
    return SchemaMismatch("The provided key element does not match the schema")
