"""How long a consumer stands still: at its start, and while an aggregate is rebuilt.

Calls take no time here, so what is left is streamkit's own waiting.
"""

import pytest

from streamkit import App
from streamkit.settings import Settings
from streamkit.testing.world import Process
from tests.simulation.rebuilds import TABLE, Operator, Sale, Sales

STEP = 0.05
STARTS = 0.5
"""The bound of the first effect after a start: nothing is waited for."""
RESTS = 1.5
"""The bound of a rebuild, until changes are counted again: a poll, a look, and joining again."""


def open_shop(harness_of, seed, shards=2):
    app = App("shop", table=TABLE)
    app.aggregate(Sales)
    return harness_of(app, settings=Settings(), seed=seed, shards=shards)


def put_sales(harness, first):
    harness.put(*(Sale(number=number, shop="a") for number in range(first, first + 10)))


def seconds_until(harness, happened):
    began = harness.world.clock.time()
    while not happened():
        assert harness.world.clock.time() < began + 60, "it never happens"
        harness.advance(STEP)
    return harness.world.clock.time() - began


def counted(harness):
    sales = harness.get(Sales.key(shop="a"))
    return sales.sales if sales else 0


class Others:
    """Workers beside the harness's own."""

    def __init__(self, harness, number):
        self.processes = [Process(f"other-{n}", clock=harness.world.clock) for n in range(number)]
        self.tasks = [
            harness._loop.create_task(
                harness.world.run_worker(
                    harness.app, process=process, settings=Settings(), until_idle=False
                )
            )
            for process in self.processes
        ]

    def end(self, harness):
        for process in self.processes:
            process.kill()
        harness.advance(1)
        assert [task.result() for task in self.tasks] == [False] * len(self.tasks)


@pytest.mark.parametrize("shards", [1, 4, 16])
def test_a_start_waits_for_nothing_before_its_first_effect(harness_of, shards):
    harness = open_shop(harness_of, seed=shards, shards=shards)
    put_sales(harness, 0)
    assert seconds_until(harness_with_worker(harness), lambda: counted(harness) == 10) <= STARTS


def harness_with_worker(harness):
    async def begin():
        harness.worker.ensure()

    harness._run(begin())
    return harness


@pytest.mark.parametrize("shards", [1, 4])
def test_a_start_after_an_orderly_end_waits_for_nothing(harness_of, shards):
    harness = open_shop(harness_of, seed=shards, shards=shards)
    harness.settle()
    harness.stop()
    harness.advance("1m")
    put_sales(harness, 0)
    assert seconds_until(harness_with_worker(harness), lambda: counted(harness) == 10) <= STARTS


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("others", [0, 3])
def test_changes_are_counted_soon_after_a_rebuild_begins(harness_of, others, seed):
    """Whichever workers hold the shards: also those to which none is assigned."""
    harness = open_shop(harness_of, seed)
    harness.settle()
    put_sales(harness, 0)
    harness.settle()
    beside = Others(harness, others)
    harness.advance(20 + seed * 0.37)
    operator = Operator(harness)
    waited = seconds_until(harness, lambda: operator.done is not None)
    put_sales(harness, 10)
    waited += seconds_until(harness, lambda: counted(harness) == 20)
    beside.end(harness)
    assert waited <= RESTS + 0.5 * bool(others)  # others join again at their next look
