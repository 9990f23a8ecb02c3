"""The command line as a stranger meets it: processes, their output, their exit codes."""

import contextlib
import functools
import importlib
import io
import json
import logging
import os
import queue
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from contextlib import closing, contextmanager
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import boto3
import pytest
import structlog
import typer

from streamkit.cli import main
from streamkit.observe.logs import OwnHandler
from streamkit.operate.permissions.place import AccountPlace
from tests.acceptance import account
from tests.acceptance.deployment import ROOT
from tests.authority import one_authority
from tests.forked import Forked
from tests.hurried import hurried
from tests.permissions import ACCOUNT, REGION, commanded, noted

DEADLINE = 180.0
"""Longest that anything is waited for; only a failing test waits as long."""

SHOP = """
import os
from pathlib import Path
from typing import Annotated

import anyio

from streamkit import Aggregate, App, Count, Entity, Inserted, Key, Modified, Policy, Set, Table

app = App("shop", table=os.environ["SHOP_TABLE"], policy=Policy(retry_limit=0))


class Order(Entity, pk="ORDER#{number}", sk="ORDER"):
    number: int
    status: str = "NEW"


class Journal(Entity, pk="JOURNAL#{number}", sk="JOURNAL"):
    number: int
    lines: str = ""


@app.aggregate
class PerStatus(Aggregate[Order], pk="PER#{status}", sk="PER"):
    status: str
    orders: Annotated[int, Count()] = 0

    @classmethod
    def group(cls, order: Order) -> Key["PerStatus"]:
        return cls.key(status=order.status)


@app.on(attempts=1, timeout=600)
async def journal(change: Inserted[Order] | Modified[Order], table: Table) -> Set[Journal]:
    if Path("broken").exists():
        raise RuntimeError("the downstream is broken")
    if Path("hangs").exists():
        Path("hanging").touch()
        await anyio.sleep_forever()
    key = Journal.key(number=change.new.number)
    before = await table.get(key)
    return Set(key, lines=(before.lines if before else "") + change.new.status)
"""


def command_of(arguments, rate=1.0):
    """Return a command line of streamkit; its clock runs `rate` times as fast as the real one."""
    module = ("streamkit",) if rate == 1 else ("tests.hurried", str(rate))
    return [sys.executable, "-m", *module, *arguments]


def path_of(rate):
    """Return what the environment of such a command needs."""
    return {} if rate == 1 else {"PYTHONPATH": str(ROOT)}


class Process:
    """A running command whose output can be waited for."""

    def __init__(self, arguments, *, cwd, env, rate=1.0):
        self._popen = Forked(arguments, cwd=cwd, env=env, rate=rate)
        self.lines = []
        self._arrived = queue.Queue()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self):
        for line in self._popen.stdout:
            self._arrived.put(line.rstrip("\n"))
        self._arrived.put(None)

    def wait_for(self, text):
        """Return the next line that holds the text."""
        end = time.monotonic() + DEADLINE
        while True:
            try:
                line = self._arrived.get(timeout=end - time.monotonic())
            except (queue.Empty, ValueError):
                line = None
            if line is None:
                raise AssertionError(f"no line with {text!r} in\n" + "\n".join(self.lines))
            self.lines.append(line)
            if text in line:
                return line

    @property
    def pid(self):
        return self._popen.pid

    def signal(self, number):
        self._popen.send_signal(number)

    def exit_code(self):
        code = self._popen.wait(DEADLINE)
        self._thread.join(DEADLINE)
        while (line := self._arrived.get()) is not None:
            self.lines.append(line)
        return code

    def close(self):
        if self._popen.poll() is None:
            self._popen.kill()
        self._popen.wait()
        self._thread.join(DEADLINE)
        self._popen.stdout.close()


@pytest.fixture(autouse=True)
def permitted():
    """Hold every call in virtual time against the policy that `iam` computes for its host."""
    if account.prefix():  # the service itself holds them against the policy of whoever runs it
        yield
        return
    with noted() as requests:
        yield
    place = AccountPlace.of(account=ACCOUNT, region=REGION)
    assert requests.refused(place) == []


def clean_environment(**more):
    # A parallel run says that its output has 80 columns; commands whose output is read have no end.
    ours = ("AWS_", "STREAMKIT_", "COLUMNS")
    kept = {name: text for name, text in os.environ.items() if not name.startswith(ours)}
    quiet = {"NO_COLOR": "1"}
    if not account.prefix():
        quiet |= {"AWS_CONFIG_FILE": os.devnull, "AWS_CA_BUNDLE": one_authority()}
    return {**kept, **quiet, **more}


@contextmanager
def local_engine(folder):
    """`streamkit local` as a process; what it prints to be exported."""
    process = Process(["local", "--port", "0"], cwd=folder, env=clean_environment())
    try:
        process.wait_for("AWS_SECRET_ACCESS_KEY")
        printed = " ".join(process.lines)
        yield dict(re.findall(r"([A-Z_]+)=(\S+)", printed))
        process.signal(signal.SIGTERM)
        assert process.exit_code() == 0
    finally:
        process.close()


@pytest.fixture(scope="session")
def server(tmp_path_factory):
    """The engine that all share, or an account; each has a table of its own."""
    if account.prefix():
        yield {name: text for name, text in os.environ.items() if name.startswith("AWS_")}
        return
    with local_engine(tmp_path_factory.mktemp("local")) as exported:
        yield exported


def client_of(server):
    """Return a client of an engine, or of an account."""
    if account.prefix():
        return boto3.client("dynamodb", endpoint_url=server.get("AWS_ENDPOINT_URL_DYNAMODB"))
    return boto3.client(
        "dynamodb",
        endpoint_url=server["AWS_ENDPOINT_URL_DYNAMODB"],
        region_name="us-east-1",
        aws_access_key_id="local",
        aws_secret_access_key="local",
    )


built = functools.cache(typer.main.get_command)
"""What typer makes of the functions of a program: the same each time, and slower than most commands."""


def forget_logging():
    structlog.reset_defaults()
    logging.getLogger().handlers = [
        h for h in logging.getLogger().handlers if not isinstance(h, OwnHandler)
    ]


def in_this_process(folder, *arguments, env):
    """Run a command to its end, as if it were started in a folder."""
    out, err = io.StringIO(), io.StringIO()
    before, path, here = set(sys.modules), list(sys.path), Path.cwd()
    with (
        mock.patch.dict(os.environ, env, clear=True),
        mock.patch.object(sys, "argv", ["streamkit", *arguments]),
        mock.patch("typer.main.get_command", built),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        os.chdir(folder)
        importlib.invalidate_caches()
        try:
            main()
        except SystemExit as stop:
            code = stop.code or 0
        finally:
            os.chdir(here)
            sys.path[:] = path
            for name in set(sys.modules) - before:
                if str(folder) in str(getattr(sys.modules[name], "__file__", "")):
                    del sys.modules[name]
            forget_logging()
    return SimpleNamespace(returncode=code, stdout=out.getvalue(), stderr=err.getvalue())


class Shop:
    """A folder with an app in it, and a table of its own on the server."""

    def __init__(self, folder, server, table, dynamodb):
        self.folder = folder
        self.table = table
        self.url = server.get("AWS_ENDPOINT_URL_DYNAMODB")
        self.dynamodb = dynamodb
        self.env = clean_environment(
            **server,
            SHOP_TABLE=table,
            STREAMKIT_POLL_FLOOR="0.05",
            STREAMKIT_POLL_CEILING="0.2",
            STREAMKIT_HEARTBEAT="0.2",
            STREAMKIT_LEASE="1",
            STREAMKIT_LIST_INTERVAL="0.3",
        )
        self.env |= account.EASY if account.prefix() else {}
        self.haste = 1.0
        """How much faster the clocks of its processes run than the real one."""
        self._running = 0
        (folder / "shop.py").write_text(SHOP)

    def run(self, *arguments, **env):
        """Run a command to its end, in this process: starting Python takes longer than the rest.

        It sleeps through no time, unless another process takes part, for which it may wait.
        """
        env = {name: text for name, text in {**self.env, **env}.items() if text is not None}
        if account.prefix():
            return in_this_process(self.folder, *arguments, env=env)
        with (
            commanded(arguments, self.table, self._partition_key),
            hurried(self.haste, alone=not self._running),
        ):
            return in_this_process(self.folder, *arguments, env=env)

    def hasten(self):
        """Let the clocks of its processes run ten times as fast; for commands that wait long."""
        if account.prefix():
            return
        self.haste = 10.0
        calm = {"POLL_FLOOR": "0.5", "POLL_CEILING": "2", "LIST_INTERVAL": "3"}
        calm |= {"HEARTBEAT": "4", "LEASE": "15"}
        self.env |= {f"STREAMKIT_{name}": value for name, value in calm.items()}

    def _partition_key(self, table):
        described = self.dynamodb.describe_table(TableName=table)["Table"]
        return next(
            key["AttributeName"] for key in described["KeySchema"] if key["KeyType"] == "HASH"
        )

    def run_apart(self, *arguments, **env):
        """Run a command to its end, in a process of its own."""
        return subprocess.run(
            command_of(arguments, self.haste),
            cwd=self.folder,
            env={**self.env, **env, **path_of(self.haste)},
            text=True,
            capture_output=True,
            timeout=DEADLINE,
            check=False,
        )

    def json(self, *arguments):
        """Run a command that prints JSON."""
        done = self.run(*arguments, "--json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    @contextmanager
    def start(self, *arguments, **env):
        """Start a command and leave it running."""
        process = Process(arguments, cwd=self.folder, env={**self.env, **env}, rate=self.haste)
        self._running += 1
        try:
            yield process
        finally:
            self._running -= 1
            process.close()

    def touch(self, name):
        (self.folder / name).touch()

    def remove(self, name):
        (self.folder / name).unlink()

    def put(self, number, *statuses):
        for status in statuses:
            item = {"number": {"N": str(number)}, "status": {"S": status}}
            key = {"pk": {"S": f"ORDER#{number}"}, "sk": {"S": "ORDER"}}
            self.dynamodb.put_item(TableName=self.table, Item=key | item)

    def item(self, pk, sk):
        key = {"pk": {"S": pk}, "sk": {"S": sk}}
        reply = self.dynamodb.get_item(TableName=self.table, Key=key, ConsistentRead=True)
        return reply.get("Item", {})

    def journal(self, number):
        return self.item(f"JOURNAL#{number}", "JOURNAL").get("lines", {"S": ""})["S"]

    def count(self, status):
        return int(self.item(f"PER#{status}", "PER").get("orders", {"N": "0"})["N"])

    def until(self, condition):
        """Ask until the answer is yes, and return it.

        Questions without a pause would take the processor from the processes that they ask about.
        """
        end = time.monotonic() + DEADLINE
        while not (answer := condition()):
            assert time.monotonic() < end
            time.sleep(0.03)
        return answer

    def command(self, name, **arguments):
        """Tell the server to split, roll or trim."""
        if account.prefix():
            pytest.skip(f"the service does not {name} shards when it is told to")
        body = json.dumps({"table": self.table, **arguments}).encode()
        request = urllib.request.Request(f"{self.url}/_control/{name}", body, method="POST")
        with urllib.request.urlopen(request, timeout=DEADLINE) as reply:
            return json.loads(reply.read())["result"]


@pytest.fixture(scope="session")
def dynamodb(server):
    with closing(client_of(server)) as client:
        yield client


_numbers = count(1)


def create_table(dynamodb, name, *, key_type="S", stream=True):
    more = {"OnDemandThroughput": account.THROUGHPUT} if account.prefix() else {}
    dynamodb.create_table(
        **more,
        TableName=name,
        KeySchema=[
            {"AttributeName": "pk", "KeyType": "HASH"},
            {"AttributeName": "sk", "KeyType": "RANGE"},
        ],
        AttributeDefinitions=[
            {"AttributeName": "pk", "AttributeType": key_type},
            {"AttributeName": "sk", "AttributeType": "S"},
        ],
        BillingMode="PAY_PER_REQUEST",
        StreamSpecification=(
            {"StreamEnabled": True, "StreamViewType": "NEW_AND_OLD_IMAGES"}
            if stream
            else {"StreamEnabled": False}
        ),
    )
    if account.prefix():
        dynamodb.get_waiter("table_exists").wait(TableName=name)


@pytest.fixture
def shop(tmp_path, server, dynamodb):
    shop = Shop(tmp_path, server, f"{account.prefix()}shop-{next(_numbers)}", dynamodb)
    create_table(dynamodb, shop.table)
    yield shop
    if account.prefix():
        dynamodb.delete_table(TableName=shop.table)


@pytest.fixture
def bare_shop(tmp_path, server, dynamodb):
    """A shop whose table the test creates."""
    shop = Shop(tmp_path, server, f"{account.prefix()}shop-{next(_numbers)}", dynamodb)
    shop.create = lambda **options: create_table(dynamodb, shop.table, **options)
    return shop
