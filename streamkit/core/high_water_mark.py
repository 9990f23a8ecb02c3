"""High-water mark: how far one source item is done, for a host that has no cursor.

A mark ends by TTL, a week after its last change: long after any change of its item could come
again. A mark that names parked queues does not end while these exist, because the next
change of its item must queue behind the parked ones, however long that takes. So the transaction
that empties a parked queue also takes its name off the mark; when the last name goes, the week
begins.

In: an item's key, or an item that was read. Out: marks, and the action at the end of a parked
queue. That action is conditional on what was read (`MARK_GUARD`), so that a refused caller reads
again.
"""

import hashlib
from collections.abc import Mapping
from typing import Any, NamedTuple

from streamkit.changes import ItemKey
from streamkit.core.parking import Parked, queue_name
from streamkit.effects import Guard
from streamkit.model.conditions import Attr, absent, any_of
from streamkit.progress.actions import MARK_GUARD, Action, GuardSource, Verb
from streamkit.progress.control import START
from streamkit.progress.cursor import CursorStore
from streamkit.stream.decode import Record

KEPT_SECONDS = 7 * 86_400
"""A week; a stream keeps records for a day, and a mapping retries no longer."""


class HighWaterMark(NamedTuple):
    """How far an item is done.

    `position` is that of its last finished change. `done` names handlers that are done with the
    change after it, as `position:handler`. `queues` names the item's parked queues.
    """

    position: str = START
    done: frozenset[str] = frozenset()
    queues: frozenset[str] = frozenset()

    @property
    def token(self) -> str:
        """Return the position as text that sorts: the beginning is before all positions."""
        return "" if self.position == START else self.position

    @property
    def is_bare(self) -> bool:
        """Return whether the mark says nothing but the position."""
        return not self.done and not self.queues


def mark_name(key: ItemKey) -> str:
    """Return the name of an item's mark: a hash, which spreads the marks over the table."""
    text = f"{key.pk!r}\0{key.sk!r}"
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def mark_path(incarnation: str, name: str) -> tuple[str, ...]:
    """Return the key parts of a mark; a former consumer of the same name has different marks."""
    return ("mark", incarnation, name) if incarnation else ("mark", name)


def read_mark(item: Mapping[str, Any]) -> HighWaterMark:
    """Read a mark from its item."""

    def texts(name: str) -> frozenset[str]:
        return frozenset(item[name]["SS"]) if name in item else frozenset()

    position = item["position"]["S"]
    return HighWaterMark(position or START, texts("done"), texts("lanes"))


def expiry(now: float) -> dict[str, str]:
    """Return when a mark that is written now ends."""
    return {"N": str(int(now) + KEPT_SECONDS)}


def item_of(parked: Parked) -> ItemKey | None:
    """Return the item whose changes queue in a parked change's queue.

    None for the queues of a fan-out's recipients and of late changes, where nothing queues.
    """
    key = Record.from_bytes(parked.record).item_key
    return key if queue_name(parked.handler, key) == parked.queue else None


async def path_of(store: CursorStore, key: ItemKey) -> tuple[str, ...]:
    """Return the key parts of an item's mark, for the consumer as it is now."""
    consumer = await store.item("consumer") or {}
    incarnation = str(consumer.get("incarnation", {"S": ""})["S"])
    return mark_path(incarnation, mark_name(key))


async def let_go(store: CursorStore, parked: Parked, now: float) -> list[Action]:
    """Return the actions that take a parked queue off its item's mark, with its last change.

    A mark that does not name the queue is checked instead. A move to Lambda may be about to name it
    there; without the check, nothing would ever remove the name of a queue that is gone.
    """
    key = item_of(parked)
    if key is None:
        return []
    path = await path_of(store, key)
    item = await store.item(*path)
    queues = read_mark(item).queues if item else frozenset()
    source = GuardSource(parked.position, path[-1], MARK_GUARD)
    if parked.queue not in queues:
        unnamed = ~Attr("lanes").contains(parked.queue)
        check = Action(store.space.ref(*path), Verb.CHECK)
        check.guards.append((Guard(any_of(absent, unnamed)), source))
        return [check]
    action = store.space.update(*path)
    if len(queues) > 1:
        action.subtractions["lanes"] = {"SS": [parked.queue]}
    else:
        action.removes.add("lanes")
        action.sets["expires"] = expiry(now)
    action.guards.append((Guard(Attr("lanes").eq(set(queues))), source))
    return [action]
