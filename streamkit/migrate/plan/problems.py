"""Collect reasons against a migration, in its table and in the items that were read.

In: what was found, item by item. Out: a list, errors first, each kind once with the number of its
items and a few of them, by the hash that `errors` uses. On failure: if AWS refuses a question about
the table, that becomes a warning.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from streamkit.aws import Aws, AwsError
from streamkit.kinds.migration import Migration
from streamkit.migrate.run.opening import trouble_of_target
from streamkit.migrate.run.work import Schemas
from streamkit.model.schema import TableSchema

Severity = Literal["error", "warning"]

_WARNINGS = frozenset({"expired", "expiry", "key"})
_EXAMPLES = 5


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem; `items` of the sample have it, a `share` of those it concerns."""

    severity: Severity
    kind: str
    text: str
    items: int = 0
    share: float = 0.0
    examples: tuple[str, ...] = ()


class Problems:
    """Collects problems."""

    def __init__(self, known: Iterable[Problem]) -> None:
        self._noted = list(known)
        self._faults = defaultdict[tuple[str, str], list[str]](list)

    def warn(self, kind: str, text: str) -> None:
        """Note a warning that is not about an item."""
        self._noted.append(Problem("warning", kind, text))

    def fault(self, kind: str, text: str, item: str) -> None:
        """Note that an item has a fault."""
        self._faults[kind, text].append(item)

    def all(self, concerned: float) -> tuple[Problem, ...]:
        """Return what was noted, errors first; `concerned` items were looked at closely."""
        found = self._noted.copy()
        for (kind, text), items in self._faults.items():
            severity: Severity = "warning" if kind in _WARNINGS else "error"
            share = len(items) / concerned if concerned else 0.0
            found.append(Problem(severity, kind, text, len(items), share, tuple(items[:_EXAMPLES])))
        return tuple(sorted(found, key=lambda one: (one.severity, one.kind, one.text)))


async def problems_of_table(aws: Aws, schemas: Schemas, migration: Migration) -> list[Problem]:
    """Return what is wrong with the table itself, and with the one that items are moved to."""
    found, schema = [], schemas.source
    if schema.stream_arn is None:
        found.append(Problem("error", "stream", f"{schema.name} has no stream; enable one"))
    elif schema.view_type != "NEW_AND_OLD_IMAGES":
        text = f"the stream holds {schema.view_type}; it has to hold NEW_AND_OLD_IMAGES"
        found.append(Problem("error", "stream", text))
    if migration.to is not None and migration.to == schema.name:
        found.append(
            Problem("error", "target", "to= names the table that the items are in already")
        )
    if migration.moves and migration.reverse is None:
        text = "from the switch on there is no way back: it has no reverse="
        found.append(Problem("warning", "way back", text))
    if trouble := trouble_of_target(schemas.target, migration):
        found.append(Problem("error", "stream", trouble))
    found += await _recovery(aws, schema)
    return found


async def _recovery(aws: Aws, schema: TableSchema) -> list[Problem]:
    try:
        reply = await aws.dynamodb.describe_continuous_backups(TableName=schema.name)
    except AwsError:
        return [Problem("warning", "recovery", "whether the table can be restored is not known")]
    recovery = reply["ContinuousBackupsDescription"].get("PointInTimeRecoveryDescription", {})
    if recovery.get("PointInTimeRecoveryStatus") == "ENABLED":
        return []
    text = f"{schema.name} has no point-in-time recovery: mistakes cannot be undone by a restore"
    return [Problem("warning", "recovery", text)]
