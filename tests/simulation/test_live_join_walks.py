"""Random lives of an app that takes a handler over: versions come and go, workers stop and freeze.

The handler parks a change that comes twice or too early, see `joined.follow`.
"""

import os
import random
from functools import partial

import pytest

from streamkit.operate.consumers import pause_consumer, resume_consumer
from tests.simulation.joined import OFTEN, Deeds, Last, app_of, deploy
from tests.simulation.test_taking_over import begin, until_taken

SEEDS = int(os.environ.get("JOIN_SEEDS", "4"))
ACTS = "write write write settle settle waits split roll crash freeze version pause block begin"


class Life:
    """One app, its application, and what people do to it."""

    def __init__(self, harness, rng):
        self.harness, self.rng, self.deeds = harness, rng, Deeds(harness)
        self.blocked, self.runs, self.ended = {}, "apart", False

    def write(self):
        self.deeds.write(*self.rng.choices(range(8), k=5))

    def settle(self):
        self.harness.settle()

    def waits(self):
        self.harness.advance(self.rng.choice(("3s", "20s", "2m")))

    def split(self):
        self.harness.split()

    def roll(self):
        self.harness.roll()

    def crash(self):
        moment = self.rng.choice(("before", "after"))
        self.harness.crash(at=self.rng.randrange(60), moment=moment)

    def freeze(self):
        self.harness.freeze(at=self.rng.randrange(60))

    def version(self):
        """Deploy the version without the handler, or the one with it again."""
        self.runs = "no" if self.runs == "apart" and not self.ended else "apart"
        deploy(self.harness, app_of(self.runs))

    def pause(self):
        app = self.rng.choice((app_of(), app_of().listeners["follow"]))
        self.harness.operate(partial(pause_consumer, app))
        self.waits()
        self.harness.operate(partial(resume_consumer, app))

    def block(self):
        """Let the handler park the changes of one item, or no longer."""
        if self.blocked:
            self.unblock()
            return
        self.harness.settle()
        number = self.rng.randrange(6)
        self.blocked[number] = self.harness.get(Last.key(number=number)).version
        self.harness.put(Last(number=number, version=5000))

    def unblock(self):
        for number, version in self.blocked.items():
            self.harness.put(Last(number=number, version=version))
        self.blocked.clear()
        self.harness.settle()
        self.harness.redrive()

    def begin(self):
        if self.runs == "apart":
            self.ended = begin(self.harness).ended


@pytest.mark.parametrize("seed", range(SEEDS))
def test_each_change_reaches_a_handler_once_and_in_order_whatever_happens_in_a_join(
    harness_of, seed
):
    rng = random.Random(f"walks/{seed}")
    shards = rng.choice((1, 2, 3))
    harness = harness_of(app_of(), seed=seed, shards=shards, settings=OFTEN, lenient=True)
    life = Life(harness, rng)
    life.deeds.write(*range(8))
    harness.settle()
    life.begin()
    for act in rng.choices(ACTS.split(), k=25):
        getattr(life, act)()
    if life.runs == "no":
        life.version()
    life.unblock()
    harness.advance("5m")
    harness.outlive()
    harness.redrive()
    harness.settle()
    until_taken(harness, life.deeds, 60)
    deploy(harness, app_of(rng.choice(("joined", "apart"))))
    harness.split()
    life.write()
    harness.settle()
    life.deeds.all_done()
