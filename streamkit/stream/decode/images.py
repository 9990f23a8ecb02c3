"""Images: from the bytes of an item to its entity, or to a few of its fields.

The result equals that of the plain path in every case: JSON to plain Python values, upcasts, then
`model_validate`. `fast` skips the steps between where the entity allows it. If the fast path
rejects an image, the plain path decides and describes the error. Errors name fields, never values.
"""

from collections.abc import Callable, Mapping
from typing import Any, Generic, NamedTuple, NoReturn, TypeVar

from msgspec import Raw
from pydantic import ValidationError

from streamkit.entity import Entity
from streamkit.errors import USER_ERRORS, DecodeError
from streamkit.model.codec import decode_image, decode_item
from streamkit.model.fields import CompiledModel, partial_model, problems
from streamkit.model.item_as_read import remember_key
from streamkit.model.keys import StoredKey
from streamkit.model.origin import ORIGIN
from streamkit.model.schema import TableSchema
from streamkit.progress.actions import CONTROL_ATTRIBUTE
from streamkit.stream.decode.fast import ValuesReader, values_reader
from streamkit.stream.decode.keyed import KeyedFields

E = TypeVar("E", bound=Entity)
V = TypeVar("V")


class _PartialReader(NamedTuple, Generic[E]):
    """Reads some fields of an image; `validate` makes the entity of plain values."""

    decode: Callable[[bytes | Raw], E]
    validate: Callable[[Mapping[str, Any]], E]


class ImageDecoder(Generic[E]):
    """Decodes the images of one entity in one table."""

    def __init__(self, entity: type[E], schema: TableSchema) -> None:
        self._entity = entity
        self._upcasts = entity.upcasts()
        self._reserved = _attributes_not_fields(entity, schema)
        self._is_strict = entity.model_config.get("extra") == "forbid"
        self._compiled = CompiledModel.of(entity)
        self._validate = entity.__pydantic_validator__.validate_python
        compiled = self._compiled
        self._is_fast = bool(compiled and not compiled.needs_all_attributes and not self._upcasts)
        self._schema = schema
        self._keyed = KeyedFields(entity, schema)
        self._read: ValuesReader | None = None
        self._partial: dict[tuple[str, ...], _PartialReader[E] | None] = {}

    def decode(self, raw: bytes | Raw) -> E:
        """Return the entity of an image.

        Raises:
            DecodeError: the image does not fit the entity.
        """
        if self._read is None:
            if not self._is_fast:
                return self._decode_plainly(raw)
            # Made at the first image: it takes a millisecond, and decoding items needs none.
            self._read = values_reader(self._entity, self._entity.model_fields, self._schema)
        try:
            values, pk, sk = self._read(raw)
            if pk is None:
                return self._decode_plainly(raw)
            key = self._keyed.fill(values, self._keyed.of_texts(pk, sk))
            entity: E = self._validate(values)
        except USER_ERRORS:  # the plain path tries again and decides
            return self._decode_plainly(raw)
        remember_key(entity, key)
        return entity

    def decode_item(
        self, item: Mapping[str, Mapping[str, Any]], fields: tuple[str, ...] | None = None
    ) -> E:
        """Return the entity of an item from an SDK's reply, or an entity of these fields alone.

        Raises:
            DecodeError: the item, or one of the fields, does not fit the entity.
        """
        partial = None if fields is None else self._partial_reader(fields)
        if partial is None:
            return self._from_values(lambda: decode_item(item))
        return self._some_plainly(partial.validate, lambda: decode_item(item))

    def reader(self, fields: tuple[str, ...]) -> Callable[[bytes | Raw], E]:
        """Return a function that decodes an image to an entity that has these fields alone.

        They have the values that the whole entity would have. Whether the other fields fit does not
        matter, unless they influence these: then the whole image is decoded. The function raises
        `DecodeError` if one of the fields, or of those that influence them, does not fit.
        """
        partial = self._partial_reader(fields)
        return self.decode if partial is None else partial.decode

    def values(self, raw: bytes | Raw, fields: tuple[str, ...]) -> dict[str, Any]:
        """Return some fields of an image by name, with the values that `reader` gives them.

        Raises:
            DecodeError: one of the fields, or of those that influence them, does not fit.
        """
        entity = self.reader(fields)(raw)
        return {name: getattr(entity, name) for name in fields}

    def _partial_reader(self, fields: tuple[str, ...]) -> _PartialReader[E] | None:
        """Return how to read some fields alone; None if other fields influence their values."""
        if fields not in self._partial:
            self._partial[fields] = self._make_partial_reader(fields)
        return self._partial[fields]

    def _make_partial_reader(self, fields: tuple[str, ...]) -> _PartialReader[E] | None:
        compiled = self._compiled
        if not self._is_fast or compiled is None or compiled.has_whole_validators:
            return None
        if not all(compiled.is_independent(name) for name in fields):
            return None
        read = values_reader(self._entity, fields, self._schema)
        validate: Callable[[Mapping[str, Any]], E] = partial_model(compiled, self._entity, fields)
        keyed = KeyedFields(self._entity, self._schema, fields)

        def decode(raw: bytes | Raw) -> E:
            try:
                values, pk, sk = read(raw)
                if pk is not None:
                    keyed.fill(values, keyed.of_texts(pk, sk))
                entity = validate(values)
            except USER_ERRORS:  # as in decode
                return self._some_plainly(validate, lambda: decode_image(raw))
            return entity

        return _PartialReader(decode, validate)

    def _some_plainly(
        self,
        validate: Callable[[Mapping[str, Any]], E],
        read: Callable[[], dict[str, Any]],
    ) -> E:
        values, key = self._plain_values(read)
        entity: E = self._validated(lambda: validate(values))
        if key is not None:
            remember_key(entity, key)
        return entity

    def _decode_plainly(self, raw: bytes | Raw) -> E:
        return self._from_values(lambda: decode_image(raw))

    def _from_values(self, read: Callable[[], dict[str, Any]]) -> E:
        values, key = self._plain_values(read)
        entity: E = self._validated(lambda: self._validate(values))
        if key is not None:
            remember_key(entity, key)
        return entity

    def _validated(self, validate: Callable[[], V]) -> V:
        try:
            return validate()
        except ValidationError as error:
            text = f"{self._entity.__name__}: {problems(error)}{self._not_in_key(error)}"
            raise DecodeError(text) from None
        except USER_ERRORS as error:  # a validator is user code
            self._fail("a validator", error)

    def _not_in_key(self, error: ValidationError) -> str:
        """Return why a missing field was not read from the key that is built from it."""
        lost = {line["loc"][:1] for line in error.errors() if line["type"] == "missing"}
        if not any(loc[:1] and str(loc[0]) in self._keyed.attributes for loc in lost):
            return ""
        return (
            "; what has no attribute is read from the key, if that is as the template says and can"
            " be split in one way only"
        )

    def _plain_values(
        self, read: Callable[[], dict[str, Any]]
    ) -> tuple[Mapping[str, Any], StoredKey | None]:
        """Return an item's values as validation takes them, and its key."""
        try:
            values = read()
        except ValueError as error:
            raise DecodeError(f"{self._entity.__name__}: {error}") from None
        key = self._keyed.of_values(values)
        values.pop(ORIGIN, None)  # the origin is not part of the entity
        for upcast in self._upcasts:
            try:
                values = upcast(values)
            except USER_ERRORS as error:  # an upcast is user code
                self._fail(f"the upcast {getattr(upcast, '__name__', upcast)}", error)
        values = dict(values) if self._upcasts else values
        if self._is_strict:  # streamkit's own, such as the owner of a derived item
            values = {k: v for k, v in values.items() if not k.startswith(CONTROL_ATTRIBUTE)}
        if self._reserved or (key is not None and self._keyed.in_key):
            hidden = self._reserved | self._keyed.in_key
            values = {k: v for k, v in values.items() if k not in hidden}
        return values, None if key is None else self._keyed.fill(values, key)

    def _fail(self, what: str, error: BaseException) -> NoReturn:
        # The error's message may hold values, so only its type is told.
        raise DecodeError(
            f"{self._entity.__name__}: {what} raised {type(error).__name__}"
        ) from None


def _attributes_not_fields(entity: type[Entity], schema: TableSchema) -> frozenset[str]:
    """Return key and type attributes, hidden from models that keep or forbid extra attributes."""
    if entity.model_config.get("extra", "ignore") == "ignore":
        return frozenset()
    names = set(entity.model_fields)
    for field in entity.model_fields.values():
        alias = field.validation_alias
        names.update(choice for choice in _choices(alias) if isinstance(choice, str))
    return schema.reserved_attributes - names


def _choices(alias: Any) -> list[Any]:
    return list(getattr(alias, "choices", [alias]))
