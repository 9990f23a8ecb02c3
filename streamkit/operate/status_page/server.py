"""A server for probes, scrapers and browsers: GET and HEAD, one request a connection.

In: an address, and the function that answers requests. Out: replies. A form may be posted to the
page alone. Clients are not trusted: time and size of a request are limited, and so is the number of
connections. If the function fails, the reply is 500, and the kind of the error is logged.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from http import HTTPStatus

from streamkit.observe.logger import get_logger
from streamkit.operate.status_page.requests import BrowserRequest
from streamkit.settings import read_address

log = get_logger("streamkit.health")

REQUEST_SECONDS = 5.0
"""The time for a client to send a request, and again to take the reply."""
ANSWER_SECONDS = 20.0
"""The time for making the reply."""
_HEAD_BYTES = 8192
_BODY_BYTES = 8192
_FORM = "application/x-www-form-urlencoded"
_PAGE = "/"
"""Forms are posted to this path, and to no other."""
_CONNECTIONS_MAX = 64
_TEXT = "text/plain; charset=utf-8"


@dataclass(frozen=True, slots=True)
class PageReply:
    """A reply; `policy` is a Content-Security-Policy, `more` are further lines of its head."""

    status: int
    body: str
    content_type: str = _TEXT
    policy: str = "default-src 'none'"
    more: tuple[str, ...] = ()

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
        lines += self.more
        return "\r\n".join([*lines, "", ""]).encode() + (b"" if head_only else body)


Answer = Callable[[BrowserRequest], Awaitable[PageReply]]
"""A function that answers a request."""


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
                request = await _read_request(reader)
            head_only = request.method == "HEAD"
            reply = await self._make(request)
        except _BadRequest as bad:
            reply = _plain(bad.status)
        writer.write(reply.encode(head_only=head_only))
        async with asyncio.timeout(REQUEST_SECONDS):
            await writer.drain()

    async def _make(self, request: BrowserRequest) -> PageReply:
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                return await self._answer(request)
        except TimeoutError:
            return _plain(HTTPStatus.SERVICE_UNAVAILABLE)
        except Exception:  # one failed page must not end the probes
            log.exception("health.failed", path=request.path)
            return _plain(HTTPStatus.INTERNAL_SERVER_ERROR)


def _plain(status: HTTPStatus) -> PageReply:
    return PageReply(status, f"{status.phrase.lower()}\n")


async def _read_request(reader: asyncio.StreamReader) -> BrowserRequest:
    """Return a request, with its body if it is a form for the page.

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
    first, *lines = head.decode("latin-1").split("\r\n")
    words = first.split(" ")
    if len(words) != 3 or words[2] not in ("HTTP/1.0", "HTTP/1.1") or not words[1].startswith("/"):
        raise _BadRequest(HTTPStatus.BAD_REQUEST)
    path, _, query = words[1].partition("?")
    headers = {name.lower(): value.strip() for name, _, value in (h.partition(":") for h in lines)}
    if words[0] == "POST" and path == _PAGE:
        body = await _read_form(reader, headers)
        return BrowserRequest(path, words[0], query, headers, body)
    if words[0] not in ("GET", "HEAD"):
        raise _BadRequest(HTTPStatus.METHOD_NOT_ALLOWED)
    return BrowserRequest(path, words[0], query, headers)


async def _read_form(reader: asyncio.StreamReader, headers: Mapping[str, str]) -> str:
    """Return the body of a form.

    Raises:
        _BadRequest: it is no form, does not say how long it is, or is too long.
    """
    if headers.get("content-type", "").partition(";")[0].strip().lower() != _FORM:
        raise _BadRequest(HTTPStatus.UNSUPPORTED_MEDIA_TYPE)
    length = headers.get("content-length", "")
    if not (length.isascii() and length.isdigit()):
        raise _BadRequest(HTTPStatus.LENGTH_REQUIRED)
    if len(length) > 6 or int(length) > _BODY_BYTES:
        raise _BadRequest(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
    try:
        return (await reader.readexactly(int(length))).decode()
    except (asyncio.IncompleteReadError, UnicodeDecodeError):
        raise _BadRequest(HTTPStatus.BAD_REQUEST) from None
