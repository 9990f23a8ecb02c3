"""A process of a migration stands still while others take it through phases, and then goes on.

The sleeper falls asleep at one of its writes of an item, which reaches the table only when it wakes
up; or right after one, so that it does not know of it. Meanwhile people and another process take the
migration further than the sleeper knows.
"""

import random
from dataclasses import dataclass
from functools import partial

import anyio
import pytest

from streamkit import App, TableShape
from streamkit.core.table_shape import entities_of
from streamkit.core.tables import survey
from streamkit.migrate.operate import commands
from streamkit.migrate.run.passing import PassPace
from streamkit.migrate.run.running import Runner
from streamkit.model.copies import COPY
from streamkit.progress.actions import CONTROL_PREFIX
from streamkit.progress.clock import CorrectedClock
from streamkit.testing.loop import run_virtually
from streamkit.testing.migrators import SETTINGS
from streamkit.testing.sightings import WRITES
from streamkit.testing.world import Process, World
from tests.simulation import migrating
from tests.simulation.migrating import OldOrder, Order
from tests.simulation.stepping import AT_ONCE, step_of

ITEMS = 4


class Sleeper(Process):
    """Falls asleep once, at the first write of an item while the migration is in a phase."""

    def __init__(self, phase, moment):
        super().__init__("sleeper")
        self.phase, self.moment = phase, moment
        self.now = ""
        self.asleep = anyio.Event()

    async def intercept(self, call, apply):
        payload = bytes(call.payload).decode()
        wanted = call.operation in WRITES and self.now == self.phase
        if (
            wanted
            and not self.asleep.is_set()
            and (CONTROL_PREFIX not in payload or "#pair#" in payload)
        ):
            self.asleep.set()
            if self.moment == "after":
                reply = apply()
                self.freeze()
                await self._runs()
                return reply
            self.freeze()
        return await super().intercept(call, apply)


@dataclass
class Site:
    """A table, a migration, and the processes that run it; their clocks are `ahead` by seconds."""

    app: App
    world: World
    aws: object
    schema: object
    ahead: float = 0.0

    @property
    def clock(self):
        return CorrectedClock(self.world.clock, self.ahead)

    async def put(self, *entities):
        for entity in entities:
            item = entity.attributes(self.schema)
            await self.aws.dynamodb.put_item(TableName=self.schema.name, Item=item)

    async def step(self, name):
        clock = self.clock
        if name == "apply":
            one = self.app.migrations["0001"]
            await commands.begin(self.app, self.aws, one, segments=2, clock=clock)
        else:
            await step_of(name)(self.app, self.aws, "0001", clock=clock)

    async def live(self, process, *, stay):
        """Run the migration in a process."""
        async with self.world.clients(process) as aws:
            one = self.app.migrations["0001"]
            runner = Runner(
                self.app, aws, one, SETTINGS, self.clock, random.Random(1), PassPace(2, 10, 1)
            )
            if isinstance(process, Sleeper):
                adopt = runner._adopting

                def adopted(state):
                    process.now = state.phase
                    adopt(state)

                runner._adopting = adopted
            return await runner.run(stay=stay)

    def left(self):
        """Return the items of the application, in wire form."""
        items = self.world.items(self.schema.name)
        return [i for i in items if not i["PK"]["S"].startswith(CONTROL_PREFIX)]


async def slept_through(app, items, before, phase, after, *, moment="before", written=(), last=()):
    """Let a process fall asleep in a phase, others go on, and it wake up; return what is there."""
    world, sleeper = World.create(2), Sleeper(phase, moment)
    async with world.clients() as aws:
        await TableShape().create(aws.dynamodb, app.table, entities_of(app))
        site = Site(app, world, aws, (await survey(app, aws)).table)
        await site.put(*items)
        await anyio.sleep(900)  # so that the capture sees none of it
        for name in before[:-1]:
            await site.step(name)
            await site.live(Process("early"), stay=False)
        await site.step(before[-1])
        async with anyio.create_task_group() as group:
            group.start_soon(partial(site.live, sleeper, stay=bool(written)))
            if written:
                while sleeper.now != phase:
                    await anyio.sleep(1)
                await site.put(*written)
            with anyio.fail_after(600):
                await sleeper.asleep.wait()
            await anyio.sleep(60)
            state = await site.live(Process("awake"), stay=False)
            for name in after:
                await site.step(name)
                state = await site.live(Process(name), stay=False)
            await site.put(*last)
            await anyio.sleep(20)
            sleeper.thaw()
            await anyio.sleep(60)
            group.cancel_scope.cancel()
        return site.left(), state


def orders(kind):
    return [kind(user="ann", order_id=f"{number}") for number in range(ITEMS)]


def of(items, start):
    return [item for item in items if item["SK"]["S"].startswith(start)]


def run(*arguments, **named):
    return run_virtually(partial(slept_through, *arguments, **named))


def test_what_was_taken_back_is_not_migrated_by_who_wakes_up():
    items, state = run(migrating.in_place(), orders(Order), ["apply"], "scanning", ["rollback"])
    assert state.phase == "rolled back"
    assert not [item for item in items if "status_day" in item]


def test_what_new_code_writes_after_the_end_is_not_migrated_by_who_wakes_up():
    """It has changed what the migration sets, and nothing that the migration reads."""
    last = [Order(user="ann", order_id=f"{n}", status_day="by new code") for n in range(ITEMS)]
    items, state = run(migrating.in_place(), orders(Order), ["apply"], "scanning", [], last=last)
    assert state.phase == "done"
    assert {item["status_day"]["S"] for item in items} == {"by new code"}


@pytest.mark.parametrize(("phase", "moment"), [("scanning", "before"), ("switching", "after")])
def test_what_was_taken_back_is_neither_copied_nor_turned_by_who_wakes_up(phase, moment):
    before = ["apply", "switch"][: 1 + (phase == "switching")]
    items, state = run(
        migrating.rekey(), orders(OldOrder), before, phase, ["rollback"], moment=moment
    )
    assert state.phase == "rolled back"
    assert len(of(items, "ORDER")) == ITEMS
    assert not of(items, "#ORDER")
    assert not [item for item in items if COPY in item]


@pytest.mark.parametrize(
    ("phase", "before", "after", "moment"),
    [
        ("scanning", ["apply"], ["switch", "contract"], "before"),
        ("soaking", ["apply", "switch"], ["contract"], "before"),
        ("soaking", ["apply", "switch"], ["contract"], "after"),
        ("contracting", ["apply", "switch", "contract"], [], "before"),
        ("contracting", ["apply", "switch", AT_ONCE], [], "before"),
        ("contracting", ["apply", "switch", AT_ONCE], [], "after"),
        ("soaking", ["apply", "switch"], [AT_ONCE], "before"),
        ("scanning", ["apply"], ["switch", AT_ONCE], "before"),
    ],
)
def test_what_was_moved_is_not_brought_back_by_who_wakes_up(phase, before, after, moment):
    written = [Order(user="eve", order_id="9")] if phase == "soaking" else []
    items, state = run(
        migrating.rekey(), orders(OldOrder), before, phase, after, written=written, moment=moment
    )
    assert state.phase == "done"
    assert len(of(items, "#ORDER")) == ITEMS + len(written)
    assert not of(items, "ORDER")
    assert not [item for item in items if COPY in item]


# -- nobody looked ---------------------------------------------------------------------------------


async def soaked_unseen(app, other):
    """Write to targets for longer than the stream remembers, while no process runs; then go back."""
    world = World.create(2)
    async with world.clients() as aws:
        for name in (app.table, other):
            await TableShape().create(aws.dynamodb, name, entities_of(app))
        site = Site(app, world, aws, (await survey(app, aws)).table)
        await site.put(*orders(OldOrder))
        await anyio.sleep(900)
        for name in ("apply", "switch"):
            await site.step(name)
            await site.live(Process(name), stay=False)
        there = app.migrations["0001"].to or app.table
        for order in (Order(user="eve", order_id="9"), Order(user="ann", order_id="1", status="S")):
            item = order.attributes(site.schema)
            await aws.dynamodb.put_item(TableName=there, Item=item)
        await anyio.sleep(26 * 3600)
        await site.step("rollback")
        state = await site.live(Process("rollback"), stay=False)
        return site.left(), world.items(other), state


@pytest.mark.parametrize("to", [None, "New"])
def test_what_was_written_while_nobody_ran_a_migration_comes_back_by_a_rollback(to):
    app = migrating.rekey()
    app.migrations.clear()
    named = {"to": to} if to else {}
    app.migration("0001", OldOrder, mode="rekey", reverse=migrating.moved_back, **named)(
        migrating.moved
    )
    items, there, state = run_virtually(partial(soaked_unseen, app, "New"))
    assert state.phase == "rolled back"
    found = {item["order_id"]["S"]: item["status"]["S"] for item in of(items, "ORDER")}
    assert found == {f"{number}": "NEW" for number in range(ITEMS)} | {"9": "NEW", "1": "S"}
    assert not there
    assert not of(items, "#ORDER")
    assert not [item for item in items if COPY in item]


class Slow(Process):
    """Reads its stream in its own good time."""

    async def intercept(self, call, apply):
        if call.operation == "GetRecords":
            await anyio.sleep(10)
        return await super().intercept(call, apply)


async def deleted_unseen():
    """Delete a source of a migration that is ready, while no process runs; then switch."""
    app, world = migrating.rekey(), World.create(2)
    async with world.clients() as aws:
        await TableShape().create(aws.dynamodb, app.table, entities_of(app))
        site = Site(app, world, aws, (await survey(app, aws)).table)
        await site.put(*orders(OldOrder))
        await site.step("apply")
        await site.live(Process("apply"), stay=False)
        key = orders(OldOrder)[1].item_key.wire(site.schema)
        await aws.dynamodb.delete_item(TableName=app.table, Key=key)
        await site.step("switch")
        state = await site.live(Slow("switch"), stay=False)
        return site.left(), state


def test_no_item_is_turned_before_what_was_deleted_until_then_is_gone_at_its_new_place():
    items, state = run_virtually(deleted_unseen)
    assert state.phase == "soaking"
    assert sorted(item["order_id"]["S"] for item in of(items, "#ORDER")) == ["0", "2", "3"]
