"""The SQL sink on SQLite, and on a PostgreSQL that the run starts."""

import asyncio
import random
import time
import uuid
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import anyio
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import JSON, BigInteger, Date, DateTime, LargeBinary, Numeric, String, text
from sqlalchemy.ext.asyncio import create_async_engine

from streamkit import (
    ConfigurationError,
    DeclarationError,
    Entity,
    PoisonChange,
    RetryableError,
    SqlTable,
)
from streamkit.sinks.endpoint import seconds_of
from streamkit.sinks.sink import Delivery
from tests.integration.postgres import postgres

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


@dataclass
class Moment:
    now: datetime = NOON

    def time(self):
        return self.now.timestamp()

    def monotonic(self):
        return anyio.current_time()


@dataclass
class Database:
    """One database, and a new table for each test."""

    url: str
    table: str = field(default_factory=lambda: f"orders_{uuid.uuid4().hex[:12]}")

    def sink(self, **values):
        return SqlTable("orders", self.url, self.table, **values)

    async def query(self, statement):
        engine = create_async_engine(self.url)
        async with engine.begin() as connection:
            done = await connection.execute(text(statement.format(table=self.table)))
            rows = [tuple(row) for row in done] if done.returns_rows else []
        await engine.dispose()
        return rows

    async def living(self, sink):
        """The bodies by id; through the sink's own types."""
        table = sink._rows().table
        engine = create_async_engine(self.url)
        async with engine.connect() as connection:
            found = await connection.execute(table.select().where(table.c._deleted_at.is_(None)))
            rows = {row.id: row.body for row in found}
        await engine.dispose()
        return rows


@pytest.fixture(scope="module")
def postgres_url():
    with postgres() as url:
        yield url


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request, tmp_path):
    if request.param == "postgresql":
        return Database(request.getfixturevalue("postgres_url"))
    return Database(f"sqlite+aiosqlite:///{tmp_path}/db.sqlite")


def delivery(number, body, identity="a"):
    return Delivery(
        key=f"{number:032x}",
        id=identity,
        group=identity,
        sequence=f"{number:040d}",
        body=body,
        created_at=NOON,
    )


async def deliver(sink, *deliveries):
    async with sink.opened() as sender:
        return await sender.deliver(deliveries)


class Order(Entity, pk="O#{order_id}", sk="-"):
    order_id: str
    total: Decimal


async def test_rows_are_put_replaced_and_deleted_with_tombstones(database):
    sink = database.sink()
    await sink.create_table()
    await sink.create_table()
    order = Order(order_id="1", total=Decimal("1.5"))
    sent = [delivery(1, {"n": 1}), delivery(2, order, "b"), delivery(3, ["x"], "c")]
    assert await deliver(sink, *sent) == [None] * 3
    assert await deliver(sink, delivery(10**39, {"n": 4}), delivery(5, None, "c")) == [None] * 2
    assert await database.living(sink) == {
        "a": {"n": 4},
        "b": {"order_id": "1", "total": "1.5"},
    }
    rows = await database.query(
        "SELECT id, body, _sequence FROM {table} WHERE _deleted_at > '2026-01-01'"
    )
    assert rows == [("c", None, f"{5:040d}")]


async def test_an_older_change_never_replaces_a_newer_one_also_a_deletion(database):
    sink = database.sink()
    await sink.create_table()
    # As text, 9 is above 10; as sequences it is below.
    assert await deliver(sink, delivery(10, {"n": 10}), delivery(10, None, "b")) == [None] * 2
    late = [delivery(9, {"n": 9}), delivery(8, None), delivery(9, {"n": 9}, "b")]
    for one in late:
        assert await deliver(sink, one) == [None]
    assert await deliver(sink, *late) == [None] * 3
    assert await database.living(sink) == {"a": {"n": 10}}


async def test_of_one_id_in_a_call_the_newest_wins_and_of_equal_ones_the_last(database):
    sink = database.sink()
    await sink.create_table()
    sent = [delivery(2, 2), delivery(3, "first"), delivery(3, "last"), delivery(1, 1)]
    assert await deliver(sink, *sent) == [None] * 4
    assert await database.living(sink) == {"a": "last"}
    assert await deliver(sink, delivery(3, "made by the handler when it ran again")) == [None]
    assert await database.living(sink) == {"a": "made by the handler when it ran again"}
    assert await deliver(sink, delivery(3, "in another call")) == [None]
    assert await database.living(sink) == {"a": "in another call"}


CHANGES = st.lists(st.tuples(st.sampled_from("abc"), st.booleans()), min_size=1, max_size=12)


@settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(CHANGES, st.integers(0, 2**32), st.integers(1, 10**38))
def test_random_orders_duplicates_and_batches_end_in_the_latest_state(
    database, changes, seed, step
):
    sink, example = database.sink(), uuid.uuid4().hex
    expected, deliveries = {}, []
    for number, (name, alive) in enumerate(changes):
        identity, body = f"{example}{name}", {"n": number} if alive else None
        deliveries.append(delivery((number + 1) * step, body, identity))
        expected.pop(identity, None)
        expected |= {identity: body} if alive else {}

    async def run():
        rng = random.Random(seed)
        left = deliveries + rng.choices(deliveries, k=rng.randrange(10))
        rng.shuffle(left)
        await sink.create_table()
        async with sink.opened() as sender:
            while left:
                size = rng.randint(1, 5)
                assert set(await sender.deliver(left[:size])) == {None}
                del left[:size]
        return await database.living(sink)

    living = asyncio.run(run())
    assert {name: body for name, body in living.items() if name.startswith(example)} == expected


async def test_workers_that_write_the_same_rows_at_once_end_in_the_latest_state(database):
    sink = database.sink()
    await sink.create_table()
    names = [f"{number}" for number in range(20)]
    sent = [delivery(n, {"n": n}, name) for n in range(1, 11) for name in names]

    async def work(seed):
        left = list(sent)
        random.Random(seed).shuffle(left)
        async with sink.opened() as sender:
            for start in range(0, len(left), 25):
                assert set(await sender.deliver(left[start : start + 25])) == {None}

    async with anyio.create_task_group() as group:
        for seed in range(4):
            group.start_soon(work, seed)
    assert await database.living(sink) == {name: {"n": 10} for name in names}


COLUMNS = {
    "name": String(8),
    "count": BigInteger,
    "at": DateTime(timezone=True),
    "local": DateTime(),
    "day": Date(),
    "raw": LargeBinary(),
    "tags": JSON(),
}


async def test_fields_go_into_columns_of_their_types(database):
    sink = database.sink(columns=COLUMNS)
    await sink.create_table()
    summer = datetime.fromisoformat("2026-07-01T14:00:00+02:00")
    body = {
        "name": "Zoë",
        "count": 2**60,
        "at": summer,
        "local": "2026-07-01T14:00:00+02:00",
        "day": "2026-07-01",
        "raw": b"\x00\x01",
        "tags": {"b", "a"},
        "unknown": object(),
    }
    assert await deliver(sink, delivery(1, body), delivery(2, {"name": 5}, "b")) == [None] * 2
    engine, table = create_async_engine(database.url), sink._rows().table
    async with engine.connect() as connection:
        found = await connection.execute(table.select().order_by(table.c.id))
        first, second = (row._mapping for row in found)
    await engine.dispose()
    at = first["at"].replace(tzinfo=first["at"].tzinfo or UTC)  # SQLite keeps no zones
    assert (at, first["local"]) == (summer, datetime.fromisoformat("2026-07-01T12:00"))
    assert (first["name"], first["count"], first["tags"]) == ("Zoë", 2**60, ["a", "b"])
    assert (first["day"].isoformat(), first["raw"]) == ("2026-07-01", b"\x00\x01")
    assert (second["name"], second["count"], second["tags"]) == ("5", None, None)


def test_a_moment_without_a_zone_is_in_utc_wherever_a_worker_runs(monkeypatch):
    noon = datetime(2026, 7, 1, 12, tzinfo=UTC)
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "America/New_York")
        time.tzset()
        row = Database("sqlite+aiosqlite://").sink(columns=COLUMNS)._rows().row
        found = row(delivery(1, {"at": "2026-07-01T12:00:00", "local": noon.replace(tzinfo=None)}))
        pause = seconds_of("Wed, 01 Jul 2026 12:00:30 -0000", noon.timestamp())
    time.tzset()
    assert (found["at"], found["local"]) == (noon, noon.replace(tzinfo=None))
    assert pause == 30.0


async def test_on_postgresql_a_number_keeps_its_38_digits(postgres_url):
    database = Database(postgres_url)
    sink = database.sink(columns={"total": Numeric()})
    await sink.create_table()
    total = Decimal("1234567890123456789012345678.9012345678")
    totals = (total, 7, "0.1")
    sent = [delivery(1, {"total": total}, f"{n}") for n, total in enumerate(totals)]
    assert await deliver(sink, *sent) == [None] * 3
    rows = await database.query("SELECT total FROM {table} ORDER BY id")
    assert rows == [(total,), (Decimal(7),), (Decimal("0.1"),)]


async def test_a_value_that_does_not_fit_parks_its_change_and_the_rest_is_written(database):
    sink = database.sink(columns={"count": BigInteger, "at": DateTime()})
    await sink.create_table()
    bodies = [
        {"count": 1},
        {"count": 2**70},
        {"at": "yesterday's secret"},
        {"count": 2, "at": NOON},
        "no object",
        {"at": 5},
    ]
    sent = [delivery(n, body, f"{n}") for n, body in enumerate(bodies)]
    errors = await deliver(sink, *sent)
    assert [type(error) for error in errors] == [
        type(None),
        PoisonChange,
        PoisonChange,
        type(None),
        PoisonChange,
        PoisonChange,
    ]
    assert "secret" not in " ".join(map(str, errors))
    assert await database.query("SELECT id FROM {table} ORDER BY id") == [("0",), ("3",)]


async def test_a_value_that_its_column_has_no_form_for_parks_its_change(database):
    sink = database.sink(columns={"day": Date(), "total": Numeric()})
    await sink.create_table()
    bodies = {"day": 5}, {"total": "many"}, {"day": "2026-07-01", "total": "1.5"}
    errors = await deliver(sink, *(delivery(1, body, f"{n}") for n, body in enumerate(bodies)))
    assert [type(error) for error in errors] == [PoisonChange, PoisonChange, type(None)]


async def test_a_row_that_a_constraint_refuses_parks_its_change_alone(database):
    sink = database.sink(columns={"name": String(40)})
    await sink.create_table()
    await database.query("CREATE UNIQUE INDEX {table}_names ON {table} (name)")
    sent = [delivery(n, {"name": name}, f"{n}") for n, name in enumerate(["ann", "ann", "bob"])]
    errors = await deliver(sink, *sent)
    assert [type(error) for error in errors] == [type(None), PoisonChange, type(None)]
    assert await database.query("SELECT id FROM {table} ORDER BY id") == [("0",), ("2",)]


async def test_postgresql_finds_faults_of_values_itself(postgres_url):
    database = Database(postgres_url)
    sink = database.sink(columns={"name": String(3), "tags": JSON(), "n": BigInteger})
    await sink.create_table()
    await database.query("ALTER TABLE {table} ADD CHECK (n > 0)")
    bodies = [{"name": "long"}, {"name": "\x00"}, {"n": -1}, {"n": "one"}, {"n": Decimal("1.5")}]
    sent = [delivery(n, body, f"{n}") for n, body in enumerate([*bodies, {"name": "abc"}])]
    errors = await deliver(sink, *sent)
    assert [type(error) for error in errors[:-1]] == [PoisonChange] * 5
    assert errors[-1] is None
    assert "22001" in str(errors[0])
    assert "23514" in str(errors[2])


async def test_tombstones_are_purged_when_they_are_old_and_rows_never(database):
    clock = Moment()
    sink = database.sink(clock=clock)
    await sink.create_table()
    await deliver(sink, delivery(1, 1), delivery(2, None, "b"))
    clock.now = NOON + timedelta(days=6, hours=23)
    assert await sink.purge_tombstones() == 0
    clock.now = NOON + timedelta(days=7, hours=1)
    assert await sink.purge_tombstones() == 1
    assert await database.query("SELECT id FROM {table}") == [("a",)]
    assert await sink.purge_tombstones(timedelta(days=1)) == 0
    with pytest.raises(ValueError, match="a day"):
        await sink.purge_tombstones(timedelta(hours=23))


async def test_a_table_that_is_missing_or_lacks_columns_is_named_and_nothing_is_parked(database):
    async with database.sink().opened() as sender:
        with pytest.raises(ConfigurationError, match="lacks _deleted_at, _sequence, body, id"):
            await sender.deliver([delivery(1, 1)])
        await database.query("CREATE TABLE {table} (id VARCHAR PRIMARY KEY, body VARCHAR)")
        with pytest.raises(ConfigurationError, match="lacks _deleted_at, _sequence;"):
            await sender.deliver([delivery(1, 1)])


async def test_a_database_that_does_not_answer_is_tried_again(tmp_path):
    (tmp_path / "broken").write_text("no database, but long enough to look like one" * 100)
    gone = SqlTable("orders", f"postgresql+asyncpg://u:hidden@/db?host={tmp_path}", "orders")
    broken = SqlTable("orders", f"sqlite+aiosqlite:///{tmp_path}/broken", "orders")
    for sink in (gone, broken):
        async with sink.opened() as sender:
            with pytest.raises(RetryableError) as caught:
                await sender.deliver([delivery(1, "data")])
        assert "hidden" not in f"{caught.value} {sink!r}"
        assert "data" not in str(caught.value)


async def test_a_lost_connection_heals(postgres_url):
    database = Database(postgres_url)
    sink = database.sink()
    await sink.create_table()
    async with sink.opened() as sender:
        assert await sender.deliver([delivery(1, 1)]) == [None]
        await database.query(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
            " AND backend_type = 'client backend' AND '{table}' <> ''"
        )
        assert await sender.deliver([delivery(2, 2)]) == [None]
    assert await database.living(sink) == {"a": 2}


async def test_a_table_that_is_locked_is_given_up_after_the_timeout(postgres_url):
    database = Database(postgres_url)
    sink = database.sink(timeout=2.0)
    await sink.create_table()
    engine = create_async_engine(postgres_url)
    async with sink.opened() as sender:
        assert await sender.deliver([delivery(1, 1)]) == [None]
        async with engine.begin() as connection:
            await connection.execute(text(f"LOCK TABLE {database.table}"))
            with pytest.raises(RetryableError, match="TimeoutError"):
                await sender.deliver([delivery(2, 2)])
        assert await sender.deliver([delivery(2, 2)]) == [None]
    await engine.dispose()


async def test_an_engine_of_the_user_stays_open(database):
    engine = create_async_engine(database.url)
    pool, sink = engine.pool, SqlTable("orders", engine, database.table)
    await sink.create_table()
    assert await deliver(sink, delivery(1, 1)) == [None]
    assert await deliver(sink, delivery(2, 2)) == [None]
    async with engine.connect() as connection:
        rows = await connection.execute(text(f"SELECT _sequence FROM {database.table}"))
        assert rows.scalar_one() == f"{2:040d}"
    assert engine.pool is pool
    await engine.dispose()


@pytest.mark.parametrize(
    ("url", "message"),
    [
        (
            "postgresql+psycopg2://u:hidden@h/db",
            "psycopg2 is not installed; use postgresql.asyncpg",
        ),
        ("sqlite:///x", "aiosqlite"),
        ("nonsense hidden", "aiosqlite"),
        ("mysql+aiomysql://u:hidden@h/db", "not mysql"),
    ],
)
async def test_a_database_that_cannot_be_used_is_refused_when_it_opens(url, message):
    with pytest.raises(ConfigurationError, match=message) as caught:
        await deliver(SqlTable("orders", url, "orders"))
    assert "hidden" not in str(caught.value)


def test_the_statement_that_creates_the_table_is_there_for_migrations():
    sink = SqlTable("orders", "sqlite+aiosqlite://", "orders", schema="shop")
    ddl = " ".join(sink.ddl().split())
    assert ddl.startswith("CREATE TABLE shop.orders ( id VARCHAR NOT NULL, body JSONB,")
    assert "_sequence VARCHAR(40) NOT NULL, _deleted_at TIMESTAMP WITH TIME ZONE" in ddl
    assert "body JSON," in sink.ddl("sqlite")
    with pytest.raises(ConfigurationError, match="not mysql"):
        sink.ddl("mysql")


async def test_sqlite_has_one_transaction_at_once():
    engine = create_async_engine("sqlite+aiosqlite://")
    urls = ("sqlite+aiosqlite:///x", engine, "postgresql+asyncpg://h/sqlite")
    assert [SqlTable("s", url, "t").limits.calls for url in urls] == [1, 1, 4]
    await engine.dispose()


@pytest.mark.parametrize("facts", [{"columns": {"id": String()}}, {"key": "body"}])
def test_two_columns_of_one_name_are_refused(facts):
    with pytest.raises(DeclarationError, match="same name"):
        SqlTable("orders", "sqlite+aiosqlite://", "orders", **facts)
    assert SqlTable("orders", "sqlite+aiosqlite://", "o", columns={"n": String()}, body="id")
