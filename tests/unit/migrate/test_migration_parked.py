"""Changes of a migration's own consumer that are parked are shown, and can be tried again."""

import random

import anyio
import pytest

from streamkit import PoisonChange
from streamkit.cli.migration_views import progress_line
from streamkit.core.table_shape import TableShape
from streamkit.core.tables import survey
from streamkit.migrate.operate import commands
from streamkit.migrate.operate.progress import Progress, ProgressReader
from streamkit.migrate.operate.status import line_of, parked_text
from streamkit.migrate.run.live import LiveWork
from streamkit.migrate.run.running import Runner
from streamkit.operate.redrive_followed import redrive_followed
from streamkit.testing.loop import run_virtually
from streamkit.testing.world import World
from tests.simulation.migrating import OldOrder, Order, rekey


async def failing(self, change):
    """Fail, as a defect of streamkit would."""
    raise PoisonChange("the secret of u")


def at_a_stuck_change(test):
    """Run a test where a change of old code is stuck; the migration rests in `ready`."""
    app = rekey()

    async def main():
        world = World.create(1)
        async with world.clients() as aws:
            await TableShape().create(aws.dynamodb, "Shop", (Order,), stream=True)
            schema = (await survey(app, aws)).table
            migration, clock = app.migrations["0001"], world.clock
            await commands.begin(app, aws, migration, segments=2, clock=clock)
            async with anyio.create_task_group() as group:
                runner = Runner(app, aws, migration, clock=clock, rng=random.Random(1))
                group.start_soon(lambda: runner.run(stay=True))
                while runner.state.phase != "ready":
                    await anyio.sleep(1)
                with pytest.MonkeyPatch.context() as patch:
                    patch.setattr(LiveWork, "take", failing)
                    item = OldOrder(user="u", order_id="1").attributes(schema)
                    await aws.dynamodb.put_item(TableName="Shop", Item=item)
                    await anyio.sleep(30)
                    found = await test(app, aws, world)
                group.cancel_scope.cancel()
            return (
                found,
                await redrive_followed(app, aws, "0001", clock=clock),
                await after(app, aws, world),
            )

    return run_virtually(main, seed=1)


async def after(app, aws, world):
    now = await ProgressReader(app, aws, world.clock).read("0001")
    return now, sum(item["SK"].get("S") == "#ORDER#1" for item in world.items("Shop"))


def test_a_change_that_is_stuck_is_shown_with_its_error_and_the_command_that_tries_it_again():
    async def test(app, aws, world):
        again = await redrive_followed(app, aws, "0001", clock=world.clock)
        return again, await after(app, aws, world)

    (again, (before, early)), done, (now, late) = at_a_stuck_change(test)
    assert (before.parked, before.stuck, early) == (1, {"PoisonChange": 1}, 0)
    assert [one.failure.kind for one in again] == ["PoisonChange"]
    for shown in (progress_line(before), line_of(before).note):
        assert "1 parked changes of its own consumer are stuck (1 PoisonChange)" in shown
        assert "streamkit migrate errors retry APP 0001" in shown
        assert "secret" not in shown
    assert [(one.done, one.failure) for one in done] == [(1, None)]
    assert (now.parked, now.stuck, late) == (0, {}, 1)
    assert "parked" not in progress_line(now)


def test_changes_that_are_tried_again_by_themselves_are_told_from_those_that_are_not():
    now = Progress("0001", "in_place", "scanning", "run", "forward", "", parked=3)
    assert parked_text(now) == "3 parked changes of its own consumer are tried again by themselves"
