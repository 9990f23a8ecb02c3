"""The order in which the past of a table's shards is read: parents before children, some at a time.

In: shards with their parents. Out: what was done for each. On failure: what is raised for one shard
ends the others.
"""

from collections.abc import Awaitable, Callable, Mapping

import anyio

from streamkit.progress.activity import task_group

_AT_ONCE = 4
"""Shards that are read side by side: each holds a link of its chain in memory."""


async def run_in_order(
    parents: Mapping[str, str | None],
    run: Callable[[str], Awaitable[bool]],
    done: set[str],
    left: set[str],
) -> None:
    """Run something for each of these shards, and note whether it is done, or left."""
    ended, limiter = {shard: anyio.Event() for shard in parents}, anyio.Semaphore(_AT_ONCE)

    async def run_after(parent: str | None, shard: str) -> None:
        if parent in ended:
            await ended[parent].wait()
        async with limiter:
            fits = parent not in left and await run(shard)
        (done if fits else left).add(shard)
        ended[shard].set()

    async with task_group() as group:
        for shard, parent in parents.items():
            group.start_soon(run_after, parent, shard)
