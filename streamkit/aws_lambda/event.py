"""Read what a DynamoDB event source mapping sends, as records.

Lambda's JSON is that of `GetRecords` with two differences: `userIdentity` has members in lower
case, and each record contains the ARN of its stream. A mapping with tumbling windows adds the
shard's id and a state, which has to be in the response. Images stay bytes.

A record that cannot be read has a `flaw`; the other records are read as usual.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from streamkit.errors import ConfigurationError
from streamkit.stream.decode import Record, are_sound, is_marked, read_record

_RECORDS = msgspec.json.Decoder(tuple[Record, ...])
_SOURCE = "aws:dynamodb"
_Given = list[Any] | tuple[Any, ...]


class LambdaEvent(msgspec.Struct, frozen=True):
    """One event: its records in order, and the ARN of their stream, if the event contains it.

    Unless it is `marked`, no item in it names the handler that wrote it, or says that it is a copy.
    `shard` and `state` are set with tumbling windows only, else None.
    """

    records: tuple[Record, ...]
    marked: bool
    stream: str | None = None
    shard: str | None = None
    state: Mapping[str, Any] | None = None


def read_event(event: Mapping[str, Any]) -> LambdaEvent:
    """Read an event; one that closes a window may have no records.

    Raises:
        ConfigurationError: it is no event of a DynamoDB stream; it names the source, or what is
            missing.
    """
    if isinstance(event, list):
        raise ConfigurationError(
            "the event is a list, as EventBridge Pipes sends it: a pipe takes other answers than a"
            " mapping, so use an event source mapping of the stream"
        )
    given = event.get("Records") if isinstance(event, Mapping) else None
    if not isinstance(given, list | tuple):
        raise ConfigurationError(
            "the event has no Records: this function is for an event source mapping of a DynamoDB"
            " stream"
        )
    foreign = list(_foreign(given))
    if given and all(foreign):
        raise ConfigurationError(
            f"the event is of {', '.join(sorted(set(foreign)))}, and not of a DynamoDB stream"
        )
    windowed = "window" in event
    records, marked = _read(given, foreign)
    return LambdaEvent(
        records,
        marked,
        _stream_of(event, given),
        event.get("shardId") if windowed else None,
        (event.get("state") or {}) if windowed else None,
    )


def read_records(given: object) -> tuple[Record, ...]:
    """Read records in Lambda's JSON.

    Raises:
        ConfigurationError: they are no list of records.
    """
    if not isinstance(given, list | tuple):
        raise ConfigurationError("the records that a mapping gave up are not a list")
    return _read(given, list(_foreign(given)))[0]


def _read(given: _Given, foreign: Sequence[str]) -> tuple[tuple[Record, ...], bool]:
    body = msgspec.json.encode(given)
    marked = is_marked(body)
    if not any(foreign):
        try:
            records = _RECORDS.decode(body)
        except msgspec.MsgspecError:
            records = ()
        if records and are_sound(records):
            return records, marked
    pieces = zip(given, foreign, strict=True)
    return tuple(
        read_record(msgspec.json.encode(piece), source and f"it is of {source}")
        for piece, source in pieces
    ), marked


def _foreign(given: _Given) -> Iterator[str]:
    """Yield for each record its source, if that is not a DynamoDB stream; else an empty text."""
    for record in given:
        if type(record) is dict and record.get("eventSource") == _SOURCE:  # nearly always
            yield ""
            continue
        if not isinstance(record, Mapping):
            yield f"something else (its records are of type {type(record).__name__})"
            continue
        source = str(record.get("eventSource", record.get("EventSource")))  # SNS writes it so
        yield "" if source in (_SOURCE, "None") else source


def _stream_of(event: Mapping[str, Any], given: _Given) -> str | None:
    """Return the ARN of the stream of all records.

    Raises:
        ConfigurationError: they are of several streams.
    """
    arns = [record.get("eventSourceARN") for record in given if isinstance(record, Mapping)]
    found = next((arn for arn in arns if arn), event.get("eventSourceARN"))
    strange = [arn for arn in arns if arn and arn != found]
    if strange or not isinstance(found, str | None):
        raise ConfigurationError(
            f"the event has records of {', '.join(map(repr, [found, *strange][:2]))}: a function"
            " takes those of one stream, as its mapping sends them"
        )
    return found
