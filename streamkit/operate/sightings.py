"""Find the changes of an item that the stream still holds, and what consumers did with them.

In: an item, what consumers store of it, and shards. Out: its changes, each with one word for each
consumer. A position behind a change does not show whether the change was parked, passed over, or
done by functions: this is looked up. What cannot be found out is `unknown`.
"""

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import msgspec

from streamkit.app import App
from streamkit.aws import Aws, AwsError, ErrorKind, patiently, trouble_of
from streamkit.changes import ItemKey
from streamkit.core.handler import Handler
from streamkit.core.high_water_mark import HighWaterMark, path_of, read_mark
from streamkit.core.parked.queues import (
    ParkedQueue,
    item_part,
    list_parked,
    parked_queues,
    read_queues,
)
from streamkit.core.parking import Parked, queue_name
from streamkit.fleet.cursors import every_cursor
from streamkit.fleet.generation import Generation, newest_generation
from streamkit.fleet.hosting import LAMBDA, TAKEN
from streamkit.fleet.members import MemberList
from streamkit.fleet.taken import HANDED_OVER
from streamkit.model.origin import read_origin
from streamkit.operate.shards import waits_by_shard
from streamkit.progress.control import Cursor
from streamkit.progress.cursor import CursorStore
from streamkit.stream.decode import Record
from streamkit.stream.lineage import Shard
from streamkit.stream.reader import StreamPages

_EMPTY_MAX = 5
"""So many empty pages in a row count as the tip: sparse shards were seen to need as many."""


@dataclass(frozen=True, slots=True)
class Sighting:
    """A change of the item in the stream, or in the archive.

    `states` says for each consumer what became of it: `parked for` or `stuck for` some handlers;
    `done`, if the written position, or on Lambda the item's high-water mark, is past it; `to come`,
    if that is not past it; `before its start`; `its app's`, if the app has taken its handler over
    there; `unknown`. A position without effects is written a minute later, on a quiet shard an hour
    later. `origin` says what wrote it, such as `handler`, or `origin only`: no handler receives
    such a change. `runs` are the handlers of the app as it is now that listen to such a change, as
    `consumer/handler`. `makes` says what each would make of it, if that was asked for.
    """

    shard: str
    position: str
    kind: str
    created_at: float
    origin: str
    hops: int
    states: dict[str, str]
    runs: tuple[str, ...] = ()
    makes: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ItemView:
    """What one consumer stores of an item, in its control items.

    `parked` are the changes in the item's own `queues` (parked queues), and those that are parked
    for recipients of its fan-outs. `waits` names the handlers that each shard waits for.
    """

    consumer: str
    key: ItemKey
    handlers: tuple[Handler, ...]
    generation: Generation | None
    cursors: Mapping[str, Cursor]
    queues: Mapping[str, ParkedQueue]
    parked: tuple[Parked, ...]
    waits: Mapping[str, tuple[str, ...]]
    paused: int
    mark: HighWaterMark

    @property
    def named(self) -> dict[str, Handler | None]:
        """Return its handlers by name, and None for those that only have changes parked of it."""
        former = dict.fromkeys(sorted(queue.handler for queue in self.queues.values()))
        mine: dict[str, Handler | None] = {handler.name: handler for handler in self.handlers}
        return mine | {name: None for name in former if name not in mine}

    def queues_of(self, handler: str) -> list[ParkedQueue]:
        """Return the item's queues for a handler: several if its changes do not wait in order."""
        name = queue_name(handler, self.key)
        return [queue for queue in self.queues.values() if item_part(queue.name) == name]

    def state_of(
        self, handler: str, carriers: Sequence[Sequence[str]]
    ) -> tuple[str, tuple[str, ...]]:
        """Return the state that the item's next change finds, and what its shard waits for.

        Args:
            handler: the name of a handler of this consumer.
            carriers: the shards that may carry the change, each with its parents.
        """
        queues = self.queues_of(handler)
        if queues:
            return ("stuck" if any(queue.stuck for queue in queues) else "parked"), ()
        if self.paused:
            return "paused", ()
        if self._on_lambda:
            blocks = any(one.policy.on_failure == "block" for one in self.handlers)
            return ("unknown" if blocks else "free"), ()
        each = [{name for shard in line for name in self.waits.get(shard, ())} for line in carriers]
        names = tuple(sorted(set[str]().union(*each)))
        if not names:
            return "free", ()
        return ("waits" if all(each) else "may wait"), names

    def became(self, shard: str, record: Record) -> str:
        """Return what the consumer did with a change of the item."""
        for word, stuck in (("stuck", True), ("parked", False)):
            names = sorted(
                {
                    p.handler
                    for p in self.parked
                    if p.position == record.position and self.queues[p.queue].stuck is stuck
                }
            )
            if names:
                return f"{word} for {', '.join(names)}"
        if self.generation is None:
            return "unknown"
        if self._on_lambda:
            return "done" if self.mark.token >= record.position else "to come"
        found = _by_position(self.cursors.get(shard), record)
        return "its app's" if found == "to come" and self._is_taken(shard) else found

    def _is_taken(self, shard: str) -> bool:
        """Return whether an app runs the handler of this consumer on a shard."""
        host = self.generation.host if self.generation else ""
        mine = self.cursors.get(shard)
        return host == TAKEN or (mine is not None and mine.state == HANDED_OVER)

    @property
    def _on_lambda(self) -> bool:
        return self.generation is not None and self.generation.host == LAMBDA


async def view_item(
    app: App, store: CursorStore, handlers: Sequence[Handler], key: ItemKey
) -> ItemView:
    """Read what an app's consumer stores of an item, to which its `handlers` listen."""
    cursors = await every_cursor(store)
    # A queue's name shows its item only to those who know its handler, which another version of the
    # app may have had; a recipient's queue has a name of its own, which does not show it at all.
    listed = await parked_queues(store, cursors)
    known = {handler.name for handler in handlers} | {queue.handler for queue in listed}
    names = {queue_name(name, key) for name in known}
    fanned = {handler.name for handler in handlers if handler.broadcast is not None}
    own = {queue.name: queue for queue in listed if item_part(queue.name) in names}
    own |= {queue.name: queue for queue in await read_queues(store, names - own.keys())}
    parked = await list_parked(store, list(own.values()))
    apart = [queue for queue in listed if queue.handler in fanned and queue.name not in own]
    parked += [p for p in await list_parked(store, apart) if p.to]
    seen = await MemberList(store).look()
    item = await store.item(*await path_of(store, key))
    return ItemView(
        consumer=app.name,
        key=key,
        handlers=tuple(handlers),
        generation=await newest_generation(store),
        cursors=cursors,
        queues={queue.name: queue for queue in apart} | own,
        parked=tuple(parked),
        waits=waits_by_shard(cursors, seen.members),
        paused=seen.paused,
        mark=read_mark(item) if item else HighWaterMark(),
    )


def _by_position(cursor: Cursor | None, record: Record) -> str:
    if cursor is None:
        return "to come"
    if cursor.since and record.created_at < cursor.since:
        return "before its start"
    at_start = not cursor.position.isdecimal()
    passed = cursor.finished or (not at_start and record.position <= cursor.position)
    return "done" if passed else "to come"


def carriers_of(shards: Sequence[Shard], seen: Sequence[str]) -> list[list[str]]:
    """Return the open shards that may carry an item's next change, each with its parents.

    An item stays in the last shard in which it was seen, and moves from there to a child of that
    shard.
    """
    parents = {shard.id: shard.parent for shard in shards}
    lines = [line_of(shard.id, parents) for shard in shards if shard.ending is None]
    for name in reversed(seen):
        after = [line for line in lines if name in line]
        if after:
            return after
    return lines


def line_of(shard: str, parents: Mapping[str, str | None]) -> list[str]:
    """Return a shard, its parent, and so on, as far as they are known."""
    line: list[str] = []
    name: str | None = shard
    while name is not None and name not in line:
        line.append(name)
        name = parents.get(name)
    return line


def record_of(wire: Mapping[str, Any], item: Mapping[str, Any] | None) -> Record:
    """Return a record of the item as it is, for the code that routes records."""
    image = {} if item is None else {"NewImage": item}
    inner = {"Keys": wire, "SequenceNumber": "0", "ApproximateCreationDateTime": 0.0, **image}
    record = {"eventID": "-", "eventName": "MODIFY", "dynamodb": inner}
    return Record.from_bytes(msgspec.json.encode(record))


def sighting_of(
    shard: str, record: Record, views: Iterable[ItemView], runs: Iterable[str]
) -> Sighting:
    """Return what a record of the item is, what each consumer did with it, and what it `runs`."""
    origin = read_origin(record.old_image, record.new_image)
    return Sighting(
        shard=shard,
        position=record.position,
        kind=record.kind.value,
        created_at=record.created_at,
        origin=origin.writer if origin else "origin only",
        hops=origin.hops if origin else 0,
        states={view.consumer: view.became(shard, record) for view in views},
        runs=tuple(runs),
    )


@dataclass
class ShardLook:
    """One shard that is read from its oldest record, for up to `pages` pages."""

    aws: Aws
    arn: str
    shard: str
    pages: int
    ended: bool = False

    async def records(self) -> AsyncIterator[Record]:
        """Yield its records, oldest first."""
        iterator: str | None = None
        empty = 0
        while self.pages and not self.ended:
            try:
                if iterator is None:
                    where = {"ShardId": self.shard, "ShardIteratorType": "TRIM_HORIZON"}
                    iterator = await self.aws.get_iterator(StreamArn=self.arn, **where)
                page = await patiently(partial(StreamPages(self.aws).get_records, iterator))
            except AwsError as error:
                trouble = trouble_of(error)
                if trouble not in (ErrorKind.MISSING, ErrorKind.TRIMMED, ErrorKind.EXPIRED):
                    raise
                self.ended = trouble is ErrorKind.MISSING  # the shard was trimmed meanwhile
                return
            self.pages -= 1
            for record in page.records:
                yield record
            iterator = page.next_iterator
            empty = 0 if page.records else empty + 1
            self.ended = iterator is None or empty >= _EMPTY_MAX
