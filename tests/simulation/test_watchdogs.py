"""What a worker does that is alive and cannot do its work: the stream or the table do not answer it."""

import anyio
import pytest

from tests.simulation.crew import TABLE, Fleet
from tests.simulation.test_fleet import THREE, run, settled

CUT_OFF_SECONDS = 30.0

# -- the stream does not answer one ------------------------------------------------------------------


async def cut_off(workers, leading):
    names = [f"w{n}" for n in range(workers)]
    fleet = Fleet(8)
    async with fleet.running(*names):
        await settled(fleet, *names)
        leader = fleet.leader()
        name = leader if leading else next(n for n in names if n != leader)
        fleet.lives[name].deaf = "dynamodbstreams"
        since = fleet.now
        took = await fleet.until(lambda: fleet.all_read(since + 0.01, without=(name,)))
        assert took <= CUT_OFF_SECONDS
        await anyio.sleep(35)
        assert fleet.leader() != name
        fleet.write(50)
        rolled = fleet.now
        fleet.world.control.roll(TABLE)
        await fleet.until(lambda: fleet.all_read(rolled), 10)
        await fleet.until_tallied()
        fleet.lives[name].deaf = ""
        await fleet.until_even(*names)


@pytest.mark.parametrize("leading", [True, False], ids=["leader", "another"])
@pytest.mark.parametrize("workers", [3, 5])
def test_a_worker_cut_off_from_the_stream_gives_up_shards_and_lead_until_it_answers(
    workers, leading
):
    run(cut_off, workers, leading, seed=workers)


async def stopped_while_cut_off():
    fleet = Fleet(8)
    async with fleet.running(*THREE):
        await settled(fleet, *THREE)
        fleet.lives["b"].deaf = "dynamodbstreams"
        await anyio.sleep(15)
        since = fleet.now
        fleet.lives["b"].worker.stop()
        assert await fleet.until(lambda: fleet.all_read(since, without=("b",))) <= 1.0


@pytest.mark.parametrize("seed", range(3))
def test_a_worker_whose_reads_fail_gives_its_shards_at_once_when_it_is_stopped(seed):
    run(stopped_while_cut_off, seed=seed)


# -- the table answers nobody ------------------------------------------------------------------------


async def outage(what, seconds):
    fleet = Fleet(8)
    async with fleet.running(*THREE):
        await settled(fleet, *THREE)
        names = [life.worker.name for life in fleet.lives.values()]
        since = fleet.now
        for life in fleet.lives.values():
            life.deaf = what
        await anyio.sleep(seconds)
        for life in fleet.lives.values():
            life.deaf = ""
        fleet.write(50)
        await fleet.until_tallied()
        await anyio.sleep(35)
        assert fleet.moves(since) == []
        assert [life.worker.name for life in fleet.lives.values()] == names


@pytest.mark.parametrize("seconds", [12, 25, 120])
@pytest.mark.parametrize("what", ["dynamodb", "write"], ids=["all calls", "writes"])
def test_when_the_table_answers_nobody_no_worker_takes_another_for_dead(what, seconds):
    run(outage, what, seconds, seed=seconds)
