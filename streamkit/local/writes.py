"""The four actions on one item - put, update, delete, check - before they happen.

A single-item operation and each action of a transaction go through the same steps: parse and
validate (`parse_put` and so on), bind to the table and the item's key (`bind`), then `check`
against what is stored and work out the `result`. Nothing here changes anything.
"""

from dataclasses import dataclass
from typing import Any

from streamkit.local.capacity import WriteUnits
from streamkit.local.errors import ApiError, validation
from streamkit.local.expressions import (
    Condition,
    DocumentPath,
    Placeholders,
    Update,
    parse_condition,
    parse_update,
)
from streamkit.local.legacy import attribute_updates, expected_condition, reject_mixture
from streamkit.local.parameters import Payload, structure
from streamkit.local.partitions import Place
from streamkit.local.schema import SchemaMismatch, key_mismatch
from streamkit.local.tables import EngineTable, Journal
from streamkit.local.values import Item, canonical_item, item_size

MOST_ITEM_BYTES = 400 * 1024


@dataclass(slots=True)
class ItemWrite:
    """One action; this base class is a check, which changes nothing.

    Attributes:
        condition: the condition on the stored item.
        return_old: whether a failed condition shows the stored item.
        given: the `Key`, or the `Item`, as in the request.
        table: set by `bind`, as are `key` and `place`.
        size: the size of the result, when there is one.
    """

    given: Any
    condition: Condition | None
    return_old: bool
    table: EngineTable
    key: Item
    place: Place
    size: int | None

    def bind(self, table: EngineTable) -> None:
        """Find the item's key by the table's schema; refuse a key that does not fit."""
        self.table = table
        self.key = table.keys.checked_key(self.given)
        self.place = table.keys.place(self.key)

    def stored(self) -> tuple[Item | None, int]:
        """Return the stored item of the key, and its size."""
        return self.table.rows.find(self.place) or (None, 0)

    def holds(self, old: Item | None) -> bool:
        """Return whether the condition is met."""
        return self.condition is None or self.condition.matches(old)

    def result(self, old: Item | None, /) -> Item | None:
        """Return the item to be stored; None for no item."""
        return old

    def carry_out(
        self, old: Item | None, new: Item | None, journal: Journal | None = None
    ) -> WriteUnits:
        """Change the table; return the cost."""
        return self.table.write(
            self.key, old, new, journal=journal, size=self.size, place=self.place
        )


class DeleteWrite(ItemWrite):
    """Remove the item."""

    def result(self, _old: Item | None, /) -> Item | None:
        """Return None: no item is stored."""
        return None


class PutWrite(ItemWrite):
    """Replace the whole item by the given one."""

    def bind(self, table: EngineTable) -> None:
        """Check the item against all keys of the table."""
        self.table = table
        item: Item = self.given
        table.check_item(item)
        self.key = table.keys.key(item)
        self.place = table.keys.place(item)
        self.size = _checked_size(table, item, "Item size has exceeded the maximum allowed size")

    def result(self, _old: Item | None, /) -> Item | None:
        """Return the given item."""
        item: Item = self.given
        return item


@dataclass(slots=True)
class Upsert(ItemWrite):
    """Change attributes of the item; an item that is not there is created.

    Attributes:
        update: the changes; None for none.
        paths: the document paths that the changes name.
    """

    update: Update | None
    paths: tuple[DocumentPath, ...] = ()

    def bind(self, table: EngineTable) -> None:
        """Check that the update does not change the key, or lead into a key of an index."""
        ItemWrite.bind(self, table)
        if self.update is not None:
            self.update.check_keys(table.keys.name_set)
            table.check_paths(self.update)

    def result(self, old: Item | None, /) -> Item | None:
        """Return the item with the changes.

        Raises:
            ApiError: the changes do not fit the item, or their result does not fit the table.
        """
        before = dict(self.key) if old is None else old
        if self.update is None:
            return before
        if old is None and self.update.removes_only:
            # Paths into a missing item are not checked: `REMOVE a.b` is valid for it.
            return None
        applied = self.update.apply(before, key_attributes=self.table.keys.name_set)
        new = applied.item
        self.paths = applied.paths
        if old is None and self.paths and len(new) == len(self.key):
            # Removals alone do not create an item.
            return None
        self.table.check_item(new, updated=True)
        self.size = _checked_size(
            self.table, new, "Item size to update has exceeded the maximum allowed size"
        )
        return new


def _checked_size(table: EngineTable, item: Item, refusal: str) -> int:
    """Return the size of an item to be stored; refuse one that is too large.

    Its entries in the local indexes count, too, because they are stored beside it.
    """
    size = item_size(item)
    stored = size
    for name in table.local_names:
        stored += table.indexes[name].entry_size((item, size))
    if stored > MOST_ITEM_BYTES:
        raise validation(refusal)
    return size


def parse_put(request: Payload) -> PutWrite:
    """Parse a PutItem request, or a Put action."""
    item = canonical_item(request["Item"])
    return PutWrite(item, _condition(request), *_unbound(request))


def parse_delete(request: Payload) -> DeleteWrite:
    """Parse a DeleteItem request, or a Delete action."""
    return DeleteWrite(request["Key"], _condition(request), *_unbound(request))


def parse_check(request: Payload) -> ItemWrite:
    """Parse a ConditionCheck action."""
    return ItemWrite(request["Key"], _condition(request), *_unbound(request))


def parse_upsert(request: Payload) -> Upsert:
    """Parse an UpdateItem request, or an Update action."""
    if "AttributeUpdates" in request or "Expected" in request or "ConditionalOperator" in request:
        reject_mixture(
            request,
            legacy=("AttributeUpdates", "Expected", "ConditionalOperator"),
            expressions=("UpdateExpression", "ConditionExpression"),
        )
    text = request.get("UpdateExpression")
    condition_text = request.get("ConditionExpression")
    placeholders = Placeholders(
        request.get("ExpressionAttributeNames"),
        request.get("ExpressionAttributeValues"),
        expressions={"UpdateExpression": text, "ConditionExpression": condition_text},
    )
    update = condition = None
    if text is not None:
        update = parse_update(text, placeholders)
    elif request.get("AttributeUpdates") is not None:
        update = attribute_updates(structure(request["AttributeUpdates"]))
    if condition_text is not None:
        condition = parse_condition(condition_text, placeholders)
    elif "Expected" in request or "ConditionalOperator" in request:
        condition = expected_condition(request.get("Expected"), request.get("ConditionalOperator"))
    placeholders.finish()
    return Upsert(request["Key"], condition, *_unbound(request), update)


# Stands for the table until `bind`, so that a write has one type for its whole life.
_UNBOUND: Any = None


def _unbound(request: Payload) -> tuple[bool, EngineTable, Item, Place, int | None]:
    return_old = request.get("ReturnValuesOnConditionCheckFailure") == "ALL_OLD"
    return return_old, _UNBOUND, {}, _UNBOUND, None


def _condition(request: Payload) -> Condition | None:
    if "Expected" in request or "ConditionalOperator" in request:
        reject_mixture(
            request,
            legacy=("Expected", "ConditionalOperator"),
            expressions=("ConditionExpression",),
        )
        if request.get("ConditionExpression") is None:
            return expected_condition(request.get("Expected"), request.get("ConditionalOperator"))
    text = request.get("ConditionExpression")
    names = request.get("ExpressionAttributeNames")
    values = request.get("ExpressionAttributeValues")
    if text is None and names is None and values is None:
        return None
    placeholders = Placeholders(names, values, expressions={"ConditionExpression": text})
    condition = None if text is None else parse_condition(text, placeholders)
    placeholders.finish()
    return condition


def bind_batch_put(put: PutWrite, table: EngineTable) -> None:
    """Bind a put of a batch; a key that does not fit gets the message of a look-up there."""
    try:
        table.keys.check_item(put.given)
    except SchemaMismatch:
        raise key_mismatch() from None
    put.bind(table)


def condition_failed(old: Item | None, *, return_old: bool) -> ApiError:
    """Return the refusal of a write whose condition does not hold."""
    code, message = "ConditionalCheckFailedException", "The conditional request failed"
    if return_old and old is not None:
        return ApiError(code, message, Item=old)
    return ApiError(code, message)
