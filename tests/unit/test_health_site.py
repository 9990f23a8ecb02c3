"""The health server's site: what it tells of a process's handlers, and how often it asks AWS."""

from types import SimpleNamespace

import anyio
import pytest

from streamkit.observe.registry import Registry
from streamkit.operate.status_page import site as sites
from streamkit.operate.status_page.requests import BrowserRequest
from streamkit.operate.status_page.site import KEPT_SECONDS, Site
from streamkit.worker.report import WorkerReport
from tests.unit.test_status_page import app


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
