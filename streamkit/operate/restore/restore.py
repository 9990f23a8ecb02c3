"""Restore a table as it was at a moment, into another table, from an archive.

    base       items as they are somewhere else: the app's table now, or an export; or nothing
    changes    the new image of each change up to the moment, in order       (not onto the table)
    undoing    the old image of each change after it, in the opposite order

What is written last for an item is the old image of its first change after the moment; else the new
image of its last change before; else what the base has. So the base may be of any moment since the
archive began. Without a base, items that did not change since then are missing.

In: an app with an archive, the moment, and an empty table. Out: counts. Memory holds some thousand
items. On failure: nothing but the target is changed. A restore that was stopped is begun again with
the same command: a mark in the target (or beside the app's control items) says what is being
restored into it, and each transaction checks that the mark still names this run, so that one that
was frozen can write nothing later.
"""

import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import anyio

from streamkit.app import App
from streamkit.aws import Aws
from streamkit.core.tables import describe
from streamkit.migrate.run.exports import Export
from streamkit.model.codec import decode, encode, wire_image
from streamkit.model.json_fields import JsonFields
from streamkit.model.schema import TableSchema
from streamkit.operate.past.past import PastChanges, open_past
from streamkit.operate.restore.base_items import exported, scanned
from streamkit.operate.restore.target import (
    _MARK,
    TABLE,
    RestoreRefused,
    RestoreWish,
    begin_restore,
    check_wish,
)
from streamkit.progress.actions import BYTES_MAX, Action, ItemRef, Verb, Wire, is_own, item_ref
from streamkit.progress.clock import Clock, utc
from streamkit.progress.fenced import TOGETHER
from streamkit.progress.paced import counted_rate
from streamkit.progress.pacing import UnitRate
from streamkit.progress.transaction import transact
from streamkit.stream.decode import Record

_HELD_MAX = 20 * TOGETHER
_SETTLED_SECONDS = 5.0
"""A change that a scan has read is in the stream by then."""

Apply = Callable[[Sequence[Action]], Awaitable[object]]


@dataclass(slots=True)
class Restored(JsonFields):
    """What a restore has read and written; times in epoch seconds.

    `unknown` says which items it cannot know, empty if it knows all. `losses` are what the archive
    lacks.
    """

    table: str
    into: str
    at: float
    base: str
    began: float
    read: int = 0
    written: int = 0
    deleted: int = 0
    unreadable: int = 0
    unknown: str = ""
    losses: list[str] = field(default_factory=list)

    def note_read(self, record: Record) -> None:
        """Count a change that was read."""
        self.read += 1
        self.unreadable += bool(record.flaw)

    def note_written(self, actions: Sequence[Action]) -> None:
        """Count what was written."""
        deleted = sum(action.verb is Verb.DELETE for action in actions)
        self.deleted += deleted
        self.written += len(actions) - deleted


async def restore_table(
    app: App, aws: Aws, into: str, wanted: RestoreWish, clock: Clock | None = None
) -> Restored:
    """Restore the app's table as it was into another table of the same account.

    Raises:
        RestoreRefused: the target is not empty, is the app's own, or has other keys; the archive
            does not reach back so far; or the base is no whole export of the app's table.
        RetentionLost: the archive lacks changes.
        LeaseLost: another restore into this table was begun.
        ConfigurationError: there is no archive, a table is missing, or a file of the export is not
            as its list of files says.
    """
    if into in {app.table, *app.tables, app.control_table}:
        raise RestoreRefused([f"{into} is a table of {app.name}: restore into another one"])
    async with open_past(app, aws, clock, allow_loss=wanted.allow_loss) as (past, tables):
        target = await describe(aws, into, type_attribute=None)
        export = await check_wish(past, tables.table, target, wanted)
        mark = await begin_restore(aws, tables, target, past.archive.stream, wanted)
        with counted_rate(aws, _MARK, wanted.units, past.clock) as rate:
            apply = _paced(mark.apply, rate)
            work = _Restoring(past, tables.table, aws, target, apply, wanted, export)
            done = await work.run()
        end = Action(mark.store.space.ref(*mark.names), Verb.DELETE)
        await mark.apply([end])
    return done


def _paced(apply: Apply, rate: UnitRate | None) -> Apply:
    """Return what applies actions at a rate; without one, what applies them at once."""
    if rate is None:
        return apply

    async def paced(actions: Sequence[Action]) -> None:
        await rate.turn()
        await apply(actions)

    return paced


async def restore_into_engine(
    app: App, aws: Aws, local: Aws, wanted: RestoreWish, clock: Clock | None = None
) -> Restored:
    """Restore the app's table as it was into a new engine; its stream begins behind the items.

    Args:
        app: the app whose table it is.
        aws: clients of the table.
        local: clients of the engine, which has no table of this name.
        wanted: what to restore.
        clock: for simulations.

    Raises:
        RestoreRefused: the archive does not reach back so far, the engine has the table, or the
            base is no whole export of the app's table.
        RetentionLost: the archive lacks changes.
        ConfigurationError: there is no archive, the table is missing, or a file of the export is
            not as its list of files says.
    """
    async with open_past(app, aws, clock, allow_loss=wanted.allow_loss) as (past, tables):
        if app.table in (await local.dynamodb.list_tables())["TableNames"]:
            raise RestoreRefused(
                [f"the engine has a table {app.table} already: begin with another folder (--data)"]
            )
        export = await check_wish(past, tables.table, tables.table, wanted)  # makes nothing
        request = _copied((await aws.dynamodb.describe_table(TableName=app.table))["Table"])
        await local.dynamodb.create_table(**request)
        target = await describe(local, app.table, type_attribute=None)
        rng = random.Random()

        async def apply(actions: Sequence[Action]) -> None:
            await transact(local.dynamodb, {target.name: target}, actions, rng)

        done = await _Restoring(past, tables.table, aws, target, apply, wanted, export).run()
        view = {"StreamEnabled": True, "StreamViewType": "NEW_AND_OLD_IMAGES"}
        await local.dynamodb.update_table(TableName=app.table, StreamSpecification=view)
        if tables.table.ttl is not None:
            expiry = {"Enabled": True, "AttributeName": tables.table.ttl}
            await local.dynamodb.update_time_to_live(
                TableName=app.table, TimeToLiveSpecification=expiry
            )
    return done


def _copied(described: Mapping[str, Any]) -> dict[str, Any]:
    """Return the `CreateTable` request for a table like one that was described, on demand."""
    request = {name: described[name] for name in ("TableName", "KeySchema", "AttributeDefinitions")}
    for member in ("GlobalSecondaryIndexes", "LocalSecondaryIndexes"):
        wanted = ("IndexName", "KeySchema", "Projection")
        if described.get(member):
            request[member] = [{name: one[name] for name in wanted} for one in described[member]]
    return request | {"BillingMode": "PAY_PER_REQUEST"}


@dataclass
class _Restoring:
    past: PastChanges
    source: TableSchema
    aws: Aws
    target: TableSchema
    apply: Apply
    wanted: RestoreWish
    export: Export | None
    _held: dict[ItemRef, Action] = field(default_factory=dict)
    _size: int = 0
    _begun: int = 0
    _turn: anyio.Lock = field(default_factory=anyio.Lock)

    def __post_init__(self) -> None:
        """Begin to count."""
        wanted, past = self.wanted, self.past
        begun = f"the archive began ({utc(past.began).isoformat()})"
        self.done = Restored(
            self.source.name,
            self.target.name,
            wanted.at,
            wanted.base,
            past.began,
            unknown="" if wanted.base else f"items that did not change since {begun}",
            losses=past.losses,
        )

    async def run(self) -> Restored:
        """Write everything, in the order that the module describes."""
        wanted, past = self.wanted, self.past
        if wanted.base:
            wanted.tell(f"the items of {wanted.base}")
            if self.export is None:
                items = scanned(self.aws, self.source)
            else:
                items = exported(self.export, self.source)
            async for item in items:
                await self._write(item_ref(self.target, item), item)
            await anyio.sleep(_SETTLED_SECONDS)
        if wanted.base != TABLE:
            await past.shards.each(self._redo)
        self._begun = 0
        await past.shards.each_backwards(self._undo)
        await self._flush()
        return self.done

    async def _redo(self, shard: str) -> bool:
        """Write what the changes of a shard up to the moment have made."""
        self._tell("changes")
        async for page in self.past.pages(shard, until=self.wanted.at):
            for record in page.records:
                await self._image(record, record.new_image)
        return True

    async def _undo(self, shard: str) -> bool:
        """Write what there was before each change of a shard since the moment."""
        self._tell("what was changed since")
        async for records in self.past.backwards(shard, self.wanted.at):
            for record in records:
                await self._image(record, record.old_image)
        return True

    def _tell(self, what: str) -> None:
        self._begun += 1
        self.wanted.tell(f"{what}, shard {self._begun} of {len(self.past.shards.parents)}")

    async def _image(self, record: Record, image: Any) -> None:
        self.done.note_read(record)
        if record.flaw:
            return
        if is_own(self.source, record.keys):
            return  # the stream's end has streamkit's own items; the archive leaves them out
        if image is not None:
            item = wire_image(image)
            await self._write(item_ref(self.target, item), item)
            return
        key = {name: encode(decode(value)) for name, value in record.keys.items()}
        await self._write(item_ref(self.target, key), None)

    async def _write(self, ref: ItemRef, item: dict[str, Wire] | None) -> None:
        """Hold a write; a later one of the same item takes its place."""
        verb = Verb.DELETE if item is None else Verb.PUT
        action = Action(ref, verb, item=item or {})
        self._held[ref] = action
        self._size += action.size()
        if len(self._held) >= _HELD_MAX or self._size >= 4 * BYTES_MAX:
            await self._flush()

    async def _flush(self) -> None:
        """Write what is held, behind what was held before: it may be of the same items."""
        async with self._turn:
            await self._apply()

    async def _apply(self) -> None:
        held, self._held, self._size = list(self._held.values()), {}, 0
        some: list[Action] = []
        size = 0
        for action in held:
            if len(some) == TOGETHER or (some and size + action.size() > BYTES_MAX):
                await self.apply(some)
                some, size = [], 0
            some.append(action)
            size += action.size()
        if some:
            await self.apply(some)
        self.done.note_written(held)
