"""Reads in wire form: the items of one table, as the pending effects of earlier changes leave them.

In: keys, queries and scans. Out: attributes as DynamoDB sends them, with the effects that earlier
changes have on them; what a result depends on is noted in its tracker. A group that is spread over
parts is one item. On failure: `Unavailable`, when the table throttles or does not answer.
"""

from collections.abc import AsyncIterator, Iterable, Mapping
from functools import lru_cache, partial
from typing import Any, TypeVar

from streamkit.core.availability import available
from streamkit.core.matching import Matcher
from streamkit.core.querying import (
    group_ref,
    in_bounds,
    part_of,
    query_request,
    sort_value,
    whole,
)
from streamkit.core.reading import ReadTracker, applied
from streamkit.core.tables import Tables
from streamkit.entity import Entity
from streamkit.model.codec import encode_key
from streamkit.model.copies import COPY
from streamkit.model.keys import Index, Key
from streamkit.model.queries import Query, Scan
from streamkit.model.schema import TableSchema
from streamkit.progress.actions import ItemRef, Wire, item_ref
from streamkit.progress.fetch import fetch_all

E = TypeVar("E", bound=Entity)


class WireReads:
    """Reads one table for one run of a handler; `Table` makes entities of what is read."""

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

    def is_of(self, entity: type[Entity], item: Mapping[str, Wire]) -> bool:
        """Return whether an item belongs to an entity, by the same rules as routing."""
        return self._matcher(entity).matches(item)

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

    async def _fetch(self, keys: list[dict[str, Wire]]) -> dict[ItemRef, dict[str, Wire]]:
        items = await available(fetch_all(self._dynamodb, self.schema.name, keys, patient=False))
        return {item_ref(self.schema, item): item for item in items}

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

    def _seen(
        self, ref: ItemRef, entity: type[E], stored: dict[str, Wire] | None, *, check: bool
    ) -> dict[str, Wire] | None:
        versions, actions = self._tracker.pending.of(ref)
        told = self.schema.type_attribute  # an item of another type is not the entity's
        also = () if told is None else (told,)
        self._tracker.note(ref, versions, entity, stored, check=check, also=also)
        seen = applied(actions, stored)
        item = None if seen is None else {**seen, **ref.key(self.schema)}
        return None if item is None or self._matcher(entity).is_anothers(item) else item

    def _own(
        self, entity: type[Entity], stored: Mapping[str, Wire], *, on_table: bool
    ) -> dict[str, Wire] | None:
        """Return an item as pending effects leave it, with its key; None if they delete it."""
        item: dict[str, Wire] | None = dict(stored)
        key = self.schema.key_of(stored)
        if on_table and item is not None:
            ref = item_ref(self.schema, item)
            versions, actions = self._tracker.pending.of(ref)
            if versions:  # so that the handler runs again if these effects do not happen
                self._tracker.note(ref, versions, entity, None, check=False)
            if len(item) == len(self.schema.key_attributes) and actions:
                item = None  # it exists only as a pending effect
            item = applied(actions, item)
        return None if item is None else {**item, **key}

    async def _found(
        self, query: Query[E], *, consistent: bool | None
    ) -> AsyncIterator[Mapping[str, Wire]]:
        """Yield a query's items in wire form; parts of groups only for a spread entity."""
        request = query_request(query, self.schema)
        request["ConsistentRead"] = query.index is None if consistent is None else consistent
        pages = self._pages("query", request)
        written = [] if query.index is not None else self._written_under(query)
        is_meant = partial(self._is_meant, query)
        if query.entity.__parts__ is not None:
            is_meant = partial(self.is_of, query.entity)
        async for item in self._merged(query, pages, written) if written else pages:
            found = self._own(query.entity, item, on_table=query.index is None)
            if found is not None and is_meant(found):  # a pending effect may change its type
                yield found

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

    async def _scanned(
        self, entity: type[E], index: Index | None
    ) -> AsyncIterator[Mapping[str, Wire]]:
        request: dict[str, Any] = {"TableName": self.schema.name}
        if index is not None:
            request["IndexName"] = index.name
        written = self._tracker.pending.refs() if index is None else set()
        async for item in self._pages("scan", request):
            is_written = bool(written) and item_ref(self.schema, item) in written
            if is_written:
                written.discard(item_ref(self.schema, item))
            if is_written or self.is_of(entity, item):
                found = self._own(entity, item, on_table=index is None)
                if found is not None and (not is_written or self.is_of(entity, found)):
                    yield found
        for ref in written:  # the remaining items are not in the table yet
            versions, actions = self._tracker.pending.of(ref)
            new = applied(actions, None)
            if new is not None and self.is_of(entity, {**new, **ref.key(self.schema)}):
                self._tracker.note(ref, versions, entity, None, check=False)
                yield {**new, **ref.key(self.schema)}

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

    def _matcher(self, entity: type[Entity]) -> Matcher:
        return _matcher(entity, self.schema, self._tables.entities)


_matcher = lru_cache(maxsize=1_000)(Matcher)
"""Returns the matcher of an entity; it is kept, because each run of a handler has its own reads."""
