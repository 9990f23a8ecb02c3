"""A parked change of an aggregate that is discarded makes it need a rebuild, and that is said."""

from dataclasses import replace
from typing import Annotated

import pytest

from streamkit import Aggregate, App, Count, Entity, Inserted, PoisonChange
from streamkit.cli.following import after_discard
from streamkit.core.parked.queues import Selection
from streamkit.core.tables import open_store
from streamkit.errors import ConfigurationError
from streamkit.fleet.generation import newest_generation, next_generation, write_generation
from streamkit.kinds.aggregate.facts import list_aggregates
from streamkit.operate import redrive
from streamkit.operate.redrive import discard
from streamkit.operate.status import read_status
from tests.simulation.rebuilds import Gate, Operator, rebuild, scans_a_segment, until


class Order(Entity, pk="ORDER#{number}", sk="ORDER"):
    number: int
    brand: str = "acme"


@pytest.fixture
def broken():
    return {1}


@pytest.fixture
def shop(harness_of, broken):
    app = App("shop", table="Shop")

    @app.aggregate
    class PerBrand(Aggregate[Order], pk="PER#{brand}", sk="PER"):
        brand: str
        orders: Annotated[int, Count(when=lambda order: fails_or_counts(order, broken))] = 0

    @app.aggregate
    class Others(Aggregate[Order], pk="OTHERS#{brand}", sk="OTHERS"):
        brand: str
        orders: Annotated[int, Count()] = 0

    @app.aggregate
    class Roughly(Aggregate[Order], pk="ROUGHLY#{brand}", sk="ROUGHLY", approximate=True):
        brand: str
        orders: Annotated[int, Count(when=lambda order: fails_or_counts(order, broken))] = 0

    @app.on
    def told(change: Inserted[Order]) -> None:
        if change.new.number in broken:
            raise PoisonChange("never")

    app.PerBrand = PerBrand
    # As after workers that have died of a change: it is parked, whatever the policy says.
    roughly = next(one for one in app.handlers if one.name == "Roughly")
    parks = replace(roughly, policy=replace(roughly.policy, on_failure="park"))
    app.handlers[app.handlers.index(roughly)] = parks
    harness = harness_of(app)
    harness.put(*(Order(number=number) for number in range(3)))
    harness.settle()
    return harness


def fails_or_counts(order, broken):
    if order.number in broken:
        raise PoisonChange("never")
    return True


def discarded(shop, **chosen):
    app, clock = shop.app, shop.world.clock
    return shop.operate(lambda aws: discard(app, aws, Selection(**chosen), clock=clock))


def states(shop):
    found = shop.operate(lambda aws: list_aggregates(shop.app, aws))
    return {one.name: one.state for one in found if one.name != "Roughly"}


def test_an_aggregate_whose_parked_change_is_discarded_needs_a_rebuild_until_it_had_one(
    shop, broken
):
    assert states(shop) == {"PerBrand": "live", "Others": "live"}
    (report,) = discarded(shop, handler="PerBrand")
    assert report.done == 1
    assert states(shop) == {"PerBrand": "needs rebuild", "Others": "live"}
    assert shop.get(shop.app.PerBrand.key(brand="acme")).orders == 2, "it lacks the change"
    broken.clear()
    rebuild(shop, aggregate="PerBrand")
    assert states(shop) == {"PerBrand": "live", "Others": "live"}
    assert shop.get(shop.app.PerBrand.key(brand="acme")).orders == 3


def test_a_rebuild_during_which_a_change_is_discarded_does_not_end_as_if_nothing_were_missing(shop):
    gate = Gate(scans_a_segment)
    operator = Operator(shop, aggregate="PerBrand", gate=gate)
    until(shop, gate.met)
    shop.put(Order(number=1, brand="other"))
    shop.advance("5m")
    (report,) = discarded(shop, handler="PerBrand")
    assert states(shop)["PerBrand"] == "needs rebuild"
    gate.open.set()
    with pytest.raises(ConfigurationError, match="needs to be rebuilt again"):
        operator.wait()


def test_discarding_another_handlers_change_marks_nothing(shop):
    (report,) = discarded(shop, handler="told")
    assert report.done == 1
    assert set(states(shop).values()) == {"live"}


def test_an_aggregate_that_may_miss_changes_and_cannot_be_rebuilt_is_named_but_not_marked(shop):
    (report,) = discarded(shop, handler="Roughly")
    assert report.done == 1
    found = shop.operate(lambda aws: read_status(shop.app, aws))
    assert found.needs_rebuild == ()
    ((said, command),) = after_discard(shop.app, {"Roughly"})
    assert (said, command) == ("Roughly is approximate: it lacks what was discarded, for good", ())


def test_nothing_is_marked_where_nothing_is_discarded(shop):
    assert discarded(shop, handler="PerBrand", parked_before=1.0) == []
    assert set(states(shop).values()) == {"live"}


def test_an_aggregate_that_the_consumer_does_not_know_any_more_is_not_marked(shop):
    del shop.app.handlers[0]
    shop.stop()
    shop.settle()
    discarded(shop, handler="PerBrand")
    found = shop.operate(lambda aws: read_status(shop.app, aws))
    assert found.needs_rebuild == ()


def test_an_aggregate_that_goes_while_its_change_is_discarded_is_not_marked(shop, monkeypatch):
    reads = []

    async def read(store):
        newest = await newest_generation(store)
        reads.append(newest)
        if len(reads) == 1:  # a roll-out of code without it comes between this and the commit
            rest = [one for one in shop.app.handlers if one.name != "PerBrand"]
            await write_generation(store, newest, next_generation(newest, "later", rest))
        return newest

    monkeypatch.setattr(redrive, "newest_generation", read)
    (report,) = discarded(shop, handler="PerBrand")
    assert (report.done, len(reads)) == (1, 2)

    async def newest(aws):
        return await newest_generation(await open_store(shop.app, aws))

    assert shop.operate(newest).rebuild == frozenset()
