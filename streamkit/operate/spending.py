"""Compute what a consumer's calls use and cost a day, from its workers' counters.

In: an app with its listeners, and clients. Out: one `Spending` for each consumer: units a day by
kind, at the average rate of the workers that run now, each since it began. The units include what
handlers write and read. They leave out cancelled transactions (AWS does not report their units),
workers that have ended, and functions on Lambda.
"""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from streamkit.app import App, consumers_of
from streamkit.aws import Aws
from streamkit.core.tables import survey
from streamkit.fleet.members import Member, MemberList
from streamkit.observe.pricing import DOLLARS
from streamkit.observe.usage import Usage
from streamkit.progress.cursor import CursorStore

_DAY = 86_400.0


@dataclass(frozen=True, slots=True)
class Spending:
    """What one consumer uses; `units` are units a day, by kind: `read`, `write` and `stream`.

    `seconds` is how long the worker that has counted longest has done so.
    """

    consumer: str
    workers: int
    seconds: int
    units: dict[str, float]

    @property
    def dollars(self) -> float:
        """Dollars a day, without the free tier."""
        return sum(units * DOLLARS[kind] for kind, units in self.units.items())

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON types."""
        return {**asdict(self), "dollars": self.dollars}


async def read_spending(app: App, aws: Aws) -> tuple[Spending, ...]:
    """Return what an app and its listeners use a day.

    Raises:
        ConfigurationError: the table is missing or has no stream, or may not be described.
    """
    tables = await survey(app, aws)
    found = []
    for consumer in consumers_of([app]):
        store = CursorStore(aws.dynamodb, tables.space(consumer))
        found.append(spending_of(consumer.name, (await MemberList(store).read()).values()))
    return tuple(found)


def spending_of(consumer: str, members: Iterable[Member]) -> Spending:
    """Return the sum of what a consumer's workers report in their heartbeats."""
    counted = [(used, m.at - used.since) for m in members if (used := Usage.of(m.used))]
    counted = [(used, seconds) for used, seconds in counted if seconds > 0]
    units = {
        kind: sum(getattr(used, kind) * _DAY / seconds for used, seconds in counted)
        for kind in ("read", "write", "stream")
    }
    longest = max((seconds for _, seconds in counted), default=0)
    return Spending(consumer, len(counted), longest, units)
