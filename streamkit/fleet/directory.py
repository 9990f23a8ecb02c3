"""The directory of consumers: one item in a table that names every consumer with items in it.

The transaction that creates a consumer also enters it, by name, stream label and table, because a
control table may serve several tables, and a table has another label with each new stream. So
consumers are found without a scan, and a consumer whose stream was replaced finds its earlier
state.
"""

from dataclasses import dataclass, replace
from typing import Any

from streamkit.model.schema import TableSchema
from streamkit.progress.actions import Action
from streamkit.progress.control import ControlSpace
from streamkit.progress.cursor import CursorStore


@dataclass(frozen=True, slots=True, order=True)
class ConsumerEntry:
    """One consumer of one stream of one table."""

    table: str
    consumer: str
    label: str

    @property
    def text(self) -> str:
        """Return the entry as the directory holds it; none of the parts has a '#'."""
        return f"{self.table}#{self.consumer}#{self.label}"


def directory_of(schema: TableSchema) -> ControlSpace:
    """Return the directory in a table that holds control items; no consumer has an empty name."""
    return ControlSpace.of(schema, "", "consumers")


def enter(space: ControlSpace, table: str) -> Action:
    """Return the action that enters a consumer."""
    action = directory_of(space.schema).update("index")
    action.unions["names"] = {"SS": [ConsumerEntry(table, space.consumer, space.label).text]}
    return action


def leave(schema: TableSchema, entry: ConsumerEntry) -> Action:
    """Return the action that removes a consumer's entry."""
    action = directory_of(schema).update("index")
    action.subtractions["names"] = {"SS": [entry.text]}
    return action


async def entries(dynamodb: Any, schema: TableSchema) -> list[ConsumerEntry]:
    """Read all entries, sorted by table, consumer and label."""
    item = await CursorStore(dynamodb, directory_of(schema)).item("index") or {}
    names = item.get("names", {"SS": []})["SS"]
    return sorted(ConsumerEntry(*name.split("#", 2)) for name in names)


async def predecessors(store: CursorStore, table: str) -> list[CursorStore]:
    """Return the same consumer's control items for other streams of the table, newest first."""
    mine = store.space
    found = [
        entry.label
        for entry in await entries(store.dynamodb, mine.schema)
        if (entry.table, entry.consumer) == (table, mine.consumer) and entry.label != mine.label
    ]
    return [CursorStore(store.dynamodb, replace(mine, label=label)) for label in reversed(found)]
