"""The wire protocol of DynamoDB, AWS JSON 1.0, as far as both doors of the engine need it.

A door (the in-process transport, the HTTP server) reads the operation of a request, gives the bytes
to a `Core` and sends back the bytes that it gets.
"""

import re
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from email.utils import formatdate
from functools import lru_cache
from typing import Protocol, Self

import msgspec

from streamkit.local.errors import ApiError

CONTENT_TYPE = "application/x-amz-json-1.0"

MOST_BODY_BYTES = 32 << 20
"""The largest call is 16 MB of items; base64 and JSON add more than a third."""

_scope = re.compile(r"Credential=([^/\s,]+)/\d{8}/([a-z0-9-]{1,64})/").search
_host = re.compile(r"https?://(?:streams\.)?dynamodb\.([a-z0-9-]{1,64})\.").match
_account = re.compile(r"\d{12}").fullmatch

_SERVICES = {"DynamoDB_20120810": "dynamodb", "DynamoDBStreams_20120810": "dynamodbstreams"}


class Core(Protocol):
    """The engine as a door sees it. `clock` returns its time, in epoch seconds."""

    clock: Callable[[], float]

    def call_bytes(self, service: str, operation: str, payload: bytes) -> tuple[int, bytes]:
        """Carry out one operation; return the HTTP status and the JSON body."""
        ...

    def at(self, region: str | None = None, account: str | None = None) -> Self:
        """Return the engine of another Region or account; None means this one's."""
        ...


@dataclass(frozen=True, slots=True)
class Response:
    """A reply on the wire: an HTTP status and a JSON body."""

    status: int
    body: bytes

    @classmethod
    def of_error(cls, error: ApiError) -> "Response":
        """Turn a refusal into the response that AWS would send."""
        return cls(error.status, msgspec.json.encode(error.body()))


@lru_cache(1)
def date_text(second: int) -> str:
    """Return an epoch second in the form of a `Date` header."""
    return formatdate(second, usegmt=True)


def parse_target(target: str | bytes | None) -> tuple[str, str]:
    """Return the service and the operation of an `X-Amz-Target` header.

    Raises:
        ApiError: UnknownOperationException, when the header names neither service.
    """
    text = target.decode("latin-1") if isinstance(target, bytes) else target or ""
    prefix, _, operation = text.partition(".")
    service = _SERVICES.get(prefix)
    if service is None or not operation:
        raise ApiError("UnknownOperationException", "")
    return service, operation


def parse_scope(authorization: str | bytes | None) -> tuple[str | None, str | None]:
    """Return the Region and the account of an `Authorization` header.

    The Region is that of the signature's credential scope. An access key of twelve digits is taken
    as an account; any other access key belongs to the engine's own account.
    """
    text = authorization.decode("latin-1") if isinstance(authorization, bytes) else authorization
    found = _scope(text or "")
    if found is None:
        return None, None
    key, region = found.groups()
    return region, key if _account(key) else None


def parse_host(url: str) -> str | None:
    """Return the Region of an AWS endpoint's address; None for any other address."""
    found = _host(url)
    return None if found is None else found[1]


def decoded(body: bytes, encoding: str | bytes | None) -> bytes:
    """Undo the `Content-Encoding` of a request; DynamoDB knows only gzip.

    Raises:
        ApiError: InternalServerError, as in DynamoDB, when the encoding is another one or the body
            is broken; or the body is too long.
    """
    text = encoding.decode("latin-1") if isinstance(encoding, bytes) else encoding or ""
    if not text or text == "identity":
        return body
    if text != "gzip" or not body:
        raise _undecodable()
    parts, left, room = [], body, MOST_BODY_BYTES
    while left:
        stream = zlib.decompressobj(wbits=31)
        try:
            part = stream.decompress(left, room + 1)
        except zlib.error:
            raise _undecodable() from None
        room -= len(part)
        if room < 0:
            raise ApiError("SerializationException", "the body is too long", status=413)
        if not stream.eof:
            raise _undecodable()
        parts.append(part)
        left = stream.unused_data
    return b"".join(parts)


def _undecodable() -> ApiError:
    return ApiError("InternalServerError", "the Content-Encoding is not gzip", status=500)
