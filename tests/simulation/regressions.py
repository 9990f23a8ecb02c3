"""Plans that once failed, as data: each with the bug that it found, as a mutant that brings it back.

A new one is what `make simulate` prints of a seed that fails; its name says what must hold.
"""

from dataclasses import dataclass

from tests.simulation.fleet_plan import PATIENT
from tests.simulation.plan import Plan, PlannedEvent


@dataclass(frozen=True)
class Regression:
    """A plan and its seed, and the invariant that is broken by a mutant's bug."""

    seed: int
    plan: Plan
    mutant: str
    invariant: str


_PLAIN = {
    "parents_open": 0.0,
    "publish_delay": 0.0,
    "iterator_lifetime": 900.0,
    "ignore_shard_filter": False,
    "listing_page": 2,
    "end_with_records_chance": 0.0,
    "unordered_listing": True,
    "spread_collections": True,
}

REGRESSIONS = {
    "a queue stays held over shards that came and went while nobody read": Regression(
        5,
        Plan(
            shape={
                "shards": 2,
                "seconds": 153043.0,
                "settings": PATIENT,
                "on_loss": "resume",
                "engine": {"empty_page_chance": 0.3, "children_hidden": 8.0, **_PLAIN},
            },
            events=(
                PlannedEvent("start", at=0.0, worker=0, version=1),
                PlannedEvent("write", at=1476.08, count=4, seed=419708526, poison=0.1),
                PlannedEvent("write", at=1043.19, count=7, seed=1046510902, poison=0.1),
                PlannedEvent("write", at=151810.02, count=7, seed=1011680118, poison=0.1),
                PlannedEvent("stop", at=2276.06, worker=0),
            ),
        ),
        mutant="new-tree-holds-nothing",
        invariant="liveness",
    ),
    "late children of many shards are asked for ten times a second at most": Regression(
        2,
        Plan(
            shape={
                "shards": 3,
                "seconds": 43.4,
                "settings": {"checkpoint_interval": 60.0},
                "engine": {"empty_page_chance": 0.0, "children_hidden": 8.0, **_PLAIN},
            },
            events=(
                PlannedEvent("roll_all", at=25.93, shard=2),
                PlannedEvent("split", at=19.3, shard=4),
                PlannedEvent("roll", at=20.38, shard=6),
            ),
        ),
        mutant="more-than-ten-questions",
        invariant="servicelimits",
    ),
    "a reader whose iterator expired goes on behind what it has read": Regression(
        9,
        Plan(
            shape={
                "shards": 1,
                "seconds": 12.0,
                "settings": {},
                "engine": {"empty_page_chance": 0.0, **_PLAIN, "iterator_lifetime": 3.0},
            },
            events=(
                PlannedEvent("start", at=0.0, worker=0, version=1),
                PlannedEvent("write", at=1.0, count=2, seed=1, poison=0.0),
                PlannedEvent("freeze", at=3.0, worker=0, seconds=5.0),
            ),
        ),
        mutant="latest-after-expiry",
        invariant="iterators",
    ),
}
