"""The fence of a replay: an old change takes effect IF its item is still as the change left it.

In: a change of an archive. Out: one transaction with its effects, and with two conditions: each
attribute of the change's new image is as it was, and the entity's other fields are still missing;
and no changes of the item are parked for this handler. An item that has changed since has a later
change, whose effects are in the table already: the old ones would overwrite them.

On failure: `passed` says why nothing was written. A second attempt is harmless, because the effects
of a replay only say what is to be, and do not add up.
"""

import random
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from streamkit.core.loop import Overtaken
from streamkit.core.outcome import PendingChange
from streamkit.effects import Guard
from streamkit.entity import Entity, attribute_names
from streamkit.model.codec import decode, decode_image
from streamkit.model.conditions import Condition, absent, as_it_was, present
from streamkit.model.schema import TableSchema
from streamkit.progress.actions import QUEUE, Action, GuardSource, ItemRef, Verb, Wire
from streamkit.progress.commit import Applied, Batch, Verdict
from streamkit.progress.control import Cursor
from streamkit.progress.cursor import CursorStore
from streamkit.progress.transaction import ACTIONS_MAX, transact
from streamkit.progress.verdicts import RefusedCommit
from streamkit.stream.decode import Record

ATTRIBUTES_MAX = 200
"""Attributes that one condition can compare: its expression may have 4 KB."""
CHANGED = "its item has changed since"
PARKED = "changes of its item are parked"
TOO_LARGE = "it does not fit in one transaction with its check"
_START = Cursor("replay")
_AS_LEFT = GuardSource("", "as left", QUEUE)
_NOT_QUEUED = GuardSource("", "not queued", QUEUE)


@dataclass(frozen=True)
class Image:
    """An item as a change left it, None if the change removed it; `names` are what is compared."""

    left: Mapping[str, object] | None
    names: tuple[str, ...]

    @classmethod
    def of(cls, record: Record, entity: type[Entity]) -> "Image":
        """Read what a change left.

        Raises:
            ValueError: the image cannot be read.
        """
        if record.new_image is None:
            return cls(None, ())
        left = decode_image(record.new_image)
        names = {*left, *attribute_names(entity).values(), *entity.__also_read__}
        return cls(left, tuple(sorted(names)))

    def is_in(self, item: Mapping[str, Wire] | None) -> bool:
        """Return whether an item is still as the change left it."""
        if item is None or self.left is None:
            return item is None and self.left is None
        missing = object()
        return all(
            self.left.get(name, missing) == (decode(item[name]) if name in item else missing)
            for name in self.names
        )

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """Return what must hold of the item in a transaction."""
        if self.left is None:
            return (absent,)
        return (present, *as_it_was(self.names, self.left))


@dataclass
class AsLeft:
    """Commits the effects of one change and handler, once; the fence of a replay.

    `item` and `image` are checked, if there is an image; `queue` is the parked queue of the item,
    empty for a handler that has none.
    """

    store: CursorStore
    schemas: Mapping[str, TableSchema]
    rng: random.Random
    item: ItemRef
    image: Image | None
    queue: str
    written: int = 0
    passed: str = ""

    @property
    def start(self) -> Cursor:
        """Return a cursor without a position: there is one change."""
        return _START

    async def commit(
        self,
        plan: Batch,
        pending: Sequence[PendingChange],  # noqa: ARG002 - there is one
    ) -> Verdict | Overtaken:
        """Commit a plan, if the item is as the change left it."""
        everything = self._checked([*plan.actions, *plan.plain])
        if len(everything) > ACTIONS_MAX:
            return self._pass(TOO_LARGE)
        sent = await transact(self.store.dynamodb, self.schemas, everything, self.rng)
        if sent is None:
            self.written = len(plan.actions) + len(plan.plain)
            plan.plain = []  # they were in the transaction
            return Applied(plan)
        if isinstance(sent, RefusedCommit):
            if _AS_LEFT in sent.sources:
                return self._pass(CHANGED)
            if _NOT_QUEUED in sent.sources:
                return self._pass(PARKED)
        return sent

    def drop(self, plan: Batch, pending: deque[PendingChange]) -> list[PendingChange]:
        """Drop the change."""
        return [pending.popleft() for _ in range(plan.changes)]

    def adopted(self, won: Batch) -> None:
        """Do nothing: `commit` has noted what is `written`."""

    def _pass(self, reason: str) -> Overtaken:
        self.passed = reason
        return Overtaken([])

    def _checked(self, actions: Sequence[Action]) -> list[Action]:
        """Return the actions with the conditions; a handler may write the item itself."""
        found = [action.copy() for action in actions]
        if self.image is not None:
            mine = next((action for action in found if action.ref == self.item), None)
            if mine is None:
                mine = Action(self.item, Verb.CHECK)
                found.append(mine)
            mine.guards += [(Guard(one), _AS_LEFT) for one in self.image.conditions]
        if self.queue:
            queue = Action(self.store.space.ref("lane", self.queue), Verb.CHECK)
            queue.guards.append((Guard(absent), _NOT_QUEUED))
            found.append(queue)
        return found
