"""Rows: deliveries become rows of an SQL table, written by one statement. Needs SQLAlchemy.

A row is the latest state of its id. Beside the body's columns it has the sequence of its change and
the time of its deletion, which is NULL while the row lives. A deleted row stays as a tombstone, so
that an older change that comes late finds a newer sequence.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

from pydantic import BaseModel
from sqlalchemy import JSON, Column, DateTime, MetaData, String, Table, types
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.sql.dml import Insert
from sqlalchemy.types import TypeEngine

from streamkit.sinks.body import to_plain, to_text
from streamkit.sinks.sink import Delivery

Row = dict[str, Any]

DIALECTS = ("postgresql", "sqlite")
"""These databases have an upsert with a condition."""


class Rows:
    """Render deliveries as rows of one table.

    Args:
        table: the table's name.
        schema: its schema; None for the connection's own.
        key: the column of the id.
        sequence: the column of the sequence.
        deleted: the column of the time of the deletion.
        columns: SQLAlchemy types by the names of the body's fields; None keeps the body whole.
        body: the column of the whole body.
    """

    def __init__(
        self,
        table: str,
        *,
        schema: str | None,
        key: str,
        sequence: str,
        deleted: str,
        columns: Mapping[str, Any] | None,
        body: str,
    ) -> None:
        self.key, self.sequence, self.deleted = key, sequence, deleted
        self.whole = columns is None
        whole = JSON(none_as_null=True).with_variant(
            postgresql.JSONB(none_as_null=True), DIALECTS[0]
        )
        values = {body: whole} if columns is None else columns
        self.types: dict[str, TypeEngine[Any]] = {
            name: types.to_instance(kind) for name, kind in values.items()
        }
        self.table = Table(
            table,
            MetaData(),
            Column(key, String(), primary_key=True),
            *(Column(name, kind, nullable=True) for name, kind in self.types.items()),
            Column(sequence, String(40), nullable=False),
            Column(deleted, DateTime(timezone=True), nullable=True),
            schema=schema,
        )

    def row(self, delivery: Delivery) -> Row:
        """Return the row of a delivery; a tombstone holds nothing but its id and sequence.

        Raises:
            TypeError: the body is no object, or a value has a type that its column cannot take.
            ValueError: a value does not fit its column.
        """
        row: Row = {self.key: delivery.id, self.sequence: delivery.sequence}
        if delivery.body is None:
            gone = dict.fromkeys(self.types)
            return row | gone | {self.deleted: delivery.created_at}
        body = delivery.body
        values = dict.fromkeys(self.types, body) if self.whole else _fields(body)
        stored = {name: _stored(values.get(name), kind) for name, kind in self.types.items()}
        return row | stored | {self.deleted: None}

    def latest(self, rows: Sequence[Row]) -> list[Row]:
        """Return the newest row of each id (of equal sequences the last), ordered by id.

        Two transactions that write the same rows in the same order cannot deadlock.
        """
        newest: dict[str, Row] = {}
        for row in rows:
            there = newest.get(row[self.key])
            if there is None or there[self.sequence] <= row[self.sequence]:
                newest[row[self.key]] = row
        return [newest[key] for key in sorted(newest)]

    def upsert(self, dialect: str) -> Insert:
        """Return the statement that writes each row unless a newer one is there.

        Sequences are text of 40 digits, so in every collation their order as text is their order
        as numbers.
        """
        module = postgresql if dialect == "postgresql" else sqlite
        insert = module.insert(self.table)
        new, old = insert.excluded, self.table.c
        names = [name for name in old.keys() if name != self.key]  # noqa: SIM118 - columns, not a dict
        statement: Insert = insert.on_conflict_do_update(
            index_elements=[self.key],
            set_={name: new[name] for name in names},
            where=old[self.sequence] <= new[self.sequence],
        )
        return statement


def _fields(body: Any) -> Mapping[str, Any]:
    if isinstance(body, BaseModel):
        return body.model_dump(by_alias=True)
    if isinstance(body, Mapping):
        return body
    raise TypeError("a body that is spread over columns must be an object")


def _stored(value: Any, kind: TypeEngine[Any]) -> Any:
    """Return a value in the form that the drivers take for a column of this type."""
    if value is None:
        return None
    match kind:
        case types.JSON():
            return to_plain(value)
        case types.DateTime():
            moment = datetime.fromisoformat(value) if isinstance(value, str) else value
            return _moment(moment, aware=bool(kind.timezone))
        case types.Date() if isinstance(value, str):
            return date.fromisoformat(value)
        case types.String() if not isinstance(value, str):
            return to_text(value)
        case types.Integer() if not isinstance(value, int):
            return _whole(value)
    return value


def _whole(value: object) -> int:
    """Return an integer; the drivers would cut off a fraction, or store text."""
    if not isinstance(value, Decimal | float) or value != int(value):
        raise ValueError("not a whole number")
    return int(value)


def _moment(moment: object, *, aware: bool) -> datetime:
    """Return a moment in UTC, with a zone if `aware`; a moment without a zone is taken as UTC."""
    if not isinstance(moment, datetime):
        raise TypeError("a moment must be a datetime or ISO 8601 text")
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return moment.astimezone(UTC) if aware else moment.astimezone(UTC).replace(tzinfo=None)
