"""A sink that keeps a table of a SQL database up to date, through SQLAlchemy.

In: deliveries; `id` is the row's key, the body its value, and the body None deletes the row. Out:
one transaction for each call. Every row carries the sequence of its change, and an older change
never replaces a newer one. Deleted rows stay as tombstones until `purge_tombstones`, so read
`WHERE _deleted_at IS NULL`. An id must belong to one item, because sequences of two items cannot
be compared.

A row whose values do not fit, or break a constraint, parks its change, and the rest of the call is
written without it. Everything else is tried again. PostgreSQL and SQLite are supported.
"""

import math
import sqlite3
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import KW_ONLY, dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import anyio

from streamkit.errors import ConfigurationError, DeclarationError, PoisonChange, RetryableError
from streamkit.progress.clock import Clock, SystemClock, utc
from streamkit.sinks.extras import needs
from streamkit.sinks.sink import Delivery, Limits

if TYPE_CHECKING:
    from sqlalchemy.engine import URL
    from sqlalchemy.ext.asyncio import AsyncEngine

    from streamkit.sinks.rows import Row, Rows

TOMBSTONES_MIN = timedelta(days=1)
"""Records may come again as long as the stream keeps them; a tombstone must outlive them."""

_VALUES_AT_FAULT = ("22", "23")
"""These are the SQLSTATE classes of data exceptions and of violated constraints."""


@dataclass(frozen=True)
class SqlTable:
    """Write to a SQL table; needs the extra `sql`, and a driver, asyncpg or aiosqlite.

    Args:
        name: the name of the sink.
        database: SQLAlchemy's URL, such as `postgresql+asyncpg://…`, or an `AsyncEngine` of yours.
        table: the table's name.
        columns: SQLAlchemy types by the names of the body's fields, each a column of its own; other
            fields are left out, absent ones NULL. None keeps the whole body in one JSON column.
        key: the column of the id.
        sequence: the column of the sequence.
        deleted: the column of the time of the deletion; NULL for a row that lives.
        body: the column of the whole body, without `columns`.
        schema: the table's schema.
        items: rows in a transaction.
        calls: transactions at once; SQLite has one.
        timeout: seconds for a transaction.
        clock: the time from which the age of tombstones is counted.

    Raises:
        DeclarationError: two columns have the same name.
    """

    name: str
    database: "str | URL | AsyncEngine" = field(repr=False)
    table: str
    _: KW_ONLY
    columns: Mapping[str, Any] | None = None
    key: str = "id"
    sequence: str = "_sequence"
    deleted: str = "_deleted_at"
    body: str = "body"
    schema: str | None = None
    items: int = 500
    calls: int = 4
    timeout: float = 30.0
    clock: Clock = field(default_factory=SystemClock, repr=False)

    def __post_init__(self) -> None:
        """Check the columns."""
        names = [self.key, self.sequence, self.deleted, *(self.columns or [self.body])]
        if len(set(names)) < len(names):
            raise DeclarationError(f"sink {self.name!r}: two columns have the same name")

    @property
    def limits(self) -> Limits:
        """Return what one call takes."""
        dialect = getattr(self.database, "dialect", None)
        name = str(self.database) if dialect is None else str(dialect.name)
        calls = 1 if name.startswith("sqlite") else self.calls
        return Limits(self.items, calls=calls, seconds=math.inf)  # each transaction has a time-out

    @asynccontextmanager
    async def opened(self) -> AsyncIterator["SqlSender"]:
        """Make a pool of connections, which are opened as they are needed.

        Raises:
            ConfigurationError: a library is not installed, or the database is not supported.
        """
        async with self._engine() as engine:
            yield SqlSender(self, self._rows(), engine)

    def ddl(self, dialect: str = "postgresql") -> str:
        """Return the statement that creates the table, for use in a migration tool.

        `dialect` is `postgresql` or `sqlite`.

        Raises:
            ConfigurationError: SQLAlchemy is not installed, or the dialect is another one.
        """
        with needs("sql"):
            from sqlalchemy.dialects import postgresql, sqlite
            from sqlalchemy.schema import CreateTable
        known = {"postgresql": postgresql, "sqlite": sqlite}
        if dialect not in known:
            raise ConfigurationError(_unfit(self.name, dialect))
        made = known[dialect].dialect()
        return str(CreateTable(self._rows().table).compile(dialect=made)).strip()

    async def create_table(self) -> None:
        """Create the table if it is not there; an existing table is not changed."""
        async with self._engine() as engine, engine.begin() as connection:
            await connection.run_sync(self._rows().table.metadata.create_all)

    async def purge_tombstones(self, older_than: timedelta = timedelta(days=7)) -> int:
        """Delete the tombstones older than this; return how many.

        An older change of such an item that arrives afterwards creates the row again, so choose
        more time than a change can be on its way.

        Raises:
            ValueError: `older_than` is less than a day, the time for which a stream keeps records.
        """
        if older_than < TOMBSTONES_MIN:
            raise ValueError(
                "tombstones must be kept for at least a day, as a stream keeps its records"
            )
        table = self._rows().table
        column = table.c[self.deleted]
        before = utc(self.clock.time()) - older_than
        statement = table.delete().where(column < before)  # which NULL never is
        async with self._engine() as engine, engine.begin() as connection:
            return (await connection.execute(statement)).rowcount

    def _rows(self) -> "Rows":
        with needs("sql"):
            from streamkit.sinks.rows import Rows
        return Rows(
            self.table,
            schema=self.schema,
            key=self.key,
            sequence=self.sequence,
            deleted=self.deleted,
            columns=self.columns,
            body=self.body,
        )

    @asynccontextmanager
    async def _engine(self) -> "AsyncIterator[AsyncEngine]":
        with needs("sql"):
            from sqlalchemy.ext.asyncio import AsyncEngine

            from streamkit.sinks.rows import DIALECTS
        own = not isinstance(self.database, AsyncEngine)
        engine = self._connect() if not isinstance(self.database, AsyncEngine) else self.database
        if engine.dialect.name not in DIALECTS:
            raise ConfigurationError(_unfit(self.name, engine.dialect.name))
        try:
            yield engine
        finally:
            if own:
                await engine.dispose()

    def _connect(self) -> "AsyncEngine":
        from sqlalchemy.engine import make_url
        from sqlalchemy.exc import ArgumentError, InvalidRequestError, NoSuchModuleError
        from sqlalchemy.ext.asyncio import create_async_engine

        from streamkit.sinks.rows import DIALECTS

        use = "use postgresql+asyncpg:// or sqlite+aiosqlite://"
        try:
            url = make_url(self.database)  # type: ignore[arg-type]
            backend = url.get_backend_name()
            if backend not in DIALECTS:
                raise ConfigurationError(_unfit(self.name, backend))
            pool = {"pool_size": self.calls} if backend == "postgresql" else {}
            return create_async_engine(url, pool_pre_ping=True, **pool)
        except ModuleNotFoundError as error:
            text = f"sink {self.name!r}: its driver {error.name} is not installed; {use}"
            raise ConfigurationError(text) from error
        except (ArgumentError, InvalidRequestError, NoSuchModuleError) as error:
            # The error's own text may hold the URL, and the URL a password.
            text = f"sink {self.name!r}: not a URL of an asyncio driver ({type(error).__name__})"
            raise ConfigurationError(f"{text}; {use}") from None


class SqlSender:
    """An open SQL table."""

    def __init__(self, sink: SqlTable, rows: "Rows", engine: "AsyncEngine") -> None:
        self._name, self._sink, self._rows, self._engine = sink.name, sink, rows, engine
        self._upsert = rows.upsert(engine.dialect.name)
        self._fits = False

    async def deliver(self, deliveries: Sequence[Delivery]) -> Sequence[Exception | None]:
        """Write the latest row of each id in one transaction.

        Raises:
            RetryableError: the database does not answer, or wrote nothing.
            ConfigurationError: the table is missing, or lacks columns.
        """
        errors: list[Exception | None] = [None] * len(deliveries)
        rows: dict[int, Row] = {}
        for place, delivery in enumerate(deliveries):
            try:
                rows[place] = self._rows.row(delivery)
            except (TypeError, ValueError, ArithmeticError) as wrong:
                errors[place] = PoisonChange(f"{self._name}: no row ({type(wrong).__name__})")
        if not rows:
            return errors
        error = await self._write(self._rows.latest(list(rows.values())))
        alone = len(rows) == 1 or not isinstance(error, PoisonChange)
        for place, row in rows.items():
            errors[place] = error if alone else await self._write([row])
        return errors

    async def _write(self, rows: "list[Row]") -> PoisonChange | None:
        """Write rows, all or none; return what is wrong with their values."""
        from sqlalchemy.exc import SQLAlchemyError

        try:
            with anyio.fail_after(self._sink.timeout):
                await self._check()
                async with self._engine.begin() as connection:
                    await connection.execute(self._upsert, rows)
        except ConfigurationError:
            raise
        except (SQLAlchemyError, OSError, ArithmeticError, TypeError, ValueError) as error:
            # The text of these errors holds the statement with its values: never log it.
            state = getattr(getattr(error, "orig", None), "sqlstate", None) or ""
            text = f"{self._name}: {type(error).__name__} {state}".strip()
            if _values_at_fault(error, state):
                return PoisonChange(text)
            raise RetryableError(text, why=text) from None
        return None

    async def _check(self) -> None:
        """Check once that the table is there and has its columns."""
        if self._fits:
            return
        from sqlalchemy import inspect
        from sqlalchemy.engine import Connection
        from sqlalchemy.exc import NoSuchTableError

        table = self._rows.table

        def found(connection: Connection) -> set[str]:
            try:
                columns = inspect(connection).get_columns(table.name, table.schema)
            except NoSuchTableError:
                return set()
            return {column["name"] for column in columns}

        async with self._engine.connect() as connection:
            missing = set(table.c.keys()) - await connection.run_sync(found)
        if missing:
            raise ConfigurationError(
                f"sink {self._name!r}: table {table.name!r} lacks {', '.join(sorted(missing))}; "
                "create it with `await sink.create_table()`, or by sink.ddl()"
            )
        self._fits = True


def _values_at_fault(error: BaseException, state: str) -> bool:
    """Return True if a row can never be written because of its values."""
    from sqlalchemy.exc import DataError, DBAPIError, IntegrityError, StatementError

    if isinstance(error, DataError | IntegrityError) or state[:2] in _VALUES_AT_FAULT:
        return True
    found: tuple[BaseException | None, ...] = (error,)
    if isinstance(error, DBAPIError):
        # An error that a driver finds before it sends anything has no SQLSTATE.
        found = (error.orig, error.orig and error.orig.__cause__) if not state else ()
    elif isinstance(error, StatementError):
        return True
    faults = (ArithmeticError, TypeError, ValueError, sqlite3.InterfaceError)
    return any(isinstance(one, faults) for one in found)


def _unfit(name: str, dialect: str) -> str:
    return f"sink {name!r}: PostgreSQL and SQLite have the upsert that it needs, not {dialect}"
