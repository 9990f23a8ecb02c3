"""Delete the ledger of a build once no process will read it again.

In: the builds whose scan has ended. Out: a build is over when every cursor (those of finished
shards too: late children inherit from them) is live for it, and no change is parked that is counted
by it. Then its entries and its segments are deleted, those of builds before it too, and the build
is live. Finished cursors are kept for two days, so the deletion comes two to three days after a
build. Functions have no cursors: their ledgers are deleted a day after the build. What is left of a
build whose aggregate has changed meanwhile is deleted at once.

On failure: the next leader starts the deletion again; deleting twice does no harm. Each transaction
checks the builds that the decision was based on, so that a process that froze deletes nothing of a
consumer that was founded later under the same name. On a table without a sort key entries are found
by a scan of the whole table, in segments, so that it continues where it was interrupted.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from streamkit.core.ledger import PARTITIONS, ledger_kind
from streamkit.core.parked.queues import list_parked, parked_queues
from streamkit.errors import LeaseLost
from streamkit.fleet.cursors import every_cursor
from streamkit.fleet.generation import (
    Generation,
    consumer_operation,
    newest_generation,
    same_builds,
    stepped,
)
from streamkit.fleet.hosting import LAMBDA
from streamkit.fleet.members import new_worker_name
from streamkit.kinds.aggregate.backfill import left_out_name
from streamkit.model.builds import (
    SWEPT_SECONDS,
    TURN_SECONDS,
    Build,
    build_mark,
    pass_name,
    reset_name,
)
from streamkit.model.schema import TableSchema
from streamkit.observe.logger import get_logger
from streamkit.progress.actions import Action
from streamkit.progress.clock import Clock
from streamkit.progress.cursor import CursorStore
from streamkit.progress.fenced import TOGETHER, Fenced
from streamkit.progress.fetch import pages_of
from streamkit.progress.operation import Step
from streamkit.progress.scan.pages import PAGE_ITEMS, Reply, ScanPages, patient
from streamkit.progress.scan.scan import TableScan
from streamkit.progress.scan.segment import LeasedSegment

log = get_logger("streamkit.rebuild")

_LOOK_SECONDS = 900.0
"""Seconds between two checks whether a ledger can be deleted; each check reads every cursor."""


@dataclass
class Sweeping:
    """Deletes the ledgers of one consumer, for the worker that leads."""

    store: CursorStore
    clock: Clock
    rng: random.Random
    _look_at: float = 0.0

    async def once(self) -> None:
        """Delete the ledgers that are over, if it is time to look for them."""
        if self.clock.monotonic() < self._look_at:
            return
        self._look_at = self.clock.monotonic() + _LOOK_SECONDS
        newest = await newest_generation(self.store)
        if newest is None:
            return
        now, functions = self.clock.time(), newest.host == LAMBDA
        after = SWEPT_SECONDS if functions else TURN_SECONDS
        for name, build in newest.builds.items():
            try:
                if build.state == "counting" and now > build.scanned + after:
                    if await self._is_over(name, build, functions=functions):
                        await self._sweep(
                            name, build, (*build.past, (build.number, build.segments))
                        )
                elif build.state == "live" and build.past:
                    await self._sweep(name, build, build.past)
            except LeaseLost as error:
                log.info("ledger.kept", aggregate=name, build=build.number, reason=str(error))

    async def _is_over(self, name: str, build: Build, *, functions: bool) -> bool:
        """Return whether no process will read the ledger of a build again."""
        mark = build_mark(name, build.number)
        cursors = {} if functions else await every_cursor(self.store)
        if not all(mark in cursor.live for cursor in cursors.values()):
            return False
        queues = [
            queue for queue in await parked_queues(self.store, cursors) if queue.handler == name
        ]
        return not any(parked.build for parked in await list_parked(self.store, queues))

    async def _sweep(self, name: str, build: Build, over: Sequence[tuple[int, int]]) -> None:
        """Delete the ledgers that are over, one by one; after the last one the build is live.

        Raises:
            LeaseLost: another step was taken.
        """
        swept, last = 0, build.number
        for at, (number, segments) in enumerate(over, 1):
            newest = _still(await newest_generation(self.store), name, build)
            broom = Broom(Fenced(self.store, same_builds(newest), self.rng), self.clock)
            swept += await broom.sweep(name, number, segments, last=last)
            past = tuple(each for each in over[at:] if each[0] != last)
            then = replace(build, past=past, state=build.state if over[at:] else "live")
            await self._step(name, build, then, broom.scan(name, number, segments).deletions())
            build = then
        log.info("ledger.swept", aggregate=name, build=last, entries=swept)

    async def _step(self, name: str, build: Build, then: Build, along: Sequence[Action]) -> None:
        """Store how far the deletion is, in one write with the end of the sweep's own progress.

        With two writes, a process that is killed in between would restart the whole deletion each
        time.
        """

        async def swept(newest: Generation | None) -> Step[Generation | None]:
            still = _still(newest, name, build)
            return Step(stepped(still, {**still.builds, name: then}), along)

        await consumer_operation(self.store).change(swept)


def _still(newest: Generation | None, name: str, build: Build) -> Generation:
    if newest is None or newest.builds.get(name) != build:
        raise LeaseLost("another step of the build was taken")
    return newest


@dataclass
class Broom:
    """Deletes what builds have left, IF the consumer is as it was read."""

    fenced: Fenced
    clock: Clock

    async def sweep_all(self, builds: Mapping[str, Build]) -> int:
        """Delete what all builds have left, because no process uses it; return how many entries."""
        deleted = 0
        for name, build in builds.items():
            for number, segments in (*build.past, (build.number, build.segments)):
                deleted += await self.sweep(name, number, segments)
                await self.scan(name, number, segments).delete()
        return deleted

    async def sweep(self, name: str, number: int, segments: int, *, last: int = 0) -> int:
        """Delete what a build has left, but not what the last build says of the aggregate.

        On a table without a sort key, the segments that store its progress stay: see `scan`.

        Raises:
            LeaseLost: the consumer is not as it was read.
        """
        store = self.fenced.store
        if store.space.schema.sk is None:
            deleted = await self._delete_scanned(name, number, segments)
        else:
            deleted = await self._delete_queried(name, number)
        if number != last:
            await self.fenced.delete([store.space.key(*left_out_name(name, number))])
        for scan in (pass_name(name, number), reset_name(name, number)):
            await self._table_scan(scan, segments).delete()
        return deleted

    def scan(self, name: str, number: int, segments: int) -> TableScan:
        """Return the segments of a sweep; none where it needs no scan."""
        scans = self.fenced.store.space.schema.sk is None
        return self._table_scan(f"sweep.{name}.{number}", min(segments, TOGETHER) if scans else 0)

    def _table_scan(self, name: str, total: int) -> TableScan:
        fenced = self.fenced
        return TableScan(fenced.store, name, total, self.clock, fenced.rng, fence=fenced)

    async def _delete_queried(self, name: str, number: int) -> int:
        """Delete a ledger's entries, partition by partition; return how many there were."""
        store, deleted = self.fenced.store, 0
        for partition in range(PARTITIONS):
            request = {
                **_keys_only(store.space.schema),
                "KeyConditionExpression": "#p = :p",
                "ExpressionAttributeValues": {
                    ":p": {"S": store.space.text(ledger_kind(name, number, partition))}
                },
            }
            async for reply in pages_of(store.dynamodb.query, **request):
                deleted += await self.fenced.delete(reply["Items"])
        return deleted

    async def _delete_scanned(self, name: str, number: int, total: int) -> int:
        """Delete the entries that a scan of the table finds; return how many were found here."""
        store, deleted = self.fenced.store, 0
        space = store.space
        ours = {
            **_keys_only(space.schema),
            "FilterExpression": "begins_with(#p, :p)",
            "ExpressionAttributeValues": {
                ":p": {"S": space.text("ledger", name, str(number)) + "#"}
            },
        }

        async def visit(segment: LeasedSegment, reply: Reply) -> None:
            nonlocal deleted
            deleted += await self.fenced.delete(reply["Items"])
            await segment.advance(reply.get("LastEvaluatedKey"))

        pages = ScanPages(patient(store.dynamodb), space.schema.name, PAGE_ITEMS, ours)
        await self.scan(name, number, total).run(pages, visit, new_worker_name())
        return deleted


def _keys_only(schema: TableSchema) -> dict[str, Any]:
    names = {"#p": schema.pk} | ({"#s": schema.sk} if schema.sk else {})
    return {
        "TableName": schema.name,
        "ExpressionAttributeNames": names,
        "ProjectionExpression": ", ".join(names),
    }
