"""Open what says which items a migration is about, in place of a scan: keys, an export, an index.

`index:NAME` is every entry of an index, in parallel segments: a sparse one has few. `table:{…}` and
`index:NAME:{…}`, with a partition key as JSON, are queries: a sequence of pages, in segment 0.

No item is missed although an index lags: an entry changes only after its item, and changes of items
are followed from ten minutes before the migration began, also if the index does not show them yet.
An item that was last written before has had that time to get its entry, which stays where it is
while the index is read. The items are read by their keys, so that entries that are out of date do
no harm.

In: a migration, and its source. Out: pages as a `Scan` replies them, and what the state keeps of
the source. On failure: `ConfigurationError` says what prevents it.
"""

import json
import random
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from streamkit.archive.contents import Contents, open_contents
from streamkit.core.matching import Matcher
from streamkit.errors import ConfigurationError
from streamkit.kinds.migration import Migration
from streamkit.migrate.book.state import State
from streamkit.migrate.run.exports import SUMMARY, Export, open_export
from streamkit.migrate.run.keys import ChosenItems, KeyPages, index_of, key_of
from streamkit.migrate.run.sampling import Sample, Wanted, read_part, take_sample
from streamkit.migrate.run.work import MigrationWork
from streamkit.migrate.sending.calls import Calls
from streamkit.model.schema import TableSchema
from streamkit.progress.scan.pages import Reply, ScanPages

_QUERY = "KeyConditionExpression"
SEGMENT_BYTES = 1024 * 1024
"""Bytes of a list of keys for each segment: some ten thousand keys."""


@dataclass(frozen=True)
class EntryPages:
    """Pages of the items that an index or a query shows; `request` says which."""

    items: ChosenItems
    calls: Calls
    request: dict[str, Any]

    async def check(self, now: float) -> None:
        """Do nothing: there is no list to check."""

    async def scan(self, **request: Any) -> Reply:
        """Return a page of a segment."""
        indexed, call = "IndexName" in self.request, self.calls.scan
        if _QUERY in self.request:
            call = self.calls.query_page
            if request.pop("Segment"):
                return await self.items.page([])
            del request["TotalSegments"]
        reply = await call(**request | self.request | {"ConsistentRead": not indexed})
        own = [entry for entry in reply["Items"] if self.items.matches(entry)]
        page = {"Items": own, "ScannedCount": len(own)}
        if indexed:
            page = await self.items.page([self.items.schema.key_of(entry) for entry in own])
        after = reply.get("LastEvaluatedKey")
        return page if after is None else page | {"LastEvaluatedKey": after}

    async def sample(self, wanted: Wanted, rng: random.Random) -> Sample:
        """Read some segments of an index, or a partition to its end."""
        table = self.items.schema.name
        if _QUERY not in self.request:
            return await take_sample(self.scan, table, wanted, rng)
        return Sample(1, (await read_part(self.scan, table, 0, 1),))


def entry_pages(source: str, items: ChosenItems, calls: Calls) -> EntryPages:
    """Return the pages of an index or a query.

    Raises:
        ConfigurationError: the index cannot be read, or the text has no whole partition key.
    """
    schema, name = items.schema, index_of(source)
    request, types = dict[str, Any](), {schema.pk: schema.pk_type}
    if not source.startswith("table:"):
        index = schema.indexes.get(name)
        if index is None or not index.is_active:
            there = sorted(name for name, one in schema.indexes.items() if one.is_active)
            raise ConfigurationError(
                f"{source}: table {schema.name} has no such index that can be read; it has"
                f" {', '.join(there) or 'none'}"
            )
        request, types = {"IndexName": name}, dict(index.pk)
        if "{" not in source:
            return EntryPages(items, calls, request)
    try:
        found = json.loads(source[source.find("{") :])
        key = list(key_of(found, types if found.keys() == types.keys() else {"": ""}).items())
    except (ValueError, TypeError, AttributeError, KeyError):
        shown = ", ".join(f'"{name}": {{"{kind}": "…"}}' for name, kind in types.items())
        raise ConfigurationError(
            f"{source}: it has to end with the whole partition key, as in {{{shown}}}"
        ) from None
    request[_QUERY] = " AND ".join(f"#{n} = :{n}" for n in range(len(key)))
    request["ExpressionAttributeNames"] = {f"#{n}": name for n, (name, _) in enumerate(key)}
    request["ExpressionAttributeValues"] = {f":{n}": one for n, (_, one) in enumerate(key)}
    return EntryPages(items, calls, request)


@dataclass(frozen=True)
class Chosen:
    """An open source, and what the state keeps of it.

    `tag` changes with a list or an export, which shows the moment `since`. It should be cut into
    `segments`; 0 says that their number is not known.
    """

    pages: EntryPages | KeyPages
    tag: str = ""
    since: float = 0.0
    segments: int = 0


def require_source(state: State, keys_from: str) -> None:
    """Refuse another source than that with which a migration was begun; "" is no source.

    Raises:
        ConfigurationError: it is another one.
    """
    if keys_from not in ("", state.keys_from):
        about = f"the items of {state.keys_from}" if state.keys_from else "all items"
        raise ConfigurationError(
            f"migration {state.id} was begun for {about}, and is {state.phase!r}: for the items of"
            f" {keys_from}, write a new migration, or roll this one back and begin it again"
        )


@asynccontextmanager
async def open_chosen(
    source: str, migration: Migration, schema: TableSchema, calls: Calls, tag: str = ""
) -> AsyncIterator[Chosen]:
    """Open a source; with a `tag`, it has to be the one that had this tag.

    Raises:
        ConfigurationError: the migration is about all items, or the source is missing or another.
    """
    if migration.moves or migration.mode == "aggregate":
        raise ConfigurationError(
            f"migration {migration.id}: mode={migration.mode!r} is about all items, because it ends"
            " when none is left in the old shape; --keys-from goes with in_place, touch and derive"
        )
    if migration.index is not None:
        raise ConfigurationError(
            f"migration {migration.id} reads index {migration.index.name}: leave --keys-from out"
        )
    # A key alone may match although its item is of another entity: `visit` looks at the item.
    matches = Matcher(migration.entity, schema).matches
    items = ChosenItems(schema, partial(calls.get, schema.name), matches)
    if source.startswith(("index:", "table:")):
        yield Chosen(entry_pages(source, items, calls))
        return
    async with AsyncExitStack() as stack:
        keys: Contents | Export
        if source.endswith(SUMMARY):
            keys = await open_export(source, schema)
            about = keys.since, len(keys.files)
        else:
            keys = await stack.enter_async_context(open_contents(source))
            about = 0.0, keys.size // SEGMENT_BYTES
        if tag not in ("", keys.tag):
            raise ConfigurationError(
                f"{source}: it is not the list with which the migration was begun; put that one"
                " back, or roll the migration back and begin it again"
            )
        pages = KeyPages(items=items, keys=keys)
        stack.push_async_callback(pages.close)
        yield Chosen(pages, keys.tag, *about)


@asynccontextmanager
async def reading(
    work: MigrationWork, table: str, limit: int, more: Mapping[str, Any]
) -> AsyncIterator[ScanPages]:
    """Yield how a pass reads pages in a phase: of a table, or of the chosen items; see `ScanPages`.

    Raises:
        ConfigurationError: the source of the chosen items cannot be read, or has changed.
    """
    state = work.state
    if not state.reads_keys:
        yield ScanPages(work.calls.scan, table, limit, more)
        return
    about = state.keys_from, work.migration, work.schema, work.calls, state.keys_tag
    async with open_chosen(*about) as chosen:
        yield ScanPages(chosen.pages.scan, table, limit, more)
