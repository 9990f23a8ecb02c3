"""Injection: find the arguments that a handler's signature asks for, by type.

In: the resources that the app's lifespan yields, and the table. Out: the keyword arguments of one
run. A `Table` is made for each run, because it records what that run reads.
"""

from typing import Any

from streamkit.core.completion import Completions
from streamkit.core.handler import Handler
from streamkit.core.ledger import Ledger
from streamkit.core.reading import ReadTracker
from streamkit.core.runs import Tools
from streamkit.core.tables import Tables
from streamkit.model.schema import TableSchema
from streamkit.progress.control import ControlSpace
from streamkit.table import Table

OWN = (Table, Completions)
"""The types that streamkit itself provides for handlers; all others come from the app's lifespan.
"""


def injector(
    dynamodb: Any,
    schema: TableSchema,
    resources: tuple[Any, ...],
    tables: Tables | None = None,
    space: ControlSpace | None = None,
) -> Tools:
    """Return the function that makes the arguments of a run; `preflight` has checked them.

    `space` has the ledgers of builds, for a host that may run handlers in a build.
    """
    known = tables or Tables(schema)

    def tool(wanted: type[Any], tracker: ReadTracker) -> Any:
        if wanted is Table:
            return Table(dynamodb, schema, tracker, known)
        if wanted is Completions:
            return Completions(dynamodb, known.control)
        if wanted is Ledger:
            return Ledger(dynamodb, space, tracker)
        return next(found for found in resources if isinstance(found, wanted))

    def tools(handler: Handler, tracker: ReadTracker) -> dict[str, Any]:
        return {name: tool(wanted, tracker) for name, wanted in handler.needs.items()}

    return tools
