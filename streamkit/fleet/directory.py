"""The directory of consumers: one item in a table that names every consumer with items in it.

The transaction that creates a consumer also enters it, by name, stream label and table, because a
control table may serve several tables, and a table has another label with each new stream. So
consumers are found without a scan, and a consumer whose stream was replaced finds its earlier
state. A consumer that could not begin has no item of its own yet: the directory says why it halted,
until it begins.
"""

import hashlib
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from streamkit.model.schema import TableSchema
from streamkit.progress.actions import Action, Wire
from streamkit.progress.control import ControlSpace, names_in
from streamkit.progress.cursor import CursorStore

_WHY_LENGTH = 2000


class ConsumerEntry(msgspec.Struct, frozen=True, order=True):
    """One consumer of one stream of one table."""

    table: str
    consumer: str
    label: str

    @property
    def text(self) -> str:
        """Return the entry as the directory holds it; none of the parts has a '#'."""
        return f"{self.table}#{self.consumer}#{self.label}"


@dataclass(frozen=True, slots=True)
class Halt:
    """A consumer that could not begin: since when, in epoch seconds, and why, for people."""

    consumer: str
    since: int
    why: str


def directory_of(schema: TableSchema) -> ControlSpace:
    """Return the directory in a table that holds control items; no consumer has an empty name."""
    return ControlSpace.of(schema, "", "consumers")


def enter(space: ControlSpace, table: str) -> Action:
    """Return the action that enters a consumer, which has begun."""
    entry = ConsumerEntry(table, space.consumer, space.label)
    action = directory_of(space.schema).with_name(entry.text, "index")
    action.removes.add(_halted(entry))
    return action


async def note_halt(store: CursorStore, table: str, now: int, why: str) -> None:
    """Record that a consumer could not begin; the moment stays while the reason is the same."""
    space = store.space
    directory = CursorStore(store.dynamodb, directory_of(space.schema))
    entry, why = ConsumerEntry(table, space.consumer, space.label), why[:_WHY_LENGTH]
    there = (await directory.item("index") or {}).get(_halted(entry))
    if there is not None and there["M"]["why"]["S"] == why:
        return
    action = directory.space.update("index")
    told: Wire = {"entry": {"S": entry.text}, "since": {"N": str(now)}, "why": {"S": why}}
    action.sets[_halted(entry)] = {"M": told}
    await directory.write(action)


async def halts(store: CursorStore, table: str, names: Collection[str]) -> tuple[Halt, ...]:
    """Return those of these consumers of a table's stream that could not begin yet."""
    item = await CursorStore(store.dynamodb, directory_of(store.space.schema)).item("index") or {}
    found = []
    for name in sorted(names):
        told = item.get(_halted(ConsumerEntry(table, name, store.space.label)))
        if told is not None:
            found.append(Halt(name, int(told["M"]["since"]["N"]), told["M"]["why"]["S"]))
    return tuple(found)


def _halted(entry: ConsumerEntry) -> str:
    """Return the attribute that says why a consumer could not begin; a path may not hold dots."""
    return f"h{hashlib.blake2b(entry.text.encode(), digest_size=15).hexdigest()}"


def leave(schema: TableSchema, entry: ConsumerEntry) -> Action:
    """Return the action that removes a consumer's entry."""
    action = directory_of(schema).without_name(entry.text, "index")
    action.removes.add(_halted(entry))
    return action


async def entries(dynamodb: Any, schema: TableSchema) -> list[ConsumerEntry]:
    """Read all entries, sorted by table, consumer and label."""
    item = await CursorStore(dynamodb, directory_of(schema)).item("index")
    return sorted(ConsumerEntry(*name.split("#", 2)) for name in names_in(item))


async def predecessors(store: CursorStore, table: str) -> list[CursorStore]:
    """Return the same consumer's control items for other streams of the table, newest first."""
    mine = store.space
    found = [
        entry.label
        for entry in await entries(store.dynamodb, mine.schema)
        if (entry.table, entry.consumer) == (table, mine.consumer) and entry.label != mine.label
    ]
    return [CursorStore(store.dynamodb, replace(mine, label=label)) for label in reversed(found)]
