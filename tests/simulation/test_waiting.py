"""A shard that waits for a handler says so wherever its lag is shown."""

import pytest

from streamkit import App, Entity, Inserted, Put, Send
from streamkit.cli.describing import describe_status
from streamkit.cli.watching import _line
from streamkit.operate.status import read_status
from streamkit.settings import Settings
from tests.simulation.memory import Memory


class Order(Entity, pk="ORDER#{number}", sk="ORDER"):
    number: int


class Receipt(Entity, pk="RECEIPT#{number}", sk="RECEIPT"):
    number: int


def answering(app, down, **policy):
    @app.on(**policy)
    def confirm(change: Inserted[Order]) -> Put[Receipt]:
        if down:
            raise ConnectionError("its downstream is down")
        return Put(Receipt(number=change.new.number))


def answering_in_time(app, down, **policy):
    @app.on(**policy)
    async def confirm(change: Inserted[Order]) -> Put[Receipt]:
        if down:
            raise ConnectionError("its downstream is down")
        return Put(Receipt(number=change.new.number))


def sending(app, down, **policy):
    sink = Memory()
    sink.trouble = lambda _: ConnectionError("the sink is down") if down else None
    memory = app.sink(sink)

    @app.on(**policy)
    def confirm(change: Inserted[Order]) -> Send:
        return Send(memory, {"number": change.new.number})


def status_of(harness):
    return harness._run(read_status(harness.app, harness._aws, clock=harness.world.clock))


@pytest.mark.parametrize("declare", [answering, answering_in_time, sending])
def test_a_shard_waits_for_the_handler_that_blocks_it_until_that_works(harness_of, declare, capsys):
    down = [True]
    app = App("shop", table="Shop", entities=[Receipt])
    declare(app, down, on_failure="block")
    harness = harness_of(app, settings=Settings())
    harness.settle()
    harness.put(Order(number=1))
    harness.advance("10m")
    status = status_of(harness)
    (shard,) = [shard for shard in status.shards if shard.waits_for]
    assert shard.waits_for == ("confirm",)
    describe_status(status)
    said = f"{shard.name} waits for confirm, which fails on a change"
    assert said in capsys.readouterr().out
    assert f"({shard.name}, {shard.owner}, waits for confirm)" in _line(status)
    down.clear()
    harness.settle()
    harness.advance("10s")
    assert not any(shard.waits_for for shard in status_of(harness).shards)


def test_a_shard_waits_for_the_handler_whose_breaker_is_open(harness_of):
    down = [True]
    app = App("shop", table="Shop", entities=[Receipt])
    answering(app, down)
    harness = harness_of(app, settings=Settings())
    harness.settle()
    harness.put(*(Order(number=number) for number in range(60)))
    harness.advance("2m")
    assert {name for s in status_of(harness).shards for name in s.waits_for} == {"confirm"}
    down.clear()
    harness.settle()
    harness.advance("10s")
    assert not any(shard.waits_for for shard in status_of(harness).shards)


def test_who_only_parks_holds_nothing_up(harness_of):
    down = [True]
    app = App("shop", table="Shop", entities=[Receipt])
    answering(app, down)
    harness = harness_of(app, settings=Settings())
    harness.settle()
    harness.put(Order(number=1))
    harness.advance("2m")
    status = status_of(harness)
    assert (status.parked_queues, [s.waits_for for s in status.shards if s.waits_for]) == (1, [])
