"""A stranger's table: whatever its keys are called, and of whatever type they are, it works."""

from decimal import Decimal
from typing import Annotated

import pytest
from pydantic import Field

from streamkit import (
    Aggregate,
    App,
    Count,
    Entity,
    Inserted,
    Modified,
    Put,
    Query,
    Set,
    Sum,
    TableShape,
    Top,
)
from streamkit.errors import ConfigurationError
from streamkit.kinds.aggregate.rebuild import rebuild_aggregate
from streamkit.kinds.aggregate.verification import verify_aggregate
from streamkit.operate.explanation import explain_item

SHAPES = {
    "reserved words": TableShape(pk="name", sk="timestamp"),
    "dots, dashes and spaces": TableShape(pk="device-id", sk="at.the time"),
    "a number as sort key": TableShape(pk="device", sk="number", sk_type="N"),
    "bytes as sort key": TableShape(pk="device", sk="hash", sk_type="B"),
    "no sort key": TableShape(pk="id", sk=None),
}
HASHED = TableShape(pk="device", sk="hash-of", sk_type="B")


def make_app(shape):
    class Reading(Entity, pk="R#{device}#{at}" if shape.sk is None else "R#{device}", sk="{at}"):
        device: str = Field(alias="the device")
        at: int
        value: Decimal = Field(Decimal(0), alias="values")

    class Last(Entity, pk="LAST#{device}", sk="0"):
        device: str = Field(alias="the device")
        at: int = Field(0, alias="last.at")

    app = App("awkward", table="Stranger.s-table", shape=shape)
    app.reading, app.last = Reading, Last

    @app.aggregate
    class Readings(Aggregate[Reading], pk="SUM#{device}", sk="0"):
        device: str = Field(alias="the device")
        readings: Annotated[int, Count()] = Field(0, alias="count")
        total: Annotated[Decimal, Sum("value")] = Field(Decimal(0), alias="sum.of-it")

    app.readings = Readings

    @app.on
    def latest(change: Inserted[Reading] | Modified[Reading]) -> Set[Last]:
        if change.new.value < 0 and not app.healed:
            raise ValueError("below zero")
        return Set(Last.key(device=change.new.device), at=change.new.at)

    app.healed = False
    return app


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_it_counts_parks_redrives_explains_verifies_and_rebuilds(shape, harness_of):
    app = make_app(shape)
    harness = harness_of(app)
    Reading = app.reading
    harness.put(*(Reading(device="a", at=n, value=Decimal(n)) for n in range(1, 5)))
    harness.put(Reading(device="a", at=9, value=Decimal(-1)))
    harness.settle(parks="latest")
    key = app.readings.key(device="a")
    assert (harness.get(key).readings, harness.get(key).total) == (5, 9)
    assert {item.at for item in harness.scan(Reading)} == {1, 2, 3, 4, 9}
    (parked,) = harness.parked()
    assert "below zero" in parked.detail

    app.healed = True
    harness.redrive()
    harness.settle()
    assert harness.parked() == []
    assert harness.get(app.last.key(device="a")).at == 9

    item = Reading.key(device="a", at=3)
    sk = item.sk if shape.sk else None
    found = harness.operate(lambda aws: explain_item(app, aws, item.pk, sk))
    assert found.entity == "Reading"
    assert [one.handler for one in found.listening] == ["Readings", "latest"]

    clock = harness.world.clock
    report = harness.operate(lambda aws: verify_aggregate(app, aws, "Readings", clock=clock))
    assert (report.items, report.groups, report.different) == (5, 1, ())
    harness.update(key, readings=70)
    harness.operate(lambda aws: rebuild_aggregate(app, aws, "Readings", clock=clock))
    harness.settle()
    assert harness.get(key).readings == 5


def test_a_key_that_is_no_number_is_told_before_the_table_is_asked(harness_of):
    app = make_app(SHAPES["a number as sort key"])
    harness = harness_of(app)
    with pytest.raises(
        ConfigurationError, match=r"the key 'number' of .* is a number; 'x' is none"
    ):
        harness.operate(lambda aws: explain_item(app, aws, "R#a", "x"))


@pytest.mark.parametrize("type_attribute", [None, "type"])
def test_an_item_whose_key_is_no_text_is_of_no_entity_and_in_nobodys_way(
    type_attribute, harness_of
):
    class File(Entity, pk="FILE#{owner}", sk="{hash}", type="file"):
        owner: str
        hash: str
        size: int

    class Note(Entity, pk="NOTE#{owner}", sk="{hash}", type="note"):
        owner: str
        hash: str

    class Largest(Aggregate[File], pk="LARGEST#{owner}", sk="0", type="largest"):
        owner: str
        files: Annotated[int, Count()] = 0
        sizes: Annotated[tuple[int, ...], Top(2, by="size")] = ()

        @classmethod
        def members(cls, owner):
            return File.query(owner=owner)

    app = App("files", table="Files", type_attribute=type_attribute, shape=HASHED)
    app.aggregate(Largest)

    def files(change: Inserted[Largest]) -> Query[File]:
        return File.query(owner=change.new.owner)

    @app.fan_out(files)
    def noted(change: Inserted[Largest], to: File) -> Put[Note]:
        return Put(Note(owner=to.owner, hash=to.hash))

    harness = harness_of(app)
    item = {"device": "FILE#a", "type": "file", "owner": "a", "hash": "strange"}
    harness.put(*({**item, "hash-of": bytes([255, n]), "size": 9} for n in range(3)))
    harness.put(*(File(owner="a", hash=name, size=n) for n, name in enumerate("abc")))
    harness.settle()
    assert {one.hash for one in harness.scan(Note)} == set("abc")
    harness.delete(File.key(owner="a", hash="c"))
    harness.settle()
    assert harness.scan(Largest) == [Largest(owner="a", files=2, sizes=(1, 0))]
    clock = harness.world.clock
    assert harness.operate(lambda aws: verify_aggregate(app, aws, "Largest", clock=clock)).ok
    harness.operate(lambda aws: rebuild_aggregate(app, aws, "Largest", clock=clock))
    harness.settle()
    assert harness.scan(Largest) == [Largest(owner="a", files=2, sizes=(1, 0))]
