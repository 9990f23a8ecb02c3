"""HTTP exchanges: a request and its reply, over aiohttp's connections, in half of its CPU time.

An aiohttp session merges headers, looks for cookies, redirects and proxies, and makes objects of
the request and of the reply; a call of DynamoDB needs none of that. Here its connector gives the
connection, with names, trust, limits and timeouts as always, and its protocol reads the reply. In:
an aiohttp session, and requests of botocore. Out: replies as aiobotocore has them. On failure: the
error that aiobotocore raises.
"""

from collections.abc import Mapping
from typing import Any, Self

import aiohttp
import msgspec
from aiobotocore.awsrequest import AioAWSResponse
from botocore.exceptions import (
    BotoCoreError,
    ConnectionClosedError,
    ConnectTimeoutError,
    EndpointConnectionError,
    HTTPClientError,
    ReadTimeoutError,
    SSLError,
)
from yarl import URL

_ERRORS: tuple[tuple[type[Exception], type[BotoCoreError]], ...] = (
    (aiohttp.ClientSSLError, SSLError),
    (aiohttp.ServerDisconnectedError, ConnectionClosedError),
    (aiohttp.ClientPayloadError, ConnectionClosedError),
    (TimeoutError, ReadTimeoutError),
    (aiohttp.ClientConnectionError, EndpointConnectionError),
    (OSError, EndpointConnectionError),
    (Exception, HTTPClientError),
)
"""What aiobotocore makes of aiohttp's errors; the first that fits."""


class _Received(msgspec.Struct, frozen=True):
    """A body of which nothing is left to read from a connection."""

    content: bytes

    async def read(self) -> bytes:
        return self.content


class HttpHost:
    """Sends plain requests to the root of one host."""

    def __init__(self, session: aiohttp.ClientSession, url: URL) -> None:
        self._connector: Any = session.connector
        self._url, self._timeout = str(url), session.timeout
        # The connector asks this request where to connect to; it is never sent.
        self._place = aiohttp.ClientRequest("POST", url)
        host = self._place.headers["Host"]
        self._begin = f"POST / HTTP/1.1\r\nHost: {host}\r\nAccept-Encoding: identity\r\n"

    @classmethod
    def of(cls, session: aiohttp.ClientSession, url: str) -> Self | None:
        """Return a sender for a URL; None if its requests are not plain."""
        parsed = URL(url, encoded=True)
        simple = parsed.raw_path == "/" and not parsed.raw_query_string and not parsed.raw_user
        # A tool that traces calls adds a configuration, and wants to see each request.
        return cls(session, parsed) if simple and not session.trace_configs else None

    def head(self, request: Any) -> bytes | None:
        """Return all lines of a request before its body; None if it is no plain request."""
        body, headers = request.body, request.headers
        if request.method != "POST" or request.stream_output or type(body) is not bytes:
            return None
        if (getattr(request, "context", None) or {}).get("read_timeout") is not None:
            return None
        lines = _lines(headers)
        if lines is None:
            return None
        return f"{self._begin}{lines}Content-Length: {len(body)}\r\n\r\n".encode()

    async def send(self, head: bytes, body: bytes) -> AioAWSResponse:
        """Send a request; return its reply, whose body is here already.

        Raises:
            BotoCoreError: the host cannot be reached, or does not answer as it should.
        """
        url = self._url
        try:
            connection = await self._connector.connect(self._place, [], self._timeout)
        except TimeoutError as error:
            raise ConnectTimeoutError(endpoint_url=url, error=error) from error
        except Exception as error:
            raise _as_botocore(error, url) from error
        try:
            protocol, transport = connection.protocol, connection.transport
            protocol.set_response_params(
                read_until_eof=True, auto_decompress=False, read_timeout=self._timeout.sock_read
            )
            transport.write(head + body)
            protocol.start_timeout()
            message, payload = await protocol.read()
            while 100 <= message.code < 200:  # the reply proper is still to come
                message, payload = await protocol.read()
            content = await payload.read()
        except BaseException as error:
            connection.close()
            if isinstance(error, Exception):
                raise _as_botocore(error, url) from error
            raise
        connection.release()
        headers = {name.decode().lower(): value.decode() for name, value in message.raw_headers}
        return AioAWSResponse(url, message.code, headers, _Received(content))


def _lines(headers: Mapping[str, str | bytes]) -> str | None:
    """Return headers as lines; None if one of them would not stay one line."""
    lines = [
        f"{name}: {value.decode() if isinstance(value, bytes) else value}\r\n"
        for name, value in headers.items()
        if name != "Content-Length"
    ]
    text = "".join(lines)
    if text.count("\n") != len(lines) or text.count("\r") != len(lines):
        return None
    return text


def _as_botocore(error: Exception, url: str) -> BotoCoreError:
    """Return the error that aiobotocore raises for one of aiohttp's."""
    kind = next(kind for found, kind in _ERRORS if isinstance(error, found))
    return kind(endpoint_url=url, error=error)
