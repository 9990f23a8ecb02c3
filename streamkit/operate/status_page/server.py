"""A server for probes, scrapers and browsers: GET and HEAD, one request a connection.

In: an address, and the function that answers paths. Out: replies. Clients are not trusted: time and
size of a request are limited, the number of connections is bounded, and no body is read. If the
function fails, the reply is 500, and the kind of the error is logged.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from http import HTTPStatus

from streamkit.observe.logger import get_logger
from streamkit.settings import read_address

log = get_logger("streamkit.health")

REQUEST_SECONDS = 5.0
"""The time for a client to send a request, and again to take the reply."""
ANSWER_SECONDS = 20.0
"""The time for making the reply."""
_HEAD_BYTES = 8192
_CONNECTIONS_MAX = 64
_TEXT = "text/plain; charset=utf-8"


@dataclass(frozen=True, slots=True)
class PageReply:
    """A reply; `policy` is a Content-Security-Policy."""

    status: int
    body: str
    content_type: str = _TEXT
    policy: str = "default-src 'none'"

    def encode(self, *, head_only: bool = False) -> bytes:
        """Return the bytes to send; Content-Length counts the body, even if it is not sent."""
        body = self.body.encode()
        lines = [
            f"HTTP/1.1 {self.status} {HTTPStatus(self.status).phrase}",
            f"Content-Type: {self.content_type}",
            f"Content-Length: {len(body)}",
            f"Content-Security-Policy: {self.policy}; frame-ancestors 'none'; base-uri 'none'",
            "X-Content-Type-Options: nosniff",
            "Referrer-Policy: no-referrer",
            "Cache-Control: no-store",
            "Connection: close",
        ]
        if self.status == HTTPStatus.METHOD_NOT_ALLOWED:
            lines.append("Allow: GET, HEAD")
        return "\r\n".join([*lines, "", ""]).encode() + (b"" if head_only else body)


Answer = Callable[[str], Awaitable[PageReply]]
"""A function that answers a path, given without its query."""


class _BadRequest(Exception):
    def __init__(self, status: HTTPStatus) -> None:
        super().__init__(status.phrase)
        self.status = status


@asynccontextmanager
async def serving(address: str, answer: Answer) -> AsyncIterator[tuple[str, int]]:
    """Serve within the block; yield the host and port that it listens on.

    Raises:
        ValueError: the text is not an address.
        OSError: the server cannot listen on the address.
    """
    host, port = read_address(address)
    connections = _Connections(answer)
    server = await asyncio.start_server(connections.accept, host, port, limit=_HEAD_BYTES)
    bound = server.sockets[0].getsockname()
    log.info("health.listening", host=bound[0], port=bound[1])
    try:
        yield bound[0], bound[1]
    finally:
        server.close()
        await connections.end()


class _Connections:
    """The open connections of one server."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self._open: set[asyncio.Task[None]] = set()

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection."""
        task = asyncio.current_task()
        if task is None or len(self._open) >= _CONNECTIONS_MAX:
            writer.transport.abort()
            return
        self._open.add(task)
        try:
            with suppress(OSError, TimeoutError):
                await self._serve(reader, writer)
        except asyncio.CancelledError:
            pass  # the server ends, and nothing waits for this task
        finally:
            self._open.discard(task)
            writer.transport.abort() if writer.transport.get_write_buffer_size() else writer.close()

    async def end(self) -> None:
        """Cancel the open connections."""
        for task in self._open:
            task.cancel()
        if self._open:
            await asyncio.wait(self._open)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head_only = False
        try:
            async with asyncio.timeout(REQUEST_SECONDS):
                method, path = await _read_request(reader)
            head_only = method == "HEAD"
            reply = await self._make(path)
        except _BadRequest as bad:
            reply = _plain(bad.status)
        writer.write(reply.encode(head_only=head_only))
        async with asyncio.timeout(REQUEST_SECONDS):
            await writer.drain()

    async def _make(self, path: str) -> PageReply:
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                return await self._answer(path)
        except TimeoutError:
            return _plain(HTTPStatus.SERVICE_UNAVAILABLE)
        except Exception:  # one failed page must not end the probes
            log.exception("health.failed", path=path)
            return _plain(HTTPStatus.INTERNAL_SERVER_ERROR)


def _plain(status: HTTPStatus) -> PageReply:
    return PageReply(status, f"{status.phrase.lower()}\n")


async def _read_request(reader: asyncio.StreamReader) -> tuple[str, str]:
    """Return method and path.

    Raises:
        _BadRequest: it is not a request, is too long, or has another method.
        ConnectionError: the client closed the connection.
    """
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError as error:
        if error.partial:
            raise _BadRequest(HTTPStatus.BAD_REQUEST) from None
        raise ConnectionResetError("the request is empty") from None
    except asyncio.LimitOverrunError:
        raise _BadRequest(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE) from None
    words = head.partition(b"\r\n")[0].decode("latin-1").split(" ")
    if len(words) != 3 or words[2] not in ("HTTP/1.0", "HTTP/1.1") or not words[1].startswith("/"):
        raise _BadRequest(HTTPStatus.BAD_REQUEST)
    if words[0] not in ("GET", "HEAD"):
        raise _BadRequest(HTTPStatus.METHOD_NOT_ALLOWED)
    return words[0], words[1].partition("?")[0]
