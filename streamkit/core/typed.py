"""Typed changes: turn records into the changes that handlers see.

In: pending changes, with their records. Out: changes whose images become entities when a handler
asks for them, once for all handlers, or items in wire form for a handler that wants them raw; and
whether a handler's `when` holds. For `when`, only the fields it names are decoded. On failure:
`DecodeError`, where an image is asked for.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from msgspec import Raw

from streamkit.changes import Change, ChangeSource
from streamkit.core.handler import Handler
from streamkit.core.outcome import PendingChange
from streamkit.entity import Entity
from streamkit.model.codec import wire_image
from streamkit.model.schema import TableSchema
from streamkit.stream.decode import ImageDecoder, Record

Images = tuple[Entity | None, Entity | None]
"""The old image of a change, and the new one."""

_UNREAD: Any = object()


@dataclass(slots=True)
class LazyImages:
    """A record whose images are decoded when they are asked for, and then kept."""

    record: Record
    decode: Callable[[Raw], Any]
    _old: Any = _UNREAD
    _new: Any = _UNREAD

    @property
    def old(self) -> Any:
        """Return the image before the change; None if there is none."""
        if self._old is _UNREAD:
            image = self.record.old_image
            self._old = None if image is None else self.decode(image)
        return self._old

    @property
    def new(self) -> Any:
        """Return the image after the change; None if there is none."""
        if self._new is _UNREAD:
            image = self.record.new_image
            self._new = None if image is None else self.decode(image)
        return self._new


class TypedChanges:
    """Decodes changes for the handlers of one app."""

    def __init__(self, handlers: Iterable[Handler], schema: TableSchema) -> None:
        entities = dict.fromkeys(handler.entity for handler in handlers)
        self._decoders = {entity: ImageDecoder(entity, schema) for entity in entities}

    def wanted(self, record: Record, entity: type[Entity], handler: Handler) -> bool:
        """Return whether a handler's `when` holds.

        Raises:
            DecodeError: a field that `when` names cannot be read.
        """
        if handler.when is None:
            return True
        decoder, fields = self._decoders[entity], handler.when.fields
        images = (record.old_image, record.new_image)
        old, new = (None if i is None else decoder.values(i, fields) for i in images)
        return handler.when.holds(old, new)

    def reader(
        self, entity: type[Entity], fields: tuple[str, ...] | None = None
    ) -> Callable[[Record, ChangeSource | None], Images]:
        """Return a function that decodes the old image of a record and the new one.

        With `fields` the entities have these fields alone, and other fields need not fit. Without
        them the function takes what handlers share, if it is given that. It raises `DecodeError` if
        an image does not fit the entity.
        """
        decode = self._decode(entity, fields)
        shares = fields is None and entity.model_config.get("frozen")

        def images(record: Record, shared: ChangeSource | None) -> Images:
            if shares and shared is not None:
                return shared.old, shared.new
            old, new = record.old_image, record.new_image
            return None if old is None else decode(old), None if new is None else decode(new)

        return images

    def change_of(self, change: PendingChange, handler: Handler, shard_id: str) -> Change[Any]:
        """Build the typed change for a handler; its images are decoded once for all handlers.

        An entity that was declared mutable is decoded for each handler, so that none sees another's
        edits. A handler that says which fields it reads gets these alone.
        """
        images = self._images(change, handler)
        return Change.of(
            images, shard_id=shard_id, handler=handler.name, wrote=change.origin, key=change.key
        )

    def _images(self, change: PendingChange, handler: Handler) -> ChangeSource:
        record, entity = source_of(change, handler)
        if handler.raw:
            return LazyImages(record, wire_image)
        if handler.fields is not None:
            return LazyImages(record, self._decode(entity, handler.fields))
        if change.sides:  # each entity has another image
            return LazyImages(record, self._decoders[entity].decode)
        if change.images is None or not entity.model_config.get("frozen"):
            change.images = LazyImages(record, self._decoders[entity].decode)
        return change.images

    def _decode(
        self, entity: type[Entity], fields: tuple[str, ...] | None
    ) -> Callable[[Raw], Entity]:
        decoder = self._decoders[entity]
        return decoder.decode if fields is None else decoder.reader(fields)


def source_of(change: PendingChange, handler: Handler | None = None) -> tuple[Record, type[Entity]]:
    """Return the record and the entity of a pending change, or as one of its handlers sees them."""
    here = change.record, change.entity
    record, entity = here if handler is None else change.seen_by(handler)
    assert record is not None  # noqa: S101 - the end of a page has no outcomes
    assert entity is not None  # noqa: S101
    return record, entity
