"""The envelope of a `GetRecords` reply: everything around the images, which stay bytes.

A page is read in one pass; an image costs nothing until a handler wants it. Unknown members are
ignored, and optional ones may be missing, so that a newer event version does not stop a shard. A
record that cannot be read has a `flaw`, and is set aside. The fields have DynamoDB's names; the
properties of `Record` have streamkit's.
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


# The fields are in the order in which DynamoDB sends them: msgspec reads that order fastest.
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
    """One record of a stream; its images are JSON that is not decoded yet, and borrow the page.

    A `flaw` says why a record cannot be read. Such a record belongs to no item; its new image is
    the whole record, as it came.
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
        """Read a record that `to_bytes` wrote.

        Raises:
            ValueError: it is not a record.
        """
        return msgspec.json.decode(body, type=cls)

    def to_bytes(self) -> bytes:
        """Return the record as JSON, with its images as they came: a parked change stores it."""
        return msgspec.json.encode(self)

    def counting(self) -> Self | None:
        """Return the record as handlers see it, without a migration's copies.

        None if only a copy changed.
        """
        old, new = counting(self.old_image), counting(self.new_image)
        if old is self.old_image and new is self.new_image:
            return self
        if old is None and new is None:
            return None
        return self.between(old, new)

    def between(self, old: Raw | None, new: Raw | None) -> Self:
        """Return the record as that of a change from one image to the other; None for no item."""
        inner = msgspec.structs.replace(
            self.dynamodb, new_image=new or _ABSENT, old_image=old or _ABSENT
        )
        name = "INSERT" if old is None else "REMOVE" if new is None else "MODIFY"
        return msgspec.structs.replace(self, dynamodb=inner, event_name=name)

    @property
    def keys(self) -> dict[str, dict[str, str]]:
        """Return the key attributes in wire form; the router puts the partition key first."""
        return self.dynamodb.keys

    @property
    def new_image(self) -> Raw | None:
        """Return the item after the change, if it exists and the stream's view has it."""
        image = self.dynamodb.new_image
        return image if len(image) else None

    @property
    def old_image(self) -> Raw | None:
        """Return the item before the change, if it existed and the stream's view has it."""
        image = self.dynamodb.old_image
        return image if len(image) else None

    @property
    def sequence_number(self) -> str:
        """Return the sequence number as it was sent: `AFTER_SEQUENCE_NUMBER` takes this form."""
        return self.dynamodb.sequence_number

    @property
    def position(self) -> str:
        """Return the padded sequence number, so that positions of a shard compare as text."""
        return self.dynamodb.sequence_number.zfill(POSITION_DIGITS)

    @property
    def created_at(self) -> float:
        """Return the seconds since 1970; DynamoDB rounds down to the second."""
        moment = self.dynamodb.created_at
        return moment if isinstance(moment, float) else _seconds(moment)

    @property
    def size_bytes(self) -> int:
        """Return the size of keys and images as DynamoDB counts it."""
        return self.dynamodb.size_bytes

    @property
    def view_type(self) -> str:
        """Return which images the stream carries, such as `NEW_AND_OLD_IMAGES`."""
        return self.dynamodb.view_type

    @property
    def kind(self) -> Kind:
        """Return what happened; only a removal by the TTL service is an expiry.

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
        """Return the item's key, of a routed record: the router knows which attribute is pk."""
        keys = self.dynamodb.keys.values()
        try:
            return ItemKey(*[key["S"] for key in keys])
        except KeyError:  # a number or bytes
            return ItemKey(*map(key_value, keys))

    def key_of(self, pk: str) -> ItemKey:
        """Return the item's key, also of a record that was not routed; `pk` names its attribute."""
        keys = sorted(self.dynamodb.keys, key=lambda name: name != pk)
        return ItemKey(*(key_value(self.dynamodb.keys[name]) for name in keys))

    def _is_expiry(self, identity: dict[str, Any]) -> bool:
        # The API spells the members with capitals, Lambda without.
        service = identity.get("Type", identity.get("type"))
        principal = identity.get("PrincipalId", identity.get("principalId"))
        return self.event_name == "REMOVE" and service == "Service" and principal == _TTL_SERVICE


class Page(Struct, frozen=True):
    """One `GetRecords` reply; without a next iterator the shard is read to its end.

    `read_at` is when it was read, in epoch seconds; 0 means just now. `marked` is false if no
    item in it carries an origin or is a copy. `flawed` says that a record cannot be read.
    """

    records: tuple[Record, ...] = msgspec.field(name="Records", default=())
    next_iterator: str | None = msgspec.field(name="NextShardIterator", default=None)
    size: int = 0
    read_at: float = 0.0
    marked: bool = True
    flawed: bool = False


def _seconds(moment: str | float) -> float:
    if not isinstance(moment, str) or moment[:10].isdigit():  # a text may hold epoch seconds
        return float(moment)
    parsed = datetime.fromisoformat(moment)
    return (parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)).timestamp()


def key_value(attribute: dict[str, str]) -> KeyValue:
    """Return the value of a key attribute.

    Raises:
        ValueError: it is not a key's value.
    """
    ((kind, text),) = attribute.items()
    if kind == "S":
        return text
    return decode_number(text) if kind == "N" else b64decode(text, validate=True)
