"""What counting costs: a small part of handling a change, and of a call."""

import asyncio
import random
import time
from types import SimpleNamespace

from streamkit import App, Modified, Set
from streamkit.aws import connect
from streamkit.core.dispatch import Dispatcher
from streamkit.core.routes import Channels
from streamkit.core.tables import Tables
from streamkit.core.tracing import UNTRACED
from streamkit.local.engine import Engine
from streamkit.local.transport import session_class
from streamkit.observe.meters import Meters, current
from streamkit.observe.registry import Registry
from streamkit.progress.metering import meter
from streamkit.stream.decode import parse_page
from streamkit.testing.harness import table_of
from tests.benchmarks.deals import Deal, page_body
from tests.benchmarks.rows.b_decoding import SCHEMA
from tests.benchmarks.yardstick import Figure, in_turns, row
from tests.calls import botocores_way

CALLS = 300
STILL = SimpleNamespace(monotonic=lambda: 0.0, time=lambda: 1_714_557_600.0)
"""A clock that stands, so that handling a page never gives way to other tasks."""


def make_app() -> App:
    app = App("deals", table="deals")

    @app.on
    def viewed(change: Modified[Deal]) -> Set[Deal]:
        return Set(change.new.item_key, views=change.new.views + 1)

    return app


@row(
    "metrics: counting and timing a change",
    unit="µs",
    of="handling it",
    bar=0.02,
    less=True,
)
def counting() -> Figure:
    app, body, meters = make_app(), page_body(0), Meters(Registry(), "deals")
    dispatcher = Dispatcher(
        app.handlers,
        app.routes(Tables(SCHEMA)),
        lambda handler, tracker: {},
        STILL,
        random.Random(1),
        Channels(meters=meters),
    )

    def handle() -> int:
        """Run what never waits to its end, without an event loop in between."""
        try:
            dispatcher.dispatch(parse_page(body), "s").send(None)
        except StopIteration as done:
            return len(done.value[0])
        raise AssertionError("it waits")

    changes = handle()

    def count() -> None:  # what is done for the sake of metrics, for as many changes
        for _ in range(changes):
            with UNTRACED:
                began = time.perf_counter()
                meters.handler("viewed").seconds.record(time.perf_counter() - began)
            meters.handler("viewed").changes.add()

    handled, counted = in_turns(handle, count, rounds=15)
    return Figure(counted / changes * 1e6, counted / handled)


@row("metrics: metering a call", unit="µs", of="a call without a network", bar=0.12, less=True)
def metering() -> Figure:
    with botocores_way():
        return asyncio.run(_metering())


async def _metering() -> Figure:
    app = make_app()
    engine = Engine(rng=random.Random(1))
    engine.call("dynamodb", "CreateTable", table_of(app))
    key = {"PK": {"S": "a"}, "SK": {"S": "b"}}
    best: dict[str, float] = {}
    async with (
        connect(http_session=session_class(engine)) as plain,
        connect(http_session=session_class(engine)) as metered,
    ):
        meter(metered)
        token = current.set(Meters(Registry(), "deals"))
        for _ in range(15):
            for name, aws in (("plain", plain), ("metered", metered)):
                began = time.process_time()
                for _ in range(CALLS):
                    await aws.dynamodb.get_item(TableName="deals", Key=key)
                best[name] = min(best.get(name, 1e9), time.process_time() - began)
        current.reset(token)
    added = max(0.0, best["metered"] - best["plain"])
    return Figure(added / CALLS * 1e6, added / best["plain"])
