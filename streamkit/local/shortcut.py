"""The shortcut of a call to the engine: what botocore computes at each call is computed once.

In: a client whose HTTP session is of `transport`. Out: the same client. Its calls send the same
JSON and return the same replies for a sixth of the processor time; a simulation makes hundreds of
thousands of calls. Parameters that botocore may refuse take botocore's own path. So do exceptions,
and refusals that botocore may retry, with the answer that is already there, so that retries, their
budget and the errors raised are botocore's. Of botocore's events only those of the request and the
reply are emitted.

A `Deferred` client does without botocore's until it needs it: to make one takes as long as thirty
calls, and a simulation starts thousands of processes with three clients each.
"""

import uuid
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Self, TypeAlias

import msgspec

from streamkit.local.shapes import Check, shapes_of, types_in
from streamkit.local.transport import Response

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode

Payload: TypeAlias = dict[str, Any]

_FINAL = {"ConditionalCheckFailedException", "TransactionCanceledException"}
"""Refusals that botocore never retries; a simulation meets thousands of them."""

_first: ContextVar[Response | Exception | None] = ContextVar("first", default=None)
"""The answer that a call on botocore's path already has."""


def shorten(client: Any) -> None:
    """Make a client's calls take the shortcut where possible; a second time changes nothing."""
    endpoint = client._endpoint  # noqa: SLF001  # botocore has no public access here
    if isinstance(endpoint.http_session, _Replaying):
        return
    _LazyClient(client, endpoint.http_session, lambda: client).client()


class Deferred:
    """A client that takes the shortcut, and makes botocore's own for all else.

    Args:
        like: a client of the same service, Region and configuration, that says how calls are made.
        session: the HTTP session of the calls.
        make: makes botocore's client.
    """

    def __init__(self, like: Any, session: Any, make: Callable[[], Any]) -> None:
        self._way = _LazyClient(like, session, make)
        self._operations: dict[str, str] = like.meta.method_to_api_mapping

    def __getattr__(self, name: str) -> Any:
        operation = self._operations.get(name)
        if operation is None:
            return getattr(self._way.client(), name)

        async def method(**params: Any) -> Payload:
            return await self._way.call(operation, params)

        return method


@dataclass(frozen=True, slots=True)
class _Operation:
    """The facts of an operation.

    Attributes:
        target: its `X-Amz-Target`.
        tokens: parameters that are generated for each call if they are not given.
        accepts: returns whether botocore sends these parameters as they are; False if in doubt.
        read: turns a reply into what botocore returns; None if streamkit's own parser does that.
        events: the part of each event's name after its prefix.
    """

    model: Any
    target: str
    tokens: tuple[str, ...]
    accepts: Check
    read: Callable[[bytes], Payload] | None
    events: str


class _LazyClient:
    """The calls of one client, which is made when it is needed, from another one like it."""

    def __init__(self, like: Any, session: Any, make: Callable[[], Any]) -> None:
        self._make = make
        self._client: Any = None
        self._long: Callable[[str, Payload], Awaitable[Payload]]
        self._service = like.meta.service_model
        self._url = f"{like.meta.endpoint_url}/"
        self._region = like.meta.region_name
        self._errors = like.exceptions
        self._session = session
        self._parser = like._endpoint._response_parser_factory.create_parser("json")  # noqa: SLF001

    def client(self) -> Any:
        """Return botocore's client, whose calls go this way from now on."""
        if self._client is None:
            client = self._client = self._make()
            self._long = client._make_api_call  # noqa: SLF001
            client._make_api_call = self.call  # noqa: SLF001
            client._endpoint.http_session = _Replaying(self._session)  # noqa: SLF001
        return self._client

    async def _emit(self, event: str, operation: _Operation, **about: Any) -> Any:
        """Tell the listeners of botocore's client; there are none before it is made."""
        return await self._client.meta.events.emit(f"{event}{operation.events}", **about)

    async def call(self, name: str, params: Payload) -> Payload:
        """Make a call; raise what botocore raises."""
        operation = _operation(self._service, name, self._parser)
        sent = params
        if self._client is not None:
            about: Payload = {"params": params, "model": operation.model, "context": {}}
            for _, given in await self._emit("provide-client-params", operation, **about):
                sent = given or sent
        # A retry is made by botocore, and must send the token that the first attempt has sent.
        tokens = {token: str(uuid.uuid4()) for token in operation.tokens if token not in sent}
        if tokens:
            sent, params = sent | tokens, params | tokens
        body = _written(sent) if operation.accepts(sent) else None
        if body is None:
            self.client()
            return await self._long(name, params)
        try:
            response = await self._session.exchange(
                operation.target, body, self._url, region=self._region
            )
        except Exception as error:  # noqa: BLE001  # botocore decides what to do with it
            return await self._go_on(name, params, error)
        if response.status >= 300 and not _is_final(response):
            return await self._go_on(name, params, response)
        return await self._returned(operation, response)

    async def _go_on(self, name: str, params: Payload, first: Response | Exception) -> Payload:
        """Pass a call to botocore, with the answer that it already has."""
        self.client()
        token = _first.set(first)
        try:
            return await self._long(name, params)
        finally:
            _first.reset(token)

    async def _returned(self, operation: _Operation, response: Response) -> Payload:
        headers = self._session.headers(response)
        context = {"operation_name": operation.model.name}
        raw = {"headers": headers, "status_code": response.status, "body": response.body}
        if response.status < 300 and operation.read is not None:
            reply = operation.read(response.body)
            reply["ResponseMetadata"] = {
                "RequestId": headers["x-amzn-requestid"],
                "HTTPStatusCode": response.status,
                "HTTPHeaders": headers,
            }
        else:
            raw["context"] = context
            reply = await self._parsed(operation, raw)
        if self._client is not None:
            await self._emit(
                "response-received",
                operation,
                response_dict=raw,
                parsed_response=reply,
                context=context,
                exception=None,
            )
        reply["ResponseMetadata"]["RetryAttempts"] = 0
        if self._client is not None:
            await self._emit(
                "after-call",
                operation,
                http_response=_Accepted(response.status),
                parsed=reply,
                model=operation.model,
                context={},
            )
        if response.status >= 300:
            # Botocore makes up an id for each call of its own: seeds keep the runs that they gave
            # when refusals were such calls, and with them the bugs that they find.
            uuid.uuid4()
            error = self._errors.from_code(reply["Error"]["Code"])
            raise error(reply, operation.model.name)
        return reply

    async def _parsed(self, operation: _Operation, raw: Payload) -> Payload:
        """Return what botocore's parser makes of a response; a refusal has its modelled fields."""
        reply: Payload = await self._parser.parse(raw, operation.model.output_shape)
        if "Error" in reply:
            shape = self._service.shape_for_error_code(reply["Error"]["Code"])
            reply |= await self._parser.parse(raw, shape)
        return reply


def _written(params: Payload) -> bytes | None:
    """Return the JSON of parameters; None if a text is no Unicode, such as half of a pair."""
    try:
        return _encode(params)
    except UnicodeEncodeError:
        return None


def _is_final(response: Response) -> bool:
    """Return whether a refusal is the answer, however often botocore may try."""
    kind: str = _decode(response.body).get("__type", "") if response.status == 400 else ""
    return kind.rpartition("#")[2] in _FINAL


def _operation(service: Any, name: str, parser: Any) -> _Operation:
    """Return the facts of an operation, computed once."""
    known = _known.get((service.service_name, name))
    if known is not None:
        return known
    model = service.operation_model(name)
    shapes = shapes_of(service.service_name)
    convert = shapes.reader(model.output_shape, parser)
    timed = "timestamp" in types_in(model.output_shape, set())

    def read(body: bytes) -> Payload:
        reply: Payload = _decode(body)
        # Only times and binaries differ between JSON and what botocore returns.
        if timed or b'"B":' in body or b'"BS":' in body:
            reply = convert(reply)
        return reply

    operation = _known[service.service_name, name] = _Operation(
        model,
        f"{model.metadata['targetPrefix']}.{name}",
        tuple(model.idempotent_members),
        shapes.check(model.input_shape),
        None if name == "GetRecords" else read,
        f".{service.service_id.hyphenize()}.{name}",
    )
    return operation


_known: dict[tuple[str, str], _Operation] = {}
"""The facts of operations, by service and name."""


@dataclass(frozen=True, slots=True)
class _Accepted:
    """The part of a successful response that listeners read."""

    status_code: int


class _Replaying:
    """The HTTP session for botocore's own path: a call's first answer may be there already."""

    def __init__(self, session: Any) -> None:
        self._session = session

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self._session.__aexit__(*exception)

    async def close(self) -> None:
        await self._session.close()

    async def send(self, request: Any) -> Any:
        first = _first.get()
        if first is None:
            return await self._session.send(request)
        _first.set(None)
        if isinstance(first, Exception):
            raise first
        return self._session.answer(request.url, first)
