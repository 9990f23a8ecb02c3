"""Tables: the schemas of the tables that one app reads and writes, as far as they are known.

The app's own table and those it names are described when a worker starts; another one when the
first effect, or read, goes there. In: names. Out: schemas. On failure: a table that is missing, or
may not be described, is a `ConfigurationError` of the change that needs it.
"""

from collections.abc import Awaitable, Callable, Iterator, Mapping
from functools import partial

import msgspec

from streamkit.aws import Aws, AwsError, ErrorKind, code_of, patiently, trouble_of
from streamkit.core.consumer import Consumer
from streamkit.entity import Entity
from streamkit.errors import ConfigurationError, UnknownTable
from streamkit.model.schema import TableSchema
from streamkit.progress.control import ControlSpace
from streamkit.progress.cursor import CursorStore

Describe = Callable[[str], Awaitable[TableSchema]]


class Tables(Mapping[str, TableSchema]):
    """Schemas by table name; `own` is the app's table, `control` the one with its control items.

    `entities` are those that the app knows: reads use them to tell items apart.
    """

    def __init__(
        self,
        own: TableSchema,
        control: TableSchema | None = None,
        describe: Describe | None = None,
        entities: tuple[type[Entity], ...] = (),
    ) -> None:
        self.own = own
        self.control = control or own
        self.entities = entities
        self._describe = describe
        self._known = {self.control.name: self.control, own.name: own}

    def __getitem__(self, name: str) -> TableSchema:
        return self._known[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._known)

    def __len__(self) -> int:
        return len(self._known)

    def known(self, name: str | None) -> TableSchema:
        """Return a table's schema; None names the app's own.

        Raises:
            UnknownTable: it was not described yet; `learn` does that.
        """
        if name is None:
            return self.own
        schema = self._known.get(name)
        if schema is None:
            raise UnknownTable(name)
        return schema

    async def learning(self, attempt: Callable[[], Awaitable[None]]) -> None:
        """Attempt something; describe each table that it turns out to need, and attempt it again.

        Raises:
            ConfigurationError: one of them is missing, or may not be described.
        """
        while True:
            try:
                return await attempt()
            except UnknownTable as unknown:
                await self.learn(unknown.table)

    async def learn(self, name: str) -> None:
        """Describe a table, once.

        Raises:
            ConfigurationError: it is missing, or may not be described.
            UnknownTable: there is no function to describe it.
        """
        if name in self._known:
            return
        if self._describe is None:
            raise UnknownTable(name)
        self._known[name] = await self._describe(name)


class AppTables(msgspec.Struct, frozen=True):
    """The tables of an app, as described."""

    table: TableSchema
    control: TableSchema
    others: Tables | None = None

    @property
    def schemas(self) -> Tables:
        """Return the tables that commits write to, by name; more may be added later."""
        return self.others or Tables(self.table, self.control)

    def store(self, app: Consumer, aws: Aws) -> CursorStore:
        """Return where the control items of this consumer of this stream are read and written.

        Raises:
            ConfigurationError: the table has no stream, or cannot hold control items.
        """
        return CursorStore(aws.dynamodb, self.space(app))

    def space_in_table(self, app: Consumer) -> ControlSpace | None:
        """Return where the control items would be without the app's `control_table`, if it has one.

        None also where the table could not hold them.
        """
        if self.control == self.table or self.table.pk_type != "S":
            return None
        return AppTables(self.table, self.table).space(app)

    def space(self, app: Consumer) -> ControlSpace:
        """Return the control items of this consumer of this stream.

        Raises:
            ConfigurationError: the table has no stream, or cannot hold control items.
        """
        if self.table.stream_arn is None:
            raise ConfigurationError(
                f"table {self.table.name} has no stream; enable one: aws dynamodb update-table"
                f" --table-name {self.table.name} --stream-specification"
                " StreamEnabled=true,StreamViewType=NEW_AND_OLD_IMAGES"
            )
        return ControlSpace.of(self.control, app.name, self.table.stream_label)

    def named(self, consumer: str, table: TableSchema, aws: Aws) -> CursorStore:
        """Return the control items of a consumer, by its name, of a table's stream."""
        space = ControlSpace.of(self.control, consumer, table.stream_label)
        return CursorStore(aws.dynamodb, space)


async def survey(app: Consumer, aws: Aws) -> AppTables:
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
    return AppTables(table, control, others)


async def open_store(app: Consumer, aws: Aws) -> CursorStore:
    """Return the control items of an app's consumer.

    Raises:
        ConfigurationError: a table is missing or has no stream, or may not be described.
    """
    return (await survey(app, aws)).store(app, aws)


async def describe(aws: Aws, name: str, *, type_attribute: str | None) -> TableSchema:
    """Describe one table.

    Raises:
        ConfigurationError: it is missing, or may not be described.
    """
    try:
        described = await patiently(lambda: aws.dynamodb.describe_table(TableName=name))
        ttl = await patiently(lambda: aws.dynamodb.describe_time_to_live(TableName=name))
    except AwsError as error:
        if trouble_of(error) is ErrorKind.MISSING:
            raise ConfigurationError(
                f"there is no table {name!r} in this account and Region"
                f" ({aws.dynamodb.meta.region_name}); check the name, AWS_REGION and AWS_PROFILE"
            ) from error
        raise ConfigurationError(f"table {name!r} cannot be described: {code_of(error)}") from error
    attribute = ttl.get("TimeToLiveDescription", {}).get("AttributeName")
    return TableSchema.from_description(
        described["Table"], ttl=attribute, type_attribute=type_attribute
    )
