"""Slices and progress: a migration that lives from one invocation to the next, and how far it is."""

import random
import re
from dataclasses import replace
from itertools import count

import anyio
import msgspec
import pytest

from streamkit import App, Entity, Set
from streamkit.aws_lambda.migration import process_slice
from streamkit.cli.exits import ExitCode
from streamkit.cli.migration_run import exit_code_of, next_step
from streamkit.cli.migration_views import progress_line
from streamkit.core.table_shape import TableShape
from streamkit.core.tables import survey
from streamkit.errors import ConfigurationError
from streamkit.migrate.book.state import State
from streamkit.migrate.book.state_book import open_book
from streamkit.migrate.book.tallies import Tally
from streamkit.migrate.operate import commands, steps
from streamkit.migrate.operate.progress import (
    Progress,
    ProgressReader,
    held_by_others,
    with_pass,
    with_reports,
)
from streamkit.migrate.operate.remaining_time import eta_of, speed_of
from streamkit.migrate.operate.status import list_migrations
from streamkit.migrate.run.capture import Capture
from streamkit.migrate.run.passing import Passing, PassPace
from streamkit.migrate.run.reports import Look, Report, ReportBook, Reporter, fresh
from streamkit.migrate.run.running import Runner
from streamkit.progress.clock import CorrectedClock
from streamkit.progress.control import START, Cursor
from streamkit.progress.cursor import CursorStore
from streamkit.testing.loop import run_virtually
from streamkit.testing.migrators import SETTINGS
from streamkit.testing.world import World


class Order(Entity, pk="ORDER#{number}", sk="ORDER"):
    number: int
    label: str | None = None


def label(number: int) -> Set[Order]:
    return Set(label=f"{number}")


def at_table(test, *, orders, **options):
    """Run a test at a table with orders, of an app whose migration labels them."""
    app = App("shop", table="Shop")
    app.migration("0001", Order, **options)(label)

    async def main():
        world = World.create(1)
        async with world.clients() as aws:
            await TableShape().create(aws.dynamodb, "Shop", (Order,), stream=True)
            schema = (await survey(app, aws)).table
            for number in range(orders):
                item = Order(number=number).attributes(schema)
                await aws.dynamodb.put_item(TableName="Shop", Item=item)
            with anyio.fail_after(7200):
                return await test(app, aws, world)

    return run_virtually(main, seed=1)


def labels(world):
    items = [item for item in world.items("Shop") if item["PK"]["S"].startswith("ORDER#")]
    return [item.get("label") for item in items]


def test_slices_go_on_until_a_migration_is_done():
    async def test(app, aws, world):
        found, event, limit = [], {"migration": "0001"}, commands.Limit(max_writes=2)
        migration = app.migrations["0001"]
        await commands.begin(app, aws, migration, limit=limit, clock=world.clock)
        while not found or not found[-1].done:
            found.append(await process_slice(app, aws, event, 10.0, clock=world.clock))
        return found, labels(world)

    found, after = at_table(test, orders=24)
    assert len(found) > 2
    assert {one.phase for one in found} >= {"scanning", "done"}
    assert found[0].segments_left > 0
    assert after.count(None) == 0
    assert len(after) == 24


def test_a_paused_migration_is_left_alone_by_a_slice():
    async def test(app, aws, world):
        migration = app.migrations["0001"]
        await commands.begin(app, aws, migration, segments=4, clock=world.clock)
        await steps.pause(app, aws, "0001")
        found = await process_slice(app, aws, {"migration": "0001"}, 10.0)
        return found, labels(world)

    found, after = at_table(test, orders=3)
    assert (found.paused, found.done) == (True, False)
    assert after == [None] * 3


def test_an_event_has_to_name_a_migration():
    async def test(app, aws, world):
        for event in ({}, {"migration": 1}, {"migration": "0007"}):
            with pytest.raises(ConfigurationError):
                await process_slice(app, aws, event, 10.0)

    at_table(test, orders=0)


# -- progress --------------------------------------------------------------------------------------


def test_progress_tells_share_speed_limit_and_the_time_that_is_left():
    async def test(app, aws, world):
        await anyio.sleep(1200)  # what is in the stream is old, and left to the pass
        migration = app.migrations["0001"]
        limit = commands.Limit(max_writes=1)
        await commands.begin(app, aws, migration, limit=limit, segments=32, clock=world.clock)
        runner = Runner(app, aws, migration, SETTINGS, world.clock, random.Random(1))
        reader, found = ProgressReader(app, aws, world.clock), []
        world.calls.clear()
        async with anyio.create_task_group() as group:
            group.start_soon(Reporter(runner).run)
            group.start_soon(runner.run)
            while runner.state.phase != "done":
                await anyio.sleep(10)
                taken = sum(call.units["write"] for call in world.calls)
                found.append((world.clock.time(), await reader.read("0001", lag=True), taken))
            group.cancel_scope.cancel()
        book = ReportBook(runner.book.store, "0001")
        return found, await book.all(), await list_migrations(app, aws, clock=world.clock)

    found, left, lines = at_table(test, orders=100)
    units = [taken for _, one, taken in found if one.phase == "scanning"]
    scanning = [(at, one) for at, one, _ in found if one.phase == "scanning"]
    end = next(at for at, one, _ in found if one.phase != "scanning")
    known = [(at, one) for at, one in scanning if one.eta is not None]
    assert len(known) >= 4
    whole = scanning[-1][1].tally.scanned / scanning[-1][1].share  # control items are read, too
    for at, one in known:
        assert abs(at + one.eta - end) <= max(4 * one.eta_error, 25)
        assert one.share == pytest.approx(one.tally.scanned / whole, abs=0.15)
    written = 10 * sum(one.writes.get("", 0.0) for _, one in scanning[1:])
    assert written == pytest.approx(units[-1] - units[0], rel=0.1)
    assert any(one.reason == "limit" for _, one in scanning)
    assert all(one.lag is not None for _, one in scanning)
    assert (left, lines) == ([], [])


def test_nothing_is_said_of_the_end_below_one_percent():
    assert eta_of(0.009, 0.0, 10, (5.0, 0.0)) is None
    seconds, error = eta_of(0.25, 0.0, 100, (5.0, 1.0))
    assert seconds == pytest.approx(60)
    assert error == pytest.approx(12)


def test_a_speed_that_changes_makes_the_end_uncertain():
    steady = [Look(10.0 * n, 100 * n, 0, 0) for n in range(6)]
    uneven = [Look(10.0 * n, 100 * n + 60 * (n % 2), 0, 0) for n in range(6)]
    assert speed_of(steady) == (10.0, 0.0)
    assert speed_of(uneven)[1] > 3
    assert speed_of(steady[:2]) is None


def test_a_segment_that_is_begun_counts_half_and_is_the_error():
    state = State("0001", phase="scanning", segments=5)
    segments = [
        Cursor(name="a", state="finished"),
        Cursor(name="b", position="x"),
        Cursor(name="c", position=START, owner="somebody"),
        Cursor(name="d", position=START),
        None,
    ]
    empty = Progress("0001", "in_place", "scanning", "run", "forward", "")
    found = with_pass(empty, state, Tally(scanned=10), segments, ())
    assert (found.share, found.share_error, found.finished) == (0.4, 0.2, 1)
    looks = [Look(float(n), n, 0, 0) for n in range(9)]
    assert with_pass(empty, state, Tally(scanned=10), segments, looks).eta is not None
    paused = replace(state, paused=True)
    assert with_pass(empty, paused, Tally(scanned=10), segments, looks).eta is None


def test_the_segments_of_a_process_that_does_not_report_are_held_by_it():
    segments = [
        Cursor(name="a", owner="gone", state="finished"),
        Cursor(name="b", owner="gone"),
        Cursor(name="c", owner="gone"),
        Cursor(name="d", owner="live"),
        Cursor(name="e"),
        None,
    ]
    assert held_by_others(segments, {"live"}) == {"gone": 2}


def test_status_says_which_process_that_was_killed_holds_segments():
    async def test(app, aws, world):
        migration = app.migrations["0001"]
        await commands.begin(app, aws, migration, segments=2, clock=world.clock)
        reader, pace = ProgressReader(app, aws, world.clock), PassPace(2, 1, 1)
        runner = Runner(app, aws, migration, clock=world.clock, rng=random.Random(1), pace=pace)
        with anyio.CancelScope() as killed:

            async def hang(*_):
                killed.cancel()
                await anyio.sleep_forever()

            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(CursorStore, "release", hang)  # a killed process gives nothing back
                patch.setattr(Passing, "visit", hang)
                await runner.run()
        await anyio.sleep(60)
        return runner.owner, (await reader.read("0001", lag=True)).held

    owner, held = at_table(test, orders=20)
    assert held == {owner: 2}


def test_status_names_a_budget_below_what_the_application_writes():
    async def test(app, aws, world):
        migration, limit = app.migrations["0001"], commands.Limit(max_writes=4.0)
        given = {"segments": 2, "clock": world.clock, "limit": limit}
        await commands.begin(app, aws, migration, **given)
        runner = Runner(app, aws, migration, clock=world.clock, rng=random.Random(1))
        reporter, reader = Reporter(runner), ProgressReader(app, aws, world.clock)
        schema = (await survey(app, aws)).table

        async def write():
            for number in count(100):  # old code, which knows no label
                item = Order(number=number).attributes(schema)
                await aws.dynamodb.put_item(TableName="Shop", Item=item)
                await anyio.sleep(0.1)

        async with anyio.create_task_group() as group:
            for task in (runner.run, reporter.run, write):
                group.start_soon(task)
            await anyio.sleep(300)
            now = await reader.read("0001", lag=True)
            group.cancel_scope.cancel()
        return now

    now = at_table(test, orders=30)
    assert (now.lag > 200, now.short_of) == (True, "write"), now


def test_processes_add_up_and_silent_ones_do_not_count():
    reports = [
        Report("a", 100.0, reads=5.0, writes={"": 3.0, "GSI1": 1.0}),
        Report("b", 95.0, reads=2.0, writes={"": 4.0}, reason="throttled", worker="live"),
        Report("dead", 10.0, reads=50.0),
        Report("killed", 99.0, reads=50.0, worker="swept"),
    ]
    empty = Progress("0001", "in_place", "scanning", "run", "forward", "")
    found = with_reports(empty, fresh(reports, 101.0, {"live"}))
    assert (found.processes, found.reads, found.reason) == (2, 7.0, "throttled")
    assert found.writes == {"": 7.0, "GSI1": 1.0}
    assert msgspec.json.decode(msgspec.json.encode(reports[1]), type=Report) == reports[1]


def test_a_migration_that_is_paused_is_slowed_by_nothing_else():
    paused = Progress("0001", "in_place", "scanning", "pause", "forward", "")
    assert with_reports(paused, [Report("a", 100.0, reason="budget")]).reason == ""


@pytest.mark.parametrize("wrong", ["runs", "reads", "joins"])
@pytest.mark.parametrize("by", [-300.0, 300.0, 1200.0])
def test_a_process_counts_whichever_clock_is_wrong(by, wrong):
    async def test(app, aws, world):
        def clock(name):
            return CorrectedClock(world.clock, by if name == wrong else 0.0)

        migration = app.migrations["0001"]
        await commands.begin(app, aws, migration, segments=2, clock=world.clock)
        names = ("runs", "joins")
        async with anyio.create_task_group() as group:
            for name in names:
                runner = Runner(app, aws, migration, SETTINGS, clock(name), random.Random(1))
                group.start_soon(Reporter(runner).run)
                group.start_soon(lambda runner=runner: runner.run(stay=True))
                await anyio.sleep(30)
            found = await ProgressReader(app, aws, clock("reads")).read("0001")
            group.cancel_scope.cancel()
        return found.processes

    assert at_table(test, orders=2) == 2


def test_what_is_over_is_not_slowed_by_what_its_last_process_waited_for():
    async def test(app, aws, world):
        migration = app.migrations["0001"]
        await commands.begin(app, aws, migration, segments=2, clock=world.clock)
        book = ReportBook((await open_book(app, aws)).store, "0001")
        await book.join("waits", world.clock.time())
        reader, found = ProgressReader(app, aws, world.clock), []
        for _ in range(2):
            await book.write(Report("waits", world.clock.time(), reason="throttled"))
            now = await reader.read("0001", lag=True)
            found.append((now.phase, now.processes, now.reason))
            await Runner(app, aws, migration, clock=world.clock, rng=random.Random(1)).run()
        return found

    assert at_table(test, orders=2) == [("capturing", 1, "throttled"), ("done", 1, "")]


def test_what_a_killed_process_has_left_is_cleared_by_the_next():
    async def test(app, aws, world):
        store = (await open_book(app, aws)).store
        book = ReportBook(store, "0001")
        now = world.clock.time()
        for name, at in (("dead", now - 3600), ("alive", now)):
            await book.join(name, at)
            await book.write(Report(name, at))
        await book.join("next", now)
        return [report.name for report in await book.all()]

    assert sorted(at_table(test, orders=0)) == ["alive", "next"]


def test_processes_that_start_together_leave_each_other_in_the_list():
    async def test(app, aws, world):
        book = ReportBook((await open_book(app, aws)).store, "0001")
        now = world.clock.time()
        async with anyio.create_task_group() as group:
            for number in range(6):
                group.start_soon(book.join, f"p{number}", now)
        return [report.name for report in await book.all()]

    assert sorted(at_table(test, orders=0)) == [f"p{number}" for number in range(6)]


def test_a_process_that_waits_for_its_own_consumer_says_so_and_only_while_it_waits():
    async def test(app, aws, world):
        migration, seen = app.migrations["0001"], []
        await commands.begin(app, aws, migration, segments=2, clock=world.clock)
        runner = Runner(app, aws, migration, clock=world.clock, rng=random.Random(1))
        caught_up = Capture.caught_up

        async def noted(self, *args):
            seen.append((runner.state.phase, runner.rate.reason))
            return await caught_up(self, *args)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Capture, "caught_up", noted)
            await runner.run()
        return seen, runner.rate.reason

    assert at_table(test, orders=3) == ([("catching up", "capture")], "")
    waits = Progress("1", "in_place", "catching up", "run", "forward", "", reason="capture")
    assert "slowed by its own consumer, which has to catch up first" in progress_line(waits)


def test_status_names_the_other_consumer_whose_lag_slows_a_migration_down():
    waits = Progress("1", "in_place", "scanning", "run", "forward", "")
    reports = [Report("a", 100.0), Report("b", 100.0, reason="lag of shop.search")]
    line = progress_line(with_reports(waits, reports))
    assert "slowed by the lag of other consumers: shop.search is minutes behind" in line
    assert "`streamkit status` of its app says why" in line
    earlier = with_reports(waits, [Report("a", 100.0, reason="lag")])  # of an earlier release
    assert "slowed by the lag of other consumers |" in f"{progress_line(earlier)} |"


def test_a_migration_that_nobody_has_applied_is_pending():
    async def test(app, aws, world):
        return await list_migrations(app, aws, clock=world.clock)

    (line,) = at_table(test, orders=0)
    assert (line.migration, line.phase, line.share) == ("0001", "pending", "-")


@pytest.mark.parametrize(
    ("state", "code"),
    [
        (State("1", phase="done"), ExitCode.OK),
        (State("1", phase="ready", paused=True), ExitCode.OK),
        (State("1", phase="blocked"), ExitCode.WAITS_FOR_PEOPLE),
        (State("1", phase="soaking"), ExitCode.OK),
        (State("1", phase="soaking", note="8 items"), ExitCode.OK),  # refused long ago
        (State("1", phase="closing"), ExitCode.OK),  # stubs are watched for 24 hours
        (State("1", phase="closing", paused=True, note="old code"), ExitCode.PAUSED),
        (State("1", phase="scanning", paused=True), ExitCode.PAUSED),
        (State("1", phase="scanning"), ExitCode.INTERRUPTED),
    ],
    ids=lambda one: str(getattr(one, "phase", "")),
)
def test_a_command_exits_as_the_migration_stands(state, code):
    assert exit_code_of(state) == code


def test_a_contract_that_is_given_up_fails_for_whoever_ran_it_and_for_nobody_later():
    contracting, given_up = State("1", phase="contracting"), State("1", phase="soaking", note="8")
    assert exit_code_of(given_up, contracting) == ExitCode.WAITS_FOR_PEOPLE
    assert exit_code_of(given_up, given_up) == ExitCode.OK
    assert exit_code_of(State("1", phase="closing"), contracting) == ExitCode.OK


@pytest.mark.parametrize(
    ("state", "said"),
    [
        (State("1", phase="rolled back"), "begin --again"),
        (State("1", phase="ready"), "again if you still want"),
        (State("1", phase="blocked"), "waive.*errors list.*resume.*join"),
        (State("1", phase="soaking", note="8 items"), "errors list.*contract"),
        (State("1", phase="scanning", paused=True), "resume.*join"),
        (State("1", phase="following", paused=True, note="x"), "--new-code none.*resume"),
    ],
    ids=lambda one: str(getattr(one, "phase", "")),
)
def test_a_migration_that_waits_for_people_says_what_they_do_next(state, said):
    assert re.search(said, next_step(state))
    assert ("resume" in next_step(state)) == bool(re.search("resume", said))
