"""One change of one item, as its stream remembers it.

A record keeps references to the images, which nobody changes, and builds its wire form when it is
first read: a write pays next to nothing for its stream, and a page of records that was read once
costs a join of bytes. What the view type leaves out is not kept.
"""

from typing import Any

import msgspec

from streamkit.local.values import AttributeValue, Item, item_size

_encode = msgspec.json.Encoder().encode

OLD_IMAGE_VIEWS = frozenset({"OLD_IMAGE", "NEW_AND_OLD_IMAGES"})
NEW_IMAGE_VIEWS = frozenset({"NEW_IMAGE", "NEW_AND_OLD_IMAGES"})


class Record:
    """A stream record.

    Args:
        event_id: 128 bits that name the event wherever it is read.
        sequence: its sequence number; grows within a shard and from a shard to its children.
        created: the time of the change; readers see whole seconds of it.
        view: the stream's view type; images it does not show are dropped at once.
        identity: who did it, when that was not a user: TTL's service principal.
    """

    __slots__ = (
        "_encoded",
        "_size",
        "created",
        "event_id",
        "identity",
        "keys",
        "name",
        "new",
        "old",
        "region",
        "sequence",
        "view",
    )

    def __init__(  # one argument for each thing a record tells
        self,
        event_id: int,
        sequence: int,
        created: float,
        keys: Item,
        old: Item | None,
        new: Item | None,
        *,
        view: str,
        region: str,
        identity: dict[str, Any] | None = None,
    ) -> None:
        self.event_id = event_id
        self.sequence = sequence
        self.created = created
        self.keys = keys
        self.name = "REMOVE" if new is None else "INSERT" if old is None else "MODIFY"
        self.old = old if view in OLD_IMAGE_VIEWS else None
        self.new = new if view in NEW_IMAGE_VIEWS else None
        self.view = view
        self.region = region
        self.identity = identity
        self._size: int | None = None
        self._encoded: bytes | None = None

    @property
    def size(self) -> int:
        """`SizeBytes`: the keys and the images shown, by DynamoDB's sizing rules."""
        if self._size is None:
            self._size = item_size(self.keys) + sum(
                item_size(image) for image in (self.new, self.old) if image is not None
            )
        return self._size

    def wire(self) -> dict[str, Any]:
        """The record as `GetRecords` returns it; the images are shared, not copied."""
        change: dict[str, AttributeValue | int | str] = {
            "ApproximateCreationDateTime": int(self.created),
            "Keys": self.keys,
        }
        if self.new is not None:
            change["NewImage"] = self.new
        if self.old is not None:
            change["OldImage"] = self.old
        change["SequenceNumber"] = str(self.sequence)
        change["SizeBytes"] = self.size
        change["StreamViewType"] = self.view
        event: dict[str, Any] = {
            "eventID": f"{self.event_id:032x}",
            "eventName": self.name,
            "eventVersion": "1.1",
            "eventSource": "aws:dynamodb",
            "awsRegion": self.region,
            "dynamodb": change,
        }
        if self.identity is not None:
            event["userIdentity"] = self.identity
        return event

    def encoded(self) -> bytes:
        """The record's JSON, made once."""
        if self._encoded is None:
            self._encoded = _encode(self.wire())
        return self._encoded
