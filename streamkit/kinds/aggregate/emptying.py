"""Delete a group of an aggregate once it holds nothing any more. For `remove_empty`.

The aggregate's own items come back through the stream. When a record shows that its group may be
empty, all parts of the group are read, and if every measure is zero over them, they are deleted,
each IF the last change that added to it is still the same; else nothing is done. A later
contribution creates the item again; a contribution in between has left a record of its own, and the
group is looked at then. The last change's id is stored in the item because measures are not enough:
they may be zero again after further contributions, and with `Distinct` a contribution may add a
value that the condition does not name.

In: changes of the aggregate's items. Out: deletions of whole groups.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from streamkit.changes import Inserted, Kind, Modified
from streamkit.core.handler import Handler, Policy
from streamkit.effects import Delete, Effect
from streamkit.entity import attribute_names
from streamkit.kinds.aggregate.aggregate import Aggregate
from streamkit.kinds.aggregate.measures import adds_up
from streamkit.model.codec import decode
from streamkit.model.conditions import Attr, Condition
from streamkit.model.declaration import Declaration
from streamkit.model.keys import Key
from streamkit.model.origin import LAST_CHANGE
from streamkit.model.parts import Parts, without_suffix
from streamkit.model.when import Values, When
from streamkit.table import Table


def emptying_handler(aggregate: type[Aggregate[Any]], policy: Policy) -> Handler | None:
    """Make the handler that deletes an aggregate's empty groups; None if they stay."""
    if not aggregate.__options__.remove_empty:
        return None
    parts = Parts(aggregate.__options__.spread, adds_up(aggregate.__measures__))

    async def empty(change: Inserted[Any] | Modified[Any], table: Table) -> list[Effect]:
        found = await table.parts(_group_of(change.new))
        whole = parts.merge(list(found.values())) if found else {}
        if any(decode(value) for name, value in whole.items() if parts.sums(name)):
            return []
        return [Delete(key).only_if(_still(item), otherwise="skip") for key, item in found.items()]

    return Handler(
        name=f"{aggregate.__name__}.remove_empty",
        entity=aggregate,
        kinds=frozenset({Kind.INSERTED, Kind.MODIFIED}),
        run=empty,
        declared=Declaration.of(aggregate),
        is_async=True,
        when=_may_be_empty(aggregate),
        needs={"table": Table},
        policy=policy,
        commutes=True,
        sees_parts=True,
        writes=frozenset({aggregate}),
        causes={aggregate: frozenset({Kind.REMOVED})},
    )


def _may_be_empty(aggregate: type[Aggregate[Any]]) -> When | None:
    """Return the condition that one part shows an empty group; None if there are several parts."""
    if aggregate.__options__.spread > 1:
        return None
    names = attribute_names(aggregate)
    fields = tuple(name for name, stored in names.items() if stored in aggregate.__measures__)

    def holds(_: Values | None, new: Values | None) -> bool:
        return new is not None and not any(new[field] for field in fields)

    return When(fields, "every measure is zero", holds)


def _group_of(item: Aggregate[Any]) -> Key[Any]:
    """Return the group's key, also where a field is the key attribute itself, with its suffix."""
    key = item.item_key
    return replace(key, pk=without_suffix(key.pk), sk=key.sk and without_suffix(key.sk))


def _still(item: Mapping[str, Any]) -> Condition:
    """Return the condition that nothing was added to an item since it was read."""
    last = Attr(LAST_CHANGE)
    return last.eq(decode(item[LAST_CHANGE])) if LAST_CHANGE in item else last.not_exists()
