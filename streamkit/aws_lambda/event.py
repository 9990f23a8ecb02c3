"""Events: what a DynamoDB event source mapping sends, as records.

Lambda's JSON is that of `GetRecords` with two differences: `userIdentity` has members in lower
case, and each record says the ARN of its stream, which `GetRecords` does not. Images stay bytes.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from streamkit.decode import Record
from streamkit.errors import ConfigurationError

_RECORDS = msgspec.json.Decoder(list[Record])


def read_records(event: Mapping[str, Any]) -> list[Record]:
    """Return the records of an event, in order.

    Raises:
        ConfigurationError: it is no event of a DynamoDB stream; says what it is of.
    """
    given = event.get("Records")
    if not isinstance(given, Sequence):
        raise ConfigurationError(
            "the event has no Records: this function is for an event source mapping of a DynamoDB"
            " stream"
        )
    sources = {str(record.get("eventSource")) for record in given} - {"aws:dynamodb", "None"}
    if sources:
        raise ConfigurationError(
            f"the event is of {', '.join(sorted(sources))}, and not of a DynamoDB stream"
        )
    try:
        return _RECORDS.decode(msgspec.json.encode(given))
    except msgspec.MsgspecError as error:
        raise ConfigurationError(f"the event's records cannot be read: {error}") from None


def stream_of(event: Mapping[str, Any]) -> str | None:
    """Return the ARN of the stream that an event is of, if it has any records."""
    for record in event.get("Records", ()):
        arn: str | None = record.get("eventSourceARN")
        return arn
    return None
