"""Note that migrations are done: `stamp` one in a table, `squash` those that are done everywhere.

In: an app, and a migration's number. Out: of `stamp`, its state. Of `squash`, one file in place of
those of the migrations, `NUMBER_squashed.py`: the numbers stay taken, what `after=` and
`require_migrations=` say of them stays right, and a table that has not had them is still noticed.
On failure: `ConfigurationError`; nothing is changed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from streamkit.app import App
from streamkit.aws import Aws
from streamkit.errors import ConfigurationError
from streamkit.kinds.migration import Migration, rank
from streamkit.migrate.book.discovery import files_of
from streamkit.migrate.book.order import migration_of, order_of
from streamkit.migrate.book.refusals import require_free
from streamkit.migrate.book.state import State
from streamkit.migrate.book.state_book import open_book
from streamkit.migrate.operate.commands import segments_of
from streamkit.migrate.operate.scaffold import imports_of
from streamkit.progress.clock import Clock

_TEXT = """\"\"\"Migrations of {app} that are done in every table; they have no code any more.\"\"\"

{imports}

app.squashed({ids})
"""


async def stamp(
    app: App, aws: Aws, number: str, reason: str, *, clock: Clock | None = None
) -> State:
    """Note that a migration is done already by other means; no item is read or written.

    Raises:
        AlreadyBegun: it is under way, or done.
        ConfigurationError: there is no such migration, or it is not its turn.
    """
    book = await open_book(app, aws)
    said = await book.said(clock, f"stamp: {reason}")
    migration = None if number in app.done_everywhere else migration_of(app, number)
    order, total = order_of(app), await segments_of(app, aws)

    def stamped(state: State, others: Sequence[State]) -> State:
        if state.phase == "done" and any(one.what == said.what for one in state.audit):
            return state  # the same command, whose reply was lost
        require_free(state, again=True)
        done = replace(state, phase="done", paused=False, direction="forward", note="")
        # A rollback reads the whole table: it needs segments, and no list of a run before.
        whole: dict[str, Any] = {"keys_from": "", "keys_tag": "", "since": 0.0}
        done = replace(done, segments=state.segments or total, **whole)
        if migration is not None:
            order.require_turn(migration, others)
            done = replace(done, digest=migration.digest, mode=migration.mode)
        return done.noted(said)

    beside = [] if migration is None else order.beside(migration)
    return await book.change_beside(number, beside, stamped)


async def squash(app: App, aws: Aws, where: str, last: str) -> tuple[Path, list[Path]]:
    """Squash migrations, and return the file that was written and those that were deleted.

    `where` is the app as the command line names it, `module:app`. Those of lower numbers than the
    `last` one, and those that they need, are squashed with it.

    Raises:
        ConfigurationError: one of them is not done in this table, may be repeated, or has no file
            of its own; or there is no such migration, or it has a name.
    """
    if not last.isdecimal():
        raise ConfigurationError(f"{last}: name the last number, as in --to 0004")
    if last in app.done_everywhere:
        raise ConfigurationError(f"migration {last} was squashed before: name a later number")
    ids, files = order_of(app).until(last), files_of(app)
    for state in await (await open_book(app, aws)).read_all(ids):
        if state.phase != "done":
            raise ConfigurationError(
                f"migration {state.id} is {state.phase!r} in {app.table}: bring it to its end, or"
                " name a lower number"
            )
        _require_file(app.migrations[state.id], files)
    return _write(app, where, ids, files)


def _require_file(migration: Migration, files: Mapping[str, Path]) -> None:
    """Refuse to squash what has no file of its own, or has to stay.

    Raises:
        ConfigurationError: it may be repeated, or has no file.
    """
    if migration.repeat:
        raise ConfigurationError(
            f"{migration.declared}: it may be repeated, so its code has to stay"
        )
    if Path(migration.declared.file).resolve() != files.get(migration.id):
        raise ConfigurationError(
            f"{migration.declared}: only migrations in files of their own can be squashed"
        )


def _write(
    app: App, where: str, ids: Sequence[str], files: Mapping[str, Path]
) -> tuple[Path, list[Path]]:
    """Write the file of squashed migrations, then delete theirs and that of an earlier squash.

    Other apps may share the folder, and the name of a migration may end in `squashed`, too.
    """
    last = max((id_ for id_ in ids if id_.isdecimal()), key=int)
    own = [(id_, files[id_]) for id_ in app.done_everywhere if id_ in files]
    old = [path for id_, path in own if path.stem == f"{id_}_squashed"]
    every = sorted({*app.done_everywhere, *ids}, key=rank)
    path = files[last].with_name(f"{last}_squashed.py")
    gone = [one for one in (*old, *(files[id_] for id_ in ids)) if one != path]
    names = ", ".join(f'"{id_}"' for id_ in every)
    lines = imports_of(app, where.partition(":")[0])
    path.write_text(_TEXT.format(app=app.name, imports="\n".join(lines), ids=names))
    for one in gone:
        one.unlink()
    return path, gone
