"""What dispatch does with a change that fails: policies, breakers, counts and the log."""

import json
import random
import re

import anyio
import pytest
import structlog
from msgspec import Raw

from streamkit import App, DeclarationError, Entity, Inserted, PoisonChange, Policy, Put, Query
from streamkit.core.dispatch import Dispatcher
from streamkit.core.outcome import Outcome
from streamkit.core.parking import Failure, next_due, stored
from streamkit.core.reading import Uncommitted
from streamkit.core.refusal import REFUSALS_MAX, contended
from streamkit.core.tables import Tables
from streamkit.errors import DecodeError
from streamkit.model.schema import TableSchema
from streamkit.model.when import When
from streamkit.progress.clock import SystemClock
from streamkit.stream.decode import Page
from streamkit.stream.decode.envelope import Record, StreamRecord
from streamkit.testing.loop import VirtualClock, run_virtually

SCHEMA = TableSchema("shop", "PK", None, "S", None, {})


class Order(Entity, pk="ORDER#{number}"):
    number: int


def page(count, first=1):
    return Page(tuple(record(number) for number in range(first, first + count)))


def record(number, image=None):
    image = image or b'{"PK":{"S":"ORDER#%d"},"number":{"N":"%d"}}' % (number, number)
    inner = StreamRecord(
        keys={"PK": {"S": f"ORDER#{number}"}},
        new_image=Raw(image),
        sequence_number=str(number),
    )
    return Record(dynamodb=inner, event_name="INSERT")


def dispatcher_of(handle, **policy):
    app = App("shop", table="shop", policy=Policy(**policy))
    app.on(handle)
    return Dispatcher(
        app.handlers,
        app.routes(Tables(SCHEMA)),
        lambda *_: {},
        VirtualClock(),
        random.Random(1),
    )


def failing(error):
    def handle(change: Inserted[Order]) -> None:
        raise error

    return handle


async def outcomes(dispatcher, count=1, first=1):
    pending, later, _ = await dispatcher.dispatch(page(count, first), "shard")
    return pending, [change.outcomes[0] for change in pending]


def test_skipped_changes_are_counted_and_dropped():
    async def run():
        dispatcher = dispatcher_of(failing(ValueError("no")), on_failure="skip")
        _, found = await outcomes(dispatcher, 30)
        assert all(o.failure is None and not o.waiting and not o.actions for o in found)
        assert (dispatcher.counts.failures, dispatcher.counts.skipped) == (30, 30)

    run_virtually(run)


@pytest.mark.parametrize("error", [RuntimeError("no"), PoisonChange("no")])
def test_once_the_breaker_is_open_a_pure_change_waits_instead_of_being_parked(error):
    async def run():
        dispatcher = dispatcher_of(failing(error))
        _, found = await outcomes(dispatcher, 50)
        assert [o.failure is not None for o in found] == [True] * 19 + [False] * 31
        assert [o.waiting for o in found] == [False] * 19 + [True] * 31
        assert dispatcher.counts.failures == 19
        assert dispatcher.counts.skipped == 0

    run_virtually(run)


def test_a_change_that_waits_is_run_until_it_works_and_its_success_lets_others_be_parked_again():
    async def run():
        down = [True]

        def handle(change: Inserted[Order]) -> None:
            if down[0] or change.new.number == 99:
                raise RuntimeError("no")

        dispatcher = dispatcher_of(handle)
        pending, found = await outcomes(dispatcher, 30)
        waiting = next(n for n, outcome in enumerate(found) if outcome.waiting)
        async with anyio.create_task_group() as group:
            group.start_soon(
                dispatcher.runs.run, pending[waiting], found[waiting], Uncommitted(pending), "shard"
            )
            await anyio.sleep(600)
            assert found[waiting].waiting
            down[0] = False
        assert anyio.current_time() <= 600 + 45
        assert not found[waiting].waiting
        _, (last,) = await outcomes(dispatcher, 1, first=99)
        assert last.failure is not None

    run_virtually(run)


def test_retries_of_one_change_count_once():
    async def run():
        async def handle(change: Inserted[Order]) -> None:
            raise RuntimeError("no")

        dispatcher = dispatcher_of(handle, attempts=10, backoff_seconds=0.01)
        pending, later, _ = await dispatcher.dispatch(page(19), "shard")
        await dispatcher.runs.run_chains(later, pending, "shard", queued=lambda *_: False)
        assert all(change.outcomes[0].failure is not None for change in pending)

    run_virtually(run)


def test_a_breaker_that_closed_by_a_fluke_opens_again_before_all_that_waits_is_parked():
    async def run():
        async def handle(change: Inserted[Order]) -> None:
            if anyio.current_time() > 300 and not fluke:
                fluke.append(change)
                return
            raise RuntimeError("no")

        fluke = []
        dispatcher = dispatcher_of(handle, attempts=1)
        pending, later, _ = await dispatcher.dispatch(page(200), "shard")
        with anyio.move_on_after(1200):
            await dispatcher.runs.run_chains(later, pending, "shard", queued=lambda *_: False)
        assert fluke
        assert sum(change.outcomes[0].failure is not None for change in pending) == 19 + 18

    run_virtually(run)


def test_a_wait_ends_when_the_worker_is_stopped():
    async def run():
        dispatcher = dispatcher_of(failing(RuntimeError("no")))
        pending, found = await outcomes(dispatcher, 30)
        until = anyio.Event()
        async with anyio.create_task_group() as group:
            group.start_soon(
                lambda: dispatcher.runs.run(
                    pending[29], found[29], Uncommitted(pending), "shard", until=until
                )
            )
            await anyio.sleep(100)
            until.set()
        assert anyio.current_time() == 100
        assert found[29].waiting

    run_virtually(run)


@pytest.mark.parametrize("policy", [{"on_failure": "block"}, {"attempts": 1}])
def test_waiting_is_said_in_the_log_again_and_again_but_not_for_each_try_or_change(policy):
    async def run():
        async def handle(change: Inserted[Order]) -> None:
            raise RuntimeError("no")

        dispatcher = dispatcher_of(handle, backoff_seconds=0.1, **policy)
        pending, later, _ = await dispatcher.dispatch(page(200), "shard")
        with structlog.testing.capture_logs() as logs:
            with anyio.move_on_after(600):
                await dispatcher.runs.run_chains(later, pending, "shard", queued=lambda *_: False)
        blocked = [log for log in logs if log["event"] == "handler.blocks"]
        assert 5 <= len(blocked) <= 11  # a line a minute
        assert {(log["handler"], log["shard"], log["error"]) for log in blocked} == {
            ("handle", "shard", "RuntimeError")
        }

    run_virtually(run)


@pytest.mark.parametrize("policy", ["block", "park"])
def test_a_when_that_failed_is_looked_at_again_before_a_waiting_handler_runs(policy):
    async def run():
        ran, looks = [], []

        def holds(old, new):
            looks.append(new)
            if len(looks) <= 30:
                raise TypeError("not comparable")
            return False

        def handle(change: Inserted[Order]) -> None:
            ran.append(change)

        app = App("shop", table="shop", policy=Policy(on_failure=policy))
        app.on(when=When(("number",), "odd", holds))(handle)
        dispatcher = Dispatcher(
            app.handlers, app.routes(Tables(SCHEMA)), lambda *_: {}, SystemClock(), random.Random(1)
        )
        pending, found = await outcomes(dispatcher, 30)
        assert found[-1].waiting
        await dispatcher.runs.run(pending[-1], found[-1], Uncommitted(pending), "shard")
        assert not found[-1].waiting
        assert ran == []

    run_virtually(run)


@pytest.mark.parametrize(
    "wrong",
    [
        {"attempts": 0},
        {"on_failure": "explode"},
        {"payload": "some"},
        {"retry_limit": -1},
        {"retry_seconds": 0.0},
        {"retry_seconds": 10.0, "retry_seconds_max": 5.0},
    ],
)
def test_a_policy_that_makes_no_sense_is_refused(wrong):
    with pytest.raises(DeclarationError, match=next(iter(wrong))):
        Policy(**wrong)


def test_pauses_grow_threefold_up_to_the_longest_and_end():
    failure = Failure("ValueError", "no")
    dues = [next_due(Policy(), failure, tries, 1000.0) for tries in range(11)]
    assert dues == [1005, 1015, 1045, 1135, 1405, *[1900] * 5, None]
    assert next_due(Policy(retry_limit=10**6), failure, 10**5, 0.0) == 900
    assert next_due(Policy(), Failure("Poison", "no", heals=False), 0, 0.0) is None


def test_poison_does_not_heal_and_an_image_of_an_unknown_shape_may():
    heals = [Failure.of(e("no"), 1).heals for e in (RuntimeError, PoisonChange, DecodeError)]
    assert heals == [True, False, True]


def test_a_record_stored_with_its_keys_alone_holds_no_image():
    whole = stored(record(7), "whole")
    assert whole.count(b"number") == 1
    kept = Record.from_bytes(stored(record(7), "keys"))
    assert (kept.keys, kept.sequence_number, kept.kind) == (
        record(7).keys,
        "7",
        record(7).kind,
    )
    assert kept.new_image is None
    assert b"number" not in stored(record(7), "keys")


def test_what_an_error_says_is_not_stored_beside_keys():
    try:
        raise ValueError("card 4111")
    except ValueError as error:
        failure = Failure.of(error, 1)
    assert "4111" in failure.told("whole")
    assert "4111" not in failure.told("keys")
    assert "test_failures.py" in failure.told("keys")


def everybody(change: Inserted[Order]) -> Query[Order]:
    return Order.query(number=change.new.number)


@pytest.mark.parametrize("on_failure", ["park", "skip", "block"])
def test_an_audience_of_which_one_recipient_always_changes_is_deferred_and_has_not_failed(
    on_failure,
):
    app = App("shop", table="shop", policy=Policy(on_failure=on_failure))

    @app.fan_out(everybody)
    def notify(change: Inserted[Order], to: Order) -> Put[Order]:
        return Put(to)

    (handler,) = app.handlers
    outcome = Outcome(handler, waiting=True, refusals=REFUSALS_MAX)
    assert not contended(outcome)
    outcome.refusals += 1
    assert contended(outcome)
    assert (outcome.deferred, outcome.failure, outcome.waiting) == (True, None, False)


def test_a_fan_out_that_fails_is_deferred_where_failures_are_skipped_and_loses_no_recipient():
    app = App("shop", table="shop", policy=Policy(on_failure="skip"))

    @app.fan_out(everybody)
    def notify(change: Inserted[Order], to: Order) -> Put[Order]:
        return Put(to)

    outcome = Outcome(app.handlers[0], waiting=True)
    outcome.give_up(Failure("ValueError", "no"))
    assert (outcome.deferred, outcome.parks, outcome.failure) == (True, True, None)


def test_a_change_that_kills_its_workers_is_parked_for_the_handlers_that_would_run_alone():
    app = App("shop", table="shop")

    @app.on
    def runs(change: Inserted[Order]) -> None: ...

    @app.on(shadow=True)
    def shadow(change: Inserted[Order]) -> None: ...

    @app.on
    def done_before(change: Inserted[Order]) -> None: ...

    def as_run(handler, record):
        return None if handler.name == "done_before" else handler

    routes = app.routes(Tables(SCHEMA))
    chance = random.Random(1)
    dispatcher = Dispatcher(app.handlers, routes, lambda *_: {}, SystemClock(), chance)
    (change,) = dispatcher.unrun(record(1), Failure("WorkerKilled", "no"), as_run)
    assert [outcome.handler.name for outcome in change.outcomes] == ["runs"]
    assert change.outcomes[0].parks


def place_of(work):
    """Return what is stored of the failure that a call raises."""
    try:
        work()
    except Exception as error:
        return Failure.of(error.with_traceback(error.__traceback__.tb_next), 1)
    raise AssertionError("it does not raise")


def test_a_long_message_is_cut_and_its_place_is_not():
    def fails():
        raise ValueError("x" * 5000)

    failure = place_of(fails)
    assert len(failure.detail) == 1000
    assert failure.detail.startswith("xxx")
    assert failure.detail.endswith(f" {failure.place}")
    assert failure.place.endswith("in fails")


def test_the_place_of_a_failure_in_the_standard_library_is_the_users_line():
    failure = place_of(lambda: json.loads("{"))
    assert re.search(r"test_failures\.py:\d+ in <lambda>$", failure.place)


def test_a_users_folder_may_be_called_streamkit_or_as_a_library(tmp_path):
    for name in ("streamkit", "anyio"):
        file = tmp_path / name / "orders.py"
        space = {}
        exec(compile("def shipped():\n    return 1 / 0\n", str(file), "exec"), space)
        assert place_of(space["shipped"]).place == f"at {file}:2 in shipped"


def test_an_app_that_is_installed_as_a_package_is_the_users_code(tmp_path):
    file = tmp_path / "site-packages" / "orders.py"
    space = {}
    exec(compile("def shipped():\n    return 1 / 0\n", str(file), "exec"), space)
    assert place_of(space["shipped"]).place.endswith("orders.py:2 in shipped")


async def test_what_is_late_is_placed_where_it_waited():
    try:
        with anyio.fail_after(0):
            await anyio.sleep_forever()
    except TimeoutError as error:
        place = Failure.of(error, 1).place
    assert re.search(r"test_failures\.py:\d+ in test_what_is_late", place)


async def test_what_a_task_group_raises_is_placed_in_the_task():
    async def task():
        raise ValueError("no")

    try:
        async with anyio.create_task_group() as group:
            group.start_soon(task)
    except ExceptionGroup as error:
        place = Failure.of(error, 1).place
    assert place.endswith("in task")


def test_a_failure_in_no_code_of_the_user_has_no_place():
    assert Failure.of(ValueError("no"), 1).place == ""
    assert Failure.of(ValueError("no"), 1).detail == "no"
