"""The envelope of a `GetRecords` reply: everything around the images, which stay bytes.

A page is read in one pass; an image costs nothing until somebody wants it. Members that are not
known are ignored, and optional ones may be missing, so that a newer event version does not stop
a shard. A record that cannot be read is a record with a `flaw`, for whoever sets it aside. The
fields are DynamoDB's, the properties of `Record` say them in streamkit's words.
"""

from base64 import b64decode
from datetime import UTC, datetime
from typing import Annotated, Any, Literal, Self

import msgspec
from msgspec import Meta, Raw, Struct

from streamkit.changes import ItemKey, KeyValue, Kind
from streamkit.errors import InvariantError
from streamkit.model.codec import decode_number
from streamkit.model.copies import counting

POSITION_DIGITS = 40
"""Sequence numbers have 21 to 40 digits; padded, they sort as text."""

_TTL_SERVICE = "dynamodb.amazonaws.com"
_KINDS = {"INSERT": Kind.INSERTED, "MODIFY": Kind.MODIFIED, "REMOVE": Kind.REMOVED}
_ABSENT = Raw()


# The fields stand in the order in which DynamoDB sends them, which is what msgspec expects next.
class StreamRecord(Struct, gc=False, frozen=True, omit_defaults=True, kw_only=True):
    """The `dynamodb` member of a record, under DynamoDB's names."""

    created_at: float | str = msgspec.field(name="ApproximateCreationDateTime", default=0.0)
    keys: Annotated[dict[str, dict[str, str]], Meta(min_length=1)] = msgspec.field(name="Keys")
    new_image: Raw = msgspec.field(name="NewImage", default=_ABSENT)
    old_image: Raw = msgspec.field(name="OldImage", default=_ABSENT)
    sequence_number: str = msgspec.field(name="SequenceNumber")
    size_bytes: int = msgspec.field(name="SizeBytes", default=0)
    view_type: str = msgspec.field(name="StreamViewType", default="")


class Record(Struct, gc=False, frozen=True, omit_defaults=True, kw_only=True):
    """One record of a stream. Its images are JSON, still to be decoded, and borrow the page.

    One with a `flaw`, which says why it cannot be read, is of no item; its new image is all of it,
    as it came.
    """

    dynamodb: StreamRecord
    event_id: str = msgspec.field(name="eventID", default="")
    event_name: Literal["INSERT", "MODIFY", "REMOVE", "UNREADABLE"] = msgspec.field(
        name="eventName"
    )
    user_identity: dict[str, Any] | None = msgspec.field(name="userIdentity", default=None)
    flaw: str = msgspec.field(name="_sk_flaw", default="")

    @classmethod
    def from_bytes(cls, body: bytes) -> Self:
        """Read what `to_bytes` wrote.

        Raises:
            ValueError: it is not a record.
        """
        return msgspec.json.decode(body, type=cls)

    def to_bytes(self) -> bytes:
        """The record as JSON, with its images as they came: what is stored when it is parked."""
        return msgspec.json.encode(self)

    def counting(self) -> Self | None:
        """The record as handlers see it, to whom a migration's copies are not there.

        None if it is of a copy alone.
        """
        old, new = counting(self.old_image), counting(self.new_image)
        if old is self.old_image and new is self.new_image:
            return self
        if old is None and new is None:
            return None
        inner = msgspec.structs.replace(
            self.dynamodb, new_image=new or _ABSENT, old_image=old or _ABSENT
        )
        name = "INSERT" if old is None else "REMOVE" if new is None else "MODIFY"
        return msgspec.structs.replace(self, dynamodb=inner, event_name=name)

    @property
    def keys(self) -> dict[str, dict[str, str]]:
        """The key attributes, as attribute values of the wire; the router puts the pk first."""
        return self.dynamodb.keys

    @property
    def new_image(self) -> Raw | None:
        """The item after the change, if it is there and the stream's view has it."""
        image = self.dynamodb.new_image
        return image if len(image) else None

    @property
    def old_image(self) -> Raw | None:
        """The item before the change, if it was there and the stream's view has it."""
        image = self.dynamodb.old_image
        return image if len(image) else None

    @property
    def sequence_number(self) -> str:
        """As it was sent: what `AFTER_SEQUENCE_NUMBER` takes."""
        return self.dynamodb.sequence_number

    @property
    def position(self) -> str:
        """The sequence number padded, so that positions of a shard compare as text."""
        return self.dynamodb.sequence_number.zfill(POSITION_DIGITS)

    @property
    def created_at(self) -> float:
        """Seconds since 1970; DynamoDB rounds down to the second."""
        moment = self.dynamodb.created_at
        return moment if isinstance(moment, float) else _seconds(moment)

    @property
    def size_bytes(self) -> int:
        """The size of keys and images as DynamoDB counts it."""
        return self.dynamodb.size_bytes

    @property
    def view_type(self) -> str:
        """Which images the stream carries, such as `NEW_AND_OLD_IMAGES`."""
        return self.dynamodb.view_type

    @property
    def kind(self) -> Kind:
        """What happened; a removal by the TTL service, and by nothing else, is an expiry.

        Raises:
            InvariantError: the record cannot be read.
        """
        if self.user_identity is not None and self._is_expiry(self.user_identity):
            return Kind.EXPIRED
        try:
            return _KINDS[self.event_name]
        except KeyError:
            raise InvariantError(f"unknown kind of event {self.event_name!r}") from None

    @property
    def item_key(self) -> ItemKey:
        """The item's key. Only of a routed record: the router knows which attribute is the pk."""
        return ItemKey(*map(key_value, self.dynamodb.keys.values()))

    def _is_expiry(self, identity: dict[str, Any]) -> bool:
        # The API spells the members with capitals, Lambda without.
        service = identity.get("Type", identity.get("type"))
        principal = identity.get("PrincipalId", identity.get("principalId"))
        return self.event_name == "REMOVE" and service == "Service" and principal == _TTL_SERVICE


class Page(Struct, frozen=True):
    """One `GetRecords` reply. No next iterator means that the shard is read to its end.

    `read_at` is when it was read, in epoch seconds; 0 for a moment ago. Unless it is `marked`, no
    item in it says who wrote it, or that it is a copy. It is `flawed` if a record cannot be read.
    """

    records: tuple[Record, ...] = msgspec.field(name="Records", default=())
    next_iterator: str | None = msgspec.field(name="NextShardIterator", default=None)
    size: int = 0
    read_at: float = 0.0
    marked: bool = True
    flawed: bool = False


def _seconds(moment: str | float) -> float:
    if not isinstance(moment, str) or moment[:10].isdigit():  # text may be epoch seconds, too
        return float(moment)
    parsed = datetime.fromisoformat(moment)
    return (parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)).timestamp()


def key_value(attribute: dict[str, str]) -> KeyValue:
    """Return the value of a key attribute.

    Raises:
        ValueError: it is no value of such an attribute.
    """
    ((kind, text),) = attribute.items()
    if kind == "S":
        return text
    return decode_number(text) if kind == "N" else b64decode(text, validate=True)
