"""Check whether an aggregate's declaration can work, when it is registered. Pure.

In: the class, with its options, measures and fields. On failure: `DeclarationError` that names the
class, its line and the field.
"""

from collections.abc import Collection, Iterable, Iterator
from datetime import date, datetime
from decimal import Decimal
from itertools import chain
from typing import Any

from streamkit.entity import Entity, attribute_names, spec_of
from streamkit.errors import DeclarationError
from streamkit.kinds.aggregate.buckets import Until
from streamkit.kinds.aggregate.extremes import Extreme
from streamkit.kinds.aggregate.measures import MEASURES, Avg, Count, Sum
from streamkit.model.declaration import Declaration
from streamkit.model.fields import classes_of
from streamkit.model.index_keys import decided_by
from streamkit.model.templates import KeyTemplate
from streamkit.stream.decode.keyed import key_reader


def check_aggregate(aggregate: Any, source: type[Entity], declared: Declaration) -> None:
    """Refuse an aggregate whose options, measures and fields do not fit together.

    Args:
        aggregate: the class, an `Aggregate`.
        source: the entity that it counts.
        declared: where it was declared.

    Raises:
        DeclarationError: something does not fit; the first of all problems.
    """
    problems = _measures(aggregate, source), _onto(aggregate, source), _indexes(aggregate)
    for problem in chain.from_iterable(problems):
        raise DeclarationError(f"{declared}: {problem}")
    for problem in _until(aggregate):
        raise DeclarationError(f"{declared}: {problem}")


def check_notes(aggregate: Any, declared: Declaration) -> None:
    """Refuse measures that stand where nothing looks at them, or whose condition is no function.

    Raises:
        DeclarationError: there is one; the message names its field.
    """
    for problem in _notes(aggregate):
        raise DeclarationError(f"{declared}: {problem}")


def check_group(stored: type[Entity], source: type[Entity], declared: Declaration) -> None:
    """Refuse a group key whose fields the source's fields of the same names cannot fill.

    Raises:
        DeclarationError: the source does not have one of them, or the key would cut a moment to a
            day or a month, so that the group would have the moment of any of its items.
    """
    spec = spec_of(stored)
    missing = [name for name in spec.key_names if name not in source.model_fields]
    if missing:
        raise DeclarationError(
            f"{declared}: {source.__name__} has no field {', '.join(missing)}, which is in the key:"
            f" an aggregate defines group() unless the fields of its key are fields of its source"
        )
    templates = (spec.pk, spec.sk) if spec.sk else (spec.pk,)
    temporal = {p.name for t in templates for p in t.placeholders if p.is_temporal}
    for name in sorted(temporal):
        of_source = set(classes_of(source.model_fields[name].annotation))
        of_group = set(classes_of(stored.model_fields[name].annotation))
        if name not in key_reader(stored).readable or of_source != of_group:
            raise DeclarationError(
                f"{declared}: the key holds a part of {name} alone; say which group with group(),"
                f' as in cls.key({name}=bucket(item.{name}, "day", tz="UTC"))'
            )


def check_apart(aggregate: Any, others: Iterable[Any]) -> None:
    """Refuse an aggregate that adds to a field to which another one of the same table adds.

    Raises:
        DeclarationError: there is such a field; a rebuild of one would delete what the other added.
    """
    onto = aggregate.__options__.onto
    for other in others:
        shared = aggregate.__measures__.keys() & other.__measures__.keys()
        if aggregate is other:
            raise DeclarationError(
                f"{aggregate.__declaration__}: it is registered already, with this app or another"
                " consumer of its table, and a second one would count each item again"
            )
        if onto is not None and onto is other.__options__.onto and shared:
            raise DeclarationError(
                f"{aggregate.__declaration__}: {other.__declaration__} adds to"
                f" {', '.join(sorted(shared))} of {onto.__name__}, too, and a rebuild of one would"
                " delete what the other added; give each of them a field of its own"
            )


_NOTES = (*MEASURES, Extreme, Until)
_NO_NUMBERS = (str, bytes, date, Collection)
"""Classes whose values are no numbers. A class of the user's may be one, so it is not refused."""


def _notes(aggregate: Any) -> Iterator[str]:
    """Yield fields whose measure would never be looked at, and conditions that cannot be asked."""
    for name, info in aggregate.model_fields.items():
        notes = (*info.metadata, info.default)
        lost = [note for note in notes if isinstance(note, type) and issubclass(note, _NOTES)]
        if isinstance(info.default, _NOTES):
            lost.append(type(info.default))
        for kind in lost:
            yield (
                f"{name} has no measure; write {kind.__name__} with its parentheses, and into the"
                " annotation, as in likes: Annotated[int, Count()] = 0"
            )
        for note in info.metadata:
            when = getattr(note, "when", None)
            if isinstance(note, _NOTES) and when is not None and not callable(when):
                of = type(note).__name__
                yield (
                    f"{name}: when= of {of} is a function of the item, as in"
                    f" {of}(..., when=lambda item: item.paid), and not {when!r}"
                )


def _measures(aggregate: Any, source: type[Entity]) -> Iterator[str]:
    fields = {attribute: name for name, attribute in attribute_names(aggregate).items()}
    for name, measure in aggregate.__measures__.items():
        kept = list(classes_of(aggregate.model_fields[fields[name]].annotation))
        if kept and all(issubclass(kind, _NO_NUMBERS) for kind in kept):
            yield (
                f"{name} is a {kept[0].__name__}, and {type(measure).__name__} keeps a number"
                " there; annotate it as a number, as in Annotated[int, Count()]"
            )
        value = getattr(measure, "value", None)
        if aggregate.__options__.onto is None:
            yield from _fraction(aggregate, fields[name], measure, source)
        if isinstance(value, str) and value not in source.model_fields:
            yield f"{name} measures {value!r}, and {source.__name__} has no such field"
        elif isinstance(value, str) and isinstance(measure, Sum | Avg):
            kinds = list(classes_of(source.model_fields[value].annotation))
            if kinds and all(issubclass(kind, _NO_NUMBERS) for kind in kinds):
                yield f"{name} sums {value!r}, and {source.__name__}.{value} is not a number"


def _fraction(stored: Any, field: str, measure: Any, source: type[Entity]) -> Iterator[str]:
    """Yield a field of whole numbers for which a measure keeps others, as far as types tell."""
    value = getattr(measure, "value", None)
    of = source.model_fields.get(value) if isinstance(value, str) else None
    has_fractions = isinstance(measure, Avg) or (
        isinstance(measure, Sum) and of is not None and _are(of.annotation, Decimal | float)
    )
    if has_fractions and _are(stored.model_fields[field].annotation, int):
        yield (
            f"{stored.__name__}.{field} is an int, and {type(measure).__name__} may keep a fraction"
            " there, with which the item could not be read; annotate it as Decimal"
        )


def _are(annotation: Any, kind: Any) -> bool:
    kinds = list(classes_of(annotation))
    return bool(kinds) and all(issubclass(one, kind) for one in kinds)


def _onto(aggregate: Any, source: type[Entity]) -> Iterator[str]:
    onto: type[Entity] | None = aggregate.__options__.onto
    if onto is None:
        return
    fields = {attribute: name for name, attribute in attribute_names(onto).items()}
    for attribute, measure in aggregate.__measures__.items():
        if not isinstance(measure, Count | Sum):
            kind = type(measure).__name__
            yield f"{attribute}: {kind} keeps attributes of its own; onto= takes Count and Sum"
        elif attribute not in fields:
            yield f"{onto.__name__} has no field that is stored as {attribute!r}"
        elif not is_number(onto.model_fields[fields[attribute]].annotation):
            yield f"{onto.__name__}.{fields[attribute]} is not a number, so nothing can be added"
        else:
            yield from _fraction(onto, fields[attribute], measure, source)
    if aggregate.__until__ is not None:
        yield f"Until would let the application's {onto.__name__} expire; leave it out with onto="


def _indexes(aggregate: Any) -> Iterator[str]:
    """Yield indexes whose keys no addition can keep: a sum is known to the table alone."""
    if aggregate.__options__.onto is not None:
        return
    spec = spec_of(aggregate)
    if aggregate.__parts__ is not None and spec.indexes:
        yield "an index would list the parts of a spread group one by one; leave it out"
    for index in spec.indexes.values():
        templates = (key for key in (index.pk, index.sk) if isinstance(key, KeyTemplate))
        for name in (one for template in templates for one in template.fields):
            if name not in spec.key_names:
                yield (
                    f"the index {index.name} has {name} in a template, which is no field of the"
                    f' group\'s key; name it as a field, as in sk=("{name}",)'
                )
        if decided_by(aggregate, index) - spec.key_fields:
            yield (
                f"when= of the index {index.name} may read the fields of the group's key alone;"
                " leave it out, or derive an item from the group"
            )


def _until(aggregate: Any) -> Iterator[str]:
    if aggregate.__until__ is None:
        return
    attribute, until = aggregate.__until__
    spec = spec_of(aggregate)
    in_key = spec.pk.fields + (spec.sk.fields if spec.sk else ())
    if until.field not in in_key:
        yield f"{attribute} counts from {until.field!r}, which is no field of the group's key"
        return
    kinds = set(classes_of(aggregate.model_fields[until.field].annotation))
    if not all(issubclass(kind, date) for kind in kinds):
        yield f"{attribute} counts from {until.field!r}, which is neither a datetime nor a date"
    elif not all(issubclass(kind, datetime) for kind in kinds) and until.tz is None:
        yield f'{attribute}: a date begins at no moment; say where, as Until(..., tz="UTC")'


def is_number(annotation: Any) -> bool:
    """Return whether all values of an annotation are numbers, or None."""
    kinds = list(classes_of(annotation))
    numbers = [issubclass(k, int | float | Decimal) and not issubclass(k, bool) for k in kinds]
    return bool(numbers) and all(numbers)
