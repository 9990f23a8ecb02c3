"""Redrive: run the handlers of parked changes again, or drop the changes, as a person asks for it.

In: which lanes. Out: a report a lane: empty again, or its first change failed again and stays
first. Workers do the same on their own, when lanes are due: see `automatic`.
"""

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

from streamkit.app import App
from streamkit.aws import Aws
from streamkit.clock import Clock, SystemClock
from streamkit.cursor import CursorStore
from streamkit.injection import injector
from streamkit.machine import Machine
from streamkit.parked.head import leave
from streamkit.parked.lanes import HeldLane, Selection, list_parked, open_store, read_head, show
from streamkit.preflight import findings, require
from streamkit.processing.routes import Channels
from streamkit.processing.tracing import Tracing
from streamkit.retries.redriver import LaneReport, Redriver
from streamkit.sinks.outlets import open_outlets
from streamkit.surroundings import survey

__all__ = [
    "LaneReport",
    "Redriver",
    "Selection",
    "discard",
    "list_parked",
    "open_redriver",
    "redrive",
    "show",
]

ALL = Selection()
"""Every held lane."""


async def redrive(
    app: App,
    aws: Aws,
    chosen: Selection = ALL,
    *,
    rng: random.Random | None = None,
    clock: Clock | None = None,
) -> list[LaneReport]:
    """Redrive held lanes, due, stuck or neither, each until it is empty or its first change fails.

    Args:
        app: its handlers run.
        aws: open clients.
        chosen: which lanes; every held one without it.
        rng: jitter, for simulations.
        clock: time, for simulations.

    Raises:
        ConfigurationError: the app does not fit its table, or may not use it.
    """
    async with open_redriver(app, aws, rng=rng, clock=clock) as redriver:
        lanes = await chosen.choose(redriver.store)
        return [await redriver.redrive(lane.name) for lane in lanes]


async def discard(
    app: App,
    aws: Aws,
    chosen: Selection = ALL,
    *,
    whole: bool = False,
    rng: random.Random | None = None,
    clock: Clock | None = None,
) -> list[LaneReport]:
    """Drop the first change of lanes without running anything; the next one is due at once then.

    Args:
        app: whose parked changes.
        aws: open clients.
        chosen: which lanes; every held one without it.
        whole: also what waits behind the first change, as far as it is as old as asked for.
        rng: jitter, for simulations.
        clock: time, for simulations.
    """
    store = await open_store(app, aws)
    rng, clock = rng or random.Random(), clock or SystemClock()
    return [
        await discard_lane(store, lane, rng, clock, chosen.parked_before, whole=whole)
        for lane in await chosen.choose(store)
    ]


@asynccontextmanager
async def open_redriver(
    app: App, aws: Aws, *, rng: random.Random | None = None, clock: Clock | None = None
) -> AsyncIterator[Redriver]:
    """Open what the app's handlers need, for redriving.

    Raises:
        ConfigurationError: the app does not fit its table, or may not use it.
    """
    around = await survey(app, aws)
    async with app.resources() as resources, open_outlets(app.sinks, clock) as outlets:
        require(findings(app, around, resources))
        space = around.space(app)
        tools = injector(aws.dynamodb, around.table, resources, around.schemas, space)
        machine = Machine(aws, clock or SystemClock(), rng or random.Random())
        channels = Channels(outlets, tracing=Tracing.of(app.telemetry, app.name))
        yield Redriver(app, machine, around, tools, channels)


async def discard_lane(
    store: CursorStore,
    held: HeldLane,
    rng: random.Random,
    clock: Clock,
    before: float | None = None,
    *,
    whole: bool = False,
) -> LaneReport:
    """Drop the first change of a lane, IF it is still the one that was read when it was chosen.

    Args:
        store: the consumer's control items.
        held: the lane, as it was chosen.
        rng: jitter of repetitions.
        clock: time.
        before: leave changes alone that were parked from then on, in epoch seconds.
        whole: also what waits behind the first change.
    """
    report = LaneReport(held.name, held.handler)
    schemas = {store.space.schema.name: store.space.schema}
    while True:
        found = await read_head(store, held.name)
        if found is None:
            return report
        lane, first = found
        young = before is not None and first.at >= before
        overtaken = not report.done and lane.head != held.head  # not what was chosen any more
        if young or overtaken or (report.done and not whole):
            return replace(report, due=None if lane.stuck else lane.due, stuck=lane.stuck)
        if await leave(store, schemas, lane, first, (), rng, clock) is None:
            report = replace(report, done=report.done + 1)
