"""Compute which actions on which items the handlers of an app need.

In: an app with its listeners. Out: for each table and action the patterns of partition keys, or
that the key may be any. Writes follow from what handlers declare that they write, reads from what
their code refers to: neither runs any code. A handler that does not declare what it writes may
write anything. If the keys of a handler's entities begin with a field, there is no prefix to narrow
by.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from streamkit.app import App
from streamkit.changes import Kind
from streamkit.core.completion import Completions
from streamkit.core.handler import Handler
from streamkit.effects import (
    Add,
    AddToSet,
    Check,
    Completed,
    Delete,
    Effect,
    Put,
    RemoveFromSet,
    Set,
)
from streamkit.entity import Entity, spec_of
from streamkit.kinds.copy_directory import CopyEntry
from streamkit.kinds.migration import Migration
from streamkit.kinds.mirror import Mirror
from streamkit.operate.permissions.document import literal
from streamkit.operate.permissions.reach import Reach
from streamkit.progress.actions import CONTROL_PREFIX
from streamkit.table import Table

READS = ("BatchGetItem", "ConditionCheckItem", "GetItem", "Query")
"""A handler with a `Table` may read in any of these ways, and the commit checks what it read."""
WRITES = ("DeleteItem", "PutItem", "UpdateItem")
ALL_CONTROL = frozenset({f"{CONTROL_PREFIX}*"})
"""The pattern of all control items."""

_VERBS: Mapping[type[Effect], str] = {
    Put: "PutItem",
    Set: "UpdateItem",
    Add: "UpdateItem",
    AddToSet: "UpdateItem",
    RemoveFromSet: "UpdateItem",
    Delete: "DeleteItem",
}

Patterns = frozenset[str] | None
"""Patterns of partition keys; None means any key."""


@dataclass
class Access:
    """What is needed on the app's table, on other tables, and on indexes.

    It includes what migrations read and write. `migrated` has, for each table that they copy to,
    the keys there: a worker does for new changes what the migration does for items that exist
    already.
    `completions`: records of completed changes are read and written; `notes` is what could not be
    narrowed.
    """

    own: dict[str, Patterns] = field(default_factory=dict)
    others: dict[str, Patterns] = field(default_factory=dict)
    indexes: set[str] = field(default_factory=set)
    scans: bool = False
    completions: bool = False
    migrated: dict[str, Patterns] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def access_of(consumers: Iterable[App]) -> Access:
    """Return what the handlers of these apps need."""
    found = Access()
    for app in consumers:
        for handler in app.handlers:
            _Need(app, handler, found).add()
        for migration in app.migrations.values():
            _add_migration(migration, found)
        if callable(app.on_loss):
            reach = Reach()
            reach.visit(app.on_loss)
            _add_reads(reach, reach.entities, found)
    return found


def _add_reads(reach: Reach, entities: Collection[type[Entity]], found: Access) -> None:
    """Add reads of these entities: in the table, its indexes, and in other tables if named."""
    widen(found.own, READS, patterns_of(entities))
    if "of" in reach.names:
        widen(found.others, READS, patterns_of(entities))
    for entity in entities:
        found.indexes |= {index.name for index in spec_of(entity).indexes.values()}
    found.scans |= reach.scans or "scan" in reach.names


def _add_migration(migration: Migration, found: Access) -> None:
    widen(found.own, (*READS, *WRITES), patterns_of(migration.sources))
    entities = {migration.target} if migration.target else set[type[Entity]]()
    known = bool(entities) or not migration.is_pairs
    reach = Reach()
    reach.visit(migration.collect)  # its queries may be of subclasses of the parts; of no index
    patterns = patterns_of(entities | reach.entities) if known else None
    if migration.to is None:
        widen(found.own, (*READS, *WRITES), patterns)
    else:
        widen(found.migrated, [migration.to], patterns)
    found.notes.append(f"{migration.declared} is covered; remove it once the migration is done")
    if migration.index is not None:
        found.indexes.add(migration.index.name)
    if not known:
        found.notes.append(
            f"{migration.declared} does not say which entity it returns, so that it may write any"
            " item; its annotation narrows that"
        )


def pattern_of(entity: type[Entity]) -> str | None:
    """Return the pattern of an entity's partition keys; None without a fixed beginning."""
    template = spec_of(entity).pk
    if not template.placeholders:
        return literal(template.prefix) + ("*" if entity.__parts__ else "")
    return f"{literal(template.prefix)}*" if template.prefix else None


def patterns_of(entities: Iterable[type[Entity]]) -> Patterns:
    """Return the patterns of several entities, without those that another pattern includes."""
    found = {pattern_of(entity) for entity in entities}
    return None if None in found else _widest(text for text in found if text is not None)


def _widest(patterns: Iterable[str]) -> frozenset[str]:
    kept: list[str] = []
    for pattern in sorted(patterns, key=len):
        if not any(k.endswith("*") and pattern.startswith(k[:-1]) for k in kept):
            kept.append(pattern)
    return frozenset(kept)


def widen(actions: dict[str, Patterns], names: Iterable[str], patterns: Patterns) -> None:
    """Add the patterns to those of each action in `names`."""
    for name in names:
        known = actions.get(name, frozenset())
        both = None if known is None or patterns is None else _widest(known | patterns)
        if both is None or both:
            actions[name] = both


class _Need:
    """What one handler needs."""

    def __init__(self, app: App, handler: Handler, found: Access) -> None:
        self.app, self.handler, self.found = app, handler, found
        self.reach = Reach()
        self.reach.visit(handler.run, *handler.needs.values())
        self.entities = self.reach.entities | {handler.entity} | set(handler.writes or ())
        self.entities.discard(CopyEntry)

    def add(self) -> None:
        """Add it to what the other handlers need."""
        handler = self.handler
        wanted = set(handler.needs.values())
        self.found.completions |= Completions in wanted or Completed in self.reach.effects
        if Table in wanted or handler.shadow:
            _add_reads(self.reach, self.entities, self.found)
        if handler.contested is not None:  # it reads which item holds a place, and checks it
            entities = {handler.entity, *handler.writes} if handler.writes is not None else None
            patterns = None if entities is None else patterns_of(entities)
            widen(self.found.own, ("ConditionCheckItem", "GetItem"), patterns)
        if not handler.shadow:
            self._add_writes()
        if {"of", "to"} & self.reach.names and not self.app.tables:
            self.found.notes.append(
                f"{handler.declared} may use other tables, and App(tables=) names none"
            )

    def _add_writes(self) -> None:
        handler, others = self.handler, "to" in self.reach.names
        by_verb: dict[str, set[type[Entity]]] = defaultdict(set)
        for entity in set(handler.writes or ()) - {CopyEntry}:
            for verb in self._verbs(entity):
                by_verb[verb].add(entity)
        for verb, entities in by_verb.items():
            widen(self.found.own, [verb], patterns_of(entities))
        if handler.writes is None and handler.effects:
            widen(self.found.own, self._verbs(None), None)
            self.found.notes.append(
                f"{handler.declared} does not say what it writes, so that it may write any item;"
                " its annotation or writes= narrows that"
            )
        if others:
            anything = None if handler.writes is None else patterns_of(self.entities)
            widen(self.found.others, self._verbs(None), anything)
        if Check in self.reach.effects:
            widen(self.found.own, ["ConditionCheckItem"], patterns_of(self.entities))

    def _verbs(self, entity: type[Entity] | None) -> set[str]:
        """Return the actions of its effects on an entity; all actions if its code does not tell."""
        handler = self.handler
        if handler.is_aggregate:
            return {"UpdateItem"}
        if handler.converges and not handler.is_mirror:  # derived items
            return {"PutItem", "DeleteItem"}
        verbs = {verb for kind, verb in _VERBS.items() if kind in self.reach.effects}
        if any(isinstance(part, Mirror) and part.gone == "delete" for part in self.reach.parts):
            verbs.add("DeleteItem")
        causes = handler.causes.get(entity) if entity is not None else None
        if causes is not None and Kind.REMOVED not in causes:
            verbs.discard("DeleteItem")
        if causes == frozenset({Kind.REMOVED}):
            return {"DeleteItem"}
        return verbs or set(WRITES)


def control_patterns(consumers: Iterable[App], *, completions: bool) -> frozenset[str]:
    """Return the patterns of the control items of these consumers, and of the shared ones.

    A migration has a consumer of its own, whose name is `APP.` and a suffix.
    """
    apps = list(consumers)
    names = ["", *(app.name for app in apps), *(["-"] if completions else [])]
    found = {f"{CONTROL_PREFIX}{literal(name)}#*" for name in names}
    found |= {f"{CONTROL_PREFIX}{literal(app.name)}.*" for app in apps if app.migrations}
    return _widest(found)
