"""The product catalogue, under traffic and trouble, and one statement of its README at a time."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from handlers.catalog.entities import (
    Brand,
    Category,
    Product,
    ProductCard,
    Purchase,
    Shipment,
)
from handlers.catalog.handlers import (
    LISTED,
    LOW,
    SHAPE,
    ProductsOfBrand,
    ProductsOfCategory,
    ProductsOfPair,
    app,
)
from handlers.catalog.traffic import Traffic
from streamkit.kinds.preflight import findings
from streamkit.testing import Harness, recording, trial
from streamkit.testing.recording import Recorder
from tests.seeds import seeds

NOON = datetime(2027, 1, 15, 12, tzinfo=UTC)
ANVIL = Product.key(product_id="1")


@pytest.fixture
def orders() -> Iterator[Recorder]:
    with recording(app) as sent:
        yield sent["reorders"]


@pytest.fixture
def shop(harness_of: Callable[..., Harness], orders: Recorder) -> Harness:
    shop = harness_of(app, shape=SHAPE)
    shop.put(Brand(brand_id="acme", name="Acme"), Brand(brand_id="apex", name="Apex"))
    return shop


def a_product(number: int = 1, **fields: object) -> Product:
    given = {"brand_id": "acme", "category_id": "tools", "name": "Anvil", "price": Decimal(20)}
    return Product.model_validate({"product_id": str(number), **given, **fields})


def a_purchase(quantity: int, number: int = 1, **fields: object) -> Purchase:
    given = {"product_id": "1", "purchase_id": str(number), "at": NOON, "quantity": quantity}
    return Purchase.model_validate({**given, **fields})


def a_shipment(quantity: int, number: int = 1) -> Shipment:
    return Shipment(product_id="1", shipment_id=str(number), at=NOON, quantity=quantity)


def stock(shop: Harness) -> int:
    product = shop.get(ANVIL)
    assert product is not None
    return product.stock


@pytest.mark.parametrize("seed", seeds(3))
def test_the_catalogue_is_what_its_history_says(seed: int) -> None:
    ran = trial(app, Traffic(products=15), shape=SHAPE, seed=seed, acts=120)
    assert all(comparison.compared for comparison in ran.comparisons)
    assert ran.met["expired"]


def test_the_app_fits_its_table_without_a_finding(shop: Harness) -> None:
    assert findings(app, shop.tables) == []


# -- stock -------------------------------------------------------------------------------------


def test_stock_follows_shipments_purchases_corrections_and_cancellations(shop: Harness) -> None:
    shop.put(a_product(), a_shipment(30), a_purchase(3, 1), a_purchase(4, 2))
    shop.settle()
    assert stock(shop) == 23

    shop.put(a_purchase(5, 1))
    shop.delete(a_purchase(4, 2).item_key)
    shop.settle()
    assert stock(shop) == 25


def test_goods_do_not_come_back_when_the_record_of_their_purchase_expires(shop: Harness) -> None:
    soon = datetime.fromtimestamp(shop.world.clock.time(), UTC) + timedelta(hours=1)
    shop.put(a_product(), a_shipment(30), a_purchase(3, expires=soon))
    shop.advance("2h")
    assert shop.expire() == 1
    shop.settle()
    assert stock(shop) == 27


def test_a_purchase_of_a_product_that_is_gone_leaves_nothing_behind(shop: Harness) -> None:
    shop.put(a_purchase(3), a_product(2), a_product(2, brand_id="apex"))
    shop.settle()
    assert shop.get(ANVIL) is None
    assert not shop.parked()


def test_each_fall_below_the_threshold_is_ordered_once(shop: Harness, orders: Recorder) -> None:
    falls = []
    for number, goods in enumerate(
        [
            a_product(stock=LOW + 2),
            a_purchase(2, 1),  # as many as the threshold
            a_purchase(1, 2),  # one fewer
            a_purchase(1, 3),  # still fewer
            a_shipment(5, 4),
            a_purchase(4, 5),
        ]
    ):
        shop.put(goods)
        shop.settle()
        falls += [(number, order.body["stock"]) for order in orders.deliveries[len(falls) :]]
    assert falls == [(2, LOW - 1), (5, LOW - 1)]


def test_a_new_product_is_ordered_at_once(shop: Harness, orders: Recorder) -> None:
    shop.put(a_product())
    shop.settle()
    assert [order.body["was"] for order in orders.deliveries] == [None]


def test_an_order_that_a_crash_repeats_has_the_same_key() -> None:
    repeated = 0
    for call in range(3, 8):  # one of them is the commit
        with recording(app) as sent, Harness(app, shape=SHAPE, shards=1) as shop:
            shop.put(a_product(stock=LOW))
            shop.settle()
            shop.put(a_purchase(1))
            shop.crash(at=call)
            shop.settle()
            assert stock(shop) == LOW - 1
            orders = sent["reorders"]
            assert len(orders.once) == 1
            repeated += len(orders.deliveries) - 1
    assert repeated, "no crash was between an order and the commit of its change"


# -- counts and lists --------------------------------------------------------------------------


def test_a_product_that_changes_brand_or_category_moves_between_the_counts(shop: Harness) -> None:
    shop.put(a_product(1), a_product(2))
    shop.settle()
    shop.put(a_product(1, brand_id="apex", category_id="toys"))
    shop.settle()
    found = {
        name: (shop.get(ProductsOfBrand.key(brand_id=name)) or ProductsOfBrand(brand_id=name))
        for name in ("acme", "apex")
    }
    assert [count.products for count in found.values()] == [1, 1]
    category = shop.get(ProductsOfCategory.key(category_id="toys"))
    assert category is not None
    assert category.products == 1
    pairs = [(p.brand_id, p.category_id, p.products) for p in shop.scan(ProductsOfPair)]
    assert sorted(pairs) == [("acme", "tools", 1), ("apex", "toys", 1)]

    shop.delete(ANVIL)
    shop.settle()
    assert shop.query(ProductsOfPair.query(brand_id="apex")) == []


def test_brands_categories_and_products_are_listed_by_one_query_each(shop: Harness) -> None:
    shop.put(Category(category_id="tools", name="Tools"), Category(category_id="toys", name="Toys"))
    shop.put(a_product(1), a_product(2, category_id="toys"), a_product(3, brand_id="apex"))
    shop.settle()
    assert [brand.name for brand in shop.query(Brand.query())] == ["Acme", "Apex"]
    assert [category.name for category in shop.query(Category.query())] == ["Tools", "Toys"]

    def listed(**fields: str) -> list[tuple[str, str]]:
        index = ProductCard.by_brand if "brand_id" in fields else ProductCard.by_category
        cards = shop.query(ProductCard.query(index=index, **fields))
        return [(card.product_id, card.brand_name) for card in cards]

    assert listed(brand_id="acme") == [("1", "Acme"), ("2", "Acme")]
    assert listed(brand_id="acme", category_id="toys") == [("2", "Acme")]
    assert listed(category_id="tools") == [("1", "Acme"), ("3", "Apex")]


def test_the_indexes_carry_five_attributes_and_a_sale_writes_nothing_there(shop: Harness) -> None:
    shop.put(a_product())
    shop.settle()
    call = shop.world.engine.call
    _, reply = call("dynamodb", "Scan", {"TableName": app.table, "IndexName": "GSI2"})
    keys = {"PK", "SK", "GSI2PK", "GSI2SK"}
    assert [item.keys() for item in reply["Items"]] == [keys | set(LISTED)]

    update: dict[str, Any] = {
        "TableName": app.table,
        "Key": ANVIL.wire(shop.tables.table),
        "UpdateExpression": "ADD stock :n",
        "ExpressionAttributeValues": {":n": {"N": "1"}},
        "ReturnConsumedCapacity": "INDEXES",
    }
    _, reply = call("dynamodb", "UpdateItem", update)
    assert reply["ConsumedCapacity"].get("GlobalSecondaryIndexes", {}) == {}


# -- names of brands ---------------------------------------------------------------------------


def test_a_renamed_brand_renames_all_its_products_and_no_others(shop: Harness) -> None:
    shop.put(*(a_product(number) for number in range(60)), a_product(60, brand_id="apex"))
    shop.settle()
    shop.put(Brand(brand_id="acme", name="Acme Ltd"))
    shop.settle()
    names = {(p.brand_id, p.brand_name) for p in shop.scan(Product)}
    assert names == {("acme", "Acme Ltd"), ("apex", "Apex")}


def test_a_product_that_changes_brand_takes_the_other_name(shop: Harness) -> None:
    shop.put(a_product())
    shop.settle()
    shop.put(a_product(brand_id="apex", brand_name="Acme"))
    shop.put(Brand(brand_id="apex", name="Apex Ltd"))
    shop.settle()
    product = shop.get(ANVIL)
    assert product is not None
    assert product.brand_name == "Apex Ltd"
