"""The tables of an app, as described (called surroundings in the code); and one opened for reads.

    async with open_table(app) as table:
        likes = await table.get(BrandLikes.key(brand="APPLE"))

On failure: `ConfigurationError` says which table is missing, or what is not allowed.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial

from streamkit.app import App
from streamkit.aws import Aws, AwsError, Trouble, code_of, connect, patiently, trouble_of
from streamkit.control import ControlSpace
from streamkit.errors import ConfigurationError
from streamkit.model.schema import TableSchema
from streamkit.relations.tables import Tables
from streamkit.table import Table


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The tables of an app, as described."""

    table: TableSchema
    control: TableSchema
    others: Tables | None = None

    @property
    def schemas(self) -> Tables:
        """Return the tables that commits write to, by name; more may be added later."""
        return self.others or Tables(self.table, self.control)

    def space(self, app: App) -> ControlSpace:
        """Return the control items of this consumer of this stream.

        Raises:
            ConfigurationError: the table has no stream, or cannot hold control items.
        """
        if self.table.stream_arn is None:
            raise ConfigurationError(
                f"table {self.table.name} has no stream; enable one with NEW_AND_OLD_IMAGES"
            )
        label = self.table.stream_arn.rpartition("/")[2]
        return ControlSpace.of(self.control, app.name, label)


async def survey(app: App, aws: Aws) -> Surroundings:
    """Describe the app's tables.

    Raises:
        ConfigurationError: a table is missing, or may not be described.
    """
    table = await describe(aws, app.table, type_attribute=app.type_attribute)
    control = table
    if app.control_table is not None and app.control_table != app.table:
        control = await describe(aws, app.control_table, type_attribute=None)
    ask = partial(describe, aws, type_attribute=app.type_attribute)
    others = Tables(table, control, ask, app.known)
    for name in app.tables:
        await others.learn(name)
    return Surroundings(table, control, others)


async def describe(aws: Aws, name: str, *, type_attribute: str | None) -> TableSchema:
    """Describe one table.

    Raises:
        ConfigurationError: it is missing, or may not be described.
    """
    try:
        described = await patiently(lambda: aws.dynamodb.describe_table(TableName=name))
        ttl = await patiently(lambda: aws.dynamodb.describe_time_to_live(TableName=name))
    except AwsError as error:
        if trouble_of(error) is Trouble.MISSING:
            raise ConfigurationError(
                f"there is no table {name!r} in this account and Region; check the name, AWS_REGION"
                " and AWS_PROFILE"
            ) from error
        raise ConfigurationError(f"table {name!r} cannot be described: {code_of(error)}") from error
    attribute = ttl.get("TimeToLiveDescription", {}).get("AttributeName")
    return TableSchema.from_description(
        described["Table"], ttl=attribute, type_attribute=type_attribute
    )


@asynccontextmanager
async def open_table(app: App) -> AsyncIterator[Table]:
    """Open an app's table for typed reads outside of handlers: a web server, a script, a test.

    Region, credentials and endpoint are the SDK's own. Pending changes are not seen.

    Raises:
        ConfigurationError: the table is missing, or may not be described.
    """
    async with connect() as aws:
        around = await survey(app, aws)
        yield Table(aws.dynamodb, around.table, tables=around.schemas)
