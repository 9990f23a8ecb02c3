"""Moments as DynamoDB's TTL needs them: whole seconds since 1970."""

from datetime import UTC, datetime
from decimal import Decimal
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, PlainSerializer

from streamkit.model.fields import StoredAs


def _epoch(value: Any) -> Any:
    if isinstance(value, int | Decimal) and not isinstance(value, bool):
        return datetime.fromtimestamp(int(value), UTC)
    return value


def _whole_seconds(value: datetime) -> datetime:
    if value.tzinfo is None:
        raise ValueError("a moment needs a time zone")
    return value.astimezone(UTC).replace(microsecond=0)


EpochSeconds = Annotated[
    datetime,
    StoredAs("N"),
    BeforeValidator(_epoch),
    AfterValidator(_whole_seconds),
    PlainSerializer(lambda moment: int(moment.timestamp()), return_type=int),
]
"""A moment stored as a number of seconds since 1970, as TTL attributes must be; in UTC."""
