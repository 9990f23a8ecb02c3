"""The directory of consumers: one item in a table that names every consumer with items in it.

A consumer is entered in the very transaction that creates it, by name, stream label and table,
because a control table may serve several tables, and a table has another label with each new
stream. So consumers are found without a scan, and one whose stream was replaced finds what it was.
"""

from dataclasses import dataclass, replace
from typing import Any

from streamkit.actions import Action
from streamkit.control import ControlSpace
from streamkit.cursor import CursorStore
from streamkit.model.schema import TableSchema


@dataclass(frozen=True, slots=True, order=True)
class Entry:
    """One consumer of one stream of one table."""

    table: str
    consumer: str
    label: str

    @property
    def text(self) -> str:
        """As the directory holds it; none of the parts has a '#'."""
        return f"{self.table}#{self.consumer}#{self.label}"


def directory_of(schema: TableSchema) -> ControlSpace:
    """Name the directory in a table that holds control items: no consumer has an empty name."""
    return ControlSpace.of(schema, "", "consumers")


def enter(space: ControlSpace, table: str) -> Action:
    """Enter a consumer."""
    action = directory_of(space.schema).update("index")
    action.unions["names"] = {"SS": [Entry(table, space.consumer, space.label).text]}
    return action


def leave(schema: TableSchema, entry: Entry) -> Action:
    """Strike a consumer off."""
    action = directory_of(schema).update("index")
    action.subtractions["names"] = {"SS": [entry.text]}
    return action


async def entries(dynamodb: Any, schema: TableSchema) -> list[Entry]:
    """Read who is entered, by table, consumer and label."""
    item = await CursorStore(dynamodb, directory_of(schema)).item("index") or {}
    names = item.get("names", {"SS": []})["SS"]
    return sorted(Entry(*name.split("#", 2)) for name in names)


async def predecessors(store: CursorStore, table: str) -> list[CursorStore]:
    """Return the control items of the same consumer of other streams of the table, newest first."""
    mine = store.space
    found = [
        entry.label
        for entry in await entries(store.dynamodb, mine.schema)
        if (entry.table, entry.consumer) == (table, mine.consumer) and entry.label != mine.label
    ]
    return [CursorStore(store.dynamodb, replace(mine, label=label)) for label in reversed(found)]
