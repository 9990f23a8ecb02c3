"""Raise the high-water marks of items to what workers have done in shards.

In: cursors, whose positions may still grow, and a stream. Out: each item's mark is at its last
change before its shard's position. A mark is never lowered, so that any part of this may run again.
On failure: `MoveRefused` if a shard does not contain the records that its position says were read.
"""

from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field

import anyio

from streamkit.aws import PASSING, AwsError, ErrorKind, trouble_of
from streamkit.aws_lambda.environment import Environment
from streamkit.aws_lambda.high_water_marks import HighWaterMarks
from streamkit.changes import ItemKey
from streamkit.core.high_water_mark import expiry, mark_name, mark_path
from streamkit.effects import Guard
from streamkit.errors import LeaseLost, RetentionLost
from streamkit.model.conditions import Attr, absent, any_of
from streamkit.operate.moves.fence import MoveFence
from streamkit.operate.moves.moved import MoveRefused
from streamkit.operate.moves.passage import TIP_PAGES, open_reader
from streamkit.progress.actions import MARK_GUARD, Action, GuardSource
from streamkit.progress.activity import each_of
from streamkit.progress.control import START, Cursor
from streamkit.progress.verdicts import Invalid, RefusedCommit
from streamkit.stream.reader import ShardReader
from streamkit.stream.start import RETENTION_SECONDS, STAMP_SECONDS

_AT_ONCE = 16
_WRITES_AT_ONCE = 32
_EMPTY_PAUSE = 0.25
_EMPTY_MAX = 10 * TIP_PAGES
_ALL = "~"
"""A value that sorts after every position."""


@dataclass(frozen=True, slots=True)
class _Change:
    """What is kept of a record that was read before its shard's position reached it."""

    key: ItemKey
    position: str
    created_at: float


@dataclass
class _LaggingShard:
    """A shard that is read behind its workers; `ahead` are changes after its position."""

    reader: ShardReader
    ahead: deque[_Change] = field(default_factory=deque)


@dataclass
class Marking:
    """Reads shards behind their cursors; `records` counts the records that were read."""

    environment: Environment
    records: int = 0
    _shards: dict[str, _LaggingShard] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Open the consumer's control items."""
        self.store, self.clock = self.environment.store, self.environment.clock
        self._writers = anyio.Semaphore(_WRITES_AT_ONCE)

    async def raise_all(self, cursors: Mapping[str, Cursor]) -> None:
        """Raise the marks of everything that is done according to these cursors."""
        await each_of(_AT_ONCE, cursors.values(), self._raise_shard)

    async def _raise_shard(self, cursor: Cursor) -> None:
        """Raise the marks of the items that changed in a shard, up to its position."""
        upto = _ALL if cursor.finished else "" if cursor.position == START else cursor.position
        since = cursor.since if self.clock.time() - cursor.since < RETENTION_SECONDS else 0
        shard = self._shard(cursor.name)
        more = True
        while more:
            done: dict[ItemKey, str] = {}
            while shard.ahead and (
                shard.ahead[0].position <= upto or shard.ahead[0].created_at < since
            ):
                change = shard.ahead.popleft()
                done[change.key] = change.position
            async with anyio.create_task_group() as group:
                for key, position in done.items():
                    group.start_soon(self._raise, key, position)
            reader = shard.reader
            enough = not upto or (reader.position != START and reader.position >= upto)
            # Records in a row that nobody listens to are no tip, and need not end.
            passed = not since or reader.dated > since + STAMP_SECONDS
            more = not shard.ahead and not (enough and passed)
            more = more and await self._read(shard, "" if enough else upto)

    async def _read(self, shard: _LaggingShard, upto: str) -> bool:
        """Read a few more records; return False at the shard's end, or at its tip if all is found.

        Raises:
            MoveRefused: the shard does not contain the records that its position says were read.
        """
        reader, empty = shard.reader, 0
        while not reader.ended and empty < _EMPTY_MAX:
            try:
                page = await reader.read()
            except RetentionLost as lost:
                reader.resume(lost)  # a mapping cannot deliver trimmed records again
                continue
            if page is None:
                await anyio.sleep(reader.wait)
                continue
            if page.records:
                self.records += len(page.records)
                shard.ahead.extend(
                    _Change(record.item_key, record.position, record.created_at)
                    for record in page.records
                    if self.environment.dispatcher.wants(record)
                )
                return True
            empty += 1
            if empty >= TIP_PAGES and (upto in ("", _ALL) or await self._is_trimmed(reader, upto)):
                return False
            await anyio.sleep(0 if reader.ended else _EMPTY_PAUSE)
        if reader.ended:
            return False
        raise MoveRefused([f"shard {reader.shard_id} cannot be read up to its position"])

    async def _is_trimmed(self, reader: ShardReader, position: str) -> bool:
        """Return whether the record at a position, and so all before it, is trimmed."""
        try:
            await self.environment.aws.get_iterator(
                StreamArn=reader.stream_arn,
                ShardId=reader.shard_id,
                ShardIteratorType="AT_SEQUENCE_NUMBER",
                SequenceNumber=position.lstrip("0"),
            )
        except AwsError as error:
            if trouble_of(error) in (ErrorKind.TRIMMED, ErrorKind.MISSING):
                return True
            if trouble_of(error) not in PASSING:
                raise
        return False

    def _shard(self, name: str) -> _LaggingShard:
        if name not in self._shards:
            arn = self.environment.tables.table.stream_arn or ""
            aws, rng = self.environment.aws, self.environment.rng
            self._shards[name] = _LaggingShard(open_reader(aws, arn, name, self.clock, rng))
        return self._shards[name]

    async def _raise(self, key: ItemKey, position: str) -> None:
        """Raise an item's mark at least to this position: everything up to it is done."""
        action = self._mark(key, position)
        action.sets["expires"] = expiry(self.clock.time())  # parked queues are named last
        action.removes.add("done")
        before = any_of(absent, Attr("position").lt(position))
        action.only_if(before)
        async with self._writers:
            with suppress(LeaseLost):  # the mark is further already
                await self.store.write(action)

    def _mark(self, key: ItemKey, position: str) -> Action:
        name = mark_name(key)
        path = mark_path(self.environment.incarnation, name)
        action = self.store.space.update(*path)
        action.sets |= {"name": {"S": name}, "position": {"S": position}}
        return action

    async def add(
        self, key: ItemKey, attribute: str, names: frozenset[str], fence: MoveFence, *checks: Action
    ) -> None:
        """Add names to an item's mark, IF these conditions hold.

        Raises:
            MoveRefused: another mover is the current one.
        """
        marks = HighWaterMarks(self.store, self.clock, self.environment.incarnation)
        while True:
            await marks.read([key])
            mark = marks.known[key]
            action = self._mark(key, mark.token)
            action.unions[attribute] = {"SS": sorted(names)}
            if attribute == "lanes" or mark.queues:
                action.removes.add("expires")
            else:
                action.sets["expires"] = expiry(self.clock.time())
            as_read = Attr("position").eq(mark.token)
            guard = as_read if mark.token else any_of(absent, as_read)
            action.guards.append((Guard(guard), GuardSource("", mark_name(key), MARK_GUARD)))
            sent = await fence.transact([action, *checks], self.environment.rng)
            if isinstance(sent, Invalid):
                raise MoveRefused([f"a high-water mark cannot be written: {sent.code}"])
            if not isinstance(sent, RefusedCommit) or any(
                s.effect != MARK_GUARD for s in sent.sources
            ):
                return

    async def name_done(self, cursor: Cursor, fence: MoveFence) -> None:
        """Name, in its item's mark, the handlers that are done with the change after a cursor.

        Such a change was committed for some of its handlers only.

        Raises:
            MoveRefused: the shard does not have the change, or another mover is the current one.
        """
        shard = self._shard(cursor.name)
        position = min(mark.partition(":")[0] for mark in cursor.done)  # all are of one change
        while not shard.ahead and await self._read(shard, position):
            pass
        if not shard.ahead or shard.ahead[0].position != position:
            raise MoveRefused([f"shard {cursor.name} does not show the change that was begun"])
        await self.add(shard.ahead[0].key, "done", cursor.done, fence)
