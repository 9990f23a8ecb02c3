"""Redrive: run the handlers of parked changes again, lane by lane, or drop the changes.

In: lanes. Out: a report a lane: empty again, or its first change failed again and stays first.

A redrive is one transaction without the cursor: the lane's head moves on IF it is this change, the
parked change goes IF it is still there, and its effects happen. Both conditions are false
afterwards, so a repeated or late attempt is harmless, two redrivers do not hurt each other, and
workers go on queueing meanwhile. The last change takes the lane away IF nothing queued behind it.
"""

import random
from collections.abc import AsyncIterator, Collection, Iterable
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from streamkit.actions import LANE, Action
from streamkit.app import App
from streamkit.aws import Aws
from streamkit.commit import Invalid, Refused
from streamkit.cursor import CursorStore
from streamkit.decode import Page, Record, Router
from streamkit.dispatch import Dispatcher, Tools
from streamkit.fold import join_read
from streamkit.handler import Handler
from streamkit.injection import injector
from streamkit.outcome import Outcome, Work, with_reads
from streamkit.parked import HeldLane, held_lanes, list_parked, open_store, read_head, show
from streamkit.parking import Failure, Parked
from streamkit.preflight import Surroundings, findings, require, survey
from streamkit.refusal import contended, refuse
from streamkit.schema import TableSchema
from streamkit.unparking import leave, note_failure

__all__ = [
    "LaneReport",
    "Redriver",
    "Step",
    "choose",
    "discard",
    "list_parked",
    "open_redriver",
    "redrive",
    "show",
]

Step = Failure | Literal["done", "overtaken"]
"""What became of a lane's first change: it failed, it is done, or somebody else was faster."""


@dataclass(frozen=True, slots=True)
class LaneReport:
    """What became of a lane: how many changes left it, and why the first one stays, if one does."""

    lane: str
    handler: str
    done: int = 0
    failure: Failure | None = None

    @property
    def stuck(self) -> bool:
        """Whether the lane's next change failed and is still parked."""
        return self.failure is not None

    def to_dict(self) -> dict[str, Any]:
        """Return it in JSON's types."""
        return asdict(self)


async def redrive(
    app: App,
    aws: Aws,
    *,
    lanes: Collection[str] | None = None,
    handler: str | None = None,
    rng: random.Random | None = None,
) -> list[LaneReport]:
    """Redrive held lanes, each until it is empty or its first change fails.

    Args:
        app: its handlers run.
        aws: open clients.
        lanes: names of lanes; every held lane without it.
        handler: only the lanes of this handler.
        rng: jitter, for simulations.

    Raises:
        ConfigurationError: the app does not fit its table, or may not use it.
    """
    async with open_redriver(app, aws, rng=rng) as redriver:
        chosen = choose(await held_lanes(redriver.store), lanes=lanes, handler=handler)
        return [await redriver.redrive(lane.name) for lane in chosen]


async def discard(
    app: App,
    aws: Aws,
    *,
    lanes: Collection[str] | None = None,
    handler: str | None = None,
    whole: bool = False,
    rng: random.Random | None = None,
) -> list[LaneReport]:
    """Drop the first change of lanes without running anything; the next one is first then.

    Args:
        app: whose parked changes.
        aws: open clients.
        lanes: names of lanes; every held lane without it.
        handler: only the lanes of this handler.
        whole: also what waits behind the first change.
        rng: jitter, for simulations.
    """
    store = await open_store(app, aws)
    rng = rng or random.Random()
    chosen = choose(await held_lanes(store), lanes=lanes, handler=handler)
    return [await _discard_lane(store, lane, rng, whole=whole) for lane in chosen]


def choose(
    held: Iterable[HeldLane], *, lanes: Collection[str] | None, handler: str | None
) -> list[HeldLane]:
    """Return the lanes that are named, or all; those of one handler, if it is given."""
    return [
        lane
        for lane in held
        if (lanes is None or lane.name in lanes) and (handler is None or lane.handler == handler)
    ]


@asynccontextmanager
async def open_redriver(
    app: App, aws: Aws, *, rng: random.Random | None = None
) -> AsyncIterator["Redriver"]:
    """Open what the app's handlers need, for redriving.

    Raises:
        ConfigurationError: the app does not fit its table, or may not use it.
    """
    around = await survey(app, aws)
    async with app.resources() as resources:
        require(findings(app, around, resources))
        store = CursorStore(aws.dynamodb, around.space(app))
        tools = injector(aws.dynamodb, around.table, resources)
        yield Redriver(app, store, around, tools, rng or random.Random())


@dataclass
class Redriver:
    """Redrives the lanes of one consumer. Several may work at the same time."""

    app: App
    store: CursorStore
    around: Surroundings
    tools: Tools
    rng: random.Random
    _dispatchers: dict[str, Dispatcher] = field(default_factory=dict)

    async def redrive(self, lane: str) -> LaneReport:
        """Run the lane's changes, first to last, until it is empty or one fails."""
        report = LaneReport(lane, "")
        while True:
            found = await read_head(self.store, lane)
            if found is None:
                return report
            held, head = found
            report = replace(report, handler=head.handler)
            step = await self._redrive_one(held, head)
            if isinstance(step, Failure):
                return replace(report, failure=step)
            if step == "done":
                report = replace(report, done=report.done + 1)

    async def _redrive_one(self, held: HeldLane, head: Parked) -> Step:
        handler = next((h for h in self.app.handlers if h.name == head.handler), None)
        if handler is None:
            detail = (
                f"the app has no handler {head.handler!r} any more; discard it, or bring it back"
            )
            return Failure("HandlerMissing", detail, 0)
        dispatcher = self._dispatcher(handler)
        record = Record.from_bytes(head.record)
        entity = dispatcher.router.route(record)
        if entity is not handler.entity or record.kind not in handler.kinds:
            detail = f"{handler.declared} does not listen to such a change any more; discard it"
            return Failure("ChangeUnwanted", detail, 0)
        works, later, _ = dispatcher.works(Page((record,)), head.shard)
        if not works:  # the handler's `when` does not hold (any more): done without effects
            sent = await leave(self.store, self.around.schemas, held, head, (), self.rng)
            return "done" if sent is None else "overtaken"
        await dispatcher.run_lanes(later, works, head.shard, held=_never)
        return await self._settle(dispatcher, works[0], held, head)

    async def _settle(
        self, dispatcher: Dispatcher, work: Work, held: HeldLane, head: Parked
    ) -> Step:
        """Commit an outcome; run it again as long as its conditions ask for that."""
        (outcome,) = work.outcomes
        while outcome.failure is None:
            if outcome.waiting:
                await dispatcher.run(work, outcome, [work], head.shard)
                continue
            effects = _effects(outcome, head.position)
            schemas = self.around.schemas
            sent = await leave(self.store, schemas, held, head, effects, self.rng)
            if sent is None:
                return "done"
            if isinstance(sent, Invalid):
                text = "DynamoDB finds an effect of this result invalid"
                outcome.fail(Failure(sent.code, text))
            elif any(source.effect == LANE for source in sent.sources):
                return "overtaken"
            else:
                _refused(outcome, sent, self.around.table)
        await note_failure(self.store, head, outcome.failure)
        return outcome.failure

    def _dispatcher(self, handler: Handler) -> Dispatcher:
        """Make a dispatcher of one handler, for which a failure is just that.

        A policy that blocks would never come back, and one that skips would drop the change.
        """
        known = self._dispatchers.get(handler.name)
        if known is None:
            parking = replace(handler, policy=replace(handler.policy, on_failure="park"))
            router: Router = self.app.router(self.around.table)
            known = Dispatcher([parking], router, self.around.table, self.tools, self.rng)
            self._dispatchers[handler.name] = known
        return known


def _never(*_: Any) -> bool:
    return False


def _effects(outcome: Outcome, position: str) -> list[Action]:
    writes, checks = with_reads(outcome, position)
    actions = dict(writes)
    for check in checks:
        actions[check.ref] = join_read(actions.get(check.ref), check)
    return list(actions.values())


def _refused(outcome: Outcome, refused: Refused, schema: TableSchema) -> None:
    """Change what made the transaction fail: the outcome runs again, shrinks, or has failed."""
    effects = {source.effect for source in refused.sources}
    refuse(outcome, effects, refused.sources[0].position, schema)
    contended(outcome)


async def _discard_lane(
    store: CursorStore, held: HeldLane, rng: random.Random, *, whole: bool
) -> LaneReport:
    report = LaneReport(held.name, held.handler)
    schemas = {store.space.schema.name: store.space.schema}
    while True:
        found = await read_head(store, held.name)
        if found is None or (report.done and not whole):
            return report
        if await leave(store, schemas, *found, (), rng) is None:
            report = replace(report, done=report.done + 1)
