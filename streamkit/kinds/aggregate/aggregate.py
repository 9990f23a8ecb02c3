"""Declare aggregates: items that follow exactly from the items of a group.

    @app.aggregate
    class BrandLikes(Aggregate[BrandLike], pk="BRANDLIKES#{brand}", sk="BRANDLIKES#{brand}"):
        brand: str
        likes: Annotated[int, Count()] = 0

An aggregate is a function from one item image to contributions. What a change adds is
contribution(new) - contribution(old), so inserts, deletes, expiries, edits and moves between groups
need no special case. The items belong to streamkit: nothing else should write them.

Class keywords say how the items are kept: see `Aggregate`.
"""

import builtins
import inspect
from collections.abc import Iterable
from dataclasses import replace
from types import UnionType
from typing import Any, ClassVar, Generic, TypeVar, Union, Unpack, get_args, get_origin

from pydantic import ConfigDict

from streamkit.entity import Entity, attribute_names, spec_of
from streamkit.errors import DeclarationError
from streamkit.kinds.aggregate.buckets import Until
from streamkit.kinds.aggregate.extremes import extremes_of
from streamkit.kinds.aggregate.measures import MEASURES, Avg, Distinct, Measure, adds_up
from streamkit.kinds.aggregate.options import Missing, Options
from streamkit.model.declaration import Declaration
from streamkit.model.keys import Key
from streamkit.model.parts import Parts
from streamkit.model.queries import Query

E = TypeVar("E", bound=Entity)

Groups = Key[Any] | Iterable[Key[Any]] | None
"""The groups that an item belongs to: one, several, or none."""


class Aggregate(Entity, Generic[E]):
    """The base of aggregates; a subclass names its source, its keys and its measures.

    An item counts in the group whose key has the item's fields, unless `group` says otherwise.

    Class keywords, beside those of every entity:

    Args:
        spread: keep each group in so many parts (up to 64), so that commits of different shards
            seldom conflict. `Table` reads them as one item, all of them each time. No handler can
            listen to the parts.
        remove_empty: delete a group once every measure of it is zero.
        onto: an entity of the application's whose items take the contributions; then there is no
            `pk` or `sk`, `group` returns that entity's keys, and each measure's field is a number
            field of it, with the same attribute name. Each write costs as much as the whole item is
            large, and where the application puts the whole item, it overwrites the count with its
            own.
        missing: what happens to a contribution if the item of `onto` does not exist: `skip` (the
            default) drops it, `create` makes an item of key and count, `park` parks the change.
        approximate: one plain update for each item and page, sent after its commit: half the price,
            no place in the transaction. A crash in between loses it, a time-out may double it. For
            page views, not for money.
    """

    __measures__: ClassVar[dict[str, Measure]] = {}
    __options__: ClassVar[Options] = Options()
    __until__: ClassVar[tuple[str, Until] | None] = None

    def __init_subclass__(
        cls,
        *,
        pk: str | None = None,
        sk: str | None = None,
        type: str | None = None,  # noqa: A002 - the word of the declaration
        spread: int | None = None,
        remove_empty: bool | None = None,
        onto: builtins.type[Entity] | None = None,
        missing: Missing | None = None,
        approximate: bool | None = None,
        **config: Unpack[ConfigDict],
    ) -> None:
        super().__init_subclass__(pk=pk, sk=sk, type=type, **config)
        given = {
            "spread": spread,
            "remove_empty": remove_empty,
            "onto": onto,
            "missing": missing,
            "approximate": approximate,
        }
        said: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
        cls.__options__ = replace(cls.__options__, **said)
        cls.__options__.check(cls.__declaration__, given_missing=missing is not None)
        onto = cls.__options__.onto
        if onto is None:
            return
        stored = onto.__name__
        cls.__keyless__ = (
            f"with onto= it has no items of its own, and counts in those of {stored}; use {stored}"
            f" in its place, as in table.get({stored}.key(...))"
        )
        if cls.__entity__ is not None:
            raise DeclarationError(
                f"{cls.__declaration__}: with onto= the keys are those of {stored}; leave out pk,"
                " sk and type"
            )

    @classmethod
    def group(cls, item: E, /) -> Groups:
        """Return the group that an item belongs to: a key of this class, several, or None.

        An aggregate that does not define it groups by the fields of its key, which are fields of
        the source, too; an item in which one of them is None is in no group. A `group` of your own
        must depend on the item alone, because it is called for the old image and the new one.
        """
        stored = stored_as(cls)
        fields = {name: getattr(item, name) for name in spec_of(stored).key_names}
        return None if any(value is None for value in fields.values()) else stored.key(**fields)

    @classmethod
    def members(cls, /, *args: Any, **fields: Any) -> Query[E]:  # noqa: ARG003 - subclasses use them
        """Return the query of a group's items, given the fields of the group's key by name.

        `Min`, `Max`, `First`, `Last` and `Top` need it when the best item leaves: the handler reads
        the partition of the source's table that holds the group, strongly consistent. Items in the
        partition that are not of the group are ignored.
        """
        raise DeclarationError(f"{Declaration.of(cls)}: its measures need members()")

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        """Collect the measures from the fields' annotations."""
        super().__pydantic_init_subclass__(**kwargs)
        notes = [
            (attribute_names(cls)[name], note)
            for name, field in cls.model_fields.items()
            for note in field.metadata
        ]
        cls.__measures__ = {name: note for name, note in notes if isinstance(note, MEASURES)}
        ends = [(name, note) for name, note in notes if isinstance(note, Until)]
        cls.__until__ = ends[0] if ends else None
        read = {n: m for n, m in cls.__measures__.items() if isinstance(m, Avg | Distinct)}
        if read:
            cls.__also_read__ = tuple(
                f"{name}_{part}"
                for name, measure in read.items()
                if isinstance(measure, Avg)
                for part in ("sum", "count")
            )
            cls.upcast(lambda item: _read_measures(read, item))
        if cls.__options__.spread > 1:
            cls.__parts__ = Parts(cls.__options__.spread, adds_up(cls.__measures__))


def _read_measures(measures: dict[str, Avg | Distinct], item: dict[str, Any]) -> dict[str, Any]:
    for attribute, measure in measures.items():
        measure.read(attribute, item)
    return item


def stored_as(aggregate: type[Aggregate[Any]]) -> type[Entity]:
    """Return the entity whose items hold an aggregate: itself, or the entity of `onto`."""
    return aggregate.__options__.onto or aggregate


def source_of(aggregate: type[Aggregate[Any]]) -> type[Entity]:
    """Return the entity that an aggregate counts.

    Raises:
        DeclarationError: the class is not declared as `Aggregate[SomeEntity]`.
    """
    for base in aggregate.__mro__:
        arguments = getattr(base, "__pydantic_generic_metadata__", {}).get("args", ())
        if arguments and get_origin(arguments[0]) in (Union, UnionType):
            names = [getattr(one, "__name__", str(one)) for one in get_args(arguments[0])]
            raise DeclarationError(
                f"{Declaration.of(aggregate)}: an aggregate counts one entity, because an item"
                f" leaves and enters groups by its own fields; declare one aggregate for each of"
                f" {' and '.join(names)}, with keys of its own"
            )
        if arguments and isinstance(arguments[0], type) and issubclass(arguments[0], Entity):
            source: type[Entity] = arguments[0]
            return source
    raise DeclarationError(
        f"{Declaration.of(aggregate)}: name the entity it counts, as in Aggregate[BrandLike]"
    )


def is_derived(aggregate: type[Aggregate[Any]]) -> bool:
    """Return whether an item's group follows from the fields of the key."""
    group = inspect.unwrap(aggregate.group)
    return group.__func__ is Aggregate.group.__func__  # type: ignore[attr-defined]


def fields_read(aggregate: type[Aggregate[Any]]) -> tuple[str, ...] | None:
    """Return the fields of the source that decide what an item contributes.

    None: a function of the application's reads the item, or entries of it are kept; then all of the
    item has to fit. Changes, rebuilds and verifications all ask here, so that they agree on which
    items count.
    """
    if not is_derived(aggregate) or extremes_of(aggregate):
        return None
    fields = dict.fromkeys(spec_of(stored_as(aggregate)).key_names)
    for measure in aggregate.__measures__.values():
        value = getattr(measure, "value", None)
        if measure.when is not None or callable(value):
            return None
        fields |= {} if value is None else {value: None}
    return tuple(fields)
