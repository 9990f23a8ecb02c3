"""Injection: what a handler's signature asks for, found by type.

In: the resources that the app's lifespan yields, and the table. Out: the keyword arguments of one
run. A `Table` is made for each run, because it notes what that run reads.
"""

from typing import Any

from streamkit.dispatch import Tools
from streamkit.handler import Handler
from streamkit.reading import ReadTracker
from streamkit.schema import TableSchema
from streamkit.table import Table


def injector(dynamodb: Any, schema: TableSchema, resources: tuple[Any, ...]) -> Tools:
    """Return the function that makes the arguments of a run; `preflight` has seen they exist."""

    def tools(handler: Handler, tracker: ReadTracker) -> dict[str, Any]:
        return {
            name: Table(dynamodb, schema, tracker)
            if wanted is Table
            else next(found for found in resources if isinstance(found, wanted))
            for name, wanted in handler.needs.items()
        }

    return tools
