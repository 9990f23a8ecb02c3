"""Count the capacity that calls to AWS use, and how often AWS throttles them.

In: open clients. Out: counters of the task that makes the call (`meters.current`). Calls that can
report the capacity that they consume are asked to do so, which is free. A cancelled transaction
uses units too, but does not report them, so they are not counted. Each reply is counted before the
SDK decides whether to retry by itself.
"""

from collections.abc import Callable, Mapping
from typing import Any

from streamkit.aws import Aws, is_throttled
from streamkit.observe.meters import current

_ASKED = (
    "BatchGetItem",
    "BatchWriteItem",
    "DeleteItem",
    "GetItem",
    "PutItem",
    "Query",
    "Scan",
    "TransactGetItems",
    "TransactWriteItems",
    "UpdateItem",
)
"""Operations that return the capacity they consumed, if the request asks for it."""

STREAM_READ = "GetRecords"
"""This operation is billed by the call."""


def meter(aws: Aws) -> None:
    """Count from now on what the calls of these clients use; a second time changes nothing."""
    for client in (aws.dynamodb, aws.beats):
        for operation in _ASKED:
            _register(client, f"provide-client-params.dynamodb.{operation}", _ask)
        _register(client, "response-received.dynamodb", _note)
    _register(aws.streams, "response-received.dynamodb-streams", _note)


def _register(client: Any, event: str, handler: Callable[..., Any]) -> None:
    client.meta.events.register(event, handler, unique_id=f"streamkit {event}")


def _ask(params: Mapping[str, Any], **_: Any) -> dict[str, Any] | None:
    if current.get() is None or "ReturnConsumedCapacity" in params:
        return None
    return {**params, "ReturnConsumedCapacity": "TOTAL"}


def _note(parsed_response: Mapping[str, Any] | None, event_name: str, **_: Any) -> None:
    meters = current.get()
    if meters is None or parsed_response is None:
        return
    operation = event_name.rpartition(".")[2]
    used = parsed_response.get("ConsumedCapacity")
    if used is not None:
        parts = (used,) if isinstance(used, Mapping) else used
        meters.use(operation, sum(part.get("CapacityUnits", 0.0) for part in parts))
    elif operation == STREAM_READ and "Body" in parsed_response:
        meters.use(operation, 1.0)
    elif "Error" in parsed_response and is_throttled(parsed_response):
        meters.throttle(operation)
