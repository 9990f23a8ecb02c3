"""Injection: what a handler's signature asks for, found by type.

In: the resources that the app's lifespan yields, and the table. Out: the keyword arguments of one
run. A `Table` is made for each run, because it notes what that run reads.
"""

from typing import Any

from streamkit.control import ControlSpace
from streamkit.handler import Handler
from streamkit.model.schema import TableSchema
from streamkit.processing.completion import Completions
from streamkit.processing.dispatch import Tools
from streamkit.processing.ledger import Ledger
from streamkit.processing.reading import ReadTracker
from streamkit.relations.tables import Tables
from streamkit.table import Table

OWN = (Table, Completions)
"""What streamkit itself has for handlers; all else comes from the app's lifespan."""


def injector(
    dynamodb: Any,
    schema: TableSchema,
    resources: tuple[Any, ...],
    tables: Tables | None = None,
    space: ControlSpace | None = None,
) -> Tools:
    """Return the function that makes the arguments of a run; `preflight` has seen they exist.

    `space` is where the ledgers of builds are, for whoever may meet one.
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
