"""Verification: what is wrong is found, what is under way raises no alarm, and nothing is written."""

import random

import anyio
import pytest

from streamkit import App, Entity, Set
from streamkit.migrate import commands, steps
from streamkit.migrate.mending import list_errors, retry_errors, waive_errors
from streamkit.migrate.running import Runner
from streamkit.migrate.sampling import Wanted
from streamkit.migrate.verifying import verify_migration
from streamkit.shape import TableShape
from streamkit.surroundings import survey
from streamkit.testing.loop import run_virtually
from streamkit.testing.world import World


class Order(Entity, pk="ORDER#{number}", sk="ORDER"):
    number: int
    status: str = "NEW"
    label: str | None = None


class Filed(Entity, pk="FILED#{number}", sk="FILED"):
    number: int
    status: str = "NEW"


def label(number: int, status: str) -> Set[Order]:
    if status == "BAD":
        raise ValueError(status)
    return Set(label=f"{number}#{status}")


def file(order: Order) -> Filed:
    return Filed(number=order.number, status=order.status)


def unfile(filed: Filed) -> Order:
    return Order(number=filed.number, status=filed.status)


class Place:
    """A table with orders, and a migration of them."""

    def __init__(self, world, aws, app, schema):
        self.world, self.aws, self.app, self.schema = world, aws, app, schema
        self.migration = app.migrations["0001"]

    async def put(self, *items):
        for item in items:
            wire = item.attributes(self.schema)
            await self.aws.dynamodb.put_item(TableName="Shop", Item=wire)

    async def delete(self, item):
        key = item.item_key.wire(self.schema)
        await self.aws.dynamodb.delete_item(TableName="Shop", Key=key)

    async def begin(self, step="apply"):
        if step == "apply":
            await commands.begin(
                self.app, self.aws, self.migration, segments=2, by="op", clock=self.world.clock
            )
        else:
            await getattr(steps, step)(self.app, self.aws, "0001", by="op")

    def runner(self):
        clock = self.world.clock
        return Runner(self.app, self.aws, self.migration, clock=clock, rng=random.Random(1))

    async def run(self, step="apply"):
        await self.begin(step)
        return (await self.runner().run()).phase

    async def verify(self, **options):
        given = {"clock": self.world.clock, "rng": random.Random(2)}
        return await verify_migration(self.app, self.aws, self.migration, **given | options)

    def items(self):
        return self.world.items("Shop")


def at(place_of_test, function=label, **options):
    """Run a test at a place, in virtual time."""
    app = App("shop", table="Shop")
    app.migration("0001", Order, **options)(function)

    async def main():
        world = World.create(1)
        async with world.clients() as aws:
            await TableShape().create(aws.dynamodb, "Shop", (Order, Filed), stream=True)
            schema = (await survey(app, aws)).table
            with anyio.fail_after(3600):
                return await place_of_test(Place(world, aws, app, schema))

    return run_virtually(main, seed=1)


def kinds_of(verified):
    return sorted(one.kind for one in verified.different)


def test_an_item_that_an_old_writer_has_turned_back_is_found_and_repaired():
    async def test(place):
        await place.put(*(Order(number=n) for n in range(20)))
        assert await place.run() == "done"
        assert (await place.verify()).ok
        await place.put(Order(number=3, status="SENT"))
        before = place.items()
        found = await place.verify()
        assert (kinds_of(found), found.matching) == (["unmigrated"], 20)
        assert place.items() == before
        mended = await place.verify(repair=True)
        assert (mended.ok, mended.repaired) == (True, 1)
        assert (await place.verify()).ok

    at(test)


def test_an_item_that_fails_the_migrations_own_check_is_found():
    async def test(place):
        await place.put(Order(number=1))
        await place.run()
        place.app.migrations["0001"].check.allowed = False
        assert kinds_of(await place.verify()) == ["check"]

    def check(_order):
        return check.allowed

    check.allowed = True
    at(test, check=check)


def test_what_a_person_has_waived_is_no_difference():
    async def test(place):
        await place.put(Order(number=1, status="BAD"), Order(number=2))
        assert await place.run() == "blocked"
        (error,) = await list_errors(place.app, place.aws, "0001")
        assert await retry_errors(place.app, place.aws, "0001") == (0, 1)
        assert kinds_of(await place.verify()) == ["fails"]
        with pytest.raises(ValueError, match="say why"):
            await waive_errors(place.app, place.aws, "0001", {error.id}, " ")
        assert await waive_errors(place.app, place.aws, "0001", {error.id}, "ours") == 1
        found = await place.verify()
        assert (found.ok, found.waived) == (True, 1)
        book = await commands.open_book(place.app, place.aws)
        assert error.id in (await book.read("0001")).audit[-1].what
        assert await place.run("resume") == "done"

    at(test)


def test_live_traffic_raises_no_alarm():
    async def test(place):
        await place.put(*(Order(number=n) for n in range(30)))
        await place.begin()
        runner = place.runner()

        async def write():
            for turn in range(200):
                await place.put(Order(number=turn % 30, status=f"S{turn}"))
                await anyio.sleep(0.05)

        async with anyio.create_task_group() as group:
            group.start_soon(lambda: runner.run(stay=True))
            while runner.state.phase != "done":
                await anyio.sleep(0.5)
            group.start_soon(write)
            await anyio.sleep(1)
            found = await place.verify()
            assert found.ok, found
            runner.stop()

    at(test)


def test_targets_that_are_missing_or_wrong_are_found():
    async def test(place):
        await place.put(*(Order(number=n) for n in range(10)))
        await place.run()
        assert (await place.verify()).ok
        await place.delete(Filed(number=3))
        key = Filed(number=4).item_key.wire(place.schema)
        await place.aws.dynamodb.update_item(
            TableName="Shop",
            Key=key,
            UpdateExpression="SET #s = :s",
            ExpressionAttributeNames={"#s": "status"},
            ExpressionAttributeValues={":s": {"S": "WRONG"}},
        )
        await place.delete(Order(number=5))
        found = await place.verify()
        assert kinds_of(found) == ["differs", "missing", "orphan"]
        mended = await place.verify(repair=True)
        assert (mended.ok, mended.repaired) == (True, 3)
        assert (await place.verify()).ok
        assert not [i for i in place.items() if i["PK"] == {"S": "FILED#5"}]

    at(test, file, mode="rekey", reverse=unfile)


def test_after_the_switch_old_items_that_do_not_follow_are_found():
    async def test(place):
        await place.put(*(Order(number=n) for n in range(6)))
        assert await place.run() == "ready"
        assert await place.run("switch") == "soaking"
        assert (await place.verify()).ok
        await place.put(Filed(number=2, status="SENT"))
        assert kinds_of(await place.verify()) == ["behind"]
        assert await place.run("contract") == "done"
        assert (await place.verify()).ok
        await place.put(Order(number=2))
        (late,) = (await place.verify(repair=True)).different
        assert (late.kind, late.can_be_repaired) == ("late", False)

    at(test, file, mode="rekey", reverse=unfile)


def test_a_copy_that_a_rollback_has_left_is_an_orphan():
    async def test(place):
        await place.put(*(Order(number=n) for n in range(6)))
        await place.run()
        copy = next(i for i in place.items() if i["PK"] == {"S": "FILED#1"})
        assert await place.run("rollback") == "rolled back"
        assert (await place.verify()).ok
        await place.aws.dynamodb.put_item(TableName="Shop", Item=copy)
        assert kinds_of(await place.verify()) == ["orphan"]

    at(test, file, mode="rekey", reverse=unfile)


def test_a_sample_reads_its_share_and_looks_for_no_orphans():
    async def test(place):
        await place.put(*(Order(number=n) for n in range(100)))
        await place.run()
        found = await place.verify(sample=Wanted(share=0.25))
        assert 5 <= found.matching <= 50
        assert found.sampled == 0.25
        assert not found.orphans

    at(test, file, mode="derive")
