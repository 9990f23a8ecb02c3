"""App: what a team registers, checked before the first change is read.

    app = App("deals", table="BigTimeDeals")

    @app.aggregate
    class BrandLikes(Aggregate[BrandLike], pk="BRANDLIKES#{brand}", sk="BRANDLIKES#{brand}"): ...

    @app.on(when=became("status", "SHIPPED"))
    def shipped(change: Modified[Order]) -> Put[Notice]: ...

Names, types and templates are checked as they are declared; `preflight` checks the whole against a
table. Every mistake raises `DeclarationError` and names the declaration and its line.
"""

from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from streamkit.aws import connect
from streamkit.core.handler import Handler, Policy
from streamkit.core.table_shape import TableShape
from streamkit.core.tables import survey
from streamkit.entity import Entity
from streamkit.errors import ConfigurationError, DeclarationError
from streamkit.kinds.declared_aggregates import check_all_apart
from streamkit.kinds.lifespan import Lifespan, check_lifespan, open_lifespan
from streamkit.kinds.recognition import Recognition
from streamkit.model.declaration import Declaration, by_known_names
from streamkit.observe.traces import Telemetry
from streamkit.stream.loss import OnLoss, check_on_loss
from streamkit.stream.start import Start, read_start
from streamkit.table import OpenTable

if TYPE_CHECKING:
    from streamkit.archive.objects import Archive

F = TypeVar("F", bound=Callable[..., Any])
WRITER = "archive"
"""The name of the listener that writes an app's archive."""


class App(Recognition):
    """The entities and handlers of one consumer of one table's stream.

    Args:
        name: names the consumer; its positions are kept under this name.
        table: the table whose stream is read and which effects are written to.
        type_attribute: the attribute that says an item's type; without it, key templates tell.
        control_table: where streamkit keeps its own items, instead of in `table`; it needs a
            string partition key.
        entities: entities without a handler that share key shapes with others.
        tables: other tables of the account and Region that effects go to, or a dict of their names
            and shapes. A worker describes them when it starts; a table that is not named here is
            described at its first effect.
        policy: time-out, attempts and failure policy of handlers that do not say otherwise.
        start: where the consumer starts: `trim_horizon`, the oldest record of the stream; `latest`;
            a datetime; or the text of a date or a datetime. More than a day ago it is found in the
            archive. It counts when the consumer's first worker starts, and never again.
        on_loss: what happens when records may have been trimmed unread: `halt` the worker,
            `resume` at the oldest one there is, or an async function that is called with a `Loss`
            and a `Table` first.
        telemetry: hooks for metrics and traces, and where writers leave their trace.
        require_migrations: the last migration that the code needs, or several. Workers and
            functions start only when these are done, with all of lower numbers and all that they
            depend on.
        archive: where the stream's changes are kept for longer than a day: a `BucketArchive` or a
            `DirectoryArchive`. A consumer of its own, `APP.archive`, writes it.
        shape: what entities do not say of `table`: names and types of its keys, and its TTL
            attribute. Only `streamkit dev` and tests use it, which create the table; a worker reads
            the table's description.

    Raises:
        DeclarationError: the name or another argument is not valid.
    """

    @by_known_names("App(...)")
    def __init__(  # noqa: PLR0913 - each by its name, and each may be left out
        self,
        name: str,
        *,
        table: str,
        type_attribute: str | None = None,
        control_table: str | None = None,
        entities: Iterable[type[Entity]] = (),
        tables: Iterable[str] | Mapping[str, TableShape] = (),
        policy: Policy | None = None,
        start: Start | str = "trim_horizon",
        on_loss: OnLoss = "halt",
        telemetry: Telemetry | None = None,
        require_migrations: str | Iterable[str] = (),
        archive: "Archive | None" = None,
        shape: TableShape | None = None,
    ) -> None:
        if not name or "#" in name:
            raise DeclarationError(f"App({name!r}): the name is part of keys; leave out '#'")
        for kind, value in {Policy: policy, TableShape: shape, Telemetry: telemetry}.items():
            if not isinstance(value, kind | None):
                word = kind.__name__.removeprefix("Table").lower()
                raise DeclarationError(f"App({name!r}): {word}= takes a {kind.__name__}(...)")
        if isinstance(tables, str):
            raise DeclarationError(f"App({name!r}): tables= takes several names: [{tables!r}]")
        if isinstance(archive, str | list | tuple | int):
            raise DeclarationError(
                f"App({name!r}): archive= takes one BucketArchive(...) or DirectoryArchive(...)"
            )
        check_on_loss(on_loss)
        self.name = name
        self.table = table
        self.start = read_start(start)
        self.on_loss = on_loss
        self.telemetry = telemetry or Telemetry()
        self.type_attribute = type_attribute
        self.control_table = control_table
        self.tables = tuple(tables)
        self.shapes: dict[str, TableShape] = dict(tables) if isinstance(tables, Mapping) else {}
        self.shapes |= {} if shape is None else {table: shape}
        if isinstance(require_migrations, str):
            require_migrations = (require_migrations,)
        self.required = tuple(require_migrations)
        super().__init__(entities, policy or Policy())
        self.declared = Declaration.here(f"App({name!r})")
        self.archive = archive
        self.listeners: dict[str, App] = {}
        if archive is not None:
            self.listener(WRITER, start="trim_horizon", on_loss="resume")
        self._lifespan: Lifespan | None = None

    copies = False
    """Whether it is the writer of an archive, which has no handlers."""
    exact = False
    """Whether a handler's own `start=` made it: it must have every change since then."""

    @property
    def head(self) -> "App":
        """Return the app that it is a listener of, or itself."""
        return self

    @property
    def writer(self) -> "App":
        """Return the consumer that writes this app's archive."""
        return self.head.listeners[WRITER]

    def shape_of(self, table: str) -> TableShape:
        """Return the declared shape of one of the app's tables, or the usual one."""
        return self.shapes.get(table, TableShape())

    def accept_losses(self) -> None:
        """Go on after a loss in this process, where the app would halt; a hook is still called."""
        if self.on_loss == "halt":
            self.on_loss = "resume"

    def use_archive(self, archive: "Archive") -> None:
        """Use another archive than the declared one, with the listeners: for tests, and copies."""
        self.archive = archive
        for child in self.listeners.values():
            child.use_archive(archive)

    @by_known_names("app.listener(...)")
    def listener(
        self,
        name: str,
        /,
        *,
        policy: Policy | None = None,
        start: Start | str | None = None,
        on_loss: OnLoss | None = None,
    ) -> "App":
        """Return another consumer of the same table, for handlers with a pace of their own.

        It is an app in every way, called `APP.NAME`, with its own positions, parked changes and
        roll-outs. It knows this app's entities and runs in its lifespan. `streamkit worker` runs
        this app and its listeners in one process, which reads each page once for all of them.

        Args:
            name: names it; keep it, because its positions are kept under this name.
            policy: its handlers' policy; by default this app's.
            start: where it starts when its first worker does; by default as this app.
            on_loss: what happens when records may have been lost; by default as this app.

        Raises:
            DeclarationError: the name is taken or not valid, or this app is a listener itself.
        """
        return self._listen(name, start, policy, on_loss)

    def _listen(
        self,
        name: str,
        start: Start | str | None,
        policy: Policy | None = None,
        on_loss: OnLoss | None = None,
        *,
        exact: bool = False,
    ) -> "App":
        for wrong, why in (
            (self.head is not self, "a listener cannot have listeners; declare it on the app"),
            (
                name == WRITER and name in self.listeners,
                "App(archive=...) has made it, to write the archive; an app has one archive",
            ),
            (name in self.listeners, "the app has a listener of this name already"),
            (not name or {".", "#"} & {*name}, "its name is part of keys; leave out '.' and '#'"),
        ):
            if wrong:
                raise DeclarationError(f"App({self.name!r}).listener({name!r}): {why}")
        child = _Listener(
            self,
            f"{self.name}.{name}",
            table=self.table,
            type_attribute=self.type_attribute,
            control_table=self.control_table,
            tables=self.tables,
            shape=self.shapes.get(self.table),
            policy=policy or self._policy,
            start=self.start if start is None else start,
            on_loss=on_loss or self.on_loss,
            telemetry=self.telemetry,
            archive=self.archive,
            exact=exact,
        )
        self.listeners[name] = child
        return child

    def _beginning(self, handler: Handler, start: Start | str | None) -> "App":
        """Return the consumer that runs a handler: one with a start of its own is a listener."""
        if start is None:
            return self
        try:
            return self._listen(handler.name, start, exact=True)
        except DeclarationError as error:
            raise DeclarationError(f"{handler.declared}: start=: {error}") from None

    def lifespan(self, function: F) -> F:
        """Register an async generator that yields what handlers ask for by type.

        It runs once per process: the part before the `yield` at start, the rest at the end.

        Raises:
            DeclarationError: it does not yield.
        """
        check_lifespan(function)
        self._lifespan = function
        return function

    @property
    def resourceful(self) -> "App":
        """Return the app whose lifespan this one uses: a listener without one uses its app's."""
        return self if self._lifespan is not None else self.head

    def resources(self) -> AbstractAsyncContextManager[tuple[Any, ...]]:
        """Open the resources that `lifespan` yields, as a tuple."""
        return open_lifespan(self.resourceful._lifespan)  # noqa: SLF001 - of the same class


class _Listener(App):
    """An app that is a listener of another one."""

    def __init__(
        self, parent: App, name: str, *, archive: "Archive | None", exact: bool, **options: Any
    ) -> None:
        super().__init__(name, **options)
        self.archive = archive  # its app's, which has the writer
        self.exact = exact
        if exact:  # its handler is declared on the app, and sends to the sinks that are, too
            self.sinks = parent.sinks
        self.copies = archive is not None and name.endswith(f".{WRITER}")
        self._head = parent

    @property
    def head(self) -> App:
        return self._head


def consumers_of(apps: Sequence[App]) -> list[App]:
    """Return apps and their listeners, each once; the first app of a table comes first.

    Raises:
        ConfigurationError: two consumers of one table have one name, or add to the same field.
    """
    found = list(dict.fromkeys(one for app in apps for one in (app, *app.listeners.values())))
    if len({(app.table, app.name) for app in found}) < len(found):
        names = sorted(app.name for app in found)
        raise ConfigurationError(f"two apps of one table have the same name: {', '.join(names)}")
    for table in {app.table for app in found}:
        check_all_apart(app for app in found if app.table == table)
    return found


@asynccontextmanager
async def open_table(app: App) -> AsyncIterator[OpenTable]:
    """Open an app's table outside of handlers: a web server, a script, a test.

    It reads entities, and writes effects. Region, credentials and endpoint are the SDK's own.
    Pending changes are not seen.

    Raises:
        ConfigurationError: the table is missing, or may not be described.
    """
    async with connect() as aws:
        tables = await survey(app, aws)
        yield OpenTable(aws.dynamodb, tables.table, tables=tables.schemas)
