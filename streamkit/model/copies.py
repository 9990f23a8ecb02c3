"""Copies: items that a migration keeps beside the ones that count, and their attributes. Pure.

While an item moves to another key there are two of it, and only one counts. The other carries an
attribute that says so. Handlers do not see a copy: an item that becomes one is removed, and one
that stops being one is inserted, so that aggregates count each item once, whichever is read.

In: the images of a record. Out: the images as handlers see them.
"""

from typing import Final

import msgspec
from msgspec import Raw

COPY: Final = "_sk_copy"
"""On a copy: which migration keeps it, and a hash of the key of the item that counts."""
FROM: Final = "_sk_from"
"""On an item that a migration moved or made: which one, and a hash of its source's key."""
PAIR: Final = "_sk_pair"
"""On an item that a migration moves, and on what became of it: which family, and which side. An
update keeps it; an item that other code puts again lacks it."""

_NAME = f'"{COPY}"'.encode()
_names = msgspec.json.Decoder(dict[str, Raw]).decode


def counting(image: Raw | None) -> Raw | None:
    """Return an image, or None if it is that of a copy."""
    if image is None or _NAME not in bytes(image):
        return image
    return None if COPY in _names(image) else image
