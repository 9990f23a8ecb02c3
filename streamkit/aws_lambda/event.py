"""Events: what a DynamoDB event source mapping sends, as records.

Lambda's JSON is that of `GetRecords` with two differences: `userIdentity` has members in lower
case, and each record says the ARN of its stream, which `GetRecords` does not. A mapping with
tumbling windows adds the shard's id and a state, which has to be in the answer. Images stay bytes.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from streamkit.decode import Record, is_marked
from streamkit.errors import ConfigurationError

_RECORDS = msgspec.json.Decoder(tuple[Record, ...])
_SOURCE = "aws:dynamodb"


@dataclass(frozen=True, slots=True)
class Event:
    """One event: its records in order, and the ARN of their stream, if it is said anywhere.

    Unless it is `marked`, no item in it says who wrote it, or that it is a copy. `shard` and
    `state` are there with tumbling windows only, and None otherwise.
    """

    records: tuple[Record, ...]
    marked: bool
    stream: str | None = None
    shard: str | None = None
    state: Mapping[str, Any] | None = None


def read_event(event: Mapping[str, Any]) -> Event:
    """Read an event; one that closes a window may have no records.

    Raises:
        ConfigurationError: it is no event of a DynamoDB stream; says what it is of, or what is
            missing.
    """
    given = event.get("Records")
    if not isinstance(given, list | tuple):
        raise ConfigurationError(
            "the event has no Records: this function is for an event source mapping of a DynamoDB"
            " stream"
        )
    sources = set(_sources(given)) - {_SOURCE, "None"}
    if sources:
        raise ConfigurationError(
            f"the event is of {', '.join(sorted(sources))}, and not of a DynamoDB stream"
        )
    windowed = "window" in event
    records, marked = _read(given)
    return Event(
        records,
        marked,
        _stream_of(event, given),
        event.get("shardId") if windowed else None,
        (event.get("state") or {}) if windowed else None,
    )


def read_records(given: object) -> tuple[Record, ...]:
    """Read records in Lambda's JSON.

    Raises:
        ConfigurationError: one lacks what every record has; says which and what.
    """
    return _read(given)[0]


def _read(given: object) -> tuple[tuple[Record, ...], bool]:
    try:
        body = msgspec.json.encode(given)
        return _RECORDS.decode(body), is_marked(body)
    except msgspec.MsgspecError as error:
        raise ConfigurationError(f"the event's records cannot be read: {error}") from None


def _sources(given: list[Any] | tuple[Any, ...]) -> Iterator[str]:
    for record in given:
        if not isinstance(record, Mapping):
            yield f"something else (its records are of type {type(record).__name__})"
        else:
            yield str(record.get("eventSource", record.get("EventSource")))  # SNS writes it so


def _stream_of(event: Mapping[str, Any], given: list[Any] | tuple[Any, ...]) -> str | None:
    arns = (record.get("eventSourceARN") for record in given)
    found: str | None = next((arn for arn in arns if arn), event.get("eventSourceARN"))
    return found
