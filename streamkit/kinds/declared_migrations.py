"""Add declared migrations to an app.

The kind itself is imported when an app has one: functions on Lambda import the app whenever they
start cold.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from streamkit.entity import Entity, Index, Key, Query
from streamkit.errors import DeclarationError
from streamkit.model.declaration import by_known_names

if TYPE_CHECKING:
    from streamkit.kinds.migration import Migration, Mode

F = TypeVar("F", bound=Callable[..., Any])


class DeclaredMigrations:
    """The migrations that an app declares, by their ids."""

    def __init__(self) -> None:
        self.migrations: dict[str, Migration] = {}
        self.done_everywhere: tuple[str, ...] = ()

    @by_known_names("app.migration(...)")
    def migration(  # noqa: PLR0913 - each says one thing of the migration
        self,
        id: str,  # noqa: A002 - the word of the thing
        entity: type[Entity],
        /,
        *,
        mode: "Mode" = "in_place",
        reverse: Callable[..., Any] | None = None,
        collect: Callable[[Any], Query[Any] | list[Query[Any]]] | None = None,
        source: Callable[[Any], Key[Any] | None] | None = None,
        check: Callable[[Any], bool] | None = None,
        conflict: Literal["report", "keep"] = "report",
        owner: str | None = None,
        to: str | None = None,
        index: Index | None = None,
        after: Iterable[str] = (),
        repeat: bool = False,
        settle: Literal["field", "item"] = "field",
        counters: Iterable[str] | Mapping[str, str] = (),
    ) -> Callable[[F], F]:
        """Register a pure function that brings items of an entity into a new shape.

        `streamkit migrate apply` runs it. The parameters of the function are what it reads; see
        `streamkit.kinds.migration`. With mode `aggregate` the entity is an aggregate, and there is
        no function to decorate.

        Args:
            id: its number, such as "0003", or a name; those with names are applied after the rest.
            entity: of the items, in a shape that fits the old ones.
            mode: `in_place`, `touch`, `rekey`, `split`, `merge`, `derive` or `aggregate`.
            reverse: undoes it, for a rollback: a function like this one; for `rekey` one of the new
                entity that returns the old one, or, for `merge`, all of them; for `split` one of
                the item and the list of its parts that returns what to set in the item.
            collect: for `split`: returns the query that finds an item's parts, or several.
            source: for `split`: returns the key of a part's item.
            check: says of an item in the new shape, as its entity, whether it is right.
            conflict: `report` an item whose target's place is taken, or `keep` what is there.
            owner: for `derive`: the `@app.derive` handler that keeps the items from now on.
            to: another table: `rekey` moves the items there, `touch` puts others beside them.
            index: for `touch`: where the items are found, by their keys alone.
            after: other migrations that have to be done before, also those about other items.
            repeat: whether it may run again once it is done, also after later ones.
            settle: whether what both sides of a move wrote is merged by `field`, or is whole.
            counters: fields of the new entity to which both sides add, perhaps with old names.

        Raises:
            DeclarationError: the number is taken, or the parts do not fit together.
        """
        options = dict(locals())  # the arguments, by their names
        for positional in ("self", "id", "entity"):
            del options[positional]

        def register(target: F) -> F:
            self._add_migration(id, entity, target, options)
            return target

        if mode == "aggregate":
            self._add_migration(id, entity, None, options)
            return lambda target: target
        return register

    def squashed(self, *ids: str) -> None:
        """Name migrations that are done in every table of the app, and have no code any more."""
        self.done_everywhere = tuple(dict.fromkeys([*self.done_everywhere, *ids]))

    def _add_migration(
        self,
        number: str,
        entity: type[Entity],
        function: Callable[..., Any] | None,
        given: dict[str, Any],
    ) -> None:
        from streamkit.kinds.migration import MigrationOptions
        from streamkit.kinds.migration_function import read_migration

        after = given["after"]
        options = given | {"after": (after,) if isinstance(after, str) else tuple(after)}
        said = given["counters"]
        names = (said,) if isinstance(said, str) else said
        options["counters"] = dict(
            names if isinstance(names, Mapping) else {name: name for name in names}
        )
        migration = read_migration(number, entity, function, MigrationOptions(**options))
        other = self.migrations.get(migration.id)
        if other is not None:
            raise DeclarationError(
                f"{migration.declared}: migration {migration.id} exists already, at"
                f" {other.declared}"
            )
        self.migrations[migration.id] = migration
