"""What looks simpler than the migrations' protocol, and is wrong: each is tried here, and loses.

Every test runs one interleaving twice: with the code as it is, which must be right, and with the
simpler rule put in its place, which must not be; else the test would prove nothing.
"""

import json
import random
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import partial

import anyio
import pytest

from streamkit import TableShape
from streamkit.core.table_shape import entities_of
from streamkit.core.tables import survey
from streamkit.local.transport import Response
from streamkit.migrate.book.course import PhaseStep
from streamkit.migrate.book.errors import ErrorBook
from streamkit.migrate.book.limits import Limit
from streamkit.migrate.book.state_book import StateBook
from streamkit.migrate.book.tallies import Tally
from streamkit.migrate.items.transform import Transform
from streamkit.migrate.operate import commands
from streamkit.migrate.run import capture, in_place, pairs
from streamkit.migrate.run.in_place import InPlace
from streamkit.migrate.run.pairs import Pairs
from streamkit.migrate.run.running import Runner
from streamkit.migrate.run.work import MigrationWork
from streamkit.migrate.sending.attempts import FailedItems
from streamkit.migrate.sending.calls import Calls
from streamkit.migrate.sending.rate import Rate
from streamkit.model.conditions import Attr, absent, any_of, present
from streamkit.testing.loop import run_virtually
from streamkit.testing.world import Process, World
from tests.simulation import migrating
from tests.simulation.migrating import OldOrder, Order


class Site:
    """A table, an application, and the parts of a migration."""

    def __init__(self, app, world, aws, tables):
        self.app, self.world, self.aws, self.tables = app, world, aws, tables
        self.schema = tables.table
        self.migration = app.migrations["0001"]
        self.tally = Tally()
        calls = Calls(aws.dynamodb, Rate(world.clock), (tables.table, tables.control))
        book = ErrorBook(StateBook(aws.dynamodb, tables.control, app.name).store, "0001")
        self.transform = Transform(self.migration, self.schema)
        failed = FailedItems(book, world.clock, "shop.0001")
        self.in_place = InPlace(self.transform, calls, failed)
        self.pairs = Pairs(self.transform, calls, failed)
        self.calls = calls

    async def put(self, entity, **beside):
        item = entity.attributes(self.schema) | beside
        await self.aws.dynamodb.put_item(TableName=self.schema.name, Item=item)

    async def delete(self, entity):
        key = entity.item_key.wire(self.schema)
        await self.aws.dynamodb.delete_item(TableName=self.schema.name, Key=key)

    async def set_status(self, entity, status):
        await self.set(entity, "status", {"S": status})

    async def set(self, entity, name, value):
        await self.aws.dynamodb.update_item(
            TableName=self.schema.name,
            Key=entity.item_key.wire(self.schema),
            UpdateExpression="SET #n = :v",
            ExpressionAttributeNames={"#n": name},
            ExpressionAttributeValues={":v": value},
        )

    async def get(self, entity):
        key = entity.item_key.wire(self.schema)
        reply = await self.aws.dynamodb.get_item(TableName=self.schema.name, Key=key)
        return reply.get("Item")

    def meanwhile(self, monkeypatch, name, happens):
        """Let something happen just before the first write of this kind is sent."""
        real, waiting = getattr(self.calls, name), [happens]

        async def sent(*args, **request):
            if waiting:
                await waiting.pop()()
            return await real(*args, **request)

        monkeypatch.setattr(self.calls, name, sent)


@asynccontextmanager
async def site_of(app, *, process=None):
    world = World.create(1)
    async with world.clients() as plain, world.clients(process) as aws:
        await TableShape().create(plain.dynamodb, app.table, entities_of(app))
        yield Site(app, world, aws, await survey(app, plain))


def run(main, *args):
    return run_virtually(lambda: main(*args), seed=1)


ORDER = Order(user="ann", order_id="1", status="NEW")
OLD = OldOrder(user="ann", order_id="1", status="NEW")


# -- in place --------------------------------------------------------------------------------------


def only_exists(schema, image, reads):
    return [present]


def nothing(schema, image, reads):
    return [any_of(present, absent)]


def only_unmigrated(schema, image, reads):
    return [Attr("status_day").not_exists()]


async def status_changes_between_read_and_write(monkeypatch):
    async with site_of(migrating.in_place()) as site:
        await site.put(ORDER)
        read = await site.get(ORDER)
        site.meanwhile(monkeypatch, "write", lambda: site.set_status(ORDER, "PAID"))
        site.tally.add(await site.in_place.reconcile(read, live=False))
        return (await site.get(ORDER))["status_day"]["S"]


@pytest.mark.parametrize("naive", [only_exists, only_unmigrated])
def test_a_write_between_read_and_write_is_seen_by_the_read_set_and_by_no_version(
    naive, monkeypatch
):
    with monkeypatch.context() as patch:
        assert run(status_changes_between_read_and_write, patch) == "PAID#d1"
    monkeypatch.setattr(in_place, "unchanged", naive)
    assert run(status_changes_between_read_and_write, monkeypatch) == "NEW#d1"


async def deleted_between_read_and_write(monkeypatch):
    async with site_of(migrating.in_place()) as site:
        await site.put(ORDER)
        read = await site.get(ORDER)
        site.meanwhile(monkeypatch, "write", lambda: site.delete(ORDER))
        site.tally.add(await site.in_place.reconcile(read, live=False))
        return await site.get(ORDER)


def test_an_item_that_was_deleted_meanwhile_does_not_come_back(monkeypatch):
    with monkeypatch.context() as patch:
        assert run(deleted_between_read_and_write, patch) is None
    monkeypatch.setattr(in_place, "unchanged", nothing)
    assert run(deleted_between_read_and_write, monkeypatch) is not None


async def old_changes_of_one_item(monkeypatch, writes):
    """The stream brings sixty changes of an item, whose last state is right already."""
    async with site_of(migrating.in_place()) as site:
        site.calls.rate.limit(Limit(max_writes=writes))
        await site.put(Order(user="ann", order_id="1", status="PAID", status_day="PAID#d1"))
        now, sent, write = await site.get(ORDER), [], site.calls.write

        async def counted(action):
            sent.append(action)
            return await write(action)

        monkeypatch.setattr(site.calls, "write", counted)
        for number in range(60):
            old = now | {"status": {"S": f"S{number}"}}
            site.tally.add(await site.in_place.reconcile(old, live=True))
        assert site.tally.errors == 0
        assert await site.get(ORDER) == now
        return len(sent)


def test_with_a_small_limit_a_queue_of_old_changes_costs_reads_and_few_writes(monkeypatch):
    with monkeypatch.context() as patch:
        assert run(old_changes_of_one_item, patch, 20) == 2
    assert run(old_changes_of_one_item, monkeypatch, None) == 60


async def an_old_writer_updates_a_migrated_item(wants):
    async with site_of(migrating.in_place()) as site:
        await site.put(Order(user="ann", order_id="1", status="NEW", status_day="NEW#d1"))
        await site.set_status(ORDER, "PAID")
        item = await site.get(ORDER)
        if wants(item):
            site.tally.add(await site.in_place.reconcile(item, live=True))
        return (await site.get(ORDER))["status_day"]["S"]


def test_what_needs_work_is_what_the_function_would_change_and_not_what_lacks_a_marker():
    assert run(an_old_writer_updates_a_migrated_item, lambda _: True) == "PAID#d1"
    stale = run(an_old_writer_updates_a_migrated_item, lambda item: "status_day" not in item)
    assert stale == "NEW#d1"


class Replica(Process):
    """Answers scans that are not strongly consistent as before anything was there."""

    async def intercept(self, call, apply):
        response = await super().intercept(call, apply)
        if call.operation != "Scan" or json.loads(call.payload).get("ConsistentRead"):
            return response
        empty = {"Items": [], "Count": 0, "ScannedCount": 0}
        return Response(200, json.dumps(empty).encode())


async def migrated(*, after_scan=None, kind=Runner):
    """Run a migration of one item by a kind of runner, and return what it has made of the item.

    `after_scan` happens when the pass is complete.
    """
    async with site_of(migrating.in_place(), process=Replica("migrator")) as site:
        await site.put(ORDER)
        await anyio.sleep(10)
        clock = site.world.clock
        await commands.begin(site.app, site.aws, site.migration, segments=1, clock=clock)
        runner = kind(site.app, site.aws, site.migration, clock=clock, rng=random.Random(1))
        act, pending = runner._act, [after_scan] if after_scan is not None else []

        async def acting(state):
            if state.phase == "catching up" and pending:
                await pending.pop()(site)
            return await act(state)

        runner._act = acting
        await runner.run()
        return (await site.get(ORDER)).get("status_day")


class LateRunner(Runner):
    """Begins to capture when the pass is complete."""

    async def _capturing(self, state):
        await self._step(state, PhaseStep("scanning"))

    async def _capture(self):
        while self.state.phase in ("capturing", "scanning"):
            await anyio.sleep(1)
        await anyio.sleep(3)
        await super()._capture()

    async def _open(self):
        await super()._open()
        sides = self.capture.sides

        def late(state):
            found = sides(state)
            for side in found:
                side.app.start = "latest"
            return found

        self.capture.sides = late


def only_the_pass(monkeypatch):
    """Leave out the second pass, which would put right what the first has missed."""
    real = MigrationWork.visit

    async def visit(self, item, **how):
        scans = self.state.phase == "scanning"
        return await real(self, item, **how) if scans else Tally()

    monkeypatch.setattr(MigrationWork, "visit", visit)


def test_a_scan_that_is_not_strongly_consistent_misses_items(monkeypatch):
    only_the_pass(monkeypatch)
    # What was written long before the capture began is not in the stream that it reads.
    monkeypatch.setattr(capture, "_MARGIN", timedelta(0))
    assert run(migrated) == {"S": "NEW#d1"}
    real = Calls.scan

    async def scan(self, **request):
        return await real(self, **request | {"ConsistentRead": False})

    monkeypatch.setattr(Calls, "scan", scan)
    assert run(migrated) is None


async def written_after_the_scan(kind):
    async def change(site):
        await site.set_status(ORDER, "PAID")

    return await migrated(after_scan=change, kind=kind)


def test_a_capture_that_begins_after_the_scan_misses_what_was_written_in_between(monkeypatch):
    only_the_pass(monkeypatch)
    assert run(written_after_the_scan, Runner) == {"S": "PAID#d1"}
    assert run(written_after_the_scan, LateRunner) == {"S": "NEW#d1"}


class DeafRunner(Runner):
    """Passes over the table and looks at no change."""

    async def _capturing(self, state):
        await self._step(state, PhaseStep("scanning"))

    async def _capture(self):
        self._captured.set()

    async def _act(self, state):
        if state.phase != "catching up":
            return await super()._act(state)
        await self._step(state, PhaseStep("verifying"))
        return True


def test_without_a_capture_what_old_writers_write_after_the_scan_stays_as_it_is(monkeypatch):
    only_the_pass(monkeypatch)

    assert run(written_after_the_scan, Runner) == {"S": "PAID#d1"}
    assert run(written_after_the_scan, DeafRunner) == {"S": "NEW#d1"}


# -- pairs -----------------------------------------------------------------------------------------


async def source_changes_before_the_transaction(monkeypatch):
    async with site_of(migrating.rekey()) as site:
        await site.put(OLD)
        key = OLD.item_key.wire(site.schema)
        site.meanwhile(monkeypatch, "transact", lambda: site.set_status(OLD, "PAID"))
        site.tally.add(await site.pairs.forward(key))
        return (await site.get(ORDER))["status"]["S"]


def test_a_target_is_written_only_while_its_source_is_what_was_read(monkeypatch):
    with monkeypatch.context() as patch:
        assert run(source_changes_before_the_transaction, patch) == "PAID"
    monkeypatch.setattr(pairs, "unchanged", only_exists)
    assert run(source_changes_before_the_transaction, monkeypatch) == "NEW"


async def a_change_comes_again_late(forward):
    async with site_of(migrating.rekey()) as site:
        await site.put(OLD)
        first = await site.get(OLD)
        await site.set_status(OLD, "PAID")
        await forward(site, await site.get(OLD))
        await forward(site, first)  # redelivered, or from a process that froze
        there = await site.get(ORDER)
        return there["status"]["S"]


async def by_state(site, image):
    key = {name: image[name] for name in site.schema.key_attributes}
    site.tally.add(await site.pairs.forward(key))


async def by_image(site, image):
    for target in site.transform.of({n: v["S"] for n, v in image.items()}).targets:
        await site.aws.dynamodb.put_item(TableName=site.schema.name, Item=dict(target.item))


def test_a_late_change_does_not_bring_back_an_old_value_because_no_image_is_written():
    assert run(a_change_comes_again_late, by_state) == "PAID"
    assert run(a_change_comes_again_late, by_image) == "NEW"


async def deleted_and_then_backfilled(forward):
    async with site_of(migrating.rekey()) as site:
        await site.put(OLD)
        exported = await site.get(OLD)
        await site.delete(OLD)
        await forward(site, exported)
        return await site.get(ORDER)


def test_a_backfill_does_not_bring_back_what_was_deleted():
    assert run(deleted_and_then_backfilled, by_state) is None
    assert run(deleted_and_then_backfilled, by_image) is not None


async def by_time(site, image, second, kept):
    """Write an image unless one of the same second, or a later one, was written: no read."""
    key = repr(image["SK"])
    if key in kept and kept[key] >= second:
        return
    kept[key] = second
    await by_image(site, image)


async def written_twice_in_a_second(stamped):
    async with site_of(migrating.rekey()) as site:
        await site.put(OLD)
        first = await site.get(OLD)
        await site.set_status(OLD, "PAID")
        kept = {}
        for image in (first, await site.get(OLD)):
            if stamped:
                await by_time(site, image, 1_800_000_000, kept)
            else:
                await by_state(site, image)
        return (await site.get(ORDER))["status"]["S"]


def test_of_two_writes_in_one_second_a_fence_of_seconds_loses_the_later():
    assert run(written_twice_in_a_second, False) == "PAID"
    assert run(written_twice_in_a_second, True) == "NEW"


async def seen_before_the_stream_brought_it(monkeypatch, checks):
    """A first pass has read an item, which old code then adds to, and the stream brings over."""
    async with site_of(migrating.rekey()) as site:
        await site.put(OLD)
        key, seen = OLD.item_key.wire(site.schema), await site.get(OLD)
        await site.put(OLD, note={"S": "ring twice"})
        site.tally.add(await site.pairs.forward(key))
        if not checks:
            monkeypatch.setattr(pairs, "absent", any_of(present, absent))
        site.tally.add(await site.pairs.forward(key, seen=seen))
        assert site.tally.errors == 0
        return "note" in await site.get(ORDER)


def test_a_first_pass_does_not_write_what_it_saw_over_what_the_stream_has_brought(monkeypatch):
    assert run(seen_before_the_stream_brought_it, monkeypatch, True)
    assert not run(seen_before_the_stream_brought_it, monkeypatch, False)


def test_a_first_pass_sends_one_transaction_an_item_and_looks_only_where_a_place_was_taken(
    monkeypatch,
):
    async def main():
        async with site_of(migrating.rekey()) as site:
            sent, transact, get = [], site.calls.transact, site.calls.get

            async def noted(call, name, *args):
                sent.append(name)
                return await call(*args)

            monkeypatch.setattr(site.calls, "transact", partial(noted, transact, "transaction"))
            monkeypatch.setattr(site.calls, "get", partial(noted, get, "read"))
            found = []
            for number, brought in enumerate([False, False, True, True, False]):
                old = OldOrder(user="ann", order_id=str(number), status="NEW")
                await site.put(old)
                key, seen = old.item_key.wire(site.schema), await site.get(old)
                if brought:
                    site.tally.add(await site.pairs.forward(key))
                sent.clear()
                site.tally.add(await site.pairs.forward(key, seen=seen))
                found.append(tuple(sent))
            return found

    assert run(main) == [
        ("transaction",),
        ("transaction",),
        ("transaction", "read", "read"),
        ("read", "read"),
        ("read", "read", "transaction"),
    ]
