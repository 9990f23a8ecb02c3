"""Tables: the schemas of the tables that one app reads and writes, as far as they are known.

The app's own table and those it names are described when a worker starts; another one when the
first effect, or read, goes there. In: names. Out: schemas. On failure: a table that is missing, or
may not be described, is a `ConfigurationError` of the change that needs it.
"""

from collections.abc import Awaitable, Callable, Iterator, Mapping

from streamkit.entity import Entity
from streamkit.errors import UnknownTable
from streamkit.model.schema import TableSchema

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
