"""Starts: what a cold function and a command import, and what a warm function adds to its calls.

Imports run in processes of their own, with byte code that an earlier round has compiled. A warm
batch of 100 changes of as many items runs on the local engine, through the function's own runtime
and the real client; the time within calls of the client is taken away, and what is left is
streamkit's and the handlers'. The same batch is also taken as it runs, with streamkit's short way
of a call, and set beside a function that would make the same calls through the SDK and do no more.
"""

import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import Annotated, Any
from unittest import mock

from streamkit import Aggregate, App, Count, Entity, Inserted, Key, Put, Sum
from streamkit.aws import connect
from streamkit.aws_lambda import runtime
from streamkit.aws_lambda.environment import Environment, open_environment
from streamkit.aws_lambda.host import process_batch
from streamkit.local.engine import Engine
from streamkit.local.transport import session_class
from tests.benchmarks.yardstick import Figure, in_turns, row
from tests.calls import botocores_way
from tests.tables import streamed

ROOT = Path(__file__).parents[3]
BATCH = 100
ROUNDS = 15
SDK = "the import of the SDK"
CALLS = "its calls"
SDK_CALLS = "its calls, by the SDK alone"

# The SDK takes httpx, and that rich, where they are installed for something else.
WITHOUT_HTTPX = "import sys; sys.modules['httpx'] = None\n"
# Not the `ru_maxrss` of `getrusage`: a fresh process inherits that of the one that started it.
MEMORY = """
from pathlib import Path
print(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0])
"""
AT_ONCE = "\nimport os\nos._exit(0)"
"""A function never ends: what Python does at the end of a process is no part of a cold start."""
COMMAND = "sys.argv = ['streamkit', {}]\nfrom streamkit.cli import main\nmain()"


def run(program: str, compiled: str) -> str:
    """Run a program in a fresh process; `compiled` is where its byte code is kept."""
    known = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONPYCACHEPREFIX": compiled}
    known.pop("PYTHONDONTWRITEBYTECODE", None)
    command = [sys.executable, "-c", WITHOUT_HTTPX + program]
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=known, cwd=ROOT)
    return done.stdout


def spent(program: str, compiled: str) -> float:
    """Return the CPU seconds of a fresh process that runs a program."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    run(program, compiled)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def beside_the_sdk(program: str, end: str = "") -> tuple[float, float]:
    """Return the CPU seconds of a program, and of the SDK's import, without Python's own."""
    programs = ["", "import aioboto3", program]
    with tempfile.TemporaryDirectory() as compiled:
        runs = (partial(spent, one + end, compiled) for one in programs)
        python, sdk, mine = in_turns(*runs)
    return mine - python, sdk - python


@row("Lambda: import of the host, beyond the SDK", unit="s", of=SDK, bar=0.9, less=True)
def import_of_the_host() -> Figure:
    whole, sdk = beside_the_sdk("import streamkit.aws_lambda", AT_ONCE)
    return Figure(whole - sdk, (whole - sdk) / sdk)


@row("Lambda: memory of the host, beyond the SDK", unit="MB", bar=14.2, less=True)
def memory_of_the_host() -> Figure:
    with tempfile.TemporaryDirectory() as compiled:
        megabytes = {
            name: min(int(run(f"import {name}{MEMORY}", compiled)) / 1024 for _ in range(3))
            for name in ("aioboto3", "streamkit.aws_lambda")
        }
    return Figure(megabytes["streamkit.aws_lambda"] - megabytes["aioboto3"])


@row("CLI: streamkit --help", unit="s", of=SDK, bar=1.1, less=True)
def help_of_all() -> Figure:
    mine, sdk = beside_the_sdk(COMMAND.format("'--help'"))
    return Figure(mine, mine / sdk)


@row("CLI: streamkit cost, without an app", unit="s", of=SDK, bar=1.2, less=True)
def cost_without_an_app() -> Figure:
    mine, sdk = beside_the_sdk(COMMAND.format("'cost', '--shards', '4'"))
    return Figure(mine, mine / sdk)


class Sale(Entity, pk="SALE#{number}", sk="SALE#{number}"):
    number: str
    shop: str
    amount: int


class Receipt(Entity, pk="RECEIPT#{number}", sk="RECEIPT#{number}"):
    number: str
    amount: int


class Sales(Aggregate[Sale], pk="SALES#{shop}", sk="SALES#{shop}"):
    shop: str
    sales: Annotated[int, Count()] = 0
    amount: Annotated[int, Sum("amount")] = 0

    @classmethod
    def group(cls, sale: Sale) -> Key["Sales"]:
        return cls.key(shop=sale.shop)


def receipt(change: Inserted[Sale]) -> Put[Receipt]:
    return Put(Receipt(number=change.new.number, amount=change.new.amount))


def batch_of(arn: str, number: int) -> dict[str, Any]:
    """Return the event of a batch of new sales."""
    records = []
    for place in range(BATCH):
        name = f"{number}-{place}"
        key = {"S": f"SALE#{name}"}
        image = {"PK": key, "SK": key, "number": {"S": name}, "shop": {"S": f"s{place % 5}"}}
        inner = {
            "ApproximateCreationDateTime": time.time(),
            "Keys": {"PK": key, "SK": key},
            "NewImage": {**image, "amount": {"N": str(place)}},
            "SequenceNumber": f"{number:010}{place:011}",
            "SizeBytes": 100,
            "StreamViewType": "NEW_AND_OLD_IMAGES",
        }
        record = {
            "eventID": f"{number:016}{place:016}",
            "eventName": "INSERT",
            "eventVersion": "1.1",
            "eventSource": "aws:dynamodb",
            "awsRegion": "us-east-1",
            "dynamodb": inner,
            "eventSourceARN": arn,
        }
        records.append(record)
    return {"Records": records}


class Spent:
    """Adds up the CPU time within the calls of a client, without what the engine spends."""

    def __init__(self, client: Any, engine: Engine) -> None:
        self.seconds = self.engine = 0.0
        self._answer = engine.call
        engine.call = self._answered  # type: ignore[method-assign]
        for name in ("transact_write_items", "batch_get_item", "get_item", "update_item"):
            setattr(client, name, self._timed(getattr(client, name)))

    def _answered(self, *request: Any) -> Any:
        began = time.process_time()
        try:
            return self._answer(*request)
        finally:
            self.engine += time.process_time() - began

    def _timed(self, call: Callable[..., Any]) -> Callable[..., Any]:
        async def timed(**request: Any) -> Any:
            began = time.process_time()
            try:
                return await call(**request)
            finally:
                self.seconds += time.process_time() - began

        return timed


def batches(app: App, way: Callable[[], AbstractContextManager[None]]) -> tuple[float, ...]:
    """Return the milliseconds of a batch beyond its calls, within them, and within the engine."""
    engine = Engine(clock=time.time, rng=random.Random(1), shards=1)
    engine.call("dynamodb", "CreateTable", streamed("Shop", "PK", "SK"))
    connected = partial(connect, http_session=session_class(engine))
    opened = partial(open_environment, connect_with=connected)

    async def spent_of(environment: Environment) -> tuple[Spent, str | None]:
        return Spent(environment.aws.dynamodb, engine), environment.tables.table.stream_arn

    rounds = []
    with (
        way(),
        mock.patch.object(runtime, "open_environment", opened),
        mock.patch.object(runtime.Logger, "prepare", None),
    ):
        function = runtime.Runtime(app)
        calls, arn = function.run(spent_of)
        for number in range(1, ROUNDS + 2):
            event, calls.seconds, calls.engine = batch_of(str(arn), number), 0.0, 0.0
            began = time.process_time()
            response = function.run(lambda env: process_batch(env, event))  # noqa: B023 - at once
            whole = time.process_time() - began
            assert response == {"batchItemFailures": []}
            rounds.append((whole - calls.seconds, calls.seconds, calls.engine))
    middle = (statistics.median(values) for values in zip(*rounds[1:], strict=True))
    return tuple(1000 * value for value in middle)


def warm_batches(app: App) -> Figure:
    """Return the milliseconds of a batch beyond its calls, and their ratio to those of the calls.

    The calls go the SDK's way: else the yardstick would become shorter with the calls.
    """
    beyond, within, _ = batches(app, botocores_way)
    return Figure(beyond, beyond / within)


def whole_batches(app: App) -> Figure:
    """Return the milliseconds of a whole batch beyond its calls through the SDK, and the ratio."""
    beyond, within, engine = batches(app, nullcontext)
    _, sdk, answered = batches(app, botocores_way)
    whole, calls = beyond + within - engine, sdk - answered
    return Figure(whole - calls, whole / calls)


def with_an_aggregate() -> App:
    app = App("shop", table="Shop")
    app.aggregate(Sales)
    return app


def with_puts() -> App:
    app = App("shop", table="Shop", entities=[Receipt])
    app.on(receipt)
    return app


def with_both() -> App:
    app = with_puts()
    app.aggregate(Sales)
    return app


@row("Lambda: warm batch of 100, aggregate", unit="ms", of=CALLS, bar=0.65, less=True)
def warm_aggregate() -> Figure:
    return warm_batches(with_an_aggregate())


@row("Lambda: warm batch of 100, one Put each", unit="ms", of=CALLS, bar=0.7, less=True)
def warm_puts() -> Figure:
    return warm_batches(with_puts())


@row("Lambda: warm batch of 100, both handlers", unit="ms", of=CALLS, bar=0.8, less=True)
def warm_both() -> Figure:
    return warm_batches(with_both())


@row("Lambda: a whole warm batch, aggregate", unit="ms more", of=SDK_CALLS, bar=0.95, less=True)
def whole_aggregate() -> Figure:
    return whole_batches(with_an_aggregate())


@row("Lambda: a whole warm batch, one Put each", unit="ms more", of=SDK_CALLS, bar=1.15, less=True)
def whole_puts() -> Figure:
    return whole_batches(with_puts())


@row("Lambda: a whole warm batch, both handlers", unit="ms more", of=SDK_CALLS, bar=1.35, less=True)
def whole_both() -> Figure:
    return whole_batches(with_both())
