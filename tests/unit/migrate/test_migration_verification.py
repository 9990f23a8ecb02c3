"""Verification: what is wrong is found, what is under way raises no alarm, and nothing is written."""

import gc
import itertools
import tracemalloc
from dataclasses import replace

import anyio
import pytest

from streamkit import App, Entity, Set
from streamkit.cli.migration_found import describe_verified
from streamkit.core.table_shape import TableShape
from streamkit.core.tables import survey
from streamkit.fleet.members import Member, MemberList
from streamkit.migrate.book.errors import ErrorBook, error_id
from streamkit.migrate.book.state_book import open_book
from streamkit.migrate.families.family import Family
from streamkit.migrate.operate import commands, steps
from streamkit.migrate.run.sampling import Wanted
from streamkit.migrate.run.work import MigrationWork
from streamkit.migrate.verify import findings, orphans
from streamkit.migrate.verify.differences import ItemInspection
from streamkit.migrate.verify.mending import list_errors, open_work, retry_errors, waive_errors
from streamkit.migrate.verify.orphans import PairSearch
from streamkit.model.copies import COPY
from streamkit.progress.actions import CONTROL_PREFIX, render
from streamkit.progress.control import ControlSpace
from streamkit.progress.cursor import CursorStore
from streamkit.progress.scan.places import place_text
from streamkit.testing.loop import run_virtually
from streamkit.testing.world import World
from tests.unit.migrate.places import Place


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


class OrderPlace(Place):
    """A table with orders, and a migration of them."""

    async def delete(self, item):
        key = item.item_key.wire(self.schema)
        await self.aws.dynamodb.delete_item(TableName="Shop", Key=key)

    async def begin(self, step="apply"):
        if step == "apply":
            await commands.begin(
                self.app, self.aws, self.migration, segments=2, clock=self.world.clock
            )
        else:
            await getattr(steps, step)(self.app, self.aws, "0001")

    async def run(self, step="apply"):
        await self.begin(step)
        return (await self.runner().run()).phase

    def items(self):
        return self.world.items("Shop")

    def own(self):
        """Return the items that are not streamkit's."""
        return [i for i in self.items() if not i["PK"]["S"].startswith(CONTROL_PREFIX)]

    def control(self, *kinds):
        """Return the control items of these kinds, by their names."""
        found = {i["PK"]["S"].split("#", 3)[3]: i for i in self.items() if i not in self.own()}
        return {name: item for name, item in found.items() if name.startswith(kinds)}


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
                return await place_of_test(OrderPlace(world, aws, app, schema))

    return run_virtually(main, seed=1)


def kinds_of(verified):
    return sorted(one.kind for one in verified.different)


def test_an_item_that_an_old_writer_has_turned_back_is_found_and_repaired():
    async def test(place):
        await place.put(*(Order(number=n) for n in range(20)))
        assert await place.run() == "done"
        assert (await place.verify()).ok
        await place.put(Order(number=3, status="SENT"))
        before = place.own()
        found = await place.verify()
        assert (kinds_of(found), found.matching) == (["unmigrated"], 20)
        assert place.own() == before
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


def told(capsys, found):
    """Return the last lines of a verification's output."""
    capsys.readouterr()
    describe_verified(found)
    return capsys.readouterr().out.splitlines()[2:]


def test_a_verification_says_of_what_was_waived_that_it_does_not_count_as_right(capsys):
    async def test(place):
        await place.put(*(Order(number=n, status="BAD") for n in range(2)), Order(number=2))
        assert await place.run() == "blocked"
        assert await waive_errors(place.app, place.aws, "0001", None, "ours") == 2
        return await place.verify()

    waived, others = told(capsys, at(test))
    assert waived == "2 items differ and were waived: they do not count as right"
    assert others == "every other item is as it should be"


def test_a_verification_is_not_fine_while_an_error_is_open_and_says_where_it_is(capsys):
    async def test(place):
        await place.put(Order(number=1, status="BAD"), Order(number=2))
        assert await place.run() == "blocked"
        await place.put(Order(number=1, label="1#NEW"))
        found = await place.verify()
        assert await retry_errors(place.app, place.aws, "0001") == (1, 0)
        return found, await place.verify()

    found, later = at(test)
    assert ((found.ok, found.failed, found.different), later.ok) == ((False, 1, ()), True)
    assert told(capsys, found) == ["1 items have failed; see `streamkit migrate errors list`"]
    assert told(capsys, later) == ["every item is as it should be"]


def test_what_a_person_has_waived_is_no_difference():
    async def test(place):
        await place.put(Order(number=1, status="BAD"), Order(number=2))
        assert await place.run() == "blocked"
        (error,) = await list_errors(place.app, place.aws, "0001")
        assert await retry_errors(place.app, place.aws, "0001") == (0, 1)
        assert kinds_of(await place.verify()) == ["fails"]
        with pytest.raises(ValueError, match="give a reason"):
            await waive_errors(place.app, place.aws, "0001", {error.id}, " ")
        assert await waive_errors(place.app, place.aws, "0001", {error.id}, "ours") == 1
        found = await place.verify()
        assert (found.ok, found.waived) == (True, 1)
        book = await open_book(place.app, place.aws)
        assert error.id in (await book.read("0001")).audit[-1].what
        assert await place.run("resume") == "done"

    at(test)


class Note(Entity, pk="ORDER#{number}", sk="NOTE"):
    number: int
    text: str = ""


def joined(order: Order | None, note: Note | None) -> Filed | None:
    if note is not None and note.text == "BAD":
        raise ValueError(note.text)
    some = order or note
    return None if some is None else Filed(number=some.number, status=note.text if note else "-")


def taken_apart(filed: Filed) -> list[Order | Note]:
    return [Order(number=filed.number), Note(number=filed.number, text=filed.status)]


def test_a_waived_family_is_no_difference_whichever_of_its_items_are_there():
    async def test(place):
        await place.put(Order(number=1), Note(number=1, text="BAD"), Note(number=2, text="BAD"))
        assert await place.run() == "blocked"
        assert len(await list_errors(place.app, place.aws, "0001")) == 2
        assert kinds_of(await place.verify()) == ["fails", "fails"]
        assert await waive_errors(place.app, place.aws, "0001", None, "ours") == 2
        found = await place.verify()
        assert (found.ok, found.waived) == (True, 2)

    at(test, joined, mode="merge", reverse=taken_apart)


def test_a_family_that_a_repair_brings_over_is_no_error_any_more():
    async def test(place):
        await place.put(Order(number=1), Note(number=2, text="BAD"))
        assert await place.run() == "blocked"
        await place.put(Note(number=2, text="right"))
        found = await place.verify(repair=True)
        assert (found.ok, found.repaired) == (True, 1)
        assert await list_errors(place.app, place.aws, "0001") == []

    at(test, joined, mode="merge", reverse=taken_apart)


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
        # Both sides may be written: the old items follow what was done to the new ones.
        assert kinds_of(found) == ["behind", "behind", "orphan"]
        mended = await place.verify(repair=True)
        assert (mended.ok, mended.repaired) == (True, 3)
        assert (await place.verify()).ok
        assert not [i for i in place.items() if i["PK"] == {"S": "ORDER#3"}]
        assert not [i for i in place.items() if i["PK"] == {"S": "FILED#5"}]

    at(test, file, mode="rekey", reverse=unfile)


def test_after_the_switch_old_items_that_do_not_follow_are_found():
    async def test(place):
        await place.put(*(Order(number=n) for n in range(6)))
        assert await place.run() == "ready"
        assert await place.run("switch") == "soaking"
        found = await place.verify()
        assert (found.ok, found.orphans) == (True, False)
        await place.put(Filed(number=2, status="SENT"))
        assert kinds_of(await place.verify()) == ["behind"]
        assert await place.run("contract") == "done"
        found = await place.verify()
        assert (found.ok, found.orphans) == (True, None)  # no copy is left
        await place.put(Order(number=2))
        (late,) = (await place.verify(repair=True)).different
        assert (late.kind, late.can_be_repaired) == ("late", False)

    at(test, file, mode="rekey", reverse=unfile)


@pytest.mark.parametrize("step", ["apply", "switch"])
def test_an_item_that_old_code_deletes_while_nobody_follows_is_found_and_repaired(step):
    async def main(place):
        await place.put(*(Order(number=n) for n in range(3)))
        for one in ("apply", "switch")[: 2 if step == "switch" else 1]:
            await place.run(one)
        await place.delete(Order(number=1))
        found = await place.verify()
        assert (found.ok, len(found.different)) == (False, 1)
        mended = await place.verify(repair=True)
        assert (mended.different, mended.repaired) == ((), 1)
        assert (await place.verify()).ok
        return sorted(item["number"]["N"] for item in place.items() if "FILED" in item["PK"]["S"])

    assert at(main, file, mode="rekey", reverse=unfile) == ["0", "2"]


@pytest.mark.parametrize("lives", [True, False])
def test_what_nobody_follows_is_wrong_though_a_killed_process_has_left_its_heartbeat(lives):
    async def main(place):
        await place.put(*(Order(number=n) for n in range(3)))
        await place.run("apply")
        state = await (await open_book(place.app, place.aws)).read("0001")
        tables = await survey(place.app, place.aws)
        stream = tables.table.stream_arn.rpartition("/")[2]
        space = ControlSpace.of(tables.control, f"{place.app.name}.{state.consumer}", stream)
        members = MemberList(CursorStore(place.aws.dynamodb, space))
        process = Member("killed/1/2", lease=10.0)
        await members.add(process)
        await place.delete(Order(number=1))

        async def beat():
            for number in itertools.count(1):
                await members.write(replace(process, beats=number))
                await anyio.sleep(5)

        async with anyio.create_task_group() as group:
            if lives:
                group.start_soon(beat)
            found = await place.verify()
            group.cancel_scope.cancel()
        return found.ok, len(found.different), len(found.unsettled)

    assert at(main, file, mode="rekey", reverse=unfile) == (
        (True, 0, 1) if lives else (False, 1, 0)
    )


@pytest.mark.parametrize("to", [None, "New"])
def test_once_old_items_are_deleted_a_verification_says_that_nothing_is_left_to_compare(to, capsys):
    async def test(place):
        if to is not None:
            await TableShape().create(place.aws.dynamodb, to, (Filed,), stream=True)
        await place.put(*(Order(number=n) for n in range(6)))
        assert [await place.run(step) for step in ("apply", "switch")] == ["ready", "soaking"]
        soaking = await place.verify()
        assert await place.run("contract") == "done"
        return soaking, await place.verify()

    soaking, done = at(test, file, mode="rekey", reverse=unfile, to=to)
    assert [(one.ok, one.compared) for one in (soaking, done)] == [(True, True), (True, False)]
    assert done.matching == (0 if to else 6)
    assert told(capsys, done) == [
        "the old items are deleted, so nothing is left to which new ones could be compared",
        "nothing was written at old keys since",
    ]


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


def copied(schema, number):
    """Return a copy of an order, as a migration that is not switched has left it."""
    mark = {COPY: {"S": f"0001:{error_id(Order(number=number).item_key.wire(schema))}"}}
    return {**Filed(number=number).attributes(schema), **mark}


class EveryFamily:
    """Answers each read with what belongs there, agreed; nothing is stored anywhere."""

    def __init__(self, schema):
        self.schema = schema
        self.families = None
        self._made = None, ()

    async def get(self, _table, key):
        number = key["PK"]["S"].rpartition("#")[2]
        asked = int(number) if number.isdigit() else self.numbers[number]
        return next(one for one in self.of(asked) if key.items() <= one.items())

    def of(self, number):
        """Return an order, its copy and their record, as a migration leaves them before ready."""
        if self._made[0] != number:
            self._made = number, self._make(number)
        return self._made[1]

    def _make(self, number):
        order = Order(number=number)
        old, key = order.attributes(self.schema), order.item_key.wire(self.schema)
        self.numbers = {Family(key).name: number}
        olds = {place_text(key): old}
        places = dict.fromkeys(self.families.shapes.targets(olds))
        after = self.families.plans.settle(Family(key, None, olds, places)).after
        record = self.families.records.writes(None, after.record)
        stored = next(iter(render(record, self.schema).values()))["Item"]
        return *after.old.values(), *after.new.values(), stored


def held_for(items, look):
    """Return the most bytes that a pass over so many orders and their copies holds."""

    async def test(place):
        await place.begin()
        asked = place.app, place.aws, place.migration, place.world.clock
        async with open_work(*asked) as (opened, now):
            calls = EveryFamily(place.schema)
            parts = opened.schemas, calls, opened.errors, opened.clock
            work = MigrationWork(place.app.name, place.migration, now.state, *parts)
            calls.families = work.families
            inspection = ItemInspection(work)
            await look(inspection, calls.of(0))  # what is made once is made now
            gc.collect()
            tracemalloc.start()
            try:
                for number in range(items):
                    await look(inspection, calls.of(number))
                gc.collect()
                return tracemalloc.get_traced_memory()[0]
            finally:
                tracemalloc.stop()

    return at(test, file, mode="rekey", reverse=unfile)


async def inspected(inspection, family):
    matching = inspection.matching
    for item in family:
        assert await inspection.of("Shop", item) is None
    assert inspection.matching == matching + 1


def test_what_a_verification_holds_does_not_grow_with_the_table():
    few, many = held_for(100, inspected), held_for(600, inspected)
    assert many < few + 10_000


def test_a_search_for_copies_without_a_source_holds_those_of_its_own_buckets_alone():
    def holding(items):
        search = PairSearch(lambda pair: pair % 128 == 5)

        async def searched(inspection, family):
            inspection.trace("Shop", family[1], search)

        held = held_for(items, searched)
        assert 0 < len(search.left) < items / 20
        return held

    few, many = holding(100), holding(600)
    assert many < few + 10_000


def test_copies_without_a_source_are_found_however_many_passes_that_takes(monkeypatch):
    monkeypatch.setattr(orphans, "HELD_MAX", 0)  # a bucket at a time

    async def test(place):
        await place.put(*(Order(number=n) for n in range(12)))
        await place.run()
        for number in (2, 3, 5, 7, 11):
            await place.delete(Order(number=number))
        found = await place.verify()
        assert kinds_of(found) == ["orphan"] * 5
        assert (found.matching, found.looked_at > 19, found.orphans) == (7, True, True)

    at(test, file, mode="rekey", reverse=unfile)


def test_a_copy_that_names_another_source_than_its_own_is_an_orphan():
    async def test(place):
        await place.put(*(Order(number=n) for n in range(4)))
        await place.run()
        stray = copied(place.schema, 3) | {"PK": {"S": "FILED#9"}, "number": {"N": "9"}}
        place.world.engine.call("dynamodb", "PutItem", {"TableName": "Shop", "Item": stray})
        assert kinds_of(await place.verify()) == ["orphan"]

    at(test, file, mode="rekey", reverse=unfile)


def test_what_differs_beyond_what_is_kept_is_counted_and_is_not_fine(monkeypatch):
    monkeypatch.setattr(findings, "KEPT_MAX", 3)

    async def test(place):
        await place.put(*(Order(number=n) for n in range(8)))
        await place.begin()
        found = await place.verify()
        assert (len(found.different), found.beyond, found.ok) == (3, 5, False)
        mended = await place.verify(repair=True)
        assert (mended.repaired, mended.different, mended.beyond) == (3, (), 5)
        assert (mended.ok, mended.to_dict()["beyond"]) == (False, 5)

    at(test)


def test_what_was_waived_takes_no_place_of_what_is_kept(monkeypatch):
    monkeypatch.setattr(findings, "KEPT_MAX", 1)

    async def test(place):
        await place.put(*(Order(number=n, status="BAD") for n in range(3)), Order(number=3))
        await place.run()
        await waive_errors(place.app, place.aws, "0001", None, "ours")
        found = await place.verify()
        assert (found.ok, found.waived, found.beyond) == (True, 3, 0)

    at(test)


def test_a_copy_that_changed_since_it_was_found_is_not_deleted_as_an_orphan(monkeypatch):
    async def test(place):
        await place.put(Order(number=1))
        await place.run()
        await place.delete(Order(number=1))

        async def written(self):
            await place.put(Order(number=1))
            copy = copied(place.schema, 1) | {"status": {"S": "ANEW"}}
            place.world.engine.call("dynamodb", "PutItem", {"TableName": "Shop", "Item": copy})
            return waived

        waived = []
        monkeypatch.setattr(ErrorBook, "all", once_more(ErrorBook.all, written))
        found = await place.verify(repair=True)
        assert (kinds_of(found), found.repaired) == (["orphan"], 0)
        assert [i for i in place.items() if i["PK"] == {"S": "FILED#1"}]

    def once_more(first, then):
        calls = [first, then]

        def called(book):
            return (calls.pop(0) if len(calls) > 1 else calls[0])(book)

        return called

    at(test, file, mode="rekey", reverse=unfile)
