"""Changes for tests that call a handler as a plain function.

assert shipped(modified(old, new)) == Put(Notice(order_id="7"))
"""

from datetime import UTC, datetime
from typing import Any, TypeVar

from streamkit.changes import Expired, Inserted, ItemKey, Modified, Removed
from streamkit.entity import Entity

E = TypeVar("E", bound=Entity)


def inserted(new: E) -> Inserted[E]:
    """Make the change of an item that was created."""
    return Inserted(old=None, new=new, **_envelope(new))


def modified(old: E, new: E) -> Modified[E]:
    """Make the change of an item that changed."""
    return Modified(old=old, new=new, **_envelope(new))


def removed(old: E) -> Removed[E]:
    """Make the change of an item that a request deleted."""
    return Removed(old=old, new=None, **_envelope(old))


def expired(old: E) -> Expired[E]:
    """Make the change of an item whose time to live had passed."""
    return Expired(old=old, new=None, **_envelope(old))


def _envelope(item: Entity) -> dict[str, Any]:
    key = item.item_key
    return {
        "key": ItemKey(key.pk, key.sk),
        "event_id": "0" * 32,
        "sequence_number": "1".zfill(40),
        "shard_id": "shardId-00000000000000000000-00000000",
        "created_at": datetime(2027, 1, 15, tzinfo=UTC),
    }
