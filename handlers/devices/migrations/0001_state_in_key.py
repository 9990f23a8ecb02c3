"""Logs sorted by state: from the bare time to `<State>#<time>`."""

from typing import ClassVar

from pydantic import Field

from handlers.devices.entities import DeviceLog, Moment
from handlers.devices.handlers import app
from streamkit import Entity, EpochSeconds, Index


class EarlyLog(Entity, pk="d#{device}", sk="{date:%Y-%m-%dT%H:%M:%SZ}"):
    """A log under its time alone: two states in one second overwrote each other."""

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


def by_time(log: DeviceLog) -> EarlyLog:
    """Return the log under its time."""
    return EarlyLog.model_validate(log.model_dump())


@app.migration("0001", EarlyLog, mode="rekey", reverse=by_time)
def state_in_key(log: EarlyLog) -> DeviceLog:
    """Move a log; one that has its state in the key stays where it is."""
    return DeviceLog.model_validate(log.model_dump())
