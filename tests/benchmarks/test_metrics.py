"""What counting costs: a small part of handling a change, and of a call.

Both contestants take turns in one run, and the fastest round of each counts, so that a busy machine
slows both alike.
"""

import asyncio
import random
import time

import pytest

from streamkit import App, Modified, Set
from streamkit.aws import connect
from streamkit.clock import SystemClock
from streamkit.cost.metering import meter
from streamkit.decode import parse_page
from streamkit.local.engine import Engine
from streamkit.local.transport import session_class
from streamkit.observe.meters import Meters, current
from streamkit.observe.registry import Registry
from streamkit.processing.dispatch import Dispatcher
from streamkit.processing.routes import Channels
from streamkit.processing.tracing import UNTRACED
from streamkit.relations.tables import Tables
from streamkit.testing.harness import table_of
from tests.benchmarks.deals import Deal, page_body
from tests.benchmarks.test_decode import SCHEMA

ROUNDS = 15
PART_MAX = 0.02
CALLS = 300

pytestmark = pytest.mark.benchmark


def make_app():
    app = App("deals", table="deals")

    @app.on
    def viewed(change: Modified[Deal]) -> Set[Deal]:
        return Set(change.new.item_key, views=change.new.views + 1)

    return app


def fastest(rounds, *contestants):
    """Return the fewest seconds that each needs, in turns."""
    best = [float("inf")] * len(contestants)
    for _ in range(rounds):
        for place, run in enumerate(contestants):
            began = time.perf_counter()
            run()
            best[place] = min(best[place], time.perf_counter() - began)
    return best


async def test_counting_and_timing_are_at_most_a_fiftieth_of_handling_a_change():
    app, body, meters = make_app(), page_body(0), Meters(Registry(), "deals")
    dispatcher = Dispatcher(
        app.handlers,
        app.routes(Tables(SCHEMA)),
        lambda handler, tracker: {},
        SystemClock(),
        random.Random(1),
        Channels(meters=meters),
    )

    def handle():
        """Run what never waits to its end, without an event loop in between."""
        try:
            dispatcher.works(parse_page(body), "s").send(None)
        except StopIteration as done:
            return done.value

    changes = len(handle()[0])

    def count():  # what is done for the sake of metrics, for as many changes
        for _ in range(changes):
            with UNTRACED:
                began = time.perf_counter()
                meters.handler("viewed").seconds.record(time.perf_counter() - began)
            meters.handler("viewed").changes.add()

    handled, counted = fastest(ROUNDS, handle, count)
    print(f"\nmetrics: {counted / changes * 1e6:.2f} of {handled / changes * 1e6:.1f} us a change")
    assert counted <= PART_MAX * handled


async def test_metering_adds_little_to_a_call():
    app = make_app()
    engine = Engine(rng=random.Random(1))
    engine.call("dynamodb", "CreateTable", table_of(app))
    key = {"PK": {"S": "a"}, "SK": {"S": "b"}}
    best = {}
    async with (
        connect(http_session=session_class(engine)) as plain,
        connect(http_session=session_class(engine)) as metered,
    ):
        meter(metered)
        token = current.set(Meters(Registry(), "deals"))
        for _ in range(ROUNDS):
            for name, aws in (("plain", plain), ("metered", metered)):
                began = time.perf_counter()
                for _ in range(CALLS):
                    await aws.dynamodb.get_item(TableName="deals", Key=key)
                best[name] = min(best.get(name, 1e9), time.perf_counter() - began)
                await asyncio.sleep(0)
        current.reset(token)
    added = best["metered"] / best["plain"] - 1
    print(f"\nmetering: {added:+.1%} of {best['plain'] / CALLS * 1e6:.0f} us a call")
    assert added < 0.15, (
        "without a network, with one call a change; a commit holds up to 99 of them"
    )
