"""Whatever fails while a handler catches up: it sees each change since its start once, in order."""

import random

import pytest

from streamkit import Add, App, Entity, Inserted, Modified, PoisonChange, Set, Table
from streamkit.testing.archives import MemoryArchive
from streamkit.testing.faults import Faults
from tests.seeds import seeds
from tests.simulation.archived import SLOWLY, awake, dormant
from tests.simulation.test_handler_starts import at

SEEDS = seeds(3)


class Deed(Entity, pk="DEED#{number}", sk="DEED"):
    number: int
    version: int = 1


class Count(Entity, pk="COUNT#{by}", sk="COUNT"):
    by: str
    changes: int = 0


class Last(Entity, pk="LAST#{number}", sk="LAST"):
    number: int
    version: int = 0


async def follow(
    change: Inserted[Deed] | Modified[Deed], table: Table
) -> tuple[Add[Count], Set[Last]]:
    """Park a change that comes twice, or before the one before it."""
    number, version = change.new.number, change.new.version
    last = await table.get(Last.key(number=number))
    if last is not None and last.version != version - 1:
        raise PoisonChange(f"version {version} comes after {last.version}")
    return Add(Count.key(by="follow"), changes=1), Set(Last.key(number=number), version=version)


def app_of(archive, start=None):
    app = App("deeds", table="Deeds", archive=archive, entities=[Last])

    @app.on
    def count(change: Inserted[Deed] | Modified[Deed]) -> Add[Count]:
        return Add(Count.key(by="app"), changes=1)

    if start is not None:
        app.on(start=start)(follow)
    return app


class Play:
    """Deeds, splits, rolls, deaths and hours, by a seed; and a handler that begins late."""

    def __init__(self, harness, seed):
        self.harness, self.rng, self.versions = harness, random.Random(f"starts/{seed}"), {}
        self.changes = 0

    def run(self, acts):
        deeds = (self.write, self.write, self.split, self.roll, self.die)
        for _ in range(acts):
            self.rng.choice(deeds)()
            self.harness.advance(self.rng.choice(("10m", "2h", "5h")))

    def write(self):
        for number in self.rng.choices(range(8), k=self.rng.randrange(1, 9)):
            version = self.versions[number] = self.versions.get(number, 0) + 1
            self.harness.put(Deed(number=number, version=version))
            self.changes += 1

    def split(self):
        if len(self.harness.world.control.shards("Deeds")) < 40:
            self.harness.split()

    def roll(self):
        self.harness.roll()

    def die(self):
        self.harness.crash(at=self.rng.randrange(60), moment=self.rng.choice(("before", "after")))
        self.harness.settle()

    def counted(self, by):
        there = self.harness.get(Count.key(by=by))
        return there.changes if there else 0


def faulty(seed):
    """Return an archive whose calls fail in every way that a bucket knows, one in five."""
    rates = {"throttle": 0.06, "server_error": 0.03, "slow": 0.05}
    lost = {"lost_request": 0.03, "lost_reply": 0.06, "late": 0.03}
    return MemoryArchive(faults=Faults(random.Random(seed), **rates, **lost))


@pytest.mark.parametrize("seed", SEEDS)
def test_each_change_since_the_start_comes_once_and_in_order(harness_of, seed):
    archive = faulty(seed)
    harness = harness_of(app_of(archive), seed=seed, shards=2, settings=SLOWLY)
    harness.settle()
    play = Play(harness, seed)
    play.write()
    play.run(4)
    harness.settle()
    harness.advance("2h")
    start, before = harness.world.clock.time(), play.changes
    harness.advance("1m")
    play.write()
    play.run(5)
    harness.settle()
    harness.advance("25h")
    harness.stop()
    harness.app = app_of(archive, at(start))
    play.write()
    play.run(5)
    harness.settle()
    harness.advance("2h")
    harness.settle()
    assert play.counted("app") == play.changes
    assert play.counted("follow") == play.changes - before
    assert not harness.parked()
    last = {one.number: one.version for one in harness.scan(Last)}
    assert last == {number: play.versions[number] for number in last}


def test_a_consumer_that_restarts_in_the_archive_reads_no_shard_before_its_parents(harness_of):
    """The stream lists children whose parents it has trimmed; a new leader knows none of them."""
    app = App("deeds", table="Deeds", archive=MemoryArchive(), entities=[Last])
    app.on(follow)
    harness = harness_of(app, shards=1, settings=SLOWLY)
    harness.put(Deed(number=1, version=1))
    harness.settle()
    dormant(harness)
    for version in range(2, 12):
        harness.put(Deed(number=1, version=version))
        harness.advance("5h")
        harness.roll()
    harness.stop()
    awake(harness)
    assert harness.get(Last.key(number=1)).version == 11
    assert harness.get(Count.key(by="follow")).changes == 11
