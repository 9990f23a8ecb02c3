"""Transport: an HTTP session for aioboto3 that calls the engine instead of a network.

With `AioConfig(http_session_cls=session_class(engine))` the rest of the client stays real:
validation, serialisation, signing, retries, parsing and exceptions. Only the socket is replaced.
An `Intercept` stands in the place of the network. It may wait, answer by itself, apply the call and
then fail, or never return. Its exceptions reach botocore as the real HTTP session would raise them,
so that errors retried in production are retried here.
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
        actor: the caller's name, as given to `session_class`.
        service: `dynamodb` or `dynamodbstreams`.
        operation: `PutItem`, for example.
        payload: the JSON body.
        url: the address of the request; botocore's exceptions name it.
    """

    actor: str
    service: str
    operation: str
    payload: bytes
    url: str = ""


Apply = Callable[[], Response]
"""A function that carries out the call at once. An intercept may call it any number of times."""

Intercept = Callable[[Call, Apply], Awaitable[Response]]
"""A function that decides what happens to a call between client and engine.

It may raise botocore's own exceptions, or the built-in ones: `ConnectionRefusedError` becomes
`EndpointConnectionError` (nothing was sent), any other `ConnectionError` becomes
`ConnectionClosedError` and `TimeoutError` becomes `ReadTimeoutError` (it may have been applied).
Any other exception reaches the caller unchanged.
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
        actor: the caller's name, given to the intercept.
        intercept: stands between client and engine; None for a perfect network.
        read_timeout: whether the client's own read time-out ends an intercept that takes too long.
            False when the intercept simulates a frozen process, whose timers stand still too.
    """

    class Session(_Session):
        _core = core
        _actor = actor
        # A function in a class would become a method.
        _intercept = None if intercept is None else staticmethod(intercept)
        _limited = read_timeout
        # Each class has its own counter, so that one seed gives one run.
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
        """Do nothing, because nothing is open."""

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
        # Other tasks may run here, as they may while a real request is on the wire.
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
            if not self._limited:
                return await intercept(call, apply)
            async with asyncio.timeout(self._timeout):
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
        """Return the headers of a response, with a request id of its own."""
        return {
            "content-type": CONTENT_TYPE,
            "content-length": str(len(response.body)),
            "date": date_text(int(self._core.clock())),
            "x-amzn-requestid": f"{next(self._request_ids):052X}",
        }

    def answer(self, url: str, response: Response) -> AioAWSResponse:
        """Return a response in botocore's form."""
        answer = AioAWSResponse(url, response.status, self.headers(response), _Body(response.body))
        answer._content = response.body  # noqa: SLF001  # there is no other way to hand it over
        return answer


class _Body:
    """The body from which a response is read when its content is not used."""

    def __init__(self, body: bytes) -> None:
        self._body = body

    async def read(self) -> bytes:
        return self._body
