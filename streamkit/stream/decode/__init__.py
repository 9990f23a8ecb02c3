"""Decoding: from the bytes of a page to typed images, decoded lazily.

`parse_page` reads the envelope and leaves images as bytes. `Router` tells which entity a record
belongs to. An `ImageDecoder` makes the entity when a handler asks for it.
"""

from streamkit.stream.decode.envelope import Page, Record
from streamkit.stream.decode.images import ImageDecoder
from streamkit.stream.decode.pages import are_sound, is_marked, parse_page, read_record
from streamkit.stream.decode.routing import CONTROL, Retyped, Route, Router, Side

__all__ = [
    "CONTROL",
    "ImageDecoder",
    "Page",
    "Record",
    "Retyped",
    "Route",
    "Router",
    "Side",
    "are_sound",
    "is_marked",
    "parse_page",
    "read_record",
]
