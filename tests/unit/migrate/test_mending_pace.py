"""What people start beside a migration takes its part of the budget, and nothing on top of it."""

import random
from collections import Counter
from functools import cache

import anyio
import pytest

from streamkit import App
from streamkit.core.table_shape import TableShape
from streamkit.core.tables import survey
from streamkit.migrate.book.errors import ErrorBook, Reason
from streamkit.migrate.book.state_book import open_book
from streamkit.migrate.operate import commands
from streamkit.migrate.run.running import Runner
from streamkit.migrate.verify.mending import retry_errors
from streamkit.migrate.verify.verifying import verify_migration
from streamkit.progress.actions import CONTROL_PREFIX
from streamkit.testing.chance import repeatable
from streamkit.testing.loop import run_virtually
from streamkit.testing.world import Process, World
from tests.unit.migrate.test_migration_slices import Order, label

LIMITS = {"read": 40, "write": 30}
ITEMS, FAILED = 500, 60
ALONE = 10
"""Read units a second that the verification is given, less than its part of the budget."""
A_CALL = 6
"""Units of calls that end together in one second more than was set aside for them."""


async def beside_a_runner():
    """Run a migration, a verification and a retry at once; return their units by second."""
    app = App("shop", table="Shop")
    app.migration("0001", Order)(label)
    migration, world, units, ended = app.migrations["0001"], World.create(1), Counter(), []
    async with world.clients() as aws:
        await TableShape().create(aws.dynamodb, "Shop", (Order,), stream=True)
        schema = (await survey(app, aws)).table
        limit = commands.Limit(max_reads=LIMITS["read"], max_writes=LIMITS["write"])
        clock = world.clock
        await commands.begin(app, aws, migration, limit=limit, clock=clock)
        book = ErrorBook((await open_book(app, aws)).store, "0001")
        for number in range(ITEMS):
            item = Order(number=number).attributes(schema)
            await aws.dynamodb.put_item(TableName="Shop", Item=item)
            if number >= ITEMS - FAILED:
                key = {name: item[name] for name in schema.key_attributes}
                await book.add(key, Reason("transform", "it failed"), clock.time())
        await anyio.sleep(1200)
        began = clock.monotonic()

        def saw(sighting):
            for kind in LIMITS if sighting.call.service == "dynamodb" and sighting.actor else ():
                own = CONTROL_PREFIX in str(sighting.call.payload)  # it waits for nothing
                taken = 0 if own else sighting.call.units[kind]
                units[kind, int(clock.monotonic() - began), sighting.actor] += taken

        world.watchers.append(saw)

        async def run(mine):
            return await Runner(app, mine, migration, clock=clock, rng=random.Random(1)).run()

        async def verify(mine):
            return await verify_migration(app, mine, migration, max_reads=ALONE, clock=clock)

        async def retry(mine):
            return await retry_errors(app, mine, "0001", clock=clock)

        async def process(name, what):
            await anyio.sleep(0 if name == "run" else 3)
            async with world.clients(Process(name)) as mine:
                ended.append((name, await what(mine)))

        with anyio.fail_after(900):
            async with anyio.create_task_group() as group:
                group.start_soon(process, "run", run)
                group.start_soon(process, "verify", verify)
                group.start_soon(process, "retry", retry)
    return units, dict(ended)


@cache
def spent():
    """Return the units of each kind, by second, and by process; and what became of them."""
    with repeatable(1):
        units, ended = run_virtually(beside_a_runner, seed=1)
    found = {kind: {name: Counter() for name in ended} for kind in LIMITS}
    for (kind, second, name), taken in units.items():
        found[kind][name][second] += taken
    return found, ended


@pytest.mark.parametrize("kind", LIMITS)
def test_a_verification_and_a_retry_share_the_budget_of_the_migration(kind):
    units, ended = spent()
    assert (ended["retry"], ended["run"].phase) == ((FAILED, 0), "done")
    taken = sum(units[kind].values(), Counter())
    assert max(taken.values()) <= LIMITS[kind] + A_CALL, sorted(taken.items())
    together = set(units[kind]["retry"]) & set(units[kind]["run"])
    assert together


def test_a_verification_keeps_to_its_own_limit_below_its_part():
    units, ended = spent()
    assert ended["verify"].looked_at > ITEMS
    assert 0.9 * ALONE <= max(units["read"]["verify"].values()) <= ALONE + A_CALL
