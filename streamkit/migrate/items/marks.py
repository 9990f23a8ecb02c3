"""Mark an item that a migration has made with its source, and judge what is in its place. Pure.

In: a migration, a source's key, and the item in a target's place. Out: the mark, and what is wrong
with the place.
"""

import json
from typing import Literal

from streamkit.kinds.derive import OWNER
from streamkit.kinds.migration import Migration
from streamkit.migrate.book.errors import error_id
from streamkit.migrate.items.rewrites import Key, Target, WireItem, alike
from streamkit.model.codec import key_text
from streamkit.model.copies import FROM, PAIR
from streamkit.model.schema import TableSchema
from streamkit.progress.actions import Wire

Place = Literal["right", "missing", "differs", "taken"]
"""What is in a target's place.

`right`: the target; `missing`: nothing; `differs`: another of ours; `taken`: an item that is not
ours.
"""


def mark_of(migration: Migration, schema: TableSchema, key: Key) -> tuple[str, Wire]:
    """Return the attribute by which the targets of a source are known, and its value."""
    if migration.owner is not None:
        sk = None if schema.sk is None else key_text(key[schema.sk])
        return OWNER, {"S": json.dumps([migration.owner, key_text(key[schema.pk]), str(sk)])}
    return FROM, {"S": f"{migration.id}:{error_id(key)}"}


def place_is(
    migration: Migration, mark: tuple[str, Wire], target: Target, there: WireItem | None
) -> Place:
    """Return what is in a target's place."""
    if there is None:
        return "missing"
    name, value = mark
    right = alike(there, target.item)
    if there.get(PAIR) == {"S": f"{value['S']}:new"}:  # one of several items does not tell all
        return "right" if right or migration.mode == "merge" else "differs"
    if there.get(name) == value:
        return "right" if right else "differs"
    return "right" if right or migration.conflict == "keep" else "taken"
