"""A shop whose aggregate is rebuilt: the app, an operator beside the worker, and gates that stop
either of them at a call of one's choice."""

import json
import random
from collections import Counter
from decimal import Decimal
from typing import Annotated

import anyio

from streamkit import Aggregate, App, Count, Entity, Key, Max, Policy, Sum
from streamkit.fleet.cursors import every_cursor
from streamkit.kinds.aggregate import backfill
from streamkit.kinds.aggregate.facts import list_aggregates
from streamkit.kinds.aggregate.rebuild import rebuild_aggregate
from streamkit.progress.cursor import CursorStore
from streamkit.progress.scan import pages
from streamkit.settings import Settings
from streamkit.testing.world import Process

TABLE = "Shop"
SLOW = Settings(poll_ceiling=400, heartbeat=600, lease=1500, list_interval=3000, look_interval=1200)
FAST = Settings(poll_ceiling=5, heartbeat=10, lease=30, list_interval=20, look_interval=20)


class Sale(Entity, pk="SALE#{number}", sk="SALE#{number}"):
    number: int
    shop: str
    amount: int = 1


class Sales(Aggregate[Sale], pk="OF#{shop}", sk="SALES"):
    shop: str
    sales: Annotated[int, Count()] = 0
    total: Annotated[Decimal, Sum("amount")] = Decimal(0)

    @classmethod
    def group(cls, sale: Sale) -> Key["Sales"] | None:
        if sale.shop in BROKEN:
            raise ValueError("this shop is closed")
        return None if sale.shop == "none" else cls.key(shop=sale.shop)


class Bid(Entity, pk="LOT#{lot}", sk="BID#{number}"):
    lot: str
    number: int
    price: int
    note: str = ""


class Best(Aggregate[Bid], pk="BEST#{lot}", sk="BEST"):
    lot: str
    bids: Annotated[int, Count()] = 0
    price: Annotated[int | None, Max("price")] = None

    @classmethod
    def group(cls, bid: Bid) -> Key["Best"]:
        return cls.key(lot=bid.lot)

    @classmethod
    def members(cls, lot):
        return Bid.query(lot=lot)


class Session(Entity, pk="{token}", type="session"):
    token: str
    shop: str
    amount: int = 1


class Active(Aggregate[Session], pk="OF#{shop}", type="active"):
    shop: str
    sales: Annotated[int, Count()] = 0

    @classmethod
    def group(cls, session: Session) -> Key["Active"]:
        return cls.key(shop=session.shop)


BROKEN: set[str] = set()
"""Shops whose changes fail for the moment."""


def app_of(*aggregates, **named):
    app = App("shop", table=TABLE, **named)
    for aggregate in aggregates or (Sales,):
        app.aggregate(aggregate)
    return app


def session_app():
    app = App("sessions", table="Sessions", type_attribute="type")
    app.aggregate(Active)
    return app


PATIENT = Policy(attempts=1, retry_seconds=7200, retry_seconds_max=7200, breaker=False)


class Gate:
    """Stops a process at a call, before or after the engine has applied it, until it is opened."""

    def __init__(self, wanted, *, after=False):
        self.wanted, self.after = wanted, after
        self.met, self.open = anyio.Event(), anyio.Event()

    async def intercept(self, call, apply):
        stops = not self.met.is_set() and self.wanted(call)
        if stops and not self.after:
            await self._stop()
        response = apply()
        if stops and self.after:
            await self._stop()
        return response

    async def _stop(self):
        self.met.set()
        await self.open.wait()


def scans_a_segment(call):
    return call.operation == "Scan" and json.loads(call.payload)["Limit"] == backfill.PAGE_ITEMS


def scans_for_groups(call):
    return call.operation == "Scan" and json.loads(call.payload)["Limit"] == pages.PAGE_ITEMS


def reads_the_ledger(call):
    return call.operation == "GetItem" and b"#ledger#" in call.payload


def looks_for_entries(call):
    return call.operation == "BatchGetItem" and b"#ledger#" in call.payload


def counts(call):
    return call.operation == "TransactWriteItems" and b"OF#" in call.payload


class Operator(Process):
    """Runs a rebuild beside the harness's worker, with clients of its own."""

    def __init__(self, harness, name="operator", gate=None, aggregate="Sales", **options):
        super().__init__(name, faults=gate)
        self.harness, self.aggregate = harness, aggregate
        ours = {"segments": 2, "rng": random.Random(name), "clock": harness.world.clock}
        self.options = ours | options
        self.done = self.error = None
        self.task = harness._loop.create_task(self.work())

    async def work(self):
        async with self.harness.world.clients(self) as aws:
            try:
                self.done = await rebuild_aggregate(
                    self.harness.app, aws, self.aggregate, **self.options
                )
            except Exception as error:
                self.error = error

    def end(self):
        self.kill()
        self.task.cancel()
        self.harness.advance(0)

    def wait(self):
        """Let time pass until it is done."""
        for _ in range(200):
            if self.done or self.error:
                break
            self.harness.advance("5s")
        if self.error is not None:
            raise self.error
        assert self.done is not None, "it does not end"
        return self.done


def rebuild(harness, **options):
    """Rebuild, and wait until all is counted."""
    done = Operator(harness, **options).wait()
    assert done.done
    return done


def pass_hours(harness, hours):
    """Let much time pass, with a worker that does next to nothing."""
    harness.world.control.configure(roll_after=None)
    harness.stop()
    harness._settings = SLOW
    harness.settle()
    harness.advance(f"{hours}h")


def until(harness, event):
    for _ in range(300):
        if event.is_set():
            return
        harness.advance("2s")
    raise AssertionError("it was never met")


def open_existing(harness, numbers=range(6)):
    """Let there be sales, counted as if they were not: what is stored is wrong."""
    harness.put(*(Sale(number=n, shop="ab"[n % 2], amount=n + 1) for n in numbers))
    harness.settle()
    harness.put(Sales(shop="a", sales=77), Sales(shop="gone", sales=5))


def expected(harness):
    numbers, totals = Counter(), Counter()
    for sale in harness.scan(Sale):
        if sale.shop != "none":
            numbers[sale.shop] += 1
            totals[sale.shop] += sale.amount
    return {shop: (numbers[shop], totals[shop]) for shop in numbers}


def stored(harness, aggregate=Sales):
    found = {one.shop: (one.sales, int(one.total)) for one in harness.scan(aggregate)}
    return {shop: both for shop, both in found.items() if both != (0, 0)}


def is_exact(harness, aggregate=Sales):
    harness.settle()
    assert stored(harness, aggregate) == expected(harness)
    return True


def state_of(harness, name="Sales"):
    found = harness._run(list_aggregates(harness.app, harness._aws))
    return next(one.state for one in found if one.name == name)


def store_of(harness):
    return CursorStore(harness._aws.dynamodb, harness.tables.space(harness.app))


def cursors_of(harness):
    return harness._run(every_cursor(store_of(harness)))


def ledger_of(harness):
    return [item for item in harness.world.items(TABLE) if "#ledger#" in item["PK"]["S"]]
