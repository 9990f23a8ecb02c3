"""The harness: an app on the local engine, in virtual time, for tests of handlers.

    def test_likes_are_counted(harness_of):
        harness = harness_of(app)
        harness.put(BrandLike(brand="APPLE", username="ann"))
        harness.settle()
        assert harness.get(BrandLikes.key(brand="APPLE")).likes == 1

The real worker runs, through the real AWS client. The app's sinks are replaced by recorders. A
change that is parked fails the test, unless the test expects it. The harness is plain and
synchronous.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any, TypeAlias, TypeVar

from streamkit.app import App
from streamkit.core.parked.queues import list_parked
from streamkit.core.parking import Parked
from streamkit.core.table_shape import TableShape
from streamkit.effects import Effect
from streamkit.entity import Entity
from streamkit.errors import ConfigurationError
from streamkit.model.codec import encode
from streamkit.model.keys import Key
from streamkit.model.queries import Query
from streamkit.observe.frames import user_traceback
from streamkit.operate.redrive import redrive
from streamkit.progress.actions import CONTROL_ATTRIBUTE
from streamkit.settings import Settings
from streamkit.testing.loop import seconds_of
from streamkit.testing.recording import Recorder, recording
from streamkit.testing.rig import NotSettledError, Rig
from streamkit.testing.tables import table_of
from streamkit.testing.traffic import Writer

E = TypeVar("E", bound=Entity)


class UnexpectedlyParked(AssertionError):
    """A change was parked, or was not, other than the test expects; the message has the error."""


class Harness(Rig):
    """Run one app. Use it as a context manager, or through the pytest fixture `harness_of`.

    Args:
        app: the app to run.
        create_table: a `CreateTable` request, with a stream, if `shape` is not enough.
        shape: the shape of the app's table, if `App(shape=...)` does not say it, and its keys are
            not `PK` and `SK`, or items expire.
        others: `CreateTable` requests of other tables. Tables in `App(tables=...)` that are not
            among them get their declared shapes, or the keys `PK` and `SK`.
        seed: chooses the order of events.
        shards: how many shards the stream begins with.
        settings: the worker's settings; by default it polls seldom, so that days pass quickly.
        lenient: keeps the app's own sinks, and lets changes be parked.

    Attributes:
        sent: the recorder of each sink, by the sink's name.
    """

    def __init__(
        self,
        app: App,
        *,
        create_table: dict[str, Any] | None = None,
        shape: TableShape | None = None,
        others: Sequence[dict[str, Any]] = (),
        seed: int = 0,
        shards: int = 2,
        settings: Settings | None = None,
        lenient: bool = False,
    ) -> None:
        self._lenient = lenient
        self._known: set[tuple[str, str]] = set()
        self._stack = ExitStack()
        recorders = {} if lenient else self._stack.enter_context(recording(app))
        self.sent: Mapping[str, Recorder] = recorders
        super().__init__(
            app,
            create_table=create_table,
            shape=shape,
            others=others,
            seed=seed,
            shards=shards,
            settings=settings,
        )
        self._writer = Writer(
            self.table, self._aws.dynamodb, random.Random(seed), self.world.clock.time
        )

    def close(self) -> None:
        """End the worker without waiting, close the loop, and give the app its sinks back."""
        with self._stack:
            super().close()

    # -- what the application does -------------------------------------------------------------

    def put(self, *items: Entity | Mapping[str, Any]) -> None:
        """Write whole items, as the application would: entities, or attributes with Python values.

        harness.put({"PK": "CUSTOMER#ann", "SK": "#ORDER#7", "status": "PLACED"})
        """
        for item in items:
            if isinstance(item, Entity):
                wire = item.attributes(self.tables.table)
            else:
                wire = {name: encode(value) for name, value in item.items()}
            self._run(self._aws.dynamodb.put_item(TableName=self.app.table, Item=wire))

    def update(self, key: Key[Any], **fields: Any) -> None:
        """Set some fields of an item, as the application would; None removes one."""
        self._run(self._writer.update(key, **fields))

    def delete(self, *keys: Key[Any]) -> None:
        """Delete items, as the application would."""
        self._run(self._writer.delete(*keys))

    def transact(self, *effects: Effect) -> bool:
        """Write in one transaction, as the application would; return whether its conditions held.

        harness.transact(Put(order), Add(customer.item_key, orders=1))
        """
        return self._run(self._writer.transact(*effects))

    def expire(self) -> int:
        """Delete the items whose time to live has passed; return how many.

        Raises:
            ConfigurationError: no item of the table ever expires.
        """
        named = {"TableName": self.app.table}
        reply = self._run(self._aws.dynamodb.describe_time_to_live(**named))
        if "AttributeName" not in reply["TimeToLiveDescription"]:
            raise ConfigurationError(
                f"{self.app.declared}: {self.app.table} has no TTL attribute, so nothing expires;"
                ' write App(shape=TableShape(..., ttl="expires")), with the name of yours'
            )
        return self.world.control.expire(self.app.table)

    # -- what is in the table ------------------------------------------------------------------

    def get(self, key: Key[E], *, table: str | None = None) -> E | None:
        """Read one item of the app's table, or of another table that it knows."""
        return self._run((self.table if table is None else self.table.of(table)).get(key))

    def query(self, query: Query[E]) -> list[E]:
        """Read the items of a query."""

        async def collect() -> list[E]:
            return [item async for item in self.table.query(query)]

        return self._run(collect())

    def scan(self, entity: type[E]) -> list[E]:
        """Read every item of an entity."""

        async def collect() -> list[E]:
            return [item async for item in self.table.scan(entity)]

        return self._run(collect())

    def items(self) -> list[dict[str, Any]]:
        """Return the application's items in all its tables, in wire form."""
        items = [i for name in (self.app.table, *self.app.tables) for i in self.world.items(name)]
        return [item for item in items if CONTROL_ATTRIBUTE + "kind" not in item]

    # -- the worker, and what it parks ---------------------------------------------------------

    def settle(self, *, parks: bool | str = False) -> None:
        """Run the worker until it has processed everything.

        Args:
            parks: True if the test expects that a change is parked, or the name of the handler.

        Raises:
            UnexpectedlyParked: a change is parked, and the test does not expect it; or it does, and
                none is. The message has the error with the traceback of the user's code.
            NotSettledError: the worker is not done within four hours of virtual time.
            StreamkitError: the error that ended the worker.
        """
        super().settle()
        self._judge(parks)

    def advance(self, duration: str | float, *, parks: bool | str = False) -> None:
        """Let time pass: seconds, or `"15m"`, `"25h"`, `"2d"`. A live worker goes on running.

        Raises:
            UnexpectedlyParked: as `settle`.
        """
        super().advance(duration)
        self._judge(parks)

    def redeliver(self, *, parks: bool | str = False) -> None:
        """Process everything, and let the worker die before its commit, so that it comes again.

        Handlers run twice for the same changes, as after a crash; sends are delivered twice.

        Raises:
            UnexpectedlyParked: as `settle`.
        """
        process = self.die_in_commit()
        super().settle()
        if not process.dead.is_set():  # nothing was written: the position is in memory alone
            self.crash()
            super().settle()
        self._judge(parks)

    def parked(self) -> list[Parked]:
        """Return the parked changes, each parked queue in order; those of listeners, too."""
        found = []
        for one in (self.app, *self.app.listeners.values()):
            store = self.tables.store(one, self._aws)
            found += self._run(list_parked(store))
        return found

    def redrive(self) -> None:
        """Run the parked changes again, in order."""
        for one in (self.app, *self.app.listeners.values()):
            self._run(redrive(one, self._aws))

    def _judge(self, parks: bool | str) -> None:
        """Compare what was parked since the last look with what the test expects."""
        if self._lenient:
            return
        new = [one for one in self.parked() if (one.queue, one.position) not in self._known]
        self._known |= {(one.queue, one.position) for one in new}
        if parks and not new:
            raise UnexpectedlyParked("the test expects that a change is parked, and none is")
        wrong = [one for one in new if parks is not True and one.handler != parks and one.error]
        if wrong:
            raise UnexpectedlyParked("\n".join(map(self._told, wrong)))

    def _told(self, parked: Parked) -> str:
        error = self.raised.get(parked.handler)
        text = f"{parked.handler} parked a {parked.entity}: {parked.error}: {parked.detail}"
        if error is None or type(error).__name__ != parked.error:
            return text
        return f"{text}\n{user_traceback(error)}"


__all__ = ["Harness", "NotSettledError", "UnexpectedlyParked", "seconds_of", "table_of"]


HarnessOf: TypeAlias = Callable[..., Harness]
"""The fixture `harness_of`: it makes a `Harness` of an app."""
