"""Read chosen items by a list of their keys, in place of a scan of the table.

The list is a file, or an object in S3, with a key in each line, as JSON: `{"PK": "ORDER#1", "SK":
"ORDER"}`, with or without DynamoDB's types, or `{"Item": {…}}`, a line of the table's export.
Segments are ranges of its bytes.

Out: pages as a `Scan` replies them: `ScannedCount` are the keys, `Items` what was found, strongly
consistent. On failure: `ConfigurationError` names the line that is no key of such an item.
"""

import json
import random
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from streamkit.archive.contents import Contents
from streamkit.errors import ConfigurationError
from streamkit.migrate.run.exports import Export, require_followed, require_table
from streamkit.migrate.run.sampling import Sample, Wanted, take_sample
from streamkit.model.codec import encode
from streamkit.model.schema import TableSchema
from streamkit.progress.actions import Wire
from streamkit.progress.activity import each_of
from streamkit.progress.scan.pages import Reply
from streamkit.progress.scan.places import place_of

_READS_AT_ONCE = 16
_PAGE_LINES = 10_000
"""Lines of a page at most: they may all be of other entities, and the place has to move."""

Item = dict[str, Wire]


def index_of(source: str) -> str:
    """Return the name in `index:NAME` or `index:NAME:{…}`; "" for other sources."""
    kind, _, name = source.partition("{")[0].rstrip(":").partition(":")
    return name if kind == "index" else ""


class NoKey(Exception):
    """A line is not the key of such an item; the text says why."""


@dataclass(frozen=True)
class ChosenItems:
    """What chosen items are, and how they are read.

    `get` reads an item by its key, and `matches` says whether a key, or what else is known of an
    item, may be one of the migration's entity: `visit` looks at the item itself.
    """

    schema: TableSchema
    get: Callable[[Item], Awaitable[Item | None]]
    matches: Callable[[Item], bool]

    @property
    def types(self) -> dict[str, str | None]:
        """The attributes of the table's key, with their types."""
        schema = self.schema
        return {schema.pk: schema.pk_type} | ({schema.sk: schema.sk_type} if schema.sk else {})

    def keys_in(self, line: bytes) -> list[Item]:
        """Return the key in a line; none for an empty line, or another entity's item in an export.

        Raises:
            NoKey: it is no key of the table, or the key of another entity's item.
        """
        if not line.strip():
            return []
        try:
            found = json.loads(line, parse_float=Decimal)
            item = found["Item"] if found.keys() == {"Item"} else None
            key = key_of(item or found, self.types)
        except (ValueError, TypeError, AttributeError, KeyError):
            shown = ", ".join(f'"{n}"' for n in sorted(self.types))
            said = f"it is no key of table {self.schema.name}: a JSON object with {shown}"
            raise NoKey(said) from None
        if self.matches({**(item or {}), **key}):
            return [key]
        if item is None:  # a generated policy does not let the migration read such an item
            raise NoKey("it is the key of another entity's item")
        return []

    async def page(self, keys: Sequence[Item], at: int | None = None) -> Reply:
        """Return the items of these keys as a page; the next page begins at `at`, if there is one.

        Some are read at once; what is not there is left out.
        """
        found = list[Item]()

        async def one(key: Item) -> None:
            if (item := await self.get(key)) is not None:
                found.append(item)

        await each_of(_READS_AT_ONCE, keys, one)
        page: Reply = {"Items": found, "ScannedCount": len(keys)}
        return page if at is None else page | {"LastEvaluatedKey": {"at": {"N": str(at)}}}


def key_of(found: Mapping[str, Any], types: Mapping[str, str | None]) -> Item:
    """Return these attributes, with or without DynamoDB's types, in wire form.

    Raises:
        ValueError, TypeError, AttributeError, KeyError: one is missing, or cannot be in a key.
    """
    own = {n: found[n] for n in types}
    key = {n: one if isinstance(one, dict) else encode(one) for n, one in own.items()}
    key = place_of(json.dumps(key))
    for name, one in key.items():
        ((kind, value),) = one.items()
        if kind != types[name] or not value or not isinstance(value, str | bytes):
            raise ValueError(found)
    return key


@dataclass(frozen=True, kw_only=True)
class KeyPages:
    """Pages of chosen items by their keys in lines; `scan` answers as the table's own does.

    A line is in the segment in which it begins. What is under way stays open from page to page: the
    middle of an export's file cannot be read alone.
    """

    items: ChosenItems
    keys: Contents | Export
    _open: dict[int, AsyncGenerator[tuple[int, int, bytes], None]] = field(default_factory=dict)

    async def check(self, now: float) -> None:
        """Read a list to its end; look at the table, the age and the files of an export.

        Raises:
            ConfigurationError: a line is no key of such an item, or there is none; or an export is
                of another table, too old, or not whole.
        """
        if isinstance(self.keys, Export):
            require_table(self.items.schema, self.keys)
            require_followed(self.items.schema, self.keys.since, now)
            await self.keys.require_files()
            return
        count = 0
        async with aclosing(self.keys.lines(0)) as lines:
            async for at, _, line in lines:
                count += len(await self._keys_in(at, line))
        if not count:
            raise ConfigurationError(f"{self.keys.source}: it has no key")

    async def scan(self, **request: Any) -> Reply:
        """Return a page of a segment."""
        total, place = request["TotalSegments"], request.get("ExclusiveStartKey")
        begin, end = (self.keys.size * (request["Segment"] + n) // total for n in (0, 1))
        at, keys, seen = int(place["at"]["N"]) if place else begin, list[Item](), 0
        lines = self._open.pop(at, None) or self.keys.lines(at)
        async for begin, after, line in lines:
            if begin >= end:
                break
            keys += await self._keys_in(begin, line)
            seen += 1
            if after < end and (len(keys) == request["Limit"] or seen == _PAGE_LINES):
                self._open[after] = lines
                return await self.items.page(keys, after)
        await lines.aclose()
        return await self.items.page(keys)

    async def _keys_in(self, at: int, line: bytes) -> list[Item]:
        try:
            return self.items.keys_in(line)
        except NoKey as wrong:
            raise ConfigurationError(f"{await self.keys.where(at)}: {wrong}") from None

    async def sample(self, wanted: Wanted, rng: random.Random) -> Sample:
        """Read some segments, as `take_sample` does of a table."""
        keys = self.keys
        count = await keys.count() if isinstance(keys, Contents) else keys.size
        return await take_sample(self.scan, self.items.schema.name, wanted, rng, items=count)

    async def close(self) -> None:
        """Close what is under way."""
        while self._open:
            await self._open.popitem()[1].aclose()
