"""An action becomes an entry of a transaction; streamkit's own items have names of their own."""

from decimal import Decimal

import pytest

from streamkit.model.conditions import Attr, absent, present
from streamkit.model.origin import ORIGIN
from streamkit.model.schema import TableSchema
from streamkit.progress.actions import (
    Action,
    ItemRef,
    Verb,
    is_own,
    item_ref,
    own_attributes,
    render,
)
from streamkit.progress.control import ControlSpace

SCHEMA = TableSchema("things", "name", "number", "S", "N", {}, ttl="owner")
SPACE = ControlSpace.of(SCHEMA, "app", "label")
REF = ItemRef("things", ("S", "a"), ("N", "1"))
KEY = {"name": {"S": "a"}, "number": {"N": "1"}}


def test_an_update_has_a_clause_for_each_kind_of_change_and_no_name_of_an_item_in_its_text():
    action = Action(
        REF,
        Verb.UPDATE,
        sets={"s": {"S": "x"}, "t": {"S": "y"}},
        removes={"r", "q", "z", "b", "p"},
        adds={"n": Decimal(2)},
        unions={"u": {"SS": ["x"]}},
        subtractions={"d": {"SS": ["y"]}},
    )
    body = render(action, SCHEMA)["Update"]
    assert (body["TableName"], body["Key"]) == ("things", KEY)
    text = body["UpdateExpression"]
    for placeholder, name in sorted(body["ExpressionAttributeNames"].items(), reverse=True):
        text = text.replace(placeholder, name)
    for placeholder, value in sorted(body["ExpressionAttributeValues"].items(), reverse=True):
        text = text.replace(placeholder, "+".join(str(part) for part in value.values()))
    assert text == "SET s = x, t = y REMOVE b, p, q, r, z ADD n 2, u ['x'] DELETE d ['y']"
    assert action.clauses == 10
    assert "ConditionExpression" not in body


@pytest.mark.parametrize(
    ("verb", "parts"),
    [
        (Verb.PUT, {"TableName", "Item"}),
        (Verb.UPDATE, {"TableName", "Key"}),  # it makes an item of its key alone
        (Verb.DELETE, {"TableName", "Key"}),
        (Verb.CHECK, {"TableName", "Key"}),
    ],
)
def test_an_action_without_content_has_no_empty_parts(verb, parts):
    """The service refuses an empty expression, and names that nothing uses."""
    assert render(Action(REF, verb, item=KEY), SCHEMA)[verb.value].keys() == parts


def test_all_conditions_of_an_action_hold_together():
    action = Action(REF, Verb.CHECK).only_if(Attr("x").eq(1)).only_if(present)
    body = render(action, SCHEMA)["ConditionCheck"]
    names, values = body["ExpressionAttributeNames"], body["ExpressionAttributeValues"]
    assert sorted(names.values()) == ["name", "x"]
    assert list(values.values()) == [{"N": "1"}]
    assert " AND " in body["ConditionExpression"]


def test_the_attributes_of_a_control_item_cannot_clash_with_those_of_the_table():
    """Its table may call a key, an index's key or the time to live as streamkit an attribute."""
    action = SPACE.put({"owner": {"S": "me"}, "name": {"S": "s"}}, "cursor", "s").only_if(absent)
    body = render(action, SCHEMA)["Put"]
    key = SPACE.key("cursor", "s")
    own = {"_sk_owner": {"S": "me"}, "_sk_name": {"S": "s"}, "_sk_kind": {"S": "cursor"}}
    assert body["Item"] == key | own
    assert [*body["ExpressionAttributeNames"].values()] == ["_sk_kind"]
    read = own_attributes(body["Item"] | {"other": {"S": "of the application"}})
    assert read == {"owner": {"S": "me"}, "name": {"S": "s"}, "kind": {"S": "cursor"}}


def test_every_part_of_an_update_of_a_control_item_has_its_own_names():
    action = SPACE.update("cursor", "s")
    action.sets["owner"], action.removes = {"S": "me"}, {"takes"}
    action.adds, action.unions = {"n": Decimal(1)}, {"live": {"SS": ["x"]}}
    action.subtractions = {"holds": {"SS": ["y"]}}
    names = render(action, SCHEMA)["Update"]["ExpressionAttributeNames"].values()
    assert sorted(names) == sorted(
        f"_sk_{n}" for n in ("kind", "owner", "takes", "n", "live", "holds")
    )
    assert action.sets.keys() == {"kind", "owner"}, "the action itself is as it was"


EXPIRES = {"N": "1800000000"}


def test_a_control_item_that_expires_says_so_in_the_tables_own_attribute_too():
    put = render(SPACE.put({"expires": EXPIRES}, "mark", "a"), SCHEMA)["Put"]
    assert put["Item"]["owner"] == put["Item"]["_sk_expires"] == EXPIRES
    update = SPACE.update("mark", "a")
    update.sets["expires"] = EXPIRES
    names = render(update, SCHEMA)["Update"]["ExpressionAttributeNames"].values()
    assert {"owner", "_sk_expires"} <= {*names}
    update = SPACE.update("mark", "a")
    update.removes.add("expires")
    body = render(update, SCHEMA)["Update"]
    assert {"owner", "_sk_expires"} <= {*body["ExpressionAttributeNames"].values()}
    assert body["UpdateExpression"].count("REMOVE") == 1


def test_a_table_without_a_time_to_live_has_only_streamkits_attribute():
    bare = TableSchema("things", "name", "number", "S", "N", {})
    put = render(SPACE.put({"expires": EXPIRES}, "mark", "a"), bare)["Put"]
    assert [name for name, value in put["Item"].items() if value == EXPIRES] == ["_sk_expires"]


def test_a_copy_can_be_merged_into_without_changing_the_action():
    action = Action(REF, Verb.UPDATE, sets={"s": {"S": "x"}}, plain=True).only_if(present)
    copied = action.copy()
    assert copied == action
    copied.sets["t"], copied.item["i"], copied.adds["n"] = {"S": "y"}, {"S": "y"}, Decimal(1)
    copied.unions["u"], copied.subtractions["d"] = {"SS": ["x"]}, {"SS": ["x"]}
    copied.removes.add("r")
    copied.only_if(absent)
    assert action == Action(REF, Verb.UPDATE, sets={"s": {"S": "x"}}, plain=True).only_if(present)


def test_an_origin_is_written_with_the_item_and_not_into_one_that_is_deleted_or_checked():
    origins = {}
    for verb in Verb:
        action = Action(REF, verb)
        action.leave_origin("here")
        origins[verb] = (action.item.get(ORIGIN), action.sets.get(ORIGIN))
    here = {"S": "here"}
    assert origins == {
        Verb.PUT: (here, None),
        Verb.UPDATE: (None, here),
        Verb.DELETE: (None, None),
        Verb.CHECK: (None, None),
    }


def test_a_large_part_of_an_action_counts_wherever_it_is():
    large = {"S": "x" * 10_000}
    members = {"SS": ["x" * 10_000]}
    for parts in ({"item": {"a": large}}, {"sets": {"a": large}}, {"unions": {"a": members}}):
        assert 10_000 < Action(REF, Verb.UPDATE, **parts).size() < 11_000
    assert 10_000 < Action(REF, Verb.UPDATE, subtractions={"a": members}).size() < 11_000
    assert 10_000 < Action(ItemRef("t", ("S", "x" * 10_000), None), Verb.CHECK).size() < 11_000


def test_an_item_is_streamkits_own_by_the_beginning_of_its_partition_key():
    assert is_own(SCHEMA, SPACE.key("cursor", "s"))
    assert not is_own(SCHEMA, KEY)
    assert not is_own(TableSchema("t", "pk", None, "N", None, {}), {"pk": {"N": "1"}})
    assert item_ref(SCHEMA, KEY | {"other": {"S": "x"}}) == REF
