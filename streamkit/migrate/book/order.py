"""Order an app's migrations: which each one needs, and which build on it.

A migration needs those that its `after=` names, and those about the same items that come before it:
of two numbers the lower one, and numbers before names, unless `after=` says otherwise. Two
migrations are about the same items if one of them reads or makes items that may be the other's: by
entity, or by keys of one shape.

In: an app's migrations, and their states. Out: their order. On failure: `ConfigurationError` names
the migrations that come first, or that have no order.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter

from streamkit.app import App
from streamkit.core.cascades import same_items
from streamkit.entity import Entity
from streamkit.errors import ConfigurationError
from streamkit.kinds.migration import Migration, rank
from streamkit.migrate.book.state import ENDED, State

_UNBEGUN = frozenset({"new", "rolled back"})


@dataclass(frozen=True)
class MigrationOrder:
    """The order of an app's migrations; `needs` has for each those that come directly before it.

    `ids` has all of them, each after what it needs, and by number where that leaves a choice.
    """

    app: App
    needs: Mapping[str, set[str]]
    ids: tuple[str, ...]

    def beside(self, migration: Migration) -> list[str]:
        """Return what a migration needs and what builds on it, in order."""
        mine = self.needs[migration.id]
        found = {*mine, *(one for one in self.ids if migration.id in self.needs[one])}
        return [one for one in self.ids if one in found]

    def until(self, last: str) -> tuple[str, ...]:
        """Return a migration and all that it needs, in order; before a number, all lower ones.

        One that was squashed is a limit as before, and is left out itself: it has no code.

        Raises:
            ConfigurationError: there is no such migration.
        """
        if last not in self.app.migrations and last not in self.app.done_everywhere:
            known = ", ".join(self.ids) or "none"
            near = _near(last, self.ids)
            raise ConfigurationError(f"there is no migration {last!r}; there are {known}{near}")
        wanted = {last}
        if last.isdecimal():
            wanted |= {one for one in self.ids if one.isdecimal() and int(one) < int(last)}
        for one in reversed(self.ids):
            wanted |= self.needs[one] if one in wanted else set()
        return tuple(one for one in self.ids if one in wanted)

    def waits_for(self, migration: Migration, others: Iterable[State]) -> list[State]:
        """Return those of `others` that have to come first, and are not done."""
        needed = [one for one in others if one.id in self.needs[migration.id]]
        enough = {one.id for one in needed if one.phase == "done"}
        enough |= {one.id for one in needed if one.phase in ENDED} - {*migration.after}
        return [one for one in needed if one.id not in enough]

    def require_turn(self, migration: Migration, others: Sequence[State]) -> None:
        """Refuse to begin a migration out of order; `others` are the states of `beside`.

        Raises:
            ConfigurationError: one that it needs is not done, or one that builds on it was begun.
        """
        for first in self.waits_for(migration, others):
            if first.id in migration.after:
                raise ConfigurationError(
                    f"migration {migration.id} needs {first.id}, as its after= says, which is"
                    f" {first.phase!r}: {_to_do(first)}"
                )
            raise ConfigurationError(
                f"migration {first.id} is about the same items as {migration.id} and comes first,"
                f" and is {first.phase!r}: {_to_do(first)}"
            )
        begun = self.begun_on(migration, others)
        if migration.repeat:
            begun = [one for one in begun if one.phase != "done"]
        if begun:
            raise ConfigurationError(
                f"migration {_names(begun)} {self._why(begun[-1], migration)} and was begun before"
                f" it: let {migration.id} come later, by its number or its after=, or roll"
                f" {_names(begun[::-1])} back first"
            )

    def require_last(self, migration: Migration, others: Sequence[State]) -> None:
        """Refuse to roll back a migration on which another one builds.

        Raises:
            ConfigurationError: such a migration was begun.
        """
        begun = self.begun_on(migration, others)
        if begun:
            raise ConfigurationError(
                f"migration {_names(begun[-1:])} {self._why(begun[-1], migration)} and was begun"
                f" after it: roll {_names(begun[::-1])} back first"
            )

    def begun_on(self, migration: Migration, others: Sequence[State]) -> list[State]:
        """Return those that were begun and build on a migration.

        One that is repeated is right at any time, so that it builds on nothing once it is done.
        """
        building = [one for one in others if migration.id in self.needs[one.id]]
        return [
            one
            for one in building
            if one.phase not in _UNBEGUN
            and not (one.phase == "done" and self.app.migrations[one.id].repeat)
        ]

    def _why(self, later: State, migration: Migration) -> str:
        if migration.id in self.app.migrations[later.id].after:
            return f"needs {migration.id}, as its after= says,"
        return f"is about the same items as {migration.id}"


def migration_of(app: App, number: str) -> Migration:
    """Return an app's migration by its number.

    Raises:
        ConfigurationError: there is none.
    """
    found = app.migrations.get(number)
    if found is None:
        known = ", ".join(sorted(app.migrations, key=rank)) or "none"
        near = _near(number, app.migrations)
        raise ConfigurationError(f"{app.name} has no migration {number!r}; it has {known}{near}")
    return found


def order_of(app: App) -> MigrationOrder:
    """Return the order of an app's migrations.

    Raises:
        ConfigurationError: an `after=` names a migration that does not exist, two named ones about
            the same items have no order, or migrations need each other.
    """
    all_ = app.migrations
    said = {id_: _said(app, one) for id_, one in all_.items()}
    needs = {id_: {*one.after} & {*all_} for id_, one in all_.items()}
    ranked = sorted(all_, key=rank)
    for place, later in enumerate(ranked):
        for earlier in ranked[:place]:
            if not _share_items(app, all_[earlier], all_[later]) or later in said[earlier]:
                continue
            if not earlier.isdecimal() and earlier not in said[later]:
                raise ConfigurationError(
                    f"{all_[later].declared}: migrations {earlier} and {later} are about the same"
                    " items, and names have no order; say after= on one of them"
                )
            needs[later].add(earlier)
    try:
        TopologicalSorter(needs).prepare()
    except CycleError as error:
        circle = ", ".join(sorted(set(error.args[1]), key=rank))
        raise ConfigurationError(
            f"migrations {circle} need each other, by after= and because they are about the same"
            " items; change an after= or a number"
        ) from error
    return MigrationOrder(app, needs, _line(needs))


def _line(needs: Mapping[str, set[str]]) -> tuple[str, ...]:
    """Return all migrations, each after what it needs, and of several the lowest first."""
    left, found = sorted(needs, key=rank), list[str]()
    while left:
        one = next(id_ for id_ in left if needs[id_] <= {*found})
        left.remove(one)
        found.append(one)
    return tuple(found)


def _said(app: App, migration: Migration) -> frozenset[str]:
    """Return all that come before a migration because some `after=` says so.

    Raises:
        ConfigurationError: one of them does not exist.
    """
    found, left = set[str](), [migration]
    while left:
        one = left.pop()
        for id_ in one.after:
            if id_ in app.done_everywhere:
                continue
            if id_ not in app.migrations:
                known = ", ".join(sorted(app.migrations, key=rank))
                raise ConfigurationError(
                    f"{one.declared}: after= names {id_!r}, and {app.name} has {known}"
                )
            if id_ not in found:
                found.add(id_)
                left.append(app.migrations[id_])
    return frozenset(found)


def _share_items(app: App, one: Migration, other: Migration) -> bool:
    same = same_items(typed=app.type_attribute is not None)
    return any(
        table == there and same(entity, theirs)
        for table, entity in _items(app, one)
        for there, theirs in _items(app, other)
    )


def _items(app: App, migration: Migration) -> Iterator[tuple[str, type[Entity]]]:
    """Yield the items that a migration is about: their table and entity."""
    yield from ((app.table, source) for source in migration.sources)
    for made in migration.makes:
        yield migration.to or app.table, made


def _near(number: str, known: Iterable[str]) -> str:
    """Return which migration is meant by 1, 001 or 0001_order_status; empty if none is."""
    meant = number.partition("_")[0].lstrip("0")
    return "".join(f"; did you mean {one}?" for one in known if one.lstrip("0") == meant)


def _to_do(first: State) -> str:
    """Return what to do about a migration that has to come first."""
    if first.phase == "new":
        return "`streamkit migrate apply` it first, or `stamp` it if it is done by other means"
    if first.phase == "rolled back":
        return "`streamkit migrate begin --again` begins it once more"
    return "bring it to its end first; `streamkit migrate status` shows how far it is"


def _names(states: Sequence[State]) -> str:
    return ", then ".join(f"{one.id} ({one.phase})" for one in states)
