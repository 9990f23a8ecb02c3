"""Try what a migration would do with one item, and whether its function keeps the rules.

In: an item as it is stored. Out: a `Trial` (a dry run), with every rule that it breaks: an
impossible item or index key, a function that returns something else when it is called again, one
that changes its own result again, a `reverse` that does not return the original. Nothing is
written, and only the item is read.
"""

import inspect
from collections.abc import Callable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from streamkit.entity import Entity
from streamkit.errors import USER_ERRORS
from streamkit.kinds.migration import Migration
from streamkit.migrate.items.counters import Counters
from streamkit.migrate.items.reverse import Reverse
from streamkit.migrate.items.rewrites import (
    BadIndexKey,
    FamilyTooLarge,
    Image,
    ItemTooLarge,
    Rewrite,
    alike,
    differing,
    plain,
    visible,
    wire,
)
from streamkit.migrate.items.sources import queries_of_parts
from streamkit.migrate.items.transform import Transform, reversed_migration
from streamkit.migrate.sending.attempts import located
from streamkit.model.schema import TableSchema
from streamkit.progress.actions import Wire
from streamkit.progress.scan.places import place_text

Fault = Literal[
    "transform", "too large", "bad key", "impure", "not idempotent", "round trip", "reverse"
]
"""A rule that is broken; see the module. `transform` and `reverse`: the function raises."""

_MOODS = frozenset(
    {"now", "utcnow", "today", "uuid1", "uuid4", "random", "randint", "choice", "shuffle"}
    | {"urandom", "token_hex", "token_urlsafe", "getenv", "environ", "monotonic", "time_ns"}
)
"""Names in a function that show that its result does not follow from the item alone."""


@dataclass(frozen=True, slots=True)
class Trial:
    """What one item would become, `before` and `after` without streamkit's own attributes.

    `after` is None if the item is deleted, or nothing can be made of it. For an item that is split
    it is what is left of it at the end. `faults` are rules, each with an explanation.
    """

    before: Image
    after: Image | None
    rewrite: Rewrite | None
    faults: tuple[tuple[Fault, str], ...] = ()


@dataclass
class DryRun:
    """Tries a migration; `target` is the schema of the table that its targets are in.

    `others` are the app's entities.
    """

    migration: Migration
    schema: TableSchema
    target: TableSchema
    others: tuple[type[Entity], ...] = ()
    _back: Transform | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        """Prepare the function, its twin that gets values in another order, and its reverse."""
        migration = self.migration
        self.transform = Transform(migration, self.schema, self.target, self.others)
        assert migration.function is not None  # noqa: S101 - a mode without one does not come here
        twin = replace(migration, function=disturbed(migration.function))
        self._twin = Transform(twin, self.schema, self.target)
        if migration.reverse is not None and not migration.is_pairs:
            self._back = Transform(reversed_migration(migration), self.schema, self.target)
        self._reverse = Reverse(self.transform)

    def of(self, item: Mapping[str, Wire]) -> Trial:
        """Try one item."""
        before = plain(visible(item))
        try:
            rewrite = self.transform.of(before)
            news = [target.item for target in rewrite.targets]
            Counters(self.migration).require_carried([item], news)
        except USER_ERRORS as error:
            return Trial(before, None, None, (_fault(error),))
        after = applied(before, rewrite)
        faults = [*self._purity(before, rewrite), *self._idempotence(after, rewrite)]
        if after is not None:
            faults += self._round_trip(before, after, rewrite)
        faults += self._target_keys(rewrite)
        return Trial(before, after, rewrite, tuple(faults))

    def _purity(self, before: Image, rewrite: Rewrite) -> Iterator[tuple[Fault, str]]:
        try:
            again = self._twin.of(_reordered(before))
        except USER_ERRORS as error:
            yield "impure", f"the second time it raises {type(error).__name__}"
            return
        if not _alike(rewrite, again):
            yield (
                "impure",
                "called twice, with sets and maps in another order, it returns different results",
            )

    def _idempotence(self, after: Image | None, rewrite: Rewrite) -> Iterator[tuple[Fault, str]]:
        pairs = self.migration.is_pairs
        results = [after] if after is not None and rewrite.changes_item and not pairs else []
        if pairs and self.migration.to is None:
            items = (target.item for target in rewrite.targets)
            results = [plain(item) for item in items if self.transform.matches(item)]
        for result in results:
            try:
                again = self.transform.of(result)
            except USER_ERRORS as error:
                name = type(error).__name__
                yield "not idempotent", f"applied to its own result, it raises {name}"
                return
            if pairs and again.targets:
                yield "not idempotent", "applied to its own result, it makes another item"
                return
            if again.changes_item and not pairs:
                names = ", ".join(sorted({*again.sets, *again.removes})) or "the item itself"
                yield "not idempotent", f"applied to its own result, it changes {names} again"

    def _round_trip(
        self, before: Image, after: Image, rewrite: Rewrite
    ) -> Iterator[tuple[Fault, str]]:
        if self.migration.reverse is None or not (rewrite.changes_item or rewrite.targets):
            return
        try:
            found = self._reversed(after, rewrite)
            again = None if self._back is None or found is None else self._back.of(found)
        except USER_ERRORS as error:
            yield "reverse", located(error)
            return
        if again is not None and again.changes_item:
            names = ", ".join(sorted({*again.sets, *again.removes})) or "the item itself"
            yield "not idempotent", f"applied to its own result, reverse= changes {names} again"
        if found is None:
            return
        if differ := differing(before, found):
            yield "round trip", f"reverse= returns another {', '.join(sorted(differ))}"

    def _reversed(self, after: Image, rewrite: Rewrite) -> Image | None:
        """Return what the reverse makes of the function's result; None if it is not known."""
        if self._back is not None:
            return applied(after, self._back.of(after))
        assert self.migration.reverse is not None  # noqa: S101 - the caller has looked
        if self.migration.mode == "split":
            parts = [self._reverse.entity(target.item) for target in rewrite.targets]
            item = self.transform.entity(wire(after))
            queries_of_parts(self.migration, item)
            result = self.migration.reverse(item, parts)
            return applied(after, self.transform.interpret(result, after, frozenset()))
        if len(rewrite.targets) != 1:
            return None
        place = place_text(wire(self.schema.key_of(after)))
        found = self._reverse.sources(rewrite.targets[0].item, {place: wire(after)})
        if self.migration.mode == "merge":
            return plain(found.get(place, {}))
        return plain(*found.values())

    def _target_keys(self, rewrite: Rewrite) -> Iterator[tuple[Fault, str]]:
        """Check the keys of targets, which their entity may have made empty."""
        for target in rewrite.targets:
            for index in self.target.indexes.values():
                for name, kind in index.keys:
                    value = target.item.get(name)
                    if value is not None and value.get(kind) in (None, "", b""):
                        yield "bad key", f"{name} is a key of {index.name} and must be {kind}"


def applied(image: Image, rewrite: Rewrite) -> Image | None:
    """Return what a rewrite leaves of an item; None if it deletes it."""
    return None if rewrite.delete else rewrite.applied(image)


def moods_of(migration: Migration) -> list[str]:
    """Return names in a migration's function that do not follow from an item, such as `now`."""
    names: set[str] = set()
    for function in (migration.function, migration.reverse):
        if function is not None:
            names |= set(inspect.unwrap(function).__code__.co_names)
    return sorted(names & _MOODS)


def disturbed(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that calls another one with the order of sets and maps reversed."""

    def reordered(*arguments: Any, **named: Any) -> Any:
        return function(
            *(_reordered(one) for one in arguments), **{n: _reordered(v) for n, v in named.items()}
        )

    return reordered


class _Reordered(set[Any]):
    """A set with the reverse order of iteration."""

    def __iter__(self) -> Iterator[Any]:
        return iter(list(super().__iter__())[::-1])


class _ReorderedView(Mapping[str, Any]):
    """A mapping with the reverse order; the mapping below it notes which members are read."""

    def __init__(self, below: Mapping[str, Any]) -> None:
        self._below = below

    def __getitem__(self, name: str) -> Any:
        return _reordered(self._below[name])

    def __contains__(self, name: object) -> bool:
        return name in self._below

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._below)[::-1])

    def __len__(self) -> int:
        return len(self._below)


def _reordered(value: Any) -> Any:
    if isinstance(value, Entity):
        held = (AbstractSet, dict, list)
        fields = {name: _reordered(one) for name, one in value if isinstance(one, held)}
        return value.model_copy(update=fields)
    if isinstance(value, dict):
        return {name: _reordered(one) for name, one in reversed(value.items())}
    if isinstance(value, Mapping):
        return _ReorderedView(value)
    if isinstance(value, AbstractSet):
        return _Reordered(value)
    if isinstance(value, list):
        return [_reordered(one) for one in value]
    return value


def _alike(one: Rewrite, other: Rewrite) -> bool:
    """Return whether two rewrites do the same, in any order of sets and targets."""
    if (one.removes, one.delete) != (other.removes, other.delete):
        return False
    if differing(one.sets, other.sets):
        return False
    targets, others = ({place_text(t.key): t.item for t in r.targets} for r in (one, other))
    same_places = targets.keys() == others.keys()
    return same_places and all(alike(item, others[place]) for place, item in targets.items())


def _fault(error: BaseException) -> tuple[Fault, str]:
    if isinstance(error, ItemTooLarge):
        return "too large", "an item would be larger than 400 KB"
    if isinstance(error, FamilyTooLarge):
        return "too large", str(error)
    if isinstance(error, BadIndexKey):
        return "bad key", located(error)
    return "transform", located(error)
