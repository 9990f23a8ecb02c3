"""The shortcut of a call to the engine: what botocore computes at each call is computed once.

In: a client whose HTTP session is of `transport`. Out: the same client. Its calls send the same
bytes and return the same replies for a sixth of the processor time; a simulation makes hundreds of
thousands of calls. Parameters that botocore may refuse take botocore's own path. So do exceptions,
and refusals that botocore may retry, with the answer that is already there, so that retries, their
budget and the errors raised are botocore's. Of botocore's events only those of the request and the
reply are emitted.
"""

import json
import uuid
from base64 import b64encode
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Self, TypeAlias

import msgspec

from streamkit.local.shapes import Check, shapes_of, types_in
from streamkit.local.transport import Response


def _base64(value: Any) -> str:
    """Return a binary value as botocore sends it."""
    return b64encode(value).decode()


_encode = json.JSONEncoder(default=_base64).encode
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
    way = _Way(client, endpoint.http_session)
    endpoint.http_session = _Replaying(endpoint.http_session)
    client._make_api_call = way.call  # noqa: SLF001


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


class _Way:
    """The calls of one client."""

    def __init__(self, client: Any, session: Any) -> None:
        self._long: Callable[[str, Payload], Awaitable[Payload]] = client._make_api_call  # noqa: SLF001
        self._client = client
        self._events = client.meta.events
        self._service = client.meta.service_model
        self._url = f"{client.meta.endpoint_url}/"
        self._region = client.meta.region_name
        self._session = session
        self._parser = client._endpoint._response_parser_factory.create_parser("json")  # noqa: SLF001

    async def call(self, name: str, params: Payload) -> Payload:
        """Make a call; raise what botocore raises."""
        operation = _operation(self._service, name, self._parser)
        sent = params
        emitted = await self._events.emit(
            f"provide-client-params{operation.events}",
            params=params,
            model=operation.model,
            context={},
        )
        for _, given in emitted:
            sent = given or sent
        # A retry is made by botocore, and must send the token that the first attempt has sent.
        tokens = {token: str(uuid.uuid4()) for token in operation.tokens if token not in sent}
        if tokens:
            sent, params = sent | tokens, params | tokens
        if not operation.accepts(sent):
            return await self._long(name, params)
        try:
            response = await self._session.exchange(
                operation.target, _encode(sent).encode(), self._url, region=self._region
            )
        except Exception as error:  # noqa: BLE001  # botocore decides what to do with it
            return await self._go_on(name, params, error)
        if response.status >= 300 and not _is_final(response):
            return await self._go_on(name, params, response)
        return await self._returned(operation, response)

    async def _go_on(self, name: str, params: Payload, first: Response | Exception) -> Payload:
        """Pass a call to botocore, with the answer that it already has."""
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
        await self._events.emit(
            f"response-received{operation.events}",
            response_dict=raw,
            parsed_response=reply,
            context=context,
            exception=None,
        )
        reply["ResponseMetadata"]["RetryAttempts"] = 0
        await self._events.emit(
            f"after-call{operation.events}",
            http_response=_Accepted(response.status),
            parsed=reply,
            model=operation.model,
            context={},
        )
        if response.status >= 300:
            error = self._client.exceptions.from_code(reply["Error"]["Code"])
            raise error(reply, operation.model.name)
        return reply

    async def _parsed(self, operation: _Operation, raw: Payload) -> Payload:
        """Return what botocore's parser makes of a response; a refusal has its modelled fields."""
        reply: Payload = await self._parser.parse(raw, operation.model.output_shape)
        if "Error" in reply:
            shape = self._service.shape_for_error_code(reply["Error"]["Code"])
            reply |= await self._parser.parse(raw, shape)
        return reply


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
