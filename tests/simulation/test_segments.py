"""Segments of a pass: shared, taken over, and every page done under a lease."""

import functools
import itertools
import random

import anyio
import pytest
from structlog.testing import capture_logs

from streamkit.core.tables import describe
from streamkit.errors import ConfigurationError, LeaseLost
from streamkit.model.conditions import Attr
from streamkit.progress.commit import Applied
from streamkit.progress.control import ControlSpace
from streamkit.progress.cursor import CursorStore
from streamkit.progress.fenced import Fenced
from streamkit.progress.scan.pages import ScanPages
from streamkit.progress.scan.places import place_of, place_text, strided
from streamkit.progress.scan.scan import LEASE_SECONDS, TableScan
from streamkit.testing.loop import run_virtually
from streamkit.testing.world import CrashPoint, Process, World

ITEMS = 60


@pytest.mark.parametrize("total", [1, 2, 5, 16, 64])
def test_every_segment_is_taken_once_and_neighbours_come_far_apart(total):
    order = strided(total)
    assert sorted(order) == list(range(total))
    if total >= 16:
        assert min(abs(a - b) for a, b in itertools.pairwise(order)) >= total // 4


@pytest.mark.parametrize(
    "key", [{"PK": {"S": "a"}}, {"PK": {"B": b"\x00\xff"}, "SK": {"N": "1.5"}}]
)
def test_a_place_is_read_as_it_was_written(key):
    assert place_of(place_text(key)) == key


class Site:
    """A table with items, and which processes have seen them."""

    def __init__(self, world):
        self.world = world
        self.seen = []

    async def open(self, aws):
        await aws.dynamodb.create_table(
            TableName="Items",
            KeySchema=[{"AttributeName": "PK", "KeyType": "HASH"}],
            AttributeDefinitions=[{"AttributeName": "PK", "AttributeType": "S"}],
            BillingMode="PAY_PER_REQUEST",
        )
        for number in range(ITEMS):
            item = {"PK": {"S": f"item{number}"}}
            await aws.dynamodb.put_item(TableName="Items", Item=item)
        self.schema = await describe(aws, "Items", type_attribute=None)

    def scan(self, aws, total=4, **options):
        space = ControlSpace.of(self.schema, "app", "migrations")
        store = CursorStore(aws.dynamodb, space)
        place = store, "0001.1.scan", total, self.world.clock, random.Random(1)
        return TableScan(*place, **options)

    def pages(self, aws):
        return ScanPages(aws.dynamodb.scan, "Items", 5)

    async def visit(self, segment, reply, *, pause=0.5):
        await anyio.sleep(pause)
        names = [item["PK"]["S"] for item in reply["Items"]]
        self.seen += [name for name in names if name.startswith("item")]
        await segment.advance(reply.get("LastEvaluatedKey"))

    async def run(self, process, owner, *, pause=0.5):
        async with self.world.clients(process) as aws, anyio.create_task_group() as group:

            async def end():
                await process.dead.wait()
                group.cancel_scope.cancel()

            group.start_soon(end)
            visit = functools.partial(self.visit, pause=pause)
            await self.scan(aws).run(self.pages(aws), visit, owner, at_once=2)
            group.cancel_scope.cancel()


def run(scenario):
    async def main():
        world = World.create(1)
        site = Site(world)
        async with world.clients() as aws:
            await site.open(aws)
            return await scenario(site, aws)

    return run_virtually(main, seed=1)


def everything():
    return sorted(f"item{number}" for number in range(ITEMS))


def test_two_processes_share_the_segments_and_each_item_is_seen_once():
    async def scenario(site, aws):
        async with anyio.create_task_group() as group:
            group.start_soon(site.run, Process("one"), "one")
            group.start_soon(site.run, Process("two"), "two")
        return sorted(site.seen)

    assert run(scenario) == everything()


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_process_that_is_killed_is_replaced_and_repeats_a_page_at_most(moment):
    async def scenario(site, aws):
        crash = CrashPoint(20, moment)
        async with anyio.create_task_group() as group:
            group.start_soon(site.run, Process("one", crash=crash), "one")
            group.start_soon(site.run, Process("two"), "two")
        return site.seen

    seen = run(scenario)
    assert sorted(set(seen)) == everything()
    assert len(seen) <= ITEMS + 10


def test_what_a_process_that_froze_commits_is_refused():
    async def scenario(site, aws):
        scan = site.scan(aws, total=1)
        await scan.create()
        (name,) = scan.names
        outcome = []

        async def frozen(segment):
            await anyio.sleep(60)  # without a sign of life
            try:
                await segment.advance(None)
            except LeaseLost:
                outcome.append("refused")
                raise

        cursor = await scan.store.read(name)
        taken = await scan.store.take(cursor, "frozen", 1)
        async with anyio.create_task_group() as group:
            group.start_soon(scan._serve, taken, frozen, anyio.Event(), 1, group, "frozen")
            await anyio.sleep(1)
            now = await scan.store.read(name)
            other = await scan.store.take(now, "other", 1)
            committer_of = site.scan(aws, total=1)
            await committer_of._serve(
                other, lambda s: s.advance(None), anyio.Event(), 1, group, "other"
            )
        return outcome, (await scan.store.read(name)).state

    outcome, state = run(scenario)
    assert outcome in (["refused"], [])  # its lease may be lost while it renews, too
    assert state == "finished"


def test_a_pass_that_is_stopped_goes_on_where_it_stopped():
    async def scenario(site, aws):
        stopping = anyio.Event()
        first = site.scan(aws)

        async def stop():
            await anyio.sleep(2)
            stopping.set()

        async with anyio.create_task_group() as group:
            group.start_soon(stop)
            slow = functools.partial(site.visit, pause=1.5)
            complete = await first.run(site.pages(aws), slow, "one", stopping=stopping)
        before = len(site.seen)
        await site.scan(aws).run(site.pages(aws), site.visit, "two")
        return complete, before, sorted(site.seen)

    complete, before, seen = run(scenario)
    assert not complete
    assert 0 < before < ITEMS
    assert seen == everything()


def test_a_slow_page_keeps_its_lease():
    async def scenario(site, aws):
        # Two processes that took segments from each other would never come to a page's end.
        with anyio.fail_after(900):
            async with anyio.create_task_group() as group:
                group.start_soon(lambda: site.run(Process("one"), "one", pause=40))
                group.start_soon(lambda: site.run(Process("two"), "two", pause=40))
        return sorted(site.seen)

    assert run(scenario) == everything()


def test_actions_go_with_the_position_or_not_at_all():
    async def scenario(site, aws):
        scan = site.scan(aws, total=1)
        store = scan.store
        await scan.create()

        async def visit(segment, _reply):
            action = store.space.update("tally", "x")
            action.adds["n"] = 1
            verdict = await segment.commit(None, [action])
            assert isinstance(verdict, Applied)

        await scan.run(site.pages(aws), visit, "one")
        return (await store.item("tally", "x"))["n"]

    assert run(scenario) == {"N": "1"}


def test_a_scan_ends_once_its_fence_does_not_hold_although_its_segments_are_there():
    async def scenario(site, aws):
        store = site.scan(aws).store

        async def say(word):
            action = store.space.update("consumer")
            action.sets["word"] = {"S": word}
            await store.write(action)

        async def visit(segment, _reply):
            await anyio.sleep(1)
            await say("stop")
            raise LeaseLost("what belongs to the page is refused")

        await say("go")
        fence = Fenced(store, Attr("word").eq("go"), random.Random(1))
        with anyio.fail_after(60), pytest.raises(LeaseLost, match="consumer"):
            await site.scan(aws, fence=fence).run(site.pages(aws), visit, "one")

    run(scenario)


def test_one_process_alone_reads_every_page_of_the_segments_it_was_told_and_writes_nothing():
    async def scenario(site, aws):
        before = len(site.world.items("Items"))
        await site.pages(aws).visit_all(strided(8), 8, site.visit, at_once=3)
        whole, site.seen = sorted(site.seen), []
        await site.pages(aws).visit_all([1, 5], 8, site.visit)
        assert len(site.world.items("Items")) == before
        return whole, site.seen

    whole, part = run(scenario)
    assert whole == everything()
    assert 0 < len(part) < ITEMS


def test_what_a_visit_raises_ends_the_scan_of_one_process_as_itself():
    async def scenario(site, aws):
        async def visit(_segment, _reply):
            raise ConfigurationError("nothing of the kind")

        with pytest.raises(ConfigurationError, match="nothing of the kind"):
            await site.pages(aws).visit_all(strided(8), 8, visit)

    run(scenario)


class Reads:
    """Counts the read units of a process: one for each control item that it asks for."""

    def __init__(self):
        self.units = 0

    async def intercept(self, call, apply):
        if call.operation == "BatchGetItem":
            self.units += call.payload.count(b"#cursor#")
        return apply()


def test_a_long_pass_reads_no_segment_that_its_process_serves():
    """For each of 32 segments that ends, up to 16 are read, and none while they are served."""
    total = 32
    reads = Reads()

    async def scenario(site, aws):
        async def visit(segment, _reply):
            await anyio.sleep(120)
            await segment.advance(None)

        async with site.world.clients(Process("one", faults=reads)) as own:
            assert await site.scan(own, total).run(site.pages(own), visit, "one", at_once=8)

    run(scenario)
    assert reads.units <= total + 16 * (total + 1)


def test_a_process_that_waits_for_anothers_segments_sees_their_end_and_reads_only_those():
    reads = Reads()

    async def scenario(site, aws):
        async def visit(segment, _reply):
            await anyio.sleep(100)
            await segment.advance(None)
            ended.append(anyio.current_time())

        ended = []
        clients = site.world.clients(Process("two", faults=reads))
        async with clients as own, anyio.create_task_group() as group:
            group.start_soon(lambda: site.scan(aws).run(site.pages(aws), visit, "one", at_once=4))
            await anyio.sleep(1)
            assert await site.scan(own).run(site.pages(own), visit, "two", at_once=4)
            assert len(ended) == 4
            assert anyio.current_time() - max(ended) <= 2

    run(scenario)
    assert reads.units <= 4 + 4 * (100 / 2 + 4)


def test_a_process_that_waits_for_the_segments_of_a_dead_one_says_whose_they_are():
    async def scenario(site, aws):
        await site.run(Process("one", crash=CrashPoint(20, "after")), "one")
        with capture_logs() as logs:
            await site.run(Process("two"), "two")
        return site.seen, [line for line in logs if line["event"] == "segment.held"]

    seen, lines = run(scenario)
    assert sorted(set(seen)) == everything()
    assert {line["owner"] for line in lines} == {"one"}
    assert 0 < lines[0]["taken_in"] <= LEASE_SECONDS
