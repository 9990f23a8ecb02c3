"""Redrive: run the handlers of parked changes again, or discard the changes, for an operator.

In: which parked queues. Out: one report per queue: it is empty again, or its first change
failed again and stays first. Workers do the same automatically, when queues are due: see
`streamkit.worker.automatic_retries`.
"""

import random
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial

from streamkit.app import App
from streamkit.aws import Aws
from streamkit.core.parked.head import take_off
from streamkit.core.parked.queues import ParkedQueue, Selection, list_parked, read_head, show
from streamkit.core.routes import Channels
from streamkit.core.tables import open_store, survey
from streamkit.core.tracing import Tracing
from streamkit.fleet.generation import Generation, newest_generation
from streamkit.kinds.injection import injector
from streamkit.kinds.preflight import findings, require
from streamkit.model.conditions import Attr
from streamkit.progress.actions import Action
from streamkit.progress.activity import each_of
from streamkit.progress.clock import Clock, SystemClock
from streamkit.progress.control import ControlSpace
from streamkit.progress.cursor import CursorStore
from streamkit.progress.machine import Machine
from streamkit.sinks.outlets import open_outlets
from streamkit.worker.automatic_retries import AT_ONCE
from streamkit.worker.joined_app import joined_app
from streamkit.worker.redriver import QueueReport, Redriver

__all__ = [
    "QueueReport",
    "Redriver",
    "Selection",
    "discard",
    "list_parked",
    "open_redriver",
    "redrive",
    "show",
]

ALL = Selection()
"""Every parked queue."""
Told = Callable[[QueueReport], object]


def no_one(report: QueueReport) -> None:
    """Tell no one of a report before all are there."""


async def redrive(
    app: App,
    aws: Aws,
    chosen: Selection = ALL,
    *,
    rng: random.Random | None = None,
    clock: Clock | None = None,
    told: Told = no_one,
) -> list[QueueReport]:
    """Redrive parked queues, due or stuck, each until it is empty or its first change fails.

    Several are redriven at a time, as workers do it; reports come in the order in which they end.

    Args:
        app: its handlers run.
        aws: open clients.
        chosen: which queues; every one without it.
        rng: jitter, for simulations.
        clock: time, for simulations.
        told: is called with each report, as soon as its queue is left.

    Raises:
        ConfigurationError: the app does not fit its table, or may not use it.
    """
    reports, told_of = _collected(told)
    async with open_redriver(app, aws, rng=rng, clock=clock) as redriver:

        async def one(queue: ParkedQueue) -> None:
            told_of(await redriver.redrive(queue.name))

        await each_of(AT_ONCE, await chosen.choose(redriver.store), one)
    return reports


async def discard(
    app: App,
    aws: Aws,
    chosen: Selection = ALL,
    *,
    whole: bool = False,
    rng: random.Random | None = None,
    clock: Clock | None = None,
    told: Told = no_one,
) -> list[QueueReport]:
    """Drop the first change of queues without running anything; the next one is then due at once.

    Args:
        app: the app whose changes are parked.
        aws: open clients.
        chosen: which queues; every one without it.
        whole: also drop the changes behind the first one, as long as the age filter takes them.
        rng: jitter, for simulations.
        clock: time, for simulations.
        told: is called with each report, as soon as its queue is left.
    """
    store = await open_store(app, aws)
    rng, clock = rng or random.Random(), clock or SystemClock()
    approximate = {one.__name__ for one in app.aggregates if one.__options__.approximate}
    how = partial(discard_queue, before=chosen.parked_before, whole=whole, approximate=approximate)
    reports, told_of = _collected(told)

    async def one(queue: ParkedQueue) -> None:
        told_of(await how(store, queue, rng, clock))

    await each_of(AT_ONCE, await chosen.choose(store), one)
    return reports


def _collected(told: Told) -> tuple[list[QueueReport], Told]:
    """Return a list, and what adds a report to it and tells of it."""
    reports: list[QueueReport] = []

    def add(report: QueueReport) -> None:
        reports.append(report)
        told(report)

    return reports, add


@asynccontextmanager
async def open_redriver(
    app: App, aws: Aws, *, rng: random.Random | None = None, clock: Clock | None = None
) -> AsyncIterator[Redriver]:
    """Open what the app's handlers need, for redriving.

    Raises:
        ConfigurationError: the app does not fit its table, or may not use it.
    """
    tables = await survey(app, aws)
    app = await joined_app(app, tables.store(app, aws))
    async with app.resources() as resources, open_outlets(app.sinks, clock) as outlets:
        require(findings(app, tables, resources))
        space = tables.space(app)
        tools = injector(aws.dynamodb, tables.table, resources, tables.schemas, space)
        machine = Machine(aws, clock or SystemClock(), rng or random.Random())
        channels = Channels(outlets, tracing=Tracing.of(app.telemetry, app.name))
        yield Redriver(app, machine, tables, tools, channels)


async def discard_queue(
    store: CursorStore,
    chosen: ParkedQueue,
    rng: random.Random,
    clock: Clock,
    before: float | None = None,
    *,
    whole: bool = False,
    approximate: Collection[str] = (),
) -> QueueReport:
    """Drop the first change of a queue, IF it is still the one that was read when it was chosen.

    In the same transaction an aggregate that misses it is marked *needs rebuild*.

    Args:
        store: the consumer's control items.
        chosen: the queue, as it was read when it was chosen.
        rng: jitter of repetitions.
        clock: time.
        before: keep changes that were parked later, in epoch seconds.
        whole: also drop the changes behind the first one.
        approximate: aggregates that may miss changes, and cannot be rebuilt.
    """
    report = QueueReport(chosen.name, chosen.handler)
    schemas = {store.space.schema.name: store.space.schema}
    while True:
        found = await read_head(store, chosen.name)
        if found is None:
            return report
        queue, first = found
        young = before is not None and first.at > before
        overtaken = not report.done and queue.head != chosen.head  # another change than was chosen
        if young or overtaken or (report.done and not whole):
            return replace(report, due=None if queue.stuck else queue.due, stuck=queue.stuck)
        # If a roll-out or a step of a rebuild comes between, this is refused, and read again.
        newest = None if first.handler in approximate else await newest_generation(store)
        missed = _missed_by(store.space, newest, first.handler)
        if await take_off(store, schemas, queue, first, missed, rng, clock) is None:
            report = replace(report, done=report.done + 1)


def _missed_by(space: ControlSpace, newest: Generation | None, handler: str) -> list[Action]:
    """Return what marks an aggregate as *needs rebuild*, IF no step was taken; else nothing.

    A rebuild that is under way then ends with an error: it cannot know whether it has counted the
    change.
    """
    if newest is None or not newest.aggregates.get(handler):
        return []
    action = space.update("consumer")
    action.unions["rebuild"] = {"SS": [handler]}
    return [action.only_if(Attr("generation").eq(newest.number))]
