"""Ask a split's `collect=` which queries find the parts of an item. Pure.

In: an item as its entity. Out: queries of the table itself, whole. On failure: `TransformError`.
"""

from typing import Any

from streamkit.entity import Entity
from streamkit.kinds.migration import Migration
from streamkit.migrate.items.sources import TransformError
from streamkit.model.queries import Query


def queries_of_parts(migration: Migration, item: Entity) -> list[Query[Any]]:
    """Return the queries that find the parts of an item; none without `collect=`.

    Raises:
        TransformError: it returns something else, or a query that does not see every part at once.
    """
    if migration.collect is None:
        return []
    result: Any = migration.collect(item)
    queries = result if isinstance(result, list | tuple) else [result]
    part = migration.target or Entity
    for one in queries:
        if not isinstance(one, Query) or not issubclass(one.entity, part):
            of = f" of {one.entity.__name__}" if isinstance(one, Query) else ""
            raise TransformError(
                f"{migration.declared}: collect= returns a query of the parts, as in"
                f" {part.__name__}.query(...), or a list of such, not a {type(one).__name__}{of}"
            )
        if one.index is not None or one.maximum is not None:
            raise TransformError(
                f"{migration.declared}: collect= finds all parts in the table itself: leave the"
                " index, which trails it, and the limit out"
            )
    return list(queries)
