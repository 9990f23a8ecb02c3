"""Order migrations of the same items: begin them by number, roll them back in reverse.

Two migrations are about the same items if one of them reads or makes items that may be the other's:
by entity, or by keys of one shape. In: an app's migrations, and their states. Out: nothing; on
failure `ConfigurationError` names the migrations that come first.
"""

from collections.abc import Iterator, Sequence

from streamkit.app import App
from streamkit.core.cascades import same_items
from streamkit.entity import Entity
from streamkit.errors import ConfigurationError
from streamkit.kinds.migration import Migration
from streamkit.migrate.state import State

_UNBEGUN = frozenset({"new", "rolled back"})
_PAST = frozenset({"done", "rolled back"})


def related(app: App, migration: Migration) -> list[Migration]:
    """Return the app's other migrations that are about the same items, in order."""
    same = same_items(typed=app.type_attribute is not None)
    mine = list(_items(app, migration))

    def shares(other: Migration) -> bool:
        return any(
            table == there and same(entity, one)
            for table, entity in mine
            for there, one in _items(app, other)
        )

    others = (other for other in app.migrations.values() if other.id != migration.id)
    return sorted((other for other in others if shares(other)), key=lambda one: int(one.id))


def require_turn(migration: Migration, others: Sequence[State]) -> None:
    """Refuse to begin a migration out of order; `others` are about the same items.

    Raises:
        ConfigurationError: an earlier one is not done, or a later one was begun before.
    """
    for other in others:
        if _before(other, migration) and other.phase not in _PAST:
            raise ConfigurationError(
                f"migration {other.id} is about the same items as {migration.id} and comes first,"
                f" and is {other.phase!r}"
            )
    begun = [one for one in others if _after(one, migration) and one.phase not in _UNBEGUN]
    if begun:
        raise ConfigurationError(
            f"migration {_names(begun)} is about the same items as {migration.id} and was begun"
            f" before it: give {migration.id} a number above, or roll {_names(begun)} back first"
        )


def require_last(migration: Migration, others: Sequence[State]) -> None:
    """Refuse to roll back a migration on which a later one builds.

    Raises:
        ConfigurationError: a later one, about the same items, was begun.
    """
    begun = [one for one in others if _after(one, migration) and one.phase not in _UNBEGUN]
    if begun:
        raise ConfigurationError(
            f"migration {_names(begun)} is about the same items as {migration.id} and was begun"
            f" after it: roll {_names(begun[::-1])} back first"
        )


def _items(app: App, migration: Migration) -> Iterator[tuple[str, type[Entity]]]:
    """Yield the items that a migration is about: their table and entity."""
    yield app.table, migration.entity
    for made in migration.makes:
        yield migration.to or app.table, made


def _before(state: State, migration: Migration) -> bool:
    return int(state.id) < int(migration.id)


def _after(state: State, migration: Migration) -> bool:
    return int(state.id) > int(migration.id)


def _names(states: Sequence[State]) -> str:
    return ", then ".join(f"{one.id} ({one.phase})" for one in states)
