"""The `CreateTable` requests of the tables that an app needs."""

from collections.abc import Sequence
from typing import Any

from streamkit.app import App
from streamkit.core.table_shape import TableShape, entities_of


def table_of(app: App, shape: TableShape | None = None) -> dict[str, Any]:
    """Return the `CreateTable` request of a table that fits an app and its listeners.

    By default it has the app's own shape, or the keys `PK` and `SK`. It has the indexes that the
    entities declare; where they do not name attributes, these are `<index>PK` and `<index>SK`. The
    stream carries both images.
    """
    return (shape or app.shape_of(app.table)).create_table(app.table, entities_of(app))


def requests_of(app: App, given: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the `CreateTable` requests of all tables but the app's own."""
    known = {request["TableName"] for request in given} | {app.table}
    missing = [name for name in app.tables if name not in known]
    return [
        *given,
        *(app.shape_of(name).create_table(name, (), stream=False) for name in missing),
    ]
