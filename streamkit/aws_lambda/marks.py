"""Marks: up to which change each source item is done, for a host that has no cursor.

A Lambda event does not say its shard, may come again, and may come while an earlier invocation of
the same records still writes. So each source item has a mark of its own in the table, for each
consumer: a commit moves the marks of its items IF each is still below the first of the item's
changes in it. Whatever comes again, or late, finds its mark there and does nothing.

In: the item keys of a batch. Out: their marks, and the actions that move them. A mark is kept for a
week after its last change, and for as long as it names a lane that is held.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from streamkit.actions import MARK_GUARD, OURS, Action, GuardSource, Verb, render
from streamkit.changes import ItemKey
from streamkit.clock import Clock
from streamkit.cursor import CursorStore
from streamkit.effects import Guard
from streamkit.model.conditions import Attr, Condition, absent, any_of
from streamkit.processing.mark import Mark, expiry, mark_name, mark_path, read_mark

_NAME, _FIRST, _THEN, _UNTIL = "?name", "?first", "?then", "?until"
"""What stands for the values in the shape of a bare mark's update."""


@dataclass
class Marks:
    """The marks of one consumer, as far as they were read."""

    store: CursorStore
    clock: Clock
    incarnation: str
    known: dict[ItemKey, Mark] = field(default_factory=dict)
    _shape: dict[str, Any] | None = None

    async def read(self, keys: Iterable[ItemKey]) -> None:
        """Read the marks of items, strongly consistent."""
        names = {mark_name(key): key for key in keys}
        items = await self.store.items([mark_path(self.incarnation, name) for name in names])
        for key in names.values():
            self.known[key] = Mark()
        for item in items:
            self.known[names[item["name"]["S"]]] = read_mark(item)

    def is_done(self, key: ItemKey, position: str) -> bool:
        """Say whether a change of an item is done."""
        return self.known[key].token >= position

    def move(self, key: ItemKey, first: str, then: Mark) -> Action:
        """Return the action that moves an item's mark, IF it is still before the change `first`."""
        now, name = self.known[key], mark_name(key)
        until = expiry(self.clock.time())["N"]
        source = GuardSource(first, name, MARK_GUARD)
        if now.is_bare and then.is_bare:
            ref = self.store.space.ref(*mark_path(self.incarnation, name))
            action = Action(ref, Verb.UPDATE)
            texts = {_NAME: name, _FIRST: first, _THEN: then.token, _UNTIL: until}
            action.body = self._filled(action, texts)
            action.guards.append((_BARE, source))  # as the body has it
        else:
            action = self._update(name, then, until)
            action.guards.append((Guard(_before(now, first)), source))
        return action

    def _update(self, name: str, then: Mark, until: str) -> Action:
        action = self.store.space.update(*mark_path(self.incarnation, name))
        action.sets |= {"name": {"S": name}, "position": {"S": then.token}}
        if then.lanes:
            action.removes.add("expires")
        else:
            action.sets["expires"] = {"N": until}
        for attribute, texts in (("done", then.done), ("lanes", then.lanes)):
            if texts:
                action.sets[attribute] = {"SS": sorted(texts)}
            else:
                action.removes.add(attribute)
        return action

    def _filled(self, action: Action, texts: Mapping[str, str]) -> dict[str, Any]:
        """Return the update of a bare mark: that of another one, with other values.

        Nearly all marks are bare, and to render each costs more than all else that is done with it.
        """
        schema = self.store.space.schema
        if self._shape is None:
            sample = self._update(_NAME, Mark(_THEN), _UNTIL)
            sample.guards.append((_BARE, OURS))
            (self._shape,) = render(sample, schema).values()
        values = {
            placeholder: {kind: texts.get(text, text)}
            for placeholder, value in self._shape["ExpressionAttributeValues"].items()
            for kind, text in value.items()
        }
        key = action.ref.key(schema)
        return {**self._shape, "Key": key, "ExpressionAttributeValues": values}

    def moved(self, key: ItemKey, then: Mark) -> None:
        """A commit has moved the mark."""
        self.known[key] = then


def _before(now: Mark, first: str) -> Condition:
    """Return the condition that an item's mark is before a change, and else as it was read.

    With the same lanes held: the change before this one may have been parked meanwhile.
    """
    before: Any = Attr("position").lt(first)
    for name, texts in (("done", now.done), ("lanes", now.lanes)):
        before &= Attr(name).eq(set(texts)) if texts else Attr(name).not_exists()
    return any_of(absent, before)


_BARE = Guard(_before(Mark(), _FIRST))
"""The condition of a bare mark's update, with what stands for the values."""
