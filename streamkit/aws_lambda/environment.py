"""An execution environment: what one app needs between invocations, made once.

In: an app. Out: clients, schemas, a dispatcher and the consumer's control items, for every batch
and every maintenance run of this environment.
"""

import random
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass

from streamkit.app import App
from streamkit.aws import Aws, connect
from streamkit.clock import Clock, SystemClock
from streamkit.cursor import CursorStore
from streamkit.dispatch import Dispatcher, Tools
from streamkit.errors import ConfigurationError
from streamkit.fleet.generation import Founding, join_generation
from streamkit.injection import injector
from streamkit.loss import Losses
from streamkit.observe.logger import get_logger
from streamkit.parked import LAMBDA_CHUNKS
from streamkit.preflight import Surroundings, findings, require, survey
from streamkit.redriver import Redriver
from streamkit.sinks.outlets import Outlets, open_outlets
from streamkit.table import Table

log = get_logger("streamkit.lambda")

Connect = Callable[[], AbstractAsyncContextManager[Aws]]


@dataclass(frozen=True)
class Environment:
    """What batches of one app share."""

    app: App
    aws: Aws
    around: Surroundings
    store: CursorStore
    tools: Tools
    outlets: Outlets
    dispatcher: Dispatcher
    clock: Clock
    rng: random.Random
    shard: str

    def redriver(self) -> Redriver:
        """Make what tries parked changes that are due."""
        return Redriver(
            self.app,
            self.aws,
            self.around,
            self.tools,
            self.rng,
            self.clock,
            automatic=True,
            outlets=self.outlets,
        )


@asynccontextmanager
async def open_environment(
    app: App,
    *,
    connect_with: Connect = connect,
    clock: Clock | None = None,
    rng: random.Random | None = None,
) -> AsyncIterator[Environment]:
    """Open an environment.

    Raises:
        ConfigurationError: the app does not fit its table, or may not use it.
    """
    clock, rng = clock or SystemClock(), rng or random.Random()
    async with connect_with() as aws:
        around = await survey(app, aws)
        async with app.resources() as resources, open_outlets(app.sinks, clock) as outlets:
            require(findings(app, around, resources))
            store = CursorStore(aws.dynamodb, around.space(app))
            await _join(app, around, store, clock, aws)
            tools = injector(aws.dynamodb, around.table, resources, around.schemas)
            dispatcher = Dispatcher(
                app.handlers,
                app.router(around.table),
                around.table,
                tools,
                rng,
                clock=clock,
                outlets=outlets,
                tables=around.schemas,
                cascades=app.cascades(),
            )
            shard = rng.choice(LAMBDA_CHUNKS).removesuffix(".0")
            yield Environment(
                app, aws, around, store, tools, outlets, dispatcher, clock, rng, shard
            )


async def _join(app: App, around: Surroundings, store: CursorStore, clock: Clock, aws: Aws) -> None:
    """Enter the generation of this code, as a worker does, so that `status` tells of it."""
    aggregates = frozenset(handler.name for handler in app.handlers if handler.is_aggregate)
    losses = Losses(app.on_loss, Table(aws.dynamodb, around.table), store, aggregates)
    founding = Founding(app.table, app.start, clock, losses)
    joined = await join_generation(
        store, app.fingerprint(), app.handlers, take_over=False, founding=founding
    )
    if joined is None:
        log.warning("worker.stands_by", app=app.name)


def check_stream(environment: Environment, arn: str | None) -> None:
    """Refuse events of another stream than the app's table has.

    Raises:
        ConfigurationError: says which stream the mapping is of.
    """
    own = environment.around.table.stream_arn
    if arn is not None and own is not None and arn.split("/stream/")[0] != own.split("/stream/")[0]:
        raise ConfigurationError(
            f"the event is of {arn}, and the app's table is {environment.app.table}: the mapping"
            " belongs to another function"
        )
