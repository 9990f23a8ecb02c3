"""Writers of both shapes, processes that die and stand still, and an oracle that knows no migration."""

import pytest

from streamkit.migrate import settlement
from streamkit.model.copies import COPY
from tests.seeds import seeds
from tests.simulation.both_shapes import (
    app_of,
    contracted,
    moved_back,
    rolled_back,
    without_its_note,
)

WAYS_BACK = {"a way back": moved_back, "half a way back": without_its_note, "no way back": None}


def of(items, text):
    return [item for item in items if text in item["PK"]["S"] + item["SK"]["S"]]


@pytest.mark.parametrize("way", WAYS_BACK)
@pytest.mark.parametrize("seed", seeds(2))
def test_no_write_of_either_shape_is_lost_on_the_way_to_the_end(seed, way):
    site, items = contracted(app_of(WAYS_BACK[way]), seed=seed)
    assert site.ledger.lost("new") == {}
    assert sum(site.ledger.kinds.values()) > 30
    assert not [item for item in of(items, "ORDER#") if not item["SK"]["S"].startswith("#")]
    assert not [item for item in items if COPY in item]
    assert of(items, "#pair#") == of(items, "#gate#") == []


@pytest.mark.parametrize("seed", seeds(2))
def test_no_write_of_either_shape_is_lost_by_a_rollback(seed):
    site, items = rolled_back(app_of(moved_back), seed=seed)
    assert site.ledger.lost("old") == {}
    assert not of(items, "#ORDER#")
    assert of(items, "#pair#") == of(items, "#gate#") == []


def test_a_settlement_in_which_one_writer_wins_is_found(monkeypatch):
    monkeypatch.setattr(settlement, "_both", lambda *_: frozenset())
    site, _ = contracted(app_of(moved_back), seed=0)
    assert site.ledger.lost("new")
