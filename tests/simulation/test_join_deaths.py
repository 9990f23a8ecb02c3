"""Joins and workers that die or stand still at any call: each change once, and in order."""

import random

import pytest

from streamkit.operate.moves import MoveRefused
from streamkit.testing import Harness, every_crash, every_freeze
from streamkit.testing.every import Stop, chosen, counted
from tests.seeds import seeds
from tests.simulation.joined import OFTEN, Deeds, ahead_of_its_app, app_of, deploy, join, run_alone


def once_joined(harness):
    """Join while nothing else runs; a command that was killed, or met another, is given again."""
    deeds = ahead_of_its_app(harness)
    for said in ("", "try again", "has joined deeds already"):
        try:
            join(harness)
            break
        except MoveRefused as refused:
            assert said in str(refused) or "already" in str(refused)  # noqa: PT017 - or none
    deeds.write(*range(8))
    deploy(harness, app_of("joined"))
    deeds.all_done()


def rig():
    return Harness(app_of(), shards=2, settings=OFTEN)


def test_a_join_killed_at_any_call_is_finished_by_the_same_command():
    assert list(every_crash(once_joined, rig, part="operation", sample=12))


def test_a_join_frozen_at_any_call_does_nothing_when_it_thaws():
    assert list(every_freeze(once_joined, rig, part="operation", sample=15))


def once_deployed(harness):
    """Workers die or stand still before the join and after it."""
    deeds = ahead_of_its_app(harness)
    join_when_still(harness)
    deeds.write(*range(8))
    deploy(harness, app_of("joined"))
    deeds.all_done()


def join_when_still(harness):
    """Join; if the handler is behind or a worker seems to be alive, let it go on first."""
    said = []
    for _ in range(4):
        try:
            join(harness)
        except MoveRefused as refused:
            said.append(str(refused))
            harness.settle()
            harness.stop()
            run_alone(harness, harness.app.listeners["follow"])
        else:
            return
    raise AssertionError(f"it is refused again and again: {said}")


def test_a_worker_killed_at_any_call_around_a_join_loses_nothing():
    assert list(every_crash(once_deployed, rig, sample=15))


def test_a_worker_frozen_at_any_call_before_a_join_does_nothing_when_it_thaws_behind_it():
    """A worker that thaws earlier is alive, and the join waits until it is stopped."""
    calls, writes = counted(once_deployed, rig, "worker")
    places = [(call, "before") for call in range(calls)] + [(call, "after") for call in writes]
    stops = [Stop("worker", call, moment, "end") for call, moment in places]
    for stop in chosen(stops, 5, seed=0):
        stop.play(once_deployed, rig)


@pytest.mark.parametrize("seed", seeds(least=4))
def test_shards_split_and_workers_die_before_and_after_a_join(harness_of, seed):
    rng = random.Random(f"joins/{seed}")
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

    live(6)
    harness.settle()
    harness.stop()
    if rng.random() < 0.5:
        deeds.write(*range(8))
        run_alone(harness, rng.choice((harness.app.listeners["follow"], app_of("no"))))
    join_when_still(harness)
    deeds.write(*range(8))
    harness.app = app_of("joined")
    live(6)
    harness.settle()
    deeds.all_done()
