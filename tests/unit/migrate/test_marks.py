"""What is in the place of an item that a migration makes."""

from types import SimpleNamespace

import pytest

from streamkit.migrate.items.marks import place_is
from streamkit.model.copies import PAIR

MINE = ("_sk_from", {"S": "0003:abc"})
ITEM = {"PK": {"S": "A"}, "n": {"N": "1"}}
OTHER = ITEM | {"n": {"N": "2"}}


@pytest.mark.parametrize(
    ("there", "mode", "conflict", "place"),
    [
        (None, "derive", "report", "missing"),
        (ITEM, "derive", "report", "right"),  # the application has put just this
        (OTHER, "derive", "report", "taken"),
        (OTHER, "derive", "keep", "right"),
        (OTHER | dict([MINE]), "derive", "keep", "differs"),
        (ITEM | dict([MINE]), "derive", "report", "right"),
        (OTHER | {PAIR: {"S": "0003:abc:new"}}, "rekey", "report", "differs"),
        (OTHER | {PAIR: {"S": "0003:abc:new"}}, "merge", "report", "right"),
        (OTHER | {PAIR: {"S": "0003:xyz:new"}}, "merge", "report", "taken"),
    ],
)
def test_what_is_in_a_place_is_told_by_its_mark_and_what_it_says(there, mode, conflict, place):
    migration = SimpleNamespace(mode=mode, conflict=conflict)
    assert place_is(migration, MINE, SimpleNamespace(item=ITEM), there) == place
