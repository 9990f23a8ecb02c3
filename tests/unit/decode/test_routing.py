"""A record finds its entity by its type attribute or by the templates of its key."""

import json
from base64 import b64encode
from typing import Any

import msgspec
import pytest

from streamkit.changes import ItemKey
from streamkit.core.matching import Matcher
from streamkit.entity import Entity
from streamkit.errors import DeclarationError
from streamkit.model.schema import TableSchema
from streamkit.stream.decode import CONTROL, Record, Retyped, Router, parse_page

PREFIX = "_sk#"
TABLE = TableSchema("t", "PK", "SK", "S", "S", {})
TYPED = TableSchema("t", "PK", "SK", "S", "S", {}, type_attribute="type")
SIMPLE = TableSchema("t", "PK", None, "S", None, {})


class Customer(Entity, pk="CUSTOMER#{name}", sk="CUSTOMER#{name}"):
    name: str


class Order(Entity, pk="CUSTOMER#{name}", sk="#ORDER#{id}"):
    name: str
    id: str


class OrderItem(Entity, pk="ORDER#{id}#ITEM#{item}", sk="ORDER#{id}#ITEM#{item}"):
    id: str
    item: str


class Brands(Entity, pk="BRANDS", sk="BRANDS"):
    pass


class Device(Entity, pk="d#{id}", sk="{state}#{at}"):
    id: str
    state: str
    at: str


class Friend(Entity, pk="CUSTOMER#{name}", sk="CUSTOMER#{other}"):
    name: str
    other: str


class Log(Entity, pk="{day}#{n}", sk="{at}"):
    day: str
    n: int
    at: str


ENTITIES = [Device, OrderItem, Order, Customer, Brands, Friend, Log]


def record(pk: Any, sk: Any = None, image: dict[str, Any] | None = None, **dynamodb: Any) -> Record:
    keys = {} if sk is None else {"SK": sk if isinstance(sk, dict) else {"S": sk}}
    keys["PK"] = pk if isinstance(pk, dict) else {"S": pk}
    inner = {"Keys": keys, "SequenceNumber": "1", **dynamodb}
    if image is not None:
        inner["NewImage"] = image
    body = {"Records": [{"eventName": "INSERT", "dynamodb": inner}]}
    return parse_page(json.dumps(body).encode()).records[0]


@pytest.mark.parametrize(
    ("pk", "sk", "entity"),
    [
        ("CUSTOMER#a", "CUSTOMER#a", Customer),
        ("CUSTOMER#a", "CUSTOMER#b", Friend),
        ("CUSTOMER#a", "#ORDER#1", Order),
        ("ORDER#1#ITEM#2", "ORDER#1#ITEM#2", OrderItem),
        ("BRANDS", "BRANDS", Brands),
        ("d#1", "WARN#2024", Device),
        ("2024-05-01#3", "12:00", Log),
        ("BRANDS#1", "x", Log),
        ("CUSTOMER#", "CUSTOMER#", None),
        ("d#1", "WARN", Log),
        ("nothing", "x", None),
        ("", "x", None),
        ("_sk#lease", "x", CONTROL),
        ("_sk#", "x", CONTROL),
        ({"N": "1"}, "x", None),
        ("CUSTOMER#a", {"N": "1"}, None),
    ],
)
def test_the_most_specific_template_that_matches_claims_a_record(
    pk: Any, sk: Any, entity: object
) -> None:
    assert Router(ENTITIES, TABLE, PREFIX).route(record(pk, sk)) is entity


def test_control_comes_before_a_template_that_would_match() -> None:
    class Everything(Entity, pk="{a}", sk="{b}"):
        a: str
        b: str

    router = Router([Everything], TABLE, PREFIX)
    assert router.route(record("_sk#x", "y")) is CONTROL
    assert router.route(record("_sk", "y")) is Everything


@pytest.mark.parametrize("sk", [{"N": "1"}, {"B": "AAE="}])
def test_control_items_are_known_whatever_type_the_sort_key_has(sk: dict[str, str]) -> None:
    router = Router(ENTITIES, TABLE, PREFIX)
    assert router.route(record("_sk#x", sk)) is CONTROL
    assert router.route(record("x", sk)) is None
    assert router.route(record({"N": "7"}, sk)) is None


@pytest.mark.parametrize(
    ("kind", "sk"), [("N", {"N": "-1.5"}), ("B", {"B": b64encode("é".encode()).decode()})]
)
def test_keys_that_are_numbers_or_bytes_find_their_entity_too(kind: Any, sk: Any) -> None:
    class Reading(Entity, pk="SENSOR#{sensor}", sk="{at}"):
        sensor: str
        at: str

    router = Router([Reading], TableSchema("t", "PK", "SK", "S", kind, {}), PREFIX)
    assert router.route(record("SENSOR#a", sk)) is Reading
    assert router.route(record("OTHER#a", sk)) is None
    assert router.route(record("_sk#x", sk)) is CONTROL
    alone = Router([Log], TableSchema("t", "PK", None, kind, None, {}), PREFIX)
    assert alone.route(record({"N": "5"})) is None, "its template has a separator"


def test_bytes_that_no_template_has_built_find_no_entity() -> None:
    router = Router(ENTITIES, TableSchema("t", "PK", "SK", "S", "B", {}), PREFIX)
    assert router.route(record("CUSTOMER#a", {"B": b64encode(b"\xff").decode()})) is None


def test_the_partition_key_comes_first_in_a_routed_record() -> None:
    routed = record("CUSTOMER#a", "#ORDER#1")
    Router(ENTITIES, TABLE, PREFIX).route(routed)
    assert routed.item_key == ItemKey("CUSTOMER#a", "#ORDER#1")


def test_a_table_without_sort_key_routes_by_the_partition_key() -> None:
    class Session(Entity, pk="S#{token}"):
        token: str

    class Attempt(Entity, pk="A#{user}#{hour}"):
        user: str
        hour: str

    router = Router([Session, Attempt], SIMPLE, PREFIX)
    assert router.route(record("S#1")) is Session
    assert router.route(record("A#1#2")) is Attempt
    assert router.route(record("A#1")) is None
    assert router.route(record("_sk#1")) is CONTROL


def test_an_entity_without_sk_claims_nothing_in_a_table_with_a_sort_key() -> None:
    class Session(Entity, pk="S#{token}"):
        token: str

    assert Router([Session], TABLE, PREFIX).route(record("S#1", "x")) is None


@pytest.mark.parametrize(
    ("type_name", "entity"), [("Order", Order), ("Customer", Customer), ("Else", None)]
)
def test_the_type_attribute_decides_whatever_the_key(type_name: str, entity: object) -> None:
    router = Router([Customer, Order], TYPED, PREFIX)
    image = {"a": {"S": "x"}, "type": {"S": type_name}}
    assert router.route(record("CUSTOMER#a", "CUSTOMER#a", image)) is entity
    assert router.route(record({"N": "1"}, "x", image)) is entity
    assert router.route(record("q", "q", OldImage=image)) is entity


def test_without_the_type_attribute_the_key_decides() -> None:
    router = Router([Customer, Order], TYPED, PREFIX)
    assert router.route(record("CUSTOMER#a", "CUSTOMER#a")) is Customer
    assert router.route(record("CUSTOMER#a", "CUSTOMER#a", {"a": {"S": "x"}})) is Customer
    assert router.route(record("CUSTOMER#a", "CUSTOMER#a", {"type": {"N": "1"}})) is Customer
    assert router.route(record("_sk#a", "CUSTOMER#a", {"type": {"S": "Order"}})) is CONTROL


def test_entities_of_one_shape_are_refused_unless_a_type_tells_them_apart() -> None:
    class Sale(Entity, pk="CUSTOMER#{who}", sk="#ORDER#{n}"):
        who: str
        n: int

    with pytest.raises(DeclarationError, match=r"Sale \(.*\) and Order \(.*keys of the same shape"):
        Router([Order, Sale], TABLE, PREFIX)
    router = Router([Order, Sale], TYPED, PREFIX)
    key = ("CUSTOMER#a", "#ORDER#1")
    assert router.route(record(*key, {"type": {"S": "Sale"}})) is Sale
    assert router.route(record(*key)) is None


class Bill(Entity, pk="CUSTOMER#{name}", sk="#ORDER#{id}"):
    name: str
    id: str


TYPES: list[Any] = [{"S": "Order"}, {"S": "Bill"}, {"S": "Else"}, {"N": "1"}, {"NULL": True}, None]


def typed(value: dict[str, Any] | None) -> dict[str, Any]:
    return {"a": {"S": "x"}} if value is None else {"type": value}


@pytest.mark.parametrize("kind", TYPES)
def test_scans_tell_items_apart_as_the_stream_does(kind: Any) -> None:
    known: list[type[Entity]] = [Customer, Order]
    router = Router(known, TYPED, PREFIX)
    for sk in ("#ORDER#1", "CUSTOMER#a", "ORDER#1"):
        one = record("CUSTOMER#a", sk, typed(kind))
        item = {"PK": {"S": "CUSTOMER#a"}, "SK": {"S": sk}, **typed(kind)}
        found = [entity for entity in known if Matcher(entity, TYPED, known).matches(item)]
        entity = router.route(one)
        assert found == ([] if entity is None else [entity])


@pytest.mark.parametrize("after", TYPES)
@pytest.mark.parametrize("before", TYPES)
def test_a_change_of_type_removes_an_item_and_inserts_another(before: Any, after: Any) -> None:
    """Neither entity could read both images, nor count what it was not told of before."""
    router = Router([Customer, Order, Bill], TYPED, PREFIX)
    images = {"OldImage": typed(before), "NewImage": typed(after)}
    one = record("CUSTOMER#a", "#ORDER#1", **images)
    one = msgspec.structs.replace(one, event_name="MODIFY")
    left, come = (
        router.route(record("CUSTOMER#a", "#ORDER#1", **{name: image}))
        for name, image in images.items()
    )
    sides = [(entity, r.event_name, r.old_image, r.new_image) for entity, r in router.sides(one)]
    if left is come:
        assert router.route(one) is come
        whole = (come, "MODIFY", one.old_image, one.new_image)
        assert sides == ([] if come is None else [whole])
        return
    assert isinstance(router.route(one), Retyped)
    removed = [] if left is None else [(left, "REMOVE", one.old_image, None)]
    assert sides == removed + ([] if come is None else [(come, "INSERT", None, one.new_image)])


def test_two_entities_of_one_type_are_refused() -> None:
    class Other(Entity, pk="X#{a}", sk="X", type="Order"):
        a: str

    with pytest.raises(DeclarationError, match=r"Other \(.*\) and Order \(.*same type 'Order'"):
        Router([Order, Other], TYPED, PREFIX)
