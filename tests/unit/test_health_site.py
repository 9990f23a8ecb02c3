"""The health server's site: what it tells of a process's handlers, and how often it asks AWS."""

from collections import Counter
from types import SimpleNamespace

import anyio
import pytest

from streamkit import App, Change, Entity
from streamkit.core.table_shape import TableShape
from streamkit.observe.registry import Registry
from streamkit.operate.status_page import site as sites
from streamkit.operate.status_page.requests import BrowserRequest
from streamkit.operate.status_page.site import KEPT_SECONDS, Site
from streamkit.testing.loop import run_virtually
from streamkit.testing.world import World
from streamkit.worker.report import WorkerReport
from tests.unit.test_status_page import app


class Order(Entity, pk="ORDER#{number}", sk="ORDER"):
    number: int


def follow(change: Change[Order]) -> None:
    """Listen."""


class Clock:
    now = 1_700_000_000.0

    def time(self):
        return self.now

    def monotonic(self):
        return self.now


def site_of(report, clock):
    """The site of a process with one worker, and with clients that are never asked."""
    found = Site(Registry(), 0, clock)
    meters = SimpleNamespace(handler=lambda _: SimpleNamespace(effects=SimpleNamespace(value=0)))
    worker = SimpleNamespace(app=app, report=report, meters=meters)
    stopping = SimpleNamespace(is_set=lambda: False)
    workers = SimpleNamespace(workers=[worker], name="host/1/worker", errors=[], stopping=stopping)
    found.attach(workers, object())
    return found, worker


@pytest.mark.parametrize(("lag", "parked", "behind"), [(2.0, 90, 90), (300.0, 90, 300), (2, 0, 2)])
def test_a_handler_is_behind_by_its_shards_or_by_what_it_has_parked(lag, parked, behind):
    clock = Clock()
    oldest = {"notify": int(clock.now) - parked} if parked else {}
    found, worker = site_of(WorkerReport("deals", "active", {"shard-1": lag}, oldest=oldest), clock)
    assert [one.behind for one in found._handlers(worker)] == [behind]


def test_the_page_reads_the_heartbeats_of_each_consumer_for_itself_alone():
    """With those of its listeners an app's part of the page would read all of them once more."""
    shop = App("shop", table="Shop", entities=[Order])
    consumers = [shop, *(shop.listener(name) for name in ("search", "mail"))]
    for consumer in consumers:
        consumer.on(follow)

    async def main():
        world, reads = World.create(1), Counter()
        async with world.clients() as aws:
            await TableShape().create(aws.dynamodb, "Shop", (Order,), stream=True)

            def saw(sighting):
                text = str(sighting.call.payload)
                if sighting.call.operation == "Query" and "#members" in text:
                    reads.update(one.name for one in consumers if f"#{one.name}#" in text)

            world.watchers.append(saw)
            found = Site(Registry(), 0, world.clock)
            meters = SimpleNamespace(
                handler=lambda _: SimpleNamespace(effects=SimpleNamespace(value=0))
            )
            workers = [
                SimpleNamespace(app=one, report=WorkerReport(one.name, "active"), meters=meters)
                for one in consumers
            ]
            stopping = SimpleNamespace(is_set=lambda: False)
            process = {"name": "host/1/worker", "errors": [], "stopping": stopping}
            found.attach(SimpleNamespace(workers=workers, **process), aws)
            await found.answer(BrowserRequest("/"))
        return reads

    reads = run_virtually(main, seed=1)
    assert reads == {"shop": 2, "shop.search": 2, "shop.mail": 2}, "for the status and the costs"


def test_however_many_ask_for_the_page_the_table_is_read_every_few_seconds(monkeypatch):
    clock, asked = Clock(), []

    async def read_status(*_args, **_options):
        asked.append(clock.now)
        raise TimeoutError

    monkeypatch.setattr(sites, "read_status", read_status)
    found, _ = site_of(WorkerReport("deals", "active"), clock)

    async def ask():
        assert "deals" in (await found.answer(BrowserRequest("/"))).body

    async def ask_twice_and_later():
        for passed in (0, 0, 1, KEPT_SECONDS):
            clock.now += passed
            await ask()

    begun = clock.now
    anyio.run(ask_twice_and_later)
    assert asked == [begun, begun + 1 + KEPT_SECONDS]
