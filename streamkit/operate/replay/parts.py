"""What a replay needs of its app: its handlers as a replay runs them, clients, a rate, a report.

In: an app and what is asked for. Out: the parts that a bounded replay and one to the end share.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from streamkit.app import App
from streamkit.changes import KeyValue
from streamkit.core.dispatch import Dispatcher
from streamkit.core.handler import Handler
from streamkit.core.routes import Channels
from streamkit.core.runs import Tools
from streamkit.core.tables import AppTables
from streamkit.model.codec import decode_number
from streamkit.model.schema import TableSchema
from streamkit.operate.replay.replayable import NoteLarge, replayed
from streamkit.operate.replay.report import HandlerReplay, Replayed, ReplayRefused, ReplayWish
from streamkit.progress.machine import Machine
from streamkit.progress.paced import CommitRate
from streamkit.stream.decode import Record


@dataclass(frozen=True)
class ReplayParts:
    """What a replay needs of its app, open: `tools` and `channels` are for its handlers.

    `rate` bounds what it writes; None is no bound. With `keys` only items with these partition keys
    are replayed.
    """

    app: App
    machine: Machine
    tables: AppTables
    tools: Tools
    channels: Channels
    wish: ReplayWish
    rate: CommitRate | None
    keys: Collection[KeyValue] = ()
    _seen: set[KeyValue] = field(default_factory=set)

    @property
    def handlers(self) -> list[Handler]:
        """Return the handlers that run again."""
        return [handler for handler in self.app.handlers if handler.name in self.wish.handlers]

    def dispatcher(
        self, handlers: Sequence[Handler], *, looks_back: bool, large: NoteLarge | None = None
    ) -> Dispatcher:
        """Return what runs handlers for old changes, each once.

        Args:
            handlers: the handlers.
            looks_back: they may look at the old image.
            large: is told of a change that has too many recipients, and does not fail then.
        """
        machine = self.machine
        return Dispatcher(
            [replayed(handler, looks_back=looks_back, large=large) for handler in handlers],
            self.app.routes(self.tables.schemas),
            self.tools,
            machine.clock,
            machine.rng,
            self.channels,
        )

    def report(self) -> Replayed:
        """Return a report in which nothing has run yet."""
        wish = self.wish
        return Replayed(
            self.app.name,
            wish.mode,
            wish.since,
            wish.until,
            handlers={handler.name: HandlerReplay() for handler in self.handlers},
            show_keys=wish.show_keys,
        )

    def wants(self, record: Record) -> bool:
        """Return whether a change is of an item that is asked for; note its partition key."""
        if not self.keys:
            return True
        key = record.key_of(self.tables.table.pk).pk
        if key in self.keys:
            self._seen.add(key)
        return key in self.keys

    def unseen(self) -> list[str]:
        """Return the partition keys that are asked for, and of which no change was read."""
        schema = self.tables.table
        return [
            text for text in self.wish.keys if not self._seen.issuperset(keys_of(schema, [text]))
        ]


def keys_of(schema: TableSchema, texts: Collection[str]) -> Collection[KeyValue]:
    """Return the values of partition keys that were given as texts.

    Raises:
        ReplayRefused: a table has numbers as keys, and a text is none.
    """
    if schema.pk_type == "B":
        return {text.encode() for text in texts}
    if schema.pk_type == "S":
        return set(texts)
    try:
        return {decode_number(text) for text in texts}
    except (ValueError, ArithmeticError):
        said = f"the key {schema.pk!r} of {schema.name} is a number, and one of --keys is none"
        raise ReplayRefused([said]) from None
