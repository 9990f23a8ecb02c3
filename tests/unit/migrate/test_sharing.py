"""All processes share one budget: from the first second on, and nearly all of it is used."""

import random
from collections import Counter
from functools import cache
from types import SimpleNamespace

import anyio
import pytest
from botocore.exceptions import ClientError

from streamkit import App
from streamkit.core.table_shape import TableShape
from streamkit.core.tables import survey
from streamkit.errors import ConfigurationError
from streamkit.migrate.book.limits import Limit
from streamkit.migrate.book.state_book import open_book
from streamkit.migrate.operate import commands
from streamkit.migrate.run.running import Runner
from streamkit.migrate.sending import sharing
from streamkit.migrate.sending.rate import Rate
from streamkit.migrate.sending.sharing import Shares
from streamkit.progress.actions import CONTROL_PREFIX
from streamkit.testing.chance import repeatable
from streamkit.testing.loop import run_virtually
from streamkit.testing.world import Process, World
from tests.unit.migrate.test_migration_slices import Order, label

LIMIT = 60
ONE_PAGE = 8
"""Write units for two pages' ends, which may fall into one second more than was set aside."""


async def three_processes(late):
    """Run a migration in three processes; return the write units of each second, by what for."""
    app = App("shop", table="Shop")
    app.migration("0001", Order)(label)
    migration, world = app.migrations["0001"], World.create(1)
    units, scanned = Counter(), []
    async with world.clients() as aws:
        await TableShape().create(aws.dynamodb, "Shop", (Order,), stream=True)
        schema = (await survey(app, aws)).table
        for number in range(900):
            item = Order(number=number).attributes(schema)
            await aws.dynamodb.put_item(TableName="Shop", Item=item)
        await anyio.sleep(1200)
        began, clock = world.clock.monotonic(), world.clock

        def saw(sighting):
            call = sighting.call
            if call.service == "dynamodb" and sighting.actor and call.units["write"]:
                second = int(clock.monotonic() - began)
                own = CONTROL_PREFIX in str(call.payload)
                units[second, "all"] += call.units["write"]
                units[second, "items"] += 0 if own else call.units["write"]

        world.watchers.append(saw)
        limit = commands.Limit(max_writes=LIMIT)
        await commands.begin(app, aws, migration, limit=limit, clock=clock)

        async def process(number):
            await anyio.sleep(late * number)
            async with world.clients(Process(f"p{number}")) as mine:
                rng = random.Random(number)
                await Runner(app, mine, migration, clock=clock, rng=rng).run()
            scanned.append(number)

        with anyio.fail_after(600):
            async with anyio.create_task_group() as group:
                for number in range(3):
                    group.start_soon(process, number)
    assert sorted(scanned) == [0, 1, 2]
    return units


@cache
def spent(late):
    with repeatable(1):
        units = run_virtually(three_processes, late, seed=1)
    return units, [second for second, what in units if what == "items" and units[second, what]]


@pytest.mark.parametrize("late", [0.0, 4.0], ids=["at once", "one after the other"])
def test_three_processes_keep_to_one_budget_from_the_first_second_on(late):
    units, busy = spent(late)
    assert sum(units[second, "items"] for second in busy) == 900
    last = max(busy)
    taken = [units[second, "all"] for second in range(last + 1)]
    assert max(taken) <= LIMIT + ONE_PAGE, taken


def test_nearly_all_of_a_budget_is_used_while_there_is_work():
    units, busy = spent(0.0)
    assert min(busy) <= 4
    whole = range(min(busy) + 1, max(busy))
    assert sum(units[second, "all"] for second in whole) >= 0.95 * LIMIT * len(whole)


# -- claims ----------------------------------------------------------------------------------------


class Claimant:
    """A process that works, idles, stands still and dies by chance; it takes what it may."""

    def __init__(self, process, shares, rng):
        self.process, self.shares, self.rng = process, shares, rng
        self.rate = Rate(shares.clock, Limit(max_writes=100.0))
        self.busy = True

    @property
    def taking(self):
        """The part of the limit that it would take now, also while its looks are not answered."""
        return self.rate._part

    async def run(self):
        async with anyio.create_task_group() as group:
            group.start_soon(self.shares.keep, self.rate)
            while True:
                self.rate._waiting = int(self.rng.random() < 0.7)
                await anyio.sleep(self.rng.choice([0.3, 3, 12]))


async def claims(seed, seconds=120):
    """Return the most that was taken at once, and what was taken on the average."""
    rng, world, sums = random.Random(seed), World.create(seed), []
    app = App("shop", table="Shop")
    alive, count = [], 0
    async with world.clients() as aws, anyio.create_task_group() as group:
        await TableShape().create(aws.dynamodb, "Shop", (Order,), stream=True)

        async def live(process):
            async with world.clients(process) as mine:
                store = (await open_book(app, mine)).store
                shares = Shares(store, "0001", process.name, world.clock)
                claimant = Claimant(process, shares, random.Random(rng.random()))
                alive.append(claimant)
                try:
                    async with anyio.create_task_group() as inner:
                        inner.start_soon(claimant.run)
                        await process.dead.wait()
                        inner.cancel_scope.cancel()
                finally:
                    alive.remove(claimant)

        end = world.clock.monotonic() + seconds
        while world.clock.monotonic() < end:
            if len(alive) < 3 and rng.random() < 0.2:
                count += 1
                group.start_soon(live, Process(f"p{count}"))
            for one in list(alive):
                dice = rng.random()
                if one.process.frozen is not None:
                    if dice < 0.007:
                        one.process.thaw()
                elif dice < 0.004:
                    one.process.kill()
                elif dice < 0.012:
                    one.process.freeze()
            await anyio.sleep(rng.random() * 0.2)
            sums.append(sum(one.taking for one in alive))
        group.cancel_scope.cancel()
    return max(sums), sum(sums) / len(sums)


@pytest.mark.parametrize("seed", range(3))
def test_what_is_taken_is_never_more_than_the_limit(seed):
    with repeatable(seed):
        most, mean = run_virtually(claims, seed, seed=seed)
    assert most <= 1.001
    assert mean > 0.05


@pytest.mark.parametrize(
    ("constant", "value"),
    [("WAIT_SECONDS", 0.0), ("FRESH_SECONDS", 60.0), ("_DEAD_SECONDS", 3.0)],
)
def test_each_of_its_times_is_needed(monkeypatch, constant, value):
    monkeypatch.setattr(sharing, constant, value)

    def most(seed):
        with repeatable(seed):
            return run_virtually(claims, seed, seed=seed)[0]

    assert any(most(seed) > 1.001 for seed in range(6))


def at_claims(test):
    """Run a test with two claimants of one migration's limits."""
    app = App("shop", table="Shop")

    async def main():
        world = World.create(1)
        async with world.clients() as aws:
            await TableShape().create(aws.dynamodb, "Shop", (Order,), stream=True)
            store = (await open_book(app, aws)).store
            ones = [Shares(store, "0001", f"a.host/{n}", world.clock) for n in range(2)]
            return await test(*ones)

    return run_virtually(main, seed=1)


async def after(seconds, shares):
    """Look once a second for so long; return the part then."""
    for _ in range(round(seconds)):
        await shares.look()
        await anyio.sleep(1)
    return (await shares.look()).part


def test_one_that_leaves_gives_its_part_to_the_others_at_their_next_look():
    async def test(one, other):
        await one.look()
        await other.look()
        both = await after(4, one), await after(1, other)
        await other.leave()
        return *both, (await one.look()).part

    assert at_claims(test) == (0.5, 0.5, 1.0)


def test_one_that_joins_takes_nothing_until_the_others_know():
    async def test(one, other):
        before = await after(4, one)
        joined = (await other.look()).part, (await one.look()).part
        return before, joined, await after(3, other)

    assert at_claims(test) == (1.0, (0.0, 0.5), 0.5)


def test_the_part_of_a_dead_process_is_the_others_after_a_lease():
    async def test(one, other):
        await other.look()
        shared = await after(10, one)
        alone = await after(10, one)
        return shared, alone, await after(4, other)

    assert at_claims(test) == (0.5, 1.0, 0.5)


def test_a_removal_that_comes_late_leaves_a_later_claim_alone():
    async def test(one, other):
        await one.look()
        late = one._remove(one._attribute, f"{one._count}")
        await one.leave()
        await one.look()
        await late
        return (await other.look()).part, await after(3, other)

    assert at_claims(test) == (0.0, 0.5)


def test_one_that_may_not_claim_says_so_and_does_not_wait_for_ever():
    async def test(one, _other):
        async def refused():
            raise ClientError({"Error": {"Code": "AccessDeniedException"}}, "UpdateItem")

        one.look = refused
        await one.keep(Rate(one.clock, Limit(max_reads=10.0)))

    with pytest.raises(ConfigurationError, match="dynamodb:UpdateItem"):
        at_claims(test)


@pytest.mark.parametrize("until", [4, 100], ids=["has no work", "ends"])
def test_nothing_is_used_from_before_a_claim_is_removed(until):
    async def test(one, _):
        taken, parts, leave = [], [], one.leave

        async def left():
            parts.append(taken[-1].part)
            await leave()

        one.leave = left
        rate = SimpleNamespace(is_busy=True, limits=Limit(max_writes=9), take=taken.append)
        with anyio.move_on_after(8):
            async with anyio.create_task_group() as group:
                group.start_soon(one.keep, rate)
                await anyio.sleep(until)
                rate.is_busy = False
        return {share.part for share in taken}, set(parts)

    assert at_claims(test) == ({0.0, 1.0}, {0.0})


def test_a_process_without_limits_claims_nothing():
    async def test(one, _):
        rate = SimpleNamespace(is_busy=True, limits=Limit(), take=lambda share: None)
        with anyio.move_on_after(4):
            await one.keep(rate)
        return await one.store.item("shares", "0001")

    assert at_claims(test) is None
