"""The demo: every use of a stream at once, through the real sinks, and what has arrived checked."""

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import anyio
import structlog

from handlers.playing import perform
from handlers.relay.handlers import SHAPE, app
from handlers.relay.places import Places
from handlers.relay.stand_ins import StandIns, stand_ins
from handlers.relay.traffic import Traffic
from handlers.system import System
from streamkit import App


def main(*, writes: int = 240, seed: int = 1) -> int:
    """Run the demo; 0 if everything has arrived that must have, and nothing else, else 1."""
    quiet = structlog.make_filtering_bound_logger(logging.CRITICAL)
    structlog.configure(wrapper_class=quiet)
    for name in ("werkzeug", "sqlalchemy.pool", "asyncio"):  # what a killed worker leaves behind
        logging.getLogger(name).setLevel(logging.CRITICAL)
    with stand_ins(seed=seed) as outside, leading_to(outside, app) as places:
        anyio.run(places.rows.create_table)
        system = System(app, partial(Traffic, outside.arrived), SHAPE)
        return anyio.run(perform, system, writes, seed, {})


@contextmanager
def leading_to(outside: StandIns, app: App) -> Iterator[Places]:
    """Let the sinks of an app and its listeners lead to stand-ins."""
    places = Places.at(outside.addresses, transport=outside.transport)
    consumers = [app, *app.listeners.values()]
    before = [list(one.sinks) for one in consumers]
    for one in consumers:
        one.sinks[:] = [places.by_name[sink.name] for sink in one.sinks]
    try:
        yield places
    finally:
        for one, sinks in zip(consumers, before, strict=True):
            one.sinks[:] = sinks


if __name__ == "__main__":
    sys.exit(main())
