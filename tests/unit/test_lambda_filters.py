"""Filter criteria: no wanted record is left out, and of the others as few come through as can."""

import json
from dataclasses import replace

import pytest

from streamkit import App, Change, Entity, Put
from streamkit.aws_lambda.event import read_records
from streamkit.aws_lambda.filters import PATTERN_MAX, criteria
from streamkit.model.schema import TableSchema
from streamkit.progress.actions import CONTROL_PREFIX
from streamkit.stream.decode import CONTROL
from tests.filter_rules import lets_through


def schema_of(*, sk="SK", type_attribute=None, view="NEW_AND_OLD_IMAGES"):
    return TableSchema("T", "PK", sk, "S", sk and "S", {}, None, None, view, type_attribute)


class Order(Entity, pk="CUSTOMER#{customer}", sk="#ORDER#{order}"):
    customer: str
    order: str


class Customer(Entity, pk="CUSTOMER#{customer}", sk="CUSTOMER#{customer}"):
    customer: str


class Item(Entity, pk="ORDER#{order}", sk="ITEM#{number}"):
    order: str
    number: str


class Loose(Entity, pk="{a}", sk="{b}"):
    a: str
    b: str


class BySort(Entity, pk="{a}", sk="NOTE#{b}"):
    a: str
    b: str


class AnySort(Entity, pk="CUSTOMER#{customer}", sk="{name}"):
    customer: str
    name: str


class Unheard(Entity, pk="UNHEARD#{a}", sk="UNHEARD#{a}"):
    a: str


def app_of(*entities, type_attribute=None):
    app = App("shop", table="T", entities=[Unheard], type_attribute=type_attribute)
    for entity in entities:

        @app.on(name=entity.__name__.lower())
        def handle(change: Change[entity]) -> Put[Unheard] | None:
            return None

    return app


VALUES = {
    Order: {"customer": "c", "order": "o"},
    Customer: {"customer": "c"},
    Item: {"order": "o", "number": "1"},
    Loose: {"a": "x", "b": "y"},
    BySort: {"a": "x", "b": "y"},
    AnySort: {"customer": "c", "name": "n"},
    Unheard: {"a": "x"},
}


def records_of(entity, *, typed=None, images=True):
    """An insertion, a change and a removal; and the same where the type comes or goes."""
    key = entity(**VALUES[entity]).item_key
    plain = {"PK": {"S": key.pk}, "SK": {"S": key.sk}}
    item = plain | ({"type": {"S": entity.__name__}} if typed else {})
    for name, old, new in (
        ("INSERT", None, item),
        ("MODIFY", item, item),
        ("REMOVE", item, None),
        ("MODIFY", {**plain, "type": {"S": "other"}}, plain),
    ):
        inner = {"Keys": plain, "SequenceNumber": "1" * 21}
        if images:
            shown = {"OldImage": old, "NewImage": new}
            inner |= {image: value for image, value in shown.items() if value is not None}
        yield {"eventName": name, "eventSource": "aws:dynamodb", "dynamodb": inner}


def own_records():
    key = {"PK": {"S": f"{CONTROL_PREFIX}shop#label#mark#1"}, "SK": {"S": "_sk"}}
    item = {**key, "_sk_kind": {"S": "mark"}}
    for name, images in (
        ("INSERT", {"NewImage": item}),
        ("MODIFY", {"NewImage": item, "OldImage": item}),
        ("REMOVE", {"OldImage": item}),
    ):
        yield {"eventName": name, "dynamodb": {"Keys": key, "SequenceNumber": "1" * 21, **images}}


APPS = [
    (Order,),
    (Order, Customer, Item),
    (BySort,),
    (BySort, Order),
    (Loose,),
    (Loose, Order, Item),
    (Order, AnySort),
    (AnySort, Order, Item),
]


@pytest.mark.parametrize("entities", APPS, ids=lambda es: "-".join(e.__name__ for e in es))
@pytest.mark.parametrize("filters", [1, 5])
@pytest.mark.parametrize("typed", [None, "type"])
@pytest.mark.parametrize("images", [True, False])
def test_every_wanted_record_comes_through_and_none_of_streamkits_own(
    entities, filters, typed, images
):
    app, schema = app_of(*entities, type_attribute=typed), schema_of(type_attribute=typed)
    found = criteria(app, schema, filters=filters)
    assert len(found.patterns) <= filters
    router, wanted = app.router(schema), 0
    for entity in VALUES:
        for record in records_of(entity, typed=typed, images=images):
            (decoded,) = read_records([record])
            if router.route(decoded) in entities:
                wanted += 1
                assert lets_through(found.to_dict(), record), record
    assert wanted
    for record in own_records():
        assert router.route(*read_records([record])) is CONTROL
        assert not lets_through(found.to_dict(), record), record


def test_entities_without_a_handler_are_left_out_by_partition_and_sort_key():
    found = criteria(app_of(Order, Item), schema_of()).to_dict()
    assert all(lets_through(found, record) for record in records_of(Order))
    for entity in (Customer, Unheard, Loose):
        assert not any(lets_through(found, record) for record in records_of(entity))


def test_the_type_tells_where_the_table_has_one():
    app = app_of(Order, type_attribute="type")
    found = criteria(app, schema_of(type_attribute="type")).to_dict()
    for record in list(records_of(Loose, typed=True))[:3]:
        assert not lets_through(found, record)
        record["dynamodb"] = json.loads(json.dumps(record["dynamodb"]).replace("Loose", "Order"))
        assert lets_through(found, record)


def many(count, length):
    entities = []
    for number in range(count):
        name = f"E{number:03}" + "x" * length
        make = type(Entity)
        entities.append(
            make(
                f"E{number}",
                (Entity,),
                {"__annotations__": {"a": str}, "__module__": __name__},
                pk=f"{name}#{{a}}",
                sk=f"S{number % 7}#{{a}}",
            )
        )
    return entities


@pytest.mark.parametrize(("count", "length"), [(7, 0), (150, 0), (60, 200)])
def test_what_does_not_fit_becomes_coarser_and_says_so(count, length):
    entities = many(count, length)
    found = criteria(app_of(*entities), schema_of(), filters=5)
    assert len(found.patterns) <= 5
    assert found.notes
    for one in found.to_dict()["Filters"]:
        assert len(one["Pattern"]) <= PATTERN_MAX
    for entity in entities:
        key = entity(a="z").item_key
        keys = {"PK": {"S": key.pk}, "SK": {"S": key.sk}}
        assert lets_through(found.to_dict(), {"dynamodb": {"Keys": keys}})
    assert not any(lets_through(found.to_dict(), record) for record in own_records())
    assert not any(lets_through(found.to_dict(), record) for record in records_of(Unheard))


def test_a_stream_without_images_is_said_to_let_own_records_through_where_keys_do_not_tell():
    assert criteria(app_of(Order), schema_of(view="KEYS_ONLY")).notes == ()
    (*_, note) = criteria(app_of(Loose), schema_of(view="KEYS_ONLY")).notes
    assert "KEYS_ONLY" in note


def test_sort_keys_that_are_numbers_or_bytes_are_not_filtered_as_strings():
    class Total(Entity, pk="S#{a}", sk="0"):
        a: str

    app = App("shop", table="T", entities=[Unheard])

    @app.on
    def handle(change: Change[Total]) -> None:
        return None

    for kind in ("N", "B"):
        (pattern,) = criteria(app, replace(schema_of(), sk_type=kind)).patterns
        assert pattern == {"dynamodb": {"Keys": {"PK": {"S": [{"prefix": "S#"}]}}}}
    (pattern,) = criteria(app, replace(schema_of(), pk_type="N")).patterns
    assert "PK" not in pattern["dynamodb"].get("Keys", {})


def test_a_table_without_a_sort_key_is_told_by_its_partition_key():
    class Single(Entity, pk="S#{a}"):
        a: str

    app = App("shop", table="T", entities=[Unheard])

    @app.on
    def handle(change: Change[Single]) -> None:
        return None

    (pattern,) = criteria(app, schema_of(sk=None)).patterns
    assert pattern == {"dynamodb": {"Keys": {"PK": {"S": [{"prefix": "S#"}]}}}}


def test_the_evaluator_follows_the_documented_rules():
    def holds(rule, value):
        pattern = json.dumps({"a": {"b": rule}})
        event = {"a": {} if value is None else {"b": value}}
        return lets_through({"Filters": [{"Pattern": pattern}]}, event)

    assert holds(["x", "y"], "y")
    assert not holds(["x"], None)
    assert holds([{"prefix": "x"}], "xy")
    assert not holds([{"prefix": "x"}], "yx")
    assert holds([{"exists": False}], None)
    assert not holds([{"exists": False}], "x")
    assert holds([{"exists": True}], "x")
    assert not holds([{"exists": True}], {"S": "x"}), "leaves only"
    assert holds([{"anything-but": ["x"]}], "y")
    assert not holds([{"anything-but": ["x"]}], "x")
    assert holds([{"numeric": [">", 1, "<=", 3]}], 3)
    assert not holds([{"numeric": [">", 1]}], "2"), "numbers of DynamoDB are strings"
    assert holds([None], None) is False
    either = json.dumps({"$or": [{"a": ["1"]}, {"b": ["2"]}]})
    assert lets_through({"Filters": [{"Pattern": either}]}, {"b": "2"})
    assert not lets_through({"Filters": [{"Pattern": either}]}, {"a": "2"})
    assert lets_through({"Filters": []}, {})
