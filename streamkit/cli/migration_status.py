"""`streamkit migrate status`: the progress of an app's migrations, once or repeatedly."""

from collections.abc import Sequence
from functools import partial

from streamkit.app import App
from streamkit.aws import Aws
from streamkit.cli.migration_run import show
from streamkit.cli.migration_views import (
    describe_state,
    old_write_lines,
    progress_line,
    progress_parts,
)
from streamkit.cli.printing import print_json, print_report, say, table, tell
from streamkit.cli.running import looks_at
from streamkit.migrate.book.old_writes import read_old_writes
from streamkit.migrate.book.order import migration_of, order_of
from streamkit.migrate.book.refusals import changed
from streamkit.migrate.book.state import ENDED, SWITCHED
from streamkit.migrate.book.state_book import TO_DO, known_to, open_book
from streamkit.migrate.operate.commands import Listed
from streamkit.migrate.operate.progress import ProgressReader
from streamkit.migrate.plan.indexes import waits_for_indexes
from streamkit.migrate.run.opening import survey_for

_NOT_HELD = frozenset({"new", *SWITCHED, *ENDED})
"""The phases in which indexes that are being created hold nothing back."""


def describe_list(found: Sequence[Listed]) -> None:
    """Print the migrations of an app."""
    heads = ("migration", "name", "mode", "entity", "standing", "phase", "declared")
    rows = [
        (o.id, o.name, o.mode, o.entity, o.standing, o.phase, o.declared.partition(" ")[2])
        for o in found
    ]
    table(heads, rows)
    for one in found:
        if one.standing == "no file":
            say(f"migration {one.id} is {one.phase!r}, and {TO_DO}")
        elif one.standing == "changed":
            say(changed(one.id))


async def show_all(app: App, aws: Aws, *, as_json: bool) -> None:
    """Print a line for each migration of an app."""
    reader = ProgressReader(app, aws)
    found = await reader.read_absent(known_to(app))
    found += [await reader.read(number) for number in order_of(app).ids]
    if as_json:
        print_json([one.to_dict() for one in found])
        return
    if not found:
        say(f"{app.name} has no migration")
    for one in found:
        say(progress_line(one))


async def show_one(app: App, aws: Aws, number: str, *, as_json: bool) -> None:
    """Print the progress of one migration."""
    if number not in app.migrations:
        await _show_absent(app, aws, number, as_json=as_json)
        return
    now = await ProgressReader(app, aws).read(number, lag=True)
    state = await (await open_book(app, aws)).read(number)
    written = await read_old_writes(app, aws, number)
    if as_json:
        more = {"verified": state.verified, "run": state.run}
        print_json({**now.to_dict(), **more, "old_writes": [one.to_dict() for one in written]})
        return
    describe_state(state, now)
    if state.phase not in _NOT_HELD and state.direction == "forward":
        _, schemas = await survey_for(app, aws, migration_of(app, number))
        for text in waits_for_indexes(migration_of(app, number), (schemas.source, schemas.target)):
            say(text)
    for line in old_write_lines(written):
        say(line)


async def _show_absent(app: App, aws: Aws, number: str, *, as_json: bool) -> None:
    """Print the progress of a migration under way of which this release has no file.

    Raises:
        ConfigurationError: there is no such migration.
    """
    found = await ProgressReader(app, aws).read_absent(known_to(app))
    now = next((one for one in found if one.migration == number), None)
    if now is None:
        migration_of(app, number)
    else:
        print_report(now, lambda one: say("\n".join(progress_parts(one))), as_json=as_json)


async def tell_old_writes(app: App, aws: Aws, number: str) -> None:
    """Say on stderr what was written in the old shape, before a step that old code must know."""
    for line in old_write_lines(await read_old_writes(app, aws, number)):
        tell(line)


async def watch_one(
    app: App, aws: Aws, number: str, every: float, looks: int | None, *, as_json: bool
) -> None:
    """Print the progress every `every` seconds: `looks` times, or for ever if that is None."""
    read = partial(ProgressReader(app, aws).read, number, lag=True)
    await show(looks_at(read, every, looks), as_json=as_json)
