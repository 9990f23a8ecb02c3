"""Functions of several modes count beside each other while an aggregate is rebuilt: one
interleaving for each of the ways in which that would go wrong. Which those are was explored before,
in a model of invocations that overlap."""

import random
from collections import Counter
from contextlib import asynccontextmanager
from typing import Annotated

import anyio
import pytest

from streamkit import Aggregate, ConfigurationError, Count, Inserted, Key, Modified
from streamkit.aws_lambda.host import process_batch
from streamkit.aws_lambda.late import process_late
from streamkit.aws_lambda.maintenance import maintain
from streamkit.aws_lambda.migration import process_slice
from streamkit.core.parked.queues import Selection, parked_queues
from streamkit.fleet.generation import newest_generation
from streamkit.fleet.hosting import FUNCTION_SECONDS as FUNCTION_SECONDS_MAX
from streamkit.kinds.aggregate import sweep
from streamkit.kinds.aggregate.facts import list_aggregates
from streamkit.kinds.aggregate.rebuild import rebuild_aggregate
from streamkit.migrate.operate import commands
from streamkit.model.builds import OUTLASTED_SECONDS, SWEPT_SECONDS
from streamkit.operate.permissions.hosts import policy_for
from streamkit.operate.permissions.place import AccountPlace
from streamkit.operate.redrive import redrive
from streamkit.testing.chance import repeatable
from streamkit.testing.loop import run_virtually
from streamkit.testing.world import Process
from tests.permissions import ACCOUNT, REGION, allows, noted
from tests.simulation.lambdas import (
    Deadly,
    Stream,
    environment_of,
    event,
    given_up,
    key_of,
    own_items,
    world_of,
)
from tests.simulation.rebuilds import (
    BROKEN,
    PATIENT,
    TABLE,
    Gate,
    Sale,
    Sales,
    app_of,
    counts,
    reads_the_ledger,
    scans_a_segment,
    scans_for_groups,
    session_app,
)

DONE = {"batchItemFailures": []}
FUNCTION_SECONDS = 30.0
DEADLY_AMOUNT = 666


class Shop:
    """A shop whose sales functions count, with numbers that are wrong to begin with."""

    def __init__(self):
        self.app = app_of(policy=PATIENT)
        self.world = world_of(self.app)
        self.stream = Stream(self.world, TABLE)

    def put(self, number, shop, amount=1):
        item = {"number": {"N": f"{number}"}, "shop": {"S": shop}, "amount": {"N": f"{amount}"}}
        self.call("PutItem", Item=self.key(number) | item)

    def delete(self, number):
        self.call("DeleteItem", Key=self.key(number))

    def key(self, number):
        return {name: {"S": f"SALE#{number}"} for name in ("PK", "SK")}

    def call(self, operation, **request):
        status, body = self.world.engine.call("dynamodb", operation, request | {"TableName": TABLE})
        assert status == 200, body

    async def until(self, moment):
        """Let time pass; what was written before is trimmed, or else delivered already."""
        await anyio.sleep(moment - self.world.clock.time())
        self.stream = Stream(self.world, TABLE)
        self.news()

    def news(self):
        """The sales' records since the last call."""
        return [r for r in self.stream.traffic() if key_of(r).startswith("SALE#")]

    @asynccontextmanager
    async def function(self, gate=None):
        async with environment_of(
            self.world, self.app, Process("function", faults=gate)
        ) as environment:
            yield environment

    async def deliver(self, records=None, gate=None):
        async with self.function(gate) as environment:
            batch = event(self.news() if records is None else records)
            assert await process_batch(environment, batch, 1e6) == DONE

    async def rebuild(self, gate=None):
        async with self.world.clients(Process("operator", faults=gate)) as aws:
            return await rebuild_aggregate(
                self.app,
                aws,
                "Sales",
                segments=1,
                in_flight=FUNCTION_SECONDS,
                clock=self.world.clock,
                rng=random.Random(1),
            )

    def check(self):
        """Hold what is stored against the sales that are there."""
        items = self.world.items(TABLE)
        totals, numbers = Counter(), Counter()
        for item in items:
            if item["PK"]["S"].startswith("SALE#") and item["shop"]["S"] != "none":
                totals[item["shop"]["S"]] += int(item["amount"]["N"])
                numbers[item["shop"]["S"]] += 1
        stored = {
            item["shop"]["S"]: tuple(int(item.get(n, {"N": "0"})["N"]) for n in ("sales", "total"))
            for item in items
            if item["PK"]["S"].startswith("OF#")
        }
        stored = {shop: both for shop, both in stored.items() if any(both)}
        assert stored == {shop: (numbers[shop], totals[shop]) for shop in numbers}

    async def state(self):
        async with self.world.clients() as aws:
            (found,) = await list_aggregates(self.app, aws)
            return found.state


class Other(Aggregate[Sale], pk="OTHER#{shop}", sk="OTHER"):
    shop: str
    sales: Annotated[int, Count()] = 0

    @classmethod
    def group(cls, sale: Sale) -> Key["Other"]:
        return cls.key(shop=sale.shop)


def simulated(main):
    """Let there be sales that are counted, and what is stored be wrong."""

    async def run():
        BROKEN.clear()
        shop = Shop()
        for number in range(4):
            shop.put(number, "ab"[number % 2], number + 1)
        await shop.deliver()
        wrong = {"PK": {"S": "OF#gone"}, "SK": {"S": "SALES"}, "shop": {"S": "gone"}}
        shop.call("PutItem", Item=wrong | {"sales": {"N": "7"}, "total": {"N": "7"}})
        await main(shop)

    with repeatable(1):
        run_virtually(run)


def test_an_invocation_that_began_before_the_build_is_outlasted():
    async def main(shop):
        gate = Gate(counts)
        shop.put(0, "a", 50)
        async with anyio.create_task_group() as group:
            group.start_soon(shop.deliver, shop.news(), gate)
            await gate.met.wait()
            group.start_soon(shop.rebuild)
            await anyio.sleep(FUNCTION_SECONDS)
            gate.open.set()
        shop.check()

    simulated(main)


def test_a_change_that_comes_while_it_is_emptied_is_left_to_the_scan():
    async def main(shop):
        async with anyio.create_task_group() as group:
            group.start_soon(shop.rebuild)
            await anyio.sleep(5)
            shop.put(0, "b", 50)
            shop.delete(1)
            await shop.deliver()
        shop.put(0, "a", 60)
        await shop.deliver()
        shop.check()

    simulated(main)


def test_what_is_parked_unrun_while_it_is_cleared_is_counted_once():
    async def main(shop):
        deadly = Deadly(shop.world, shop.app)

        @shop.app.on
        async def run(change: Inserted[Sale] | Modified[Sale]) -> None:
            if change.new.amount == DEADLY_AMOUNT:
                await deadly.kill()

        shop.put(0, "b", DEADLY_AMOUNT)
        records = shop.news()
        reset = Gate(scans_for_groups)
        async with anyio.create_task_group() as group, shop.function() as environment:
            group.start_soon(shop.rebuild, reset)
            await reset.met.wait()
            while await deadly.invoke(records) != DONE:
                assert deadly.deaths < 9
            assert {queue.handler for queue in await parked_queues(environment.store)} == {
                "Sales",
                "run",
            }
            await redrive(shop.app, environment.aws, Selection(handler="Sales"))
            shop.put(1, "a", DEADLY_AMOUNT)
            records = shop.news()
            await anyio.sleep(120)
            while await deadly.invoke(records) != DONE:
                assert deadly.deaths < 18
            reset.open.set()
        async with shop.function() as environment:
            await redrive(shop.app, environment.aws, Selection(handler="Sales"))
        shop.check()

    simulated(main)


def test_one_that_began_while_it_was_emptied_sees_what_others_have_counted_since():
    async def main(shop):
        off, scan = Gate(lambda call: call.operation == "TransactWriteItems"), Gate(scans_a_segment)
        async with anyio.create_task_group() as group:
            group.start_soon(shop.rebuild, scan)
            await anyio.sleep(5)
            shop.put(0, "a", 50)
            shop.put(0, "b", 60)
            records = shop.news()
            group.start_soon(shop.deliver, records, off)
            await scan.met.wait()
            assert off.met.is_set()
            await shop.deliver(records[:1])
            off.open.set()
            await anyio.sleep(5)
            scan.open.set()
        shop.check()

    simulated(main)


@pytest.mark.parametrize("after", [False, True])
def test_changes_beside_the_scan_of_their_items_are_counted_once(after):
    async def main(shop):
        scan = Gate(scans_a_segment, after=after)
        async with anyio.create_task_group() as group:
            group.start_soon(shop.rebuild, scan)
            await scan.met.wait()
            shop.put(0, "b", 50)
            shop.put(0, "a", 60)
            shop.delete(1)
            shop.put(9, "c", 9)
            records = shop.news()
            for batch in (records[:2], records, records[1:]):  # it comes again, and out of order
                await shop.deliver(batch)
            scan.open.set()
        await shop.deliver(records)
        shop.check()

    simulated(main)


def test_changes_that_the_scan_has_met_and_come_after_it_are_counted_once():
    async def main(shop):
        shop.put(0, "b", 50)
        shop.delete(1)
        records = shop.news()
        await shop.rebuild()
        await anyio.sleep(60)
        await shop.deliver(records)
        shop.put(0, "a", 60)
        await shop.deliver()
        shop.check()
        assert await shop.state() == "live"

    simulated(main)


def test_functions_alone_rebuild_in_slices_that_end_while_others_are_outlasted():
    async def main(shop):
        shop.app.migration("0001", Sales, mode="aggregate")
        migration = shop.app.migrations["0001"]
        shop.put(0, "b", 50)
        found = []
        async with shop.world.clients(Process("migration")) as aws:
            await commands.begin(shop.app, aws, migration, clock=shop.world.clock)
            while not (found and found[-1].done):
                event, clock = {"migration": "0001"}, shop.world.clock
                found.append(await process_slice(shop.app, aws, event, 300.0, clock=clock))
                assert len(found) < 9
                shop.put(len(found), "c", 5)
                await shop.deliver()
        assert len(found) > FUNCTION_SECONDS_MAX / 300
        shop.check()

    simulated(main)


def test_a_scan_that_comes_between_a_look_into_the_ledger_and_the_commit_is_noticed():
    async def main(shop):
        scan, look = Gate(scans_a_segment), Gate(reads_the_ledger, after=True)
        async with anyio.create_task_group() as group:
            group.start_soon(shop.rebuild, scan)
            await scan.met.wait()
            shop.put(0, "b", 50)
            group.start_soon(shop.deliver, shop.news(), look)
            await look.met.wait()
            scan.open.set()
            await anyio.sleep(10)
            look.open.set()
        shop.check()

    simulated(main)


def test_what_is_parked_while_it_is_counted_holds_its_item_and_is_retried_as_it_was():
    async def main(shop):
        scan = Gate(scans_a_segment, after=True)
        async with anyio.create_task_group() as group:
            group.start_soon(shop.rebuild, scan)
            await scan.met.wait()
            BROKEN.add("odd")
            for name in ("odd", "a", "b"):
                shop.put(0, name, 5)
            await shop.deliver()
            assert len(own_items(shop.world, TABLE, "parked")) == 3
            scan.open.set()
        await shop.until(shop.world.clock.time() + OUTLASTED_SECONDS + 10)
        shop.put(0, "c", 6)  # counted live, and not behind the others
        await shop.deliver()
        BROKEN.clear()
        async with shop.function() as environment:
            assert (await maintain(environment))["done"] == 3
        shop.check()

    simulated(main)


async def rebuilt(shop):
    """Rebuild, with a change that only the stream knows of; return when the scan ended."""
    await shop.rebuild()
    async with shop.function() as environment:
        newest = await newest_generation(environment.store)
    return newest.builds["Sales"].scanned


def test_a_day_later_those_that_count_live_and_by_the_ledger_come_to_the_same():
    async def main(shop):
        scanned = await rebuilt(shop)
        gate = Gate(counts)
        await shop.until(scanned + OUTLASTED_SECONDS - 10)
        shop.put(0, "b", 50)
        shop.put(0, "a", 60)
        shop.put(8, "c", 7)
        shop.put(8, "c", 8)
        first, again, new, newer = shop.news()
        async with anyio.create_task_group() as group:
            group.start_soon(shop.deliver, [first, again, new, newer], gate)
            await gate.met.wait()
            await anyio.sleep(20)
            begun = len(ledger(shop))
            await shop.deliver([first, new])
            assert len(ledger(shop)) == begun
            gate.open.set()
        shop.check()

    simulated(main)


def ledger(shop):
    return [item for item in shop.world.items(TABLE) if "#ledger#" in item["PK"]["S"]]


def test_the_scheduled_function_sweeps_the_ledger_when_nobody_counts_by_it_any_more():
    async def main(shop):
        scanned = await rebuilt(shop)
        async with shop.function() as environment:
            for seconds, left in ((OUTLASTED_SECONDS + 60, 4), (SWEPT_SECONDS + 60, 0)):
                await shop.until(scanned + seconds)
                await maintain(environment)
                assert len(ledger(shop)) == left
            newest = await newest_generation(environment.store)
            assert newest.builds["Sales"].state == "live"
        shop.put(0, "b", 50)
        shop.delete(1)
        await shop.deliver()
        shop.check()

    with noted() as requests:
        simulated(main)
    place = AccountPlace.of(account=ACCOUNT, region=REGION)
    policy = policy_for(app_of(), "lambda", place).to_dict()
    assert [r for r in requests.of("function") if not allows(policy, r)] == []
    operators = policy_for(app_of(), "operator", place).to_dict()
    assert [r for r in requests.of("operator") if not allows(operators, r)] == []


def test_a_change_as_old_as_the_scan_that_comes_late_asks_for_another_rebuild():
    async def main(shop):
        shop.put(0, "b", 50)
        records = shop.news()
        body = given_up(shop.stream, records, payload=True)
        scanned = await rebuilt(shop)
        await shop.until(scanned + OUTLASTED_SECONDS + 60)
        async with shop.function() as environment:
            await process_late(environment, body)
        assert await shop.state() == "needs rebuild"

    simulated(main)


def test_a_function_of_other_code_waits_while_an_aggregate_is_rebuilt():
    async def main(shop):
        shop.put(0, "b", 50)
        records, scan = shop.news(), Gate(scans_a_segment)
        shop.app, older = app_of(Sales, Other), shop.app
        async with shop.function(), anyio.create_task_group() as group:
            group.start_soon(shop.rebuild, scan)
            await scan.met.wait()
            shop.app, newer = older, shop.app
            with pytest.raises(ConfigurationError, match="newer version"):
                await shop.deliver(records)
            async with shop.function() as environment:
                with pytest.raises(ConfigurationError, match="newer version"):
                    await maintain(environment)
            shop.app = newer
            scan.open.set()
        await shop.deliver(records)
        shop.check()

    simulated(main)


class Slow:
    """Lets a call take its time."""

    async def intercept(self, call, apply):
        await anyio.sleep(0.5)
        return apply()


@pytest.mark.parametrize("seconds", [7, 7.5, 8, 8.5, 9])
def test_a_sweep_by_scans_goes_on_where_the_last_run_was_broken_off(monkeypatch, seconds):
    monkeypatch.setattr(sweep, "PAGE_ITEMS", 3)

    async def main():
        app = session_app()
        world = world_of(app)
        for number in range(12):
            session = {"token": {"S": f"t{number}"}, "shop": {"S": "a"}, "amount": {"N": "1"}}
            item = {"PK": {"S": f"t{number}"}, "type": {"S": "session"}, **session}
            world.engine.call("dynamodb", "PutItem", {"TableName": "Sessions", "Item": item})
        async with environment_of(world, app) as environment:
            await process_batch(environment, event(Stream(world, "Sessions").records()))
            await rebuild_aggregate(
                app, environment.aws, "Active", segments=2, in_flight=1.0, clock=world.clock
            )
        await anyio.sleep(SWEPT_SECONDS + 60)
        left = [12]
        async with environment_of(world, app, Process("function", faults=Slow())) as environment:
            while left[-1]:
                await maintain(environment, seconds)
                left.append(sum("#ledger#" in str(i["PK"]) for i in world.items("Sessions")))
                assert len(left) < 40
            for _ in range(9):
                await maintain(environment, seconds)
            newest = await newest_generation(environment.store)
        assert newest.builds["Active"].state == "live"
        assert len(left) > 3
        assert not any("sweep." in str(item) for item in world.items("Sessions"))

    with repeatable(1):
        run_virtually(main)
