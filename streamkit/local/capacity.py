"""Capacity: the units that calls cost by DynamoDB's rules, and the `ConsumedCapacity` of replies.

A write costs a unit per KB of the larger of the two images, a strongly consistent read a unit per
4 KB, an eventually consistent read half of that; in a transaction everything costs twice. One
`Meter` counts for one call; observers get it whether or not the call asks for a report.
"""

from dataclasses import dataclass, field
from typing import Any

_WRITE_UNIT = 1024
_READ_UNIT = 4096


def write_units(size: int) -> int:
    """Return the units of writing an item of this many bytes; 0 bytes cost a unit too."""
    return -(-size // _WRITE_UNIT) or 1


def read_units(size: int, *, consistent: bool) -> float:
    """Return the units of reading this many bytes in one read."""
    units = -(-size // _READ_UNIT) or 1
    return float(units) if consistent else units / 2


class WriteUnits:
    """The cost of one change of one item: in its table, and in each index that had to change."""

    __slots__ = ("indexes", "table")

    def __init__(self, table: int, indexes: dict[str, int] | None = None) -> None:
        self.table = table
        self.indexes = indexes


@dataclass(slots=True)
class _Use:
    """The read and write units of one table and of its indexes."""

    local: frozenset[str]
    read: float = 0.0
    write: float = 0.0
    indexes: dict[str, list[float]] = field(default_factory=dict)

    def total(self) -> tuple[float, float]:
        read, write = self.read, self.write
        for index_read, index_write in self.indexes.values():
            read += index_read
            write += index_write
        return read, write


class Meter:
    """The units that one call consumes."""

    __slots__ = ("_uses",)

    def __init__(self) -> None:
        self._uses: dict[str, _Use] = {}

    def add_read(
        self, table: str, units: float, *, index: str | None = None, local: bool = False
    ) -> None:
        """Count a read of a table, or of an index of it; `local` for a local index."""
        use = self._use(table)
        if index is None:
            use.read += units
        else:
            self._index(use, index, local=local)[0] += units

    def add_write(
        self,
        table: str,
        units: WriteUnits,
        *,
        factor: int = 1,
        local: frozenset[str] = frozenset(),
    ) -> None:
        """Count a change of an item; `factor` is 2 in transactions."""
        use = self._use(table)
        use.write += units.table * factor
        if units.indexes:
            for name, count in units.indexes.items():
                self._index(use, name, local=name in local)[1] += count * factor

    def _use(self, table: str) -> _Use:
        use = self._uses.get(table)
        if use is None:
            use = self._uses[table] = _Use(frozenset())
        return use

    def _index(self, use: _Use, name: str, *, local: bool) -> list[float]:
        units = use.indexes.get(name)
        if units is None:
            units = use.indexes[name] = [0.0, 0.0]
            if local:
                use.local |= {name}
        return units

    def units(self) -> dict[str, float]:
        """Return all units so far, as `{"read": ..., "write": ...}`."""
        read = write = 0.0
        for use in self._uses.values():
            used = use.total()
            read += used[0]
            write += used[1]
        return {"read": read, "write": write}

    def report(self, mode: str | None, *, split: bool = False) -> list[dict[str, Any]]:
        """Return `ConsumedCapacity`, by table.

        Args:
            mode: `ReturnConsumedCapacity`: INDEXES adds the parts of the total.
            split: whether reads and writes are listed apart, as transactions do.
        """
        return [
            _report(name, use, details=mode == "INDEXES", split=split)
            for name, use in self._uses.items()
        ]


def _report(table: str, use: _Use, *, details: bool, split: bool) -> dict[str, Any]:
    report: dict[str, Any] = {"TableName": table, **_capacity(*use.total(), split=split)}
    if not details:
        return report
    report["Table"] = _capacity(use.read, use.write, split=split)
    for title, wanted in (("LocalSecondaryIndexes", True), ("GlobalSecondaryIndexes", False)):
        parts = {
            name: _capacity(read, write, split=split)
            for name, (read, write) in use.indexes.items()
            if (name in use.local) is wanted
        }
        if parts:
            report[title] = parts
    return report


def _capacity(read: float, write: float, *, split: bool) -> dict[str, float]:
    capacity = {"CapacityUnits": read + write}
    if split and read:
        capacity["ReadCapacityUnits"] = read
    if split and write:
        capacity["WriteCapacityUnits"] = write
    return capacity
