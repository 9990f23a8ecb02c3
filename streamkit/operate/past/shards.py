"""The shards of the past: those of a stream and of its archive, parents before children.

In: a stream and its archive. Out: shards with their parents, what is known of one without links,
and the order in which shards are read. On failure: what is raised for one shard ends the others.
"""

from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field

import anyio

from streamkit.archive.completeness import orphans, shards_since, unknown
from streamkit.archive.long_pages import NotDecided
from streamkit.archive.shards import ArchivedShards
from streamkit.aws import Aws
from streamkit.fleet.cursors import every_cursor
from streamkit.progress.activity import task_group
from streamkit.progress.control import Cursor
from streamkit.progress.cursor import CursorStore
from streamkit.stream.lineage import Shard
from streamkit.stream.listing import is_gone, list_shards

Run = Callable[[str], Awaitable[bool]]
"""Takes a shard; returns whether it is done. If not, those that come after it are left out."""
_LOOKS, _LOOK_SECONDS = 20, 1.0
"""So many looks for the children of a shard that has ended, and the pause between them."""
_AT_ONCE = 4
"""Shards that are read side by side: each holds a link of its chain in memory."""


@dataclass
class PastShards:
    """The shards that a stream or its archive knows, with their `parents`, as listed last.

    They include shards that the archive's `writer` has read since the archive `began`.
    """

    aws: Aws
    arn: str
    archive: ArchivedShards
    writer: CursorStore
    began: float
    parents: dict[str, str | None] = field(default_factory=dict)
    _streamed: frozenset[str] = frozenset()
    _written: dict[str, Cursor] = field(default_factory=dict)
    _ended: dict[float, frozenset[str]] = field(default_factory=dict)
    _orphans: dict[float, dict[str, str]] = field(default_factory=dict)

    async def listed(self) -> dict[str, str | None]:
        """Return the parent of every shard, parents before children.

        The stream is asked first: shards move from there to the archive, never back. Then the
        writer: it records a shard in the archive before it has a cursor of it.

        Raises:
            NotDecided: a shard has ended, and the stream does not list its children yet.
        """
        streamed = await self._in_stream()
        self._written = await every_cursor(self.writer)
        parents = {one.id: one.parent for one in (*streamed, *await self.archive.shards())}
        for name in unknown(parents, self.began, self._written).keys() - parents:
            parents[name] = self._written[name].parent
        ordered: dict[str, None] = {}
        for name in sorted(parents):
            line = [name]
            while (parent := parents.get(line[-1])) in parents and parent not in ordered:
                line.append(str(parent))
            ordered |= dict.fromkeys(reversed(line))
        self._streamed = frozenset(one.id for one in streamed)
        self._orphans.clear()
        self.parents = {shard: parents[shard] for shard in ordered}
        return self.parents

    async def _in_stream(self) -> tuple[Shard, ...]:
        """Return the shards that the stream lists, once it lists the children of those that ended.

        It may list them late, and what is read of an item's past would lack its latest changes. In
        a stream that is not written any more, shards end without children.
        """
        for _ in range(_LOOKS):
            found = await list_shards(self.aws, self.arn)
            parents = {one.parent for one in found.shards}
            late = [one.id for one in found.shards if one.ending and one.id not in parents]
            if not (late and found.enabled):
                return found.shards
            await anyio.sleep(_LOOK_SECONDS)
        raise NotDecided(f"the stream does not list what follows shard {late[0]} yet; try again")

    async def each(self, run: Run) -> bool:
        """Run something for every shard, also for those that appear meanwhile; some at a time.

        A shard begins when its parent is done, so that the changes of an item keep their order.

        Returns:
            Whether all shards are done.
        """
        done, left = set[str](), set[str]()
        while True:
            lineage = await self.listed()
            todo = {s: (parent,) for s, parent in lineage.items() if s not in done | left}
            if not todo:
                return not left
            await run_in_order(todo, run, done, left)

    async def each_backwards(self, run: Run) -> None:
        """Run something for every shard that is there now; some at a time.

        A shard begins when all its children are done.
        """
        lineage = await self.listed()
        children: dict[str, list[str]] = {shard: [] for shard in reversed(lineage)}
        for shard, parent in lineage.items():
            if parent in children:
                children[parent].append(shard)
        await run_in_order(children, run, set(), set())

    def orphans(self, since: float) -> dict[str, str]:
        """Return the shards whose parents had changes since a moment, and are not known."""
        if since not in self._orphans:
            self._orphans[since] = orphans(self.parents, since)
        return self._orphans[since]

    async def is_gone(self, shard: str) -> bool:
        """Return whether the stream has forgotten a shard.

        One that it did not list may have appeared since; so it is asked again.
        """
        return shard not in self._streamed and await is_gone(self.aws, self.arn, shard)

    async def ended_before(self, shard: str, moment: float) -> bool:
        """Return whether the archive shows, by a shard or its descendants, that it ended before."""
        if moment not in self._ended:
            known = {one.id: one.parent for one in await self.archive.shards()}
            later = await shards_since(self.archive, known, moment)
            self._ended[moment] = frozenset(known) - later
        cursor = self._written.get(shard)
        read = cursor is not None and cursor.finished and cursor.ended < moment
        return read or shard in self._ended[moment]


async def run_in_order(
    after: Mapping[str, Collection[str | None]], run: Run, done: set[str], left: set[str]
) -> None:
    """Run something for each of these shards, and note whether it is done, or left.

    Each waits for the shards that it comes `after`; it is left if one of them is.
    """
    ended, limiter = {shard: anyio.Event() for shard in after}, anyio.Semaphore(_AT_ONCE)

    async def run_after(earlier: Collection[str | None], shard: str) -> None:
        for one in earlier:
            if one in ended:
                await ended[one].wait()
        async with limiter:
            fits = left.isdisjoint(earlier) and await run(shard)
        (done if fits else left).add(shard)
        ended[shard].set()

    async with task_group() as group:
        for shard, earlier in after.items():
            group.start_soon(run_after, earlier, shard)
