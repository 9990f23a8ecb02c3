"""Records: one change of one item, as its stream keeps it.

A new record keeps references to the images, which are never changed, so that the stream costs a
write next to nothing. Records of full chunks are packed: images become the JSON that readers get,
which takes a fraction of the memory. Images that the view type leaves out are not kept.
"""

from dataclasses import dataclass
from typing import Any

import msgspec

from streamkit.local.values import AttributeValue, Item, item_size

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode

OLD_IMAGE_VIEWS = frozenset({"OLD_IMAGE", "NEW_AND_OLD_IMAGES"})
NEW_IMAGE_VIEWS = frozenset({"NEW_IMAGE", "NEW_AND_OLD_IMAGES"})

# Larger images are not packed: they stay shared with the table and with the item's next record.
_PACKED_BYTES = 8192


@dataclass(frozen=True, slots=True)
class Source:
    """The facts that the records of one stream have in common.

    Attributes:
        view: the view type.
        region: the table's Region.
        keys: the names of the table's key attributes.
    """

    view: str
    region: str
    keys: tuple[str, ...] = ()


class EngineRecord:
    """A stream record.

    Args:
        event_id: 128 bits that identify the event for every reader.
        sequence: its sequence number; grows within a shard and from a shard to its children.
        created: the time of the change; readers see whole seconds.
        keys: the item's key.
        images: the item before the change, if there was one, and after it, if there is one.
        source: the facts in common with the stream's other records.
        identity: the service that made the change, if no user did: TTL's service principal.
        sizes: the sizes of the images, if they are known.
    """

    __slots__ = (
        "_images",
        "_keys",
        "_size",
        "_wire",
        "created",
        "event_id",
        "identity",
        "name",
        "sequence",
        "source",
    )

    def __init__(
        self,
        event_id: int,
        sequence: int,
        created: float,
        keys: Item,
        images: tuple[Item | None, Item | None],
        *,
        source: Source,
        identity: dict[str, Any] | None = None,
        sizes: tuple[int, int] | None = None,
    ) -> None:
        old, new = images
        self.event_id = event_id
        self.sequence = sequence
        self.created = created
        self.name = "REMOVE" if new is None else "INSERT" if old is None else "MODIFY"
        self.source = source
        self.identity = identity
        shown_new = new if source.view in NEW_IMAGE_VIEWS else None
        shown_old = old if source.view in OLD_IMAGE_VIEWS else None
        self._images: tuple[Item | None, Item | None] | bytes = (shown_new, shown_old)
        # An image contains the key.
        self._keys = keys if shown_new is None and shown_old is None else None
        self._wire: dict[str, Any] | None = None
        self._size: int | None = None
        if sizes is not None:
            self._size = item_size(keys)
            self._size += sizes[0] if shown_old is not None else 0
            self._size += sizes[1] if shown_new is not None else 0

    @property
    def size(self) -> int:
        """Return `SizeBytes`: the keys and the images shown, by DynamoDB's sizing rules."""
        if self._size is None:
            parts = self.images()
            self._size = sum(item_size(part) for part in parts if part is not None)
        return self._size

    def pack(self) -> None:
        """Keep the images as JSON, if they are small enough."""
        if not isinstance(self._images, bytes) and self.size <= _PACKED_BYTES:
            self._images = self._change()
            self._keys = self._wire = None

    def wire(self) -> dict[str, Any]:
        """Return the record as `GetRecords` returns it; it is kept until its images are packed."""
        if isinstance(self._images, bytes):
            return self._as_read()
        if self._wire is None:
            self._wire = self._as_read()
        return self._wire

    def _as_read(self) -> dict[str, Any]:
        keys, new, old = self.images()
        change: dict[str, AttributeValue | int | str] = {
            "ApproximateCreationDateTime": int(self.created),
            "Keys": keys,
        }
        if new is not None:
            change["NewImage"] = new
        if old is not None:
            change["OldImage"] = old
        change["SequenceNumber"] = str(self.sequence)
        change["SizeBytes"] = self.size
        change["StreamViewType"] = self.source.view
        event: dict[str, Any] = {
            "eventID": f"{self.event_id:032x}",
            "eventName": self.name,
            "eventVersion": "1.1",
            "eventSource": "aws:dynamodb",
            "awsRegion": self.source.region,
            "dynamodb": change,
        }
        if self.identity is not None:
            event["userIdentity"] = self.identity
        return event

    def encoded(self) -> bytes:
        """Return the record's JSON; what is read once is read again, by another reader."""
        self.pack()
        images = self._images
        change = images if type(images) is bytes else self._change()
        end = b"}" if self.identity is None else b',"userIdentity":%b}' % _encode(self.identity)
        return _RECORD % (
            self.event_id,
            self.name.encode(),
            self.source.region.encode(),
            int(self.created),
            change,
            self.sequence,
            self.size,
            self.source.view.encode(),
            end,
        )

    def images(self) -> tuple[Item, Item | None, Item | None]:
        """Return the key, and the new and the old image as far as they are shown."""
        images = self._images
        if isinstance(images, bytes):
            change: dict[str, Item] = _decode(b"{%b}" % images)
            return change["Keys"], change.get("NewImage"), change.get("OldImage")
        new, old = images
        keys = self._keys
        if keys is None:
            image: Item = new or old or {}
            keys = {name: image[name] for name in self.source.keys}
        return keys, new, old

    def _change(self) -> bytes:
        """Return the members of `dynamodb` that hold attributes, as JSON."""
        keys, new, old = self.images()
        parts = [b'"Keys":%b' % _encode(keys)]
        if new is not None:
            parts.append(b'"NewImage":%b' % _encode(new))
        if old is not None:
            parts.append(b'"OldImage":%b' % _encode(old))
        return b",".join(parts)


_RECORD = (
    b'{"eventID":"%032x","eventName":"%b","eventVersion":"1.1","eventSource":"aws:dynamodb",'
    b'"awsRegion":"%b","dynamodb":{"ApproximateCreationDateTime":%d,%b,"SequenceNumber":"%d",'
    b'"SizeBytes":%d,"StreamViewType":"%b"}%b'
)
