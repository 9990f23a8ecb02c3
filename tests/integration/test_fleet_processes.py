"""A fleet of real processes under fire: killed, frozen, stopped and replaced while shards change.

Several writers write all the while. What is to happen comes from a seed; when exactly, the machine
decides. At the end everything the workers keep equals a recomputation: counts and sums, edits (each
change once), and a chain over all changes of an item (each once, and in order).
"""

import random
import signal
import time
from contextlib import ExitStack

import pytest

from tests.integration.processes import Writer, finish, running, until

LEASE = 1.2
FLEET = 3
ACTS = ("kill", "freeze", "thaw", "stop", "split", "roll")
WEIGHTS = (4, 3, 3, 1, 2, 3)
SHARDS_MAX = 10


class Fleet:
    """The workers of a site, as an unkind operator treats them."""

    def __init__(self, site, rng):
        self.site, self.rng = site, rng
        self.awake = site.start_together(FLEET)
        self.frozen = []
        self.done = dict.fromkeys(ACTS, 0)

    def act(self, act):
        self.done[act] += getattr(self, act)()

    def _pick(self, workers):
        """Take one out, of those that have worked already if there are any."""
        veterans = [worker for worker in workers if worker.said("shard.taken")]
        chosen = self.rng.choice(veterans or workers)
        workers.remove(chosen)
        return chosen

    def kill(self):
        """Kill a worker, a frozen one rather, and start another."""
        self._pick(self.frozen or self.awake).kill()
        self.awake.append(self.site.start())
        return 1

    def freeze(self):
        """Freeze a worker, as a paused machine is; one at least stays awake."""
        if len(self.awake) < 2:
            return 0
        self.frozen.append(self._pick(self.awake))
        self.frozen[-1].send(signal.SIGSTOP)
        return 1

    def thaw(self):
        """Let a frozen worker go on where it stood."""
        if not self.frozen:
            return 0
        self.awake.append(self.frozen.pop(0))
        self.awake[-1].send(signal.SIGCONT)
        return 1

    def stop(self):
        """Stop a worker politely, and start another."""
        self._pick(self.awake).send(signal.SIGTERM)
        self.awake.append(self.site.start())
        return 1

    def split(self):
        shards = self.site.open_shards()
        if len(shards) >= SHARDS_MAX:
            return 0
        self.site.control("split", shard=self.rng.choice(shards))
        return 1

    def roll(self):
        self.site.control("roll", shard=self.rng.choice(self.site.open_shards()))
        return 1

    def settle(self):
        """Thaw every process, and wait until every shard has a living owner."""
        while self.frozen:
            self.act("thaw")
        living = {worker.pid for worker in self.awake}
        until(lambda: self.site.owners() <= living, f"the owners are among {living}")


@pytest.mark.parametrize("seed", [1])
def test_a_fleet_that_is_killed_and_frozen_at_random_leaves_exact_results(tmp_path, seed):
    rng = random.Random(seed)
    timings = {"heartbeat": 0.3, "lease": LEASE, "look_interval": 0.2, "list_interval": 1.0}
    with running(tmp_path, shards=3, **timings) as site, ExitStack() as stack:
        halves = (range(20), range(20, 40))
        writers = [Writer(site.client, seed + i, half, 0.02) for i, half in enumerate(halves)]
        for writer in writers:
            stack.enter_context(writer.writing())
        fleet = Fleet(site, rng)
        for act in rng.choices(ACTS, WEIGHTS, k=12):
            fleet.act(act)
            time.sleep(rng.uniform(0, LEASE))
        fleet.settle()
        stack.close()
        finish(site, *writers)
    assert all(fleet.done.values()), fleet.done
    assert sum(worker.said("shard.taken") > 0 for worker in site.workers) > FLEET
    assert sum(writer.count for writer in writers) > 200
