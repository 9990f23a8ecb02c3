"""The part of HTTP/1.1 that AWS SDKs use: requests with a length, replies with a checksum.

Reading never trusts the client: heads (by the stream reader) and bodies are bounded. A request that
is not understood raises `BadRequest` with its status, after which the connection ends.
"""

import asyncio
from dataclasses import dataclass
from http import HTTPStatus
from zlib import crc32

from streamkit.local.wire import MOST_BODY_BYTES


class BadRequest(Exception):
    """A request that cannot be read."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


@dataclass(frozen=True, slots=True)
class Request:
    """A request; the names of its headers are in lower case."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    keep_alive: bool


@dataclass(frozen=True, slots=True)
class Reply:
    """A reply; with a request id, it carries the headers that SDKs look for."""

    status: int
    body: bytes
    content_type: str
    request_id: str = ""
    date: str = ""

    def encode(self, *, keep_alive: bool) -> bytes:
        """Return the bytes to send."""
        head = (
            f"HTTP/1.1 {self.status} {HTTPStatus(self.status).phrase}\r\n"
            f"Content-Type: {self.content_type}\r\n"
            f"Content-Length: {len(self.body)}\r\n"
            f"Connection: {'keep-alive' if keep_alive else 'close'}\r\n"
        )
        if self.request_id:
            head += f"x-amzn-RequestId: {self.request_id}\r\nx-amz-crc32: {crc32(self.body)}\r\n"
            head += f"Date: {self.date}\r\n"
        return head.encode("latin-1") + b"\r\n" + self.body


async def read_request(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> Request | None:
    """Return the next request of a connection; None when the client has closed it.

    Raises:
        BadRequest: it is not HTTP, or uses a part of HTTP that is not served here.
    """
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError as error:
        if error.partial.strip():
            raise BadRequest(400, "the request ends in its head") from None
        return None
    except asyncio.LimitOverrunError:
        raise BadRequest(431, "the head is too long") from None
    method, path, version, headers = _parse_head(head)
    length = _length(headers)
    if headers.get("expect", "").lower() == "100-continue":
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    try:
        body = await reader.readexactly(length) if length else b""
    except asyncio.IncompleteReadError:
        raise BadRequest(400, "the request ends in its body") from None
    connection = headers.get("connection", "").lower()
    keep_alive = connection == "keep-alive" if version == "HTTP/1.0" else connection != "close"
    return Request(method, path, headers, body, keep_alive)


def _parse_head(head: bytes) -> tuple[str, str, str, dict[str, str]]:
    first, *lines = head.decode("latin-1").strip("\r\n").split("\r\n")
    parts = first.split(" ")
    if len(parts) != 3 or parts[2] not in {"HTTP/1.0", "HTTP/1.1"}:
        raise BadRequest(400, "not a request line")
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or name != name.strip():
            raise BadRequest(400, "not a header")
        headers[name.lower()] = value.strip()
    method, target, version = parts
    return method, target.partition("?")[0], version, headers


def _length(headers: dict[str, str]) -> int:
    if "transfer-encoding" in headers:
        raise BadRequest(411, "bodies need a Content-Length")
    text = headers.get("content-length", "0")
    if not (text.isascii() and text.isdigit()):
        raise BadRequest(400, "not a length")
    # The digits are checked first: a number of thousands of digits would take long to read.
    if len(text) > 12 or int(text) > MOST_BODY_BYTES:
        raise BadRequest(413, "the body is too long")
    return int(text)
