"""Verification of aggregates: a wrong group is found, traffic and delays are not mistaken for one."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Annotated

import anyio
import pytest

from streamkit import (
    Aggregate,
    App,
    Avg,
    ConfigurationError,
    Count,
    Distinct,
    Entity,
    EpochSeconds,
    Key,
    Max,
    Policy,
    Sum,
    Top,
    Until,
)
from streamkit.fleet.catching_up import CatchUp
from streamkit.kinds.aggregate.facts import list_aggregates
from streamkit.kinds.aggregate.rebuild import rebuild_aggregate
from streamkit.kinds.aggregate.verification import verify_aggregate
from streamkit.local.errors import ApiError
from streamkit.local.transport import Response
from streamkit.progress.clock import CorrectedClock
from streamkit.settings import Settings
from streamkit.testing.world import Process

QUICK = Settings(heartbeat=60, lease=150, list_interval=300, look_interval=120)
DAY = datetime(2027, 1, 15, tzinfo=UTC)
HASTY = Policy(retry_seconds=60, retry_seconds_max=60, retry_limit=1)
BROKEN: set[int] = set()


class Sale(Entity, pk="SHOP#{shop}", sk="SALE#{number}"):
    shop: str
    number: int
    amount: Decimal = Decimal(1)
    buyer: str = "ann"


def amount_of(sale):
    if sale.number in BROKEN:
        raise ValueError("cannot be counted")
    return sale.amount


class Sales(Aggregate[Sale], pk="SALES#{shop}", sk="SALES"):
    shop: str
    sales: Annotated[int, Count()] = 0
    total: Annotated[Decimal, Sum(amount_of)] = Decimal(0)
    mean: Annotated[Decimal | None, Avg("amount")] = None
    buyers: Annotated[int, Distinct("buyer")] = 0

    @classmethod
    def group(cls, sale: Sale) -> Key["Sales"]:
        return cls.key(shop=sale.shop)


class Spread(Sales, pk="SPREAD#{shop}", sk="SPREAD", spread=4):
    @classmethod
    def group(cls, sale: Sale) -> Key["Spread"]:
        return cls.key(shop=sale.shop)


class Largest(Aggregate[Sale], pk="LARGEST#{shop}", sk="LARGEST"):
    shop: str
    sales: Annotated[int, Count()] = 0
    largest: Annotated[Decimal | None, Max("amount")] = None
    top: Annotated[tuple[int, ...], Top(2, by="amount", of=lambda sale: sale.number)] = ()

    @classmethod
    def group(cls, sale: Sale) -> Key["Largest"]:
        return cls.key(shop=sale.shop)

    @classmethod
    def members(cls, shop: str):
        return Sale.query(shop=shop)


class Shop(Entity, pk="SHOPS", sk="{shop}"):
    shop: str
    count: int = 0


class OntoShop(Aggregate[Sale], onto=Shop, missing="skip"):
    count: Annotated[int, Count()] = 0

    @classmethod
    def group(cls, sale: Sale) -> Key[Shop]:
        return Shop.key(shop=sale.shop)


class PerDay(Aggregate[Sale], pk="DAY#{shop}", sk="{day:%Y-%m-%d}"):
    shop: str
    day: datetime
    sales: Annotated[int, Count()] = 0
    expires: Annotated[EpochSeconds | None, Until("day", keep=timedelta(days=1))] = None

    @classmethod
    def group(cls, sale: Sale) -> Key["PerDay"]:
        return cls.key(shop=sale.shop, day=DAY)


ALL = (Sales, Spread, Largest, OntoShop, PerDay)


def make_app(*aggregates, policy=None):
    app = App("sales", table="Sales", policy=policy)
    for aggregate in aggregates or ALL:
        app.aggregate(aggregate)
    return app


def sale(number, amount=1, shop="a", **fields):
    return Sale(shop=shop, number=number, amount=Decimal(amount), **fields)


def verify(harness, aggregate, meanwhile=None, **options):
    """Verify, while the application goes on."""

    options = {"clock": harness.world.clock} | options
    verifying = verify_aggregate(harness.app, harness._aws, aggregate.__name__, **options)
    if meanwhile is None:
        return harness._run(verifying)

    async def both():
        async with anyio.create_task_group() as group:
            group.start_soon(meanwhile, harness)
            found = await verifying
            group.cancel_scope.cancel()
        return found

    return harness._run(both())


def change(harness, pk, expression, *, sk=None, **values):
    """Write past streamkit, which is forbidden; without `sk` a group, by its first part."""
    request = {
        "TableName": "Sales",
        "Key": {"PK": {"S": pk}, "SK": {"S": sk or pk.partition("#")[0]}},
        "UpdateExpression": expression,
        "ExpressionAttributeValues": {f":{name}": value for name, value in values.items()},
    }
    assert harness.world.engine.call("dynamodb", "UpdateItem", request)[0] == 200


@pytest.mark.parametrize("aggregate", ALL)
def test_every_kind_of_aggregate_is_what_its_items_say(aggregate, harness_of):
    harness = harness_of(make_app(), settings=QUICK)
    harness.put(Shop(shop="a"), Shop(shop="c"))
    harness.put(*(sale(n, n % 4, "ab"[n % 2], buyer="xyz"[n % 3]) for n in range(20)))
    harness.settle()
    harness.put(sale(3, 7), sale(5, 1, "b"))
    harness.delete(sale(4).item_key)
    harness.settle()
    found = verify(harness, aggregate)
    assert found.ok
    assert (found.items, found.different, found.unsettled) == (20, (), ())
    assert found.groups >= 2


def test_a_wrong_group_is_found_with_what_it_should_be(harness_of):
    harness = harness_of(make_app(), settings=QUICK)
    harness.put(sale(1, 3), sale(2, 5), sale(3, 3, "b"))
    harness.settle()
    change(harness, "SALES#a", "ADD sales :one", one={"N": "1"})
    change(harness, "LARGEST#b", "SET top = :none, top_entries = :none", none={"L": []})
    change(harness, "LARGEST#c", "SET sales = :one", one={"N": "1"})
    (one,) = verify(harness, Sales).different
    assert (one.pk, one.attribute, one.stored, one.expected) == ("SALES#a", "sales", 2 + 1, 2)
    top, ghost = verify(harness, Largest).different
    assert (top.attribute, top.stored, top.expected) == ("top", None, [[3, "SHOP#b", "SALE#3"]])
    assert (ghost.pk, ghost.stored, ghost.expected) == ("LARGEST#c", 1, None)
    assert verify(harness, Spread).ok


def test_a_wrong_group_is_put_right_only_when_that_is_asked_for(harness_of):
    harness = harness_of(make_app(Sales), settings=QUICK)
    harness.put(*(sale(n, n, "abc"[n % 3]) for n in range(9)))
    harness.settle()
    for shop in "ab":
        change(harness, f"SALES#{shop}", "ADD sales :one", one={"N": "1"})
    before = harness.scan(Sales)
    wrong = verify(harness, Sales)
    assert {one.pk for one in wrong.different} == {"SALES#a", "SALES#b"}
    assert harness.scan(Sales) == before
    found = verify(harness, Sales, repair=True)
    assert (found.ok, found.repaired, found.different) == (True, 2, ())
    assert harness.get(Sales.key(shop="a")).sales == 3
    assert verify(harness, Sales, repair=True).repaired == 0


class Visits(Aggregate[Sale], pk="VISITS#{shop}", sk="VISITS"):
    """Needs no other fields than those that it names."""

    shop: str
    visits: Annotated[int, Count()] = 0
    buyers: Annotated[int, Distinct("buyer")] = 0


@pytest.mark.parametrize(("field", "counts"), [("amount", True), ("buyer", False)])
def test_all_ways_to_count_agree_on_items_of_which_a_field_does_not_fit(harness_of, field, counts):
    harness = harness_of(make_app(Visits, policy=HASTY), settings=QUICK)
    harness.put(sale(1))
    harness.settle()
    change(
        harness,
        "SHOP#a",
        f"SET {field} = :odd, shop = :a",
        sk="SALE#2",
        odd={"BOOL": True},
        a={"S": "a"},
    )
    harness.settle()
    harness.advance("5m")
    visits = 1 + counts
    assert harness.get(Visits.key(shop="a")).visits == visits
    found = verify(harness, Visits)
    assert (found.different, found.unsettled, found.unreadable) == ((), (), 1 - counts)
    assert found.ok == counts
    app, clock = harness.app, harness.world.clock
    counted = harness.operate(lambda aws: rebuild_aggregate(app, aws, "Visits", clock=clock))
    assert counted.unreadable == 1 - counts
    assert harness.get(Visits.key(shop="a")).visits == visits


async def writes_on_and_on(harness):
    table, number = harness.tables.table, 100
    while True:
        item = sale(number % 7 + 100, number % 5, "ab"[number % 2]).attributes(table)
        await harness._aws.dynamodb.put_item(TableName="Sales", Item=item)
        number += 1
        await anyio.sleep(0.3)


@pytest.mark.parametrize("aggregate", [Sales, Largest])
def test_traffic_is_no_difference_and_what_never_rests_is_unsettled(aggregate, harness_of):
    harness = harness_of(make_app(aggregate), settings=QUICK)
    harness.put(*(sale(n, n, "abc"[n % 3]) for n in range(9)))
    harness.settle()
    found = verify(harness, aggregate, writes_on_and_on)
    assert found.different == ()
    assert {one.pk[-1] for one in found.unsettled} <= {"a", "b"}
    pk = f"{aggregate.__name__.upper()}#c"
    change(harness, pk, "ADD sales :one", one={"N": "1"})
    found = verify(harness, aggregate, writes_on_and_on)
    assert {one.pk for one in found.different} == {pk}


class Plain(Aggregate[Sale], pk="PLAIN#{shop}", sk="PLAIN"):
    shop: str
    sales: Annotated[int, Count()] = 0

    @classmethod
    def group(cls, sale: Sale) -> Key["Plain"]:
        return cls.key(shop=sale.shop)


class Restless:
    """Lets a sale come after the first reading of the source, and then, at each look, go before it
    is read for the first time and come back before the second."""

    def __init__(self, harness):
        self.harness, self.readings = harness, 0

    async def intercept(self, call, apply):
        if call.operation != "Scan":
            return apply()
        self.readings += 1
        if self.readings <= 2:
            response = apply()
            self.write("PutItem")
            return response
        self.write("DeleteItem" if self.readings % 2 else "PutItem")
        return apply()

    def write(self, operation):
        item = sale(99, 5).attributes(self.harness.tables.table)
        what = {"Item": item}
        if operation == "DeleteItem":
            what = {"Key": {name: item[name] for name in ("PK", "SK")}}
        engine = self.harness.world.engine
        assert engine.call("dynamodb", operation, what | {"TableName": "Sales"})[0] == 200


def test_a_group_that_is_written_between_the_two_readings_is_not_called_wrong(harness_of):
    """What is stored of it, and what its items say, look the same each time: it is never at rest."""
    harness = harness_of(make_app(Plain), settings=QUICK)
    harness.put(sale(1, 3), sale(2, 7))
    harness.settle()
    restless = Restless(harness)

    async def verified():
        async with harness.world.clients(Process("verifier", faults=restless)) as aws:
            about = harness.app, aws, "Plain"
            return await verify_aggregate(*about, segments=1, clock=harness.world.clock)

    found = harness._run(verified())
    assert restless.readings > 4
    assert found.different == ()
    assert found.unsettled


class Counting:
    """Lets a group grow by one before each reading of the source, and after it, by itself."""

    def __init__(self, harness):
        self.harness = harness

    async def intercept(self, call, apply):
        if call.operation == "Scan":
            change(self.harness, "PLAIN#a", "ADD sales :one", one={"N": "1"})
        return apply()


def test_a_group_that_is_written_while_its_items_rest_is_not_called_wrong(harness_of):
    harness = harness_of(make_app(Plain), settings=QUICK)
    harness.put(sale(1, 3))
    harness.settle()

    async def verified():
        process = Process("verifier", faults=Counting(harness))
        async with harness.world.clients(process) as aws:
            about = harness.app, aws, "Plain"
            return await verify_aggregate(*about, segments=1, clock=harness.world.clock)

    found = harness._run(verified())
    assert found.different == ()
    assert [one.pk for one in found.unsettled] == ["PLAIN#a"]


class Scripted:
    """Writes something wrong into a group before or after some readings of the source.

    The first reading adds up the source, the second looks for groups; then each look has two, one
    after the group was read for the first time, and one after it was read for the second.
    """

    def __init__(self, harness, before, after=lambda reading: None):
        self.harness, self.before, self.after, self.readings = harness, before, after, 0

    async def intercept(self, call, apply):
        if call.operation != "Scan":
            return apply()
        self.readings += 1
        self.write(self.before(self.readings))
        response = apply()
        self.write(self.after(self.readings))
        return response

    def write(self, sales):
        if sales is not None:
            change(self.harness, "PLAIN#a", "SET sales = :n", n={"N": str(sales)})


def verify_scripted(harness_of, *script, **options):
    """Verify a group that holds 5 in place of 2, while a script is played."""
    harness = harness_of(make_app(Plain), settings=QUICK)
    harness.put(sale(1), sale(2))
    harness.settle()
    change(harness, "PLAIN#a", "SET sales = :n", n={"N": "5"})

    async def verified():
        process = Process("verifier", faults=Scripted(harness, *script))
        async with harness.world.clients(process) as aws:
            about = harness.app, aws, "Plain"
            options.update(segments=1, clock=harness.world.clock)
            return await verify_aggregate(*about, **options)

    return harness._run(verified())


def stored_in(differences):
    return [one.stored for one in differences]


def test_what_looks_wrong_once_and_is_right_at_the_next_look_is_not_called_wrong(harness_of):
    found = verify_scripted(harness_of, {5: 2}.get)
    assert found.ok
    assert (found.unsettled, found.looks) == ((), 2)


@pytest.mark.parametrize(("looks", "different", "unsettled"), [(3, [], [7]), (4, [7], [])])
def test_two_looks_in_a_row_have_to_agree(harness_of, looks, different, unsettled):
    found = verify_scripted(harness_of, {5: 7}.get, looks=looks)
    assert (stored_in(found.different), stored_in(found.unsettled)) == (different, unsettled)


def test_a_group_that_changes_between_any_two_looks_is_not_called_wrong(harness_of):
    """Each look by itself finds it at rest."""
    found = verify_scripted(harness_of, {}.get, lambda n: n + 5 if n % 2 == 0 else None)
    assert (found.different, len(found.unsettled)) == ((), 1)


def test_a_group_that_is_another_one_at_the_beginning_of_each_look_is_not_called_wrong(harness_of):
    """At the end of each look it is as it was at the end of the one before."""
    found = verify_scripted(
        harness_of, lambda n: 5 if n % 2 else None, lambda n: None if n % 2 else 9
    )
    assert (found.different, len(found.unsettled)) == ((), 1)


@pytest.mark.parametrize("looks", [0, 1])
def test_a_consumer_that_falls_behind_at_a_look_ends_the_looks(harness_of, monkeypatch, looks):
    answers = iter([*[True] * looks, False])

    async def answer(self):
        return next(answers)

    monkeypatch.setattr(CatchUp, "with_all_until_now", answer)
    found = verify_scripted(harness_of, {}.get)
    assert (found.behind, found.looks) == (True, looks)
    assert (stored_in(found.different), stored_in(found.unsettled)) == ([], [5])


class Busy:
    """A table whose every reading takes a moment, and that is too busy for any for half a minute."""

    def __init__(self):
        self.reading = self.most = 0

    async def intercept(self, call, apply):
        if call.operation != "Scan":
            return apply()
        self.reading += 1
        self.most = max(self.most, self.reading)
        await anyio.sleep(0.1)
        self.reading -= 1
        if anyio.current_time() < self.until:
            error = ApiError("ProvisionedThroughputExceededException", "slow down")
            return Response.of_error(error)
        return apply()


def test_parts_of_the_table_are_read_at_once_and_patiently(harness_of):
    harness = harness_of(make_app(Sales), settings=QUICK)
    harness.put(*(sale(n) for n in range(20)))
    harness.settle()
    busy = Busy()

    async def verified():
        busy.until = anyio.current_time() + 30
        async with harness.world.clients(Process("verifier", faults=busy)) as aws:
            return await verify_aggregate(harness.app, aws, "Sales", clock=harness.world.clock)

    found = harness._run(verified())
    assert found.ok
    assert found.items == 20
    assert busy.most == 4


def test_a_consumer_that_is_behind_leaves_it_unsettled(harness_of):
    harness = harness_of(make_app(Sales), settings=QUICK)
    harness.put(sale(1))
    harness.settle()
    harness.stop()
    harness.put(sale(2))
    found = verify(harness, Sales, patience=10)
    assert found.behind
    assert found.different == ()
    assert {one.attribute for one in found.unsettled} >= {"sales", "total"}


def test_parked_changes_are_unsettled_until_they_are_stuck(harness_of):
    harness = harness_of(make_app(Sales, policy=HASTY), settings=QUICK)
    BROKEN.add(2)
    harness.put(sale(1), sale(2))
    harness.settle()
    found = verify(harness, Sales)
    assert (found.parked, found.unreadable, found.different, found.unsettled) == (1, 1, (), ())
    BROKEN.clear()
    found = verify(harness, Sales)
    assert found.different == ()
    assert found.unsettled
    BROKEN.add(2)
    harness.advance("5m")
    BROKEN.clear()
    found = verify(harness, Sales)
    assert {one.attribute for one in found.different} >= {"sales", "total"}


def test_a_group_of_the_applications_that_is_not_there_is_no_difference(harness_of):
    harness = harness_of(make_app(OntoShop), settings=QUICK)
    harness.put(Shop(shop="a"), sale(1), sale(2, 1, "b"))
    harness.settle()
    assert verify(harness, OntoShop).ok


class MadeOnto(Aggregate[Sale], onto=Shop, missing="create"):
    count: Annotated[int, Count()] = 0

    @classmethod
    def group(cls, sale: Sale) -> Key[Shop]:
        return Shop.key(shop=sale.shop)


def test_a_group_of_the_applications_that_would_have_been_made_is_missed(harness_of):
    harness = harness_of(make_app(MadeOnto), settings=QUICK)
    harness.put(sale(1))
    harness.settle()
    harness.delete(Shop.key(shop="a"))
    (missed,) = verify(harness, MadeOnto).different
    assert (missed.sk, missed.stored, missed.expected) == ("a", None, 1)


def test_an_item_that_does_not_fit_is_counted_once_however_often_the_source_is_read(harness_of):
    harness = harness_of(make_app(Sales, policy=Policy(on_failure="skip")), settings=QUICK)
    BROKEN.add(2)
    harness.put(sale(1), sale(2))
    harness.settle()
    change(harness, "SHOP#a", "SET buyer = :odd", sk="SALE#1", odd={"BOOL": True})
    harness.settle()
    change(harness, "SALES#a", "ADD sales :one", one={"N": "1"})
    found = verify(harness, Sales)
    BROKEN.clear()
    assert found.different
    assert (found.items, found.unreadable) == (1, 2)


def test_an_unknown_name_says_which_ones_there_are(harness_of):
    harness = harness_of(make_app(Sales), settings=QUICK)
    with pytest.raises(ConfigurationError, match="no aggregate 'Nothing'; it has Sales"):
        verify(harness, type("Nothing", (), {}))


def test_the_list_says_how_each_one_is_kept_and_whether_it_can_be_relied_on(harness_of):
    class Views(Aggregate[Sale], pk="VIEWS#{shop}", sk="VIEWS", approximate=True):
        shop: str
        views: Annotated[int, Count()] = 0

        @classmethod
        def group(cls, sale: Sale) -> Key["Views"]:
            return cls.key(shop=sale.shop)

    harness = harness_of(make_app(Spread, OntoShop, Largest, Views))

    def listed():
        found = harness._run(list_aggregates(harness.app, harness._aws))
        return {one.name: one for one in found}

    assert {one.state for one in listed().values()} == {"not started", "approximate"}
    harness.put(sale(1))
    harness.settle()
    found = listed()
    states = ("live", "live", "live", "approximate")
    assert tuple(one.state for one in found.values()) == states
    assert found["Spread"].spread == 4
    assert found["OntoShop"].onto == "Shop"
    assert found["Largest"].measures == {"sales": "Count", "largest": "Max", "top": "Top"}


def test_a_machine_whose_clock_is_wrong_does_not_call_buckets_wrong_that_have_expired(harness_of):
    harness = harness_of(make_app(PerDay))
    harness.put(sale(1))
    harness.settle()
    harness.advance("3d")
    harness.delete(PerDay.key(shop="a", day=DAY))  # as the TTL of the table does
    harness.settle()
    late = CorrectedClock(harness.world.clock, -3 * 24 * 3600)
    assert verify(harness, PerDay, clock=late).different == ()
