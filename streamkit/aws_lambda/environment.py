"""Open what one app needs between invocations, once for each execution environment.

In: an app. Out: clients, schemas, a dispatcher and the consumer's control items, for every batch
and every maintenance run of this environment.
"""

import random
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from functools import cached_property

from streamkit.app import App
from streamkit.aws import Aws, connect
from streamkit.core.dispatch import Dispatcher
from streamkit.core.parking import LAMBDA_CHUNKS
from streamkit.core.routes import Channels
from streamkit.core.tables import AppTables, survey
from streamkit.core.tracing import Tracing
from streamkit.core.unreadable import set_aside
from streamkit.errors import ConfigurationError
from streamkit.fleet.founding import founding_of
from streamkit.fleet.generation import Generation, newest_generation
from streamkit.fleet.hosting import LAMBDA, Hosted, claim
from streamkit.fleet.joining import join_generation
from streamkit.kinds.injection import injector
from streamkit.kinds.preflight import findings, require
from streamkit.observe.emf import EmfMetrics
from streamkit.observe.logger import get_logger
from streamkit.observe.meters import Meters
from streamkit.observe.metrics import join
from streamkit.progress.clock import Clock, SystemClock
from streamkit.progress.cursor import CursorStore
from streamkit.progress.machine import Machine
from streamkit.progress.metering import meter
from streamkit.progress.transaction import Send
from streamkit.sinks.outlets import open_outlets
from streamkit.stream.decode import Record
from streamkit.stream.loss import Losses
from streamkit.table import Table

log = get_logger("streamkit.lambda")

Connect = Callable[[], AbstractAsyncContextManager[Aws]]


@dataclass(frozen=True)
class Environment:
    """What batches of one app share.

    `joined` is the generation in which it was opened. A move sets `send`, because its commits have
    a further condition.
    """

    app: App
    machine: Machine
    tables: AppTables
    dispatcher: Dispatcher
    shard: str
    joined: Generation | None
    losses: Losses
    emf: EmfMetrics | None = None
    send: Send | None = None

    @property
    def aws(self) -> Aws:
        """Open clients."""
        return self.machine.aws

    @property
    def clock(self) -> Clock:
        """The clock."""
        return self.machine.clock

    @property
    def rng(self) -> random.Random:
        """The source of random numbers."""
        return self.machine.rng

    @cached_property
    def store(self) -> CursorStore:
        """The consumer's control items."""
        return self.tables.store(self.app, self.aws)

    @property
    def since(self) -> int:
        """When the consumer starts, in epoch seconds; records created before are not processed."""
        return self.joined.since if self.joined else 0

    @property
    def incarnation(self) -> str:
        """The consumer's incarnation, see `Generation`."""
        return self.joined.incarnation if self.joined else ""

    def takes(self, record: Record) -> bool:
        """Return whether a handler listens to a record that is not older than the consumer."""
        before = 0 < record.created_at < self.since
        return not before and self.dispatcher.wants(record)

    async def set_aside(self, records: Sequence[Record], shard: str | None) -> None:
        """Set aside the records that cannot be read, before any later record is processed."""
        where = shard or self.shard
        await set_aside(self.store, records, where, self.clock, self.rng, self.meters)

    @property
    def meters(self) -> Meters:
        """The counters of invocations."""
        return self.dispatcher.meters

    def tell(self) -> None:
        """Print what was counted since the last call, for CloudWatch to read from the log."""
        line = None if self.emf is None else self.emf.line(self.clock.time())
        if line is not None:
            sys.stdout.write(f"{line}\n")
            sys.stdout.flush()


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
        ConfigurationError: the app does not fit its table, may not use it, needs a migration that
            the table has not had, or is a handler with a start of its own.
    """
    check_start(app)
    clock, rng = clock or SystemClock(), rng or random.Random()
    emf = EmfMetrics(app.name) if app.telemetry.emf else None
    meters = Meters(join(emf, app.telemetry.metrics), app.name)
    async with connect_with() as aws:
        meter(aws)
        if app.head.required:
            from streamkit.migrate.operate.required import require_migrations

            await require_migrations(app, aws)
        tables = await survey(app, aws)
        async with app.resources() as resources, open_outlets(app.sinks, clock) as outlets:
            require(findings(app, tables, resources))
            store = tables.store(app, aws)
            aggregates = frozenset(handler.name for handler in app.handlers if handler.is_aggregate)
            table = Table(aws.dynamodb, tables.table)
            losses = Losses(app.on_loss, table, store, aggregates, meters.lost)
            joined = await _join(app, tables, clock, losses)
            tools = injector(aws.dynamodb, tables.table, resources, tables.schemas, store.space)
            dispatcher = Dispatcher(
                app.handlers,
                app.routes(tables.schemas),
                tools,
                clock,
                rng,
                Channels(outlets, meters, Tracing.of(app.telemetry, app.name)),
                marks=True,
            )
            shard = rng.choice(LAMBDA_CHUNKS).removesuffix(".0")
            machine = Machine(aws, clock, rng)
            yield Environment(app, machine, tables, dispatcher, shard, joined, losses, emf)


def check_start(app: App) -> None:
    """Refuse a consumer that reads from a moment on; log the listeners that functions do not run.

    Raises:
        ConfigurationError: a handler's own start= made it.
    """
    if app.exact:
        raise ConfigurationError(
            f"{app.declared}: start= reads the stream and its archive from a moment on, and a"
            " function gets only what a mapping delivers: let workers run it, with `streamkit"
            f" worker MODULE:APP.{app.name.rpartition('.')[2]}`"
        )
    for one in app.listeners.values():
        if one.exact:
            log.warning("consumer.apart", app=app.name, consumer=one.name)
    apart = sorted(one.name for one in app.listeners.values() if not one.exact)
    if apart:
        log.warning("listener.apart", app=app.name, listeners=apart)


async def _join(app: App, tables: AppTables, clock: Clock, losses: Losses) -> Generation | None:
    """Join the generation of this code, as a worker does, so that `status` shows the function."""
    store, founding = losses.store, founding_of(app, tables, clock, losses)
    joined = await join_generation(
        store, app.fingerprint(), app.handlers, take_over=False, founding=founding
    )
    if joined is None:
        log.warning("worker.stands_by", app=app.name)
        joined = await newest_generation(store)
    return joined


class Outdated(ConfigurationError):
    """The environment has to be opened again, because its stream or consumer was replaced."""


class ConsumerReplaced(Outdated):
    """The consumer was deleted: another one has its name, with its own marks and start."""


class StreamReplaced(Outdated):
    """The table had another stream when the environment was opened, or the event is of an old one.

    Marks are kept for each stream: under the marks of another one a change would be done twice.
    """


async def become_host(environment: Environment) -> Hosted:
    """Let functions run the consumer, if no host does; each invocation checks before it begins.

    Raises:
        ConfigurationError: workers run it, it is being moved, another one has its name by now, or
            an aggregate is being rebuilt with other code than this.
    """
    found = await claim(environment.store, LAMBDA)
    if found.incarnation != environment.incarnation:
        raise ConsumerReplaced(f"consumer {environment.app.name} was deleted")
    check_version(environment, found)
    return found


def check_version(environment: Environment, found: Hosted) -> None:
    """Refuse to count by other definitions than those by which an aggregate is being rebuilt.

    Raises:
        ConfigurationError: aggregates are being rebuilt by a newer version of the app; it names
            them.
    """
    building = sorted(name for name, build in found.builds.items() if build.under_way)
    if building and found.fingerprint != environment.app.fingerprint():
        raise ConfigurationError(
            f"{', '.join(building)}: rebuilt by a newer version of the app; this one has to wait"
        )


def check_stream(environment: Environment, arn: str | None) -> None:
    """Refuse events of another stream than the app's table had when the environment was opened.

    Raises:
        ConfigurationError: the mapping is of another stream; it names the stream.
    """
    own = environment.tables.table.stream_arn
    if arn is None or own is None or arn == own:
        return
    if arn.split("/stream/")[0] != own.split("/stream/")[0]:
        raise ConfigurationError(
            f"the event is of {arn}, and the app's table is {environment.app.table}: the mapping"
            " belongs to another function"
        )
    raise StreamReplaced(
        f"the event is of {arn}, and the table's stream is {own}: delete the mapping of the old one"
    )
