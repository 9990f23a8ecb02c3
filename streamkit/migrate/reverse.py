"""Compute the old item of a new one, by a migration's `reverse=`."""

from typing import Any

from streamkit.entity import Entity
from streamkit.errors import ConfigurationError
from streamkit.migrate.transform import Transform, TransformError, visible
from streamkit.migrate.writes import WireItem
from streamkit.progress.actions import Wire
from streamkit.stream.decode import ImageDecoder


class Reverse:
    """Makes old items from new ones, for a migration that has a `reverse=`."""

    def __init__(self, transform: Transform) -> None:
        """Prepare to read the entity that the migration makes."""
        self._transform = transform
        target = transform.migration.target
        self._decoder: ImageDecoder[Any] | None = None
        if target is not None:
            self._decoder = ImageDecoder(target, transform.target)

    def entity(self, item: WireItem) -> Any:
        """Return an item of the new shape as its entity.

        Raises:
            ConfigurationError: the annotation does not say which entity the migration makes.
        """
        if self._decoder is None:
            raise ConfigurationError(
                f"{self._transform.migration.declared}: say in its return annotation which entity"
                " it makes, so that reverse= can be given one"
            )
        return self._decoder.decode_item(visible(item))

    def source(self, item: WireItem) -> dict[str, Wire]:
        """Return the old item of a new one, with the attributes that neither entity knows.

        Raises:
            TransformError: `reverse=` returns something else than an entity.
        """
        transform, entity = self._transform, self.entity(item)
        reverse = transform.migration.reverse
        assert reverse is not None  # noqa: S101 - only pairs with `reverse` come here
        found = reverse(entity)
        if not isinstance(found, Entity):
            raise TransformError("reverse= returns the entity that it was")
        before = found.attributes(transform.schema)
        known = set(entity.attributes(transform.target)) | transform.schema.reserved_attributes
        unknown = {n: v for n, v in visible(item).items() if n not in known and n not in before}
        return {**unknown, **before}
