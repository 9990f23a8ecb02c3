"""The wire protocol of DynamoDB, AWS JSON 1.0, as far as both doors of the engine need it.

A door (the in-process transport, the HTTP server) finds out which operation a request means, gives
its bytes to a `Core` and sends back the bytes it gets.
"""

from dataclasses import dataclass
from typing import Protocol

import msgspec

from streamkit.local.errors import ApiError

CONTENT_TYPE = "application/x-amz-json-1.0"

_SERVICES = {"DynamoDB_20120810": "dynamodb", "DynamoDBStreams_20120810": "dynamodbstreams"}


class Core(Protocol):
    """What stands behind a door: the engine."""

    def call_bytes(self, service: str, operation: str, payload: bytes) -> tuple[int, bytes]:
        """Carry out one operation; return the HTTP status and the JSON body."""
        ...


@dataclass(frozen=True, slots=True)
class Response:
    """What goes back over the wire: an HTTP status and a JSON body."""

    status: int
    body: bytes

    @classmethod
    def of_error(cls, error: ApiError) -> "Response":
        """Turn a refusal into the response AWS would send."""
        return cls(error.status, msgspec.json.encode(error.body()))


def parse_target(target: str | bytes | None) -> tuple[str, str]:
    """Read an `X-Amz-Target` header: the service and the operation.

    Raises:
        ApiError: UnknownOperationException, when it names neither service.
    """
    text = target.decode("latin-1") if isinstance(target, bytes) else target or ""
    prefix, _, operation = text.partition(".")
    service = _SERVICES.get(prefix)
    if service is None or not operation:
        raise ApiError("UnknownOperationException", "")
    return service, operation
