"""Store up to which change each source item is done, for a host that has no cursor.

A Lambda event does not contain its shard, may come again, and may come while an earlier invocation
of the same records still writes. So each source item has a high-water mark in the table, for each
consumer: a commit moves the marks of its items IF each is still below the first of the item's
changes in it. A change that is delivered again, or late, is found to be done by its mark.

In: the item keys of a batch. Out: their marks, and the actions that move them. A mark is kept for a
week after its last change, and as long as it names a parked queue.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from streamkit.changes import ItemKey
from streamkit.core.high_water_mark import HighWaterMark, expiry, mark_name, mark_path, read_mark
from streamkit.effects import Guard
from streamkit.model.conditions import Attr, Condition, absent, any_of
from streamkit.model.schema import TableSchema
from streamkit.progress.actions import (
    MARK_GUARD,
    OURS,
    Action,
    GuardSource,
    Verb,
    Wire,
    item_ref,
    render,
)
from streamkit.progress.clock import Clock
from streamkit.progress.control import ControlSpace
from streamkit.progress.cursor import CursorStore

_NAME, _FIRST, _THEN, _UNTIL = _TEXTS = ("?name", "?first", "?then", "?until")
"""Placeholders for the values in the shape of a bare mark's update."""

_NEW = HighWaterMark()
"""The mark of an item without a finished change."""

_Shape = tuple[dict[str, Any], tuple[tuple[str, str, int], ...]]
"""A bare mark's rendered update, and its values: placeholder, type, index in `_TEXTS`."""


@dataclass
class HighWaterMarks:
    """The marks of one consumer, as far as they were read."""

    store: CursorStore
    clock: Clock
    incarnation: str
    known: dict[ItemKey, HighWaterMark] = field(default_factory=dict)
    _places: dict[ItemKey, tuple[str, dict[str, Wire]]] = field(default_factory=dict)
    _shape: _Shape = field(init=False)

    def __post_init__(self) -> None:
        self._shape = _shape_of(self.store.space.schema)

    async def read(self, keys: Iterable[ItemKey]) -> None:
        """Read the marks of items, strongly consistent."""
        places = {key: self._place(key) for key in keys}
        names = {name: key for key, (name, _) in places.items()}
        items = await self.store.items_at([place for _, place in places.values()])
        self.known.update(dict.fromkeys(places, _NEW))
        for item in items:
            self.known[names[item["name"]["S"]]] = read_mark(item)

    def _place(self, key: ItemKey) -> tuple[str, dict[str, Wire]]:
        """Return the name of an item's mark, and the key under which it is in the table."""
        place = self._places.get(key)
        if place is None:
            name = mark_name(key)
            path = mark_path(self.incarnation, name)
            place = self._places[key] = (name, self.store.space.key(*path))
        return place

    def is_done(self, key: ItemKey, position: str) -> bool:
        """Return whether a change of an item is done."""
        return self.known[key].token >= position

    def move(self, key: ItemKey, first: str, then: HighWaterMark, until: str) -> Action:
        """Return the action that moves an item's mark, IF it is still before the change `first`.

        `until` is when the mark ends, see `until`.
        """
        now, (name, place) = self.known[key], self._place(key)
        source = GuardSource(first, name, MARK_GUARD)
        if now.is_bare and then.is_bare:
            body = self._filled(place, name, first, then.token, until)
            ref = item_ref(self.store.space.schema, place)
            # The body contains the condition already.
            return Action(ref, Verb.UPDATE, guards=[(_BARE, source)], body=body)
        action = self._update(name, then, until)
        action.guards.append((Guard(_before(now, first)), source))
        return action

    def until(self) -> str:
        """Return when a mark that is moved now ends, in epoch seconds as text."""
        return expiry(self.clock.time())["N"]

    def _update(self, name: str, then: HighWaterMark, until: str) -> Action:
        action = self.store.space.update(*mark_path(self.incarnation, name))
        return _fill(action, name, then, until)

    def _filled(self, key: dict[str, Wire], *texts: str) -> dict[str, Any]:
        """Return the update of a bare mark: the rendered shape with these values filled in.

        Nearly all marks are bare, and rendering each costs more than all other work on it.
        """
        body, places = self._shape
        values = body["ExpressionAttributeValues"].copy()
        for placeholder, kind, number in places:
            values[placeholder] = {kind: texts[number]}
        return {**body, "Key": key, "ExpressionAttributeValues": values}

    def moved(self, key: ItemKey, then: HighWaterMark) -> None:
        """Note that a commit has moved the mark."""
        self.known[key] = then


def _before(now: HighWaterMark, first: str) -> Condition:
    """Return the condition that a mark is before a change, and its names are as they were read.

    It names the same parked queues: the change before this one may have been parked meanwhile.
    """
    before: Any = Attr("position").lt(first)
    for name, texts in (("done", now.done), ("lanes", now.queues)):
        before &= Attr(name).eq(set(texts)) if texts else Attr(name).not_exists()
    return any_of(absent, before)


_BARE = Guard(_before(HighWaterMark(), _FIRST))
"""The condition of a bare mark's update, with placeholders for the values."""


def _fill(action: Action, name: str, then: HighWaterMark, until: str) -> Action:
    """Let an update write a mark."""
    action.sets |= {"name": {"S": name}, "position": {"S": then.token}}
    if then.queues:
        action.removes.add("expires")
    else:
        action.sets["expires"] = {"N": until}
    for attribute, texts in (("done", then.done), ("lanes", then.queues)):
        if texts:
            action.sets[attribute] = {"SS": sorted(texts)}
        else:
            action.removes.add(attribute)
    return action


@lru_cache(maxsize=16)
def _shape_of(schema: TableSchema) -> _Shape:
    """Render the update of a bare mark, and find its values; once, and not for each invocation."""
    sample = ControlSpace.of(schema, "", "").update(*mark_path("", _NAME))
    _fill(sample, _NAME, HighWaterMark(_THEN), _UNTIL).guards.append((_BARE, OURS))
    (body,) = render(sample, schema).values()
    return body, tuple(
        (placeholder, kind, _TEXTS.index(text))
        for placeholder, value in body["ExpressionAttributeValues"].items()
        for kind, text in value.items()
        if text in _TEXTS
    )
