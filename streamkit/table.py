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

import random
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any, TypeVar

from streamkit.core.availability import available
from streamkit.core.querying import page_request, whole, widened
from streamkit.core.reading import Sight, applied
from streamkit.core.wire_reads import WireReads
from streamkit.effects import Delete, Effect, Put, Set
from streamkit.entity import Entity
from streamkit.model.keys import Index, Key
from streamkit.model.queries import Query, Scan
from streamkit.progress.actions import GuardSource, ItemRef, Wire, item_ref, render
from streamkit.progress.compile import compile_effect
from streamkit.progress.transaction import transact
from streamkit.progress.verdicts import RefusedCommit
from streamkit.stream.decode import ImageDecoder

E = TypeVar("E", bound=Entity)


class Table(WireReads):
    """Reads items of one table as entities; gets are strongly consistent."""

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

    async def look(self, key: Key[Any]) -> Sight:
        """Return an item with all its attributes, as pending effects leave it; empty if it is gone.

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
        """Return the items that exist, by key.

        Raises:
            DecodeError: an item does not fit its entity.
        """
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

    async def scan(self, entity: type[E], *, index: Index | None = None) -> AsyncIterator[E]:
        """Yield every item of an entity, by reading the whole table (or index).

        Items of other types are skipped, but they are read and cost money.

        Raises:
            DecodeError: an item does not fit the entity.
        """
        found = self._scanned(entity, index)
        if entity.__parts__ is not None:
            found = self._grouped(entity, found)
        async for item in found:
            yield self.entity_of(entity, item)

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


_decoder = lru_cache(maxsize=1_000)(ImageDecoder)
"""Keeps the decoder of an entity for all runs of handlers, which have tables of their own."""


class OpenTable(Table):
    """An app's table outside of handlers, where it may also be written; see `open_table`."""

    async def write(self, *effects: Effect) -> bool:
        """Write effects as a handler's are written: all or none, with the keys of indexes.

            await table.write(Put(order), Add(customer.item_key, orders=1))

        A single `Put`, `Set` or `Delete` without a condition is a plain call, at half the price.

        Returns:
            Whether all conditions (`only_if`) held; if not, nothing was written.

        Raises:
            ValueError: an effect cannot be stored, two are on one item, or DynamoDB finds one
                invalid.
            ConfigurationError: the credentials may not write, or the table is missing.
        """
        schemas = [self._tables.known(effect.table) for effect in effects]
        pairs = list(zip(effects, schemas, strict=True))
        actions = [compile_effect(effect, schema, _WRITTEN) for effect, schema in pairs]
        if len({action.ref for action in actions}) < len(actions):
            raise ValueError("two effects are on one item: write them one after the other")
        (first, *more) = actions
        if not more and isinstance(effects[0], Put | Set | Delete) and not first.guards:
            ((_, request),) = render(first, schemas[0]).items()
            await getattr(self._dynamodb, first.verb.alone)(**request)
            return True
        named = {schema.name: schema for schema in schemas}
        found = await transact(self._dynamodb, named, actions, random.Random())
        if found is None:
            return True
        if isinstance(found, RefusedCommit):
            return False
        raise ValueError(f"DynamoDB finds an effect invalid ({found.code})")


_WRITTEN = GuardSource("", "", 0)
