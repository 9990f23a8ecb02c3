"""An app takes a handler over while both run: each change once, and in order."""

import os
import random
from dataclasses import replace

import pytest

from streamkit import Add, Inserted
from streamkit.errors import ConfigurationError
from streamkit.fleet.generation import newest_generation, write_generation
from streamkit.operate.moves import MoveRefused, taking_over
from streamkit.operate.moves.taking_over import take_over
from streamkit.operate.status import read_status
from streamkit.testing import Harness, every_crash, every_freeze
from tests.simulation.joined import OFTEN, Count, Deed, Deeds, Last, app_of, deploy

SEEDS = int(os.environ.get("JOIN_SEEDS", "6"))


def begin(harness, app=None, name="follow"):
    async def once(aws):
        async for found in take_over(app or app_of(), aws, name, clock=harness.world.clock):
            return found
        raise AssertionError("it says nothing")

    return harness.operate(once)


def until_taken(harness, deeds, rounds=40):
    for _ in range(rounds):
        found = begin(harness)
        if found.ended:
            return found
        deeds.write(*range(8))
        harness.settle()
        harness.advance("10s")
    raise AssertionError(found)


def test_an_app_takes_a_handler_over_while_both_run(harness_of):
    harness = harness_of(app_of(), shards=2, settings=OFTEN)
    deeds = Deeds(harness)
    deeds.write(*range(6))
    harness.settle()
    found = begin(harness)
    assert (found.shards, found.taken) == (2, 0)
    until_taken(harness, deeds)
    deeds.write(*range(8))
    harness.settle()
    deeds.all_done()
    harness.split()
    deeds.write(*range(8))
    harness.settle()
    deeds.all_done()
    deploy(harness, app_of("joined"))
    deeds.write(*range(8))
    harness.settle()
    deeds.all_done()


def test_a_join_does_not_end_while_a_worker_of_an_earlier_generation_may_hold_a_shard(
    harness_of, monkeypatch
):
    harness = harness_of(app_of(), shards=2, settings=OFTEN)
    deeds = Deeds(harness)
    deeds.write(*range(6))
    harness.settle()
    assert not begin(harness).ended
    for _ in range(3):
        deeds.write(*range(8))
        harness.settle()
        harness.advance("10s")

    async def rolls_out(run):
        newest = await newest_generation(run.store)
        await write_generation(run.store, newest, replace(newest, number=newest.number + 1))

    with monkeypatch.context() as patched:
        patched.setattr(taking_over._Run, "begin", rolls_out)
        found = begin(harness)
    assert (found.taken, found.ended) == (found.shards, False)
    assert until_taken(harness, deeds).ended
    harness.settle()
    deeds.all_done()


@pytest.mark.parametrize("seed", range(SEEDS))
def test_shards_split_and_workers_die_while_an_app_takes_a_handler_over(harness_of, seed):
    rng = random.Random(f"taking/{seed}")
    harness = harness_of(app_of(), seed=seed, shards=2, settings=OFTEN)
    deeds = Deeds(harness)

    def live(acts):
        for _ in range(acts):
            deeds.write(*rng.choices(range(8), k=5))
            if rng.random() < 0.3:
                rng.choice((harness.split, harness.roll))()
            if rng.random() < 0.3:
                harness.crash(at=rng.randrange(60), moment=rng.choice(("before", "after")))
            if rng.random() < 0.6:
                harness.settle()

    live(4)
    harness.settle()
    for _ in range(60):
        if begin(harness).ended:
            break
        live(1)
        harness.advance("3s")
    else:
        raise AssertionError("it is never taken over")
    live(4)
    harness.settle()
    deeds.all_done()
    deploy(harness, app_of("joined"))
    live(2)
    harness.settle()
    deeds.all_done()


# -- stops -----------------------------------------------------------------------------------------


def rig():
    return Harness(app_of(), shards=2, settings=OFTEN)


def taken_over(harness):
    """Take the handler over over a split; a command that was killed is given again."""
    deeds = Deeds(harness)
    deeds.write(*range(6))
    harness.settle()
    begin(harness)
    deeds.write(*range(4))
    harness.settle()
    harness.split()
    deeds.write(*range(8))
    until_taken(harness, deeds)
    deeds.write(*range(8))
    deploy(harness, app_of("joined"))
    deeds.all_done()


def test_a_worker_killed_at_any_call_while_it_takes_over_loses_nothing():
    assert list(every_crash(taken_over, rig, sample=15))


def test_a_worker_frozen_at_any_call_while_it_takes_over_does_nothing_when_it_thaws():
    assert list(every_freeze(taken_over, rig, sample=15))


def test_a_command_killed_at_any_call_goes_on_when_it_is_given_again():
    assert list(every_crash(taken_over, rig, part="operation", sample=15))


def test_a_command_frozen_at_any_call_does_no_harm_when_it_thaws():
    assert list(every_freeze(taken_over, rig, part="operation", sample=15))


# -- what is parked, or found meanwhile ------------------------------------------------------------


def blocks(harness, number):
    """Let the handler park the changes of an item."""
    harness.put(Last(number=number, version=70))


def unblocks(harness, number, version):
    harness.put(Last(number=number, version=version)) if version else harness.delete(
        Last.key(number=number)
    )
    harness.redrive()


def test_a_handler_with_parked_changes_stays_apart_until_they_are_redriven(harness_of):
    """Row J8: the app would run later changes of the item before them."""
    harness = harness_of(app_of(), shards=1, settings=OFTEN, lenient=True)
    deeds = Deeds(harness)
    blocks(harness, 1)
    deeds.write(*range(6))
    harness.settle()
    for _ in range(3):
        found = begin(harness)
        assert (found.taken, found.queues) == (0, 1)
        deeds.write(*range(8))
        harness.settle()
        harness.advance("2m")
    unblocks(harness, 1, 0)
    until_taken(harness, deeds)
    harness.settle()
    deeds.all_done()


def test_what_is_given_back_waits_for_what_the_app_has_parked(harness_of):
    """It would run later changes of the item before them."""
    harness = harness_of(app_of(), shards=1, settings=OFTEN, lenient=True)
    deeds = Deeds(harness)
    deeds.write(*range(4))
    harness.settle()
    begin(harness)
    for _ in range(10):
        deeds.write(*range(4))
        harness.settle()
        harness.advance("10s")
    assert operations(harness) == ["the app runs it on 1 of 1 shards"]
    version = deeds.versions[1]
    blocks(harness, 1)
    deeds.write(*range(4))
    harness.settle()
    assert [one.handler for one in harness.parked()] == ["follow"]
    deploy(harness, app_of("no"))
    harness.advance("2m")
    deeds.write(*range(4))
    harness.settle()
    deploy(harness, app_of())
    harness.advance("5m")
    assert [one.handler for one in harness.parked()] == ["follow"]
    unblocks(harness, 1, version)
    harness.advance("2m")
    until_taken(harness, deeds)
    harness.settle()
    deeds.all_done()


def operations(harness):
    status = harness.operate(lambda aws: read_status(app_of(), aws, clock=harness.world.clock))
    return [one.phase for one in status.operations if one.kind == "join"]


def test_two_handlers_are_taken_over_at_the_same_time(harness_of):
    def two():
        app = app_of()

        @app.on(start="2020-01-01")
        async def again(change: Inserted[Deed]) -> Add[Count]:
            return Add(Count.key(by="again"), changes=1)

        return app

    harness = harness_of(two(), shards=2, settings=OFTEN)
    deeds = Deeds(harness)
    deeds.write(*range(8))
    harness.settle()
    begin(harness, two())
    for name in ("again", "follow", "again"):
        for _ in range(20):
            if begin(harness, two(), name).ended:
                break
            deeds.write(*range(10))
            harness.settle()
            harness.advance("10s")
        else:
            raise AssertionError(name)
    harness.split()
    deeds.write(*range(12))
    harness.settle()
    deeds.all_done()
    assert deeds.counted("again") == len(deeds.versions)
    assert operations(harness) == []


# -- what is refused -------------------------------------------------------------------------------


def test_a_version_without_the_start_is_refused_until_the_join_has_ended(harness_of):
    harness = harness_of(app_of(), shards=1, settings=OFTEN)
    deeds = Deeds(harness)
    deeds.write(*range(4))
    harness.settle()
    begin(harness)
    with pytest.raises(ConfigurationError, match="keep its start= until"):
        deploy(harness, app_of("joined"))
    deploy(harness, app_of())
    until_taken(harness, deeds)
    deploy(harness, app_of("joined"))
    deeds.all_done()


def test_the_version_before_goes_on_after_the_join_without_the_handlers_own_consumer(harness_of):
    harness = harness_of(app_of(), shards=1, settings=OFTEN)
    deeds = Deeds(harness)
    deeds.write(*range(4))
    harness.settle()
    until_taken(harness, deeds)
    deploy(harness, app_of())
    deeds.write(*range(4))
    harness.settle()
    deeds.all_done()


def test_what_cannot_be_taken_over_is_named(harness_of):
    harness = harness_of(app_of(), shards=1, settings=OFTEN)
    with pytest.raises(MoveRefused, match="have not both run"):
        begin(harness)
    deeds = Deeds(harness)
    deeds.write(*range(4))
    harness.settle()
    with pytest.raises(MoveRefused, match="declares no handler count with a start="):
        begin(harness, name="count")
    other = app_of()

    @other.on
    def more(change: Inserted[Deed]) -> None: ...

    with pytest.raises(MoveRefused, match="run another version of deeds"):
        begin(harness, other)


# -- a version without the handler -----------------------------------------------------------------


@pytest.mark.parametrize("rounds", range(4))
def test_a_version_without_the_handler_gives_it_back(harness_of, rounds):
    harness = harness_of(app_of(), shards=2, settings=OFTEN)
    deeds = Deeds(harness)
    deeds.write(*range(6))
    harness.settle()
    begin(harness)
    for _ in range(rounds):
        harness.settle()
        deeds.write(*range(8))
    harness.settle()
    harness.split()
    deeds.write(*range(8))
    deploy(harness, app_of("no"))
    harness.advance("2m")
    deeds.write(*range(8))
    harness.settle()
    assert deeds.counted("app") == deeds.changes
    assert deeds.counted("follow") < deeds.changes
    deploy(harness, app_of())
    harness.advance("2m")
    until_taken(harness, deeds)
    harness.settle()
    deeds.all_done()
