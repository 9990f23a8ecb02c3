"""Beginning, joining and resuming a migration are three things; what is restarted only joins."""

import random

import anyio
import pytest

from streamkit import Set
from streamkit.aws_lambda.migration import process_slice
from streamkit.errors import ConfigurationError, NotBegun
from streamkit.migrate.book.limits import Limit
from streamkit.migrate.book.state_book import StateBook, open_book
from streamkit.migrate.operate import commands, steps
from streamkit.migrate.run.running import Runner
from streamkit.migrate.verify import mending
from tests.unit.migrate.test_migration_slices import Order, at_table, labels


def unlabel(label: str | None = None) -> Set[Order]:
    return Set(label=None)


def runner_of(app, aws, world):
    return Runner(app, aws, app.migrations["0001"], clock=world.clock, rng=random.Random(1))


async def begin(app, aws, world, **options):
    options = {"segments": 4, "clock": world.clock} | options
    return await commands.begin(app, aws, app.migrations["0001"], **options)


async def read(app, aws):
    return await (await open_book(app, aws)).read("0001")


async def paused(app, aws, world):
    await begin(app, aws, world)
    await steps.pause(app, aws, "0001")


async def rolled_back(app, aws, world):
    await begin(app, aws, world)
    await runner_of(app, aws, world).run()
    await steps.rollback(app, aws, "0001")
    await runner_of(app, aws, world).run()


async def blocked(app, aws, world):
    await begin(app, aws, world)
    await aws.dynamodb.put_item(
        TableName="Shop",
        Item={"PK": {"S": "ORDER#9"}, "SK": {"S": "ORDER"}, "number": {"S": "no number"}},
    )
    await runner_of(app, aws, world).run()


async def done(app, aws, world):
    await begin(app, aws, world)
    await runner_of(app, aws, world).run()


REACHED = {"capturing": paused, "rolled back": rolled_back, "blocked": blocked, "done": done}


async def join(app, aws, world):
    with anyio.fail_after(300):
        return (await runner_of(app, aws, world).run()).phase


async def a_slice(app, aws, world):
    return (await process_slice(app, aws, {"migration": "0001"}, 60.0, clock=world.clock)).phase


def test_the_history_says_with_which_options_a_command_was_given():
    async def test(app, aws, world):
        limit = Limit(max_writes=900, max_errors=0.001, first=2000)
        await begin(app, aws, world, limit=limit)
        await steps.set_limit(app, aws, "0001", Limit(max_reads=0.5, max_errors=12))
        await steps.set_limit(app, aws, "0001", Limit(max_writes=0))
        app.migrations.pop("0001")
        app.migration("0001", Order, reverse=unlabel)(lambda number: Set[Order](label="b"))
        await steps.resume(app, aws, "0001", accept_change=True)
        await steps.rollback(app, aws, "0001", accept_change=True)
        return [entry.what for entry in (await read(app, aws)).audit]

    assert at_table(test, orders=1) == [
        "begin --max-wcu 900 --first 2000 --max-errors 0.1%",
        "limit --max-rcu 0.5 --max-errors 12",
        "limit --max-wcu 0",
        "resume --accept-change",
        "rollback --accept-change",
    ]


@pytest.mark.parametrize("start", [join, a_slice])
@pytest.mark.parametrize("phase", list(REACHED))
def test_what_is_started_again_does_what_the_table_says_and_nothing_else(phase, start):
    async def test(app, aws, world):
        await REACHED[phase](app, aws, world)
        before = await read(app, aws)
        again = [await start(app, aws, world) for _ in range(3)]
        return before, again, await read(app, aws)

    before, again, after = at_table(test, orders=3, reverse=unlabel)
    assert before.phase == phase
    assert again == [phase] * 3
    assert after == before


@pytest.mark.parametrize("phase", list(REACHED))
def test_to_begin_is_refused_of_what_was_begun_and_changes_nothing(phase):
    async def test(app, aws, world):
        await REACHED[phase](app, aws, world)
        before = await read(app, aws)
        with pytest.raises(ConfigurationError, match=phase):
            await begin(app, aws, world, limit=commands.Limit(max_writes=1000.0))
        return before, await read(app, aws)

    before, after = at_table(test, orders=3, reverse=unlabel)
    assert after == before


def test_what_was_rolled_back_is_begun_again_when_that_is_said():
    async def test(app, aws, world):
        await rolled_back(app, aws, world)
        between = labels(world)
        await begin(app, aws, world, again=True)
        await runner_of(app, aws, world).run()
        return between, labels(world)

    between, after = at_table(test, orders=3, reverse=unlabel)
    assert between == [None] * 3
    assert None not in after


@pytest.mark.parametrize("late", ["rollback", "pause"])
def test_a_command_that_another_one_overtakes_is_refused(late, monkeypatch):
    async def test(app, aws, world):
        await begin(app, aws, world)
        real, others = StateBook.read, [10.0]

        async def slowly(book, number):
            state = await real(book, number)
            while others:  # what comes while this process stands still between read and write
                limit = commands.Limit(max_writes=others.pop())
                await steps.set_limit(app, aws, "0001", limit, clock=world.clock)
            return state

        monkeypatch.setattr(StateBook, "read", slowly)
        with pytest.raises(ConfigurationError, match="another command was given meanwhile"):
            await getattr(steps, late)(app, aws, "0001", clock=world.clock)
        return await read(app, aws)

    state = at_table(test, orders=3, reverse=unlabel)
    assert (state.direction, state.paused, state.max_writes) == ("forward", False, 10.0)


@pytest.mark.parametrize("start", [join, a_slice])
def test_what_was_never_begun_cannot_be_joined(start):
    async def test(app, aws, world):
        with pytest.raises(NotBegun, match="migrate begin"):
            await start(app, aws, world)
        return await read(app, aws)

    assert at_table(test, orders=3).phase == "new"


def test_resuming_ends_a_pause_and_verifies_what_is_blocked_once_more():
    async def test(app, aws, world):
        await paused(app, aws, world)
        went_on = await steps.resume(app, aws, "0001")
        unchanged = await steps.resume(app, aws, "0001")
        await aws.dynamodb.put_item(
            TableName="Shop",
            Item={"PK": {"S": "ORDER#9"}, "SK": {"S": "ORDER"}, "number": {"S": "no number"}},
        )
        stopped = await join(app, aws, world)
        (error,) = await mending.list_errors(app, aws, "0001")
        await mending.waive_errors(app, aws, "0001", {error.id}, "a test")
        verifies = await steps.resume(app, aws, "0001")
        return went_on, unchanged, stopped, verifies, await join(app, aws, world)

    went_on, unchanged, stopped, verifies, end = at_table(test, orders=3)
    assert (went_on.desired, unchanged) == ("run", went_on)
    assert (stopped, verifies.phase, end) == ("blocked", "verifying", "done")


def test_a_definition_that_was_changed_goes_on_only_when_that_is_said():
    async def test(app, aws, world):
        await paused(app, aws, world)
        app.migrations.clear()
        app.migration("0001", Order)(lambda number: Set(label=f"{number}!"))
        with pytest.raises(ConfigurationError, match="resume --accept-change"):
            await join(app, aws, world)
        with pytest.raises(ConfigurationError, match="resume --accept-change"):
            await steps.resume(app, aws, "0001")
        await steps.resume(app, aws, "0001", accept_change=True)
        await join(app, aws, world)
        return labels(world)

    assert sorted(label["S"] for label in at_table(test, orders=2)) == ["0!", "1!"]


def test_a_process_stays_through_a_pause_that_comes_while_it_works():
    async def test(app, aws, world):
        await begin(app, aws, world, limit=commands.Limit(max_writes=1.0))
        runner = runner_of(app, aws, world)
        async with anyio.create_task_group() as group:
            group.start_soon(runner.run)
            while runner.state.phase != "scanning":
                await anyio.sleep(0.5)
            await steps.pause(app, aws, "0001")
            await anyio.sleep(60)
            between = labels(world)
            await steps.resume(app, aws, "0001")
        return between, runner.state, labels(world)

    between, state, after = at_table(test, orders=30)
    assert None in between
    assert (state.phase, None in after) == ("done", False)


def test_a_switch_does_not_end_a_pause():
    async def test(app, aws, world):
        book = await open_book(app, aws)
        await begin(app, aws, world)
        state = await book.read("0001")
        await book.change("0001", lambda now: steps.replace(now, phase="ready", paused=True))
        with pytest.raises(ConfigurationError, match="resume"):
            await steps.switch(app, aws, "0001")
        return state

    async def moved(app, aws, world):
        app.migrations.clear()
        app.migration("0001", Order, mode="rekey")(parcel)
        return await test(app, aws, world)

    at_table(moved, orders=0)


class Parcel(Order, pk="PARCEL#{number}", sk="PARCEL"):
    pass


def parcel(order: Order) -> Parcel:
    return Parcel(number=order.number, label=order.label)
