"""Mistakes in declarations fail as they are made, and name the declaration and its line."""

import json
import random
from dataclasses import replace
from typing import Annotated

import pytest

from streamkit import (
    Aggregate,
    App,
    Avg,
    Change,
    Completed,
    Completions,
    Count,
    DeclarationError,
    Entity,
    Expired,
    Inserted,
    Key,
    Modified,
    Put,
    Set,
    Sum,
    changed,
)
from streamkit.changes import Kind
from streamkit.core.dispatch import Dispatcher
from streamkit.core.tables import AppTables, Tables
from streamkit.kinds.aggregate.contributions import contributions, difference
from streamkit.kinds.preflight import findings
from streamkit.model.schema import TableSchema
from streamkit.progress.clock import SystemClock
from streamkit.stream.decode import ImageDecoder, parse_page


class Sale(Entity, pk="SALE#{shop}", sk="{number:04d}"):
    shop: str
    number: int
    amount: int = 0
    returned: bool = False


class ShopSales(Aggregate[Sale], pk="SHOP#{shop}", sk="SALES"):
    shop: str
    sales: Annotated[int, Count()] = 0
    kept: Annotated[int, Count(when=lambda sale: not sale.returned)] = 0
    revenue: Annotated[int, Sum("amount")] = 0
    mean: Annotated[float | None, Avg("amount")] = None

    @classmethod
    def group(cls, sale: Sale) -> Key["ShopSales"]:
        return cls.key(shop=sale.shop)


SCHEMA = TableSchema(
    "t", "pk", "sk", "S", "S", {}, stream_arn="arn/stream/1", view_type="NEW_AND_OLD_IMAGES"
)


def app():
    return App("test", table="t")


def test_a_handler_listens_to_what_its_annotation_says():
    subject = app()

    @subject.on(when=changed("amount"))
    def handler(change: Inserted[Sale] | Modified[Sale]) -> None: ...

    (registered,) = subject.handlers
    assert registered.entity is Sale
    assert registered.kinds == {Kind.INSERTED, Kind.MODIFIED}
    assert registered.name == "handler"


def test_a_decorator_without_parentheses_does_the_same():
    subject = app()

    @subject.on
    def handler(change: Change[Sale]) -> None: ...

    assert subject.handlers[0].kinds == frozenset(Kind)


def test_a_handler_without_annotation_is_refused_with_its_line():
    with pytest.raises(DeclarationError, match=r"broken \(test_app.py:\d+\).*annotate 'change'"):

        @app().on
        def broken(change) -> None: ...


def test_a_when_on_an_unknown_field_is_refused():
    with pytest.raises(DeclarationError, match=r"broken \(test_app.py:\d+\).*price"):

        @app().on(when=changed("price"))
        def broken(change: Modified[Sale]) -> None: ...


def test_two_handlers_of_one_name_are_refused():
    subject = app()

    @subject.on
    def handler(change: Change[Sale]) -> None: ...

    with pytest.raises(DeclarationError, match="exists already"):
        subject.on(handler)


def test_an_aggregate_without_measure_is_refused():
    class Empty(Aggregate[Sale], pk="E#{shop}", sk="E"):
        shop: str

        @classmethod
        def group(cls, sale: Sale) -> Key["Empty"]:
            return cls.key(shop=sale.shop)

    with pytest.raises(DeclarationError, match="no field has a measure"):
        app().aggregate(Empty)


def test_an_aggregate_without_group_is_refused():
    class NoGroup(Aggregate[Sale], pk="E#{country}", sk="E"):
        country: str
        sales: Annotated[int, Count()] = 0

    with pytest.raises(DeclarationError, match=r"defines group\(\)"):
        app().aggregate(NoGroup)


def test_a_move_between_groups_takes_from_one_and_gives_to_the_other():
    old, new = Sale(shop="a", number=1, amount=5), Sale(shop="b", number=1, amount=7)
    effects = {effect.key.pk: effect.amounts for effect in difference(ShopSales, old, new)}
    assert effects["SHOP#a"]["revenue"] == -5
    assert effects["SHOP#b"] == {
        "sales": 1,
        "kept": 1,
        "revenue": 7,
        "mean_sum": 7,
        "mean_count": 1,
    }


def test_a_change_that_contributes_the_same_has_no_effect():
    sale = Sale(shop="a", number=1, amount=5)
    assert difference(ShopSales, sale, sale) == []


def test_a_contribution_counts_only_when_its_condition_holds():
    (amounts,) = contributions(ShopSales, Sale(shop="a", number=1, returned=True)).values()
    assert "kept" not in amounts
    assert amounts["sales"] == 1


def test_the_fingerprint_changes_with_an_aggregate_and_not_with_a_comment():
    first, second = app(), app()
    first.aggregate(ShopSales)
    second.aggregate(ShopSales)
    assert first.fingerprint() == second.fingerprint()

    @second.on
    def handler(change: Change[Sale]) -> None: ...

    assert first.fingerprint() != second.fingerprint()


def texts(subject, schema=SCHEMA, resources=()):
    return [f.text for f in findings(subject, AppTables(schema, schema), resources)]


def test_a_stream_without_the_image_a_handler_needs_is_an_error():
    subject = app()
    subject.aggregate(ShopSales)
    schema = TableSchema("t", "pk", "sk", "S", "S", {}, stream_arn="a/1", view_type="NEW_IMAGE")
    assert any("old image" in text for text in texts(subject, schema))
    assert texts(subject) == []


def test_a_numeric_partition_key_asks_for_a_control_table():
    subject = app()
    subject.aggregate(ShopSales)
    schema = TableSchema(
        "t", "pk", "sk", "N", "S", {}, stream_arn="a/1", view_type="NEW_AND_OLD_IMAGES"
    )
    assert any("control_table=" in text for text in texts(subject, schema))


def test_a_table_without_a_stream_is_an_error():
    subject = app()
    subject.aggregate(ShopSales)
    assert any("no stream" in t for t in texts(subject, TableSchema("t", "pk", "sk", "S", "S", {})))


def test_a_resource_that_nothing_yields_is_an_error():
    subject = app()

    class Mailer: ...

    @subject.on
    async def handler(change: Inserted[Sale], mailer: Mailer) -> Put[ShopSales] | None: ...

    assert any("'mailer' asks for" in text for text in texts(subject))
    assert texts(subject, resources=(Mailer(),)) == []


def test_a_measure_of_an_unknown_field_is_refused():
    class Misspelt(Aggregate[Sale], pk="M#{shop}", sk="M"):
        shop: str
        revenue: Annotated[int, Sum("amuont")] = 0

        @classmethod
        def group(cls, sale: Sale) -> Key["Misspelt"]:
            return cls.key(shop=sale.shop)

    with pytest.raises(DeclarationError, match=r"Misspelt \(test_app.py:\d+\).*'amuont'"):
        app().aggregate(Misspelt)


def test_an_effect_on_an_unknown_field_is_refused_where_it_is_made():
    with pytest.raises(ValueError, match="ShopSales has no field m"):
        Set(ShopSales.key(shop="a"), m=1)


def test_a_handler_of_expiries_on_a_table_without_ttl_is_a_warning():
    subject = app()

    @subject.on
    def handler(change: Expired[Sale]) -> None: ...

    assert any("no TTL" in text for text in texts(subject))


async def test_an_image_is_decoded_once_for_all_handlers(monkeypatch):
    subject, decoded = app(), []
    subject.aggregate(ShopSales)
    seen = []
    for name in ("first", "second"):

        @subject.on(name=name)
        def handler(change: Inserted[Sale]) -> None:
            seen.append(change.new)

    real = ImageDecoder.decode
    monkeypatch.setattr(ImageDecoder, "decode", lambda d, raw: decoded.append(raw) or real(d, raw))
    item = Sale(shop="a", number=1).attributes(SCHEMA)
    keys = {"pk": item["pk"], "sk": item["sk"]}
    body = {"Keys": keys, "NewImage": item, "SequenceNumber": "1"}
    page = parse_page(json.dumps({"Records": [{"eventName": "INSERT", "dynamodb": body}]}).encode())
    dispatcher = Dispatcher(
        subject.handlers,
        subject.routes(Tables(SCHEMA)),
        lambda *_: {},
        SystemClock(),
        random.Random(0),
    )
    await dispatcher.dispatch(page, "shard")
    assert len(decoded) == 1
    assert seen[0] is seen[1]


class Mailer: ...


@pytest.mark.parametrize(
    ("returned", "said", "warned"),
    [
        (None, {}, True),
        (None, {"delivery": "at_least_once"}, False),
        (None, {"delivery": "exactly_once"}, False),
        (Put[ShopSales] | None, {}, False),
        ("absent", {}, False),
    ],
)
def test_io_of_ones_own_that_says_nothing_of_repetitions_gets_a_warning(returned, said, warned):
    subject = app()

    async def mail(change, mailer): ...

    mail.__annotations__ = {"change": Inserted[Sale], "mailer": Mailer}
    if returned != "absent":
        mail.__annotations__["return"] = returned
    subject.on(**said)(mail)
    found = findings(subject, AppTables(SCHEMA, SCHEMA), (Mailer(),))
    assert [(f.severity, 'delivery="at_least_once"' in f.text) for f in found] == (
        [("warning", True)] if warned else []
    )


def test_completions_in_a_table_without_ttl_get_a_warning_that_they_stay():
    subject = app()

    @subject.on
    async def mail(change: Inserted[Sale], completions: Completions) -> Completed: ...

    assert any("stay for ever" in text for text in texts(subject))
    with_ttl = replace(SCHEMA, ttl="until")
    assert not any("stay for ever" in text for text in texts(subject, schema=with_ttl))
