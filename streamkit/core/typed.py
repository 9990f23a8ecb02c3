"""Typed changes: turn records into the changes that handlers see.

In: pending changes, with their records. Out: changes whose images are entities, decoded once for
all handlers, or items in wire form for a handler that wants them raw; and whether a handler's
`when` holds. For `when`, only the fields it names are decoded. On failure: `DecodeError`.
"""

from collections.abc import Callable, Iterable
from typing import Any, cast

from streamkit.changes import Change
from streamkit.core.handler import Handler
from streamkit.core.outcome import PendingChange
from streamkit.entity import Entity
from streamkit.model.codec import wire_image
from streamkit.model.schema import TableSchema
from streamkit.stream.decode import ImageDecoder, Record

Images = tuple[Entity | None, Entity | None]
"""The old image of a change, and the new one."""


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
    ) -> Callable[[Record], Images]:
        """Return a function that decodes the old image of a record and the new one.

        With `fields` the entities have these fields alone, and other fields need not fit. The
        function raises `DecodeError` if an image does not fit the entity.
        """
        decoder = self._decoders[entity]
        decode = decoder.decode if fields is None else decoder.reader(fields)

        def images(record: Record) -> Images:
            old, new = record.old_image, record.new_image
            return None if old is None else decode(old), None if new is None else decode(new)

        return images

    def change_of(self, change: PendingChange, handler: Handler, shard_id: str) -> Change[Any]:
        """Build the typed change for a handler; its images are decoded now, once for all handlers.

        An entity that was declared mutable is decoded for each handler, so that none sees another's
        edits. A handler that says which fields it reads gets these alone.

        Raises:
            DecodeError: an image does not fit the entity.
        """
        record, entity = source_of(change)
        if handler.raw:
            return _raw_change(change, record, handler, shard_id)
        if handler.fields is not None:
            old, new = self.reader(entity, handler.fields)(record)
        else:
            if change.images is None or not entity.model_config.get("frozen"):
                change.images = self.reader(entity)(record)
            old, new = change.images
        return Change.of(
            record,
            old=old,
            new=new,
            shard_id=shard_id,
            handler=handler.name,
            wrote=change.origin,
            key=change.key,
        )


def source_of(change: PendingChange) -> tuple[Record, type[Entity]]:
    """Return the record and the entity of a pending change that has outcomes."""
    assert change.record is not None  # noqa: S101 - marks have no outcomes
    assert change.entity is not None  # noqa: S101
    return change.record, change.entity


def _raw_change(
    change: PendingChange, record: Record, handler: Handler, shard_id: str
) -> Change[Any]:
    """Build a change whose images are items in wire form."""
    images = (record.old_image, record.new_image)
    old, new = (None if image is None else wire_image(image) for image in images)
    return Change.of(
        record,
        old=cast(Any, old),
        new=cast(Any, new),
        shard_id=shard_id,
        handler=handler.name,
        wrote=change.origin,
    )
