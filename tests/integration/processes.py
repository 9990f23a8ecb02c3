"""The scenery of the tests with real processes: an engine, workers, writers, and a recomputation.

The engine is a process, each worker is one, and the test's own process writes. Waiting is polling
for a condition with a deadline; a random moment is a random number of further writes.
"""

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from urllib.request import Request, urlopen

import boto3
from boto3.dynamodb.types import TypeDeserializer
from botocore.config import Config

from streamkit.progress.actions import CONTROL_ATTRIBUTE, CONTROL_PREFIX
from tests.authority import one_authority
from tests.forked import Forked
from tests.integration.shop_app import link
from tests.simulation.shop import TABLE
from tests.tables import streamed

ROOT = Path(__file__).parents[2]
APP = "tests.integration.shop_app:app"
AUDIT = "tests.integration.shop_app:audit"
SHOPS = ("north", "south", "west", "east")
DEADLINE = 180.0
"""Seconds that anything may take on a busy machine; it takes a few."""


def until(condition, what, seconds=DEADLINE):
    """Poll until the condition is true, and return what it returned."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        time.sleep(0.05)
    return found


class WorkerProcess:
    """One `streamkit worker`, whose log goes to a file; it runs the `streamkit` in a folder."""

    def __init__(self, environment, log, *arguments, folder=ROOT):
        self.log = log
        environment = environment | {"PYTHONPATH": str(ROOT)}
        if folder == ROOT:
            command = ["worker", *arguments]
            self.process = Forked(command, cwd=folder, env=environment, log=log)
        else:  # another version
            command = [sys.executable, "-m", "streamkit", "worker", *arguments]
            output = {"stdout": subprocess.DEVNULL, "stderr": log.open("wb")}
            self.process = subprocess.Popen(command, env=environment, cwd=folder, **output)
            output["stderr"].close()
        self.pid = self.process.pid

    @property
    def ended(self):
        return self.process.poll() is not None

    def said(self, event):
        """How often it logged an event."""
        return self.log.read_text().count(f'"event": "{event}"')

    def until(self, event):
        def heard():
            assert not self.ended, self.log.read_text()
            return self.said(event)

        until(heard, f"{event} of worker {self.pid}")

    def send(self, number):
        self.process.send_signal(number)

    def kill(self):
        """End it like a power cut."""
        self.send(signal.SIGKILL)
        self.process.wait(DEADLINE)

    def exit_code(self):
        return self.process.wait(DEADLINE)

    def stop(self):
        """End it gracefully, and return its exit code."""
        self.send(signal.SIGTERM)
        return self.exit_code()


class Site:
    """The engine's process, a client of it, and the workers on it."""

    def __init__(self, url, client, logs, **settings):
        self.url, self.client, self.logs = url, client, logs
        self.workers = []
        self.environment = os.environ | {
            "AWS_ACCESS_KEY_ID": "key",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_CA_BUNDLE": one_authority(),
            "AWS_ENDPOINT_URL": url,
            "STREAMKIT_LOG_FORMAT": "json",
            "STREAMKIT_POLL_FLOOR": "0.05",
            "STREAMKIT_POLL_CEILING": "0.3",
            **{f"STREAMKIT_{name.upper()}": str(value) for name, value in settings.items()},
        }

    def start(self, *arguments, folder=ROOT):
        log = self.logs / f"worker-{len(self.workers)}.log"
        worker = WorkerProcess(self.environment, log, *(arguments or (APP,)), folder=folder)
        self.workers.append(worker)
        return worker

    def start_together(self, count):
        """Start workers, and wait until each has joined the fleet."""
        workers = [self.start() for _ in range(count)]
        for worker in workers:
            worker.until("worker.started")
        return workers

    def control(self, command, **arguments):
        body = json.dumps({"table": TABLE} | arguments).encode()
        with urlopen(Request(f"{self.url}/_control/{command}", body, method="POST")) as reply:
            return json.load(reply)["result"]

    def open_shards(self):
        return [shard["id"] for shard in self.control("shards") if shard["open"]]

    def items(self):
        plain = TypeDeserializer().deserialize
        pages = self.client.get_paginator("scan").paginate(TableName=TABLE, ConsistentRead=True)
        return [
            {name: plain(value) for name, value in item.items()}
            for page in pages
            for item in page["Items"]
        ]

    def controls(self, attribute):
        """Streamkit's own items that have an attribute, without its prefix."""
        own = [item for item in self.items() if item["PK"].startswith(CONTROL_PREFIX)]
        shown = [{n.removeprefix(CONTROL_ATTRIBUTE): v for n, v in item.items()} for item in own]
        return [item for item in shown if attribute in item]

    def owners(self):
        """The process ids of the owners of unfinished shards; None for a shard without an owner."""
        active = [item for item in self.controls("epoch") if item["state"] == "active"]
        names = {item.get("owner") for item in active}
        return {int(name.split("/")[1]) if name else None for name in names}

    def until_owned_by(self, workers):
        """Wait until these workers own everything, and each of them something."""
        pids = {worker.pid for worker in workers}
        until(lambda: self.owners() == pids, f"the owners are {pids}")

    def members(self):
        """How many workers have a heartbeat item."""
        return len(self.controls("beats"))

    def tell_logs(self):
        for number, worker in enumerate(self.workers):
            lines = worker.log.read_text().splitlines()[-12:]
            print(f"worker {number}, exit code {worker.process.poll()}:", *lines, sep="\n  ")


@contextmanager
def running(tmp_path, *, shards=2, **settings):
    """Start an engine, and end it and every worker at the end."""
    command = [sys.executable, "-m", "streamkit.local", "--port", "0", "--shards", str(shards)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as engine:
        try:
            with site_at(engine.stdout.readline().strip(), tmp_path, **settings) as site:
                yield site
        finally:
            engine.kill()


@contextmanager
def site_at(url, tmp_path, **settings):
    """Make a table on an engine, and end every worker at the end."""
    session = boto3.Session("key", "secret", region_name="us-east-1")
    config = Config(retries={"total_max_attempts": 1})
    with closing(session.client("dynamodb", endpoint_url=url, config=config)) as client:
        site = Site(url, client, tmp_path, **settings)
        create_table(client)
        try:
            yield site
        except BaseException:
            site.tell_logs()
            raise
        finally:
            end_all(site.workers)


def create_table(client):
    client.create_table(**streamed(TABLE, "PK", "SK"))


def end_all(workers):
    for worker in workers:
        worker.process.kill()
        worker.process.wait(DEADLINE)


class Writer:
    """Writes sales of its own numbers, and remembers what the handlers must make of them."""

    def __init__(self, client, seed, numbers=range(40), pause=0.002):
        self.client, self.rng = client, random.Random(seed)
        self.numbers, self.pause = numbers, pause
        self.count = 0
        self.sales, self.edits, self.chain, self.changes = {}, Counter(), {}, Counter()
        self._enough = threading.Event()

    def write(self, times=1):
        for _ in range(times):
            self.count += 1
            self._write(self.rng.choice(self.numbers))

    def _write(self, number):
        key = {"PK": {"S": f"SALE#{number}"}, "SK": {"S": f"SALE#{number}"}}
        self.changes[number] += 1
        if number in self.sales and self.rng.random() < 0.2:
            self.client.delete_item(TableName=TABLE, Key=key)
            del self.sales[number]
            self.chain[number] = link(self.chain[number], None)
            return
        shop, amount = self.rng.choice(SHOPS), self.rng.randrange(100)
        sale = {
            "number": {"N": str(number)},
            "shop": {"S": shop},
            "amount": {"N": str(amount)},
            "revision": {"N": str(self.count)},
        }
        self.client.put_item(TableName=TABLE, Item=key | sale)
        self.edits[number] += number in self.sales
        self.sales[number] = (shop, amount)
        self.chain[number] = link(self.chain.get(number, 0), self.count)

    def write_for_ever(self):
        while not self._enough.wait(self.pause):
            self.write()

    @contextmanager
    def writing(self):
        """Write in a thread, as long as the block lasts."""
        thread = threading.Thread(target=self.write_for_ever)
        thread.start()
        try:
            yield
        finally:
            self._enough.set()
            thread.join(DEADLINE)

    def after(self, most):
        """Wait for a random number of further writes."""
        goal = self.count + self.rng.randrange(most)
        until(lambda: self.count >= goal, f"{most} writes")


def expected(writers):
    """What the handlers of both apps owe, recomputed from what was written."""
    kept = {"SALE": {}, "SHOP": {}, "EDITS": {}, "CHAIN": {}, "AUDIT": {}}
    for writer in writers:
        kept["SALE"] |= writer.sales
        kept["EDITS"] |= +writer.edits
        kept["CHAIN"] |= writer.chain
        kept["AUDIT"] |= writer.changes
    for shop, amount in kept["SALE"].values():
        sales, revenue = kept["SHOP"].get(shop, (0, 0))
        kept["SHOP"][shop] = (sales + 1, revenue + amount)
    return kept


# An attribute may be missing: not every engine keeps readers out of transactions.
MEASURES = {
    "SALE": lambda item: (item["shop"], item["amount"]),
    "SHOP": lambda item: (item.get("sales"), item.get("revenue")),
    "EDITS": lambda item: item.get("edits"),
    "CHAIN": lambda item: item.get("digest"),
    "AUDIT": lambda item: item.get("changes"),
}


def found(site):
    """What the table holds, in the shape of `expected`."""
    kept = {kind: {} for kind in MEASURES}
    for item in site.items():
        kind, _, name = item["PK"].partition("#")
        if kind in kept and MEASURES[kind](item) != (0, 0):
            kept[kind][name if kind == "SHOP" else int(name)] = MEASURES[kind](item)
    return kept


def finish(site, *writers, audited=False):
    """Wait until everything is as it must be, end all workers, and see that it still is."""
    wanted = expected(writers)
    if not audited:
        wanted["AUDIT"] = {}
    running = [worker for worker in site.workers if not worker.ended]
    alive = {None} | {worker.pid for worker in running}
    with suppress(AssertionError):
        until(lambda: found(site) == wanted, "the result is exact")
        until(lambda: site.owners() <= alive, "what the killed ones had is taken over")
    for worker in running:
        worker.until("worker.started")  # one that is told to stop before ends with another code
        worker.send(signal.SIGTERM)
    assert [worker.exit_code() for worker in running] == [0] * len(running)
    assert found(site) == wanted
    assert site.owners() == {None}, "everything is released"
    killed = [worker for worker in site.workers if worker.process.poll() == -signal.SIGKILL]
    assert site.members() <= len(killed), (
        "a worker that ends gracefully takes its heartbeat item away"
    )
