"""A migration is dated by the table's clock: the machines of those who command it may be hours wrong."""

import random

import anyio
import pytest

from streamkit.core.table_shape import TableShape
from streamkit.core.tables import survey
from streamkit.migrate.operate import commands, steps
from streamkit.migrate.run.running import Runner
from streamkit.testing.loop import run_virtually
from streamkit.testing.world import World
from tests.simulation.migrating import OldOrder, Order, rekey
from tests.simulation.test_process_clocks import Ahead


@pytest.mark.parametrize("wrong", [3600.0, -3600.0])
def test_a_machine_whose_clock_is_wrong_begins_a_migration_that_follows_all_changes(wrong):
    """Its consumer was to start in the future, which no process could."""
    app = rekey()

    async def main():
        world, clock = World.create(1), Ahead(wrong)
        async with world.clients() as aws:
            await TableShape().create(aws.dynamodb, "Shop", (Order,), stream=True)
            schema = (await survey(app, aws)).table
            migration, began = app.migrations["0001"], world.clock.time()
            await commands.begin(app, aws, migration, segments=2, clock=clock)
            async with anyio.create_task_group() as group:
                runner = Runner(app, aws, migration, clock=clock, rng=random.Random(1))
                group.start_soon(lambda: runner.run(stay=True))
                while runner.state.phase != "ready":
                    await anyio.sleep(1)
                item = OldOrder(user="u", order_id="1").attributes(schema)
                await aws.dynamodb.put_item(TableName="Shop", Item=item)
                await anyio.sleep(60)
                await steps.set_limit(app, aws, "0001", commands.Limit(max_writes=5), clock=clock)
                await anyio.sleep(5)
                group.cancel_scope.cancel()
            moved = sum(one["SK"].get("S") == "#ORDER#1" for one in world.items("Shop"))
            return moved, [entry.at - began for entry in runner.state.audit], world

    moved, dated, _ = run_virtually(main, seed=1)
    assert moved == 1
    assert all(-1 <= at <= 600 for at in dated), dated
    assert dated == sorted(dated)
