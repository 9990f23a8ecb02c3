"""Which handler a redrive runs for a parked change, and with what policy."""

import random
from dataclasses import replace
from types import SimpleNamespace

import pytest

from streamkit import App, Change
from streamkit.changes import Kind
from streamkit.core.parking import Failure
from streamkit.core.routes import Channels
from streamkit.core.tables import Tables
from streamkit.model.builds import Build
from streamkit.testing.loop import run_virtually
from streamkit.worker import redriver as module
from streamkit.worker.redriver import Redriver
from tests.pending import SCHEMA, Clock, Thing


def made(*, automatic, **policy):
    """Return what a redriver's methods need to make a dispatcher, and its app's only handler."""
    app = App("shop", table="T", entities=[Thing])

    @app.on(name="h", **policy)
    async def h(change: Change[Thing]) -> None:
        pass

    redriver = SimpleNamespace(
        app=app,
        tables=SimpleNamespace(schemas=Tables(SCHEMA)),
        tools=lambda *_: {},
        clock=Clock(),
        rng=random.Random(1),
        channels=Channels(),
        automatic=automatic,
        _dispatchers={},
        _builds={},
        _in_builds={},
    )
    return redriver, app.handlers[0]


@pytest.mark.parametrize("on_failure", ["block", "skip", "park"])
@pytest.mark.parametrize("automatic", [True, False])
def test_a_failure_is_reported_to_the_queue_after_one_try_or_as_many_as_a_person_asks_for(
    automatic, on_failure
):
    redriver, handler = made(automatic=automatic, attempts=4, on_failure=on_failure)
    policy = Redriver._dispatcher(redriver, handler, skips=False).handlers[0].policy
    assert (policy.on_failure, policy.breaker) == ("park", False)
    assert policy.attempts == (1 if automatic else 4)
    skipping = Redriver._dispatcher(redriver, handler, skips=True).handlers[0].policy
    assert (skipping.on_failure, skipping.attempts) == (on_failure, 4)


def test_the_dispatcher_of_one_recipient_is_not_used_for_the_next_one():
    redriver, handler = made(automatic=True)
    one = Redriver._dispatcher(redriver, handler, skips=False)
    assert Redriver._dispatcher(redriver, handler, skips=False) is one
    other = replace(handler, run=lambda change: None)
    assert Redriver._dispatcher(redriver, other, skips=False).handlers[0].run is other.run


@pytest.mark.parametrize(
    ("known", "runs_in"),
    [
        (Build(3, "counting", scanned=9), Build(3, "counting", scanned=9)),
        (Build(4, "counting", scanned=9), Build(3, "scanning")),  # its ledger is of build 3
        (None, Build(3, "scanning")),
    ],
)
def test_a_change_that_was_parked_in_a_build_counts_in_the_ledger_of_that_build(known, runs_in):
    redriver, handler = made(automatic=True)
    redriver.app = SimpleNamespace(handlers=[replace(handler, in_build=lambda build: build)])
    redriver._builds = {} if known is None else {"h": known}
    assert Redriver._handler(redriver, SimpleNamespace(handler="h", build=3)) == runs_in
    plain = Redriver._handler(redriver, SimpleNamespace(handler="h", build=0))
    assert plain is redriver.app.handlers[0]
    assert Redriver._handler(redriver, SimpleNamespace(handler="gone", build=3)) is None


# -- one change ------------------------------------------------------------------------------------


@pytest.mark.parametrize("broadcast", [None, "an audience"])
@pytest.mark.parametrize("failure", [None, Failure("TooManyHops", "33 of them")])
@pytest.mark.parametrize("pending", [True, False])
def test_a_change_that_fails_before_its_handler_runs_is_neither_settled_nor_served(
    monkeypatch, broadcast, failure, pending
):
    """Its `when` failed, or it has too many hops; one whose `when` does not hold is done."""
    redriver, handler = made(automatic=True)
    handler = replace(handler, broadcast=broadcast)

    def answering(answer):
        async def answers(*_):
            return answer

        return answers

    change = SimpleNamespace(outcomes=[SimpleNamespace(failure=failure)])
    dispatcher = SimpleNamespace(
        router=SimpleNamespace(sides=lambda record: [(Thing, record)]),
        dispatch=answering(([change] if pending else [], [], 0)),
    )
    redriver.app = SimpleNamespace(handlers=[handler])
    redriver.aws, redriver.tables = None, SimpleNamespace(table=SimpleNamespace(stream_arn="arn"))
    monkeypatch.setattr(module, "whole_record", answering(SimpleNamespace(kind=Kind.INSERTED)))
    redriver._handler = lambda head: handler
    redriver._skips = lambda handler, head: False
    redriver._dispatcher = lambda handler, *, skips: dispatcher
    redriver._fan_out = answering("served")
    redriver._settle = answering("settled")
    redriver._leave_undone = answering("undone")
    head = SimpleNamespace(error=None, to=None, shard="s")
    step = run_virtually(lambda: Redriver._redrive_one(redriver, None, head))
    wanted = failure or ("settled" if broadcast is None else "served")
    assert step == (wanted if pending else "undone")
