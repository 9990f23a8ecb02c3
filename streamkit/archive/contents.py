"""Read a file, or an object in S3, in ranges and lines, however large it is.

In: a path, or `s3://BUCKET/KEY`. Out: its size, a tag that changes with its contents, and bytes. On
failure: `ConfigurationError` if it cannot be read, or has changed.
"""

import hashlib
import math
import zlib
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import urlsplit

import aiohttp
import anyio
import anyio.lowlevel

from streamkit.aws import AwsError, ErrorKind, code_of, open_client, patiently, trouble_of
from streamkit.errors import ConfigurationError

_CHUNK = 64 * 1024
"""Bytes that are read at once: a page of keys, or more."""
_LINE_MAX = 4 * 1024 * 1024
"""Bytes of a line: an item of 400 KB in an export takes less."""
_READ_SECONDS = 30.0
_NUMBERS = {
    "403": "403: these credentials may not read it, or it is not there and they may not list",
    "404": "404: there is no such object or bucket",
}
"""What S3 says of an object by a number alone, because a reply to `HEAD` has no body."""


@dataclass(frozen=True)
class Contents:
    """What is in a file or an object that was opened; its `tag` changes whenever that does."""

    source: str
    size: int
    tag: str
    read: Callable[[int, int], Awaitable[bytes]]

    async def chunks(self, at: int) -> AsyncGenerator[bytes, None]:
        """Yield the bytes from an offset on, up to the end.

        Raises:
            ConfigurationError: it cannot be read, has changed or has become shorter.
        """
        while at < self.size:
            chunk = await self.read(at, min(self.size, at + _CHUNK))
            if not chunk:
                raise ConfigurationError(f"{self.source}: it has become shorter")
            yield chunk
            at += len(chunk)

    async def lines(self, at: int) -> AsyncGenerator[tuple[int, int, bytes], None]:
        """Yield the lines that begin at a byte or behind it, with where they and the next begin."""
        begin = max(0, at - 1)  # what is read there ends the line before, and may be empty
        async with (
            aclosing(self.chunks(begin)) as chunks,
            aclosing(lines_of(chunks, self.source)) as lines,
        ):
            async for line in lines:
                after = begin + len(line) + 1
                if begin >= at:
                    yield begin, after, line
                begin = after

    async def where(self, at: int) -> str:
        """Return the line that begins at a byte, by its number."""
        return f"{self.source}, line {await self.count(at) + 1}"

    async def count(self, before: float = math.inf) -> int:
        """Return how many lines begin before a byte."""
        number = 0
        async with aclosing(self.lines(0)) as lines:
            async for begin, _, _ in lines:
                if begin >= before:
                    break
                number += 1
        return number


async def lines_of(chunks: AsyncIterable[bytes], source: str) -> AsyncGenerator[bytes, None]:
    """Yield the lines in chunks of bytes.

    Raises:
        ConfigurationError: a line is longer than any line may be.
    """
    rest = b""
    async for chunk in chunks:
        *whole, rest = (rest + chunk).split(b"\n")
        if len(rest) > _LINE_MAX:
            raise ConfigurationError(f"{source}: it does not consist of lines")
        for line in whole:
            yield line
    if rest:
        yield rest


async def whole_reply(get: Callable[[], Awaitable[Any]]) -> tuple[Any, bytes]:
    """Ask S3 for an object until a reply is read to its end; return the reply and its body.

    The SDK repeats a request only until the body begins. A body that breaks off, or stalls, fails
    with an error of the HTTP library, and says nothing about the object.

    Raises:
        AwsError: the service refuses the request.
    """

    async def read() -> tuple[Any, bytes]:
        reply = await get()
        async with reply["Body"] as stream:
            return reply, await stream.read()

    return await patiently(read, passing=(aiohttp.ClientError, TimeoutError))


@asynccontextmanager
async def open_contents(source: str) -> AsyncIterator[Contents]:
    """Open a file or an object.

    Raises:
        ConfigurationError: it cannot be read.
    """
    if source.startswith("s3://"):
        if not all(source.removeprefix("s3://").partition("/")[::2]):
            raise ConfigurationError(f"{source}: name an object, as in s3://BUCKET/KEY")
        async with open_client("s3", read_seconds=_READ_SECONDS) as client:
            yield await _in_bucket(client, source)
        return
    try:
        file = Path(source).open("rb")  # noqa: ASYNC230, SIM115 - reads of kilobytes, closed below
    except OSError as error:
        raise ConfigurationError(f"{source}: it cannot be read: {error.strerror}") from error
    with file:
        yield await _on_disk(file, source)


async def _on_disk(file: BinaryIO, source: str) -> Contents:
    digest, size = hashlib.sha256(), 0

    async def read(begin: int, end: int) -> bytes:
        file.seek(begin)  # no other task runs between the two
        return file.read(end - begin)

    while chunk := await read(size, size + 16 * _CHUNK):
        digest.update(chunk)
        size += len(chunk)
        await anyio.lowlevel.checkpoint()  # a process goes on with its heartbeats meanwhile
    return Contents(source, size, digest.hexdigest()[:32], read)


async def names_in(folder: str) -> frozenset[str] | None:
    """Return the names of the files in a folder, or of the objects below one in S3.

    None: these credentials may not list the bucket.

    Raises:
        ConfigurationError: it cannot be listed for another reason.
    """
    if not folder.startswith("s3://"):
        here = Path(folder)
        return frozenset(one.name for one in here.iterdir()) if here.is_dir() else frozenset()  # noqa: ASYNC240
    parts, found = urlsplit(folder), list[str]()
    where = {"Bucket": parts.netloc, "Prefix": parts.path.removeprefix("/")}
    async with open_client("s3", read_seconds=_READ_SECONDS) as client:
        while True:
            call = partial(patiently, partial(client.list_objects_v2, **where))
            try:
                reply = await _asked(folder, call)
            except ConfigurationError as error:
                if error.__cause__ is not None and code_of(error.__cause__) == "AccessDenied":
                    return None
                raise
            found += [one["Key"].rpartition("/")[2] for one in reply.get("Contents", [])]
            if not reply.get("IsTruncated"):
                return frozenset(found)
            where["ContinuationToken"] = reply["NextContinuationToken"]


async def _asked(source: str, call: Callable[[], Awaitable[Any]]) -> Any:
    try:
        return await call()
    except AwsError as error:
        code = code_of(error)
        changed = trouble_of(error) is ErrorKind.CONDITION
        why = "it has changed" if changed else _NUMBERS.get(code, code)
        raise ConfigurationError(f"{source}: it cannot be read: {why}") from error


async def _in_bucket(client: Any, source: str) -> Contents:
    parts = urlsplit(source)
    name = {"Bucket": parts.netloc, "Key": parts.path.removeprefix("/")}

    async def read(begin: int, end: int) -> bytes:
        where = {**name, "Range": f"bytes={begin}-{end - 1}", "IfMatch": head["ETag"]}
        found: bytes
        _, found = await _asked(source, partial(whole_reply, partial(client.get_object, **where)))
        return found

    head = await _asked(source, partial(patiently, partial(client.head_object, **name)))
    return Contents(source, int(head["ContentLength"]), str(head["ETag"]), read)


async def unzipped(file: Contents) -> AsyncGenerator[bytes, None]:
    """Yield what is in a gzip file, which may be several in a row.

    Raises:
        ConfigurationError: it is no gzip file, or its end is missing.
    """
    unzip = zlib.decompressobj(wbits=31)
    try:
        async with aclosing(file.chunks(0)) as chunks:
            async for chunk in chunks:
                left = chunk
                while left:
                    unzip = zlib.decompressobj(wbits=31) if unzip.eof else unzip
                    yield unzip.decompress(left, _CHUNK)  # repetitions are packed a thousandfold
                    left = unzip.unconsumed_tail or unzip.unused_data
        said = "" if unzip.eof else "its end is missing"
    except zlib.error as error:
        said = str(error)
    if said:
        raise ConfigurationError(f"{file.source}: it cannot be unpacked: {said}")
