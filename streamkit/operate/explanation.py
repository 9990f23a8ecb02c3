"""Explain what an app makes of one item.

In: an app with its listeners, clients, and the item's key. Out: its entity, the handlers that
listen to it, its parked queues with their first errors, what wrote it last, the groups of
aggregates that it counts in, and, if asked for, its changes that the stream still holds. Nothing is
written. The item's own values are returned only if asked for; groups are shown as hashes.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from streamkit.app import App, consumers_of
from streamkit.aws import Aws, patiently
from streamkit.changes import ItemKey
from streamkit.core.parked.queues import item_part
from streamkit.core.parking import queue_name
from streamkit.core.tables import AppTables, survey
from streamkit.entity import Entity
from streamkit.errors import ConfigurationError
from streamkit.fleet.lag import listeners
from streamkit.model.codec import decode_item, decode_number, encode_key
from streamkit.model.json_fields import JsonFields
from streamkit.model.origin import written_by
from streamkit.model.schema import TableSchema
from streamkit.operate.groups import Group, groups_of
from streamkit.operate.past.history import history_of
from streamkit.operate.past.past import open_archive
from streamkit.operate.replay.dry_runs import DryRuns
from streamkit.operate.sightings import (
    ItemView,
    ShardLook,
    Sighting,
    carriers_of,
    record_of,
    sighting_of,
    view_item,
)
from streamkit.stream.decode import CONTROL, Record
from streamkit.stream.listing import list_shards
from streamkit.worker.joined_app import app_as_run

PAGES_MAX = 200
"""Pages of the stream that are read at most, in all; a page is up to 1,000 records, or 1 MB."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """A parked change of the item; the first of a queue has failed, later ones wait."""

    position: str
    error: str | None
    attempts: int
    at: int
    queue: str = ""


@dataclass(frozen=True, slots=True)
class Listening:
    """A handler that listens to the item's entity; `kinds` are none if only its queue is left.

    `queue` names the item's queue for it, as `parked` and logs do; if the order of its changes does
    not matter, each has a queue, and this is the first one's. `due` is when one is tried next
    (epoch seconds, 0: at once; None: nothing is parked, or all is stuck).

    `state` says what will happen to the item's next change: `parked` or `stuck`, it waits behind
    parked ones (if they need an order); `paused`; `waits`, because the shard that carries it, or a
    parent, waits for the handlers in `waits_for`; `may wait`, where some open shards do, and
    `records` did not show which one carries the item; `unknown`, on functions with a handler that
    blocks; else `free`.
    """

    consumer: str
    handler: str
    kinds: tuple[str, ...]
    when: str | None
    declared: str
    queue: str
    state: str = "free"
    due: int | None = None
    parked: tuple[Waiting, ...] = ()
    waits_for: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Explanation(JsonFields):
    """The explanation of one item; `kind` is `entity`, `control` or `unknown`.

    `digest` is its key in logs. `attributes` are the names of its attributes, `data` their values
    if they were asked for. `written_by` is the handler that wrote it last, after so many `hops`, or
    the migration, after none. `shards` counts the open shards that could carry its next change.
    `sightings` is None if the stream was not read, and `whole` says whether all of it was.
    """

    table: str
    digest: str
    kind: str
    entity: str | None
    exists: bool
    attributes: tuple[str, ...]
    written_by: str | None
    hops: int
    listening: tuple[Listening, ...]
    groups: tuple[Group, ...]
    problem: str | None
    shards: int
    sightings: tuple[Sighting, ...] | None = None
    whole: bool = True
    data: dict[str, Any] | None = field(default=None, repr=False)


async def explain_item(
    app: App,
    aws: Aws,
    pk: str,
    sk: str | None = None,
    *,
    records: bool = False,
    pages: int = PAGES_MAX,
    show_data: bool = False,
    history: bool = False,
) -> Explanation:
    """Explain an item, by its key as text.

    Args:
        app: the app whose handlers are shown, with those of its listeners.
        aws: open clients.
        pk: the partition key.
        sk: the sort key, if the table has one.
        records: read its changes in the stream, from the oldest record on: one call a page; AWS
            advises no more than two readers a shard.
        pages: pages of the stream that are read at most.
        show_data: return the item's values.
        history: read its changes in the app's archive, too: every object.

    Raises:
        ConfigurationError: the table has a sort key and none is given, or the other way round; a
            key is to be a number and is none; or the table is missing or has no stream, or may not
            be described.
    """
    app, tables = await app_as_run(app, aws), await survey(app, aws)
    looking = _Looking(app, aws, tables, _wire(tables.table, pk, sk))
    pages = pages if records or history else 0
    return await looking.explain(pages, show_data=show_data, history=history)


def _wire(schema: TableSchema, pk: str, sk: str | None) -> dict[str, dict[str, Any]]:
    if (sk is None) != (schema.sk is None):
        wanted = "has no sort key" if schema.sk is None else "has a sort key: give both"
        raise ConfigurationError(f"table {schema.name} {wanted}")
    for name, kind, text in ((schema.pk, schema.pk_type, pk), (schema.sk, schema.sk_type, sk)):
        try:
            if kind == "N":
                decode_number(str(text))
        except (ValueError, ArithmeticError):
            raise ConfigurationError(
                f"the key {name!r} of {schema.name} is a number; {text!r} is none"
            ) from None
    key = {schema.pk: encode_key(pk, schema.pk_type)}
    if schema.sk is not None and schema.sk_type is not None:
        key[schema.sk] = encode_key(str(sk), schema.sk_type)
    return key


@dataclass
class _Looking:
    app: App
    aws: Aws
    tables: AppTables
    wire: dict[str, dict[str, Any]]

    def __post_init__(self) -> None:
        self.schema = self.tables.table
        self.consumers: Sequence[App] = consumers_of([self.app])
        self.route = self.app.router(self.schema).route

    async def explain(self, pages: int, *, show_data: bool, history: bool) -> Explanation:
        reply = await patiently(
            lambda: self.aws.dynamodb.get_item(
                TableName=self.schema.name, Key=self.wire, ConsistentRead=True
            )
        )
        item: dict[str, Any] | None = reply.get("Item")
        record = record_of(self.wire, item)
        entity = self.route(record)
        key = record.item_key
        known = entity if isinstance(entity, type) else None
        counted, problem = groups_of(self.consumers, known, item, self.schema)
        writer, hops = written_by(item or {})
        shards = (await list_shards(self.aws, self.schema.stream_arn or "")).shards
        views = [await self._view(consumer, known, key) for consumer in self.consumers]
        sightings, whole = None, True
        if pages:
            sightings, whole = await self._sightings(key, [s.id for s in shards], views, pages)
        if history:
            ids = {shard.id for shard in shards}
            sightings, kept = await self._history(key, views, sightings or (), ids)
            whole = whole and kept
        carriers = carriers_of(shards, [one.shard for one in sightings or ()])
        return Explanation(
            table=self.schema.name,
            digest=key.digest,
            kind="control" if entity is CONTROL else "entity" if known else "unknown",
            entity=known.__name__ if known else None,
            exists=item is not None,
            attributes=tuple(sorted(item or ())),
            written_by=writer,
            hops=hops,
            listening=tuple(one for v in views for one in _listening_of(v, carriers)),
            groups=counted,
            problem=problem,
            shards=sum(shard.ending is None for shard in shards),
            sightings=sightings,
            whole=whole,
            data=decode_item(item) if show_data and item is not None else None,
        )

    async def _view(self, consumer: App, entity: type[Entity] | None, key: ItemKey) -> ItemView:
        handlers = [handler for handler in consumer.handlers if handler.entity is entity]
        return await view_item(consumer, self.tables.store(consumer, self.aws), handlers, key)

    async def _sightings(
        self, key: ItemKey, shards: Sequence[str], views: Sequence[ItemView], pages: int
    ) -> tuple[tuple[Sighting, ...], bool]:
        """Read the shards; each of them gets its share before the pages are used up."""
        found: list[Sighting] = []
        whole, left = True, pages
        for number, shard in enumerate(shards):
            share = max(1, left // (len(shards) - number)) if left else 0
            reading = ShardLook(self.aws, self.schema.stream_arn or "", shard, share)
            found += [
                sighting_of(shard, record, views, self._runs(record))
                async for record in reading.records()
                if self.route(record) is not None and record.item_key == key
            ]
            left -= share - reading.pages
            whole &= reading.ended
        return tuple(sorted(found, key=lambda one: (one.created_at, one.position))), whole

    async def _history(
        self,
        key: ItemKey,
        views: Sequence[ItemView],
        streamed: Sequence[Sighting],
        listed: Collection[str],
    ) -> tuple[tuple[Sighting, ...], bool]:
        """Add the changes of the archive to those that the stream still has."""
        found = {(one.shard, one.position): one for one in streamed}
        runs = DryRuns(self.consumers, self.tables)
        async with open_archive(self.app, self.tables) as archive:
            reading = await history_of(self.app, self.aws, self.tables, archive, key)
            async for shard, record in reading.records():
                seen = sighting_of(shard, record, views, self._runs(record))
                seen = replace(seen, makes=await runs.of(record, shard))
                if shard not in listed:  # its cursor may have been deleted long ago
                    forgot = {v.consumer: "unknown" for v in views if shard not in v.cursors}
                    seen = replace(seen, states=seen.states | forgot)
                found[shard, record.position] = seen
        them = sorted(found.values(), key=lambda one: (one.created_at, one.position))
        return tuple(them), not reading.gaps

    def _runs(self, record: Record) -> Iterator[str]:
        """Yield the handlers that listen to a change, as they are declared now."""
        for consumer in self.consumers:
            for handler in listeners(consumer, self.schema)(record):
                yield f"{consumer.name}/{handler.name}"


def _listening_of(view: ItemView, carriers: Sequence[Sequence[str]]) -> Iterator[Listening]:
    for name, handler in view.named.items():
        first = queue_name(name, view.key)
        state, waits_for = view.state_of(name, carriers)
        queues = view.queues_of(name)
        held = [p for p in view.parked if item_part(p.queue) == first]
        yield Listening(
            consumer=view.consumer,
            handler=name,
            kinds=tuple(sorted(kind.value for kind in handler.kinds)) if handler else (),
            when=handler.when.text if handler and handler.when else None,
            declared=str(handler.declared) if handler else "",
            queue=held[0].queue if held else first,
            state=state,
            due=min((queue.due for queue in queues if not queue.stuck), default=None),
            parked=tuple(Waiting(p.position, p.error, p.attempts, p.at, p.queue) for p in held),
            waits_for=waits_for,
        )
