"""Real processes over loopback: workers are killed, frozen and stopped, and the result stays exact.

The engine is a process, each worker is one, and this one writes. What the workers keep is compared
with a recomputation from the table and from the log of writes. Waiting is polling for a condition
with a deadline; a random moment is a random number of further writes.
"""

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter, defaultdict
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Annotated
from urllib.request import Request, urlopen

import boto3
import pytest
from boto3.dynamodb.types import TypeDeserializer
from botocore.config import Config

from streamkit import Add, Aggregate, App, Change, Count, Entity, Key, Modified, Set, Sum
from streamkit.actions import CONTROL_ATTRIBUTE, CONTROL_PREFIX

ROOT = Path(__file__).parents[2]
APP = "tests.integration.test_processes:app"
TABLE = "Shop"
SHOPS = ("north", "south", "west", "east")
DEADLINE = 20.0
"""Seconds that anything may take on a busy machine; it takes a few."""

app = App("shop", table=TABLE)


class Sale(Entity, pk="SALE#{number}", sk="SALE"):
    number: int
    shop: str
    amount: int
    revision: int


class Edits(Entity, pk="EDITS#{number}", sk="EDITS"):
    number: int
    edits: int = 0


class Latest(Entity, pk="LATEST#{number}", sk="LATEST"):
    number: int
    revision: int


@app.aggregate
class ShopSales(Aggregate[Sale], pk="SHOP#{shop}", sk="SALES"):
    shop: str
    sales: Annotated[int, Count()] = 0
    revenue: Annotated[int, Sum("amount")] = 0

    @classmethod
    def group(cls, sale: Sale) -> Key["ShopSales"]:
        return cls.key(shop=sale.shop)


@app.on
def edits(change: Modified[Sale]) -> Add[Edits]:
    """Count edits: a change that takes effect twice, or never, shows."""
    return Add(Edits.key(number=change.new.number), edits=1)


@app.on
def latest(change: Change[Sale]) -> Set[Latest]:
    """Keep the last revision seen: changes that take effect out of order show."""
    sale = change.new or change.old
    return Set(Latest.key(number=sale.number), revision=sale.revision)


def until(condition, what, seconds=DEADLINE):
    """Poll until the condition is true, and return what it returned."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        time.sleep(0.05)
    return found


class WorkerProcess:
    """One `streamkit worker`, whose log goes to a file."""

    def __init__(self, environment, log, *flags):
        self.log = log
        command = [sys.executable, "-m", "streamkit", "worker", APP, *flags]
        with log.open("wb") as stderr:
            self.process = subprocess.Popen(
                command, env=environment, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=stderr
            )
        self.pid = self.process.pid

    @property
    def ended(self):
        return self.process.poll() is not None

    @property
    def state(self):
        """What it says of itself: `starts`, `waits`, `leads` or `lost`."""
        assert not self.ended, self.log.read_text()
        states = {"worker.waiting": "waits", "shard.taken": "leads", "worker.lost": "lost"}
        state = "starts"
        for line in self.log.read_text().splitlines():
            if line.startswith("{") and line.endswith("}"):
                state = states.get(json.loads(line)["event"], state)
        return state

    def until(self, *states):
        until(lambda: self.state in states, f"worker {self.pid} {' or '.join(states)}")

    def send(self, number):
        self.process.send_signal(number)

    def stop(self):
        """End it gracefully, and return its exit code."""
        self.send(signal.SIGTERM)
        return self.process.wait(DEADLINE)


class Site:
    """The engine's process, a client of it, and the workers on it."""

    def __init__(self, url, client, logs, **settings):
        self.url, self.client, self.logs = url, client, logs
        self.workers = []
        self.environment = os.environ | {
            "AWS_ACCESS_KEY_ID": "key",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": url,
            "STREAMKIT_LOG_FORMAT": "json",
            "STREAMKIT_POLL_FLOOR": "0.05",
            "STREAMKIT_POLL_CEILING": "0.3",
            **{f"STREAMKIT_{name.upper()}": str(value) for name, value in settings.items()},
        }

    def start_worker(self, *flags):
        log = self.logs / f"worker-{len(self.workers)}.log"
        worker = WorkerProcess(self.environment, log, *flags)
        self.workers.append(worker)
        return worker

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
        """The process ids of the workers that hold a lease of what is not finished."""
        active = [item for item in self.controls("owner") if item["state"] == "active"]
        return {int(item["owner"].split("/")[1]) for item in active}

    def members(self):
        """How many workers have a heartbeat item."""
        return len(self.controls("counter"))

    def start_workers(self, count):
        """Start workers together, and return them with the one that leads first."""
        workers = [self.start_worker() for _ in range(count)]
        for worker in workers:
            worker.until("leads", "waits")
        return sorted(workers, key=lambda worker: worker.state != "leads")

    def takes_over(self, worker):
        """Wait until a worker holds every lease."""
        worker.until("leads")
        until(lambda: self.owners() == {worker.pid}, "it holds every lease")

    def tell_logs(self):
        for number, worker in enumerate(self.workers):
            lines = worker.log.read_text().splitlines()[-12:]
            print(f"worker {number}, exit code {worker.process.poll()}:", *lines, sep="\n  ")


@contextmanager
def running(tmp_path, **settings):
    """Start an engine, and end it and every worker at the end."""
    command = [sys.executable, "-m", "streamkit.local", "--port", "0", "--shards", "2"]
    with ExitStack() as stack:
        engine = stack.enter_context(
            subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        )
        stack.callback(engine.kill)
        url = engine.stdout.readline().strip()
        session = boto3.Session("key", "secret", region_name="us-east-1")
        config = Config(retries={"total_max_attempts": 1})
        client = session.client("dynamodb", endpoint_url=url, config=config)
        site = Site(url, stack.enter_context(closing(client)), tmp_path, **settings)
        stack.callback(end_all, site.workers)
        keys = [("PK", "HASH"), ("SK", "RANGE")]
        client.create_table(
            TableName=TABLE,
            KeySchema=[{"AttributeName": name, "KeyType": kind} for name, kind in keys],
            AttributeDefinitions=[{"AttributeName": n, "AttributeType": "S"} for n, _ in keys],
            BillingMode="PAY_PER_REQUEST",
            StreamSpecification={"StreamEnabled": True, "StreamViewType": "NEW_AND_OLD_IMAGES"},
        )
        try:
            yield site
        except BaseException:
            site.tell_logs()
            raise


def end_all(workers):
    for worker in workers:
        worker.process.kill()
        worker.process.wait(DEADLINE)


class Writer:
    """Writes sales, and remembers what the handlers must make of them."""

    def __init__(self, client, seed):
        self.client, self.rng = client, random.Random(seed)
        self.count = 0
        self.sales, self.edits, self.latest = {}, Counter(), {}
        self._enough = threading.Event()

    def write(self):
        number = self.rng.randrange(40)
        key = {"PK": {"S": f"SALE#{number}"}, "SK": {"S": "SALE"}}
        self.count += 1
        if number in self.sales and self.rng.random() < 0.2:
            self.client.delete_item(TableName=TABLE, Key=key)
            del self.sales[number]
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
        self.latest[number] = self.count

    def write_for_ever(self):
        while not self._enough.wait(0.002):
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

    def expected(self):
        shops = defaultdict(lambda: (0, 0))
        for shop, amount in self.sales.values():
            sales, revenue = shops[shop]
            shops[shop] = (sales + 1, revenue + amount)
        return dict(shops), dict(+self.edits), self.latest


def found(items):
    """Return what the workers keep, and the sales that the table holds."""
    kept = {"SHOP": {}, "EDITS": {}, "LATEST": {}, "SALE": {}}
    for item in items:
        kind, _, name = item["PK"].partition("#")
        if kind == "SHOP" and item["sales"]:
            kept[kind][name] = (item["sales"], item["revenue"])
        elif kind == "SALE":
            kept[kind][int(name)] = (item["shop"], item["amount"])
        elif kind in ("EDITS", "LATEST"):
            kept[kind][int(name)] = item["edits" if kind == "EDITS" else "revision"]
    return (kept["SHOP"], kept["EDITS"], kept["LATEST"]), kept["SALE"]


def finish(site, writer):
    """Run one more worker to the end, and compare everything."""
    last = site.start_worker("--until-idle")
    assert last.process.wait(DEADLINE) == 0
    kept, sales = found(site.items())
    assert sales == writer.sales
    assert kept == writer.expected()
    assert site.owners() == set()
    killed = [worker for worker in site.workers if worker.process.poll() == -signal.SIGKILL]
    assert site.members() <= len(killed), "who ends gracefully takes its heartbeat item away"


DEATHS = (signal.SIGKILL, signal.SIGSTOP, signal.SIGKILL)


@pytest.mark.parametrize("seed", [1])
def test_workers_killed_and_frozen_at_random_moments_leave_exact_results(tmp_path, seed):
    rng = random.Random(seed)
    with running(tmp_path, heartbeat=0.2, lease=0.8, list_interval=1.0) as site:
        writer = Writer(site.client, seed)
        with writer.writing():
            leader, waiter = site.start_workers(2)
            for death in DEATHS:
                site.takes_over(leader)
                waiter.until("waits")
                writer.after(100)
                command = rng.choice(["split", "roll"])
                site.control(command, shard=rng.choice(site.open_shards()))
                writer.after(100)
                leader.send(death)
                site.control("roll", shard=rng.choice(site.open_shards()))
                site.takes_over(waiter)
                if death == signal.SIGSTOP:
                    leader.send(signal.SIGCONT)
                else:
                    leader = site.start_worker()
                leader, waiter = waiter, leader
        waiter.until("waits")
        assert [leader.stop(), waiter.stop()] == [0, 0]
        finish(site, writer)
    assert writer.count > 300


def test_sigterm_releases_the_lease_so_that_the_next_worker_starts_at_once(tmp_path):
    with running(tmp_path, heartbeat=0.2, lease=3600) as site:
        writer = Writer(site.client, seed=2)
        for _ in range(50):
            writer.write()
        first, second, third = site.start_workers(3)
        site.takes_over(first)
        for _ in range(50):
            writer.write()
        assert third.stop() == 0, "a worker that waits ends as well"
        assert first.stop() == 0
        site.takes_over(second)  # long before a lease is over
        assert site.members() == 1
        assert second.stop() == 0
        finish(site, writer)
