"""Read a migration of its function: what it takes, what it makes, and whether its options fit.

In: a function, its entity and the options of its declaration. Out: a `Migration`. On failure:
`DeclarationError` with the line.
"""

import ast
import hashlib
import inspect
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

from streamkit.effects import Delete, Remove, Set
from streamkit.entity import Entity, Index, attribute_names, spec_of
from streamkit.errors import DeclarationError
from streamkit.kinds.aggregate.aggregate import Aggregate
from streamkit.kinds.migration import FILE, Item, Migration, MigrationOptions, Mode, Takes
from streamkit.kinds.moving import unfit_to_settle
from streamkit.model.declaration import Declaration
from streamkit.stream.decode.keyed import key_reader

_MERGED_MAX = 97
"""Items that become one: a transaction holds all of them beside it, their record and its gate."""
_MEANT = {
    "collect": ", as in lambda player: Bio.query(player=player.player)",
    "source": ", as in lambda bio: Player.key(player=bio.player)",
}
"""What to give instead, by option."""
_ID = re.compile(r"\d{3,}|[a-z][a-z0-9_]*")


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
    declared = (
        Declaration.here(f"migration {id!r}") if function is None else Declaration.of(function)
    )
    for problem in _no_functions(options):
        raise DeclarationError(f"{declared}: {problem}")
    merged = _merged(function, declared) if options.mode == "merge" else {}
    takes, parameters = ("sources", {}) if merged else _signature(function, entity, declared)
    index = options.index and options.index.name
    terms: tuple[Any, ...] = (id, options.mode, options.to, options.conflict, index)
    if options.settle != "field" or options.counters:  # digests without these are stored
        terms = (*terms, options.settle, sorted(options.counters.items()))
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
    if options.reverse is not None and options.mode in ("in_place", "touch"):
        # A rollback runs it as a migration, and is no moment to find out that it does not fit.
        read_migration(id, entity, options.reverse, MigrationOptions(mode=options.mode))
    return migration


def _no_functions(options: MigrationOptions) -> Iterator[str]:
    """Yield which options are no functions, or are for another mode."""
    if options.mode != "split" and (options.collect, options.source) != (None, None):
        yield (
            "collect= and source= are for items that are split"
            + "; a merge finds its items by their keys, and takes each as a parameter, as in"
            " (profile: Profile | None, settings: Settings | None)" * (options.mode == "merge")
        )
    for name in ("reverse", "collect", "source", "check"):
        given = getattr(options, name)
        if given is not None and not callable(given):
            yield f"{name}= takes a function, not {type(given).__name__}{_MEANT.get(name, '')}"
    if not isinstance(options.index, Index | None):
        yield f"index={options.index!r}: it is an Index(...) of the entity"


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
    yield from unfit_to_settle(migration)


def _unfit_to_merge(migration: Migration) -> Iterator[str]:
    """Yield why several items cannot become one."""
    sources, target = migration.sources, migration.target
    if migration.reverse is None or len(migration.makes) != 1 or target in sources:
        yield (
            "its return annotation names the one entity that they become, another one; and"
            " reverse= makes them again from it: it says what was meant where one is written later"
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


def _unfit_to_undo(migration: Migration) -> Iterator[str]:
    """Yield what a split lacks whose parts are to become one item again."""
    assert migration.reverse is not None  # noqa: S101 - what this is for
    target = migration.target
    names = migration.entity.__name__, "Part" if target is None else target.__name__
    item, part = (name.lower() for name in names)
    lacks = [
        *([f"collect=lambda {item}: {names[1]}.query(...)"] * (migration.collect is None)),
        *([f"source=lambda {part}: {names[0]}.key(...)"] * (migration.source is None)),
    ]
    if lacks:
        yield (
            "reverse= of a split needs the query that finds an item's parts, and the key of a"
            f" part's item: add {', '.join(lacks)}"
        )
    if len(migration.makes) > 1:
        made = ", ".join(one.__name__ for one in migration.makes)
        yield (
            f"reverse= of a split takes parts of one entity, and the function makes {made}: make"
            " one of these, or split off one after the other, in a migration each"
        )
    try:
        inspect.signature(migration.reverse).bind(None, None)
    except TypeError:
        yield (
            "reverse= of a split takes the item and the list of its parts, as in"
            f" ({item}: {names[0]}, parts: list[{names[1]}]) -> Set[{names[0]}]"
        )


def _misplaced(migration: Migration) -> Iterator[str]:
    """Yield the options that do not go with the mode."""
    mode, moves, pairs = migration.mode, migration.moves, migration.is_pairs
    reverses = migration.reverse is not None
    if mode == "split" and reverses:
        yield from _unfit_to_undo(migration)
    if reverses and pairs and migration.target is None:
        yield "its return annotation says which entity it makes: reverse= is given that"
    if moves and migration.conflict == "keep":
        yield (
            "an item that moves would be lost where another one is kept in its place;"
            " conflict='keep' is for mode='derive'"
        )
    if mode != "derive" and migration.owner is not None:
        yield "owner= goes with mode='derive'"
    if reverses and pairs and not moves:
        yield "what comes beside an item is deleted on rollback; leave reverse= out"
    if mode != "touch" and migration.index is not None:
        yield "index= is of mode='touch'; others are begun with --keys-from index:NAME"
    if migration.repeat and (moves or mode == "aggregate"):
        yield "repeat= is for mode='in_place', 'touch' or 'derive'"
    if mode not in ("rekey", "touch") and migration.to is not None:
        yield "to= another table goes with mode='rekey' or mode='touch'"


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
