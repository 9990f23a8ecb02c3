"""The engine inside aioboto3: an HTTP session that calls it instead of a network.

`AioConfig(http_session_cls=session_class(engine))` leaves everything of the client in place:
validation, serialisation, signing, retries, parsing and exceptions are the real ones. Only the
socket is gone. An `Intercept` stands where the network would be; it may wait, answer by itself,
apply the call and then fail, or never come back. What it raises reaches botocore as the real HTTP
session would have raised it, so that what is retried in production is retried here.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from itertools import count
from typing import Any, Self

from aiobotocore.awsrequest import AioAWSResponse
from botocore.exceptions import ConnectionClosedError, EndpointConnectionError, ReadTimeoutError

from streamkit.local.errors import ApiError
from streamkit.local.wire import (
    CONTENT_TYPE,
    Core,
    Response,
    date_text,
    decoded,
    parse_host,
    parse_scope,
    parse_target,
)

__all__ = ["Call", "Intercept", "Response", "session_class"]


@dataclass(frozen=True, slots=True)
class Call:
    """One request on its way to the engine; a retry is a call of its own.

    Attributes:
        actor: who calls, as `session_class` was told.
        service: `dynamodb` or `dynamodbstreams`.
        operation: `PutItem`, for example.
        payload: the JSON body.
        url: where botocore sends it; its exceptions name that.
    """

    actor: str
    service: str
    operation: str
    payload: bytes
    url: str = ""


Apply = Callable[[], Response]
"""Carries the call out, at once. An intercept may call it never, once, or more than once."""

Intercept = Callable[[Call, Apply], Awaitable[Response]]
"""What happens to a call between client and engine.

It may raise botocore's own exceptions, or the built-in ones: `ConnectionRefusedError` becomes
`EndpointConnectionError` (nothing was sent), any other `ConnectionError` becomes
`ConnectionClosedError` and `TimeoutError` becomes `ReadTimeoutError` (it may have been applied).
Whatever else it raises reaches the caller as it is.
"""


def session_class(
    core: Core,
    *,
    actor: str = "",
    intercept: Intercept | None = None,
    read_timeout: bool = True,
) -> type:
    """Make a class for `AioConfig(http_session_cls=...)` whose sessions call the engine.

    Args:
        core: the engine.
        actor: told to the intercept.
        intercept: stands between client and engine; None for a perfect network.
        read_timeout: let the client's own read time-out end an intercept that takes too long.
            False when the intercept plays a frozen process, whose timers stand still too.
    """

    class Session(_Session):
        _core = core
        _actor = actor
        # A function in a class would become a method.
        _intercept = None if intercept is None else staticmethod(intercept)
        _limited = read_timeout
        # Not shared with other classes, so that one seed gives one run.
        _request_ids = count(1)

    return Session


class _Session:
    """The interface of aiobotocore's HTTP sessions."""

    _core: Core
    _actor: str
    _intercept: Intercept | None
    _limited: bool
    _request_ids: "count[int]"

    def __init__(self, timeout: Any = None, **_network: Any) -> None:
        self._timeout = timeout[1] if isinstance(timeout, (list, tuple)) else timeout

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exception: object) -> None:
        return None

    async def close(self) -> None:
        """Nothing is open."""

    async def send(self, request: Any) -> AioAWSResponse:
        """Carry out a prepared request."""
        headers = request.headers
        region = parse_scope(headers.get("Authorization"))[0] or parse_host(request.url)
        try:
            body = decoded(request.body or b"{}", headers.get("Content-Encoding"))
        except ApiError as error:
            return self.answer(request.url, Response.of_error(error))
        target = headers.get("X-Amz-Target")
        response = await self.exchange(target, body, request.url, request, region=region)
        return self.answer(request.url, response)

    async def exchange(
        self,
        target: str | bytes | None,
        payload: bytes,
        url: str,
        request: Any = None,
        *,
        region: str | None = None,
    ) -> Response:
        """Carry out a request, given by its `X-Amz-Target` header, its body and its Region."""
        # Others may run here, as they may while a real request is on the wire.
        await asyncio.sleep(0)
        try:
            service, operation = parse_target(target)
        except ApiError as error:
            return Response.of_error(error)
        core = self._core.at(region)
        if self._intercept is None:
            return Response(*core.call_bytes(service, operation, payload))
        call = Call(self._actor, service, operation, payload, url)
        return await self._intercepted(core, self._intercept, call, request)

    async def _intercepted(
        self, core: Core, intercept: Intercept, call: Call, request: Any
    ) -> Response:
        def apply() -> Response:
            return Response(*core.call_bytes(call.service, call.operation, call.payload))

        try:
            async with asyncio.timeout(self._timeout if self._limited else None):
                return await intercept(call, apply)
        except TimeoutError as error:
            raise ReadTimeoutError(endpoint_url=call.url, error=error) from error
        except ConnectionRefusedError as error:
            raise EndpointConnectionError(endpoint_url=call.url, error=error) from error
        except ConnectionError as error:
            raise ConnectionClosedError(
                endpoint_url=call.url, request=request, error=error
            ) from error

    def headers(self, response: Response) -> dict[str, str]:
        """Return the headers of a response, which has a number of its own."""
        return {
            "content-type": CONTENT_TYPE,
            "content-length": str(len(response.body)),
            "date": date_text(int(self._core.clock())),
            "x-amzn-requestid": f"{next(self._request_ids):052X}",
        }

    def answer(self, url: str, response: Response) -> AioAWSResponse:
        """Return a response as botocore wants it."""
        answer = AioAWSResponse(url, response.status, self.headers(response), _Body(response.body))
        answer._content = response.body  # noqa: SLF001  # there is no other way to hand it over
        return answer


class _Body:
    """What a response is read from when its content is not used."""

    def __init__(self, body: bytes) -> None:
        self._body = body

    async def read(self) -> bytes:
        return self._body
