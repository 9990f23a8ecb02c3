"""Migrations as declared: a pure function that brings one item into a new shape.

    @app.migration("0003", Order)
    def order_status_date(status: str, date: str) -> Set[Order]:
        return Set(order_status_date=f"{status}#{date}")

The parameters are the read set: fields of the entity, by name. A function with one parameter that
is annotated with an entity receives the item as that entity; one annotated `Item` receives its
plain values by attribute name, and what it reads is tracked. An item is done once the function
changes nothing in it, so the function must return no further change for its own result.

    in_place   the item is changed where it is: `Set` and `Remove` without a key, or the entity
    touch      the same, but the pass only marks items, and the stream does the work; with `to`, the
               entities that are to be in another table: return them
    rekey      the item goes to another key (or table): return the new entity, or None to leave it
    split      parts of the item become items: return them, and what to `Set` or `Remove` in the
               item once its parts are the truth
    merge      several items become one: each parameter is one of them, or None where there is none;
               return the new entity, or None to leave them. `reverse=` returns them again
    derive     items that follow from the item are put beside it: return them
    aggregate  an aggregate over items that exist already; it needs no function

`migration_function` reads the function and its options.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, get_type_hints

from streamkit.core.writes import named_entities
from streamkit.entity import Entity, Index
from streamkit.model.declaration import Declaration
from streamkit.model.keys import Key
from streamkit.model.queries import Query

Item = Mapping[str, Any]
"""An item's plain values, by attribute name: what a function may take instead of fields."""

Mode = Literal["in_place", "touch", "rekey", "split", "merge", "derive", "aggregate"]
"""What a migration does with an item; see the module."""

Takes = Literal["fields", "entity", "item", "sources"]

PAIRS: Final = frozenset({"rekey", "split", "merge", "derive"})
"""The modes that write other items than the one they read."""

MOVES: Final = frozenset({"rekey", "split", "merge"})
"""The modes in which the truth moves to other items."""

FILE = re.compile(r"(\d{3,})_[a-z0-9_]+\.py")
"""The name of a migration's file: its number, then what it is about."""


def rank(id_: str) -> tuple[bool, int, str]:
    """Return the key by which independent migrations are sorted: numbers, then names."""
    return (False, int(id_), "") if id_.isdecimal() else (True, 0, id_)


@dataclass(frozen=True, eq=False, kw_only=True)
class MigrationOptions:
    """What a declaration says of a migration beside its function.

    `reverse` undoes it: for `in_place` and `touch` a function like its own, for pairs one that
    takes the target entity and returns the source (for `merge`: all of them; for `split`: it takes
    the source and the list of its parts, and returns what to set in the source). `collect` finds
    the parts of a source that is split, `source` the source of a part. `check` returns whether a
    migrated item is right.
    `conflict` says what happens if another item is in a target's place. `owner` is the
    `@app.derive` handler that keeps the derived items from now on. `to` is another table, `index`
    is where `touch` finds the items. `after` are migrations that come before it, `repeat` says that
    it may run again once it is done. `settle` and `counters` say what becomes of what both sides
    write; see `kinds.moving`.
    """

    mode: Mode = "in_place"
    reverse: Callable[..., Any] | None = None
    collect: Callable[[Any], Query[Any] | list[Query[Any]]] | None = None
    source: Callable[[Any], Key[Any] | None] | None = None
    check: Callable[[Any], bool] | None = None
    conflict: Literal["report", "keep"] = "report"
    owner: str | None = None
    to: str | None = None
    index: Index | None = None
    after: tuple[str, ...] = ()
    repeat: bool = False
    settle: Literal["field", "item"] = "field"
    counters: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, eq=False, kw_only=True)
class Migration(MigrationOptions):
    """One migration as declared.

    `function` is pure and takes what `takes` says; `parameters` are its fields with their
    attributes and whether one must be there. `makes` are the entities that the function's
    annotation returns. `digest` changes with the definition. `merged` are the entities of the items
    that become one, by parameter.
    """

    id: str
    entity: type[Entity]
    function: Callable[..., Any] | None
    takes: Takes
    parameters: Mapping[str, tuple[str, bool]]
    declared: Declaration
    digest: str
    makes: tuple[type[Entity], ...] = ()
    merged: Mapping[str, type[Entity]] = field(default_factory=dict)

    @property
    def sources(self) -> tuple[type[Entity], ...]:
        """The entities of the items that it reads; only `merge` has several."""
        return tuple(self.merged.values()) or (self.entity,)

    @property
    def target(self) -> type[Entity] | None:
        """The entity that items become, or that is made of them, if the annotation names it."""
        return self.makes[0] if self.makes else None

    @property
    def policy(self) -> str:
        """How both sides are settled, in words; "" for items that do not move."""
        names = ", ".join(sorted(self.counters))
        return f"by {self.settle}{', counters ' * bool(names)}{names}" * self.moves

    @property
    def is_pairs(self) -> bool:
        """Whether it writes other items than the one that it reads."""
        return self.mode in PAIRS or self.to is not None

    @property
    def names(self) -> frozenset[type[Entity]]:
        """The entities that it names, except those that its items become: they may look alike."""
        hints = {} if self.function is None else get_type_hints(self.function)
        found = {entity for hint in hints.values() for entity in named_entities(hint)}
        return frozenset(found - {self.target} if self.mode in ("rekey", "merge") else found)

    @property
    def follows_target(self) -> bool:
        """Whether the migration follows changes in another table, so that it can be rolled back."""
        return self.moves and self.to is not None and self.reverse is not None

    @property
    def moves(self) -> bool:
        """Whether the truth moves to other items, so that there is a switch and a contraction."""
        return self.mode in MOVES
