"""The workers of one process: what they share, and what the end of one means for the others."""

from contextlib import asynccontextmanager
from types import SimpleNamespace

import anyio
import pytest

from streamkit import App
from streamkit.errors import ConfigurationError, RetentionLost
from streamkit.settings import Settings
from streamkit.testing.loop import run_virtually
from streamkit.worker.process import Workers


def process(*apps):
    return Workers(apps, None, Settings(poll_floor=0.5))


def with_listener(name="shop", table="orders"):
    app = App(name, table=table)
    app.listener("beside")
    return app


# -- what they share -------------------------------------------------------------------------------


def test_consumers_of_one_table_share_its_pages_and_follow_the_first():
    workers = process(with_listener(), App("stock", table="orders"), App("alone", table="other"))
    first, beside, stock, alone = (worker._place for worker in workers.workers)
    assert first.reads is beside.reads is stock.reads is not None
    assert alone.reads is None
    assert [place.consumers for place in (first, beside, stock, alone)] == [3, 3, 3, 1]
    assert first.co_location() is alone.co_location() is None
    workers.workers[0]._crew = SimpleNamespace(shards=SimpleNamespace(held={"a": 1}))
    assert beside.co_location() == stock.co_location() == {"a"}


def test_workers_of_one_process_draw_different_random_numbers():
    one, other = process(with_listener()).workers
    assert one._machine.rng.random() != other._machine.rng.random()


class Owner:
    """An app with a lifespan, whose resources are its name."""

    def __init__(self, name, did=None):
        self.name, self.did = name, [] if did is None else did

    @asynccontextmanager
    async def resources(self):
        self.did.append(("open", self.name))
        yield (self.name,)
        self.did.append(("close", self.name))


class Worker:
    """A worker that runs until it is stopped, or raises an error; it notes what it was given."""

    def __init__(self, name, error=None, owner=None, *, idle=False):
        self.app = SimpleNamespace(name=name, resourceful=owner or Owner(name))
        self.error, self.idle, self.stopped, self.got = error, idle, anyio.Event(), "nothing"
        self.asked = []

    async def run(self, *, resources):
        self.got = resources
        if self.error is not None:
            raise self.error
        await self.stopped.wait()

    def stop(self):
        self.stopped.set()

    def is_idle(self, *pages):
        self.asked.append(pages)
        return self.idle


def running(*workers, first=(0,)):
    """Return a process of these workers; those with a number in `first` read for others."""
    made = process()
    made.workers = list(workers)
    made._first = {workers[number] for number in first}
    return made


# -- when one ends ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("failing", "error", "all_end"),
    [
        (1, RetentionLost("trimmed"), False),
        (0, RetentionLost("trimmed"), True),  # the others read what it reads
        (1, ConfigurationError("no permission"), True),
    ],
)
def test_a_listener_that_lost_changes_halts_alone_and_any_other_error_ends_all(
    failing, error, all_end
):
    async def main():
        workers = [Worker("shop"), Worker("shop.beside"), Worker("shop.third")]
        workers[failing].error = error
        made = running(*workers)

        async def look():
            await anyio.sleep(1)
            others = [one for one in workers if one is not workers[failing]]
            assert [one.stopped.is_set() for one in others] == [all_end] * 2
            assert made.stopping.is_set() is all_end
            made.stop()

        async with anyio.create_task_group() as group:
            group.start_soon(look)
            with pytest.raises(type(error)) as raised:
                await made.run()
        assert raised.value is error
        assert made.errors == [error]

    run_virtually(main)


def test_a_run_until_idle_waits_for_all_but_a_listener_that_halted_and_then_raises_its_loss():
    async def main():
        busy, lost = Worker("shop"), Worker("shop.beside", RetentionLost("trimmed"))
        made = running(busy, lost)

        async def calm_down():
            await anyio.sleep(3)
            busy.idle = True

        async with anyio.create_task_group() as group:
            group.start_soon(calm_down)
            with pytest.raises(RetentionLost):
                await made.run(until_idle=True)
        assert anyio.current_time() == pytest.approx(3, abs=0.6)
        assert busy.stopped.is_set()

    run_virtually(main)


@pytest.mark.parametrize("first", [True, False])
def test_each_worker_is_asked_whether_it_is_idle_even_behind_one_that_is_not(first):
    """A worker that is asked says so in its heartbeat, which others wait for."""
    busy, idle = Worker("shop"), Worker("shop.beside", idle=True)
    made = running(*((busy, idle) if first else (idle, busy)))
    assert not made.is_idle()
    assert not made.is_idle(3)
    assert busy.asked == idle.asked == [(), (3,)]


# -- the lifespan ----------------------------------------------------------------------------------


def test_a_lifespan_that_several_consumers_use_is_run_once_and_one_of_a_single_one_by_itself():
    did = []

    async def main():
        both, single = Owner("both", did), Owner("single", did)
        workers = [Worker("a", owner=both), Worker("b", owner=both), Worker("c", owner=single)]
        made = running(*workers)

        async def stop():
            await anyio.sleep(1)
            assert did == [("open", "both")]
            made.stop()

        async with anyio.create_task_group() as group:
            group.start_soon(stop)
            await made.run()
        assert [worker.got for worker in workers] == [("both",), ("both",), None]

    run_virtually(main)
    assert did == [("open", "both"), ("close", "both")]
