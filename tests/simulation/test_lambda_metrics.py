"""On Lambda: each invocation prints one line of metrics, and nothing of an item."""

import json
import random
from contextlib import ExitStack, asynccontextmanager
from functools import partial

import pytest
import structlog

from streamkit import App, Entity, Inserted, Policy, Put, Telemetry
from streamkit.aws import connect
from streamkit.aws_lambda import runtime
from streamkit.aws_lambda.environment import open_environment
from streamkit.aws_lambda.host import process_batch
from streamkit.aws_lambda.maintenance import maintain
from streamkit.aws_lambda.runtime import Runtime
from streamkit.local.engine import Engine
from streamkit.local.transport import session_class
from streamkit.observe.logger import Logger
from streamkit.observe.metrics import METRICS
from streamkit.testing.harness import table_of

SECRET = "4111-1111"


class Order(Entity, pk="ORDER#{number}", sk="ORDER"):
    number: int


class Receipt(Entity, pk="RECEIPT#{number}", sk="RECEIPT"):
    number: int


def make_app(**telemetry):
    app = App(
        "shop",
        table="Shop",
        entities=[Receipt],
        policy=Policy(retry_limit=0),
        telemetry=Telemetry(**telemetry),
    )

    @app.on
    def confirm(change: Inserted[Order]) -> Put[Receipt]:
        if change.new.number == 2:
            raise RuntimeError(SECRET)
        return Put(Receipt(number=change.new.number))

    return app


class Function:
    """Functions of an app on an engine of their own."""

    def __init__(self, monkeypatch, **telemetry):
        self.app, self.engine = make_app(**telemetry), Engine(rng=random.Random(1))
        self.engine.call("dynamodb", "CreateTable", table_of(self.app))

        @asynccontextmanager
        async def clients():
            async with connect(http_session=session_class(self.engine)) as aws:
                yield aws

        opened = partial(open_environment, connect_with=clients)
        monkeypatch.setattr(runtime, "open_environment", opened)
        self.runtime = Runtime(self.app)

    def invoke(self, *numbers):
        event = {"Records": [record(number) for number in numbers]}
        return self.runtime.run(lambda environment: process_batch(environment, event))

    def maintain(self):
        return self.runtime.run(maintain)

    def close(self):
        """End the process, as far as that is left to a test."""
        self.runtime._runner.run(self.runtime._close())
        self.runtime._runner.close()


def record(number):
    keys = {"PK": {"S": f"ORDER#{number}"}, "SK": {"S": "ORDER"}}
    image = keys | {"number": {"N": str(number)}, "card": {"S": SECRET}}
    return {
        "eventID": f"event-{number}",
        "eventName": "INSERT",
        "eventSource": "aws:dynamodb",
        "dynamodb": {
            "ApproximateCreationDateTime": 1_700_000_000,
            "Keys": keys,
            "NewImage": image,
            "SequenceNumber": str(100 + number),
        },
    }


@pytest.fixture
def make(monkeypatch):
    with ExitStack() as stack:
        stack.callback(structlog.reset_defaults)
        monkeypatch.setattr(Logger, "prepare", None)

        def make(**telemetry):
            function = Function(monkeypatch, **telemetry)
            stack.callback(function.close)
            return function

        yield make


@pytest.fixture
def function(make):
    return make()


def test_each_invocation_prints_one_line_with_what_it_did(function, capsys):
    assert function.invoke(1, 3) == {"batchItemFailures": []}
    (line,) = capsys.readouterr().out.splitlines()
    found = json.loads(line)
    assert found["consumer"] == "shop"
    assert found["streamkit_changes_total"] == 2
    assert found["streamkit_commits_total"] == 1
    assert len(found["streamkit_handler_seconds"]) == 2
    assert found["streamkit_lag_seconds"] > 1e6
    assert found["streamkit_time_to_loss_seconds"] == 0
    assert found["streamkit_units_total"] >= 8, "two receipts and their marks, twice each"
    assert found.keys() - {"_aws", "consumer"} <= METRICS.keys()


def test_an_invocation_does_not_tell_again_what_one_before_has_told(function, capsys):
    function.invoke(1)
    capsys.readouterr()
    function.invoke(3)
    (line,) = capsys.readouterr().out.splitlines()
    assert json.loads(line)["streamkit_changes_total"] == 1


def test_parked_changes_are_told_by_maintenance_and_no_line_holds_item_data(function, capsys):
    function.invoke(2)
    function.maintain()
    printed, logged = capsys.readouterr()
    _, line = printed.splitlines()
    found = json.loads(line)
    assert (found["streamkit_parked"], found["streamkit_stuck"]) == (1, 1)
    for text in (printed, logged):
        assert SECRET not in text
        assert "ORDER#" not in text


def test_without_a_command_line_the_log_is_json_too_unless_the_program_has_set_it_up(make, capsys):
    make().invoke(2)
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert "handler.failed" in {line["event"] for line in lines}
    structlog.reset_defaults()
    structlog.configure(processors=[structlog.processors.KeyValueRenderer()])
    make().invoke(2)
    assert "event='handler.failed'" in capsys.readouterr().out


def test_who_does_not_want_it_prints_nothing(make, capsys):
    make(emf=False).invoke(1)
    assert capsys.readouterr().out == ""
