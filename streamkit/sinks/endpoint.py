"""Endpoints: HTTP servers that streamkit does not control.

In: a body to post. Out: the answer. On failure (no connection, too slow, cut off): `Refused`. When
a server asks for a pause (429 or 503 with `Retry-After`), further calls wait, but never longer
than the longest pause allowed.
"""

import logging
import socket
import ssl
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import KW_ONLY, dataclass, field
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import urlsplit

import anyio
import msgspec

from streamkit.errors import DeclarationError, PoisonChange, RetryableError
from streamkit.progress.clock import Clock, SystemClock
from streamkit.sinks.extras import needs
from streamkit.sinks.sink import Sender

if TYPE_CHECKING:
    import httpx

CLOSED = frozenset({*range(300, 400), 401, 403, 404, 405, 407, 410, 421})
"""A receiver that answers so takes no delivery at all, until its credentials or its address are put
right: an outage, and no fault of this delivery. Redirects are not followed: a POST may not be
repeated elsewhere unasked, and a page to log in at answers 200."""

LATER = frozenset({408, 409, 423, 425, 429}) | CLOSED
"""With these statuses below 500, the same call may succeed later (RFC 9110, 6585, 8470; 409 and 423
of a receiver that is still busy with the same `Idempotency-Key` after a time-out)."""

ANSWER_BYTES_MAX = 64_000_000
"""At most this many bytes of an answer are read."""

_PAUSES = frozenset({429, 503})


class Refused(RetryableError):
    """A receiver did not take a delivery now, but may take it later.

    Args:
        text: what happened; names no item.
        retry_after: the pause that the receiver asked for, in seconds; None if it did not ask.
        away: the receiver does not answer, or takes no delivery at all for now.
        status: its answer, 0 if there was none.
    """

    def __init__(
        self, text: str, *, retry_after: float | None = None, away: bool = False, status: int = 0
    ) -> None:
        super().__init__(text, why=text)
        self.retry_after = retry_after
        self.away = away
        self.status = status


class Answer(msgspec.Struct, frozen=True):
    """The answer of a server; `retry_after` in seconds, if it asked for a pause."""

    status: int
    body: bytes = b""
    retry_after: float | None = None


def seconds_of(header: str | None, now: float) -> float | None:
    """Return the seconds of a `Retry-After` header (seconds or an HTTP date); None if not valid.

    Args:
        header: its text.
        now: epoch seconds.
    """
    text = (header or "").strip()
    if text.isascii() and text.isdigit():
        return float(text)
    try:
        moment = parsedate_to_datetime(text)
    except ValueError:
        return None
    # RFC 9110: an HTTP date is in GMT even when it names no zone.
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return max(0.0, moment.timestamp() - now)


def fate(name: str, answer: Answer) -> Exception | None:
    """Return None if the answer means delivered, else the error."""
    if 200 <= answer.status < 300:
        return None
    if answer.status in LATER or answer.status >= 500:
        away = answer.status in _PAUSES | CLOSED
        pause, text = answer.retry_after, f"{name} answered {answer.status}"
        if 300 <= answer.status < 400:
            text += ": redirects are not followed, so give the sink the new address"
        return Refused(text, retry_after=pause, away=away, status=answer.status)
    return PoisonChange(f"{name} answered {answer.status}")


def unanswered(error: BaseException, timeout: float) -> str:
    """Say why there is no answer, and what to look at; without the address, which may be secret."""
    kind, cause = type(error).__name__, error
    while (below := cause.__cause__ or cause.__context__) is not None:
        cause = below
        match cause:
            case ssl.SSLCertVerificationError():
                what = cause.verify_message.partition(",")[0]  # behind it stands the address
                return f"its certificate is not valid here: {what} ({kind})"
            case socket.gaierror():
                return f"its name does not resolve; look at the sink's URL, and at DNS ({kind})"
            case ConnectionRefusedError():
                return f"nothing listens at its address ({kind})"
    if isinstance(error, TimeoutError) or "Timeout" in kind:
        return f"not within {timeout:g} seconds ({kind})"
    return kind


def check_address(name: str, url: str, headers: Mapping[str, str]) -> None:
    """Refuse what no request could be made of; the error shows no part of it, nor of a secret.

    Raises:
        DeclarationError: the URL is not one of HTTP, or a header's value is none.
    """
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        host = None
    if not url.startswith(("https://", "http://")):
        raise DeclarationError(f"sink {name!r}: its URL must begin with https:// or http://")
    if not host or not url.isprintable() or " " in url:
        text = "its URL has no host, a port that is none, or spaces or line feeds in it"
        raise DeclarationError(f"sink {name!r}: {text}")
    for header, value in headers.items():
        what = f"sink {name!r}: the value of its header {header!r}"
        if not isinstance(value, str | bytes):
            kind = type(value).__name__
            raise DeclarationError(f"{what} is of type {kind}, no text; is a variable not set?")
        text = value if isinstance(value, str) else value.decode("latin-1")
        if not (text.isascii() and text.isprintable() and text == text.strip()):
            raise DeclarationError(
                f"{what} is no plain ASCII on one line; strip what you read from a file"
            )


@dataclass
class Endpoint:
    """One server, with an open client.

    Attributes:
        name: the name of the sink, for messages.
        client: keeps its connections.
        timeout: seconds for a whole call.
        pause_max: the longest pause, in seconds, that is granted when the server asks for one.
        clock: the time with which dates in headers are compared.
    """

    name: str
    client: "httpx.AsyncClient"
    timeout: float
    pause_max: float
    clock: Clock = field(default_factory=SystemClock)
    _resume: float = 0.0

    async def post(
        self, url: str, body: bytes, headers: Mapping[str, str], *, keep: int = ANSWER_BYTES_MAX
    ) -> Answer:
        """Post a body; if the server asked for a pause, post it after the pause.

        Args:
            url: the address to post to.
            body: the bytes to post.
            headers: the headers of this call.
            keep: how many bytes of the answer are read; if less than the most, it need not be
                encoded as it says.

        Raises:
            Refused: there is no answer; it is unknown whether the server took the body.
        """
        import httpx

        await anyio.sleep_until(self._resume)
        try:
            with anyio.fail_after(self.timeout):
                answer = await self._post(url, body, headers, keep)
        except (httpx.HTTPError, httpx.StreamError, OSError) as error:
            text = f"{self.name} gave no answer: {unanswered(error, self.timeout)}"
            raise Refused(text, away=True) from None
        if answer.retry_after is not None:
            pause = min(answer.retry_after, self.pause_max)
            self._resume = max(self._resume, anyio.current_time() + pause)
        return answer

    async def _post(self, url: str, body: bytes, headers: Mapping[str, str], keep: int) -> Answer:
        import httpx

        kept = bytearray()
        headers = {"Accept-Encoding": "identity", **headers}
        async with self.client.stream("POST", url, content=body, headers=headers) as response:
            try:
                async for chunk in response.aiter_bytes():
                    kept += chunk
                    if len(kept) > keep:
                        break
            except httpx.DecodingError:
                # Where the status alone counts, the answer need not be encoded as it says.
                if keep == ANSWER_BYTES_MAX:
                    raise
        pause = None
        if response.status_code in _PAUSES:
            pause = seconds_of(response.headers.get("retry-after"), self.clock.time())
        return Answer(response.status_code, bytes(kept[:keep]), pause)


@dataclass(frozen=True)
class HttpSink(ABC):
    """A sink whose server is reached by HTTP; a subclass names the extra that it needs.

    Args:
        name: the name of the sink.
        url: the server's address.
        headers: sent along, such as `Authorization`.
        auth: authentication for httpx, such as a pair of user and password.
        timeout: seconds for a whole call.
        calls: how many calls may be under way at once.
        pause_max: the longest pause in seconds that is granted when the server asks for one
            (`Retry-After`).
        transport: transport for httpx, for proxies or client certificates.
        clock: the time in dates and signatures.

    Raises:
        DeclarationError: the URL is not one of HTTP, or a header's value is none.
    """

    name: str
    url: str = field(repr=False)
    _: KW_ONLY
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    auth: Any = field(default=None, repr=False)
    timeout: float = 10.0
    calls: int = 4
    pause_max: float = 60.0
    transport: Any = field(default=None, repr=False)
    clock: Clock = field(default_factory=SystemClock, repr=False)

    extra: ClassVar[str]

    def __post_init__(self) -> None:
        """Check the address and the headers. The error shows neither: they may hold a token."""
        check_address(self.name, self.url, self.headers)

    @abstractmethod
    def sender(self, endpoint: Endpoint) -> Sender:
        """Return the sender that delivers through an open endpoint."""

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[Sender]:
        """Open a client, which connects when it first needs to.

        Raises:
            ConfigurationError: httpx is not installed.
        """
        with needs(self.extra):
            import httpx
        # The log lines of httpx hold addresses, which may hold tokens.
        logging.getLogger("httpx").setLevel(logging.WARNING)
        async with httpx.AsyncClient(
            auth=self.auth,
            transport=self.transport,
            limits=httpx.Limits(max_connections=self.calls, max_keepalive_connections=self.calls),
            timeout=self.timeout,
            follow_redirects=False,
        ) as client:
            endpoint = Endpoint(self.name, client, self.timeout, self.pause_max, self.clock)
            yield self.sender(endpoint)
