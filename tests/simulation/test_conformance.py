"""Every handler kind in every host: the same traffic comes to the same table.

A host is a name and what makes it; `make conformance SEEDS=50` plays more seeds.
"""

import os

import pytest

from streamkit.shape import entities_of
from streamkit.testing import Trouble, trial
from streamkit.testing.crew import Crew
from streamkit.testing.hosts import Functions
from tests.simulation.conformance import Market, make_app

HOSTS = {"worker": Crew, "lambda": Functions}
SEEDS = range(int(os.environ.get("CONFORMANCE_SEEDS", "1")))
TROUBLE = Trouble(crash=0.05, split=0.03, roll=0.02, pause=3.0, sinks=0.02)


def end_of(host, seed):
    """Play the traffic, compare the end with a recomputation, and return what is in the table."""
    app = make_app()
    ran = trial(app, Market(app), seed=seed, acts=80, trouble=TROUBLE, host=HOSTS[host])
    assert all(ran.met[name] for name in ("crash", "split", "roll")), host
    return ran


@pytest.mark.parametrize("seed", SEEDS)
def test_every_kind_comes_to_the_same_table_in_every_host(seed):
    first, *others = (end_of(host, seed) for host in HOSTS)
    # Not every seed has poison.
    assert seed or all(comparison.compared for comparison in first.comparisons)
    for entity in entities_of(make_app()):
        for other in others:
            assert not first.final.compare(entity, other.final[entity]).differences
