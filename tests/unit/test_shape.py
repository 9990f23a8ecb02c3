"""The table that an app's entities fit."""

from dataclasses import replace
from typing import ClassVar

import pytest

from streamkit import App, Entity, Index, IndexShape, Inserted, Put, TableShape
from streamkit.core.table_shape import entities_of
from streamkit.core.tables import AppTables
from streamkit.errors import ConfigurationError
from streamkit.kinds.preflight import findings
from streamkit.local.engine import Engine
from streamkit.model.schema import TableSchema
from streamkit.operate.shape_findings import shape_findings


class Product(Entity, pk="P#{number}", sk="METADATA"):
    number: str
    brand: str

    by_brand: ClassVar = Index("GSI1", pk="B#{brand}", sk="P#{number}")
    by_code: ClassVar = Index("Codes", pk="{number}", pk_attribute="code")


class Session(Entity, pk="{token}"):
    token: str
    username: str

    by_user: ClassVar = Index("UserIndex", pk="{username}", pk_attribute="username")


def described(shape, *entities, **options):
    """What the engine says of a table that was made from a shape."""
    engine = Engine()
    request = shape.create_table("Table", entities, **options)
    status, body = engine.call("dynamodb", "CreateTable", request)
    assert status == 200, body
    return TableSchema.from_description(body["TableDescription"])


def test_keys_and_indexes_follow_from_the_entities():
    schema = described(TableShape(), Product)
    assert (schema.pk, schema.sk, schema.view_type) == ("PK", "SK", "NEW_AND_OLD_IMAGES")
    gsi, codes = schema.indexes["GSI1"], schema.indexes["Codes"]
    assert (gsi.keys, gsi.projection) == ((("GSI1PK", "S"), ("GSI1SK", "S")), "ALL")
    assert (codes.pk, codes.sk) == ((("code", "S"),), ())
    assert Product.by_brand.key_attributes(schema)


def test_entities_without_sort_keys_need_a_table_without_one():
    schema = described(TableShape(pk="SessionToken"), Session)
    assert (schema.pk, schema.sk) == ("SessionToken", None)
    assert described(TableShape(), Session, Product).sk == "SK"


def test_names_types_and_projections_are_as_the_shape_says():
    shape = TableShape(
        pk="id",
        sk="at",
        pk_type="N",
        sk_type="N",
        indexes={
            "GSI1": IndexShape(pk="kind", sk="at", project=("brand", "price")),
            "Codes": IndexShape(pk_type="N", project=()),
        },
    )
    schema = described(shape, Product)
    assert (schema.pk_type, schema.sk_type) == ("N", "N")
    gsi, codes = schema.indexes["GSI1"], schema.indexes["Codes"]
    assert gsi.keys == (("kind", "S"), ("at", "N"))
    assert (gsi.projection, gsi.included) == ("INCLUDE", {"brand", "price"})
    assert (codes.projection, codes.pk) == ("KEYS_ONLY", (("code", "N"),))


def test_a_table_that_is_only_written_to_has_no_stream():
    assert described(TableShape(), stream=False).view_type is None


@pytest.mark.parametrize("ttl", [None, "expires"])
def test_items_expire_by_the_attribute_of_the_shape(harness_of, ttl):
    app = App("sessions", table="Sessions")

    @app.on
    def nothing(change: Inserted[Session]) -> None: ...

    harness = harness_of(app, shape=TableShape(pk="token", ttl=ttl))
    assert harness.tables.table.ttl == ttl
    harness.put(Session(token="t", username="ann"))
    assert harness.get(Session.key(token="t")).username == "ann"


def test_the_entities_of_an_app_are_those_of_its_listeners_too():
    app = App("shop", table="Shop", entities=[Product])
    listener = app.listener("search")

    @listener.on
    def nothing(change: Inserted[Session]) -> None: ...

    assert set(entities_of(app)) == {Product, Session}


class Task(Entity, pk="T#{number}", sk="TASK"):
    number: str


class Note(Entity, pk="NOTE#{number}", sk="NOTE"):
    number: str
    owner: str = "ann"

    by_owner: ClassVar = Index("Owners", pk="O#{owner}", sk="{number}")


class Mail(Entity, pk="MAIL#{address}"):
    address: str

    by_domain: ClassVar = Index("Domains", pk="D#{address}")


def writing(source, written):
    app = App("notes", table="Notes")

    @app.on
    def note(change: Inserted[source]) -> Put[written] | None: ...

    return app


def test_an_index_of_an_entity_that_handlers_only_write_is_made(harness_of):
    app = writing(Task, Note)
    assert set(described(TableShape(), *entities_of(app)).indexes) == {"Owners"}
    app = App("notes", table="Notes")

    @app.on
    def nothing(change: Inserted[Task]) -> None: ...

    @app.listener("search").on
    def note(change: Inserted[Task]) -> Put[Note]:
        return Put(Note(number=change.new.number))

    harness = harness_of(app)
    harness.put(Task(number="1"))
    harness.settle()
    assert [one.number for one in harness.query(Note.query(index=Note.by_owner, owner="ann"))]


def test_an_entity_that_is_only_written_changes_no_key_and_no_index_of_the_others():
    assert described(TableShape(), *entities_of(writing(Session, Note))).sk is None
    rival = type(
        "Rival",
        (Entity,),
        {
            "__module__": __name__,
            "__annotations__": {"user": str, "by": ClassVar},
            "user": "",
            "by": Index("UserIndex", pk=("user",)),
        },
        pk="R#{user}",
    )
    schema = described(TableShape(), *entities_of(writing(Session, rival)))
    assert schema.indexes["UserIndex"].keys == (("username", "S"),)
    both = writing(Session, Mail)
    assert set(described(TableShape(), *entities_of(both)).indexes) == {"UserIndex", "Domains"}


@pytest.mark.parametrize("name", ["", "T", "Two words", "x" * 256])
def test_a_name_that_no_table_can_have_is_refused_in_words(harness_of, name):
    app = App("notes", table=name)

    @app.on
    def nothing(change: Inserted[Task]) -> None: ...

    with pytest.raises(ConfigurationError, match="names of 3 to 255 letters, digits"):
        harness_of(app)


def test_what_never_expires_is_said_where_a_test_lets_items_expire(harness_of):
    app = App("notes", table="Notes")

    @app.on
    def nothing(change: Inserted[Task]) -> None: ...

    with pytest.raises(ConfigurationError, match=r"write App\(shape=TableShape\(\.\.\., ttl="):
        harness_of(app).expire()
    assert harness_of(app, shape=TableShape(ttl="expires")).expire() == 0


def found_by_check(app, there, *entities, **options):
    """What `check` says of an app on a table that was made from another shape."""
    schema = described(there, *entities, **options)
    return [finding.text for finding in shape_findings(app, AppTables(schema, schema))]


def test_check_names_what_of_a_table_is_not_as_its_shape_says():
    said = TableShape(
        ttl="until",
        indexes={"GSI1": IndexShape(pk="kind", project=("brand",)), "GSI2": IndexShape()},
    )
    app = App("shop", table="Table", shape=said, entities=[Product])
    there = TableShape(pk="id", sk="at", sk_type="N", indexes={"GSI1": IndexShape(project=())})
    keys, expiry, index, carried, name = found_by_check(app, there, Product)
    assert all(text.startswith(f"{app.declared}: ") for text in (keys, expiry, index, carried))
    assert "says the keys PK (S) and SK (S), and the table has id (S) and at (N)" in keys
    assert keys.endswith('write TableShape(pk="id", sk="at", sk_type="N")')
    assert "says the TTL attribute until, and the table has no TTL attribute" in expiry
    assert "kind (S) and GSI1SK (S) of the index GSI1, and the table has GSI1PK (S)" in index
    assert "carries its keys and brand, and it carries its keys alone" in carried
    assert "the index GSI2, which no entity" in name


def test_check_says_nothing_of_a_table_that_is_as_its_shape_says_or_that_has_none():
    there = TableShape(pk="id", indexes={"GSI1": IndexShape(pk="kind", pk_type="N")})
    assert (
        found_by_check(App("a", table="Table", shape=there, entities=[Product]), there, Product)
        == []
    )
    assert found_by_check(App("b", table="Table", entities=[Product]), there, Product) == []


def test_check_tells_of_an_index_that_is_missing_or_has_other_keys_than_are_stored():
    def told(schema):
        found = findings(app, AppTables(schema, schema))
        return [(one.severity, one.text) for one in found if "Codes" in one.text]

    app = App("shop", table="Table")

    @app.on
    def nothing(change: Inserted[Product]) -> None: ...

    request = TableShape().create_table("Table", [Product])
    whole = TableSchema.from_description(request)
    assert told(whole) == []
    lacking = replace(whole, indexes={"GSI1": whole.indexes["GSI1"]})
    ((severity, text),) = told(lacking)
    assert severity == "warning"
    assert "Table has no index Codes; items get its attributes, and nobody can query it" in text
    other = replace(whole.indexes["Codes"], pk=(("number", "S"),))
    ((severity, text),) = told(replace(whole, indexes={**whole.indexes, "Codes": other}))
    assert severity == "error"
    assert "it stores code, and Codes of Table has the keys number" in text
