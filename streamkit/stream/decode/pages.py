"""Pages: records from `GetRecords` and Lambda, even if some of them cannot be read.

In: a reply's body, or records in JSON. Out: records in their order. All are read in one pass. If
that fails, or the result makes no sense, they are read one by one; a record that cannot be read
then has a `flaw`, which says why. On failure: `RetryableError`, if nothing can be read at all.
"""

from collections.abc import Iterable, Sequence

import msgspec
from msgspec import Raw, Struct

from streamkit.errors import RetryableError
from streamkit.model.copies import COPY
from streamkit.model.origin import ORIGIN
from streamkit.progress.actions import CONTROL_PREFIX
from streamkit.stream.decode.envelope import POSITION_DIGITS, Page, Record, StreamRecord, key_value

_MARKS = (f'"{COPY}"'.encode(), f'"{ORIGIN}"'.encode())
_BEGINNING = b'"_sk_'
_PAGE = msgspec.json.Decoder(Page)
_RECORD = msgspec.json.Decoder(Record)
_EVER = 1e15
_NOWHERE = {"": {"S": ""}}
"""The keys of a record that cannot be read: no attribute of a table has this name."""


class _Pieces(Struct):
    """A `GetRecords` reply whose records are still to be read one by one."""

    records: tuple[Raw, ...] = msgspec.field(name="Records", default=())
    next_iterator: str | None = msgspec.field(name="NextShardIterator", default=None)


_PIECES = msgspec.json.Decoder(_Pieces)


def parse_page(body: bytes) -> Page:
    """Read the body of a successful `GetRecords` reply.

    Raises:
        RetryableError: the body is not such a reply, because it was cut off, for example; or none
            of its records has its place in the shard.
    """
    try:
        page = _PAGE.decode(body)
        flawed = not are_sound(page.records)
    except msgspec.MsgspecError:
        flawed = True
    if flawed:
        return _parse_by_pieces(body)
    return Page(page.records, page.next_iterator, len(body), marked=is_marked(body))


def _parse_by_pieces(body: bytes) -> Page:
    try:
        pieces = _PIECES.decode(body)
    except msgspec.MsgspecError as error:
        raise RetryableError(f"a GetRecords reply cannot be read: {error}") from None
    records = _with_places([read_record(piece) for piece in pieces.records])
    if not all(record.sequence_number for record in records):
        raise RetryableError("a GetRecords reply cannot be read: no record has a SequenceNumber")
    marked = is_marked(body)
    flawed = any(record.flaw for record in records)
    return Page(records, pieces.next_iterator, len(body), marked=marked, flawed=flawed)


def _with_places(records: Sequence[Record]) -> tuple[Record, ...]:
    """Give a record without a number or time those of the record before it, or after it."""
    number = next((r.sequence_number for r in records if r.sequence_number), "")
    moment = next((r.created_at for r in records if r.created_at), 0.0)
    placed = []
    for record in records:
        number = record.sequence_number or number
        moment = record.created_at or moment
        inner = record.dynamodb
        if record.event_name == "UNREADABLE":
            inner = msgspec.structs.replace(inner, sequence_number=number, created_at=moment)
        placed.append(msgspec.structs.replace(record, dynamodb=inner))
    return tuple(placed)


def are_sound(records: Iterable[Record]) -> bool:
    """Return whether all that is used of some records, except their images, can be read."""
    for record in records:
        inner = record.dynamodb
        number, moment = inner.sequence_number, inner.created_at
        plain = number.isdecimal() and len(number) <= POSITION_DIGITS
        plain = plain and isinstance(moment, float) and 0 <= moment < _EVER
        for attribute in inner.keys.values():
            plain = plain and "S" in attribute and len(attribute) == 1
        if not plain and _flaw_of(record):
            return False
    return True


def read_record(piece: bytes | Raw, flaw: str = "") -> Record:
    """Read one record; if it cannot be read, or a `flaw` is given, the record has a flaw.

    A record of an item that streamkit itself wrote gets no flaw: it is of no further interest.
    """
    try:
        record = _RECORD.decode(piece)
        flaw = flaw or _flaw_of(record)
    except msgspec.MsgspecError as error:
        flaw = flaw or str(error)
    return _unreadable(Raw(bytes(piece)), flaw) if flaw else record


def _flaw_of(record: Record) -> str:
    """Return why a record that its types accept cannot be read; empty if it can."""
    if not _is_number(record.sequence_number):
        return "its SequenceNumber is not a number"
    try:
        sound = 0 <= record.created_at < _EVER
    except ValueError:
        sound = False
    if not sound:
        return "its ApproximateCreationDateTime is no time"
    try:
        sound = all(_is_key(attribute) for attribute in record.keys.values())
    except (ValueError, ArithmeticError):
        sound = False
    return "" if sound else "its Keys have a value that is no S, N or B"


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= POSITION_DIGITS


def _is_key(attribute: dict[str, str]) -> bool:
    return attribute.keys() in ({"S"}, {"N"}, {"B"}) and key_value(attribute) is not None


def _unreadable(piece: Raw, flaw: str) -> Record:
    """Return a record that cannot be read, with the parts that can."""
    given = msgspec.json.decode(piece)
    inner = given.get("dynamodb") if isinstance(given, dict) else None
    inner = inner if isinstance(inner, dict) else {}
    number, moment = inner.get("SequenceNumber"), inner.get("ApproximateCreationDateTime")
    if not isinstance(number, str) or not _is_number(number):
        number = ""
    if not isinstance(moment, int | float) or not 0 <= moment < _EVER:
        moment = 0.0
    own = _own_keys(inner.get("Keys"))
    return Record(
        dynamodb=StreamRecord(
            keys=own or _NOWHERE.copy(),
            sequence_number=number,
            created_at=float(moment),
            new_image=piece,
        ),
        event_name="UNREADABLE",
        # streamkit's own writes must not lead to more writes, even if they cannot be read.
        flaw="" if own else flaw,
    )


def _own_keys(keys: object) -> dict[str, dict[str, str]]:
    """Return the keys of a record that are text, if its item is one of streamkit's own."""
    items = keys.items() if isinstance(keys, dict) else ()
    texts = {name: value.get("S") for name, value in items if isinstance(value, dict)}
    found = {name: {"S": text} for name, text in texts.items() if isinstance(text, str)}
    return found if any(t["S"].startswith(CONTROL_PREFIX) for t in found.values()) else {}


def is_marked(body: bytes) -> bool:
    """Return whether an item in some records may carry an origin, or be a copy."""
    # One search instead of two: nearly always, no attribute has a name that begins so.
    return _BEGINNING in body and any(mark in body for mark in _MARKS)
