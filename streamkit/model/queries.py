"""Queries and scans as values: which items of an entity are read. Pure.

In: an entity, and values of the fields in its keys. Out: a query, of which a `Table` makes its
requests. On failure: `ValueError`, if a value cannot be in a key.
"""

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from streamkit.model.fields import validate_fields
from streamkit.model.key_fields import KeyFields, KeyValue, key_values
from streamkit.model.keys import Index
from streamkit.model.templates import LAST_CHARACTER, KeyTemplate, Placeholder

if TYPE_CHECKING:
    from streamkit.entity import Entity

E_co = TypeVar("E_co", bound="Entity", covariant=True)


@dataclass(frozen=True, slots=True)
class Scan(Generic[E_co]):
    """Every item of an entity that is in an index (a sparse one finds few), or in the table."""

    entity: type[E_co]
    index: Index | None = None


@dataclass(frozen=True, slots=True)
class Query(Generic[E_co]):
    """Items of one entity under one partition key, of the table or of an index.

    The sort key is bounded by `sk_prefix`, or by `lower` and `upper` (both inclusive, either may be
    None), or not at all. Nothing is read until a `Table` receives the query.

    Where keys of the index are fields, `equal` has the values of the first ones, those of the
    partition key before those of the sort key, and `bounds` the least and greatest of the next.
    """

    entity: type[E_co]
    index: Index | None
    pk: str
    sk_prefix: str | None = None
    lower: str | None = None
    upper: str | None = None
    descending: bool = False
    maximum: int | None = None
    next_field: Placeholder | str | None = field(default=None, repr=False)
    equal: tuple[KeyValue, ...] = ()
    bounds: tuple[KeyValue | None, KeyValue | None] = (None, None)

    def reverse(self) -> Self:
        """Return the query with the same items, last sort key first."""
        return replace(self, descending=not self.descending)

    def limit(self, count: int) -> Self:
        """Return the query limited to `count` items.

        Raises:
            ValueError: `count` is not positive.
        """
        if count < 1:
            raise ValueError(f"a query is limited to at least 1 item, not {count}")
        return replace(self, maximum=count)

    def between(self, low: Any = None, high: Any = None) -> Self:
        """Return the query bounded in its next sort-key field; `None` leaves a side open.

        The field is the first of the sort key that the query was not given. Both ends are
        inclusive: the upper one of a template includes every key that begins with it.

        Raises:
            ValueError: every sort-key field is given already, or a bound does not fit the field.
        """
        following = self.next_field
        if following is None:
            raise ValueError(f"a query of {self.entity.__name__}: no sort-key field is left open")
        if isinstance(following, str):
            return replace(
                self,
                bounds=(self._value(following, low), self._value(following, high)),
                next_field=None,
            )
        if following.is_descending:
            low, high = high, low
        prefix = self.sk_prefix or ""
        lower, upper = self.sk_prefix, prefix + LAST_CHARACTER if prefix else None
        if low is not None:
            lower = prefix + self._bound(following, low)
        if high is not None:
            upper = prefix + self._bound(following, high)
            if following.literal or not self._ends_with(following):
                upper += following.literal + LAST_CHARACTER
        return replace(self, sk_prefix=None, lower=lower, upper=upper, next_field=None)

    def _value(self, name: str, bound: Any) -> KeyValue | None:
        if bound is None:
            return None
        where = f"a query of {self.entity.__name__}"
        values = validate_fields(self.entity, {name: bound}, where=where)
        return key_values(self.entity, values, [name], where)[0]

    def _bound(self, placeholder: Placeholder, value: Any) -> str:
        where = f"a query of {self.entity.__name__}"
        values = validate_fields(self.entity, {placeholder.name: value}, where=where)
        return placeholder.render(values[placeholder.name], where)

    def _ends_with(self, placeholder: Placeholder) -> bool:
        spec = self.entity.__entity__
        template = self.index.sk if self.index else spec.sk if spec else None
        return type(template) is KeyTemplate and template.placeholders[-1] is placeholder


def built_query(
    entity: type[E_co],
    index: Index | None,
    keys: tuple[KeyTemplate | KeyFields, KeyTemplate | KeyFields | None],
    values: dict[str, Any],
) -> Query[E_co]:
    """Return the query for these values of key fields; those of the partition key are all there.

    Raises:
        ValueError: a value cannot be in a key, or is given without the sort-key fields before it.
    """
    pk, sk = keys
    where = f"a query of {entity.__name__}"
    given = 0
    fields = () if sk is None else sk.fields if isinstance(sk, KeyFields) else sk.order
    while given < len(fields) and fields[given] in values:
        given += 1
    later = [name for name in fields[given:] if name in values and name not in pk.fields]
    if later:
        raise ValueError(
            f"{where} by {', '.join(later)} also needs {fields[given]}, which comes before in the"
            " sort key"
        )
    text = pk.build(values) if isinstance(pk, KeyTemplate) else ""
    equal = () if isinstance(pk, KeyTemplate) else key_values(entity, values, pk.fields, where)
    if isinstance(sk, KeyTemplate):
        prefix = sk.build_prefix(values, given)
        if given == len(fields):
            return Query(entity, index, text, None, prefix, prefix, equal=equal)
        following = sk.placeholders[given]
        return Query(entity, index, text, prefix or None, next_field=following, equal=equal)
    if given:
        equal += key_values(entity, values, fields[:given], where)
    following_field = fields[given] if given < len(fields) else None
    return Query(entity, index, text, next_field=following_field, equal=equal)
