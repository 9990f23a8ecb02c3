"""Origins: what wrote an item, in an attribute that the item carries. Pure.

An effect on an entity that a handler of the app listens to leaves an attribute in the item. It
says where the write comes from, how many handlers it has passed through, and which handler wrote
it, and has a part that is unique to the write. In: the images of a record. Out: what wrote the
item. The origin counts only if it differs between the two images: an update by the application
leaves it as it is, a put removes it, and both are the application's writes. A deletion leaves no
image that could carry an origin.

A write that changes nothing but the origin is no change: without origins it would not be written.
"""

from collections.abc import Mapping
from typing import Any, Final, Literal, get_args

import msgspec
from msgspec import Raw

from streamkit.model.codec import decode
from streamkit.model.copies import COPY
from streamkit.observe.traces import valid_parent

ORIGIN: Final = "_sk_by"
"""The attribute that carries the origin."""
LAST_CHANGE: Final = "_sk_last"
"""The attribute that holds the id of the last change that added to an item, if emptied groups are
removed. Their deletion depends on it, so that a write of nothing else is a change, too."""

Origin = Literal["application", "handler", "migration"]
"""The writer of a change: the application, a handler's effect, or a migration of this app."""

_DIGITS = 6
"""The most digits of the hop count; the limit on hops ends loops long before."""
_TRACE = "|"
"""Separates the trace at the end of an origin."""
_NAME = ORIGIN.encode()
_DELETION = "delete-"
_ORIGINS: frozenset[str] = frozenset(get_args(Origin))


class WriteOrigin(msgspec.Struct, frozen=True):
    """The content of an origin; `hops` counts the handlers since a write of the application.

    `trace` is the `traceparent` of the handler's run that wrote, if it was traced.
    """

    writer: Origin = "application"
    hops: int = 0
    trace: str = ""

    def text(self, name: str, unique: str) -> str:
        """Return the attribute's text.

        Args:
            name: the handler or migration that writes.
            unique: different for each write, such as the position of the change that led to it.
        """
        text = f"{self.writer}:{self.hops}:{unique}:{name}"
        return f"{text}{_TRACE}{self.trace}" if self.trace else text


APPLICATION = WriteOrigin()
"""The application's own writes carry no origin."""

_WithOrigin = msgspec.defstruct(
    "_WithOrigin", [("origin", dict[str, Any] | None, None)], rename={"origin": ORIGIN}, gc=False
)
_parse = msgspec.json.Decoder(_WithOrigin).decode
_parse_whole = msgspec.json.Decoder(dict[str, dict[str, Any]]).decode


def read_origin(old: Raw | None, new: Raw | None) -> WriteOrigin | None:
    """Return what made a change, from its images; None if it changed nothing but the origin.

    Without a new image it is the application, unless a migration has announced the deletion.
    """
    origin = _origin_of(old, new)
    return None if origin is not APPLICATION and _only_origin_differs(old, new) else origin


def written_by(item: Mapping[str, Any]) -> tuple[str | None, int]:
    """Return the handler or migration that wrote an item last, and its hops; None if none did."""
    text = item.get(ORIGIN, {}).get("S", "")
    origin, rest = _parsed(text)
    return rest.partition(":")[2] or None, origin.hops


def writer_of(image: Raw) -> str:
    """Return the handler or migration that wrote an image last; empty if none did."""
    return written_by({ORIGIN: {"S": _text(image) or ""}})[0] or ""


def deletion(unique: str) -> str:
    """Return the part of an origin which says that its writer will delete the item."""
    return _DELETION + unique


def _deleted_by(old: Raw | None) -> WriteOrigin:
    text = _text(old) if old is not None and _NAME in bytes(old) else None
    origin, _, rest = (text or "").partition(":")
    if origin == "migration" and rest.partition(":")[2].startswith(_DELETION):
        return WriteOrigin("migration")
    return APPLICATION


def _origin_of(old: Raw | None, new: Raw | None) -> WriteOrigin:
    if new is None:
        return _deleted_by(old)
    if _NAME not in bytes(new):
        return APPLICATION
    text = _text(new)
    if text is None or (old is not None and text == _text(old)):
        return APPLICATION
    return _parsed(text)[0]


def _parsed(text: str) -> tuple[WriteOrigin, str]:
    """Return the origin that a text says, with the rest of the text: the unique part, the name."""
    origin, _, rest = text.partition(":")
    hops, _, rest = rest.partition(":")
    if origin not in _ORIGINS or not hops.isdecimal() or len(hops) > _DIGITS:
        return APPLICATION, ""
    rest, _, trace = rest.rpartition(_TRACE) if _TRACE in rest else (rest, "", "")
    return WriteOrigin(origin, int(hops), valid_parent(trace) if trace else ""), rest  # type: ignore[arg-type]


def _only_origin_differs(old: Raw | None, new: Raw | None) -> bool:
    if old is None or new is None:
        return False
    try:
        before, after = _parse_whole(old), _parse_whole(new)
        before, after = _without_own(before), _without_own(after)
        return before.keys() == after.keys() and all(
            value == after[name] or decode(value) == decode(after[name])
            for name, value in before.items()
        )
    except (ValueError, msgspec.MsgspecError):
        return False


def _without_own(image: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Leave out streamkit's own attributes, except those that make a change alone."""
    kept = COPY, LAST_CHANGE
    return {n: v for n, v in image.items() if n in kept or not n.startswith("_sk_")}


def _text(image: Raw) -> str | None:
    try:
        value = _parse(image).origin  # type: ignore[attr-defined]
    except msgspec.MsgspecError:
        return None
    text = None if value is None else value.get("S")
    return text if isinstance(text, str) else None
