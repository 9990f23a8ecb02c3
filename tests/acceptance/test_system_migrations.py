"""The migrations of the systems: under live writers, crashes and duplicates, compared item by item."""

import random
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import anyio
import pytest

import handlers.catalog
import handlers.chat
import handlers.devices
import handlers.repos
import handlers.shop
from handlers.catalog.entities import Product
from handlers.chat.entities import User, UserStats
from handlers.devices.entities import DeviceLog
from handlers.repos.entities import Issue, Star
from handlers.repos.handlers import StarCount
from handlers.shop.entities import (
    Address,
    CartItem,
    CartLine,
    Customer,
    CustomerAddress,
    CustomerEmail,
    Order,
    Status,
)
from handlers.shop.handlers import SHAPE
from streamkit import App, Entity, TableShape
from streamkit.core.table_shape import entities_of
from streamkit.core.tables import survey
from streamkit.migrate.book.discovery import discover
from streamkit.migrate.book.state_book import open_book
from streamkit.migrate.operate import commands
from streamkit.migrate.run.aggregates import run_aggregate
from streamkit.model.copies import COPY
from streamkit.settings import Settings
from streamkit.table import Table
from streamkit.testing.chance import repeatable
from streamkit.testing.loop import EPOCH, run_virtually
from streamkit.testing.migrations import migrate
from streamkit.testing.world import World

NOW = datetime.fromtimestamp(EPOCH, UTC)
MOVE = ("apply", "switch", "contract")


class Writers:
    """An application that knows one entity and puts, updates and deletes its items.

    `make` makes the item of a number, with what chance wants. After the switch, and while pairs are
    turned, nobody writes at the old place. Those that are `kept` it never deletes.
    """

    def __init__(
        self, make: Any, *, items: int = 20, moves: bool = False, kept: frozenset[int] = frozenset()
    ) -> None:
        self.make = make
        self.kept = kept
        self.items = items
        self.moves = moves

    async def open(self, aws: Any, schema: Any, rng: random.Random) -> None:
        for number in range(self.items):
            await self.put(aws, schema, number, rng)

    async def act(self, aws: Any, schema: Any, rng: random.Random, phase: str) -> None:
        if self.moves and phase in ("switching", "soaking", "contracting", "closing", "done"):
            return
        number = rng.randrange(self.items + 5)
        if rng.random() < 0.25 and number not in self.kept:
            item = self.make(number, rng).attributes(schema)
            key = {name: item[name] for name in schema.key_attributes}
            await aws.dynamodb.delete_item(TableName=schema.name, Key=key)
        else:
            await self.put(aws, schema, number, rng)

    async def put(self, aws: Any, schema: Any, number: int, rng: random.Random) -> None:
        item = self.make(number, rng).attributes(schema)
        await aws.dynamodb.put_item(TableName=schema.name, Item=item)


def ran(app: App, number: str, make: Any, *, seed: int, **options: Any) -> Any:
    discover(app)
    moves = options.get("steps") == MOVE
    items, kept = options.pop("items", 20), options.pop("kept", frozenset())
    writers = Writers(make, items=items, moves=moves, kept=kept)
    return migrate(app, number, writers, seed=seed, acts=12, **options)


def phases(found: Any) -> list[str]:
    return [state.phase for state in found.states]


def early(app: App, number: str) -> type[Any]:
    """Return the entity that a migration begins with; it is declared in the migration's file."""
    discover(app)
    entity: type[Entity] = app.migrations[number].entity
    return entity


def an_order(entity: type[Any] = Order) -> Any:
    def make(number: int, rng: random.Random) -> Any:
        return entity(
            username=f"u{number % 3}",
            order_id=f"{number:03d}",
            status=rng.choice(list(Status)),
            created_at=NOW + timedelta(days=number),
        )

    return make


def test_orders_get_their_status_and_date_in_one_attribute():
    found = ran(handlers.shop.app, "0001", an_order(), seed=1, shape=SHAPE)
    assert phases(found) == ["done"]
    for order in found.items(Order):
        assert order.status_date == f"{order.status}#{order.created_at:%Y-%m-%d}"


def test_only_orders_that_wait_have_the_attribute_of_the_sparse_index():
    found = ran(handlers.shop.app, "0002", an_order(), seed=2, shape=SHAPE, **_after("0001"))
    assert phases(found) == ["done"]
    orders = found.items(Order)
    assert any(order.placed for order in orders)
    for order in orders:
        waits = order.status is Status.PLACED
        assert order.placed == (f"{order.created_at:%Y-%m-%d}" if waits else None)


def _after(*_numbers: str) -> dict[str, Any]:
    """Say that the migrations before this one are through."""
    return {"applied": _numbers}


def a_customer(number: int, rng: random.Random) -> Customer:
    places = {
        name: Address(street=f"street {rng.randrange(9)}", city="x", country="y")
        for name in ("home", "work", "other")[: rng.randrange(4)]
    }
    cart = [CartLine(sku=f"s{n}", quantity=rng.randrange(1, 4)) for n in range(rng.randrange(4))]
    email = f"e{number if number != 7 else 8}@example.com"
    return Customer(username=f"u{number}", name="N", email=email, addresses=places, cart=cart)


def _wanted(customers: list[Customer]) -> dict[tuple[str, str], tuple[str, str, str]]:
    return {
        (c.username, label): (a.street, a.city, a.country)
        for c in customers
        for label, a in c.addresses.items()
    }


def test_addresses_become_items_in_step_with_their_customers():
    found = ran(handlers.shop.app, "0003", a_customer, seed=3, shape=SHAPE)
    assert phases(found) == ["ready"]
    there = {
        (a.username, a.label): (a.street, a.city, a.country) for a in found.items(CustomerAddress)
    }
    assert there == _wanted(found.items(Customer))
    assert all(COPY in item for item in found.raw(CustomerAddress))


def test_at_the_end_customers_carry_no_addresses():
    found = ran(handlers.shop.app, "0003", a_customer, seed=4, shape=SHAPE, steps=MOVE, items=10)
    assert phases(found) == ["ready", "soaking", "done"]
    assert found.items(CustomerAddress)
    assert not any(customer.addresses for customer in found.items(Customer))


def test_markers_of_existing_customers_are_unique_and_a_conflict_is_reported():
    both, app = frozenset({7, 8}), handlers.shop.app
    found = ran(app, "0004", a_customer, seed=5, shape=SHAPE, kept=both, **_after("0003"))
    markers = {marker.email: marker.username for marker in found.items(CustomerEmail)}
    customers = {customer.username: customer.email for customer in found.items(Customer)}
    assert phases(found) == ["blocked"]
    for username, email in customers.items():
        assert markers[email] in ({username} if username not in ("u7", "u8") else ("u7", "u8"))


def test_the_lines_of_a_cart_become_items_and_the_list_is_gone():
    options = _after("0003", "0004")
    found = ran(
        handlers.shop.app, "0005", a_customer, seed=6, shape=SHAPE, steps=MOVE, items=10, **options
    )
    assert phases(found) == ["ready", "soaking", "done"]
    assert found.items(CartItem)
    assert not any(customer.cart for customer in found.items(Customer))


def test_orders_move_behind_their_customer():
    old = early(handlers.shop.app, "0006")
    options = _after("0001", "0002") | {"shape": SHAPE, "steps": MOVE}
    found = ran(handlers.shop.app, "0006", an_order(old), seed=7, **options)
    assert phases(found) == ["ready", "soaking", "done"]
    assert found.items(Order)
    assert not found.raw(old)


def test_products_that_predate_the_second_index_get_its_keys():
    class EarlyProduct(Product, pk="P#{product_id}", sk="METADATA", type="product"):
        """A product without the second index."""

    def make(number: int, rng: random.Random) -> Any:
        return Product(
            product_id=f"p{number}",
            brand_id=f"b{rng.randrange(3)}",
            category_id=f"c{rng.randrange(3)}",
            name="n",
            price=1,
        )

    class Early(Writers):
        async def put(self, aws: Any, schema: Any, number: int, rng: random.Random) -> None:
            item = self.make(number, rng).attributes(schema)
            del item["GSI2PK"], item["GSI2SK"]
            await aws.dynamodb.put_item(TableName=schema.name, Item=item)

    discover(handlers.catalog.app)
    shape = handlers.catalog.handlers.SHAPE
    found = migrate(handlers.catalog.app, "0001", Early(make), seed=8, acts=12, shape=shape)
    assert phases(found) == ["done"]
    for item in found.raw(Product):
        assert item["GSI2PK"] == {"S": f"C#{item['category_id']['S']}"}
        assert item["GSI2SK"]["S"] == f"B#{item['brand_id']['S']}#P#{item['product_id']['S']}"


def test_issue_numbers_are_padded_and_padded_ones_stay():
    old = early(handlers.repos.app, "0001")

    def make(number: int, rng: random.Random) -> Any:
        entity = old if number % 3 else Issue
        state = rng.choice(["open", "closed"])
        return entity(owner="o", name=f"r{number % 2}", number=number + 1, title="t", state=state)

    found = ran(handlers.repos.app, "0001", make, seed=9, steps=MOVE, worker=True)
    assert phases(found) == ["ready", "soaking", "done"]
    issues = found.raw(Issue)
    assert issues
    for item in issues:
        assert item["SK"]["S"] == f"ISSUE#{int(item['number']['N']):08d}"
    counts = found.items(handlers.repos.handlers.IssueCount)
    assert sum(count.open + count.closed for count in counts) == len(issues)


def test_logs_under_their_bare_time_move_to_state_and_time():
    old = early(handlers.devices.app, "0001")

    def make(number: int, rng: random.Random) -> Any:
        entity = old if number % 3 else DeviceLog
        return entity(
            device=f"d{number % 3}",
            state="OK" if number % 2 else "WARNING1",
            date=NOW + timedelta(seconds=number),
            operator=rng.choice(["ann", "bob"]),
        )

    shape = handlers.devices.handlers.SHAPE
    found = ran(handlers.devices.app, "0001", make, seed=10, steps=MOVE, shape=shape)
    assert phases(found) == ["ready", "soaking", "done"]
    logs = found.raw(DeviceLog)
    assert logs
    for item in logs:
        assert item["SK"]["S"] == f"{item['state']['S']}#{item['Date']['S']}"


@pytest.mark.parametrize("steps", [("apply",), MOVE])
def test_clicks_are_counted_in_an_item_of_their_own(steps):
    def make(number: int, rng: random.Random) -> Any:
        return User(user_id=f"u{number}", username="n", email="e", click=rng.randrange(100))

    found = ran(handlers.chat.app, "0001", make, seed=11, steps=steps)
    assert phases(found)[-1] == ("ready" if len(steps) == 1 else "done")
    users = {item["user_id"]["S"]: item for item in found.raw(User)}
    stats = {one.user_id: one.click for one in found.items(UserStats)}
    if len(steps) == 1:
        assert stats == {name: int(item["click"]["N"]) for name, item in users.items()}
    else:
        assert stats
        assert not any("click" in item for item in users.values())


def test_stars_of_before_are_counted_while_others_are_given_and_taken_back():
    discover(handlers.repos.app)
    rng = random.Random(12)

    async def write(aws: Any, schema: Any) -> None:
        star = Star(owner="o", name=f"r{rng.randrange(3)}", user=f"u{rng.randrange(30)}", at=NOW)
        if rng.random() < 0.3:
            key = star.item_key.wire(schema)
            await aws.dynamodb.delete_item(TableName=schema.name, Key=key)
        else:
            item = star.attributes(schema)
            await aws.dynamodb.put_item(TableName=schema.name, Item=item)

    async def main() -> None:
        world, app = World.create(1), handlers.repos.app
        async with world.clients() as aws, anyio.create_task_group() as group:
            await TableShape().create(aws.dynamodb, app.table, entities_of(app), stream=True)
            schema = (await survey(app, aws)).table
            for _ in range(80):
                await write(aws, schema)
            await anyio.sleep(25 * 3600)  # nobody has counted, and the stream has forgotten
            settings = Settings(poll_ceiling=0.5)
            group.start_soon(lambda: world.run_worker(app, settings=settings, until_idle=False))
            await anyio.sleep(20)
            migration = app.migrations["0002"]
            await commands.begin(app, aws, migration, clock=world.clock)

            async def apply() -> None:
                await run_aggregate(app, aws, migration, clock=world.clock, rng=rng)

            group.start_soon(apply)
            for _ in range(60):
                await write(aws, schema)
                await anyio.sleep(rng.random())
            await anyio.sleep(60)
            state = await (await open_book(app, aws)).read("0002")
            table = Table(aws.dynamodb, schema)
            stars = Counter([star.name async for star in table.scan(Star)])
            counts = {c.name: c.stars async for c in table.scan(StarCount) if c.stars}
            group.cancel_scope.cancel()
        assert state.phase == "done"
        assert counts == stars

    with repeatable(12):
        run_virtually(main, seed=12)
