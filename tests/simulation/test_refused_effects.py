"""A handler that reads does not see effects that will be refused: their item is, or is not, there."""

from streamkit import Add, App, Entity, Inserted, Put, Table, absent, present


class Product(Entity, pk="P#{product}", sk="METADATA"):
    product: str
    name: str
    sold: int = 0


class Sale(Entity, pk="P#{product}", sk="SALE#{number}"):
    product: str
    number: int


class Visit(Entity, pk="VISIT#{number}", sk="-"):
    number: int
    product: str


class Seen(Entity, pk="SEEN#{number}", sk="-"):
    number: int
    name: str | None


def make_app():
    app = App("shop", table="Shop", entities=[Product, Seen])

    @app.on
    def count(change: Inserted[Sale]) -> Add[Product]:
        product = Product.key(product=change.new.product)
        return Add(product, sold=1).only_if(present, otherwise="skip")

    @app.on
    def name(change: Inserted[Sale]) -> Put[Product]:
        product = Product(product=change.new.product, name="unnamed")
        return Put(product).only_if(absent, otherwise="skip")

    @app.on
    async def see(change: Inserted[Visit], table: Table) -> Put[Seen]:
        product = await table.get(Product.key(product=change.new.product), check=False)
        return Put(Seen(number=change.new.number, name=None if product is None else product.name))

    return app


def seen(harness_of, app, *before):
    harness = harness_of(app, shards=1)
    harness.put(*before)
    harness.settle()
    harness.put(Sale(product="p", number=1), Visit(number=1, product="p"))
    harness.settle()
    assert not harness.parked()
    return harness.get(Seen.key(number=1)).name


def test_an_effect_on_what_must_be_there_makes_no_item_where_nothing_is(harness_of):
    app = make_app()
    app.handlers[:] = [handler for handler in app.handlers if handler.name != "name"]
    assert seen(harness_of, app) is None


def test_an_effect_on_what_must_not_be_there_hides_nothing(harness_of):
    app = make_app()
    assert seen(harness_of, app, Product(product="p", name="anvil")) == "anvil"


def test_the_effect_that_will_be_applied_is_seen(harness_of):
    assert seen(harness_of, make_app()) == "unnamed"
