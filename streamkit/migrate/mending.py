"""Mending: what people do about items that a migration could not bring into the new shape.

In: an app, a migration's number, and which items, by the names that their records have. Out: how
many are right now. What is waived stays as it is, and no verification minds it; the audit trail
says who waived what, and the record why.
"""

from collections.abc import Sequence

from streamkit.app import App
from streamkit.aws import Aws
from streamkit.clock import Clock, SystemClock
from streamkit.errors import ConfigurationError
from streamkit.kinds.migration import Migration
from streamkit.migrate.calls import Calls
from streamkit.migrate.commands import migration_of, open_book, operator, require_begun
from streamkit.migrate.errors import ErrorBook, ItemError
from streamkit.migrate.in_place import Tally
from streamkit.migrate.rate import Rate
from streamkit.migrate.state import State, StateBook
from streamkit.migrate.view import Place, View
from streamkit.migrate.work import Schemas, Work
from streamkit.surroundings import describe, survey

_NAMED = 5
"""Items that a line of the audit trail names at most."""


async def list_errors(app: App, aws: Aws, number: str) -> list[ItemError]:
    """Return the items that a migration could not bring into the new shape."""
    book = await open_book(app, aws)
    return await ErrorBook(book.store, migration_of(app, number).id).all()


async def retry_errors(
    app: App,
    aws: Aws,
    number: str,
    names: set[str] | None = None,
    *,
    clock: Clock | None = None,
) -> tuple[int, int]:
    """Try failed items again, all or these; return how many are right now, and how many not."""
    clock = clock or SystemClock()
    work, errors = await open_work(app, aws, migration_of(app, number), clock)
    right = wrong = 0
    for error in await errors.all():
        if names is not None and error.id not in names:
            continue
        tally = Tally()
        await work.retry(error.key, tally)
        if tally.errors:
            wrong += 1
        else:
            right += 1
            await errors.remove(error.id)
    return right, wrong


async def waive_errors(
    app: App,
    aws: Aws,
    number: str,
    names: set[str],
    reason: str,
    *,
    clock: Clock | None = None,
) -> int:
    """Let items stay as they are, for a reason; return how many.

    Raises:
        ConfigurationError: no reason was given.
    """
    if not reason.strip():
        raise ConfigurationError("say why: what is waived is never looked at again")
    book = await open_book(app, aws)
    errors = ErrorBook(book.store, migration_of(app, number).id)
    who = operator()
    waived = [name for name in sorted(names) if await errors.waive(name, f"{who}: {reason}")]
    if waived:
        at = (clock or SystemClock()).time()
        what = f"waived {', '.join(waived[:_NAMED])}{'...' if len(waived) > _NAMED else ''}"
        await book.change(number, lambda state: state.noted(at, who, what))
    return len(waived)


async def open_work(
    app: App, aws: Aws, migration: Migration, clock: Clock
) -> tuple[Work, ErrorBook]:
    """Return what does a migration's work on single items, as its state is now, and its errors.

    Raises:
        ConfigurationError: it was never begun, or a table is missing.
    """
    around = await survey(app, aws)
    book = StateBook(aws.dynamodb, around.control, app.name)
    errors = ErrorBook(book.store, migration.id)
    target = around.table
    if migration.to is not None:
        target = await describe(aws, migration.to, type_attribute=app.type_attribute)
    schemas = Schemas(around.table, target, app.entities)

    async def read() -> None:
        asked = clock.monotonic()
        view.adopt(await book.read(migration.id), asked)

    async def look_again(places: Sequence[Place]) -> None:
        for table, item in places:
            await work_under(view.state).look_again(table, item)

    def work_under(state: State) -> Work:
        calls = Calls(aws.dynamodb, Rate(clock), view.permit(state))
        return Work(app.name, migration, state, schemas, calls, errors, clock)

    view = View(State(migration.id), read, look_again, clock)
    await read()
    return work_under(require_begun(view.state)), errors
