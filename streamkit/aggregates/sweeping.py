"""Sweeping: the ledger of a build goes once nobody will look into it again.

In: the builds whose scan has ended. Out: one by one, when every cursor there is (those of finished
shards too: late children inherit from them) is live for it, and nothing is parked that is counted
by it: its entries and its segments are deleted, those of builds before it too, and the build is
live. Finished cursors are kept for two days, so a sweep comes two to three days after a build. What
is left of a build whose aggregate has changed meanwhile goes at once.

On failure: it is begun again by whoever leads next; deleting twice does no harm. On a table without
a sort key entries are found by a scan of the whole table.
"""

import random
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import anyio

from streamkit.actions import Wire
from streamkit.aws import patiently
from streamkit.clock import Clock
from streamkit.cursor import CursorStore
from streamkit.errors import LeaseLost
from streamkit.fleet.cursors import every_cursor
from streamkit.fleet.generation import newest_generation, step_builds
from streamkit.migrate.segments import Segments
from streamkit.model.builds import TURN_SECONDS, Build, build_mark, pass_name
from streamkit.observe.logger import get_logger
from streamkit.parked.listing import held_lanes, list_parked
from streamkit.processing.ledger import PARTITIONS, ledger_kind

log = get_logger("streamkit.rebuild")

_LOOK_SECONDS = 900.0
"""Between two looks whether a ledger can go; each reads every cursor."""
_AT_ONCE = 8
"""Deletions at the same time: nothing waits for them."""


@dataclass
class Sweeping:
    """Sweeps the ledgers of one consumer, for the worker that leads."""

    store: CursorStore
    clock: Clock
    rng: random.Random
    _look_at: float = 0.0

    async def once(self) -> None:
        """Sweep what can be swept, if it is time to look."""
        if self.clock.monotonic() < self._look_at:
            return
        self._look_at = self.clock.monotonic() + _LOOK_SECONDS
        newest = await newest_generation(self.store)
        now = self.clock.time()
        for name, build in (newest.builds if newest else {}).items():
            if build.state == "counting" and now > build.scanned + TURN_SECONDS:
                await self._look(name, build)
            elif build.state == "live" and build.past:
                await self._sweep(name, build, build.past)

    async def _look(self, name: str, build: Build) -> None:
        """Sweep the ledger of a build if nobody will look into it again."""
        mark = build_mark(name, build.number)
        cursors = await every_cursor(self.store)
        if not all(mark in cursor.live for cursor in cursors.values()):
            return
        lanes = [lane for lane in await held_lanes(self.store, cursors) if lane.handler == name]
        if any(parked.build for parked in await list_parked(self.store, lanes)):
            return
        await self._sweep(name, build, (*build.past, (build.number, build.segments)))

    async def _sweep(self, name: str, build: Build, over: Iterable[tuple[int, int]]) -> None:
        swept = sum([await self._delete_build(name, *each) for each in over])
        await self._finish(name, build)
        log.info("ledger.swept", aggregate=name, build=build.number, entries=swept)

    async def delete_all(self) -> int:
        """Delete what all builds have left: nobody is there any more; return how many entries."""
        newest, deleted = await newest_generation(self.store), 0
        for name, build in (newest.builds if newest else {}).items():
            for each in (*build.past, (build.number, build.segments)):
                deleted += await self._delete_build(name, *each)
        return deleted

    async def _delete_build(self, name: str, number: int, segments: int) -> int:
        deleted = 0
        async for keys in self._entries(name, number):
            await self._delete(keys)
            deleted += len(keys)
        scan = pass_name(name, number)
        await Segments(self.store, scan, segments, self.clock, self.rng).delete()
        return deleted

    async def _finish(self, name: str, build: Build) -> None:
        """Say that the build is live, if it is still the last one."""
        while True:
            newest = await newest_generation(self.store)
            if newest is None or newest.builds.get(name) != build:
                return
            live = replace(build, state="live", past=())
            try:
                await step_builds(self.store, newest, {**newest.builds, name: live})
            except LeaseLost:
                continue
            return

    # -- entries -------------------------------------------------------------------------------

    async def _entries(self, name: str, number: int) -> AsyncIterator[list[dict[str, Wire]]]:
        """Yield the keys of a ledger's entries, page by page."""
        space = self.store.space
        if space.schema.sk is None:
            prefix = space.text("ledger", name, str(number)) + "#"
            async for keys in self._pages(
                "scan",
                FilterExpression="begins_with(#p, :p)",
                ExpressionAttributeValues={":p": {"S": prefix}},
            ):
                yield keys
            return
        for partition in range(PARTITIONS):
            kind = ledger_kind(name, number, partition)
            async for keys in self._pages(
                "query",
                KeyConditionExpression="#p = :p",
                ExpressionAttributeValues={":p": {"S": space.text(kind)}},
            ):
                yield keys

    async def _pages(
        self, operation: str, **arguments: Any
    ) -> AsyncIterator[list[dict[str, Wire]]]:
        schema = self.store.space.schema
        names = {"#p": schema.pk} | ({"#s": schema.sk} if schema.sk else {})
        request = {
            "TableName": schema.name,
            "ExpressionAttributeNames": names,
            "ProjectionExpression": ", ".join(names),
            **arguments,
        }
        call = getattr(self.store.dynamodb, operation)
        while True:
            reply = await patiently(lambda: call(**request))
            if reply["Items"]:
                yield reply["Items"]
            if "LastEvaluatedKey" not in reply:
                return
            request["ExclusiveStartKey"] = reply["LastEvaluatedKey"]

    async def _delete(self, keys: Sequence[dict[str, Wire]]) -> None:
        limiter, table = anyio.Semaphore(_AT_ONCE), self.store.space.schema.name

        async def delete(key: dict[str, Wire]) -> None:
            async with limiter:
                await patiently(lambda: self.store.dynamodb.delete_item(TableName=table, Key=key))

        async with anyio.create_task_group() as group:
            for key in keys:
                group.start_soon(delete, key)
