"""Read chosen items by a list of their keys, in place of a scan of the table.

The list is a file, or an object in S3, with a key in each line, as JSON: `{"PK": "ORDER#1", "SK":
"ORDER"}`, with or without DynamoDB's types, or `{"Item": {…}}`, a line of the table's export.
Segments are ranges of its bytes; a line belongs to the range in which it begins.

In: where the list is. Out: pages as a `Scan` replies them: `ScannedCount` are the keys, `Items` are
what was found, strongly consistent. On failure: `ConfigurationError` for a list that cannot be read
or has changed, and for a line that is no key of the table; it names the line.
"""

import hashlib
import json
import math
import random
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import urlsplit

import anyio.lowlevel

from streamkit.aws import AwsError, ErrorKind, code_of, open_client, patiently, trouble_of
from streamkit.errors import ConfigurationError
from streamkit.migrate.calls import Calls
from streamkit.migrate.sampling import Sample, Wanted, take_sample
from streamkit.migrate.work import MigrationWork
from streamkit.model.codec import encode
from streamkit.model.schema import TableSchema
from streamkit.progress.actions import Wire
from streamkit.progress.activity import task_group
from streamkit.progress.scan.pages import Reply
from streamkit.progress.scan.places import place_of

_CHUNK = 64 * 1024
"""Bytes that are read at once: a page of keys, or more."""
_LINE_MAX = 4 * 1024 * 1024
"""Bytes of a line: an item of 400 KB in an export takes less."""
_READ_SECONDS = 30.0
_READS_AT_ONCE = 16

Item = dict[str, Wire]
Scan = Callable[..., Awaitable[Reply]]
"""What `ScanPages` calls for a page."""


@dataclass(frozen=True)
class KeyList:
    """A list of keys that was opened; its `tag` changes whenever its contents do."""

    source: str
    size: int
    tag: str
    read: Callable[[int, int], Awaitable[bytes]]

    async def lines(self, at: int) -> AsyncGenerator[tuple[int, bytes], None]:
        """Yield the lines from a byte on, each with the byte at which it begins."""
        rest, read = b"", at
        while read < self.size:
            chunk = await self.read(read, min(self.size, read + _CHUNK))
            read += len(chunk)
            *whole, rest = (rest + chunk).split(b"\n")
            if not chunk or len(rest) > _LINE_MAX:
                raise ConfigurationError(f"{self.source}: it is no list of keys, a line each")
            for line in whole:
                yield at, line
                at += len(line) + 1
        if rest:
            yield at, rest

    async def count(self, before: float = math.inf) -> int:
        """Return how many lines begin before a byte."""
        number = 0
        async with aclosing(self.lines(0)) as lines:
            async for begin, _ in lines:
                if begin >= before:
                    break
                number += 1
        return number


@asynccontextmanager
async def open_keys(source: str, tag: str = "") -> AsyncIterator[KeyList]:
    """Open a list of keys; with a `tag`, it has to be the one that had this tag.

    Raises:
        ConfigurationError: it cannot be read, or has changed.
    """
    if source.startswith("s3://"):
        async with open_client("s3", read_seconds=_READ_SECONDS) as client:
            found = await _in_bucket(client, source)
            yield _unchanged(found, tag)
        return
    try:
        file = Path(source).open("rb")  # noqa: ASYNC230, SIM115 - reads of kilobytes, closed below
    except OSError as error:
        raise ConfigurationError(f"{source}: it cannot be read: {error.strerror}") from error
    with file:
        yield _unchanged(await _on_disk(file, source), tag)


def _unchanged(found: KeyList, tag: str) -> KeyList:
    if tag not in ("", found.tag):
        raise ConfigurationError(
            f"{found.source}: it is not the list with which the migration was begun; put that one"
            " back, or roll the migration back and begin it again"
        )
    return found


async def _on_disk(file: BinaryIO, source: str) -> KeyList:
    digest, size = hashlib.sha256(), 0

    async def read(begin: int, end: int) -> bytes:
        file.seek(begin)  # no other task runs between the two
        return file.read(end - begin)

    while chunk := await read(size, size + 16 * _CHUNK):
        digest.update(chunk)
        size += len(chunk)
        await anyio.lowlevel.checkpoint()  # a process goes on with its heartbeats meanwhile
    return KeyList(source, size, digest.hexdigest()[:32], read)


async def _in_bucket(client: Any, source: str) -> KeyList:
    parts = urlsplit(source)
    name = {"Bucket": parts.netloc, "Key": parts.path.removeprefix("/")}

    async def ask(call: Callable[[], Awaitable[Any]]) -> Any:
        try:
            return await patiently(call)
        except AwsError as error:
            why = "it has changed" if trouble_of(error) is ErrorKind.CONDITION else code_of(error)
            raise ConfigurationError(f"{source}: it cannot be read: {why}") from error

    async def read(begin: int, end: int) -> bytes:
        async def get() -> bytes:
            bytes_ = f"bytes={begin}-{end - 1}"
            reply = await client.get_object(**name, Range=bytes_, IfMatch=head["ETag"])
            async with reply["Body"] as stream:
                body: bytes = await stream.read()
                return body

        found: bytes = await ask(get)
        return found

    head = await ask(partial(client.head_object, **name))
    return KeyList(source, int(head["ContentLength"]), str(head["ETag"]), read)


@dataclass(frozen=True)
class KeyPages:
    """Pages of the items in a list of keys; `scan` answers as the table's own does.

    `get` reads an item by its key. Lines of an export tell what they are about: those of which
    `matches` is false are left out.
    """

    keys: KeyList
    schema: TableSchema
    get: Callable[[Item], Awaitable[Item | None]]
    matches: Callable[[Item], bool]

    async def scan(self, **request: Any) -> Reply:
        """Return a page of a segment."""
        total, place = request["TotalSegments"], request.get("ExclusiveStartKey")
        begin, end = (self.keys.size * (request["Segment"] + n) // total for n in (0, 1))
        keys, after = list[Item](), None
        at = int(place["at"]["N"]) if place else max(0, begin - 1)
        in_line = place is None and begin > 0  # the line before this range may reach into it
        async with aclosing(self.keys.lines(at)) as lines:
            async for at, line in lines:
                if in_line:
                    in_line = False
                elif at >= end:
                    break
                elif len(keys) == request["Limit"]:
                    after = {"at": {"N": str(at)}}
                    break
                elif (key := await self.key(at, line)) is not None:
                    keys.append(key)
        page: Reply = {"Items": await self._items(keys), "ScannedCount": len(keys)}
        return page if after is None else page | {"LastEvaluatedKey": after}

    async def key(self, at: int, line: bytes) -> Item | None:
        """Return the key in the line at a byte; None for an empty one, or another entity's item.

        Raises:
            ConfigurationError: it is no key of the table.
        """
        if not line.strip():
            return None
        try:
            found = json.loads(line, parse_float=Decimal)
            item = found["Item"] if found.keys() == {"Item"} else None
            key = self._key(item or found)
        except (ValueError, TypeError, AttributeError, KeyError):
            schema = self.schema
            shown = ", ".join(f'"{n}"' for n in sorted(schema.key_attributes))
            raise ConfigurationError(
                f"{self.keys.source}, line {await self.keys.count(at) + 1}: it is no key of table"
                f" {schema.name}: a JSON object with {shown}"
            ) from None
        return key if item is None or self.matches({**item, **key}) else None

    def _key(self, found: Mapping[str, Any]) -> Item:
        own = {n: found[n] for n in self.schema.key_attributes}
        key = {n: one if isinstance(one, dict) else encode(one) for n, one in own.items()}
        key = place_of(json.dumps(key))
        types = {self.schema.pk: self.schema.pk_type, self.schema.sk: self.schema.sk_type}
        for name, one in key.items():
            ((kind, value),) = one.items()
            if kind != types[name] or not value or not isinstance(value, str | bytes):
                raise ValueError(found)
        return key

    async def _items(self, keys: list[Item]) -> list[Item]:
        """Read items, some at once; what is not there is left out."""
        found, left = list[Item](), iter(keys)

        async def some() -> None:
            for key in left:
                if (item := await self.get(key)) is not None:
                    found.append(item)

        async with task_group() as group:
            for _ in range(min(_READS_AT_ONCE, len(keys))):
                group.start_soon(some)
        return found


async def tag_of(source: str, schema: TableSchema) -> tuple[str, int]:
    """Return the tag of a list of keys and its size, when each of its lines is a key.

    Raises:
        ConfigurationError: it cannot be read, a line is no key of the table, or it has none.
    """
    async with open_keys(source) as keys:
        pages, count = KeyPages(keys, schema, _nothing, lambda _: True), 0
        async with aclosing(keys.lines(0)) as lines:
            async for at, line in lines:
                count += await pages.key(at, line) is not None
        if not count:
            raise ConfigurationError(f"{source}: it has no key")
        return keys.tag, keys.size


async def sample_keys(
    source: str,
    calls: Calls,
    schema: TableSchema,
    matches: Callable[[Item], bool],
    wanted: Wanted,
    rng: random.Random,
) -> Sample:
    """Read some of the items of a list of keys, as `take_sample` does of a table."""
    async with open_keys(source) as keys:
        pages = KeyPages(keys, schema, partial(calls.get, schema.name), matches)
        return await take_sample(pages, schema.name, wanted, rng, items=await keys.count())


async def _nothing(_: Item) -> Item | None:
    return None


@asynccontextmanager
async def reading(work: MigrationWork) -> AsyncIterator[Scan]:
    """Yield the call that reads the pages of a phase: of the table, or of the chosen items.

    Raises:
        ConfigurationError: the list of keys cannot be read, or has changed.
    """
    state = work.state
    if not state.reads_keys:
        yield work.calls.scan
        return
    async with open_keys(state.keys_from, state.keys_tag) as keys:
        get = partial(work.calls.get, work.schema.name)
        yield KeyPages(keys, work.schema, get, work.transform.matches).scan
