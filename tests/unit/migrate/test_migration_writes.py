"""The actions of migrations: what was read is the condition, as far as one expression can hold it."""

import pytest

from streamkit.migrate.items.transform import TransformError
from streamkit.migrate.items.writes import TERMS_MAX, check, delete, unchanged
from streamkit.model.conditions import Attr, absent
from streamkit.model.schema import TableSchema
from streamkit.progress.actions import Action, Verb, item_ref, render

SHOP = TableSchema("Shop", "PK", None, "S", None, {})
KEY = {"PK": {"S": "ORDER#1"}}
BINARY = TableSchema("Shop", "PK", None, "B", None, {})


def most(image_of):
    """Return how many attributes a condition holds at most, and the request of the largest one."""
    number, body = 1, {}
    while True:
        names = [f"field{n}" for n in range(number)]
        try:
            held = unchanged(SHOP, image_of(names), frozenset(names))
        except TransformError:
            return number - 1, body
        held.append(Attr("_sk_copy").not_exists())
        held.append(Attr("_sk_moved").eq("0001"))
        (body,) = render(delete(SHOP, KEY, held), SHOP).values()
        number += 1


def test_as_much_as_was_read_is_a_condition_while_it_fits_one_expression():
    there, full = most(lambda names: {name: {"N": "1"} for name in names})
    gone, bare = most(lambda _: {})
    assert there == TERMS_MAX - 1
    assert 120 < gone < TERMS_MAX
    for body in (full, bare):
        text = body["ConditionExpression"]
        assert len(text) <= 4096
        operators = text.count(" AND ") + text.count(" = ") + text.count("attribute_")
        assert operators <= 300
        assert text.count("(") == text.count("attribute_") + 1  # one level, however many there are


def test_an_item_is_held_to_what_was_read_of_it_and_to_its_absence():
    item = {**KEY, "status": {"S": "NEW"}, "a.b": {"N": "1"}}
    (held,) = render(check(SHOP, KEY, unchanged(SHOP, item, item.keys())), SHOP).values()
    assert held["ConditionExpression"] == "(attribute_exists(#n0) AND #n1 = :v0 AND #n2 = :v1)"
    assert held["ExpressionAttributeNames"] == {"#n0": "PK", "#n1": "a.b", "#n2": "status"}
    assert held["ExpressionAttributeValues"] == {":v0": {"N": "1"}, ":v1": {"S": "NEW"}}
    (held,) = render(check(SHOP, KEY, [absent]), SHOP).values()
    assert held["ConditionExpression"] == "attribute_not_exists(#n0)"


@pytest.mark.parametrize("verb", [Verb.DELETE, Verb.CHECK, Verb.UPDATE])
def test_an_item_whose_key_is_binary_is_written_like_any_other(verb):
    key = {"PK": {"B": b"\x00"}}
    action = Action(item_ref(BINARY, key), verb).only_if(Attr("status").exists())
    (body,) = render(action, BINARY).values()
    assert body["Key"] == key
    assert body["ExpressionAttributeNames"] == {"#n0": "status"}
