"""Aggregates: items that follow, exactly, from the items of a group.

    @app.aggregate
    class BrandLikes(Aggregate[BrandLike], pk="BRANDLIKES#{brand}", sk="BRANDLIKES#{brand}"):
        brand: str
        likes: Annotated[int, Count()] = 0

        @classmethod
        def group(cls, like: BrandLike) -> Key["BrandLikes"]:
            return cls.key(brand=like.brand)

An aggregate is a function from one item image to contributions. What a change adds is
contribution(new) - contribution(old), so inserts, deletes, expiries, edits and moves between
groups need no special case. The items are streamkit's own: nothing else should write them.
"""

import ast
import hashlib
import inspect
import textwrap
from collections.abc import Iterable
from decimal import Decimal
from typing import Any, ClassVar, Generic, TypeVar

from streamkit.changes import Change, Kind
from streamkit.codec import NUMBERS
from streamkit.declaration import Declaration
from streamkit.effects import Accumulate, Effect
from streamkit.entity import Entity, attribute_names, spec_of
from streamkit.errors import DeclarationError
from streamkit.handler import Handler, Policy
from streamkit.keys import Key
from streamkit.kinds.measures import MEASURES, Avg, Measure

E = TypeVar("E", bound=Entity)

Groups = Key[Any] | Iterable[Key[Any]] | None
"""Which groups an item belongs to: one, several, or none."""


class Aggregate(Entity, Generic[E]):
    """The base of aggregates. A subclass names its source, its keys, its measures and `group`."""

    __measures__: ClassVar[dict[str, Measure]] = {}

    @classmethod
    def group(cls, item: E, /) -> Groups:  # noqa: ARG003 - subclasses use it
        """Say which group an item belongs to: a key of this class, several, or None.

        It must depend on the item alone, because it is asked for the old image and the new one.
        """
        raise DeclarationError(f"{Declaration.of(cls)}: an aggregate defines group()")

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        """Collect the measures from the fields' annotations."""
        super().__pydantic_init_subclass__(**kwargs)
        cls.__measures__ = {
            attribute_names(cls)[name]: measure
            for name, field in cls.model_fields.items()
            for measure in field.metadata
            if isinstance(measure, MEASURES)
        }
        means = {name: m for name, m in cls.__measures__.items() if isinstance(m, Avg)}
        if means:
            cls.__also_read__ = tuple(
                f"{name}_{part}" for name in means for part in ("sum", "count")
            )
            cls.upcast(lambda item: _read_means(means, item))


def _read_means(means: dict[str, Avg], item: dict[str, Any]) -> dict[str, Any]:
    for attribute, measure in means.items():
        measure.read(attribute, item)
    return item


def source_of(aggregate: type[Aggregate[Any]]) -> type[Entity]:
    """Return the entity that an aggregate counts.

    Raises:
        DeclarationError: the class is not declared as `Aggregate[SomeEntity]`.
    """
    for base in aggregate.__mro__:
        arguments = getattr(base, "__pydantic_generic_metadata__", {}).get("args", ())
        if arguments and isinstance(arguments[0], type) and issubclass(arguments[0], Entity):
            source: type[Entity] = arguments[0]
            return source
    raise DeclarationError(
        f"{Declaration.of(aggregate)}: name the entity it counts, as in Aggregate[BrandLike]"
    )


def contributions(
    aggregate: type[Aggregate[Any]], item: Entity | None
) -> dict[Key[Any], dict[str, Decimal]]:
    """Return what one item image adds, by group and attribute; nothing for no item."""
    if item is None:
        return {}
    groups = aggregate.group(item)
    if groups is None:
        return {}
    keys = [groups] if isinstance(groups, Key) else list(groups)
    amounts: dict[str, Decimal] = {}
    for attribute, measure in aggregate.__measures__.items():
        amounts |= measure.amounts(attribute, item)
    return dict.fromkeys(keys, amounts)


def difference(
    aggregate: type[Aggregate[Any]], old: Entity | None, new: Entity | None
) -> list[Effect]:
    """Return the effects that turn the contributions of `old` into those of `new`."""
    before, after = contributions(aggregate, old), contributions(aggregate, new)
    effects: list[Effect] = []
    for key in before | after:
        taken, given = before.get(key, {}), after.get(key, {})
        amounts = {
            name: NUMBERS.subtract(given.get(name, Decimal(0)), taken.get(name, Decimal(0)))
            for name in taken | given
        }
        changed = {name: amount for name, amount in amounts.items() if amount}
        if changed:
            effects.append(Accumulate(key, changed))
    return effects


def aggregate_handler(aggregate: type[Aggregate[Any]], policy: Policy) -> Handler:
    """Make the handler that keeps an aggregate.

    Raises:
        DeclarationError: it has no measure, no group or no source.
    """
    declared = Declaration.of(aggregate)
    source = source_of(aggregate)
    if not aggregate.__measures__:
        raise DeclarationError(
            f"{declared}: no field has a measure, as in likes: Annotated[int, Count()] = 0"
        )
    if aggregate.group.__func__ is Aggregate.group.__func__:  # type: ignore[attr-defined]
        raise DeclarationError(f"{declared}: an aggregate defines group()")

    for name, measure in aggregate.__measures__.items():
        value = getattr(measure, "value", None)
        if isinstance(value, str) and value not in source.model_fields:
            raise DeclarationError(
                f"{declared}: {name} measures {value!r}, and {source.__name__} has no such field"
            )

    def run(change: Change[Any]) -> list[Effect]:
        return difference(aggregate, change.old, change.new)

    return Handler(
        name=aggregate.__name__,
        entity=source,
        kinds=frozenset(Kind),
        run=run,
        declared=declared,
        policy=policy,
        commutes=True,
        is_aggregate=True,
        definition=_definition(aggregate),
    )


def _definition(aggregate: type[Aggregate[Any]]) -> str:
    """Return a digest that changes when the aggregate's value would, and not with a comment."""
    spec = spec_of(aggregate)
    try:
        text = ast.dump(ast.parse(textwrap.dedent(inspect.getsource(aggregate))))
    except (OSError, TypeError, SyntaxError):
        text = repr([aggregate.group.__func__.__code__.co_code, sorted(aggregate.__measures__)])  # type: ignore[attr-defined]
    templates = (spec.pk.text, spec.sk.text if spec.sk else "")
    return hashlib.blake2b(repr((text, templates)).encode(), digest_size=8).hexdigest()


__all__ = ["Aggregate", "aggregate_handler", "contributions", "difference", "source_of"]
