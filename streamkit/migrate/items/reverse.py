"""Compute the old item of a new one, by a migration's `reverse=`."""

from typing import Any, Final

from streamkit.entity import Entity
from streamkit.errors import ConfigurationError
from streamkit.migrate.items.rewrites import Items, TransformError, WireItem, visible
from streamkit.migrate.items.transform import Transform
from streamkit.progress.actions import Wire
from streamkit.progress.scan.places import place_text
from streamkit.stream.decode import ImageDecoder

EMPTY: Final[Items] = {}


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

    def sources(self, item: WireItem, there: Items = EMPTY) -> dict[str, dict[str, Wire]]:
        """Return the old items of a new one, by their places; several for `merge`.

        An attribute that no entity knows goes to the item that has it by what is `there`, else to
        the first.

        Raises:
            TransformError: `reverse=` returns something else than these entities.
        """
        transform, entity = self._transform, self.entity(item)
        reverse, sources = transform.migration.reverse, transform.migration.sources
        assert reverse is not None  # noqa: S101 - only pairs with `reverse` come here
        result = reverse(entity)
        parts = list(result) if len(sources) > 1 else [result]
        if not all(isinstance(part, sources if len(sources) > 1 else Entity) for part in parts):
            raise TransformError("reverse= returns the entity that it was, or all that became one")
        found: dict[str, dict[str, Wire]] = {}
        for part in parts:
            attributes = part.attributes(transform.schema)
            found[place_text(transform.schema.key_of(attributes))] = attributes
        known = set(entity.attributes(transform.target)) | transform.schema.reserved_attributes
        known = known.union(*found.values())
        for name, value in visible(item).items():
            if name not in known and found:
                has = [place for place in found if name in (there.get(place) or {})]
                found[[*has, *found][0]][name] = value
        return found
