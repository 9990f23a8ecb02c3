"""Copies: items that a migration keeps beside the ones that count, and what tells them. Pure.

While an item moves to another key there are two of it, and one is the truth. The other carries an
attribute that says so. To handlers a copy is not there: an item that becomes one is removed, and
one that stops being one is inserted, so that aggregates count each item once, whichever is read.

In: the images of a record. Out: the images as handlers see them.
"""

from typing import Final

import msgspec
from msgspec import Raw

COPY: Final = "_sk_copy"
"""Of a copy: which migration keeps it, and a hash of the key of the item that counts."""
FROM: Final = "_sk_from"
"""Of an item that was moved or made by a migration: which one, and a hash of its source's key."""
MOVED: Final = "_sk_moved"
"""Of an item whose parts are items of their own by now: which migration moved them."""
BASE: Final = "_sk_base"
"""Of an old item whose new one counts by now: a digest of it as both last agreed."""
SOURCE: Final = "_sk_source"
"""Of a new item that counts by now: the key of its old one, until that is deleted."""

_NAME = f'"{COPY}"'.encode()
_names = msgspec.json.Decoder(dict[str, Raw]).decode


def counting(image: Raw | None) -> Raw | None:
    """Return an image, or None if it is a copy's."""
    if image is None or _NAME not in bytes(image):
        return image
    return None if COPY in _names(image) else image
