"""Founding: where a consumer that has no generation yet begins.

In: what its app declares, and the moment of the founding. Out: from when on changes count, and in
which shards of an archive it begins to read them. On failure: what is missing since its start is a
loss, and the app's policy for losses decides whether it begins nevertheless.

A stream keeps its records for a day, an archive for longer. Changes older than the stream itself
were never recorded, so nothing of them is missing, unless the table had another stream before.
"""

from collections.abc import Awaitable, Callable, Collection, Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Protocol

from streamkit.aws import AwsError, ErrorKind, code_of, trouble_of
from streamkit.core.consumer import Consumer
from streamkit.core.handler import Handler
from streamkit.core.tables import AppTables
from streamkit.errors import ConfigurationError, RetentionLost
from streamkit.fleet.directory import entries
from streamkit.fleet.generation import Generation, newest_generation
from streamkit.fleet.hosting import ENDED, host_of
from streamkit.observe.logger import get_logger
from streamkit.progress.clock import Clock, utc
from streamkit.progress.control import ControlSpace
from streamkit.progress.cursor import CursorStore
from streamkit.stream.loss import Losses
from streamkit.stream.start import REACH_SECONDS, Start, created_of, since_of, start_text

if TYPE_CHECKING:
    from streamkit.archive.completeness import Beginning

log = get_logger("streamkit.fleet")

Past = Callable[[float, float], Awaitable["Beginning"]]
"""A function of two times, in epoch seconds: it returns where an archive is read from the first one
on; its stream was created at the second."""


class Founder(Consumer, Protocol):
    """A consumer that says where it starts, and which app it belongs to."""

    start: Start
    exact: bool

    @property
    def head(self) -> "Founder":
        """Return the app that it is a listener of, or itself."""


@dataclass(frozen=True)
class Origin:
    """Where a consumer begins: changes count from `since` on, in epoch seconds; 0 means all.

    `begins` are the shards of an archive that are read first. `lost` says what is missing.
    """

    since: int
    begins: frozenset[str] = frozenset()
    lost: RetentionLost | None = None


@dataclass(frozen=True)
class Founding:
    """What a consumer's first generation needs to know: its table, and where it starts.

    `app` is the name of the app, also for a listener of it, and `listeners` are the names of those
    that it declares. `elsewhere` is where its control items would be without its `control_table`.
    `past` asks its archive, if it has one. `exact` says that the consumer must have every change
    since its start; without it and without an archive, a start older than the stream's retention
    means the oldest record.
    """

    table: str
    start: Start
    clock: Clock
    losses: Losses
    past: Past | None = None
    exact: bool = False
    listeners: frozenset[str] = frozenset()
    app: str = ""
    elsewhere: ControlSpace | None = None

    async def origin(self, store: CursorStore, now: int) -> Origin:
        """Return where the consumer begins.

        Raises:
            ConfigurationError: its start is in the future.
        """
        start, since = self.start, since_of(self.start, now)
        asked = start.timestamp() if isinstance(start, datetime) else now
        if asked == now or not (self.exact or (self.past and now - asked > REACH_SECONDS)):
            return Origin(since)
        created = created_of(store.space.label)
        moment, lacks = int(max(asked, created)), list[str]()
        if asked < created and await self._had_another_stream(store):
            lacks.append(f"the table's stream began at {utc(created).isoformat()}")
        if now - moment <= REACH_SECONDS:
            begun = Origin(moment)
        elif self.past is None:
            lacks.append("the stream keeps its changes for a day, and the app has no archive=")
            begun = Origin(since)
        else:
            found = await self.past(moment, created)
            lacks += found.lacks
            begun = Origin(moment, found.begins)
        return replace(begun, lost=self._lost(store, lacks, now)) if lacks else begun

    def _lost(self, store: CursorStore, lacks: list[str], now: int) -> RetentionLost:
        declared = start_text(self.start)
        return RetentionLost(
            f"possible loss: {store.space.consumer} starts at {declared}, and not every change"
            f" since then is there: {'; '.join(lacks)}. Declare a later start=, or let it begin"
            " nevertheless with --accept-loss",
            since=datetime.fromisoformat(declared).timestamp(),
            until=now,
        )

    async def require_none_apart(self, store: CursorStore, handlers: Iterable[Handler]) -> None:
        """Refuse handlers that have run as consumers of their own, at positions of their own.

        In the app such a handler would miss changes, or run twice for them, unless it has joined.

        Raises:
            ConfigurationError: there is one.
        """
        mine = [handler for handler in handlers if handler.name not in self.listeners]
        for handler in await run_apart(store, self.table, mine):
            name = f"{store.space.consumer}.{handler.name}"
            raise ConfigurationError(
                f"{handler.declared}: it has run as a consumer of its own, {name}, and the app"
                " stands elsewhere in the stream: keep its start=, let it join (`streamkit"
                f" consumers join ... {handler.name}`, with the workers stopped), or give it"
                " another name= here. To forget where it was: streamkit consumers delete"
                f" {name} --table {self.table} --yes"
            )

    def require_not_taken(self, joins: Collection[str], handlers: Iterable[Handler]) -> None:
        """Refuse a version without a handler's start= while the app takes the handler over.

        It would not run the handler's own consumer, which has to get ahead of the app.

        Raises:
            ConfigurationError: there is such a handler.
        """
        for handler in handlers:
            if handler.name in joins and handler.name not in self.listeners:
                raise ConfigurationError(
                    f"{handler.declared}: the app takes it over from a consumer of its own: keep"
                    " its start= until `streamkit consumers join` has ended"
                )

    async def require_not_elsewhere(self, store: CursorStore) -> None:
        """Refuse to begin anew in a `control_table` what has run with the table's own items.

        Raises:
            ConfigurationError: its positions and parked changes are in the table.
        """
        if self.elsewhere is None:
            return
        if await _seen(CursorStore(store.dynamodb, self.elsewhere)) is not None:
            name, table = self.elsewhere.consumer, self.table
            raise ConfigurationError(
                f"the positions and parked changes of {name} are in table {table} itself; with a"
                " control_table= it would run again for the changes of a day: leave that out. Or,"
                f" to begin anew, run streamkit consumers delete {name} --table {table} --yes"
            )

    async def counted_before(
        self, store: CursorStore, newest: Generation | None, handlers: Iterable[Handler]
    ) -> frozenset[str]:
        """Return the new aggregates that another consumer of the app has counted on this stream.

        Their values hold some of the changes that this consumer reads: a rebuild makes them right.

        Raises:
            ConfigurationError: another app counts one of them, so each change would count twice.
        """
        known = {} if newest is None else newest.aggregates
        new = [one for one in handlers if one.is_aggregate and not known.get(one.name)]
        found = set[str]()
        for name in sorted(await _consumers(store, self.table)) if new else ():
            if name == store.space.consumer:
                continue
            there = await _seen(_store_of(store, name))
            counted = {} if there is None else there.aggregates
            if name == self.app or name.startswith(f"{self.app}."):
                found |= {one.name for one in new if one.name in counted}
                continue
            for one in new:
                if counted.get(one.name) == one.definition:
                    raise ConfigurationError(self._counted_twice(one, name))
        return frozenset(found)

    def _counted_twice(self, one: Handler, other: str) -> str:
        return (
            f"{one.declared}: the app {other!r} counts it in the same items, and each change would"
            f" count twice: keep the app's name. Or stop the workers of {other}, run streamkit"
            f" consumers delete {other} --table {self.table} --yes, and `streamkit aggregate"
            f" rebuild` of {one.name} once this app runs"
        )

    async def _had_another_stream(self, store: CursorStore) -> bool:
        """Return whether a consumer of the table is known that read a stream before this one."""
        mine = store.space
        known = await entries(store.dynamodb, mine.schema)
        return any(one.table == self.table and one.label != mine.label for one in known)


async def run_apart(store: CursorStore, table: str, handlers: Iterable[Handler]) -> list[Handler]:
    """Return the handlers that have run as consumers of their own, and have not joined the app."""
    found, there = list[Handler](), await _consumers(store, table)
    for handler in handlers:
        name = f"{store.space.consumer}.{handler.name}"
        if name in there:
            found += [handler] if await host_of(_store_of(store, name)) not in ENDED else []
    return found


def founding_of(
    app: Founder, tables: AppTables, clock: Clock, losses: Losses, past: Past | None = None
) -> Founding:
    """Return what an app's first generation needs to know."""
    about = app.table, app.start, clock, losses, past, app.exact, frozenset(app.listeners)
    return Founding(*about, app.head.name, tables.space_in_table(app))


async def _seen(store: CursorStore) -> Generation | None:
    """Return a consumer's generation; a policy that allows no look at it prevents no start."""
    try:
        return await newest_generation(store)
    except AwsError as error:
        if trouble_of(error) is not ErrorKind.REFUSED:
            raise
        log.warning("consumer.not_seen", consumer=store.space.consumer, error=code_of(error))
        return None


async def _consumers(store: CursorStore, table: str) -> set[str]:
    """Return the names of all consumers of the same stream."""
    known = await entries(store.dynamodb, store.space.schema)
    return {one.consumer for one in known if (one.table, one.label) == (table, store.space.label)}


def _store_of(store: CursorStore, consumer: str) -> CursorStore:
    return CursorStore(store.dynamodb, replace(store.space, consumer=consumer))
