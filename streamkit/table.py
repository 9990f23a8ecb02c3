"""The typed gateway for reads: `get`, `batch_get`, `query` and `scan`, in entities.

    likes = await table.get(BrandLikes.key(brand="APPLE"))
    async for watch in table.query(BrandWatch.query(brand="APPLE")):

A handler gets one when its signature asks for it. It then sees the effects of earlier changes that
are not committed yet, and each item it gets becomes a check in its result: if the item changes
before the commit, the handler runs again. `check=False` omits the check. Queries and scans cannot
be checked (an item might appear); they see pending effects only on the table itself, not on an
index.

An aggregate that is spread over parts is read as one item for each group: a `get` reads all parts
at once; a query or a scan is read completely before it yields the first item.
"""

from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any, TypeVar

from streamkit.aws import fetch_all
from streamkit.core.availability import available
from streamkit.core.matching import Matcher
from streamkit.core.querying import (
    group_ref,
    in_bounds,
    page_request,
    part_of,
    query_request,
    sort_value,
    whole,
    widened,
)
from streamkit.core.reading import ReadTracker, Sight, applied
from streamkit.core.tables import Tables
from streamkit.entity import Entity
from streamkit.model.codec import encode_key
from streamkit.model.copies import COPY
from streamkit.model.keys import Index, Key
from streamkit.model.queries import Query, Scan
from streamkit.model.schema import TableSchema
from streamkit.progress.actions import ItemRef, Wire, item_ref
from streamkit.stream.decode import ImageDecoder

E = TypeVar("E", bound=Entity)


class Table:
    """Reads items of one table as entities; gets are strongly consistent."""

    def __init__(
        self,
        dynamodb: Any,
        schema: TableSchema,
        tracker: ReadTracker | None = None,
        tables: Tables | None = None,
        *,
        counting: bool = False,
    ) -> None:
        self.schema = schema
        self._counting = counting
        self._tables = tables or Tables(schema)
        self._dynamodb = dynamodb
        self._tracker = tracker or ReadTracker()

    def of(self, name: str) -> "Table":
        """Return another table of the account and Region; its reads are tracked and checked, too.

        Raises:
            UnknownTable: it is not in `App(tables=[...])` and not described yet; a handler runs
                again then.
        """
        return Table(self._dynamodb, self._tables.known(name), self._tracker, self._tables)

    @property
    def reads_noted(self) -> tuple[ItemRef, ...]:
        """Return the items whose reads the result depends on so far, in order."""
        return tuple(read.ref for read in self._tracker.reads)

    def forget_reads(self, noted: int) -> None:
        """Make the result independent of the reads after the first `noted` ones."""
        del self._tracker.reads[noted:]

    async def get(self, key: Key[E], *, check: bool = True, once: bool = False) -> E | None:
        """Return the item with this key, or None; `once` reads it as `look` does.

        Raises:
            DecodeError: the item does not fit the entity.
        """
        if key.entity.__parts__ is not None:
            return (await self.batch_get([key], check=check)).get(key)
        ref, stored = await self._stored(key, once=once)
        item = self._seen(ref, key.entity, stored, check=check)
        return None if item is None else self.entity_of(key.entity, item)

    def found(self, key: Key[E], stored: Mapping[str, Wire]) -> E | None:
        """Return an item that was read strongly consistent a moment ago, as `get` returns it.

        Raises:
            DecodeError: the item does not fit the entity.
        """
        ref = item_ref(self.schema, key.wire(self.schema))
        item = self._seen(ref, key.entity, dict(stored), check=True)
        return None if item is None else self.entity_of(key.entity, item)

    async def _stored(self, key: Key[Any], *, once: bool) -> tuple[ItemRef, Any]:
        wire = key.wire(self.schema)
        ref = item_ref(self.schema, wire)
        request = {"TableName": self.schema.name, "Key": wire, "ConsistentRead": True}

        async def read() -> dict[str, Wire] | None:
            item: dict[str, Wire] | None
            item = (await available(self._dynamodb.get_item(**request))).get("Item")
            return item

        return ref, await (
            self._tracker.pending.uncommitted.items.once(ref, read) if once else read()
        )

    async def look(self, key: Key[Any]) -> Sight:
        """Return an item as it is stored, whatever its entity reads; empty if it does not exist.

        It is read once for all runs between which this shard commits nothing, and checked only in
        the attributes given to `Sight.check`.
        """
        ref, stored = await self._stored(key, once=True)
        versions, actions = self._tracker.pending.of(ref)
        self._tracker.note(ref, versions, key.entity, stored, check=False)
        item = applied(actions, stored) or {}
        return Sight(item, ref, versions, stored, self._tracker.reads)

    def committed(self) -> "Table":
        """Return the same table, for counts: without pending effects, or copies in queries."""
        return Table(self._dynamodb, self.schema, tables=self._tables, counting=True)

    async def batch_get(self, keys: Iterable[Key[E]], *, check: bool = True) -> dict[Key[E], E]:
        """Return the items that exist, by key."""
        found: dict[Key[E], E] = {}
        for key, parts in (await self._read_parts(keys, check=check)).items():
            if parts:
                own = replace(key, part=0).wire(self.schema)
                found[key] = self.entity_of(
                    key.entity, whole(key.entity, own, list(parts.values()))
                )
        return found

    async def stored(self, keys: Iterable[Key[Any]]) -> dict[Key[Any], dict[str, Wire]]:
        """Return the items that exist in wire form, by key; without pending effects, unchecked."""
        wires = {key: key.wire(self.schema) for key in keys}
        items = await self._fetch(list(wires.values()))
        refs = {key: item_ref(self.schema, wire) for key, wire in wires.items()}
        return {key: items[ref] for key, ref in refs.items() if ref in items}

    async def parts(self, key: Key[Any]) -> dict[Key[Any], dict[str, Wire]]:
        """Return the parts of a group that exist, unchecked and in wire form, by their keys.

        For an entity that is not spread, this is the item.
        """
        return (await self._read_parts([key], check=False))[key]

    async def _read_parts(
        self, keys: Iterable[Key[E]], *, check: bool
    ) -> dict[Key[E], dict[Key[E], dict[str, Wire]]]:
        wanted = {
            key: {part: item_ref(self.schema, part.wire(self.schema)) for part in key.parts()}
            for key in keys
        }
        refs = dict.fromkeys(ref for parts in wanted.values() for ref in parts.values())
        stored = await self._fetch([ref.key(self.schema) for ref in refs])
        found: dict[Key[E], dict[Key[E], dict[str, Wire]]] = {}
        for key, parts in wanted.items():
            found[key] = {}
            for part, ref in parts.items():
                item = self._seen(ref, key.entity, stored.get(ref), check=check)
                if item is not None:
                    found[key][part] = item
        return found

    async def query(self, query: Query[E], *, consistent: bool | None = None) -> AsyncIterator[E]:
        """Yield a query's items in the order of their sort keys, reading as few pages as needed.

        On the table it is strongly consistent unless told otherwise, so that it sees what the page
        before has committed. On an index it is not, and on a global one it cannot be.

        Raises:
            DeclarationError: the table does not have the query's index.
            DecodeError: an item does not fit the entity.
        """
        left = query.maximum
        spread = query.entity.__parts__ is not None
        if spread and self.schema.sk is None:  # the parts have partition keys of their own
            whole = await self.get(Key(query.entity, query.pk), check=False)
            if whole is not None:
                yield whole
            return
        found = self._found(widened(query) if spread else query, consistent=consistent)
        if spread:
            found = self._grouped(query.entity, found, within=query)
        async for item in found:
            yield self.entity_of(query.entity, item)
            if left is not None:
                left -= 1
                if left == 0:
                    return

    async def _found(
        self, query: Query[E], *, consistent: bool | None
    ) -> AsyncIterator[Mapping[str, Wire]]:
        """Yield a query's items in wire form; parts of groups only for a spread entity."""
        request = query_request(query, self.schema)
        request["ConsistentRead"] = query.index is None if consistent is None else consistent
        pages = self._pages("query", request)
        written = [] if query.index is not None else self._written_under(query)
        async for item in self._merged(query, pages, written) if written else pages:
            of_spread = query.entity.__parts__ is not None
            if not (of_spread or self._is_meant(query, item)):
                continue
            found = self._own(query.entity, item, on_table=query.index is None)
            if found is not None:
                yield found

    async def _grouped(
        self,
        entity: type[E],
        items: AsyncIterator[Mapping[str, Wire]],
        *,
        within: Query[E] | None = None,
    ) -> AsyncIterator[Mapping[str, Wire]]:
        """Yield one item for each group of which there are parts, in a query's order."""
        groups: dict[ItemRef, list[Mapping[str, Wire]]] = {}
        async for item in items:
            ref = group_ref(item_ref(self.schema, item))
            if within is None or in_bounds(within, ref):
                groups.setdefault(ref, []).append(item)
        refs = list(groups)
        if within is not None:
            refs.sort(key=sort_value, reverse=within.descending)
        for ref in refs:
            yield whole(entity, ref.key(self.schema), groups[ref])

    async def scan(self, entity: type[E], *, index: Index | None = None) -> AsyncIterator[E]:
        """Yield every item of an entity, by reading the whole table (or index).

        Items of other types are skipped, but they are read and cost money.
        """
        found = self._scanned(entity, index)
        if entity.__parts__ is not None:
            found = self._grouped(entity, found)
        async for item in found:
            yield self.entity_of(entity, item)

    async def _scanned(
        self, entity: type[E], index: Index | None
    ) -> AsyncIterator[Mapping[str, Wire]]:
        request: dict[str, Any] = {"TableName": self.schema.name}
        if index is not None:
            request["IndexName"] = index.name
        written = self._tracker.pending.refs() if index is None else set()
        async for item in self._pages("scan", request):
            if written:
                written.discard(item_ref(self.schema, item))
            if self.is_of(entity, item):
                found = self._own(entity, item, on_table=index is None)
                if found is not None:
                    yield found
        for ref in written:  # the remaining items are not in the table yet
            versions, actions = self._tracker.pending.of(ref)
            new = applied(actions, None)
            if new is not None and self.is_of(entity, {**new, **ref.key(self.schema)}):
                self._tracker.note(ref, versions, entity, None, check=False)
                yield {**new, **ref.key(self.schema)}

    async def page(
        self,
        wanted: Query[Any] | Scan[Any],
        *,
        after: Mapping[str, Wire] | None = None,
        limit: int = 100,
    ) -> tuple[list[dict[str, Wire]], dict[str, Wire] | None]:
        """Return raw items of one page, without pending effects, and where the next one begins.

        Args:
            wanted: what to read; strongly consistent on the table itself.
            after: `place_of` the last item before the page; without it, the first page.
            limit: the most items that are read. In a scan, those of other entities are left out.
        """
        request = page_request(wanted, self.schema, after)
        request |= {"Limit": limit, "ConsistentRead": wanted.index is None}
        call = self._dynamodb.query if isinstance(wanted, Query) else self._dynamodb.scan
        reply = await available(call(**request))
        items = [item for item in reply["Items"] if self._is_meant(wanted, item)]
        return items, reply.get("LastEvaluatedKey")

    def place_of(self, wanted: Query[Any] | Scan[Any], item: Mapping[str, Wire]) -> dict[str, Wire]:
        """Return an item's place in a query or scan; `page` continues after it."""
        names = set(self.schema.key_attributes)
        if wanted.index is not None:
            pk, sk = wanted.index.key_attributes(self.schema)
            names |= {name for name, _ in pk + sk}
        return {name: item[name] for name in names}

    def entity_of(
        self, entity: type[E], item: Mapping[str, Wire], fields: tuple[str, ...] | None = None
    ) -> E:
        """Return a raw item as its entity, or as an entity that has these fields alone.

        Raises:
            DecodeError: it does not fit, or one of the fields does not.
        """
        decoded: E = _decoder(entity, self.schema).decode_item(item, fields)
        return decoded

    def _written_under(self, query: Query[Any]) -> list[ItemRef]:
        """Return the items in the query's range that earlier changes have written."""
        pk = encode_key(query.pk, self.schema.pk_type)
        return [
            ref
            for ref in self._tracker.pending.refs()
            if {ref.pk[0]: ref.pk[1]} == pk and in_bounds(query, ref)
        ]

    async def _merged(
        self, query: Query[Any], pages: AsyncIterator[Any], written: list[ItemRef]
    ) -> AsyncIterator[Any]:
        """Read a query completely, so that items which exist only as pending effects are in order.

        An item that is not in the table yet has only its key; `_own` adds the rest.
        """
        found = {item_ref(self.schema, item): item async for item in pages}
        for ref in written:
            found.setdefault(ref, ref.key(self.schema))
        for ref in sorted(found, key=sort_value, reverse=query.descending):
            yield found[ref]

    async def _pages(self, operation: str, request: dict[str, Any]) -> AsyncIterator[Any]:
        while True:
            reply = await available(getattr(self._dynamodb, operation)(**request))
            for item in reply["Items"]:
                yield item
            if "LastEvaluatedKey" not in reply:
                return
            request = {**request, "ExclusiveStartKey": reply["LastEvaluatedKey"]}

    def _is_meant(self, wanted: Query[Any] | Scan[Any], item: Mapping[str, Wire]) -> bool:
        if self._counting and COPY in item:
            return False
        if isinstance(wanted, Query):
            is_part = part_of(item_ref(self.schema, item))
            return not (is_part or self._matcher(wanted.entity).is_anothers(item))
        return self.is_of(wanted.entity, item)

    def is_of(self, entity: type[Entity], item: Mapping[str, Wire]) -> bool:
        """Return whether an item belongs to an entity, by the same rules as routing."""
        return self._matcher(entity).matches(item)

    def _matcher(self, entity: type[Entity]) -> Matcher:
        return _matcher(entity, self.schema, self._tables.entities)

    async def _fetch(self, keys: list[dict[str, Wire]]) -> dict[ItemRef, dict[str, Wire]]:
        items = await available(fetch_all(self._dynamodb, self.schema.name, keys, patient=False))
        return {item_ref(self.schema, item): item for item in items}

    def _seen(
        self, ref: ItemRef, entity: type[E], stored: dict[str, Wire] | None, *, check: bool
    ) -> dict[str, Wire] | None:
        versions, actions = self._tracker.pending.of(ref)
        self._tracker.note(ref, versions, entity, stored, check=check)
        seen = applied(actions, stored)
        return None if seen is None else {**seen, **ref.key(self.schema)}

    def _own(
        self, entity: type[Entity], stored: Mapping[str, Wire], *, on_table: bool
    ) -> dict[str, Wire] | None:
        """Return an item as pending effects leave it, with its key; None if they delete it."""
        item: dict[str, Wire] | None = dict(stored)
        key = {name: stored[name] for name in self.schema.key_attributes}
        if on_table and item is not None:
            ref = item_ref(self.schema, item)
            versions, actions = self._tracker.pending.of(ref)
            if versions:  # so that the handler runs again if these effects do not happen
                self._tracker.note(ref, versions, entity, None, check=False)
            if len(item) == len(self.schema.key_attributes) and actions:
                item = None  # it exists only as a pending effect
            item = applied(actions, item)
        return None if item is None else {**item, **key}


_decoder, _matcher = lru_cache(maxsize=1_000)(ImageDecoder), lru_cache(maxsize=1_000)(Matcher)
"""Those of an entity, for all runs of handlers, each of which has its own tables."""
