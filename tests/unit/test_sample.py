"""What is odd about a table's items is said before a worker meets them, and nothing of the items."""

from typing import Annotated, Any

import pytest

from streamkit import Aggregate, App, Count, Entity, Inserted, Key
from streamkit.core.table_shape import TableShape
from streamkit.model.copies import COPY
from streamkit.model.schema import TableSchema
from streamkit.operate.sample import PAGE, PAGES, SAMPLE, odd_items, sample_findings
from streamkit.testing.loop import run_virtually
from streamkit.testing.world import World

SCHEMA = TableSchema("table", "PK", "SK", "S", "S", {})


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
    app = App("shop", table="table", entities=[Order, *entities])

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


class Town(Entity, pk="TOWN#{state}", sk="TOWN#{town}"):
    state: str
    town: str


def renamed(city: City) -> Town:
    return Town(state=city.state, town=city.city)


@pytest.mark.parametrize(("listens", "there"), [(Town, "STATE#CA"), (City, "TOWN#CA")])
def test_items_of_the_other_side_of_a_migration_are_no_sign_of_wrong_templates(
    listens: type[Entity], there: str
) -> None:
    app = App("shop", table="table")

    @app.on
    def listen(change: Inserted[listens]) -> None:  # type: ignore[valid-type]
        pass

    items = [item(there, "CITY#LA" if listens is Town else "TOWN#LA")]
    assert len(odd_items(app, SCHEMA, items)) == 1
    app.migration("0001", City, mode="rekey")(renamed)
    assert odd_items(app, SCHEMA, items) == []
    assert len(odd_items(app, SCHEMA, [item("X#1", "X#1")])) == 1


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


class CitiesOfState(Aggregate[City], pk="STATE#{state}", sk="CITIES"):
    state: str
    cities: Annotated[int, Count()] = 0


class State(Entity, pk="STATE#{state}", sk="STATE"):
    state: str
    cities: int = 0


class CitiesInState(Aggregate[City], onto=State):
    cities: Annotated[int, Count()] = 0

    @classmethod
    def group(cls, city: City) -> Key[State]:
        return State.key(state=city.state)


def listening() -> App:
    app = App("shop", table="table")

    @app.on
    def listen(change: Inserted[City]) -> None:
        pass

    return app


def looked(own: int, items: list[dict[str, Any]], app: App) -> tuple[Any, int]:
    """Look at a table with so many of streamkit's own items; return what came, and the scans."""

    async def main() -> tuple[Any, int]:
        world = World.create(1)
        async with world.clients() as aws:
            await TableShape().create(aws.dynamodb, "table", (), stream=True)
            for number in range(own):
                one = item(f"_sk#shop#v1#ledger#{number}", "x")
                world.engine.call("dynamodb", "PutItem", {"TableName": "table", "Item": one})
            for one in items:
                world.engine.call("dynamodb", "PutItem", {"TableName": "table", "Item": one})
            found = await sample_findings(app, aws, SCHEMA)
            return found, sum(call.operation == "Scan" for call in world.calls)

    return run_virtually(main, seed=1)


def cities(count: int, *, prefix: str = "STATE") -> list[dict[str, Any]]:
    return [item(f"{prefix}#{n}", f"CITY#{n}") for n in range(count)]


def test_the_sample_goes_on_past_streamkits_own_items_until_there_are_enough_of_the_apps() -> None:
    found, scans = looked(3 * PAGE, cities(SAMPLE + 300), listening())
    assert (found.looked_at, found.findings) == (SAMPLE, ())
    assert scans > 1
    assert found.scanned > SAMPLE


def test_the_sample_ends_after_so_many_pages_and_then_does_not_say_that_no_item_fits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("streamkit.operate.sample.PAGE", 20)
    found, scans = looked(30 * PAGES, cities(5, prefix="OTHER"), listening())
    assert (scans, found.scanned, found.findings) == (PAGES, 20 * PAGES, ())
    assert found.looked_at < 5


def test_a_small_table_without_an_item_of_the_app_is_told_among_items_of_streamkit() -> None:
    found, _ = looked(50, cities(5, prefix="OTHER"), listening())
    assert (found.looked_at, found.scanned) == (5, 55)
    assert found.findings[0].text.startswith("none of the 5 items that were looked at")


def test_aggregates_and_what_migrations_leave_are_items_of_the_app() -> None:
    app = listening()
    app.aggregate(CitiesOfState)
    app.aggregate(CitiesInState)
    assert odd_items(app, SCHEMA, [item("STATE#CA", "STATE")]) == []
    group, copy = item("STATE#CA", "CITIES"), {**GOOD, COPY: {"S": "0001"}}
    assert odd_items(app, SCHEMA, [group]) == []
    assert odd_items(app, SCHEMA, [copy]) == []
