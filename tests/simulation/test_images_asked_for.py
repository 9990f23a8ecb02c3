"""An image becomes an entity when a handler asks for it; one that does not fit holds up no other."""

from typing import Annotated

import pytest

from streamkit import Aggregate, App, Entity, Inserted, Key, Modified, Put, Sum
from streamkit.aws_lambda.host import process_batch
from streamkit.testing.loop import run_virtually
from tests.rigs import Rig
from tests.simulation.lambdas import Stream, environment_of, event, own_items, world_of


class Order(Entity, pk="ORDER#{order}", sk="ORDER#{order}"):
    order: str
    total: int


class Notice(Entity, pk="NOTICE#{order}", sk="NOTICE#{by}"):
    order: str
    by: str
    total: int = 0


def looks_at_new(app):
    @app.on
    def looks(change: Modified[Order]) -> Put[Notice]:
        return Put(Notice(order=change.key.pk, by="looks", total=change.new.total))


def looks_at_none(app):
    @app.on
    def looks(change: Modified[Order]) -> Put[Notice]:
        return Put(Notice(order=change.key.pk, by="looks"))


def looks_at_old(app):
    @app.on
    def looks(change: Modified[Order]) -> Put[Notice]:
        total = change.new.total - change.old.total
        return Put(Notice(order=change.key.pk, by="looks", total=total))


def catches(app):
    @app.on
    def looks(change: Modified[Order]) -> Put[Notice] | None:
        try:
            return Put(Notice(order=change.key.pk, by="looks", total=change.old.total))
        except Exception:
            return None


def catches_async(app):
    @app.on
    async def looks(change: Modified[Order]) -> Put[Notice] | None:
        try:
            return Put(Notice(order=change.key.pk, by="looks", total=change.old.total))
        except Exception:
            return None


HANDLERS = [
    (looks_at_new, []),
    (looks_at_none, []),
    (looks_at_old, ["DecodeError"]),
    (catches, ["DecodeError"]),
    (catches_async, ["DecodeError"]),
]
by_handler = pytest.mark.parametrize(
    ("declare", "parked"), HANDLERS, ids=[declare.__name__ for declare, _ in HANDLERS]
)


def make_app(declare):
    app = App("shop", table="Shop", entities=[Notice])
    declare(app)

    @app.on
    def beside(change: Modified[Order]) -> Put[Notice]:
        return Put(Notice(order=change.key.pk, by="beside", total=change.new.total))

    return app


def put(world, total):
    item = {name: {"S": "ORDER#1"} for name in ("PK", "SK")}
    item |= {"order": {"S": "1"}, "total": total}
    assert world.engine.call("dynamodb", "PutItem", {"TableName": "Shop", "Item": item})[0] == 200


def put_and_mend(world):
    put(world, {"S": "much"})
    put(world, {"N": "1"})


def notices(world):
    items = [item for item in world.items("Shop") if item["PK"]["S"].startswith("NOTICE#")]
    return {item["by"]["S"] for item in items}


@by_handler
def test_a_worker_parks_a_change_only_where_an_image_that_does_not_fit_was_asked_for(
    declare, parked
):
    with Rig(make_app(declare)) as harness:
        put_and_mend(harness.world)
        harness.settle()
        assert [change.error for change in harness.parked()] == parked
        assert notices(harness.world) == ({"beside"} if parked else {"beside", "looks"})


@by_handler
def test_so_does_a_function(declare, parked):
    async def scenario():
        app = make_app(declare)
        world = world_of(app)
        stream = Stream(world, "Shop")
        put_and_mend(world)
        async with environment_of(world, app) as environment:
            await process_batch(environment, event(stream.records()), 60.0)
        assert len(own_items(world, "Shop", "parked")) == len(parked)
        assert notices(world) == ({"beside"} if parked else {"beside", "looks"})

    run_virtually(scenario)


class Draft(Entity, pk="DRAFT#{order}", sk="DRAFT#{order}", frozen=False):
    order: str
    total: int


class Drafts(Aggregate[Draft], pk="DRAFTS#{name}", sk="DRAFTS"):
    name: str
    total: Annotated[int, Sum("total")] = 0

    @classmethod
    def group(cls, draft: Draft) -> Key["Drafts"]:
        return cls.key(name=draft.order)


def test_no_handler_sees_what_another_has_done_to_a_mutable_entity():
    app, seen = App("shop", table="Shop"), []

    @app.on
    def edits(change: Inserted[Draft]) -> None:
        change.new.total += 1

    @app.on
    def looks(change: Inserted[Draft]) -> None:
        seen.append(change.new.total)

    with Rig(app) as harness:
        harness.put(Draft(order="1", total=5))
        harness.settle()
    assert seen == [5]


def test_an_aggregate_counts_what_the_item_was_and_not_what_a_handler_beside_it_made_of_that():
    app = App("shop", table="Shop")
    app.aggregate(Drafts)

    @app.on
    def edits(change: Inserted[Draft]) -> None:
        change.new.total += 1

    with Rig(app) as harness:
        harness.put(Draft(order="1", total=5))
        harness.settle()
        assert harness.get(Drafts.key(name="1")).total == 5
