"""To handlers and aggregates a migration's copies are not there."""

from typing import Annotated

from streamkit import Aggregate, App, Change, Count, Entity, Key, Max, Put, Query
from streamkit.kinds.aggregate.verification import verify_aggregate
from streamkit.model.copies import COPY


class Bid(Entity, pk="LOT#{lot}", sk="BID#{number}"):
    lot: str
    number: int


class Highest(Aggregate[Bid], pk="LOT#{lot}", sk="HIGHEST"):
    lot: str
    bids: Annotated[int, Count()] = 0
    number: Annotated[int | None, Max("number")] = None

    @classmethod
    def group(cls, bid: Bid) -> Key["Highest"]:
        return cls.key(lot=bid.lot)

    @classmethod
    def members(cls, lot: str) -> Query[Bid]:
        return Bid.query(lot=lot)


class Seen(Entity, pk="SEEN#{lot}", sk="SEEN#{number}"):
    lot: str
    number: int
    kind: str


def app_of():
    app = App("lots", table="Lots", entities=[Seen])
    app.aggregate(Highest)

    @app.on
    def seen(change: Change[Bid]) -> Put[Seen]:
        bid = change.new or change.old
        return Put(Seen(lot=bid.lot, number=bid.number, kind=type(change).__name__))

    return app


def write(harness, bid, **beside):
    item = bid.attributes(harness.tables.table) | beside
    harness._run(harness._aws.dynamodb.put_item(TableName="Lots", Item=item))


def as_copy(harness, bid):
    write(harness, bid, **{COPY: {"S": "0001:x"}})


def highest(harness):
    found = harness.get(Highest.key(lot="a"))
    return (found.bids, found.number) if found else (0, None)


def test_a_copy_is_neither_counted_nor_found_when_an_extreme_is_computed_again(harness_of):
    harness = harness_of(app_of())
    harness.put(Bid(lot="a", number=1), Bid(lot="a", number=5))
    as_copy(harness, Bid(lot="a", number=9))
    harness.settle()
    assert highest(harness) == (2, 5)
    harness.delete(Bid(lot="a", number=5).item_key)
    harness.settle()
    assert highest(harness) == (1, 1)
    clock = harness.world.clock
    report = harness._run(verify_aggregate(harness.app, harness._aws, "Highest", clock=clock))
    assert report.ok
    assert report.items == 1


def test_an_item_that_becomes_a_copy_is_removed_and_one_that_stops_being_one_is_inserted(
    harness_of,
):
    harness = harness_of(app_of())
    bid = Bid(lot="a", number=3)
    as_copy(harness, bid)
    harness.settle()
    assert harness.scan(Seen) == []
    write(harness, bid)
    harness.settle()
    assert [seen.kind for seen in harness.scan(Seen)] == ["Inserted"]
    assert highest(harness) == (1, 3)
    as_copy(harness, bid)
    harness.settle()
    assert [seen.kind for seen in harness.scan(Seen)] == ["Removed"]
    assert highest(harness) == (0, None)
