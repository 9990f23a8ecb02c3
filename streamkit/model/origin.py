"""Origins: what wrote an item, as a mark that the item carries. Pure.

An effect on an entity that a handler of the app listens to leaves a mark attribute in the item. It
says where the write comes from, how many handlers it has passed through, and which handler wrote
it, and has a part that is unique to the write. In: the images of a record. Out: what wrote the
item. The mark counts only if it differs between the two images: an update by the application leaves
it as it is, a put removes it, and both are the application's writes. A deletion leaves no image
that could carry a mark.

A write that changes nothing but the mark is no change: without marks it would be none.
"""

from dataclasses import dataclass
from typing import Any, Final, Literal, get_args

import msgspec
from msgspec import Raw

from streamkit.model.codec import decode
from streamkit.model.copies import COPY
from streamkit.observe.traces import valid_parent

MARK: Final = "_sk_by"
"""The attribute that carries the origin."""

Origin = Literal["application", "handler", "migration"]
"""The writer of a change: the application, a handler's effect, or a migration of this app."""

_DIGITS = 6
"""The most digits of the hop count; the limit on hops ends loops long before."""
_TRACE = "|"
"""Separates the trace at the end of a mark."""
_NAME = MARK.encode()
_DELETION = "delete-"
_ORIGINS: frozenset[str] = frozenset(get_args(Origin))


@dataclass(frozen=True, slots=True)
class OriginMark:
    """The content of an origin mark; `hops` counts the handlers since a write of the application.

    `trace` is the `traceparent` of the handler's run that wrote, if it was traced.
    """

    origin: Origin = "application"
    hops: int = 0
    trace: str = ""

    def text(self, writer: str, unique: str) -> str:
        """Return the attribute's text.

        Args:
            writer: the handler or migration that writes.
            unique: different for each write, such as the position of the change that led to it.
        """
        text = f"{self.origin}:{self.hops}:{unique}:{writer}"
        return f"{text}{_TRACE}{self.trace}" if self.trace else text


UNMARKED = OriginMark()
"""The application's own writes carry no mark."""

_Marked = msgspec.defstruct(
    "_Marked", [("mark", dict[str, Any] | None, None)], rename={"mark": MARK}, gc=False
)
_parse = msgspec.json.Decoder(_Marked).decode
_parse_whole = msgspec.json.Decoder(dict[str, dict[str, Any]]).decode


def read_mark(old: Raw | None, new: Raw | None) -> OriginMark | None:
    """Return what made a change, from its images; None if it changed nothing but the mark.

    Without a new image it is the application, unless a migration has announced the deletion.
    """
    mark = _mark_of(old, new)
    return None if mark is not UNMARKED and _only_marked(old, new) else mark


def deletion(unique: str) -> str:
    """Return the part of a mark which says that its writer will delete the item."""
    return _DELETION + unique


def _deleted_by(old: Raw | None) -> OriginMark:
    text = _text(old) if old is not None and _NAME in bytes(old) else None
    origin, _, rest = (text or "").partition(":")
    if origin == "migration" and rest.partition(":")[2].startswith(_DELETION):
        return OriginMark("migration")
    return UNMARKED


def _mark_of(old: Raw | None, new: Raw | None) -> OriginMark:
    if new is None:
        return _deleted_by(old)
    if _NAME not in bytes(new):
        return UNMARKED
    text = _text(new)
    if text is None or (old is not None and text == _text(old)):
        return UNMARKED
    origin, _, rest = text.partition(":")
    hops = rest.partition(":")[0]
    if origin not in _ORIGINS or not hops.isdecimal() or len(hops) > _DIGITS:
        return UNMARKED
    trace = valid_parent(text.rpartition(_TRACE)[2]) if _TRACE in text else ""
    return OriginMark(origin, int(hops), trace)  # type: ignore[arg-type]


def _only_marked(old: Raw | None, new: Raw | None) -> bool:
    if old is None or new is None:
        return False
    try:
        before, after = _parse_whole(old), _parse_whole(new)
        before, after = _without_marks(before), _without_marks(after)
        return before.keys() == after.keys() and all(
            value == after[name] or decode(value) == decode(after[name])
            for name, value in before.items()
        )
    except (ValueError, msgspec.MsgspecError):
        return False


def _without_marks(image: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Leave out streamkit's own attributes, except the one that marks a copy."""
    return {n: v for n, v in image.items() if n == COPY or not n.startswith("_sk_")}


def _text(image: Raw) -> str | None:
    try:
        value = _parse(image).mark  # type: ignore[attr-defined]
    except msgspec.MsgspecError:
        return None
    text = None if value is None else value.get("S")
    return text if isinstance(text, str) else None
