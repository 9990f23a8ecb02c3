"""Compute which records an event source mapping passes on to an app's function. Pure.

In: an app, and its table's schema. Out: filter criteria, in the form that the mapping takes. They
pass every record that a handler listens to, and as few others as possible; notes say what is
coarser than it could be, and why. Records that a mapping leaves out are free, and most of them are
streamkit's own.

Only rules are used that Lambda's documentation lists: equality, `prefix` and `exists`. Values of an
array are alternatives, fields of a pattern must all hold, and patterns are alternatives, too.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from streamkit.app import App
from streamkit.entity import Entity, spec_of
from streamkit.model.schema import TableSchema
from streamkit.progress.actions import CONTROL_ATTRIBUTE, CONTROL_PREFIX

FILTERS = 5
"""Filters of a mapping; AWS raises it to 10 on request."""
PATTERN_MAX = 4096
"""Characters of one pattern."""

_KIND = f"{CONTROL_ATTRIBUTE}kind"
"""The attribute that every control item has."""
_OWN_SORT = "_sk"
"""The prefix of the sort keys of control items, where they are strings."""
_ABSENT = [{"exists": False}]

Pattern = dict[str, Any]


class Criteria(msgspec.Struct, frozen=True):
    """Patterns, any of which passes a record, and `notes` on what they cannot leave out."""

    patterns: tuple[Pattern, ...]
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, list[dict[str, str]]]:
        """Return the value of `FilterCriteria`."""
        return {"Filters": [{"Pattern": _text(pattern)} for pattern in self.patterns]}


@dataclass(slots=True)
class _Keys:
    """Prefixes of sort keys by prefix of partition key; without any, every sort key may follow."""

    found: dict[str, set[str]] = field(default_factory=dict)
    anything: bool = False

    def add(self, pk: str, sk: str) -> None:
        """Pass keys that begin with these prefixes."""
        if not pk and not sk:
            self.anything = True
        elif pk not in self.found:
            self.found[pk] = {sk} if sk else set()
        elif not sk:
            self.found[pk] = set()
        elif self.found[pk]:
            self.found[pk].add(sk)

    def groups(self) -> list[tuple[list[str], list[str]]]:
        """Return prefixes of partition keys that have the same prefixes of sort keys."""
        alike: dict[tuple[str, ...], list[str]] = {}
        for pk, sks in sorted(self.found.items()):
            covers = (o for o, any_sk in self.found.items() if o != pk and not any_sk)
            if not any(pk.startswith(other) for other in covers):
                alike.setdefault(tuple(_shortest(sks)), []).append(pk)
        return [(pks, list(sks)) for sks, pks in alike.items()]


def criteria(app: App, schema: TableSchema, *, filters: int = FILTERS) -> Criteria:
    """Return the criteria for an app's mapping.

    Args:
        app: the app whose handlers decide which entities are needed.
        schema: the schema of its table.
        filters: how many patterns there may be.
    """
    entities = list(dict.fromkeys(handler.entity for handler in app.handlers))
    notes: list[str] = []
    typed = _of_types(entities, schema)
    patterns = [*typed, *_of_keys(entities, schema, filters - len(typed), notes)]
    if len(patterns) > filters or not all(map(_fits, patterns)):
        notes.append(f"patterns by type do not fit into {filters} of {PATTERN_MAX:,} characters")
        patterns = [_own_left_out({})]
    by_image = any(_KIND in pattern["dynamodb"].get("NewImage", {}) for pattern in patterns)
    if by_image and schema.view_type != "NEW_AND_OLD_IMAGES":
        notes.append(f"the stream carries {schema.view_type}: streamkit's own records come through")
    return Criteria(tuple(patterns), tuple(notes))


def _of_types(entities: Sequence[type[Entity]], schema: TableSchema) -> list[Pattern]:
    """Return patterns for items that have the type attribute, by the new image and the old one."""
    if schema.type_attribute is None:
        return []
    types = sorted({spec_of(entity).type for entity in entities})
    return [
        {"dynamodb": {image: {schema.type_attribute: {"S": types}}}}
        for image in ("NewImage", "OldImage")
    ]


def _of_keys(
    entities: Sequence[type[Entity]], schema: TableSchema, most: int, notes: list[str]
) -> list[Pattern]:
    """Return patterns by the beginnings of keys: the finest ones that are no more than `most`."""
    keys = _Keys()
    for entity in entities:
        spec = spec_of(entity)
        # A prefix is one of a string: numbers and bytes would not pass.
        pk = spec.pk.prefix if schema.pk_type == "S" else ""
        sk = spec.sk.prefix if spec.sk is not None and schema.sk_type == "S" else ""
        keys.add(pk, sk)
    if keys.anything:
        notes.append("some entity's keys begin with a field, so that any key may be of it")
        return [_untyped(schema)]
    finest = [_by_keys(schema, pks, sks) for pks, sks in keys.groups()]
    if len(finest) <= most and all(map(_fits, finest)):
        return finest
    notes.append(
        f"{len(finest)} patterns by partition and sort key do not fit: one coarser pattern"
    )
    return [_coarser(keys, schema)]


def _coarser(keys: _Keys, schema: TableSchema) -> Pattern:
    """Return one pattern of partition keys alone, or of sort keys, with prefixes that fit."""
    pks, sks = set(keys.found), {sk for found in keys.found.values() for sk in found}
    if "" in pks and not all(keys.found.values()):
        return _untyped(schema)
    by_sort = "" in pks
    prefixes = sks if by_sort else pks
    for length in range(max(map(len, prefixes)), 0, -1):
        some = _shortest({prefix[:length] for prefix in prefixes})
        pattern = _by_keys(schema, [""], some) if by_sort else _by_keys(schema, some, [])
        if _fits(pattern):
            return pattern
    return _untyped(schema)


def _by_keys(schema: TableSchema, pks: Sequence[str], sks: Sequence[str]) -> Pattern:
    keys: dict[str, Any] = {}
    if any(pks):
        keys[schema.pk] = {"S": [{"prefix": pk} for pk in pks]}
    if sks and schema.sk is not None:
        keys[schema.sk] = {"S": [{"prefix": sk} for sk in sks]}
    pattern: Pattern = {"dynamodb": {"Keys": keys}}
    return _own_left_out(pattern) if _lets_own_through(pattern, schema) else pattern


def _untyped(schema: TableSchema) -> Pattern:
    """Return a pattern for every item that is not streamkit's and has no type attribute.

    The old image's type says nothing of an item whose new image has none.
    """
    if schema.type_attribute is None:
        return _own_left_out({})
    return _own_left_out({"dynamodb": {"NewImage": {schema.type_attribute: {"S": _ABSENT}}}})


def _own_left_out(pattern: Pattern) -> Pattern:
    """Leave out control items by the attribute that all of them have."""
    inner: Mapping[str, Any] = pattern.get("dynamodb", {})
    images = {
        image: {**inner.get(image, {}), _KIND: {"S": _ABSENT}} for image in ("NewImage", "OldImage")
    }
    return {"dynamodb": {**inner, **images}}


def _lets_own_through(pattern: Pattern, schema: TableSchema) -> bool:
    """Return whether a pattern passes keys that control items may have."""
    for name, own in ((schema.pk, CONTROL_PREFIX), (schema.sk, _OWN_SORT)):
        rules = pattern["dynamodb"]["Keys"].get(name)
        if rules is not None and not any(_overlap(r["prefix"], own) for r in rules["S"]):
            return False
    return True


def _overlap(first: str, second: str) -> bool:
    return first.startswith(second) or second.startswith(first)


def _fits(pattern: Pattern) -> bool:
    return len(_text(pattern)) <= PATTERN_MAX


def _shortest(prefixes: Iterable[str]) -> list[str]:
    """Leave out prefixes that begin with another one."""
    found: list[str] = []
    for prefix in sorted(prefixes):
        if not (found and prefix.startswith(found[-1])):
            found.append(prefix)
    return found


def _text(pattern: Pattern) -> str:
    return json.dumps(pattern, separators=(",", ":"))
