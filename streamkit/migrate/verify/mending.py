"""Retry or waive the items that a migration could not bring into the new shape.

In: an app, a migration's number, and which items, by the names of their records. Out: how many are
right now. A waived item stays as it is, and verifications ignore it; the audit says who waived
what, and the record why.
"""

from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress

import anyio

from streamkit.app import App
from streamkit.aws import Aws, AwsError
from streamkit.errors import ConfigurationError, some_of
from streamkit.fleet.members import new_worker_name
from streamkit.kinds.migration import Migration
from streamkit.migrate.book.errors import DECIDED, ErrorBook, ItemError, error_id
from streamkit.migrate.book.limits import Limit, Share
from streamkit.migrate.book.order import migration_of
from streamkit.migrate.book.refusals import require_latest
from streamkit.migrate.book.state_book import open_book
from streamkit.migrate.book.tallies import Tally
from streamkit.migrate.families.settlement import Take
from streamkit.migrate.items.sources import Sources
from streamkit.migrate.run.opening import Opened, Present, open_migration, survey_for
from streamkit.migrate.run.work import MigrationWork
from streamkit.migrate.sending.rate import Rate
from streamkit.migrate.sending.view import FOLLOW_SECONDS
from streamkit.progress.actions import Wire
from streamkit.progress.activity import task_group
from streamkit.progress.clock import Clock, SystemClock
from streamkit.progress.operation import AuditEntry, operator


async def list_errors(app: App, aws: Aws, number: str) -> list[ItemError]:
    """Return the items that a migration could not bring into the new shape."""
    book = await open_book(app, aws)
    return await ErrorBook(book.store, migration_of(app, number).id).all()


async def names_of(app: App, aws: Aws, number: str, keys: Iterable[Mapping[str, Wire]]) -> set[str]:
    """Return the names that items with these keys have among the errors.

    Of several items that become one, each has the name of them all.

    Raises:
        ConfigurationError: one is not a key of the table.
    """
    _, schemas = await survey_for(app, aws, migration_of(app, number))
    table = schemas.source
    sources, found = Sources(migration_of(app, number), table, schemas.entities), set[str]()
    for key in keys:
        if key.keys() != table.key_attributes:
            own = ", ".join(sorted(table.key_attributes))
            raise ConfigurationError(f"the key of an item of table {table.name} is {own}")
        found.add(error_id(sources.family(key)))
    return found


async def retry_errors(
    app: App,
    aws: Aws,
    number: str,
    names: Collection[str] | None = None,
    *,
    kind: str | None = None,
    take: Take = "",
    clock: Clock | None = None,
) -> tuple[int, int]:
    """Retry failed items, all, these or of a kind; return how many are right now, how many not.

    An item whose rewrites were reverted each time is looked at again after some seconds. With
    `take` a person decides for the old or the new side of these items, as they were shown last.

    Raises:
        ConfigurationError: items were written since they were shown, while all others were decided;
            or a later migration of the same items was begun.
    """
    clock = clock or SystemClock()
    async with open_work(app, aws, migration_of(app, number), clock) as (opened, work):
        await require_latest(app, opened.book, work.migration)
        tried = chosen(await opened.errors.all(), names, kind)
        return await _retry(work, opened.errors, tried, take)


def chosen(
    errors: Sequence[ItemError], names: Collection[str] | None, kind: str | None
) -> list[ItemError]:
    """Return the errors with these names, or all, and of these those of a kind."""
    named = [one for one in errors if names is None or one.id in names]
    return [one for one in named if kind in (None, one.kind)]


async def _retry(
    work: MigrationWork, errors: ErrorBook, tried: Sequence[ItemError], take: Take
) -> tuple[int, int]:
    right, newer = [], []
    for error in tried:
        if not take or error.kind not in DECIDED:
            tally: Tally | None = await work.retry(error.key)
        else:
            tally = await work.families.take(error.key, take, error.shown)
        if tally is None:
            newer.append(error.id)
        elif not tally.errors:
            right.append(error)
    doubtful = [error for error in right if error.kind == "ping_pong"]
    if doubtful:
        stays = await work.in_place.stays([error.key for error in doubtful])
        for error, stayed in zip(doubtful, stays, strict=True):
            if not stayed:
                right.remove(error)
    right = [error for error in right if await errors.remove(error)]
    if newer:
        raise ConfigurationError(
            f"written since they were shown, and left as they are: {some_of(newer)};"
            " look at them again with `streamkit migrate errors retry` and `errors show`"
            + (f" ({len(right)} others are right now)" if right else "")
        )
    return len(right), len(tried) - len(right)


async def waive_errors(
    app: App,
    aws: Aws,
    number: str,
    names: Collection[str] | None,
    reason: str,
    *,
    kind: str | None = None,
    clock: Clock | None = None,
) -> int:
    """Waive items, these, all that have failed or those of a kind, for a reason; return how many.

    What both sides have written is not waived: neither side would be right.

    Raises:
        ConfigurationError: no reason was given.
    """
    if not reason.strip():
        raise ConfigurationError("give a reason: a waived item is never checked again")
    book = await open_book(app, aws)
    errors = ErrorBook(book.store, migration_of(app, number).id)
    who = operator()
    found = chosen(await errors.open(), names, kind)
    names = {error.id for error in found if error.kind not in DECIDED}
    waived = [name for name in sorted(names) if await errors.waive(name, f"{who}: {reason}")]
    if waived:
        at = await book.store.time(clock or SystemClock())
        what = f"waived {some_of(waived)}"
        await book.change(number, lambda state: state.noted(AuditEntry(at, who, what)))
    return len(waived)


@asynccontextmanager
async def open_work(
    app: App, aws: Aws, migration: Migration, clock: Clock, *, most: Limit | None = None
) -> AsyncIterator[tuple[Opened, MigrationWork]]:
    """Open a migration's work on single items, in its present state.

    Meanwhile it takes its share of the migration's limits, beside the processes that run it, and
    `most` at most.

    Raises:
        ConfigurationError: it was never begun, a table is missing, or an earlier release began it.
    """
    rate = Rate(clock, share=Share(0.0, 0.0), most=most or Limit())
    opened = await open_migration(app, aws, migration, rate, clock, new_worker_name())
    present = Present(opened)

    async def follow() -> None:
        while True:
            await anyio.sleep(FOLLOW_SECONDS)
            with suppress(*AwsError):  # nothing is written under a state that is too old
                await present.read()

    work = await present.begin()
    async with task_group() as group:
        group.start_soon(follow)
        group.start_soon(opened.shares.keep, rate)
        yield opened, work
        group.cancel_scope.cancel()
