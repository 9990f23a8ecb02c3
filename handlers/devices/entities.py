"""The entities of the device logs: what the items of their table look like.

A device's logs are one collection, sorted by state and time. Only logs have the attributes
`Operator` and `EscalatedTo`, so the indexes on these hold nothing else.
"""

from datetime import UTC, datetime
from typing import Annotated, ClassVar

from pydantic import AfterValidator, AwareDatetime, Field

from streamkit import Entity, EpochSeconds, Index

STAMP = "%Y-%m-%dT%H:%M:%SZ"


def _utc_second(moment: datetime) -> datetime:
    """Write a moment in one way, because it is part of keys."""
    return moment.astimezone(UTC).replace(microsecond=0)


Moment = Annotated[AwareDatetime, AfterValidator(_utc_second)]
"""A moment to the second, in UTC; stored as text, `2026-03-01T12:00:00Z`."""


class DeviceLog(Entity, pk="d#{device}", sk="{state}#{date:%Y-%m-%dT%H:%M:%SZ}"):
    """A device was in a state; an operator looked after it, and may have escalated it."""

    device: str
    state: str
    date: Moment = Field(alias="Date")
    operator: str = Field(alias="Operator")
    escalated_to: str | None = Field(default=None, alias="EscalatedTo")
    expires: EpochSeconds | None = None

    by_operator: ClassVar = Index(
        "OperatorIndex",
        pk="{operator}",
        sk="{date:%Y-%m-%dT%H:%M:%SZ}",
        pk_attribute="Operator",
        sk_attribute="Date",
    )
    escalated: ClassVar = Index(
        "EscalationIndex",
        pk="{escalated_to}",
        sk="{state}#{date:%Y-%m-%dT%H:%M:%SZ}",
        pk_attribute="EscalatedTo",
        sk_attribute="SK",
        when=lambda log: log.escalated_to is not None,
    )

    @property
    def is_warning(self) -> bool:
        """Return whether the state is one of the warnings, such as `WARNING2`."""
        return self.state.startswith("WARNING")


class Notification(Entity, pk="NOTIFY#{supervisor}", sk="d#{device}#{state}#{stamp}"):
    """A supervisor is told of a log that was escalated; the application may delete it."""

    supervisor: str
    device: str
    state: str
    stamp: str
    operator: str
