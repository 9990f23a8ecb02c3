"""Compute the capacity units that a migration takes for one item, step by step. Pure.

In: an item and what it becomes. Out: units by step, kind and index. The rules are DynamoDB's: a
write costs a unit for each KB of the larger image, two in a transaction, and so does each index
entry that changes; an index entry whose key changes is two writes. A strongly consistent read costs
a unit for each 4 KB. Every write of a migration changes the item's origin, so that indexes that
project all attributes are written each time.

The steps: `scan` and `verify` read the table, `rewrite` is what an item needs that is not right,
`switch` and `contract` are for items that move; `at once` is instead of `contract` where no old
code writes any more.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

from streamkit.kinds.migration import Migration
from streamkit.migrate.items.rewrites import Rewrite, wire
from streamkit.migrate.items.writes import origin_text
from streamkit.migrate.run.keys import index_of
from streamkit.migrate.run.passing import PAGE_WRITES
from streamkit.migrate.run.work import TOUCH
from streamkit.model.copies import COPY, PAIR
from streamkit.model.origin import ORIGIN
from streamkit.model.schema import IndexSchema, TableSchema
from streamkit.model.sizes import item_size
from streamkit.observe.pricing import read_units, write_units
from streamkit.progress.actions import Wire

Step = Literal["scan", "rewrite", "verify", "switch", "contract", "at once"]

STEPS: Final[tuple[Step, ...]] = ("scan", "rewrite", "verify", "switch", "contract")
PAGE_ITEMS: Final = 200
_GATE_WRITES = 2
"""Units of the check that pairs are still made, in a transaction."""

PASSES: Final[tuple[Step, ...]] = ("scan", "verify")
"""Passes over the table, of all modes."""

Item = Mapping[str, Wire]


AT_ONCE: Final[Step] = "at once"


class Spent(defaultdict[tuple[Step, str, str], float]):
    """Units by step, `read` or `write`, and index; "" is the table."""

    def __init__(self) -> None:
        super().__init__(float)

    def add(self, other: "Spent", among: int = 1) -> None:
        """Add other units, as the share of one `among` several items that cause them together."""
        for what, units in other.items():
            self[what] += units / among

    def write(
        self,
        step: Step,
        schema: TableSchema,
        before: Item | None,
        after: Item | None,
        times: int = 1,
    ) -> None:
        """Add a write of an item, in a transaction two `times`, and of its index entries."""
        size = max(item_size(before or {}), item_size(after or {}))
        self[step, "write", ""] += times * write_units(size)
        for index in schema.indexes.values():
            if units := entry_units(schema, index, before, after):
                self[step, "write", index.name] += times * units


def moving_passes(migration: Migration) -> tuple[Step, ...]:
    """Return the passes over the table of a migration that moves items.

    A pass that switches pairs, leaves stubs or removes them is repeated until one finds none; pairs
    are compared before.
    """
    if not migration.moves:
        return ()
    return ("switch", "switch", *(5 * ("contract",)), *(4 * (AT_ONCE,)))


def source_units(schema: TableSchema, source: str, found: Sequence[Item], keys: int) -> float:
    """Return the units of reading items in a pass; of `keys` chosen ones some are not there.

    Each page is rounded up to 4 KB. What a sample has paid says less: its pages are smaller. Chosen
    items are read by their keys, one by one, and the entries of an index at half the price.
    """
    if source.startswith("table:") or not source:
        return sum(map(item_size, found)) / 4096 + 0.5 * len(found) / PAGE_ITEMS
    index = schema.indexes.get(index_of(source))
    entries = [_entry(schema, index, one) or {} for one in found] if index else []
    units = keys - len(found) + sum(read_units(item_size(one)) for one in found)
    return units + sum(map(item_size, entries)) / 8192


class Expenses:
    """What one migration takes; `target` is the schema of the table that its targets are in."""

    def __init__(self, migration: Migration, schema: TableSchema, target: TableSchema) -> None:
        self._migration = migration
        self._schema = schema
        self._target = target
        self._origin = {ORIGIN: {"S": origin_text(f"app.{migration.id}")}}

    def of_passes(self, units: float, items: int) -> Spent:
        """Return what all passes over a part of the table take; one reads it for so many units."""
        spent = Spent()
        for step in (*PASSES, *moving_passes(self._migration)):
            spent[step, "read", ""] += units
            spent[step, "write", ""] += PAGE_WRITES * items / PAGE_ITEMS
        return spent

    def of(
        self, item: Item, rewrite: Rewrite, there: Sequence[Item | None], queries: int = 0
    ) -> Spent:
        """Return what one item takes, beside the pages that it is read in.

        The items in the places of its targets are `there`, and so many `queries` find its parts,
        each time that its family is looked at.
        """
        spent = Spent()
        if self._migration.is_pairs:
            self._pair(item, rewrite, there, queries, spent)
        elif rewrite.changes_item:
            self._in_place(item, rewrite, spent)
        return spent

    def _in_place(self, item: Item, rewrite: Rewrite, spent: Spent) -> None:
        after = {**item, **self._origin}
        if rewrite.delete:
            spent.write("rewrite", self._schema, item, after)
            spent.write("rewrite", self._schema, after, None)
            return
        if self._migration.mode == "touch":
            item = self._touch(item, spent)
        after = {n: v for n, v in item.items() if n not in rewrite.removes} | self._origin
        spent.write("rewrite", self._schema, item, after | wire(rewrite.sets))

    def _touch(self, item: Item, spent: Spent) -> Item:
        touched = {**item, **self._origin, TOUCH: {"S": f"{self._migration.id}-1"}}
        spent.write("rewrite", self._schema, item, touched)
        return touched

    def _pair(
        self,
        item: Item,
        rewrite: Rewrite,
        there: Sequence[Item | None],
        queries: int,
        spent: Spent,
    ) -> None:
        if self._migration.mode == "touch" and rewrite.targets:
            item = self._touch(item, spent)
        if any(there) or self._migration.mode == "touch":  # else the places are taken to be free
            reads = read_units(item_size(item))
            reads += sum(read_units(item_size(one)) if one else 1 for one in there)
            spent["rewrite", "read", ""] += reads
        wanted = [{**target.item, **self._origin, **self._copy()} for target in rewrite.targets]
        if self._migration.moves and wanted:
            self._family(item, wanted, there, queries, spent)
            return
        spent["verify", "read", ""] += read_units(item_size(item))
        spent["verify", "read", ""] += sum(read_units(item_size(one)) for one in wanted)
        self._reread(spent, "verify", wanted)
        missing = [(a, b) for a, b in zip(there, wanted, strict=True) if a is None]
        if missing:
            spent["rewrite", "write", ""] += 2 * write_units(item_size(item))
        for _, after in missing:
            spent.write("rewrite", self._target, None, after, times=2)

    def _family(
        self,
        item: Item,
        wanted: Sequence[Item],
        there: Sequence[Item | None],
        queries: int,
        spent: Spent,
    ) -> None:
        """Count what both sides and their record take, each time that they are looked at.

        Of several items that become one, each has its share of that one and of the record; the
        others are taken to be as large.
        """
        several = len(self._migration.sources)
        wanted = [{**one, "": {"S": (several - 1) * item_size(item) * "x"}} for one in wanted]
        stamped = {**item, **self._origin, **self._copy()}
        record = {"state": {"S": "x" * self._record_size(wanted)}}
        shared = Spent()
        if not all(there):
            spent.write("rewrite", self._schema, item, stamped, times=2)
            shared["rewrite", "write", ""] += 2 * write_units(item_size(record)) + _GATE_WRITES
        for one, target in zip(there, wanted, strict=True):
            if one is None:
                shared.write("rewrite", self._target, None, target, times=2)
        mine, look = read_units(item_size(stamped)), read_units(item_size(record))
        parts = sum(read_units(item_size(one)) for one in wanted)
        found = max(queries, read_units(sum(map(item_size, wanted)))) if queries else 0
        look += parts + found
        if several > 1:  # the pass sees one of them, and reads all
            spent["rewrite", "read", ""] += several * mine + look
        times: tuple[tuple[Step, int], ...]
        times = (("verify", 1), ("switch", 2), ("contract", 3), (AT_ONCE, 2))
        for step, looks in times:
            spent[step, "read", ""] += looks * mine
            shared[step, "read", ""] += looks * look
        passes: tuple[Step, ...] = ("verify", *moving_passes(self._migration))
        for step in passes:
            self._reread(shared, step, wanted)
            shared[step, "read", ""] += item_size(record) / 4096
            shared[step, "write", ""] += PAGE_WRITES / PAGE_ITEMS
        spent.write("switch", self._schema, stamped, {**stamped, TOUCH: {"S": ""}}, times=2)
        for one in wanted:
            after = {**one, ORIGIN: {"S": f"{one[ORIGIN]['S'][:-1]}-"}}
            shared.write("switch", self._target, one, after, times=2)
        rest = {n: v for n, v in stamped.items() if n in self._schema.key_attributes}
        spent.write("contract", self._schema, stamped, rest, times=2)
        spent.write("contract", self._schema, rest, None, times=2)
        self._at_once(spent, stamped, rest, item_size(record))
        spent[AT_ONCE, "read", ""] += 2 * (parts + found) if queries else 0  # beside such a rest
        shared["contract", "write", ""] += 4 * write_units(item_size(record))
        spent["contract", "read", ""] -= 2.5 * item_size(stamped) / 4096  # stubs are small
        spent.add(shared, several)

    def _at_once(self, spent: Spent, stamped: Item, rest: Item, record: int) -> None:
        """Count what it takes to delete old items without stubs, except the looks at families.

        The last two passes of four see neither old items nor records. What went is looked at once
        more, because the stream shows it; and the rest of a split, by these passes.
        """
        split, several = self._migration.mode == "split", len(self._migration.sources)
        spent.write(AT_ONCE, self._schema, stamped, rest if split else None, times=2)
        spent[AT_ONCE, "write", ""] += 2 * write_units(record) / several
        spent[AT_ONCE, "read", ""] += 4 if split else 1 + several
        gone = 0 if split else item_size(stamped)
        spent[AT_ONCE, "read", ""] -= 2 * (gone + record / several) / 4096

    def _record_size(self, wanted: Sequence[Item]) -> int:
        """Return the size of a pair record: a key, and a digest for each field."""
        keys = sum(item_size({n: one[n] for n in self._target.key_attributes}) for one in wanted)
        return 250 + 2 * keys + sum(len(name) + 17 for one in wanted for name in one)

    def _reread(self, spent: Spent, step: Step, wanted: Sequence[Item]) -> None:
        """Count targets as later passes read them, if they are in the table itself."""
        if self._target.name == self._schema.name:
            spent[step, "read", ""] += sum(item_size(one) / 4096 for one in wanted)
            spent[step, "write", ""] += PAGE_WRITES * len(wanted) / PAGE_ITEMS

    def _copy(self) -> dict[str, Wire]:
        return {COPY: {"S": f"{self._migration.id}:{'0' * 16}"}, PAIR: {"S": "0" * 25}}


def entry_units(
    schema: TableSchema, index: IndexSchema, before: Item | None, after: Item | None
) -> int:
    """Return what a write costs in one index."""
    old, new = _entry(schema, index, before), _entry(schema, index, after)
    if old == new:
        return 0
    keys = [{name: one[name] for name, _ in index.keys} if one else None for one in (old, new)]
    if keys[0] == keys[1]:
        return write_units(max(item_size(old or {}), item_size(new or {})))
    return sum(write_units(item_size(one)) for one in (old, new) if one is not None)


def _entry(schema: TableSchema, index: IndexSchema, item: Item | None) -> dict[str, Any] | None:
    """Return what an index shows of an item; None if it is not in it."""
    if item is None or any(name not in item for name, _ in index.keys):
        return None
    if index.projection == "ALL":
        return dict(item)
    shown = {*schema.key_attributes, *dict(index.keys), *index.included}
    return {name: value for name, value in item.items() if name in shown}
