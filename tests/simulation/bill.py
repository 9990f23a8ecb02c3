"""The bill of a fleet: what each call cost, from the engine's own accounting, and what it was for.

What a call is for follows from its operation and the kind of control items that it names; what the
leader reads for all is told from what each worker reads for itself by the caller's name.
"""

import contextvars
import functools
from collections import Counter, defaultdict
from contextlib import contextmanager

import pytest

from streamkit.fleet.coordinator import Coordinator
from streamkit.fleet.lister import Lister

_asking = contextvars.ContextVar("asking", default="")
_LEADER = (
    (Coordinator, "audit"),
    (Lister, "once"),
    (Lister, "children_of"),
    (Lister, "require_lease"),
)


@contextmanager
def told_apart():
    """Mark what the leader asks; the bill cannot tell it from the calls alone."""
    with pytest.MonkeyPatch.context() as patch:
        for owner, name in _LEADER:
            patch.setattr(owner, name, _marked(getattr(owner, name), "leader"))
        yield


def _marked(method, name):
    @functools.wraps(method)
    async def marked(self, *arguments, **named):
        token = _asking.set(name)
        try:
            return await method(self, *arguments, **named)
        finally:
            _asking.reset(token)

    return marked


def kinds_of(call):
    """Return the kinds of control items that a call names; "" stands for an item of the app."""
    payload = call.payload
    if call.operation == "TransactWriteItems":
        actions = [next(iter(entry.values())) for entry in payload["TransactItems"]]
        keys = [action.get("Key") or action["Item"] for action in actions]
    elif call.operation == "BatchGetItem":
        keys = [key for request in payload["RequestItems"].values() for key in request["Keys"]]
    elif call.operation == "Query":
        return [payload["ExpressionAttributeValues"][":p"]["S"].split("#")[3]]
    else:
        keys = [payload.get("Key") or payload.get("Item") or {}]
    texts = [key.get("PK", {"S": ""})["S"] for key in keys]
    return [text.split("#")[3] if text.startswith("_sk#") else "" for text in texts]


def purpose(call):
    """Say what a call is for."""
    if call.service == "dynamodbstreams":
        return {"GetRecords": "polls"}.get(call.operation, "listing")
    kinds = kinds_of(call)
    if call.operation == "TransactWriteItems":
        if "" in kinds:
            return "commits"
        return "positions" if kinds == ["cursor"] else "shard ends"
    if call.operation in ("UpdateItem", "DeleteItem", "PutItem"):
        return {"member": "heartbeats", "members": "heartbeats", "cursor": "leases"}.get(
            kinds[0], "app"
        )
    if set(kinds) <= {"members"}:
        return "looks"
    if set(kinds) <= {"dir", "cursor"}:
        if _asking.get():
            return "leader"
        return "directories" if kinds == ["dir"] * len(kinds) else "own cursors"
    return "app" if "" in kinds else "other"


class Bill:
    """Counts from when it is made; only what workers call, not what the world outside does."""

    def __init__(self, world):
        self.world = world
        self.calls = Counter()
        self.units = defaultdict(Counter)
        self.beats = Counter()
        world.engine.observers.append(self._saw)

    def clear(self):
        """Begin anew."""
        self.calls.clear()
        self.units.clear()
        self.beats.clear()

    def _saw(self, call):
        if self.world._caller is None:
            return
        name = purpose(call)
        self.calls[name, call.operation] += 1
        if call.operation == "GetRecords":
            self.units["polls"]["stream"] += call.status == 200
            return
        for unit, amount in call.units.items():
            self.units[name][unit] += amount
        if name == "heartbeats":
            self.beats[str(call.payload["Key"])] += 1
        elif name == "commits":
            self.units["cursors"]["write"] += 2  # of this the cursor, in a transaction
            self.units[name]["write"] -= 2
        self.world.calls.clear()

    def close(self):
        """Count no more."""
        self.world.engine.observers.remove(self._saw)

    def total(self, unit):
        """Return all units of a kind: `read`, `write` or `stream`."""
        return sum(units[unit] for units in self.units.values())

    def operations(self):
        """Return how often each operation was called."""
        found = Counter()
        for (_, operation), count in self.calls.items():
            found[operation] += count
        return found
