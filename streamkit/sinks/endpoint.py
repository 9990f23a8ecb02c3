"""Endpoints: other people's HTTP servers.

In: a body to post. Out: the answer. On failure (no connection, too slow, cut off): `Refused`. A
server that asks for a pause (429 or 503 with `Retry-After`) gets it: further calls wait, but never
longer than the longest pause.
"""

import logging
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import KW_ONLY, dataclass, field
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, ClassVar

import anyio

from streamkit.clock import Clock, SystemClock
from streamkit.errors import DeclarationError, PoisonChange, RetryableError
from streamkit.sinks.extras import needs
from streamkit.sinks.sink import Sender

if TYPE_CHECKING:
    import httpx

LATER = frozenset({408, 425, 429})
"""Statuses below 500 that say that the same call may succeed later (RFC 9110, 6585, 8470)."""

ANSWER_BYTES_MAX = 64_000_000
"""What is read of an answer, at most."""

_PAUSES = frozenset({429, 503})


class Refused(RetryableError):
    """A receiver did not take a delivery, and may later.

    Args:
        text: what happened; names no item.
        retry_after: the pause it asked for, in seconds; None if it did not.
        away: it does not answer, or wants nothing for now, whatever it is.
    """

    def __init__(self, text: str, *, retry_after: float | None = None, away: bool = False) -> None:
        super().__init__(text)
        self.retry_after = retry_after
        self.away = away


@dataclass(frozen=True, slots=True)
class Answer:
    """What a server answered; `retry_after` in seconds, if it asked for a pause."""

    status: int
    body: bytes = b""
    retry_after: float | None = None


def seconds_of(header: str | None, now: float) -> float | None:
    """Read a `Retry-After` header: seconds, or a date of HTTP; None if there is none that is valid.

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
    # RFC 9110: an HTTP date is in GMT, also where it does not say so.
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return max(0.0, moment.timestamp() - now)


def fate(name: str, answer: Answer) -> Exception | None:
    """Return what an answer means for what was sent: None for delivered, else the error."""
    if 200 <= answer.status < 300:
        return None
    if answer.status in LATER or answer.status >= 500:
        away = answer.status in _PAUSES
        return Refused(
            f"{name} answered {answer.status}", retry_after=answer.retry_after, away=away
        )
    if 300 <= answer.status < 400:
        return PoisonChange(f"{name} answered {answer.status}: redirects are not followed")
    return PoisonChange(f"{name} answered {answer.status}")


@dataclass
class Endpoint:
    """One server, with an open client.

    Attributes:
        name: of the sink, for messages.
        client: keeps its connections.
        timeout: seconds for a whole call.
        pause_max: the longest pause, in seconds, that the server gets when it asks for one.
        clock: what dates in headers are compared with.
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
        """Post a body, after the pause that the server asked for, if it did.

        Args:
            url: where to.
            body: what.
            headers: of this call.
            keep: how many bytes of the answer are wanted; the rest is not read.

        Raises:
            Refused: there is no answer; whether the server took the body is unknown.
        """
        import httpx

        await anyio.sleep_until(self._resume)
        try:
            with anyio.fail_after(self.timeout):
                answer = await self._post(url, body, headers, keep)
        except (httpx.HTTPError, httpx.StreamError, OSError) as error:
            text = f"{self.name} gave no answer: {type(error).__name__}"
            raise Refused(text, away=True) from None
        if answer.retry_after is not None:
            pause = min(answer.retry_after, self.pause_max)
            self._resume = max(self._resume, anyio.current_time() + pause)
        return answer

    async def _post(self, url: str, body: bytes, headers: Mapping[str, str], keep: int) -> Answer:
        kept = bytearray()
        headers = {"Accept-Encoding": "identity", **headers}
        async with self.client.stream("POST", url, content=body, headers=headers) as response:
            async for chunk in response.aiter_bytes():
                kept += chunk
                if len(kept) > keep:
                    break
        pause = None
        if response.status_code in _PAUSES:
            pause = seconds_of(response.headers.get("retry-after"), self.clock.time())
        return Answer(response.status_code, bytes(kept[:keep]), pause)


@dataclass(frozen=True)
class HttpSink(ABC):
    """A sink of a server that is reached by HTTP; needs the extra that it names.

    Args:
        name: of the sink.
        url: the server's address.
        headers: sent along, such as `Authorization`.
        auth: httpx's, such as a pair of user and password.
        timeout: seconds for a whole call.
        calls: calls at once.
        pause_max: the longest pause in seconds that the server gets when it asks for one
            (`Retry-After`).
        transport: httpx's, for proxies or client certificates.
        clock: the time in dates and signatures.

    Raises:
        DeclarationError: the URL is not one of HTTP.
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
        """Check the address. The message does not show it, for it may hold a token."""
        if not self.url.startswith(("https://", "http://")):
            text = f"sink {self.name!r}: its URL must begin with https:// or http://"
            raise DeclarationError(text)

    @abstractmethod
    def sender(self, endpoint: Endpoint) -> Sender:
        """Return what delivers through an open endpoint."""

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[Sender]:
        """Open connections as they are needed.

        Raises:
            ConfigurationError: httpx is not installed.
        """
        with needs(self.extra):
            import httpx
        # Its log lines hold addresses, which may hold tokens.
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
