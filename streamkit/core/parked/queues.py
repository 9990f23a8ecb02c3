"""Parked changes as they are in the table: find, list and show them.

In: the control items of a consumer. Out: parked queues and parked changes, in the order in which
they will be redriven. Queues are found through the chunks of queued keys that cursors name, changes
by following a queue from its head; all reads are gets, never a scan. Changes made meanwhile may be
missed or be gone.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from streamkit.core.parking import LAMBDA_CHUNKS, Parked, read_parked
from streamkit.errors import InvariantError
from streamkit.progress.control import Cursor, names_in
from streamkit.progress.cursor import CursorStore

_READS_MAX = 20
"""How often a queue is read again, while another process takes changes off it between two reads."""


class ParkedQueue(msgspec.Struct, frozen=True):
    """A parked queue: its first and last change, and the chunk that lists it.

    `due` is when the first change is tried next (epoch seconds; 0 is at once). `tries` is how often
    it was tried since it was parked or since a person asked for it. A `stuck` queue is left alone
    until a person redrives or discards its first change. A fan-out has come as far as `token` says,
    and has `served` so many recipients, including those for whom it is parked instead (`apart`).
    `generation` is the one in which the queue began, 0 if that was not stored.
    """

    name: str
    handler: str
    head: str
    tail: str
    chunk: str
    since: int
    due: int = 0
    tries: int = 0
    stuck: bool = False
    token: str | None = None
    served: int = 0
    apart: int = 0
    generation: int = 0


@dataclass(frozen=True, slots=True)
class Selection:
    """Which parked queues are meant: those that pass every filter given, or all.

    `entity`, `error` (the kind, such as `ValueError`) and `parked_before` (epoch seconds) look at
    the first change of a queue, which is the one that failed.
    """

    queues: frozenset[str] = frozenset()
    handler: str | None = None
    entity: str | None = None
    error: str | None = None
    parked_before: float | None = None
    stuck: bool = False

    def takes_queue(self, queue: ParkedQueue) -> bool:
        """Return whether a queue passes the filters that need only its own item."""
        return (
            (not self.queues or queue.name in self.queues)
            and self.handler in (None, queue.handler)
            and (queue.stuck or not self.stuck)
        )

    def takes_first(self, first: Parked) -> bool:
        """Return whether a queue passes the filters on its first change."""
        return (
            self.entity in (None, first.entity)
            and self.error in (None, first.error)
            and (self.parked_before is None or first.at <= self.parked_before)
        )

    @property
    def _asks_first(self) -> bool:
        return (self.entity, self.error, self.parked_before) != (None, None, None)

    async def choose(self, store: CursorStore) -> list[ParkedQueue]:
        """Return the parked queues that are meant, the oldest first."""
        queues = [queue for queue in await parked_queues(store) if self.takes_queue(queue)]
        if not self._asks_first:
            return queues
        items = await store.items([("parked", queue.name, queue.head) for queue in queues])
        taken = {first.queue for first in map(read_parked, items) if self.takes_first(first)}
        return [queue for queue in queues if queue.name in taken]


def read_queue(item: Mapping[str, Any]) -> ParkedQueue:
    """Read a parked queue's item."""
    return ParkedQueue(
        name=item["lane"]["S"],
        handler=item["handler"]["S"],
        head=item["head"]["S"],
        tail=item["tail"]["S"],
        chunk=item["chunk"]["S"],
        since=int(item["since"]["N"]),
        due=int(item.get("due", {"N": "0"})["N"]),
        tries=int(item.get("tries", {"N": "0"})["N"]),
        stuck="stuck" in item,
        token=item["token"]["S"] if "token" in item else None,
        served=int(item.get("served", {"N": "0"})["N"]),
        apart=int(item.get("apart", {"N": "0"})["N"]),
        generation=int(item.get("generation", {"N": "0"})["N"]),
    )


def item_part(name: str) -> str:
    """Return the item's and handler's part of a queue's name.

    A handler for which the order of changes does not matter has a queue for each of them, whose
    name ends with the position.
    """
    return name.partition("-")[0]


async def read_queues(store: CursorStore, names: Iterable[str]) -> list[ParkedQueue]:
    """Read parked queues by name; those that do not exist (any more) are left out."""
    return [read_queue(item) for item in await store.items([("lane", name) for name in names])]


async def parked_queues(
    store: CursorStore, cursors: Mapping[str, Cursor] | None = None
) -> list[ParkedQueue]:
    """Return every parked queue, the oldest first.

    Args:
        store: the consumer's control items.
        cursors: all its cursors, if they were read already.
    """
    if cursors is None:
        cursors = await store.read_all()
    chunks = sorted({*LAMBDA_CHUNKS, *(c for cursor in cursors.values() for c in cursor.chunks)})
    holds = await store.items([("holds", chunk) for chunk in chunks])
    queues = await read_queues(store, sorted(names_in(*holds, among="lanes")))
    return sorted(queues, key=lambda queue: (queue.since, queue.handler, queue.name))


async def list_parked(store: CursorStore, queues: list[ParkedQueue] | None = None) -> list[Parked]:
    """Return every parked change without its record, queue by queue, first to last.

    Args:
        store: the consumer's control items.
        queues: only these queues; without it, all that exist.
    """
    if queues is None:
        queues = await parked_queues(store)
    found: dict[str, list[Parked]] = {queue.name: [] for queue in queues}
    wanted = [(queue.name, queue.head) for queue in queues]
    while wanted:
        items = await store.items([("parked", *place) for place in wanted])
        layer = [replace(read_parked(item), record=b"") for item in items]
        for parked in layer:
            found[parked.queue].append(parked)
        wanted = [(parked.queue, parked.next) for parked in layer if parked.next is not None]
    return [parked for changes in found.values() for parked in changes]


async def show(store: CursorStore, queue: str, position: str | None = None) -> Parked | None:
    """Return one parked change with its record; None if it is not there (any more).

    Args:
        store: the consumer's control items.
        queue: the queue's name.
        position: which of its changes; the first one without it.
    """
    if position is not None:
        return await _read(store, queue, position)
    found = await read_head(store, queue)
    return None if found is None else found[1]


async def read_head(store: CursorStore, name: str) -> tuple[ParkedQueue, Parked] | None:
    """Return a queue and its first change, with its record; None if nothing is parked in it.

    Raises:
        InvariantError: the queue names a change that is not there.
    """
    before: str | None = None
    for _ in range(_READS_MAX):
        item = await store.item("lane", name)
        if item is None:
            return None
        queue = read_queue(item)
        head = await _read(store, name, queue.head)
        if head is not None:
            return queue, head
        if queue.head == before:
            break  # the same head twice: this is no read between two writes
        before = queue.head
    raise InvariantError(f"queue {name}: its first parked change is missing")


async def _read(store: CursorStore, queue: str, position: str) -> Parked | None:
    item = await store.item("parked", queue, position)
    if item is None:
        return None
    parked = read_parked(item)
    pieces = [parked.record]
    for number in range(parked.parts):
        part = await store.item("part", queue, position, str(number))
        if part is None:
            return None
        pieces.append(bytes(part["record"]["B"]))
    return replace(parked, record=b"".join(pieces))
