"""Migrations about the same items are begun by number, rolled back in reverse, and verify says so."""

import random

import anyio
import pytest

from streamkit import App, Entity, Item, Remove, Set
from streamkit.core.table_shape import TableShape
from streamkit.core.tables import survey
from streamkit.errors import ConfigurationError, DeclarationError
from streamkit.migrate.book.order import order_of
from streamkit.migrate.book.state import State
from streamkit.migrate.book.state_book import open_book
from streamkit.migrate.operate import commands, steps
from streamkit.migrate.plan.planning import plan_migration
from streamkit.migrate.run.running import Runner
from streamkit.migrate.run.sampling import Wanted
from streamkit.migrate.verify.verifying import verify_migration
from streamkit.testing.loop import run_virtually
from streamkit.testing.migrators import SETTINGS
from streamkit.testing.world import World


class Order(Entity, pk="ORDER#{number}", sk="ORDER"):
    number: int
    label: str | None = None
    shown: str | None = None


class OrderOfBefore(Entity, pk="ORDER#{id}", sk="ORDER"):
    id: int


class Parcel(Entity, pk="PARCEL#{number}", sk="PARCEL"):
    number: int


class User(Entity, pk="USER#{name}", sk="USER"):
    name: str


def labelled(item: Item) -> Set[Order]:
    return Set(label=f"{item['number']}")


def unlabelled(item: Item) -> Remove[Order]:
    return Remove("label")


def shown(item: Item) -> Set[Order]:
    return Set(shown=item["label"].lower())


def unshown(item: Item) -> Remove[Order]:
    return Remove("shown")


def parcels(order: Order) -> list[Parcel | Remove[Order]]:
    return [Parcel(number=order.number)]


def parcel(parcel: Parcel) -> Parcel:
    return parcel


def before(order: OrderOfBefore) -> OrderOfBefore:
    return order


def user(user: User) -> User:
    return user


def shop():
    app = App("shop", table="Shop")
    app.migration("0001", Order, reverse=unlabelled)(labelled)
    app.migration("0002", User)(user)
    app.migration("0003", Order, reverse=unshown)(shown)
    return app


def at_table(test, app=None, *, patience=7200):
    app = app or shop()

    async def main():
        world = World.create(1)
        async with world.clients() as aws:
            await TableShape().create(aws.dynamodb, "Shop", (Order,), stream=True)
            await TableShape().create(aws.dynamodb, "New", (Order,), stream=True)
            schema = (await survey(app, aws)).table
            for number in range(3):
                item = Order(number=number).attributes(schema)
                await aws.dynamodb.put_item(TableName="Shop", Item=item)
            with anyio.fail_after(patience):
                return await test(Site(app, aws, world))

    return run_virtually(main, seed=1)


class Site:
    def __init__(self, app, aws, world):
        self.app, self.aws, self.world = app, aws, world

    async def begin(self, number, **options):
        migration = self.app.migrations[number]
        options = {"segments": 4, "clock": self.world.clock} | options
        return await commands.begin(self.app, self.aws, migration, **options)

    async def roll_back(self, number):
        await steps.rollback(self.app, self.aws, number)

    async def run(self, number):
        migration = self.app.migrations[number]
        rng = random.Random(1)
        await Runner(self.app, self.aws, migration, SETTINGS, self.world.clock, rng).run()

    async def apply(self, number):
        await self.begin(number)
        await self.run(number)


@pytest.mark.parametrize(
    ("entity", "function", "options"),
    [
        (Order, shown, {}),
        (OrderOfBefore, before, {}),
        (Parcel, parcel, {}),
    ],
    ids=["its entity", "its keys", "what it makes"],
)
def test_what_comes_later_about_the_same_items_is_not_begun_first(entity, function, options):
    app = App("shop", table="Shop")
    app.migration("0001", Order, mode="split")(parcels)
    app.migration("0003", entity, **options)(function)

    async def test(site):
        with pytest.raises(
            ConfigurationError, match=r"0001.*comes first, and is 'new': .* it first"
        ):
            await site.begin("0003")
        migration = app.migrations["0003"]
        return await plan_migration(app, site.aws, migration, sample=Wanted(share=1.0))

    plan = at_table(test, app)
    assert [one.kind for one in plan.problems if "0001" in one.text] == ["order"]


def test_what_is_about_other_items_is_begun_in_any_order():
    async def test(site):
        await site.apply("0002")
        await site.apply("0001")
        await site.apply("0003")

    at_table(test)


def test_items_in_another_table_are_other_items():
    def moved(order: Order) -> Parcel:
        return Parcel(number=order.number)

    app = App("shop", table="Shop")
    first = app.migration("0001", Order, mode="rekey", to="New")(moved)
    app.migration("0002", Parcel)(parcel)
    assert first is not None
    assert order_of(app).needs["0002"] == frozenset()


def test_what_comes_earlier_is_not_begun_after_what_builds_on_it():
    async def test(site):
        migration = site.app.migrations.pop("0001")
        await site.apply("0003")
        site.app.migrations["0001"] = migration
        with pytest.raises(ConfigurationError, match=r"0003 \(blocked\).*begun before it"):
            await site.begin("0001")

    at_table(test)


def test_nothing_is_rolled_back_under_what_builds_on_it():
    async def test(site):
        await site.apply("0001")
        await site.apply("0003")
        with pytest.raises(ConfigurationError, match=r"roll 0003 \(done\) back first"):
            await site.roll_back("0001")
        for number in ("0003", "0001"):
            await site.roll_back(number)
            await site.run(number)
        with pytest.raises(ConfigurationError, match="--again"):
            await site.begin("0001")
        await site.begin("0001", again=True)

    at_table(test)


@pytest.mark.parametrize("first", ["0001", "0003"])
def test_of_two_people_one_begins_what_the_other_takes_away(first):
    """One process rolls 0001 back while another begins 0003 on it: the later one is refused."""

    async def test(site):
        await site.apply("0001")
        acts = {"0001": lambda: site.roll_back("0001"), "0003": lambda: site.begin("0003")}
        other = next(number for number in acts if number != first)
        book = await open_book(site.app, site.aws)
        read, met = type(book).read, []

        async def between(self, migration):
            found = await read(self, migration)
            if migration == other and not met:
                met.append(migration)
                with pytest.MonkeyPatch.context() as inner:
                    inner.setattr(type(book), "read", read)
                    await acts[other]()
            return found

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(type(book), "read", between)
            with pytest.raises(ConfigurationError):
                await acts[first]()
        return [await book.read(number) for number in acts]

    below, above = at_table(test)
    back, begun = below.direction == "back", above.phase != "new"
    assert (back, begun) == (first == "0003", first == "0001")


def test_verify_reports_what_the_function_cannot_take_by_what_is_missing():
    async def test(site):
        await site.apply("0001")
        await site.apply("0003")
        await site.aws.dynamodb.put_item(
            TableName="Shop",
            Item={"PK": {"S": "ORDER#9"}, "SK": {"S": "ORDER"}, "number": {"N": "9"}},
        )
        return await verify_migration(
            site.app, site.aws, site.app.migrations["0003"], clock=site.world.clock
        )

    (found,) = at_table(test).different
    assert found.kind == "fails"
    assert "an item has no label" in found.text
    assert "KeyError" not in found.text


def test_numbers_are_compared_as_numbers():
    app = App("shop", table="Shop")
    for number in ("999", "1000", "1001"):
        app.migration(number, User)(user)
    order = order_of(app)
    assert order.ids == ("999", "1000", "1001")
    assert order.needs["1001"] == {"999", "1000"}


def ordered(*declared):
    """Migrations by id, each with its entity and what it says comes before it."""
    app = App("shop", table="Shop")
    for id_, entity, after in declared:
        app.migration(id_, entity, after=after)({Order: shown, User: user}[entity])
    return app


def test_after_orders_what_numbers_and_items_do_not():
    app = ordered(("0001", Order, ["0003"]), ("0002", User, []), ("0003", Order, []))
    order = order_of(app)
    assert order.ids == ("0002", "0003", "0001")
    assert order.needs["0003"] == frozenset()
    assert order.until("0001") == ("0003", "0001")
    assert order.until("0003") == ("0002", "0003", "0001")


def test_what_after_names_has_to_be_done_and_is_not_rolled_back_below():
    app = App("shop", table="Shop")
    app.migration("0001", Order, reverse=unlabelled)(labelled)
    app.migration("0002", User, after="0001")(user)

    async def test(site):
        with pytest.raises(ConfigurationError, match=r"0002 needs 0001.*'new'"):
            await site.begin("0002")
        await site.apply("0001")
        await site.begin("0002")
        with pytest.raises(ConfigurationError, match=r"0002 .*needs 0001.*roll 0002 .* back first"):
            await site.roll_back("0001")

    at_table(test, app)


def test_what_was_rolled_back_is_enough_for_a_number_and_not_for_after():
    app = App("shop", table="Shop")
    app.migration("0001", Order, reverse=unlabelled)(labelled)
    app.migration("0002", Order)(labelled)
    app.migration("0003", User, after=["0001"])(user)

    async def test(site):
        await site.apply("0001")
        await site.roll_back("0001")
        await site.run("0001")
        with pytest.raises(ConfigurationError, match=r"0003 needs 0001.*'rolled back'"):
            await site.begin("0003")
        await site.begin("0002")

    at_table(test, app)


def test_a_name_comes_after_the_numbers_about_its_items_unless_after_says_otherwise():
    first = ("0001", Order, [])
    assert order_of(ordered(("totals", Order, []), first)).ids == ("0001", "totals")
    assert order_of(ordered(("totals", User, []), first)).needs["totals"] == frozenset()
    before = ordered(("totals", Order, []), ("0001", Order, ["totals"]))
    assert order_of(before).ids == ("totals", "0001")


@pytest.mark.parametrize(
    ("declared", "said"),
    [
        ([("0001", Order, ["0009"])], r"after= names '0009', and shop has 0001"),
        ([("one", Order, []), ("two", Order, [])], "one and two .* have no order"),
        ([("0001", User, ["0002"]), ("0002", Order, ["0001"])], "0001, 0002 need each other"),
        (
            [("0001", Order, ["0003"]), ("0002", Order, []), ("0003", Order, [])],
            "0001, 0002, 0003 need each other",
        ),
    ],
    ids=["unknown", "two names", "a circle", "a circle with numbers"],
)
def test_what_has_no_order_is_refused_by_name(declared, said):
    with pytest.raises(ConfigurationError, match=said):
        order_of(ordered(*declared))


def test_two_names_about_the_same_items_are_ordered_by_after():
    app = ordered(("one", Order, ["two"]), ("two", Order, []))
    assert order_of(app).ids == ("two", "one")


@pytest.mark.parametrize("id_", ["1", "Totals", "two-parts", ""])
def test_an_id_is_a_number_or_a_name(id_):
    with pytest.raises(DeclarationError, match="a name has small letters"):
        ordered((id_, Order, []))


# -- the order alone ----------------------------------------------------------------------------


def chain():
    """Migrations of which each needs the one before it, and one that nothing needs."""
    app = App("shop", table="Shop")
    app.squashed("0001")
    app.migration("0999", Order)(labelled)
    app.migration("1000", Order)(shown)
    app.migration("marks", User, after=["1000"])(user)
    app.migration("totals", Parcel, after=["marks"])(parcel)
    return app


def test_what_a_name_needs_is_found_through_all_that_lies_between():
    order = order_of(chain())
    assert order.ids == ("0999", "1000", "marks", "totals")
    assert order.until("totals") == order.ids
    assert order.until("1000") == ("0999", "1000"), "no name is lower than a number"
    assert order.until("0001") == ()
    with pytest.raises(ConfigurationError, match=r"no migration '999'; .*; did you mean 0999\?"):
        order.until("999")


def test_names_are_ordered_through_what_lies_between_them():
    app = App("shop", table="Shop")
    app.migration("third", Order, after=["second"])(shown)
    app.migration("second", User, after=["first"])(user)
    app.migration("first", Order)(labelled)
    assert order_of(app).ids == ("first", "second", "third")
    assert order_of(app).needs["third"] == {"first", "second"}


def test_of_those_that_need_nothing_the_lower_number_comes_first():
    app = App("shop", table="Shop")
    app.migration("10000", Order)(labelled)
    app.migration("9999", User)(user)
    assert order_of(app).ids == ("9999", "10000")


def repeated():
    app = App("shop", table="Shop")
    app.migration("0001", Order, repeat=True)(labelled)
    app.migration("0002", Order, repeat=True)(shown)
    app.migration("0003", Order, reverse=unshown)(shown)
    return app


@pytest.mark.parametrize(
    ("number", "states", "building"),
    [
        ("0001", {"0002": "done", "0003": "rolled back"}, []),
        ("0001", {"0002": "scanning", "0003": "new"}, ["0002"]),
        ("0001", {"0002": "done", "0003": "done"}, ["0003"]),
    ],
)
def test_what_is_repeated_builds_on_nothing_once_it_is_done(number, states, building):
    app = repeated()
    others = [State(id_, phase=phase) for id_, phase in states.items()]
    found = order_of(app).begun_on(app.migrations[number], others)
    assert [one.id for one in found] == building


@pytest.mark.parametrize(
    ("number", "later", "refused"),
    [
        ("0001", "done", False),  # it may be repeated beside what is done
        ("0001", "scanning", True),
        ("0002", "done", False),
    ],
)
def test_what_may_be_repeated_is_begun_after_what_is_done(number, later, refused):
    app = repeated()
    others = [State(id_, phase="done") for id_ in ("0001", "0002") if id_ != number]
    others.append(State("0003", phase=later))
    order = order_of(app)
    if not refused:
        order.require_turn(app.migrations[number], others)
        return
    with pytest.raises(ConfigurationError, match="was begun before it"):
        order.require_turn(app.migrations[number], others)


@pytest.mark.parametrize(
    ("phase", "said"),
    [
        ("new", "`streamkit migrate apply` it first"),
        ("rolled back", "`streamkit migrate begin --again` begins it once more"),
        ("blocked", "bring it to its end first"),
    ],
)
def test_what_to_do_about_one_that_comes_first_is_said_by_its_phase(phase, said):
    app = chain()
    with pytest.raises(ConfigurationError, match=said):
        order_of(app).require_turn(app.migrations["marks"], [State("1000", phase=phase)])
