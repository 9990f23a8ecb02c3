"""What `explain` says of an item is so, and it says nothing that it was not asked for."""

import json
from typing import Annotated

import pytest

from streamkit import (
    Aggregate,
    App,
    Change,
    Count,
    Entity,
    Inserted,
    Key,
    Modified,
    PoisonChange,
    Put,
    became,
)
from streamkit.aws_lambda.host import process_batch
from streamkit.changes import ItemKey
from streamkit.cli.following import after_explanation
from streamkit.core.parked.queues import parked_queues
from streamkit.core.parking import queue_name
from streamkit.core.tables import open_store
from streamkit.errors import ConfigurationError
from streamkit.operate.consumers import pause_consumer
from streamkit.operate.explanation import explain_item
from streamkit.settings import Settings
from streamkit.testing.chance import repeatable
from streamkit.testing.loop import run_virtually
from streamkit.testing.world import Process
from tests.simulation import lambdas, watchers


class Order(Entity, pk="ORDER#{number}", sk="ORDER"):
    number: int
    status: str = "NEW"


class Notice(Entity, pk="NOTICE#{number}", sk="NOTICE"):
    number: int


def make_app():
    app = App("shop", table="Shop", entities=[Notice])

    @app.aggregate
    class PerStatus(Aggregate[Order], pk="PER#{status}", sk="PER"):
        status: str
        orders: Annotated[int, Count()] = 0

        @classmethod
        def group(cls, order: Order) -> Key["PerStatus"]:
            return cls.key(status=order.status)

    @app.on(when=became("status", "SHIPPED"))
    def shipped(change: Modified[Order]) -> Put[Notice]:
        if change.new.number == 13:
            raise PoisonChange("never")
        return Put(Notice(number=change.new.number))

    @app.on
    def seen(change: Inserted[Notice]) -> None:
        del change

    search = app.listener("search")

    @search.on
    def indexed(change: Change[Order]) -> None:
        del change

    app.PerStatus = PerStatus
    return app


@pytest.fixture
def shop(harness_of):
    harness = harness_of(make_app())
    for status in ("NEW", "SHIPPED", "BACK", "SHIPPED"):
        harness.put(Order(number=13, status=status), Order(number=7, status=status))
        harness.settle()
    return harness


def waiting(explanation):
    """The handlers for which changes of the item are parked."""
    return tuple(one for one in explanation.listening if one.state in ("parked", "stuck"))


def explained(shop, *key, **options):
    return shop._run(explain_item(shop.app, shop._aws, *key, **options))


def by_handler(found):
    return {f"{one.consumer}/{one.handler}": one for one in found.listening}


def test_it_names_the_entity_and_who_listens_with_queue_and_condition(shop):
    found = explained(shop, "ORDER#7", "ORDER")
    assert (found.kind, found.entity, found.exists) == ("entity", "Order", True)
    listening = by_handler(found)
    assert set(listening) == {"shop/PerStatus", "shop/shipped", "shop.search/indexed"}
    shipped = listening["shop/shipped"]
    assert shipped.when == "became('status', 'SHIPPED')"
    assert shipped.kinds == ("modified",)
    assert shipped.queue == queue_name("shipped", ItemKey("ORDER#7", "ORDER"))
    assert waiting(found) == ()


def test_a_parked_change_shows_where_it_is_held_and_why(shop):
    found = explained(shop, "ORDER#13", "ORDER")
    (held,) = waiting(found)
    assert (held.handler, held.state, held.due) == ("shipped", "stuck", None)
    assert [change.error for change in held.parked] == ["PoisonChange"] * 2


def test_changes_that_are_parked_one_by_one_are_shown_with_their_queues(harness_of):
    """An aggregate that only counts has a queue for each of its changes, and none waits."""
    app = App("shop", table="Shop")
    down = [True]

    @app.aggregate
    class PerStatus(Aggregate[Order], pk="PER#{status}", sk="PER"):
        status: str
        orders: Annotated[int, Count()] = 0

        @classmethod
        def group(cls, order: Order) -> Key["PerStatus"]:
            if down and order.number == 1:
                raise PoisonChange("never")
            return cls.key(status=order.status)

    harness = harness_of(app)
    for status in ("NEW", "SHIPPED"):
        harness.put(Order(number=1, status=status), Order(number=2, status=status))
    harness.settle()
    found = explained(harness, "ORDER#1", "ORDER", records=True)
    (held,) = waiting(found)
    assert (held.handler, held.state, held.due) == ("PerStatus", "stuck", None)
    listed = harness.operate(lambda aws: queues_of(app, aws))
    assert {change.queue for change in held.parked} == listed
    assert len(held.parked) == len(listed) == 2
    assert after_explanation(found) == ("parked show", "--queue", held.parked[0].queue)
    assert states(found) == ["stuck for PerStatus"] * 2
    assert waiting(explained(harness, "ORDER#2", "ORDER")) == ()


async def queues_of(app, aws):
    return {queue.name for queue in await parked_queues(await open_store(app, aws))}


def test_the_group_that_it_counts_in_is_told_by_its_hash_alone(shop):
    found = explained(shop, "ORDER#7", "ORDER")
    (group,) = found.groups
    key = shop.app.PerStatus.key(status="SHIPPED")
    assert (group.aggregate, group.key) == ("PerStatus", key.digest)


def test_values_are_given_only_if_they_are_asked_for(shop):
    plain = json.dumps(explained(shop, "ORDER#7", "ORDER", records=True).to_dict())
    assert "SHIPPED" not in plain.replace("became('status', 'SHIPPED')", "")
    shown = explained(shop, "ORDER#7", "ORDER", show_data=True)
    assert shown.data["status"] == "SHIPPED"


def test_an_item_that_a_handler_wrote_says_which(shop):
    found = explained(shop, "NOTICE#7", "NOTICE")
    assert (found.written_by, found.hops) == ("shipped", 1)
    assert explained(shop, "ORDER#7", "ORDER").written_by is None


def test_its_changes_in_the_stream_are_found_wherever_they_are(shop):
    shop.split()
    shop.put(Order(number=7, status="LOST"))
    found = explained(shop, "ORDER#7", "ORDER", records=True)
    assert [one.kind for one in found.sightings] == ["inserted", *["modified"] * 4]
    assert [one.states["shop"] for one in found.sightings] == ["done"] * 4 + ["to come"]
    assert {one.origin for one in found.sightings} == {"application"}
    assert found.whole
    shop.settle()
    shop.stop()  # it writes the positions that led to nothing, too
    found = explained(shop, "ORDER#7", "ORDER", records=True)
    assert {state for one in found.sightings for state in one.states.values()} == {"done"}


def test_a_change_that_a_handler_made_says_so_in_the_stream(shop):
    found = explained(shop, "NOTICE#7", "NOTICE", records=True).sightings
    # The second notice is like the first: nothing but its mark is new.
    assert [(one.origin, one.hops) for one in found] == [("handler", 1), ("origin only", 0)]


def test_a_look_that_is_cut_short_says_that_it_is_not_whole(shop):
    found = explained(shop, "ORDER#7", "ORDER", records=True, pages=1)
    assert not found.whole


def test_what_is_not_there_or_nobodys_is_said(shop):
    missing = explained(shop, "ORDER#99", "ORDER")
    assert (missing.entity, missing.exists, missing.groups) == ("Order", False, ())
    assert len(missing.listening) == 3
    unknown = explained(shop, "OTHER#1", "OTHER")
    assert (unknown.kind, unknown.entity, unknown.listening) == ("unknown", None, ())
    assert explained(shop, "_sk#shop#x", "_sk").kind == "control"


def test_an_item_that_does_not_fit_its_entity_is_a_problem_and_no_error(shop):
    wire = Order(number=8).attributes(shop.tables.table)
    wire["number"] = {"S": "eight"}
    shop._run(shop._aws.dynamodb.put_item(TableName="Shop", Item=wire))
    found = explained(shop, "ORDER#8", "ORDER")
    assert "number" in found.problem
    assert "eight" not in found.problem


def test_a_key_must_be_as_the_tables_keys_are(shop):
    with pytest.raises(ConfigurationError, match="sort key"):
        explained(shop, "ORDER#7")


def test_nothing_is_written_by_looking(shop):
    shop.stop()
    before = shop.world.items("Shop")
    explained(shop, "ORDER#7", "ORDER", records=True)
    assert shop.world.items("Shop") == before


def states(found, consumer="shop"):
    return [one.states[consumer] for one in found.sightings]


def test_a_change_that_is_parked_is_not_done_whatever_position_its_shard_has(shop):
    shop.stop()
    found = explained(shop, "ORDER#13", "ORDER", records=True)
    assert states(found) == ["done", "stuck for shipped", "done", "stuck for shipped"]
    assert states(found, "shop.search") == ["done"] * 4


def test_what_waits_behind_a_parked_change_is_held_and_not_done(harness_of):
    app = App("shop", table="Shop", entities=[Notice])

    @app.on(attempts=1)
    async def told(change: Change[Order]) -> None:
        raise ConnectionError("down")

    harness = harness_of(app)
    harness.settle()
    harness.put(Order(number=1))
    harness.put(Order(number=1, status="SHIPPED"))
    harness.advance("1s")
    found = explained(harness, "ORDER#1", "ORDER", records=True)
    assert states(found) == ["parked for told"] * 2


def test_a_recipient_for_whom_a_change_is_parked_keeps_it_from_being_done(harness_of):
    harness = harness_of(watchers.make_app(poison={"u0003"}, inline=0))
    watchers.watch(harness, 10)
    harness.put(watchers.Deal(deal="1", brand="acme"))
    harness.settle()
    harness.stop()
    found = explained(harness, "DEAL#1", "DEAL#1", records=True)
    assert states(found, "deals") == ["stuck for notify"]


def blocking(down):
    app = App("shop", table="Shop", entities=[Notice])

    @app.on(on_failure="block")
    def waits(change: Inserted[Notice]) -> None:
        if down:
            raise ConnectionError("its downstream is down")

    @app.on
    def told(change: Change[Order]) -> None:
        del change

    return app


def told(found):
    return by_handler(found)["shop/told"]


def test_a_queue_is_not_free_while_the_shard_before_it_waits_for_a_handler(harness_of):
    down = [True]
    harness = harness_of(blocking(down), settings=Settings())
    harness.settle()
    assert told(explained(harness, "ORDER#1", "ORDER")).state == "free"
    harness.put(Notice(number=1))
    harness.put(Order(number=1))
    harness.advance("1m")
    found = explained(harness, "ORDER#1", "ORDER", records=True)
    assert (told(found).state, told(found).waits_for) == ("waits", ("waits",))
    assert states(found) == ["to come"]
    assert waiting(found) == ()
    down.clear()
    harness.settle()
    harness.advance("10s")
    assert told(explained(harness, "ORDER#1", "ORDER")).state == "free"


def test_of_two_shards_the_one_that_carries_the_item_says_whether_it_waits(harness_of):
    harness = harness_of(blocking([True]), settings=Settings(), shards=2)
    harness.settle()
    harness.put(Notice(number=1))
    harness.put(*(Order(number=number) for number in range(8)))
    harness.advance("1m")
    unseen = {told(explained(harness, f"ORDER#{n}", "ORDER")).state for n in range(8)}
    assert unseen == {"may wait"}
    found = [explained(harness, f"ORDER#{n}", "ORDER", records=True) for n in range(8)]
    assert {told(one).state for one in found} == {"waits", "free"}
    for one in found:
        assert (told(one).state == "free") == (states(one) == ["done"]), "read on, or held up"


def test_a_child_is_not_free_while_its_parent_waits(harness_of):
    harness = harness_of(blocking([True]), settings=Settings(), shards=1)
    harness.settle()
    harness.put(Notice(number=1))
    harness.advance("1m")
    harness.split()
    harness.put(Order(number=1))
    harness.advance("1m")
    assert told(explained(harness, "ORDER#1", "ORDER")).state == "waits"
    assert told(explained(harness, "ORDER#1", "ORDER", records=True)).state == "waits"


def test_nothing_is_free_while_the_consumer_is_paused(shop):
    shop.operate(lambda aws: pause_consumer(shop.app, aws, clock=shop.world.clock))
    listening = by_handler(explained(shop, "ORDER#7", "ORDER"))
    assert listening["shop/shipped"].state == "paused"
    assert listening["shop.search/indexed"].state == "free"


def test_what_came_before_the_consumers_start_was_passed_over(harness_of):
    app = make_app()
    harness = harness_of(app, settings=Settings())
    harness.put(Order(number=7))
    harness.advance("10s")
    app.start = "latest"
    harness.settle()
    harness.stop()
    found = explained(harness, "ORDER#7", "ORDER", records=True)
    assert states(found, "shop") == ["before its start"]


def test_of_functions_the_items_own_mark_says_what_is_done():
    app = make_app()

    async def main():
        world = lambdas.world_of(app)
        stream = lambdas.Stream(world, "Shop")
        for status in ("NEW", "SHIPPED"):
            keys = {"PK": {"S": "ORDER#7"}, "SK": {"S": "ORDER"}}
            wire = keys | {"number": {"N": "7"}, "status": {"S": status}}
            world.engine.call("dynamodb", "PutItem", {"TableName": "Shop", "Item": wire})
            if status == "NEW":
                async with lambdas.environment_of(world, app) as environment:
                    await process_batch(environment, lambdas.event(stream.traffic()))
        async with world.clients(Process("operator")) as aws:
            return await explain_item(app, aws, "ORDER#7", "ORDER", records=True)

    with repeatable(1):
        found = run_virtually(main)
    assert states(found) == ["done", "to come"]
    assert states(found, "shop.search") == ["unknown"] * 2, "it has never run"


def test_a_handler_that_the_app_has_no_more_shows_what_is_parked_for_it(shop):
    app = App("shop", table="Shop")

    @app.on
    def shipped_anew(change: Modified[Order]) -> Put[Notice]:
        return Put(Notice(number=change.new.number))

    found = shop._run(explain_item(app, shop._aws, "ORDER#13", "ORDER"))
    assert set(by_handler(found)) == {"shop/shipped_anew", "shop/shipped"}
    (left,) = waiting(found)
    assert (left.handler, left.kinds, left.state, left.declared) == ("shipped", (), "stuck", "")
    assert {held.error for held in left.parked} == {"PoisonChange"}
    assert after_explanation(found) == ("parked show", "--queue", left.queue)


def test_a_handler_that_the_app_has_no_more_is_not_named_for_items_without_parked_changes(shop):
    app = App("shop", table="Shop")

    @app.on
    def shipped_anew(change: Modified[Order]) -> Put[Notice]:
        return Put(Notice(number=change.new.number))

    found = shop._run(explain_item(app, shop._aws, "ORDER#7", "ORDER"))
    assert set(by_handler(found)) == {"shop/shipped_anew"}
