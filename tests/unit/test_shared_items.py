"""An item that several runs read is read once."""

import anyio

from streamkit.core.shared_items import SharedItems
from streamkit.progress.actions import ItemRef

REF = ItemRef("Shop", ("S", "P#1"), None)
THERE = {"name": {"S": "anvil"}}


class Reads:
    """Counts reads of one item; each takes until it is let through."""

    def __init__(self):
        self.items, self.begun, self.go, self.got = SharedItems(), 0, anyio.Event(), []

    async def read(self):
        self.begun += 1
        await self.go.wait()
        return THERE

    async def once(self):
        self.got.append(await self.items.once(REF, self.read))


async def test_runs_at_the_same_time_read_an_item_once():
    reads = Reads()
    async with anyio.create_task_group() as group:
        for _ in range(5):
            group.start_soon(reads.once)
        await anyio.wait_all_tasks_blocked()
        reads.go.set()
    await reads.once()
    assert (reads.begun, reads.got) == (1, [THERE] * 6)


async def test_a_run_that_is_canceled_while_it_reads_leaves_its_turn_to_the_next():
    reads, first = Reads(), anyio.CancelScope()

    async def canceled():
        with first:
            await reads.once()

    async with anyio.create_task_group() as group:
        group.start_soon(canceled)
        await anyio.wait_all_tasks_blocked()
        group.start_soon(reads.once)
        await anyio.wait_all_tasks_blocked()
        first.cancel()
        reads.go.set()
    assert (reads.begun, reads.got) == (2, [THERE])
