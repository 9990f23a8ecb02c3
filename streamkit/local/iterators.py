"""Shard iterators: a position in a shard, valid for a quarter of an hour.

An iterator is a text that holds its whole state. So the engine keeps no list of iterators, any
number may be in use, and the same one may be used again. For clients it is opaque. It begins with
the stream's ARN, as in AWS, because newer SDKs read the account from it.
"""

from binascii import a2b_base64, b2a_base64
from typing import Any, NamedTuple
from zlib import crc32

from streamkit.local.errors import ApiError, validation
from streamkit.local.shards import EngineShard

TYPES = (
    "AFTER_SEQUENCE_NUMBER",
    "AT_SEQUENCE_NUMBER",
    "AT_TIMESTAMP",
    "LATEST",
    "TRIM_HORIZON",
)


_FOR = {
    "SequenceNumber": ("AT_SEQUENCE_NUMBER", "AFTER_SEQUENCE_NUMBER"),
    "Timestamp": ("AT_TIMESTAMP",),
}
"""The iterator types that take a parameter for the start; other types refuse the parameter."""


class ShardIterator(NamedTuple):
    """A position.

    Attributes:
        after: the next record to read is the first one above this number.
        issued: the time when it was made.
        reader: the number of its reader, given by `GetShardIterator` and kept by its successors.
    """

    arn: str
    shard_id: str
    after: int
    issued: float
    reader: int

    def __str__(self) -> str:
        body = f"{self.shard_id} {self.after:x} {self.issued!r} {self.reader:x}".encode()
        text = b2a_base64(b"%08x " % crc32(body) + body, newline=False).decode()
        return f"{self.arn}|1|{text}"

    @classmethod
    def parse(cls, text: str) -> "ShardIterator":
        """Return the iterator that a text stands for.

        Raises:
            ApiError: ValidationException, when the text was not made here or was changed.
        """
        arn, _, rest = text.partition("|")
        try:
            checksum, _, body = a2b_base64(rest.partition("|")[2]).partition(b" ")
            if int(checksum, 16) == crc32(body):
                shard_id, after, issued, reader = body.decode().split(" ")
                return cls(arn, shard_id, int(after, 16), float(issued), int(reader, 16))
        except ValueError:
            pass
        raise validation("Invalid ShardIterator")


def trimmed() -> ApiError:
    """Return the refusal of a position before the oldest record that is left."""
    return ApiError(
        "TrimmedDataAccessException",
        "The operation attempted to read past the oldest stream record in a shard.",
    )


def expired() -> ApiError:
    """Return the refusal of an iterator that is too old."""
    return ApiError(
        "ExpiredIteratorException",
        "Iterator expired: it was handed out too long ago. Get another one and go on.",
    )


def position(shard: EngineShard, payload: dict[str, Any], now: float, published: float) -> int:
    """Return the number below the first record that a `GetShardIterator` request asks for.

    Raises:
        ApiError: the request is not valid for this shard, or asks for trimmed records.
    """
    kind = payload["ShardIteratorType"]
    for name, kinds in _FOR.items():
        if payload.get(name) is not None and kind not in kinds:
            raise validation(f"{name} must not be specified for ShardIteratorType {kind}")
    if kind == "TRIM_HORIZON":
        return max(shard.start, shard.trimmed)
    if kind == "LATEST":
        return shard.newest(published)
    if kind == "AT_TIMESTAMP":
        return _at_timestamp(shard, payload.get("Timestamp"), now)
    number = _sequence_number(shard, payload.get("SequenceNumber"), kind)
    return number - 1 if kind == "AT_SEQUENCE_NUMBER" else number


def _at_timestamp(shard: EngineShard, moment: Any, now: float) -> int:
    if isinstance(moment, bool) or not isinstance(moment, (int, float)):
        raise validation("Timestamp is required for ShardIteratorType AT_TIMESTAMP")
    if moment > now:
        raise validation("Timestamp must not be in the future")
    return shard.before(moment)


def _sequence_number(shard: EngineShard, text: Any, kind: str) -> int:
    if not isinstance(text, str):
        raise validation(f"SequenceNumber is required for ShardIteratorType {kind}")
    if not (text.isascii() and text.isdigit() and 21 <= len(text) <= 40):
        raise validation(f"Invalid SequenceNumber: {text}")
    number = int(text)
    if not shard.start <= number <= shard.last:
        raise validation(f"Invalid SequenceNumber: {text} is not of shard {shard.id}")
    if number <= shard.trimmed:
        raise trimmed()
    return number
