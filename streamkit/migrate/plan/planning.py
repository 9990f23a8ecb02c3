"""Plan a migration: what it would do, use and break, from a sample; nothing is written.

In: an app, one of its migrations, and how much of the table to read. Out: a `MigrationPlan`: how
many items it concerns and how many are not right yet, units and money by step, the time with a
budget, and problems: of the table, of the function (see `dry_run`), and targets whose places are
taken or that two items would both become. Numbers from a sample have an error.
"""

import random

from streamkit.app import App
from streamkit.archive.answers import require_answer
from streamkit.aws import Aws
from streamkit.errors import ConfigurationError
from streamkit.kinds.migration import Migration
from streamkit.migrate.book.limits import NO_LIMIT, Limit
from streamkit.migrate.book.order import order_of
from streamkit.migrate.book.state_book import open_book
from streamkit.migrate.plan.indexes import waits_for_indexes
from streamkit.migrate.plan.problems import Problems, problems_of_table
from streamkit.migrate.plan.sample_look import MigrationPlan, SampleLook
from streamkit.migrate.run.chosen import open_chosen
from streamkit.migrate.run.opening import survey_for
from streamkit.migrate.run.sampling import Wanted, sample_of
from streamkit.migrate.sending.calls import Calls
from streamkit.migrate.sending.rate import Rate
from streamkit.progress.clock import Clock, SystemClock

SAMPLE = Wanted(items=1000)
"""The sample that is read by default."""


async def plan_migration(  # noqa: PLR0913 - each says one thing of the plan
    app: App,
    aws: Aws,
    migration: Migration,
    *,
    sample: Wanted = SAMPLE,
    budget: Limit = NO_LIMIT,
    diffs: int = 0,
    show_keys: bool = False,
    keys_from: str = "",
    clock: Clock | None = None,
    rng: random.Random | None = None,
) -> MigrationPlan:
    """Return what a migration would do; the time is computed with a `budget`.

    Of so many `diffs` it shows what changes, which is item data, for people who may see it; with
    `show_keys` these items are named by their keys, not by a hash. `keys_from` says which items it
    is about, as `begin` takes it.

    Raises:
        ConfigurationError: the table is missing, or may not be read, or `keys_from` is wrong.
    """
    clock, rng = clock or SystemClock(), rng or random.Random()
    _, schemas = await survey_for(app, aws, migration)
    calls = Calls(aws.dynamodb, Rate(clock), (schemas.source, schemas.target))
    look = SampleLook(
        migration,
        schemas,
        calls,
        Problems(await problems_of_table(aws, schemas, migration)),
        diffs,
        show_keys=show_keys,
        now=clock.time(),
        keys_from=keys_from,
    )
    if keys_from:
        await require_answer(keys_from)
        async with open_chosen(keys_from, migration, schemas.source, calls) as chosen:
            await chosen.pages.check(clock.time())
            taken = await chosen.pages.sample(sample, rng)
    else:
        taken = await sample_of(aws, app.table, sample, rng)
    for text in waits_for_indexes(migration, (schemas.source, schemas.target)):
        look.problems.warn("index", text)
    await _note_state(app, aws, migration, look.problems)
    for part in taken.parts:
        await look.at(part)
    return look.plan(taken, budget)


async def _note_state(app: App, aws: Aws, migration: Migration, problems: Problems) -> None:
    """Note what may be different from the sample when the migration runs."""
    book = await open_book(app, aws)
    state = await book.read(migration.id)
    if state.phase != "new":
        problems.warn("begun", f"it was begun already, and is {state.phase!r}")
    try:
        order = order_of(app)
        order.require_turn(migration, await book.read_all(order.beside(migration)))
    except ConfigurationError as error:
        problems.warn("order", str(error))
