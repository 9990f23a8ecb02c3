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
    """Try failed items again, all or these; return how many are right now, and how many not.

    One that was turned back each time is looked at again after some seconds.
    """
    clock = clock or SystemClock()
    work, errors = await open_work(app, aws, migration_of(app, number), clock)
    tried = [one for one in await errors.all() if names is None or one.id in names]
    right = []
    for error in tried:
        tally = Tally()
        await work.retry(error.key, tally, error.kind)
        if not tally.errors:
            right.append(error)
    doubtful = [error for error in right if error.kind == "ping_pong"]
    if doubtful:
        stays = await work.in_place.stays([error.key for error in doubtful])
        for error, stayed in zip(doubtful, stays, strict=True):
            if not stayed:
                right.remove(error)
    for error in right:
        await errors.remove(error.id)
    return len(right), len(tried) - len(right)


async def waive_errors(
    app: App,
    aws: Aws,
    number: str,
    names: set[str] | None,
    reason: str,
    *,
    clock: Clock | None = None,
) -> int:
    """Let items stay as they are, these or all that have failed, for a reason; return how many.

    Raises:
        ConfigurationError: no reason was given.
    """
    if not reason.strip():
        raise ConfigurationError("say why: what is waived is never looked at again")
    book = await open_book(app, aws)
    errors = ErrorBook(book.store, migration_of(app, number).id)
    who = operator()
    if names is None:
        names = {error.id for error in await errors.open()}
    waived = [name for name in sorted(names) if await errors.waive(name, f"{who}: {reason}")]
    if waived:
        at = (clock or SystemClock()).time()
        more = f" and {len(waived) - _NAMED} more" if len(waived) > _NAMED else ""
        what = f"waived {', '.join(waived[:_NAMED])}{more}"
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
    schemas = Schemas(around.table, target, app.known)

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
