"""The runtime of a function: one environment for all invocations, opened anew only if it must be."""

from contextlib import asynccontextmanager
from types import SimpleNamespace

import pytest

from streamkit import App, ConfigurationError
from streamkit.aws_lambda import runtime as module
from streamkit.aws_lambda.environment import StreamReplaced
from streamkit.aws_lambda.runtime import Runtime, seconds_of
from streamkit.observe.meters import UNMETERED


class Environments:
    """Stands in for what opens environments; the first `failures` cannot be opened."""

    def __init__(self, failures=0):
        self.failures, self.opened, self.closed = failures, 0, 0

    @asynccontextmanager
    async def open(self, app):
        if self.failures:
            self.failures -= 1
            raise ConfigurationError("no such table")
        self.opened += 1
        number = self.opened
        try:
            yield SimpleNamespace(number=number, meters=UNMETERED, tell=lambda: None)
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
    assert runtime.run(number) == 1


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
