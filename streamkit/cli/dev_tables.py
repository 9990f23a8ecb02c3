"""The tables of `streamkit dev`: as the app declares them, also when that has changed."""

from dataclasses import replace
from typing import Any

from streamkit.app import App
from streamkit.aws import AwsError, ErrorKind, trouble_of
from streamkit.core.table_shape import TableShape, entities_of
from streamkit.errors import ConfigurationError


async def bring_up(app: App, dynamodb: Any) -> list[str]:
    """Create the app's tables that are missing, and the indexes that entities have declared since.

    Returns:
        What was done, as lines for the terminal.

    Raises:
        ConfigurationError: a table that is there has other keys than `App(shape=...)` says.
    """
    control = (app.control_table,) if app.control_table else ()
    done = []
    for name in dict.fromkeys((app.table, *app.tables, *control)):
        own = name == app.table
        shape = _expiring(app) if own else app.shape_of(name)
        request = shape.create_table(name, entities_of(app) if own else (), stream=own)
        try:
            there = (await dynamodb.describe_table(TableName=name))["Table"]
        except AwsError as error:
            if trouble_of(error) is not ErrorKind.MISSING:
                raise
            await shape.create(dynamodb, name, entities_of(app) if own else (), stream=own)
            done.append(_created(request, shape, said=name in app.shapes))
        else:
            done += await _adapt(dynamodb, there, request, said=name in app.shapes)
    return done


def _expiring(app: App) -> TableShape:
    """Return the shape of the app's table; what `Until` writes expires, unless it says otherwise.

    Tests have no TTL attribute then, because a table on AWS may have none: `check` says so.
    """
    shape = app.shape_of(app.table)
    until: set[str] = {one.__until__[0] for one in app.aggregates if one.__until__}
    return replace(shape, ttl=until.pop()) if shape.ttl is None and len(until) == 1 else shape


async def _adapt(
    dynamodb: Any, there: dict[str, Any], request: dict[str, Any], *, said: bool
) -> list[str]:
    """Add the indexes that an existing table lacks."""
    name, declared = request["TableName"], _keys(request, request["KeySchema"])
    if said and declared != _keys(there, there["KeySchema"]):
        raise ConfigurationError(
            f"the table {name} is there with the keys {_keys(there, there['KeySchema'])}, and the"
            f" app declares {declared}: correct TableShape(...), or delete the folder that keeps"
            " the tables (.streamkit) to begin with an empty one"
        )
    known = {index["IndexName"] for index in there.get("GlobalSecondaryIndexes", ())}
    known |= {index["IndexName"] for index in there.get("LocalSecondaryIndexes", ())}
    done = []
    for index in request.get("GlobalSecondaryIndexes", ()):
        if index["IndexName"] not in known:
            await dynamodb.update_table(
                TableName=name,
                AttributeDefinitions=request["AttributeDefinitions"],
                GlobalSecondaryIndexUpdates=[{"Create": index}],
            )
            done.append(f"added the index {_index(request, index)} to {name}")
    return done


def _created(request: dict[str, Any], shape: TableShape, *, said: bool) -> str:
    parts = [f"keys {_keys(request, request['KeySchema'])}"]
    parts += [f"index {_index(request, one)}" for one in request.get("GlobalSecondaryIndexes", ())]
    parts.append(f"items expire by {shape.ttl}" if shape.ttl else "no TTL attribute")
    hint = "" if said else "; where yours differs, say so in App(shape=TableShape(...))"
    return f"created the table {request['TableName']}: {', '.join(parts)}{hint}"


def _index(request: dict[str, Any], index: dict[str, Any]) -> str:
    return f"{index['IndexName']} ({_keys(request, index['KeySchema'])})"


def _keys(described: dict[str, Any], schema: list[dict[str, str]]) -> str:
    """Return the key attributes with their types, as in `PK S, SK S`."""
    types = {
        one["AttributeName"]: one["AttributeType"] for one in described["AttributeDefinitions"]
    }
    by_role = sorted(schema, key=lambda key: key["KeyType"])  # HASH comes before RANGE
    return ", ".join(f"{key['AttributeName']} {types[key['AttributeName']]}" for key in by_role)
