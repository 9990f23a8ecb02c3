"""Declare migrations: a pure function that brings one item into a new shape.

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

In: functions, as they are registered. On failure: `DeclarationError` with the line.
"""

import ast
import hashlib
import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, get_args, get_origin, get_type_hints

from streamkit.core.writes import named_entities
from streamkit.effects import Delete, Remove, Set
from streamkit.entity import Entity, Index, attribute_names, spec_of
from streamkit.errors import DeclarationError
from streamkit.kinds.aggregate.aggregate import Aggregate
from streamkit.model.declaration import Declaration
from streamkit.model.keys import Key, Query
from streamkit.stream.decode.keyed import key_reader

Item = Mapping[str, Any]
"""An item's plain values, by attribute name: what a function may take instead of fields."""

Mode = Literal["in_place", "touch", "rekey", "split", "merge", "derive", "aggregate"]
"""What a migration does with an item; see the module."""

Takes = Literal["fields", "entity", "item", "sources"]

PAIRS: Final = frozenset({"rekey", "split", "merge", "derive"})
"""The modes that write other items than the one they read."""

MOVES: Final = frozenset({"rekey", "split", "merge"})
"""The modes in which the truth moves to other items."""
_MERGED_MAX = 97
"""Items that become one: a transaction holds all of them beside it, their record and its gate."""

_ID = re.compile(r"\d{3,}|[a-z][a-z0-9_]*")
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
    it may run again once it is done.
    """

    mode: Mode = "in_place"
    reverse: Callable[..., Any] | None = None
    collect: Callable[[Any], Query[Any]] | None = None
    source: Callable[[Any], Key[Any] | None] | None = None
    check: Callable[[Any], bool] | None = None
    conflict: Literal["report", "keep"] = "report"
    owner: str | None = None
    to: str | None = None
    index: Index | None = None
    after: tuple[str, ...] = ()
    repeat: bool = False


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
        """Whether changes in another table are followed, so that it can be rolled back."""
        return self.moves and self.to is not None and self.reverse is not None

    @property
    def moves(self) -> bool:
        """Whether the truth moves to other items, so that there is a switch and a contraction."""
        return self.mode in MOVES


def read_migration(
    id: str,  # noqa: A002 - the word of the thing
    entity: type[Entity],
    function: Callable[..., Any] | None,
    options: MigrationOptions,
) -> Migration:
    """Make a migration of a function.

    Raises:
        DeclarationError: the number, the mode, the signature or the options do not fit together.
    """
    declared = Declaration.here(f"migration {id!r}") if function is None else _where(function)
    merged = _merged(function, declared) if options.mode == "merge" else {}
    takes, parameters = ("sources", {}) if merged else _signature(function, entity, declared)
    index = options.index and options.index.name
    terms = (id, options.mode, options.to, options.conflict, index)
    migration = Migration(
        **vars(options),
        id=id,
        entity=entity,
        function=function,
        takes=takes,
        parameters=parameters,
        declared=declared,
        digest=_digest(function, options.reverse, terms, (entity, *merged.values())),
        makes=_made(function),
        merged=merged,
    )
    for problem in _problems(migration):
        raise DeclarationError(f"{declared}: {problem}")
    return migration


def _where(function: Callable[..., Any]) -> Declaration:
    return Declaration.of(function)


def _problems(migration: Migration) -> Iterator[str]:
    """Yield what does not fit together."""
    mode, aggregate = migration.mode, issubclass(migration.entity, Aggregate)
    if not _ID.fullmatch(migration.id):
        yield (
            f"{migration.id!r}: a migration's number has three digits or more, as in '0003'; a name"
            " has small letters, digits and _"
        )
    if migration.id in migration.after:
        yield "after= names the migration itself"
    if mode not in get_args(Mode):
        yield f"mode={mode!r}: one of {', '.join(get_args(Mode))}"
    if (mode == "aggregate") != aggregate or (mode == "aggregate") != (migration.function is None):
        yield "mode='aggregate' takes an Aggregate and no function; every other mode takes both"
    if not aggregate:
        spec_of(migration.entity)
    if migration.function is not None and inspect.iscoroutinefunction(migration.function):
        yield "a migration's result follows from the item alone; use def, not async def"
    if migration.conflict not in ("report", "keep"):
        yield f"conflict={migration.conflict!r}: report or keep"
    yield from _misplaced(migration)
    if mode == "merge":
        yield from _unfit_to_merge(migration)


def _unfit_to_merge(migration: Migration) -> Iterator[str]:
    """Yield why several items cannot become one."""
    sources, target = migration.sources, migration.target
    if migration.reverse is None or len(migration.makes) != 1 or target in sources:
        yield (
            "its return annotation names the one entity that they become, another one, and reverse="
            " makes them again of it: it says what was meant where one of them is written later"
        )
    if migration.entity not in sources or not 1 < len({*sources}) == len(sources) <= _MERGED_MAX:
        yield (
            f"its parameters are {migration.entity.__name__} and the other entities that become one"
            f" item, each once, {_MERGED_MAX} at most"
        )
    names = [spec_of(one).key_fields for one in sources]
    readable = all(spec_of(one).key_fields <= key_reader(one).readable for one in sources)
    if any(one != names[0] for one in names) or not readable:
        yield (
            "items belong together if the fields in their keys are equal: these entities need the"
            " same fields in their key templates, and templates from which they can be read back"
        )


def _misplaced(migration: Migration) -> Iterator[str]:
    """Yield the options that do not go with the mode."""
    mode = migration.mode
    parts = migration.collect is None or migration.source is None
    for wrong, problem in (
        (
            mode != "split" and (migration.collect or migration.source) is not None,
            "collect= and source= are for items that are split",
        ),
        (
            mode == "split" and migration.reverse is not None and parts,
            "to undo a split, collect= says where an item's parts are, source= whose they are",
        ),
        (
            migration.reverse is not None and migration.is_pairs and migration.target is None,
            "its return annotation says which entity it makes: reverse= is given that",
        ),
        (
            migration.conflict == "keep" and migration.moves,
            (
                "an item that moves would be lost where another one is kept in its place;"
                " conflict='keep' is for mode='derive'"
            ),
        ),
        (migration.owner is not None and mode != "derive", "owner= goes with mode='derive'"),
        (
            migration.reverse is not None and migration.is_pairs and not migration.moves,
            "what comes beside an item is deleted on rollback; leave reverse= out",
        ),
        (
            migration.index is not None and mode != "touch",
            "index= says where mode='touch' finds the items",
        ),
        (
            migration.repeat and (migration.moves or mode == "aggregate"),
            "repeat= is for mode='in_place', 'touch' or 'derive'",
        ),
        (
            migration.to is not None and mode not in ("rekey", "touch"),
            "to= another table goes with mode='rekey' or mode='touch'",
        ),
    ):
        if wrong:
            yield problem


def _merged(function: Callable[..., Any] | None, declared: Declaration) -> dict[str, type[Entity]]:
    """Return the entities that a function takes, by parameter; each of them may be missing.

    Raises:
        DeclarationError: a parameter is something else.
    """
    hints = {} if function is None else declared.hints(function)
    found: dict[str, type[Entity]] = {}
    for name in () if function is None else inspect.signature(function).parameters:
        kinds = {*get_args(hints.get(name))}
        one = next((k for k in kinds if isinstance(k, type) and issubclass(k, Entity)), None)
        if one is None or kinds != {one, type(None)}:
            raise DeclarationError(
                f"{declared}: each parameter is one of the items that become one, or None where"
                " there is none, as in (profile: Profile | None, settings: Settings | None)"
            )
        found[name] = one
    return found


def _signature(
    function: Callable[..., Any] | None, entity: type[Entity], declared: Declaration
) -> tuple[Takes, dict[str, tuple[str, bool]]]:
    if function is None:
        return "entity", {}
    parameters = list(inspect.signature(function).parameters.values())
    hints = declared.hints(function)
    if not parameters:
        raise DeclarationError(f"{declared}: its parameters say what it reads, as in (status: str)")
    first = hints.get(parameters[0].name)
    if len(parameters) == 1 and first == Item:
        return "item", {}
    if len(parameters) == 1 and isinstance(first, type) and issubclass(first, Entity):
        if not issubclass(entity, first):
            raise DeclarationError(f"{declared}: it takes {first.__name__}, not {entity.__name__}")
        return "entity", {}
    names = attribute_names(entity)
    unknown = [parameter.name for parameter in parameters if parameter.name not in names]
    if unknown:
        raise DeclarationError(
            f"{declared}: {entity.__name__} has no field {', '.join(unknown)}; a function may also"
            f" take the item whole, as (item: Item) or ({entity.__name__.lower()}:"
            f" {entity.__name__})"
        )
    return "fields", {p.name: (names[p.name], p.default is p.empty) for p in parameters}


def _made(function: Callable[..., Any] | None) -> tuple[type[Entity], ...]:
    """Return the entities that a function's return annotation names, at any depth."""
    if function is None:
        return ()
    found: dict[type[Entity], None] = {}

    def look(hint: Any) -> None:
        if isinstance(hint, type) and issubclass(hint, Entity):
            found[hint] = None
        elif get_origin(hint) not in (Set, Remove, Delete):
            for inner in get_args(hint):
                look(inner)

    look(get_type_hints(function).get("return"))
    return tuple(found)


def _digest(
    function: Callable[..., Any] | None,
    reverse: Callable[..., Any] | None,
    said: tuple[Any, ...],
    entities: tuple[type[Entity], ...],
) -> str:
    """Return a digest that changes when the migration's meaning does; comments do not change it.

    For a migration in a file of its own the digest covers the whole file, also what it defines
    beside the function.
    """
    parts: list[str] = [repr(said)]
    for entity in entities:
        parts.append(entity.__name__)
        spec = entity.__entity__
        if spec is not None:
            parts += [spec.pk.text, spec.sk.text if spec.sk else ""]
    for one in (function, reverse):
        if one is not None:
            parts.append(_text(one, said[0]))
    return hashlib.blake2b("\0".join(parts).encode(), digest_size=8).hexdigest()


def _text(function: Callable[..., Any], id_: str) -> str:
    unwrapped = inspect.unwrap(function)
    file = Path(unwrapped.__code__.co_filename)
    try:
        if FILE.fullmatch(file.name) or file.stem == id_:
            return ast.dump(ast.parse(file.read_text()))
        return ast.dump(ast.parse(inspect.cleandoc(inspect.getsource(unwrapped))))
    except (OSError, TypeError, SyntaxError):
        code = unwrapped.__code__
        return repr((code.co_code, code.co_consts))
