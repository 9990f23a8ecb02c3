"""Marks: up to which change each source item is done, for a host that has no cursor.

A Lambda event does not say its shard, may come again, and may come while an earlier invocation of
the same records still writes. So each source item has a mark of its own in the table, for each
consumer: a commit moves the marks of its items IF each is still below the first of the item's
changes in it. Whatever comes again, or late, finds its mark there and does nothing.

In: the item keys of a batch. Out: their marks, and the actions that move them. Marks end by TTL, a
week after their last change: long after anything of theirs could come again.
"""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from streamkit.actions import MARK_GUARD, OURS, Action, GuardSource, Verb, render
from streamkit.changes import ItemKey
from streamkit.clock import Clock
from streamkit.control import START
from streamkit.cursor import CursorStore
from streamkit.effects import Guard
from streamkit.model.conditions import Attr, Condition, absent, any_of

KEPT_SECONDS = 7 * 86_400
"""A stream keeps records for a day, and a mapping retries no longer."""

_NAME, _FIRST, _THEN, _UNTIL = "?name", "?first", "?then", "?until"
"""What stands for the values in the shape of a bare mark's update."""


@dataclass(frozen=True, slots=True)
class Mark:
    """How far an item is done.

    `position` is that of its last change that is done, `done` names handlers that are done with
    the change after it, as `position:handler`, `lanes` the lanes that are held for the item.
    """

    position: str = START
    done: frozenset[str] = frozenset()
    lanes: frozenset[str] = frozenset()

    @property
    def token(self) -> str:
        """The position as text that sorts: nothing is before the beginning."""
        return "" if self.position == START else self.position

    @property
    def is_bare(self) -> bool:
        """Whether it says nothing but the position."""
        return not self.done and not self.lanes


@dataclass
class Marks:
    """The marks of one consumer, as far as they were read."""

    store: CursorStore
    clock: Clock
    known: dict[ItemKey, Mark] = field(default_factory=dict)
    _shape: dict[str, Any] | None = None

    async def read(self, keys: Iterable[ItemKey]) -> None:
        """Read the marks of items, strongly consistent."""
        names = {mark_name(key): key for key in keys}
        items = await self.store.items([("mark", name) for name in names])
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
        until = str(int(self.clock.time()) + KEPT_SECONDS)
        if now.is_bare and then.is_bare:
            action = Action(self.store.space.ref("mark", name), Verb.UPDATE)
            texts = {_NAME: name, _FIRST: first, _THEN: then.token, _UNTIL: until}
            action.body = self._filled(action, texts)
        else:
            action = self._update(name, then, until)
        source = GuardSource(first, name, MARK_GUARD)
        action.guards.append((Guard(_before(now, first)), source))
        return action

    def _update(self, name: str, then: Mark, until: str) -> Action:
        action = self.store.space.update("mark", name)
        action.sets |= {
            "name": {"S": name},
            "position": {"S": then.token},
            "expires": {"N": until},
        }
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
            sample.guards.append((Guard(_before(Mark(), _FIRST)), OURS))
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


def mark_name(key: ItemKey) -> str:
    """Name the mark of an item: a hash, which spreads them over the table."""
    text = f"{key.pk!r}\0{key.sk!r}"
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def read_mark(item: dict[str, Any]) -> Mark:
    """Read a mark from its item."""

    def texts(name: str) -> frozenset[str]:
        return frozenset(item[name]["SS"]) if name in item else frozenset()

    position = item["position"]["S"]
    return Mark(position or START, texts("done"), texts("lanes"))


def after(mark: Mark, position: str, lanes: frozenset[str]) -> Mark:
    """Return the mark when everything up to a change is done."""
    return replace(mark, position=position, done=frozenset(), lanes=lanes)
