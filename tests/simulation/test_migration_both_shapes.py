"""Writers of both shapes, processes that die and stand still, and an oracle that knows no migration."""

from functools import partial

import pytest

from streamkit.migrate.families import settlement
from streamkit.migrate.families.shapes import BothShapes
from streamkit.migrate.items.transform import Transform
from streamkit.model.copies import COPY
from streamkit.model.schema import TableSchema
from tests.seeds import seeds
from tests.simulation.both_shapes import (
    app_of,
    app_of_merge,
    contracted,
    contracted_at_once,
    moved_back,
    rolled_back,
    without_its_note,
)

MOVES = {
    "a way back": partial(app_of, moved_back),
    "half a way back": partial(app_of, without_its_note),
    "no way back": app_of,
    "merge": app_of_merge,
}


def of(items, text):
    return [item for item in items if text in item["PK"]["S"] + item["SK"]["S"]]


@pytest.mark.parametrize("move", MOVES)
@pytest.mark.parametrize("seed", seeds(2))
def test_no_write_of_either_shape_is_lost_on_the_way_to_the_end(seed, move):
    site, items = contracted(MOVES[move](), seed=seed)
    assert site.ledger.lost("new") == {}
    assert sum(site.ledger.kinds.values()) > 30
    assert not [item for item in of(items, "ORDER#") if not item["SK"]["S"].startswith("#")]
    assert not [item for item in items if COPY in item]
    assert of(items, "#pair#") == of(items, "#gate#") == []


def test_what_both_sides_have_deleted_is_gone_although_a_field_was_never_agreed():
    """Without `reverse=` the old side never saw what new code wrote; then both were deleted."""
    schema = TableSchema("Shop", pk="PK", sk="SK", pk_type="S", sk_type="S", indexes={})
    shapes = BothShapes(Transform(app_of().migrations["0001"], schema))
    assert shapes.new_items({"there": None}, {}, {("there", "note")}, {}) == {"there": None}
    kept = shapes.new_items(
        {"there": {"note": {"S": "a"}, "n": {"S": "b"}}}, {}, {("there", "note")}, {}
    )
    assert kept == {"there": {"n": {"S": "b"}}}


@pytest.mark.parametrize("move", MOVES)
@pytest.mark.parametrize("seed", seeds(2))
def test_where_people_are_wrong_that_no_old_code_writes_its_writes_are_not_lost(seed, move):
    site, items = contracted_at_once(MOVES[move](), seed=seed)
    assert site.ledger.lost("new") == {}
    assert sum(site.ledger.kinds.values()) > 30
    assert not [item for item in of(items, "ORDER#") if not item["SK"]["S"].startswith("#")]
    assert not [item for item in items if COPY in item]
    assert of(items, "#pair#") == of(items, "#gate#") == []


@pytest.mark.parametrize("move", ["a way back", "merge"])
@pytest.mark.parametrize("seed", seeds(2))
def test_no_write_of_either_shape_is_lost_by_a_rollback(seed, move):
    site, items = rolled_back(MOVES[move](), seed=seed)
    assert site.ledger.lost("old") == {}
    assert not of(items, "#ORDER#")
    assert of(items, "#pair#") == of(items, "#gate#") == []


@pytest.mark.parametrize("move", ["a way back", "merge"])
def test_a_settlement_in_which_one_writer_wins_is_found(monkeypatch, move):
    monkeypatch.setattr(settlement, "_both", lambda *_: frozenset())
    site, _ = contracted(MOVES[move](), seed=0)
    assert site.ledger.lost("new")
