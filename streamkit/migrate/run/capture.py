"""Follow what is written while a migration runs: with a consumer of the stream of its own.

It is a consumer like any other: positions, shards shared among processes, parked changes, and a
start that is in the table before the first pass reads anything. Each run of a migration has a
consumer of its own. It does with a change what a pass does with an item; see `work`.

Sources are followed from the beginning to the end; so are targets in another table, if `reverse`
says how their sources follow them: that has to run before the switch, and it needs that table's
stream. The control items of both are where the app's are.

In: an open migration, and the functions that take a change. Out: workers of the migration's own
consumers, until they are stopped. On failure: `RetentionLost` if changes may be lost.
"""

import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import Any

import anyio

from streamkit.app import App
from streamkit.changes import Change, Kind
from streamkit.core.handler import Handler, Policy
from streamkit.core.parked.queues import parked_queues
from streamkit.entity import Entity
from streamkit.fleet.catching_up import CatchUp
from streamkit.fleet.generation import newest_generation
from streamkit.fleet.members import MemberList
from streamkit.kinds.migration import Migration
from streamkit.migrate.book.state import State
from streamkit.migrate.run.opening import Opened
from streamkit.model.schema import TableSchema
from streamkit.progress.activity import task_group
from streamkit.progress.clock import utc
from streamkit.progress.cursor import CursorStore
from streamkit.settings import Settings
from streamkit.stream.decode.routing import are_alike
from streamkit.worker.worker import Worker

_MARGIN = timedelta(minutes=10)
"""AWS's clock stamps the changes; seeing some changes twice does no harm."""
_POLICY = Policy(
    timeout_seconds=120.0, attempts=3, retry_seconds=2.0, retry_seconds_max=60.0, retry_limit=50
)

Live = Callable[..., Awaitable[None]]
"""Takes a change whose images are items in wire form; `target`: it is of the other table."""
CATCH_UP_SECONDS = 30.0
"""How long in seconds `caught_up` waits at most."""
_CHECKPOINT_SECONDS = 5.0
"""A phase waits until positions are in the table; a minute would be long."""


async def leave(change: Change[Any], *, target: bool = False) -> None:
    """Do nothing with a change, for those that only look at a capture."""


@dataclass(frozen=True)
class Side:
    """One table that is followed: the consumer's app, its control items, and the table."""

    app: App
    store: CursorStore
    table: TableSchema


@dataclass
class Capture:
    """Follows the changes of one migration."""

    opened: Opened
    live: Live = leave
    _workers: list[Worker] = field(default_factory=list)

    def sides(self, state: State) -> list[Side]:
        """Return the tables that are followed in a run."""
        targets = (False, True) if self.opened.migration.follows_target else (False,)
        return [self._side(state, target=target) for target in targets]

    def _side(self, state: State, *, target: bool) -> Side:
        opened, live = self.opened, partial(self.live, target=target)
        table = opened.schemas.target if target else opened.schemas.source
        app = capture_app(opened.app, opened.migration, state, live, target=target)
        return Side(app, opened.tables.named(app.name, table, opened.aws), table)

    # -- what is in the table ------------------------------------------------------------------

    async def is_live(self, state: State) -> bool:
        """Return whether the table holds every consumer's start, and a cursor for its shards."""
        for side in self.sides(state):
            if await newest_generation(side.store) is None or not await side.store.names():
                return False
        return True

    async def catches_up(self, state: State, interrupt: anyio.Event) -> bool:
        """Wait until all that was written before this call is processed; False if interrupted.

        With a moment that moved along, a consumer that always is a minute behind would never do.
        """
        with self.opened.rate.held_by("capture"):
            moment = await self.sides(state)[0].store.time(self.opened.clock)
            while not interrupt.is_set():
                if await self.caught_up(state, CATCH_UP_SECONDS, moment):
                    return True
            return False

    async def caught_up(
        self, state: State, patience: float = CATCH_UP_SECONDS, until: float | None = None
    ) -> bool:
        """Wait until all that was written before, or `until` a moment, is processed, or too long.

        Returns whether it is.
        """
        aws, clock = self.opened.aws, self.opened.clock
        for side in self.sides(state):
            catch_up = CatchUp(side.app, aws, side.store, side.table, patience, clock)
            moment = await side.store.time(clock) if until is None else until
            if not await catch_up.with_all_until(moment):
                return False
            # To that wait a parked change is processed; one that is tried again by itself is not.
            if not all(queue.stuck for queue in await parked_queues(side.store)):
                return False
        return True

    @property
    def worker(self) -> str:
        """The name of the worker that follows the migration's own table; empty without one."""
        return self._workers[0].name if self._workers else ""

    async def beats(self, state: State) -> dict[str, int]:
        """Return the heartbeats of the processes that follow the migration's own table."""
        members = await MemberList(self.sides(state)[0].store).read()
        return {name: member.beats for name, member in members.items()}

    # -- workers -------------------------------------------------------------------------------

    async def run(self, state: State, settings: Settings, rng: random.Random) -> None:
        """Run a worker for each side, until `stop`.

        Raises:
            RetentionLost: changes may have been lost.
        """
        settings, aws, clock = _prompt(settings), self.opened.aws, self.opened.clock
        workers = [
            Worker(s.app, aws, settings, clock=clock, rng=random.Random(rng.random()))
            for s in self.sides(state)
        ]
        self._workers = workers
        try:
            async with task_group() as group:
                for worker in workers:
                    group.start_soon(self._until_one_ends, worker, workers)
        finally:
            self._workers = []

    async def _until_one_ends(self, worker: Worker, workers: Sequence[Worker]) -> None:
        await worker.run()
        for other in workers:
            other.stop()

    def stop(self) -> None:
        """Stop the workers that run."""
        for worker in self._workers:
            worker.stop()


def _prompt(settings: Settings) -> Settings:
    """Return settings that write positions more often, unless the user has chosen an interval."""
    if "checkpoint_interval" in settings.model_fields_set:
        return settings
    return settings.model_copy(update={"checkpoint_interval": _CHECKPOINT_SECONDS})


def consumer_of(app: App, state: State, *, target: bool = False) -> str:
    """Return the name of a migration's consumer, or of its `target`."""
    name = f"{app.name}.{state.consumer}"
    return f"{name}-to" if target else name  # streams of two tables may have one label


def capture_app(
    app: App, migration: Migration, state: State, live: Live, *, target: bool = False
) -> App:
    """Make the app of a migration's consumer, or of its `target`: the table that items move to."""
    name, table = consumer_of(app, state, target=target), app.table
    entities = [*migration.sources]
    new = [] if migration.target is None else [migration.target]
    if target:
        table, entities = migration.to or table, new
    elif migration.to is None and migration.is_pairs:
        entities += new
    typed = app.type_attribute is not None
    capture = App(
        name,
        entities=_others(app, entities, typed=typed),
        table=table,
        type_attribute=app.type_attribute,
        control_table=app.control_table or (None if table == app.table else app.table),
        policy=_POLICY,
        start=utc(state.follows) - _MARGIN,
        on_loss="halt",
    )
    for number, entity in enumerate(dict.fromkeys(entities)):
        if number and are_alike(entity, entities[0], typed=typed):
            continue  # it is routed as the source; the item itself shows which of the two it is
        handler = Handler(
            name=f"migrate-{number}",
            entity=entity,
            kinds=frozenset(Kind),
            run=live,
            declared=migration.declared,
            is_async=True,
            policy=_POLICY,
            commutes=True,
            definition=f"{migration.digest}{state.direction}",
            writes=frozenset(),
            effects=False,
            delivery="at_least_once",
            raw=True,
        )
        capture.add_handler(handler)
    return capture


def _others(app: App, own: list[type[Entity]], *, typed: bool) -> list[type[Entity]]:
    """Return the app's further entities, so that routing tells all items apart.

    Of entities that routing cannot tell apart only the first one is returned.
    """

    def is_own(entity: type[Entity]) -> bool:
        return any(are_alike(entity, one, typed=t) for one in own for t in {typed, False})

    found: list[type[Entity]] = []
    for entity in app.known:
        if not is_own(entity) and not any(are_alike(entity, one, typed=typed) for one in found):
            found.append(entity)
    return found
