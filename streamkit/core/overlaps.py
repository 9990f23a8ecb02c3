"""Overlaps: whether a key may belong to two entities, and to which of them then. Pure.

Items without a type are told apart by the shape of their keys. If every key of one entity is also
one of the other's, as `ORDER#{order}#LINE#{line}` is of `ORDER#{order}`, it belongs to the more
specific one. If each has keys of its own and they share some, as `{a}#END` and `START#{b}` do, a
shared key may belong to either, and only counting literals decides.
"""

from collections.abc import Iterable, Iterator
from itertools import combinations

from streamkit.entity import Entity, spec_of
from streamkit.model.templates import KeyTemplate

_ANY = "\0"
"""Stands for a value: no literal contains it."""


def undecided(
    entities: Iterable[type[Entity]], *, has_sort_key: bool
) -> Iterator[tuple[type[Entity], type[Entity]]]:
    """Yield the pairs of entities that share keys which could belong to either."""
    for one, other in combinations(entities, 2):
        first, second = (_templates(entity, has_sort_key=has_sort_key) for entity in (one, other))
        if len(first) != len(second) or not all(map(_meet, first, second)):
            continue
        if not (_all_in(first, second) or _all_in(second, first)):  # views are in each other
            yield one, other


def most_specific(
    entities: Iterable[type[Entity]], *, has_sort_key: bool
) -> Iterator[type[Entity]]:
    """Yield the most specific of the entities that are possible for a key."""
    left = [(entity, _templates(entity, has_sort_key=has_sort_key)) for entity in entities]
    for place, (entity, mine) in enumerate(left):
        others = [(n, theirs) for n, (_, theirs) in enumerate(left) if len(theirs) == len(mine)]
        nearer = (
            _all_in(theirs, mine) and (n < place or not _all_in(mine, theirs))
            for n, theirs in others
            if n != place
        )
        if not any(nearer):
            yield entity


def _all_in(narrow: list[KeyTemplate], wide: list[KeyTemplate]) -> bool:
    return all(map(_includes, wide, narrow))


def _templates(entity: type[Entity], *, has_sort_key: bool) -> list[KeyTemplate]:
    spec = spec_of(entity)
    return [spec.pk, spec.sk] if has_sort_key and spec.sk is not None else [spec.pk]


def _includes(wide: KeyTemplate, narrow: KeyTemplate) -> bool:
    """Return whether every key of the template `narrow` also has the shape of `wide`."""
    return wide.matches(_ANY.join(narrow.shape))


def _meet(one: KeyTemplate, other: KeyTemplate) -> bool:
    """Return whether a key may have both shapes, because their beginnings and ends agree."""
    if not one.placeholders or not other.placeholders:
        return _includes(one, other) or _includes(other, one)
    starts, ends = (one.shape[0], other.shape[0]), (one.shape[-1], other.shape[-1])
    same_start = starts[0].startswith(starts[1]) or starts[1].startswith(starts[0])
    return same_start and (ends[0].endswith(ends[1]) or ends[1].endswith(ends[0]))
