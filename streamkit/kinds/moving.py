"""Say what does not fit in how a declared migration settles both sides of what it moves.

    settle="field"    what each side has written is merged, field by field
    settle="item"     a side is taken whole; if both have written, people decide for one of them
    counters=("views",)           differences of both sides to what they agreed on are added
    counters={"hits": "views"}    the same for a counter that has another name in the old item

In: a migration. Out: problems, in words. A counter has to be carried as it is: otherwise what old
code adds at a stub could not be read.
"""

from collections.abc import Collection, Iterator

from streamkit.entity import Entity, attribute_names, spec_of
from streamkit.kinds.aggregate.soundness import is_number
from streamkit.kinds.migration import Migration


def unfit_to_settle(migration: Migration) -> Iterator[str]:
    """Yield why both sides cannot be settled in this way."""
    if migration.settle not in ("field", "item"):
        yield f"settle={migration.settle!r}: field or item"
    if not migration.moves and (migration.settle != "field" or migration.counters):
        yield "settle= and counters= are for mode='rekey', 'split' or 'merge'"
        return
    if migration.counters and not migration.makes:
        yield "its return annotation says which entity it makes: counters= names fields of that"
        return
    for new, old in migration.counters.items():
        yield from _unfit_to_count(new, migration.makes, f"counters= names {new!r}, and")
        hint = f"; if it has another name there, say counters={{{new!r}: 'its old name'}}"
        yield from _unfit_to_count(
            old, migration.sources, f"counters= takes {new!r} from {old!r}, and", hint
        )


def _unfit_to_count(
    name: str, entities: Collection[type[Entity]], said: str, hint: str = ""
) -> Iterator[str]:
    """Yield why a field cannot be a counter in one of the entities that have it."""
    having = [one for one in entities if name in attribute_names(one)]
    names = " and ".join(one.__name__ for one in having or entities)
    if not having:
        yield f"{said} {names} has no such field{hint}"
    elif len(having) > 1:
        yield f"{said} {names} have that field: a counter is in one of them"
    elif name in spec_of(having[0]).key_fields:
        yield f"{said} it is in the key of {names}: an item whose key changes is another item"
    elif not is_number(having[0].model_fields[name].annotation):
        yield f"{said} {names}.{name} is no number: annotate it as int or Decimal"
