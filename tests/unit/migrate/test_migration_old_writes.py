"""Writes in the old shape are counted by hour and phase, and nothing else is."""

import random
from dataclasses import replace

import anyio
import pytest
from botocore.exceptions import ClientError, EndpointConnectionError

from streamkit import App, Item, Set
from streamkit.cli.migration_views import old_write_lines
from streamkit.core.tables import survey
from streamkit.errors import ConfigurationError
from streamkit.migrate.book.errors import ErrorBook
from streamkit.migrate.book.old_writes import OldWriteRate, OldWrites, read_old_writes
from streamkit.migrate.book.state import State
from streamkit.migrate.book.state_book import open_book
from streamkit.migrate.items.writes import origin_text
from streamkit.migrate.operate import steps
from streamkit.migrate.run.reports import ReportBook, Reporter
from streamkit.migrate.run.running import Runner
from streamkit.model.origin import ORIGIN
from streamkit.progress.cursor import CursorStore
from streamkit.settings import Settings
from tests.simulation.merging import (
    Billing,
    Customer,
    Prefs,
    Profile,
    apart,
    sources,
    together,
)
from tests.unit.migrate.test_migration_order import Order, Parcel, at_table

PROMPT = Settings(poll_ceiling=15, heartbeat=60, lease=150, look_interval=30, checkpoint_interval=2)


def labelled(item: Item) -> Set[Order]:
    return Set(label=f"{item['number']}")


def moved(order: Order) -> Parcel:
    return Parcel(number=order.number)


def shop(function, **options):
    app = App("shop", table="Shop")
    app.migration("0001", Order, **options)(function)
    return app


async def put(site, number, **fields):
    item = {"PK": {"S": f"ORDER#{number}"}, "SK": {"S": "ORDER"}, "number": {"N": f"{number}"}}
    await site.aws.dynamodb.put_item(TableName="Shop", Item=item | fields)


async def while_it_runs(site, act):
    """Act while a process runs the migration, and return what was counted."""
    runner = Runner(
        site.app,
        site.aws,
        site.app.migrations["0001"],
        PROMPT,
        site.world.clock,
        random.Random(1),
    )
    async with anyio.create_task_group() as group:
        group.start_soon(Reporter(runner).run)
        group.start_soon(lambda: runner.run(stay=True))
        await anyio.sleep(60)
        await act()
        await anyio.sleep(30)
        runner.stop()
        await anyio.sleep(5)
        group.cancel_scope.cancel()
    return {one.phase: one for one in await read_old_writes(site.app, site.aws, "0001")}


@pytest.mark.parametrize("mode", ["in_place", "touch"])
def test_in_place_writes_count_that_are_not_in_the_new_shape(mode):
    async def test(site):
        await anyio.sleep(1200)
        await site.begin("0001")

        async def act():
            await put(site, 7)
            await put(site, 8, label={"S": "8"})  # new code
            await put(site, 6, **{ORIGIN: {"S": origin_text("shop.0002")}})  # another migration
            await anyio.sleep(3600)
            await put(site, 7)
            await put(site, 9)

        return await while_it_runs(site, act)

    found = at_table(test, shop(labelled, mode=mode))
    (rate,) = found.values()
    assert (rate.phase, list(rate.by_hour.values())) == ("done", [1, 2])
    assert rate.lately(rate.last, 3) == [0, 1, 2]


def test_a_process_reports_again_once_it_may(monkeypatch):
    join, refused = ReportBook.join, []

    async def refuse_twice(book, name, now):
        if len(refused) < 2:
            refused.append(name)
            raise ClientError({"Error": {"Code": "AccessDeniedException"}}, "UpdateItem")
        await join(book, name, now)

    async def test(site):
        await site.begin("0001")

        async def act():
            await put(site, 7)
            book = await open_book(site.app, site.aws)
            reports = await ReportBook(book.store, "0001").all()
            assert [report.name for report in reports] == refused[:1]

        return await while_it_runs(site, act)

    monkeypatch.setattr(ReportBook, "join", refuse_twice)
    found = at_table(test, shop(labelled, mode="in_place"))
    assert list(found["done"].by_hour.values()) == [1]


def test_writes_at_old_keys_count_before_and_after_the_switch_and_copies_do_not():
    async def test(site):
        await anyio.sleep(1200)
        await site.begin("0001")

        async def act():
            await put(site, 7)
            await put(site, 1, note={"S": "more"})
            await anyio.sleep(20)
            await steps.switch(site.app, site.aws, "0001", clock=site.world.clock)
            await anyio.sleep(60)
            await put(site, 1, note={"S": "late"})
            await site.aws.dynamodb.delete_item(
                TableName="Shop", Key={"PK": {"S": "ORDER#2"}, "SK": {"S": "ORDER"}}
            )
            new = {"PK": {"S": "PARCEL#3"}, "SK": {"S": "PARCEL"}, "number": {"N": "3"}}
            await site.aws.dynamodb.put_item(TableName="Shop", Item=new)

        return await while_it_runs(site, act)

    found = at_table(test, shop(moved, mode="rekey"))
    assert {phase: rate.writes for phase, rate in found.items()} == {"ready": 2, "soaking": 2}


def moved_back(parcel: Parcel) -> Order:
    return Order(number=parcel.number)


async def delete(site, pk, sk):
    key = {"PK": {"S": pk}, "SK": {"S": sk}}
    await site.aws.dynamodb.delete_item(TableName=site.app.table, Key=key)


async def last_of_new(site):
    return await OldWrites((await open_book(site.app, site.aws)).store, "0001").last_of_new(1)


def test_an_old_item_that_goes_because_new_code_deleted_its_new_one_is_no_old_write():
    async def test(site):
        await anyio.sleep(1200)
        await site.begin("0001")

        async def act():
            await delete(site, "PARCEL#0", "PARCEL")
            await anyio.sleep(20)
            await steps.switch(site.app, site.aws, "0001", clock=site.world.clock)
            await anyio.sleep(60)
            await delete(site, "PARCEL#1", "PARCEL")
            await delete(site, "ORDER#2", "ORDER")  # old code

        found = await while_it_runs(site, act)
        assert not {"ORDER#0", "ORDER#1"} & {one["PK"]["S"] for one in site.world.items("Shop")}
        return found

    found = at_table(test, shop(moved, mode="rekey", reverse=moved_back))
    assert {phase: rate.writes for phase, rate in found.items()} == {"soaking": 1}


def test_a_delete_by_new_code_is_a_write_of_new_code_and_one_by_the_migration_is_none():
    async def test(site):
        await anyio.sleep(1200)
        await site.begin("0001")
        seen = []

        async def act():
            await steps.switch(site.app, site.aws, "0001", clock=site.world.clock)
            await anyio.sleep(60)
            await delete(site, "ORDER#1", "ORDER")  # the migration deletes the new item
            await anyio.sleep(60)
            seen.append(await last_of_new(site))
            seen.append(site.world.clock.time())
            await delete(site, "PARCEL#2", "PARCEL")

        await while_it_runs(site, act)
        return *seen, await last_of_new(site)

    before, at, after = at_table(test, shop(moved, mode="rekey", reverse=moved_back))
    assert before == 0
    assert abs(after - at) <= 1


def test_of_several_old_items_those_that_the_migration_deletes_are_no_old_writes():
    async def test(site):
        for user in ("ann", "bob", "cy"):
            for one in sources(user):
                item = one.attributes((await survey(site.app, site.aws)).table)
                await site.aws.dynamodb.put_item(TableName="Shop", Item=item)
        await anyio.sleep(1200)
        await site.begin("0001")

        async def act():
            await steps.switch(site.app, site.aws, "0001", clock=site.world.clock)
            await anyio.sleep(60)
            await delete(site, "CUSTOMER#ann", "CUSTOMER")
            await site.aws.dynamodb.update_item(
                TableName="Shop",
                Key={"PK": {"S": "CUSTOMER#bob"}, "SK": {"S": "CUSTOMER"}},
                UpdateExpression="REMOVE theme",
            )
            await delete(site, "CUSTOMER#cy", "BILLING")  # old code

        found = await while_it_runs(site, act)
        left = {(i["PK"]["S"][9:], i["SK"]["S"]) for i in site.world.items("Shop")}
        assert not {("ann", "PROFILE"), ("bob", "PREFS")} & left
        return found

    app = App("shop", table="Shop", entities=[Profile, Prefs, Billing, Customer])
    app.migration("0001", Profile, mode="merge", reverse=apart)(together)
    found = at_table(test, app)
    assert {phase: rate.writes for phase, rate in found.items()} == {"soaking": 1}


def test_writes_at_new_keys_of_the_same_shape_are_not_old_ones():
    def renumbered(order: Order) -> Order | None:
        return (
            order.model_copy(update={"number": order.number + 1000})
            if order.number < 1000
            else None
        )

    async def test(site):
        await anyio.sleep(1200)
        await site.begin("0001")

        async def update(number, label="S"):
            await site.aws.dynamodb.update_item(
                TableName="Shop",
                Key={"PK": {"S": f"ORDER#{number}"}, "SK": {"S": "ORDER"}},
                UpdateExpression="SET label = :yes",
                ExpressionAttributeValues={":yes": {label: "1"}},
            )

        async def act():
            await steps.switch(site.app, site.aws, "0001", clock=site.world.clock)
            await anyio.sleep(60)
            await update(1001)  # new code
            await update(1000, "N")  # new code, in a form that only the stamp tells
            await put(site, 1003)  # new code, which takes the stamp away
            await update(2)  # old code

        return await while_it_runs(site, act)

    found = at_table(test, shop(renumbered, mode="rekey"))
    assert {phase: rate.writes for phase, rate in found.items()} == {"soaking": 1}


def test_processes_add_up_what_they_counted():
    async def test(site):
        await site.begin("0001")
        store = (await open_book(site.app, site.aws)).store
        state = State("0001", phase="ready", run=1)
        books = [OldWrites(store, "0001") for _ in range(2)]
        for book, times in zip(books, ([7200.0, 7300.0], [7400.0, 11000.0]), strict=True):
            for at in times:
                book.count(state, at)
                await book.flush()
            await book.flush()  # nothing was counted since
        return await books[0].read(1)

    (rate,) = at_table(test, shop(labelled))
    assert rate == OldWriteRate("ready", 11000.0, {7200: 3, 10800: 1})


def of_book(test):
    """Return what a test of one process's counts returns; it gets them and the control items."""

    async def begun(site):
        await site.begin("0001")
        store = (await open_book(site.app, site.aws)).store
        return await test(OldWrites(store, "0001"), store)

    return at_table(begun, shop(labelled))


READY, AGAIN = State("0001", phase="ready", run=1), State("0001", phase="ready", run=2)


def test_what_a_process_was_stopped_in_writing_down_is_written_down_once_more(monkeypatch):
    async def test(book, store):
        write, calls = store.write, []

        async def slow(action):
            calls.append(action)
            await anyio.sleep(100 if len(calls) == 2 else 0)
            return await write(action)

        monkeypatch.setattr(CursorStore, "write", lambda _, action: slow(action))
        book.count(READY, 7200.0)
        book.count(READY, 7300.0)
        with anyio.move_on_after(5):
            await book.flush()
        book.count(READY, 7250.0)
        await book.flush()
        made = len(calls)
        await book.flush()
        assert len(calls) == made, "nothing was counted since"
        return await book.read(1)

    assert of_book(test) == [OldWriteRate("ready", 7300.0, {7200: 3})]


def test_what_is_counted_while_counts_are_written_down_is_written_down_next(monkeypatch):
    async def test(book, store):
        write, late = store.write, [7100.0]

        async def meanwhile(_, action):
            if action.adds and late:
                book.count(READY, late.pop())
            return await write(action)

        monkeypatch.setattr(CursorStore, "write", meanwhile)
        book.count(READY, 7200.0)
        await book.flush()
        await book.flush()
        return await book.read(1)

    assert of_book(test) == [OldWriteRate("ready", 7200.0, {3600: 1, 7200: 1})]


def test_each_run_has_its_own_counts_and_the_last_write_never_goes_back():
    async def test(book, store):
        for state, at in ((READY, 7200.0), (AGAIN, 10800.0), (READY, 3600.0)):
            book.count(state, at)
        await book.flush()
        return [await book.read(run) for run in (1, 2)]

    first = OldWriteRate("ready", 7200.0, {3600: 1, 7200: 1})
    assert of_book(test) == [[first], [OldWriteRate("ready", 10800.0, {10800: 1})]]


@pytest.mark.parametrize("phase", ["ready", "switching"])
def test_a_write_before_the_switch_is_known_as_soon_as_there_is_one(phase):
    async def test(book, store):
        before = await book.last_before_switch(1)
        book.count(replace(READY, phase="soaking"), 9000.0)
        book.count(replace(READY, phase=phase), 7200.0)
        await book.flush()
        return before, await book.last_before_switch(1)

    assert of_book(test) == (0.0, 7200.0)


def test_a_write_of_new_code_in_an_earlier_run_counts_and_each_minute_is_written_down():
    async def test(book, store):
        found = []
        for state, at in ((READY, 7200.0), (AGAIN, 7230.0), (AGAIN, 7260.0)):
            await book.note_new(state, at)
            found.append(await book.last_of_new(2))
        return found

    assert of_book(test) == [7200.0, 7200.0, 7260.0]


def test_a_write_of_new_code_that_could_not_be_written_down_is_so_at_the_next_try(monkeypatch):
    async def test(book, store):
        async def fails(_, action):
            raise EndpointConnectionError(endpoint_url="dynamodb")

        with monkeypatch.context() as patch:
            patch.setattr(CursorStore, "write", fails)
            with pytest.raises(EndpointConnectionError):
                await book.note_new(READY, 7200.0)
        await book.note_new(READY, 7201.0)
        return await book.last_of_new(1)

    assert of_book(test) == 7201.0


def test_a_line_says_how_much_was_written_and_when_last():
    (line,) = old_write_lines([OldWriteRate("ready", 11000.0, {7200: 3, 10800: 1})])
    assert line.startswith("in the old shape while ready: 4 writes, the last at 1970-01-01 03:03")
    assert line.endswith("in the last 6 hours 0 0 0 0 0 0")


def test_a_write_at_an_old_key_before_the_switch_holds_contract_back_for_a_day():
    async def test(site):
        await anyio.sleep(1200)
        await site.begin("0001")
        about, said = (site.app, site.aws, "0001"), {"clock": site.world.clock}

        async def act():
            await put(site, 1, note={"S": "old code runs once a day"})
            await anyio.sleep(20)
            await steps.switch(*about, **said)
            await anyio.sleep(60)
            errors = ErrorBook((await open_book(site.app, site.aws)).store, "0001")
            await errors.written({"PK": {"S": "O"}}, site.world.clock.time() - 840)  # another run's
            with pytest.raises(ConfigurationError, match=r"before the switch, 1 min ago"):
                await steps.contract(*about, **said)
            site.world.clock.spend(23 * 3600)
            with pytest.raises(ConfigurationError, match=r"23 h 1 min ago.*--old-code none"):
                await steps.contract(*about, **said)
            site.world.clock.spend(3600)
            await steps.contract(*about, **said)
            await anyio.sleep(120)
            assert (await (await open_book(site.app, site.aws)).read("0001")).phase == "done"

        await while_it_runs(site, act)

    at_table(test, shop(moved, mode="rekey"), patience=3 * 86400)
