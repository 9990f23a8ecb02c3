"""The runtime of a function: one environment for all invocations, opened anew only if it must be."""

import asyncio
from contextlib import asynccontextmanager
from types import SimpleNamespace

import pytest
from structlog.testing import capture_logs

from streamkit import App, Change, ConfigurationError, DeclarationError, Entity
from streamkit.aws_lambda import (
    handler,
    late_handler,
    maintenance_handler,
    migration,
    migration_handler,
)
from streamkit.aws_lambda import runtime as module
from streamkit.aws_lambda.environment import StreamReplaced
from streamkit.aws_lambda.migration import process_slice
from streamkit.aws_lambda.runtime import Runtime, seconds_of
from streamkit.migrate.book.discovery import DiscoveryError
from streamkit.observe import logs
from streamkit.observe.meters import UNMETERED


class Order(Entity, pk="ORDER#{order}", sk="ORDER"):
    order: str


class Environments:
    """Stands in for what opens environments: the first `failures` fail, the first `silent` hang."""

    def __init__(self, failures=0, silent=0, handlers=()):
        self.failures, self.silent, self.opened, self.closed = failures, silent, 0, 0
        self.told, self.given_up = [], 0
        self.dispatcher = SimpleNamespace(handlers=handlers)

    @asynccontextmanager
    async def open(self, app):
        if self.failures:
            self.failures -= 1
            raise ConfigurationError("no such table")
        if self.silent:
            self.silent -= 1
            try:
                await asyncio.Event().wait()
            finally:
                self.given_up += 1
        self.opened += 1
        number = self.opened
        try:
            yield SimpleNamespace(
                number=number,
                meters=UNMETERED,
                tell=lambda: self.told.append(number),
                dispatcher=self.dispatcher,
            )
        finally:
            self.closed += 1


@pytest.fixture
def runtime_of(monkeypatch):
    made = []
    monkeypatch.setattr(module.Logger, "prepare", None)  # put back afterwards

    def make(**options):
        environments = Environments(**options)
        monkeypatch.setattr(module, "open_environment", environments.open)
        made.append(Runtime(App("shop", table="Shop")))
        return made[-1], environments

    yield make
    for runtime in made:
        if runtime._runner is not None:
            runtime._runner.close()


async def number(environment):
    return environment.number


def test_all_invocations_share_one_environment_and_one_loop(runtime_of):
    runtime, environments = runtime_of()
    assert [runtime.run(number) for _ in range(3)] == [1, 1, 1]
    assert (environments.opened, environments.closed) == (1, 0)


def test_what_cannot_be_opened_is_tried_again_by_the_next_invocation(runtime_of):
    runtime, environments = runtime_of(failures=1)
    with pytest.raises(ConfigurationError, match="no such table"):
        runtime.run(number)
    assert runtime.run(number) == 1


def test_an_invocation_that_fails_leaves_the_environment_as_it_is(runtime_of):
    runtime, environments = runtime_of()

    async def fails(environment):
        raise OSError("down")

    for _ in range(2):
        with pytest.raises(OSError, match="down"):
            runtime.run(fails)
    assert environments.told == [1, 1], "its counts are printed all the same"
    assert runtime.run(number) == 1


@pytest.mark.parametrize(
    ("said", "level"), [(None, "info"), ("warning", "warning"), ("loud", "info")]
)
def test_a_function_leaves_other_packages_logs_to_lambda(monkeypatch, said, level):
    configured = []
    monkeypatch.setattr(logs, "configure", lambda *given, **more: configured.append((given, more)))
    monkeypatch.delenv("STREAMKIT_LOG_LEVEL", raising=False)
    if said is not None:
        monkeypatch.setenv("STREAMKIT_LOG_LEVEL", said)
    module._set_up_logs()
    assert configured == [(("json", level), {"others": False})]


def test_garbage_is_collected_as_before_once_an_environment_is_closed(runtime_of, monkeypatch):
    runtime, environments = runtime_of()
    monkeypatch.setattr(module, "collect_seldom", lambda *, first: did.append("seldom"))
    monkeypatch.setattr(module.gc, "unfreeze", lambda: did.append("as before"))
    did = []

    async def replaced_once(environment):
        if environment.number == 2:
            return did.copy()
        raise StreamReplaced("new")

    runtime.run(number)
    assert runtime.run(replaced_once) == ["seldom", "as before", "seldom"]


def test_a_replaced_stream_opens_the_environment_anew_once(runtime_of):
    runtime, environments = runtime_of()
    assert runtime.run(number) == 1

    async def of_the_new_stream(environment):
        if environment.number == 1:
            raise StreamReplaced("new")
        return environment.number

    assert runtime.run(of_the_new_stream) == 2
    assert (environments.opened, environments.closed) == (2, 1)


def test_an_event_of_an_old_stream_is_refused_by_a_new_environment(runtime_of):
    runtime, environments = runtime_of()

    async def of_an_old_stream(environment):
        raise StreamReplaced("old")

    with pytest.raises(StreamReplaced):
        runtime.run(of_an_old_stream)
    assert environments.opened == 1


@pytest.mark.parametrize(("left", "seconds"), [(60_000, 59.5), (3_000, 2.55), (100, 0.085)])
def test_some_of_the_remaining_time_is_kept_for_the_answer(left, seconds):
    context = SimpleNamespace(get_remaining_time_in_millis=lambda: left)
    assert seconds_of(context) == pytest.approx(seconds)


def test_an_environment_that_does_not_open_in_time_says_where_to_look_and_is_tried_again(
    runtime_of,
):
    runtime, environments = runtime_of(silent=1)
    with pytest.raises(TimeoutError, match=r"within the 0\.0 s .* route to DynamoDB"):
        runtime.run(number, 0.01)
    assert environments.given_up == 1, "it does not go on beside the next one"
    assert runtime.run(number, 10) == 1
    assert (environments.opened, environments.closed) == (1, 0)


def test_handlers_that_may_take_longer_than_their_function_are_named_once(runtime_of):
    app = App("shop", table="Shop")

    @app.on(delivery="at_least_once", timeout=30)
    async def mail(change: Change[Order]) -> None: ...

    @app.on(delivery="at_least_once", timeout=5)
    async def tell(change: Change[Order]) -> None: ...

    @app.on
    def count(change: Change[Order]) -> None: ...

    runtime, _ = runtime_of(handlers=app.handlers)
    with capture_logs() as lines:
        runtime.run(number, 20)
        runtime.run(number, 20)
    (line,) = lines
    assert (line["event"], line["handlers"], line["log_level"]) == (
        "function.short",
        ["mail"],
        "warning",
    )
    assert (line["seconds"], line["timeout_seconds"]) == (18, 30)
    runtime, _ = runtime_of(handlers=app.handlers)
    with capture_logs() as lines:
        runtime.run(number, 40)
    assert lines == []


@pytest.mark.parametrize("make", [handler, late_handler, maintenance_handler, migration_handler])
def test_a_function_is_made_of_an_app_and_of_nothing_else(make):
    with pytest.raises(DeclarationError, match=r"this is a str"):
        make("deals:app")
    with pytest.raises(DeclarationError, match=r"this is the class App"):
        make(App)


@pytest.mark.parametrize("make", [handler, late_handler, maintenance_handler])
def test_a_call_without_lambdas_context_says_what_to_pass(make):
    with pytest.raises(ConfigurationError, match="get_remaining_time_in_millis"):
        make(App("shop", table="Shop"))({"Records": []}, None)


def test_a_migrations_function_opens_its_clients_once_for_all_invocations(monkeypatch):
    opened, used, number = [], [], iter("12")

    @asynccontextmanager
    async def connect():
        opened.append(next(number))
        yield opened[-1]

    async def process_slice(app, aws, event, seconds):
        used.append((aws, event["migration"], seconds))
        return SimpleNamespace(to_dict=lambda: {"done": True})

    monkeypatch.setattr(migration, "connect", connect)
    monkeypatch.setattr(migration, "meter", lambda aws: None)
    monkeypatch.setattr(migration, "process_slice", process_slice)
    handle = migration_handler(App("shop", table="Shop"))
    context = SimpleNamespace(get_remaining_time_in_millis=lambda: 30_000)
    with asyncio.Runner() as runner:  # a function never closes its own
        monkeypatch.setattr(migration, "asyncio", SimpleNamespace(Runner=lambda: runner))
        for _ in range(2):
            assert handle({"migration": "0001"}, context) == {"done": True}
    assert opened == ["1"]
    assert used == [("1", "0001", seconds_of(context))] * 2


def test_a_wrong_file_of_a_migration_fails_at_deployment(monkeypatch):
    def discover(app):
        raise DiscoveryError("0003.py: no such entity")

    monkeypatch.setattr(migration, "discover", discover)
    with pytest.raises(DiscoveryError, match=r"0003\.py"):
        migration_handler(App("shop", table="Shop"))


@pytest.mark.parametrize("event", [{}, {"migration": 3}, {"migration": None}])
async def test_an_event_has_to_name_its_migration_by_a_text(event):
    with pytest.raises(ConfigurationError, match="the event names no migration, as in"):
        await process_slice(App("shop", table="Shop"), None, event)
