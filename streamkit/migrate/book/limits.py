"""Say what a migration may use: units a second, failed items, and how many items come first.

In: an operator's wish, or a share of a table's capacity. Out: a `Limit`, and states with it. On
failure: `ConfigurationError`, for a share of capacity that is paid for on demand.
"""

from dataclasses import dataclass, replace
from typing import Final

from streamkit.app import App
from streamkit.aws import Aws
from streamkit.errors import ConfigurationError
from streamkit.migrate.book.state import State


@dataclass(frozen=True, slots=True)
class Share:
    """What a process may use of the limits: `part`, 0 to 1, until a moment of its own clock."""

    part: float
    until: float


@dataclass(frozen=True, slots=True)
class Limit:
    """Units a second that a migration, or a process of it, may use; None is no limit.

    In a command, None leaves a limit as it is, and 0 removes it. `max_errors` and `first` are as in
    `State`.
    """

    max_reads: float | None = None
    max_writes: float | None = None
    max_errors: float | None = None
    first: int | None = None

    @property
    def none(self) -> bool:
        """Whether any number of units may be used."""
        return self.max_reads is None and self.max_writes is None

    @property
    def said(self) -> str:
        """The limits as options of a command, each after a space, for the audit."""
        units = {"max-rcu": self.max_reads, "max-wcu": self.max_writes, "first": self.first}
        found = "".join(f" --{n} {value:g}" for n, value in units.items() if value is not None)
        errors = self.max_errors
        return found if errors is None else f"{found} --max-errors {errors_text(errors)}"


NO_LIMIT: Final = Limit()


def errors_text(errors: float) -> str:
    """Return how many items may fail, as a number or a share."""
    return f"{errors * 100:.4g}%" if 0 < errors < 1 else f"{errors:.4g}"


async def share_of(app: App, aws: Aws, share: float) -> Limit:
    """Return the limits that are a share of the provisioned capacity of a table and its indexes.

    The limit holds for each of them, so the smallest capacity counts.

    Raises:
        ConfigurationError: it has no provisioned capacity, but is paid for on demand.
    """
    described = (await aws.dynamodb.describe_table(TableName=app.table))["Table"]
    parts = [described, *described.get("GlobalSecondaryIndexes", ())]
    given = [part.get("ProvisionedThroughput") or {} for part in parts]
    reads = given[0].get("ReadCapacityUnits", 0)
    writes = min(one.get("WriteCapacityUnits", 0) for one in given)
    if not reads or not writes:
        raise ConfigurationError(
            f"table {app.table} has on-demand capacity, so there is nothing to take a share of; say"
            " --max-wcu and --max-rcu"
        )
    return Limit(max_reads=reads * share, max_writes=writes * share)


def limited(state: State, limit: Limit) -> State:
    """Return a state with other limits; a limit of None stays as it was."""
    reads = state.max_reads if limit.max_reads is None else limit.max_reads or None
    writes = state.max_writes if limit.max_writes is None else limit.max_writes or None
    errors = state.max_errors if limit.max_errors is None else limit.max_errors
    first = state.first if limit.first is None else limit.first
    return replace(state, max_reads=reads, max_writes=writes, max_errors=errors, first=first)
