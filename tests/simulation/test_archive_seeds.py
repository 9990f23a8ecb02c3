"""Whatever a bucket answers and whenever processes die: all is archived once, and read once."""

import random

import pytest

from streamkit import Add, Inserted
from streamkit.operate.past.archives import verify_archive
from streamkit.testing.archives import MemoryArchive
from streamkit.testing.faults import Faults
from tests.seeds import seeds
from tests.simulation.archived import (
    SLOWLY,
    Note,
    Total,
    app_of,
    awake,
    chains_are_whole,
    copied,
    dormant,
    links,
    numbers,
    put,
)


def faulty(seed):
    """Return an archive whose calls fail in every way that a bucket knows, one in three."""
    rates = {"throttle": 0.1, "server_error": 0.05, "slow": 0.1}
    lost = {"lost_request": 0.05, "lost_reply": 0.1, "late": 0.05}
    return MemoryArchive(faults=Faults(random.Random(seed), **rates, **lost))


class Play:
    """Notes, splits, deaths and days, by a seed."""

    def __init__(self, harness, seed):
        self.harness, self.rng, self.written = harness, random.Random(f"play/{seed}"), 0
        self.asleep = False

    def run(self, acts):
        deeds = (self.write, self.write, self.split, self.roll, self.die, self.sleep, self.days)
        for _ in range(acts):
            self.rng.choice(deeds)()
            self.harness.advance(self.rng.choice(("10m", "2h", "5h")))
        self.harness.settle()
        if self.asleep:
            self.sleep()
        self.harness.advance("2h")
        self.harness.settle()

    def write(self):
        some = range(self.written, self.written + self.rng.randrange(1, 6))
        put(self.harness, *some)
        self.written = some.stop

    def split(self):
        if len(self.harness.world.control.shards(self.harness.app.table)) < 60:
            self.harness.split()

    def roll(self):
        self.harness.roll()

    def die(self):
        self.harness.crash(at=self.rng.randrange(30), moment=self.rng.choice(("before", "after")))
        self.harness.settle()

    def sleep(self):
        """Let the app sleep while its archive is written, or wake up."""
        (awake if self.asleep else dormant)(self.harness)
        self.asleep = not self.asleep

    def days(self):
        self.harness.settle()
        self.harness.advance("30h")


def counting(archive, **options):
    app = app_of(archive, **options)

    @app.on
    def count(change: Inserted[Note]) -> Add[Total]:
        return Add(Total.key(), count=1)

    return app


@pytest.mark.parametrize("seed", seeds(3))
def test_a_faulty_bucket_and_deaths_cost_nothing(harness_of, seed):
    archive = faulty(seed)
    harness = harness_of(counting(archive), seed=seed, shards=1, settings=SLOWLY)
    harness.settle()
    play = Play(harness, seed)
    play.run(7)
    play.write()
    harness.settle()
    harness.advance("2h")
    wanted = list(range(play.written))
    assert copied(harness) == wanted
    assert harness.get(Total.key()).count == play.written
    assert sorted(numbers(archive)) == wanted
    assert "hole" not in chains_are_whole(archive)
    assert harness.operate(lambda aws: verify_archive(harness.app, aws)).whole


def test_every_fault_of_a_bucket_was_met(harness_of):
    archive = faulty(0)
    harness = harness_of(counting(archive), shards=2, settings=SLOWLY)
    for number in range(40):
        put(harness, number)
        harness.advance("20m")
    harness.settle()
    met = {"throttle", "server_error", "slow", "lost_request", "lost_reply", "late"}
    assert {kind for kind, times in archive.faults.taken.items() if times} == met


@pytest.mark.parametrize("seed", range(3))
def test_with_downtime_every_note_is_copied_or_in_a_hole(harness_of, seed):
    """No worker runs for a day and more: what is lost is what the archive says."""
    archive, lost = faulty(seed), []

    async def note(loss, table):
        lost.append(loss)

    harness = harness_of(counting(archive, on_loss=note), seed=seed, shards=1, settings=SLOWLY)
    harness.settle()
    play = Play(harness, seed)
    play.run(5)
    harness.stop()
    play.write()
    harness.advance(play.rng.choice(("20h", "30h", "50h")))
    play.write()
    harness.settle()
    harness.advance("2h")
    harness.settle()
    assert copied(harness) == sorted(numbers(archive))
    assert harness.get(Total.key()).count == len(copied(harness))
    assert {loss.shard for loss in lost} == {k.shard for k in links(archive) if k.kind == "hole"}
    if not lost:
        assert copied(harness) == list(range(play.written))
