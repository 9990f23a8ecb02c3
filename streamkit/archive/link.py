"""Links: one object of a shard's chain, and the bytes it is stored as. Pure.

A link says what was read of a shard after one position up to another. It is a gzip file of two
members: an empty one whose extra field holds the link's description, and the records, one in each
line, in DynamoDB's JSON. So `zcat`, DuckDB and Athena read the records, and a reader knows from
the first bytes what the object holds. (DuckDB refuses the comment field of gzip, and reads the
extra field.)

    data    records, and how far they were read; there may be none
    hole    records that were trimmed before they were copied: these are lost
    end     the last link of a shard; it may have records
"""

import hashlib
import struct
import zlib
from collections.abc import Iterator, Sequence
from typing import Any, Literal, Self

import msgspec
from msgspec import Struct

from streamkit.errors import StreamkitError
from streamkit.progress.control import START
from streamkit.stream.decode import Page, Record, is_marked
from streamkit.stream.decode.envelope import POSITION_DIGITS

FORMAT = 1
ORIGIN = "0" * POSITION_DIGITS
"""The position before the first record of a shard."""
BEYOND = "9" * POSITION_DIGITS
"""The position after the last record of a shard that cannot be read any more."""

LinkKind = Literal["data", "hole", "end"]

_MEMBER = b"\x1f\x8b\x08\x04\0\0\0\0\0\xff"
"""A gzip header with an extra field, without a time."""
_EMPTY = b"\x03\0" + bytes(8)
"""An empty deflate block, and the checksum and length of nothing."""
_FIELD = b"SK"
_LEVEL = 6
"""The level of compression: one megabyte takes about 30 ms."""
_PIECE_BYTES = 64_000
"""How many compressed bytes are read at a time."""
_PAGE_BYTES = 128_000
"""How many bytes of records become a page, about: memory does not grow with the object, and pages
of megabytes take twice as long, because they leave the processor's cache."""


class DamagedLink(StreamkitError):
    """An object of an archive is not what was stored; its records are never applied."""


class Link(Struct, frozen=True, kw_only=True):
    """What one object says of itself; positions as in a cursor, times in epoch seconds.

    `after` and `last` bound what was read, records of streamkit's own included. `count` is the
    number of records in the object, `first` and `until` say when the first and last were created.
    `sha256` is of all other fields and of the records as they are stored.
    """

    stream: str
    shard: str
    after: str
    last: str
    kind: LinkKind = "data"
    count: int = 0
    first: float = 0.0
    until: float = 0.0
    reason: str = ""
    format: int = FORMAT
    sha256: str = ""

    def sealed(self, body: bytes) -> tuple[Self, bytes]:
        """Return the link with its hash, and the object: the description, then the records."""
        link = msgspec.structs.replace(self, sha256=_hash_of(self, body))
        return link, link.header + body

    @property
    def header(self) -> bytes:
        """Return the description as it is stored before the records."""
        text = msgspec.json.encode(self)
        field = _FIELD + struct.pack("<H", len(text)) + text
        return b"".join((_MEMBER, struct.pack("<H", len(field)), field, _EMPTY))

    @classmethod
    def opened(cls, name: str, stored: bytes) -> tuple["Link", bytes]:
        """Read an object and check its hash; return the link and its records, compressed.

        Raises:
            DamagedLink: it is not what was stored.
        """
        link, begin = cls._head(name, stored)
        body = stored[begin:]
        if link.format > FORMAT:  # its hash is also of fields that are not known here
            raise DamagedLink(f"object {name} is of a newer format, {link.format}: upgrade")
        if _hash_of(link, body) != link.sha256 or not stored.startswith(link.header):
            raise DamagedLink(f"object {name} is damaged: its content does not have its hash")
        return link, body

    @classmethod
    def _head(cls, name: str, stored: bytes) -> tuple["Link", int]:
        fixed = len(_MEMBER) + 2 + len(_FIELD) + 2
        (size,) = struct.unpack("<H", stored[fixed - 2 : fixed].ljust(2, b"\0"))
        begin, end = fixed, fixed + size
        try:
            link = msgspec.json.decode(stored[begin:end], type=cls)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            raise DamagedLink(f"object {name} is damaged: it cannot be read") from None
        return link, end + len(_EMPTY)


def _hash_of(link: Link, body: bytes) -> str:
    """Return the hash of a link's description, without its hash, and of its records."""
    digest = hashlib.sha256(msgspec.json.encode(msgspec.structs.replace(link, sha256="")))
    digest.update(body)
    return digest.hexdigest()


def records_of(body: bytes, name: str = "of an archive") -> Iterator[Page]:
    """Read the records of a link, as pages that follow each other; `name` is the object's.

    Raises:
        DamagedLink: the records cannot be read although the hash is right.
    """
    decode, rest = msgspec.json.Decoder(Record).decode_lines, b""
    try:
        for piece in _unpacked(body):
            whole = piece.rfind(b"\n") + 1
            text = b"".join((rest if whole else b"", memoryview(piece)[:whole]))  # copied once
            rest = piece[whole:] if whole else rest + piece
            records = tuple(decode(text))
            if records:
                flawed = any(record.flaw for record in records)
                yield Page(records, "", len(text), marked=is_marked(text), flawed=flawed)
    except (zlib.error, msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise DamagedLink(
            f"object {name} is whole, but its records cannot be read: {error}; what has stored it"
            " was not streamkit, or broken"
        ) from error


def _unpacked(body: bytes) -> Iterator[bytes]:
    """Yield the records' bytes, about a page at a time, however well they were compressed."""
    unpacker = zlib.decompressobj(wbits=31)
    for start in range(0, len(body), _PIECE_BYTES):
        packed = body[start : start + _PIECE_BYTES]
        while True:
            text = unpacker.decompress(packed, _PAGE_BYTES)
            yield text
            packed = unpacker.unconsumed_tail
            if not packed and len(text) < _PAGE_BYTES:
                break


class Lines:
    """The records of a link that is being made, compressed as they come."""

    def __init__(self) -> None:
        self._packer: Any = zlib.compressobj(_LEVEL, wbits=31)
        self._done: list[bytes] = []
        self.count = 0
        self.first = self.until = 0.0
        self.size = 0

    def add(self, records: Sequence[Record]) -> None:
        """Add records, the oldest first."""
        if not records:
            return
        self.first = self.first if self.count else records[0].created_at
        self.until = records[-1].created_at
        self.count += len(records)
        packed = self._packer.compress(b"".join([r.to_bytes() + b"\n" for r in records]))
        self._done.append(packed)
        self.size += len(packed)

    def body(self) -> bytes:
        """Return the compressed records; nothing can be added any more."""
        if self.count and self._packer is not None:
            self._done = [b"".join((*self._done, self._packer.flush()))]
            self._packer = None
        return b"".join(self._done)

    def behind(self, position: str) -> "Lines":
        """Return the lines of the records behind a position, to which nothing can be added."""
        rest = Lines()
        for page in records_of(self.body()):
            rest.add([record for record in page.records if record.position > position])
        return rest


def key_of(position: str) -> str:
    """Return the position under which a link that begins there is stored."""
    return ORIGIN if position == START else position
