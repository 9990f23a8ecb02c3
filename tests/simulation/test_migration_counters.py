"""Writers of both shapes count and write, processes die and stand still: each increment counts once."""

import pytest

from streamkit.migrate.families import settlement
from tests.seeds import seeds
from tests.simulation.both_shapes import contracted, rolled_back
from tests.simulation.counting import POLICIES, Site, app_of


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("seed", seeds(1))
def test_each_increment_of_either_shape_counts_once_on_the_way_to_the_end(seed, policy):
    site, items = contracted(app_of(policy), seed=seed, kind=Site)
    assert sum(site.kinds.values()) > 30
    assert site.met["crash"] + site.met["freeze"] > 3
    if policy != "item":
        assert site.wrong(items, "new") == {}
    if policy != "counters":
        assert site.wholes.mixed == []


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("seed", seeds(1))
def test_each_increment_of_either_shape_counts_once_in_a_rollback(seed, policy):
    site, items = rolled_back(app_of(policy), seed=seed, kind=Site)
    if policy != "item":
        assert site.wrong(items, "old") == {}
    if policy != "counters":
        assert site.wholes.mixed == []


def test_each_increment_counts_once_where_there_is_no_way_back():
    site, items = contracted(app_of("counters", reverse=None), seed=3, kind=Site)
    assert site.wrong(items, "new") == {}


def test_items_that_are_merged_by_field_are_found(monkeypatch):
    monkeypatch.setattr(settlement, "_all_that_differs", lambda *_: frozenset())
    site, _ = contracted(app_of("item"), seed=0, kind=Site)
    assert site.wholes.mixed


def test_a_counter_of_which_one_writer_wins_is_found(monkeypatch):
    monkeypatch.setattr(settlement, "_counted", lambda *_: {})
    monkeypatch.setattr(settlement, "_both", lambda *_: frozenset())
    site, items = contracted(app_of("counters"), seed=0, kind=Site)
    assert site.wrong(items, "new")
