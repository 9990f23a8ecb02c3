"""Routing: which entity a record belongs to, from its keys or its type attribute alone.

Control items are recognised first, by the partition key. Then the type attribute decides if the
table has one. Items without it, and records without images, are matched with the key templates, the
most specific first. A record that nothing claims is unknown, and the caller counts it.

A change that gives an item another type has two sides: for one entity the item is removed, for the
other one it is inserted, because neither could read both images.
"""

from collections.abc import Callable, Iterable
from enum import Enum
from typing import Any, Final, Literal

import msgspec
from msgspec import Raw

from streamkit.entity import Entity, spec_of
from streamkit.errors import DeclarationError
from streamkit.model.codec import key_text
from streamkit.model.parts import is_part, without_suffix
from streamkit.model.schema import TableSchema
from streamkit.model.templates import KeyTemplate
from streamkit.stream.decode.envelope import Record


class Route(Enum):
    """What a record can belong to, besides an entity."""

    CONTROL = "control"


CONTROL: Final = Route.CONTROL
"""The record is of an item that streamkit itself keeps in the table."""


class Retyped(msgspec.Struct, frozen=True):
    """What the two images of a record belong to, if that is not the same."""

    before: type[Entity] | None
    after: type[Entity] | None


Side = tuple[type[Entity], Record]
"""An entity, and a record as the entity's handlers see it."""


class _Candidate(msgspec.Struct, frozen=True):
    """An entity and its templates; `same` says that both are one text, so that keys are equal."""

    entity: type[Entity]
    pk: KeyTemplate
    sk: KeyTemplate | None
    same: bool

    @classmethod
    def of(cls, entity: type[Entity], *, has_sort_key: bool) -> "_Candidate":
        spec = spec_of(entity)
        sk = spec.sk if has_sort_key else None
        return cls(entity, spec.pk, sk, sk is not None and sk.text == spec.pk.text)

    @property
    def specificity(self) -> tuple[int, bool]:
        return self.pk.literal_length + (self.sk.literal_length if self.sk else 0), self.same

    @property
    def shape(self) -> tuple[object, ...]:
        return self.pk.shape, self.sk.shape if self.sk else None, self.same

    def matcher(self) -> "_Matcher":
        """Return a function that tells whether a key has the templates' shape."""
        pk_matches, prefix, shortest = self.pk.matches, self.pk.prefix, len(self.pk.prefix)
        if self.same and self.pk.is_prefix_and_field:
            return lambda pk, sk: pk == sk and len(pk) > shortest and pk.startswith(prefix)
        if self.same:
            return lambda pk, sk: pk == sk and pk_matches(pk)
        if self.sk is None:
            return lambda pk, sk: sk is None and pk_matches(pk)
        sk_matches = self.sk.matches
        return lambda pk, sk: sk is not None and pk_matches(pk) and sk_matches(sk)


_Matcher = Callable[[str, str | None], bool]
_Target = type[Entity] | Literal[Route.CONTROL]
_Claim = tuple[_Matcher, _Target]
_Route = Callable[[Record], _Target | Retyped | None]


class Router:
    """Tells what each record belongs to.

    `route(record)` returns the record's entity, `CONTROL`, or `None` if nothing claims it; or
    `Retyped`, and then `sides` says more. It also puts the partition key first in the record's
    keys, which `Record.item_key` needs. It is a function with local variables, not a method,
    because it runs for every record.

    Args:
        entities: the app's entities.
        schema: the table's keys, and its type attribute if it has one.
        control_prefix: the prefix of control items' partition keys.
        named: entities that are only written or read. Their items are told apart, too; but if one
            of them has the keys, or the type, of another entity, its items belong to the other.

    Raises:
        DeclarationError: two entities cannot be told apart.
    """

    def __init__(
        self,
        entities: Iterable[type[Entity]],
        schema: TableSchema,
        control_prefix: str,
        named: Iterable[type[Entity]] = (),
    ) -> None:
        sorts, typed = schema.sk is not None, schema.type_attribute is not None
        told = [*dict.fromkeys(entities)]
        for other in named:
            if not any(are_alike(other, one, typed=typed, has_sort_key=sorts) for one in told):
                told.append(other)
        candidates = [_Candidate.of(entity, has_sort_key=sorts) for entity in told]
        if schema.type_attribute is None:
            _refuse_equal_shapes(candidates)
            by_keys = _by_keys(schema, candidates, control_prefix)
            self.route: _Route = by_keys
        else:
            types = _by_type(candidates)
            by_keys = _by_keys(schema, _without_equal_shapes(candidates), control_prefix)
            self.route = _by_type_attribute(schema, schema.type_attribute, types, by_keys)

    def sides(self, record: Record) -> tuple[Side, ...]:
        """Return the entities that a record concerns, each with the record as it sees it."""
        target = self.route(record)
        if not isinstance(target, Retyped):
            return ((target, record),) if isinstance(target, type) else ()
        before, after = target.before, target.after
        left = () if before is None else ((before, record.between(record.old_image, None)),)
        come = () if after is None else ((after, record.between(None, record.new_image)),)
        return (*left, *come)


def are_alike(
    one: type[Entity], other: type[Entity], *, typed: bool, has_sort_key: bool = True
) -> bool:
    """Return whether one entity is a view of the other's items, as far as can be told."""
    if typed:
        return spec_of(one).type == spec_of(other).type
    first, second = (_Candidate.of(each, has_sort_key=has_sort_key) for each in (one, other))
    return first.shape == second.shape


def _by_type(candidates: Iterable[_Candidate]) -> dict[str, type[Entity]]:
    types: dict[str, type[Entity]] = {}
    for candidate in candidates:
        entity = candidate.entity
        other = types.setdefault(spec_of(entity).type, entity)
        if other is not entity:
            raise DeclarationError(
                f"{spec_of(entity).declaration} and {spec_of(other).declaration} "
                f"have the same type {spec_of(entity).type!r}"
            )
    return types


def _refuse_equal_shapes(candidates: Iterable[_Candidate]) -> None:
    seen: dict[tuple[object, ...], _Candidate] = {}
    for candidate in candidates:
        other = seen.setdefault(candidate.shape, candidate)
        if other is not candidate:
            raise DeclarationError(
                f"{spec_of(candidate.entity).declaration} and "
                f"{spec_of(other.entity).declaration} have keys of the same shape and the table "
                f"has no type attribute, so that their items cannot be told apart"
            )


def _without_equal_shapes(candidates: list[_Candidate]) -> list[_Candidate]:
    shapes = [candidate.shape for candidate in candidates]
    return [candidate for candidate in candidates if shapes.count(candidate.shape) == 1]


def _by_keys(
    schema: TableSchema, candidates: list[_Candidate], control_prefix: str
) -> Callable[[Record], _Target | None]:
    """Route by the templates, control items first."""
    pk_name, sk_name = schema.pk, schema.sk
    pk_type, sk_type = schema.pk_type, schema.sk_type or "S"
    has_bytes = "B" in (pk_type, sk_type)
    width, claims_of, for_all = _dispatch_table(candidates, control_prefix)

    def route(record: Record) -> _Target | None:
        keys = record.dynamodb.keys
        sk = None
        try:
            if sk_name is not None:
                for first in keys:
                    if first != pk_name:
                        keys[first] = keys.pop(first)
                    break
                sk = keys[sk_name][sk_type]
            pk = keys[pk_name][pk_type]
        except KeyError:  # not a record of this table
            text = keys[pk_name].get("S", "") if pk_name in keys else ""
            # As the application's, each heartbeat would count as traffic, and no shard as quiet.
            return CONTROL if text.startswith(control_prefix) else None
        if has_bytes:
            pk = key_text(keys[pk_name])
            sk = None if sk_name is None else key_text(keys[sk_name])
        if is_part(pk if sk is None else sk):  # a part belongs to the group's entity
            pk, sk = (without_suffix(pk), None) if sk is None else (pk, without_suffix(sk))
        for matches, target in claims_of.get(pk[:width], for_all):
            if matches(pk, sk):
                return target
        return None

    return route


def _dispatch_table(
    candidates: list[_Candidate], control_prefix: str
) -> tuple[int, dict[str, tuple[_Claim, ...]], tuple[_Claim, ...]]:
    """Return which entities may claim a key, by as many first characters as every prefix has.

    An entity whose template begins with a field may claim every key that is not a control item's.
    """
    ordered = sorted(candidates, key=lambda c: c.specificity, reverse=True)
    claims: list[tuple[str, _Claim]] = [
        (control_prefix, (lambda pk, _: pk.startswith(control_prefix), CONTROL)),
        *((c.pk.prefix, (c.matcher(), c.entity)) for c in ordered),
    ]
    width = min(len(prefix) for prefix, _ in claims if prefix)
    heads = {prefix[:width] for prefix, _ in claims if prefix}
    table = {
        head: tuple(claim for prefix, claim in claims if not prefix or prefix[:width] == head)
        for head in heads
    }
    return width, table, tuple(claim for prefix, claim in claims if not prefix)


def _by_type_attribute(
    schema: TableSchema,
    attribute: str,
    types: dict[str, type[Entity]],
    by_keys: Callable[[Record], _Target | None],
) -> _Route:
    """Route by the type attribute, read alone out of each image; by keys if it is missing."""
    typed = msgspec.defstruct(
        "Typed", [("type", dict[str, Any] | None, None)], rename={"type": attribute}, gc=False
    )
    has_bytes = "B" in (schema.pk_type, schema.sk_type)
    parse: Callable[[Raw], Any] = msgspec.json.Decoder(typed).decode

    def told(image: Raw, by_key: type[Entity] | None) -> type[Entity] | None:
        try:
            value = parse(image).type
        except msgspec.MsgspecError:
            return by_key
        name = None if value is None else value.get("S")
        return types.get(name) if isinstance(name, str) else by_key

    def route(record: Record) -> _Target | Retyped | None:
        target = by_keys(record)
        if target is CONTROL:
            return target
        if has_bytes and not all(map(key_text, record.dynamodb.keys.values())):
            return None  # bytes that are no text: no key of an entity could name the item
        old, new = record.old_image, record.new_image
        if new is None:
            return target if old is None else told(old, target)
        after = told(new, target)
        if old is None or (before := told(old, target)) is after:
            return after
        return Retyped(before, after)

    return route
