"""Actions: effects as writes of items, before they are folded and sent.

An `Action` writes (or checks) one item, with attribute names and wire values. `compile` makes one
from an effect; control items are written with actions directly. `fold` merges actions, `commit`
sends them. Pure.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from enum import Enum
from typing import Any, NamedTuple, TypeVar

from streamkit.effects import Guard
from streamkit.model.codec import encode
from streamkit.model.conditions import Condition
from streamkit.model.expressions import compile_all
from streamkit.model.origin import ORIGIN
from streamkit.model.schema import TableSchema
from streamkit.model.sizes import attributes_size

Wire = dict[str, Any]
"""One attribute value as in DynamoDB's JSON, such as `{"S": "x"}`."""


CONTROL_PREFIX = "_sk#"
"""The prefix of every control item's partition key; the application must not write there."""
ENTRY_PREFIX = f"{CONTROL_PREFIX}#copies#"
"""The prefix of control items that are entities. A consumer's name is never empty, so these items
belong to no consumer; only the directory of consumers, which has no entity, is beside them.
"""
CONTROL_ATTRIBUTE = "_sk_"
"""The prefix of every attribute of a control item."""

ITEMS_MAX = 99
"""`TransactWriteItems` takes 100 actions; one of them is the cursor's."""
BYTES_MAX = 3_900_000
"""A transaction holds 4 MB; sizes here are upper estimates, and the cursor's size is extra."""

V = TypeVar("V")


class ItemRef(NamedTuple):
    """A reference to an item: table and key, hashable. Key values are wire type and text."""

    table: str
    pk: tuple[str, str]
    sk: tuple[str, str] | None

    def key(self, schema: TableSchema) -> dict[str, Wire]:
        """Return the key as DynamoDB takes it."""
        key = {schema.pk: {self.pk[0]: self.pk[1]}}
        if self.sk is not None and schema.sk is not None:
            key[schema.sk] = {self.sk[0]: self.sk[1]}
        return key


def item_ref(schema: TableSchema, item: Mapping[str, Wire]) -> ItemRef:
    """Return the reference of the item with these key attributes."""
    ((pk_type, pk),) = item[schema.pk].items()
    if schema.sk is None:
        return ItemRef(schema.name, (pk_type, pk), None)
    ((sk_type, sk),) = item[schema.sk].items()
    return ItemRef(schema.name, (pk_type, pk), (sk_type, sk))


def is_own(schema: TableSchema, item: Mapping[str, Any]) -> bool:
    """Return whether an item of a table, or a key of one, is one of streamkit's own."""
    return bool(str(item[schema.pk].get("S", "")).startswith(CONTROL_PREFIX))


class Verb(Enum):
    """The four things a transaction can do to an item."""

    PUT = "Put"
    UPDATE = "Update"
    DELETE = "Delete"
    CHECK = "ConditionCheck"

    @property
    def alone(self) -> str:
        """Return the client's method that does this to one item, outside of a transaction."""
        return f"{self.value.lower()}_item"


class GuardSource(NamedTuple):
    """The source of a condition.

    For an effect: position of its change, name of its handler, index in its result. For a handler's
    read the index is `READ`. streamkit's own conditions are `QUEUE` (with the parked queue's name
    in `handler`), `CHILD` (with the shard's), `LEASE`, or `MARK_GUARD`.
    """

    position: str
    handler: str
    effect: int


READ, QUEUE, CHILD, LEASE, MARK_GUARD = -1, -2, -3, -4, -5
OURS = GuardSource("", "", LEASE)


@dataclass(slots=True)
class Action:
    """One transaction's write to (or check of) one item.

    `item` holds all attributes of a PUT. An UPDATE has `sets`, `removes`, `adds` (numbers),
    `unions` and `subtractions` (wire sets), each by attribute name and disjoint. A `plain` action
    is no part of the transaction, but sent alone after it. `body` is the result of `render`, where
    it is known already because many actions are alike.
    """

    ref: ItemRef
    verb: Verb
    item: dict[str, Wire] = field(default_factory=dict)
    sets: dict[str, Wire] = field(default_factory=dict)
    removes: set[str] = field(default_factory=set)
    adds: dict[str, Decimal] = field(default_factory=dict)
    unions: dict[str, Wire] = field(default_factory=dict)
    subtractions: dict[str, Wire] = field(default_factory=dict)
    guards: list[tuple[Guard, GuardSource]] = field(default_factory=list)
    plain: bool = False
    body: dict[str, Any] | None = None
    _size: int = field(default=0, init=False, compare=False, repr=False)

    @property
    def is_control(self) -> bool:
        """Return whether the item is one that streamkit itself keeps, with its own attributes."""
        kind, pk = self.ref.pk
        return kind == "S" and pk.startswith(CONTROL_PREFIX) and not pk.startswith(ENTRY_PREFIX)

    @property
    def clauses(self) -> int:
        """Return how many attributes an update changes."""
        changed = len(self.sets) + len(self.removes) + len(self.adds)
        return changed + len(self.unions) + len(self.subtractions)

    def copy(self) -> "Action":
        """Return an action that can be merged into without changing this one."""
        return Action(
            ref=self.ref,
            verb=self.verb,
            item=dict(self.item),
            sets=dict(self.sets),
            removes=set(self.removes),
            adds=dict(self.adds),
            unions=dict(self.unions),
            subtractions=dict(self.subtractions),
            guards=list(self.guards),
            plain=self.plain,
        )

    def only_if(self, *conditions: Condition) -> "Action":
        """Return the action, which now also requires conditions of streamkit's own."""
        self.guards += [(Guard(condition), OURS) for condition in conditions]
        return self

    def leave_origin(self, text: str) -> None:
        """Write the origin into the item; a deletion cannot carry it."""
        if self.verb is Verb.PUT:
            self.item[ORIGIN] = {"S": text}
        elif self.verb is Verb.UPDATE:
            self.sets[ORIGIN] = {"S": text}

    def size(self) -> int:
        """Return an upper estimate of its bytes towards the 4 MB of a transaction.

        The result is cached: later additions only go to a copy of the action.
        """
        if not self._size:
            total = 100 + len(self.ref.pk[1]) + (len(self.ref.sk[1]) if self.ref.sk else 0)
            for part in (self.item, self.sets, self.unions, self.subtractions):
                if part:
                    total += attributes_size(part)
            self._size = total + 40 * len(self.adds)
        return self._size


def render(action: Action, schema: TableSchema) -> dict[str, dict[str, Any]]:
    """Return the action as an entry of `TransactWriteItems`.

    Attributes of control items get a prefix, here and nowhere else: the table's keys, indexes and
    TTL may have any names, and must not clash with streamkit's.
    """
    if action.body is not None:
        return {action.verb.value: action.body}
    if action.is_control:
        action = _prefixed(action, schema)
    body: dict[str, Any] = {"TableName": schema.name}
    names: dict[str, str] = {}
    values: dict[str, Wire] = {}
    if action.verb is Verb.PUT:
        body["Item"] = action.item
    else:
        body["Key"] = action.ref.key(schema)
    if action.verb is Verb.UPDATE:
        expression = _update_expression(action, names, values)
        if expression:
            body["UpdateExpression"] = expression
    if action.guards:
        exists = "kind" if action.is_control else schema.pk  # every control item has a kind
        conditions = [guard.condition for guard, _ in action.guards]
        text, condition_names, condition_values = compile_all(conditions, exists)
        if action.is_control:
            condition_names = {
                placeholder: CONTROL_ATTRIBUTE + name
                for placeholder, name in condition_names.items()
            }
        body["ConditionExpression"] = text
        names.update(condition_names)
        values.update(condition_values)
    if names:
        body["ExpressionAttributeNames"] = names
    if values:
        body["ExpressionAttributeValues"] = values
    return {action.verb.value: body}


def own_attributes(item: Mapping[str, Wire]) -> dict[str, Wire]:
    """Return a control item's content, with the attribute names that streamkit's code uses."""
    return {
        name.removeprefix(CONTROL_ATTRIBUTE): value
        for name, value in item.items()
        if name.startswith(CONTROL_ATTRIBUTE)
    }


def _prefixed(action: Action, schema: TableSchema) -> Action:
    def names(attributes: Mapping[str, V]) -> dict[str, V]:
        return {CONTROL_ATTRIBUTE + name: value for name, value in attributes.items()}

    put = action.verb is Verb.PUT
    item = {**names(action.item), **action.ref.key(schema)} if put else {}
    sets = names(action.sets)
    for written, attributes in ((item, action.item), (sets, action.sets)):
        if "expires" in attributes and schema.ttl is not None:
            written[schema.ttl] = attributes["expires"]
    removes = {CONTROL_ATTRIBUTE + name for name in action.removes}
    if "expires" in action.removes and schema.ttl is not None:
        removes.add(schema.ttl)
    return Action(
        ref=action.ref,
        verb=action.verb,
        item=item,
        sets=sets,
        removes=removes,
        adds=names(action.adds),
        unions=names(action.unions),
        subtractions=names(action.subtractions),
        guards=action.guards,
    )


def _update_expression(action: Action, names: dict[str, str], values: dict[str, Wire]) -> str:
    clauses: list[str] = []
    count = 0

    def placeholder(name: str, value: Wire | None = None) -> tuple[str, str]:
        nonlocal count
        count += 1
        names[f"#u{count}"] = name
        if value is not None:
            values[f":u{count}"] = value
        return f"#u{count}", f":u{count}"

    if action.sets:
        parts = [" = ".join(placeholder(*pair)) for pair in action.sets.items()]
        clauses.append("SET " + ", ".join(parts))
    if action.removes:
        clauses.append("REMOVE " + ", ".join(placeholder(n)[0] for n in sorted(action.removes)))
    additions = {name: encode(number) for name, number in action.adds.items()} | action.unions
    if additions:
        clauses.append("ADD " + ", ".join(" ".join(placeholder(*p)) for p in additions.items()))
    if action.subtractions:
        parts = [" ".join(placeholder(*pair)) for pair in action.subtractions.items()]
        clauses.append("DELETE " + ", ".join(parts))
    return " ".join(clauses)
