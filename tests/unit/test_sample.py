"""What is odd about a table's items is said before a worker meets them, and nothing of the items."""

from typing import Any

from streamkit import App, Entity, Inserted
from streamkit.model.schema import TableSchema
from streamkit.operate.sample import odd_items

SCHEMA = TableSchema("t", "PK", "SK", "S", "S", {})


class City(Entity, pk="STATE#{state}", sk="CITY#{city}"):
    state: str
    city: str
    people: int = 0


class Order(Entity, pk="C#{user}", sk="ORDER#{order}"):
    user: str
    order: str


def item(pk: str, sk: str, **fields: Any) -> dict[str, Any]:
    return {"PK": {"S": pk}, "SK": {"S": sk}, **fields}


def odd(*items: dict[str, Any], entities: tuple[type[Entity], ...] = ()) -> list[str]:
    app = App("shop", table="t", entities=[Order, *entities])

    @app.on
    def listen(change: Inserted[City]) -> None:
        pass

    return [finding.text for finding in odd_items(app, SCHEMA, items)]


GOOD = item("STATE#CA", "CITY#LA", state={"S": "CA"}, city={"S": "LA"})
KEY_ALONE = item("STATE#CA", "CITY#Fresno")


def test_items_that_are_as_they_should_be_are_not_odd() -> None:
    assert odd(GOOD, KEY_ALONE, item("X#1", "X#1")) == []
    assert odd() == []


def test_a_table_without_any_item_of_the_app_is_told_with_the_templates_to_compare() -> None:
    (text,) = odd(item("State#CA", "CITY#LA"), item("X#1", "X#1"))
    assert text.startswith("none of the 2 items that were looked at belongs to an entity of the")
    assert "City (test_sample.py:" in text
    assert "STATE#{state} / CITY#{city}" in text


def test_items_whose_key_and_fields_disagree_are_counted() -> None:
    other = item("STATE#CA", "CITY#LOS_ANGELES", city={"S": "Los Angeles"})
    (text,) = odd(GOOD, other)
    assert text.startswith(
        "1 of 2 items of City that were looked at have fields that build another"
    )
    assert "ANGELES" not in text.upper().replace("LOS_", "")


def test_items_that_cannot_be_read_are_counted_with_the_reason() -> None:
    broken = [item("STATE#CA", f"CITY#{n}", people={"S": "many"}) for n in range(3)]
    (text,) = odd(GOOD, *broken)
    assert text.startswith("3 of 4 items of City")
    assert "people (int_parsing)" in text
    assert "many" not in text


def test_items_of_another_type_in_the_shape_of_one_are_counted_unless_that_type_is_known() -> None:
    line = item("C#ann", "ORDER#1#LINE#1")

    class Line(Entity, pk="C#{user}", sk="ORDER#{order}#LINE#{line}"):
        user: str
        order: str
        line: int

    (text,) = odd(line, item("C#ann", "ORDER#1"))
    assert text.startswith("1 of 2 items of Order")
    assert "may be of another type" in text
    assert odd(line, entities=(Line,)) == []


def test_items_that_could_be_of_two_entities_are_counted() -> None:
    class Start(Entity, pk="{a}", sk="ORDER#{b}#END"):
        a: str
        b: str

    class End(Entity, pk="C#{a}", sk="{b}#END"):
        a: str
        b: str

    (text,) = odd(item("C#ann", "ORDER#1#END"), entities=(End, Start))
    assert "have keys of the shapes of both" in text
