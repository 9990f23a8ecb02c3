"""Sweeping: the ledger of a build goes once nobody will look into it again.

In: the builds whose scan has ended. Out: one by one, when every cursor there is (those of finished
shards too: late children inherit from them) is live for it, and nothing is parked that is counted
by it: its entries and its segments are deleted, those of builds before it too, and the build is
live. Finished cursors are kept for two days, so a sweep comes two to three days after a build.
Functions have no cursors: theirs comes a day after it. What is left of a build whose aggregate has
changed meanwhile goes at once.

On failure: it is begun again by whoever leads next; deleting twice does no harm. On a table without
a sort key entries are found by a scan of the whole table, in segments, so that it goes on where it
was broken off.
"""

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import anyio

from streamkit.actions import Wire
from streamkit.aggregates.census import left_out_name
from streamkit.aws import patiently
from streamkit.clock import Clock
from streamkit.cursor import CursorStore
from streamkit.errors import LeaseLost
from streamkit.fleet.cursors import every_cursor
from streamkit.fleet.generation import newest_generation, step_builds
from streamkit.fleet.hosting import LAMBDA
from streamkit.fleet.members import new_worker_name
from streamkit.migrate.segments import Segment, Segments
from streamkit.model.builds import SWEPT_SECONDS, TURN_SECONDS, Build, build_mark, pass_name
from streamkit.model.schema import TableSchema
from streamkit.observe.logger import get_logger
from streamkit.parked.listing import held_lanes, list_parked
from streamkit.processing.ledger import PARTITIONS, ledger_kind

log = get_logger("streamkit.rebuild")

_LOOK_SECONDS = 900.0
"""Between two looks whether a ledger can go; each reads every cursor."""
_PAGE_ITEMS = 1000
"""Items that a scan reads at a time; DynamoDB ends a page at 1 MB anyway."""
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
            functions = newest is not None and newest.host == LAMBDA
            after = SWEPT_SECONDS if functions else TURN_SECONDS
            if build.state == "counting" and now > build.scanned + after:
                await self._look(name, build, functions=functions)
            elif build.state == "live" and build.past:
                await self._sweep(name, build, build.past)

    async def _look(self, name: str, build: Build, *, functions: bool) -> None:
        """Sweep the ledger of a build if nobody will look into it again."""
        mark = build_mark(name, build.number)
        cursors = {} if functions else await every_cursor(self.store)
        if not all(mark in cursor.live for cursor in cursors.values()):
            return
        lanes = [lane for lane in await held_lanes(self.store, cursors) if lane.handler == name]
        if any(parked.build for parked in await list_parked(self.store, lanes)):
            return
        await self._sweep(name, build, (*build.past, (build.number, build.segments)))

    async def _sweep(self, name: str, build: Build, over: Iterable[tuple[int, int]]) -> None:
        last = build.number
        swept = sum([await self._delete_build(name, *each, last=last) for each in over])
        await self._finish(name, build)
        log.info("ledger.swept", aggregate=name, build=build.number, entries=swept)

    async def delete_all(self) -> int:
        """Delete what all builds have left: nobody is there any more; return how many entries."""
        newest, deleted = await newest_generation(self.store), 0
        for name, build in (newest.builds if newest else {}).items():
            for each in (*build.past, (build.number, build.segments)):
                deleted += await self._delete_build(name, *each)
        return deleted

    async def _delete_build(self, name: str, number: int, segments: int, *, last: int = 0) -> int:
        """Delete what a build has left, but not what the last one says of the aggregate."""
        if self.store.space.schema.sk is None:
            deleted = await self._delete_scanned(name, number, segments)
        else:
            deleted = await self._delete_queried(name, number)
        if number != last:
            await self._delete([self.store.space.key(*left_out_name(name, number))])
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

    async def _delete_queried(self, name: str, number: int) -> int:
        """Delete a ledger's entries, partition by partition; return how many there were."""
        schema, deleted = self.store.space.schema, 0
        for partition in range(PARTITIONS):
            request = {
                **_keys_only(schema),
                "KeyConditionExpression": "#p = :p",
                "ExpressionAttributeValues": {
                    ":p": {"S": self.store.space.text(ledger_kind(name, number, partition))}
                },
            }
            last: Any = {}
            while last is not None:
                call = partial(self.store.dynamodb.query, **request, **last)
                reply = await patiently(call)
                await self._delete(reply["Items"])
                deleted += len(reply["Items"])
                more = "LastEvaluatedKey" in reply
                last = {"ExclusiveStartKey": reply["LastEvaluatedKey"]} if more else None
        return deleted

    async def _delete_scanned(self, name: str, number: int, total: int) -> int:
        """Delete what a scan of the whole table finds; return how many were found here."""
        space, deleted = self.store.space, 0
        sweep = Segments(self.store, f"sweep.{name}.{number}", total, self.clock, self.rng)
        ours = {
            **_keys_only(space.schema),
            "FilterExpression": "begins_with(#p, :p)",
            "ExpressionAttributeValues": {
                ":p": {"S": space.text("ledger", name, str(number)) + "#"}
            },
        }

        async def serve(segment: Segment) -> None:
            nonlocal deleted
            while not (segment.finished or segment.stopping.is_set()):
                page = segment.scan_request(space.schema.name, limit=_PAGE_ITEMS) | ours
                reply = await patiently(partial(self.store.dynamodb.scan, **page))
                await self._delete(reply["Items"])
                deleted += len(reply["Items"])
                await segment.advance(reply.get("LastEvaluatedKey"))

        await sweep.run(serve, new_worker_name())
        await sweep.delete()
        return deleted

    async def _delete(self, keys: Sequence[dict[str, Wire]]) -> None:
        limiter, table = anyio.Semaphore(_AT_ONCE), self.store.space.schema.name

        async def delete(key: dict[str, Wire]) -> None:
            async with limiter:
                await patiently(lambda: self.store.dynamodb.delete_item(TableName=table, Key=key))

        async with anyio.create_task_group() as group:
            for key in keys:
                group.start_soon(delete, key)


def _keys_only(schema: TableSchema) -> dict[str, Any]:
    names = {"#p": schema.pk} | ({"#s": schema.sk} if schema.sk else {})
    return {
        "TableName": schema.name,
        "ExpressionAttributeNames": names,
        "ProjectionExpression": ", ".join(names),
    }
