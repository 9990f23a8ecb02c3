"""An app hears of the shards that come to its workers and leave, and cannot disturb them."""

from collections import defaultdict
from functools import partial

import anyio
import pytest

from streamkit import App, DeclarationError, Entity, Inserted, Put, ShardEvent, Telemetry
from streamkit.settings import Settings
from streamkit.testing.loop import run_virtually
from streamkit.testing.world import Process, World
from tests.tables import streamed


class Order(Entity, pk="ORDER#{number}", sk="ORDER"):
    number: int


class Receipt(Entity, pk="RECEIPT#{number}", sk="RECEIPT"):
    number: int


def app_with(hook):
    app = App("shop", table="Shop", telemetry=Telemetry(on_shard=hook), entities=[Receipt])

    @app.on
    def confirm(change: Inserted[Order]) -> Put[Receipt]:
        return Put(Receipt(number=change.new.number))

    return app


def by_shard(events):
    found = defaultdict(list)
    for event in events:
        found[event.shard].append(event.what)
    return dict(found)


def test_shards_are_taken_drained_and_released_in_order(harness_of):
    seen = []
    harness = harness_of(app_with(seen.append), settings=Settings())
    harness.settle()
    first = by_shard(seen)
    assert set(map(tuple, first.values())) == {("taken",)}
    harness.roll()
    harness.put(Order(number=1))
    harness.settle()
    harness.stop()
    whole = by_shard(seen)
    assert all(whole[shard] == ["taken", "drained"] for shard in first)
    assert [whole[shard] for shard in whole.keys() - first.keys()] == (
        [["taken", "released"]] * len(first)
    )
    assert {event.consumer for event in seen} == {"shop"}


def test_a_worker_that_stood_still_hears_what_it_has_lost():
    async def scenario():
        frozen, other = [], []
        world = World.create(1, shards=1)
        assert world.engine.call("dynamodb", "CreateTable", streamed("Shop", "PK", "SK"))[0] == 200
        process = Process("frozen")
        async with anyio.create_task_group() as group:
            run = partial(world.run_worker, until_idle=False)
            group.start_soon(partial(run, app_with(frozen.append), process=process))
            await anyio.sleep(5)
            process.freeze()
            group.start_soon(run, app_with(other.append))
            await anyio.sleep(30)
            process.thaw()
            await anyio.sleep(10)
            group.cancel_scope.cancel()
        (shard,) = {event.shard for event in other}
        assert frozen[:2] == [ShardEvent("taken", "shop", shard), ShardEvent("lost", "shop", shard)]
        assert other[0] == ShardEvent("taken", "shop", shard)

    run_virtually(scenario)


def test_a_hook_that_raises_changes_nothing(harness_of):
    def refuse(event):
        raise RuntimeError(f"no {event.what}")

    harness = harness_of(app_with(refuse), settings=Settings())
    harness.put(Order(number=1))
    harness.settle()
    assert harness.get(Receipt.key(number=1)) == Receipt(number=1)


def test_a_hook_that_nobody_would_await_is_refused():
    async def hook(event):
        """Never run."""

    with pytest.raises(DeclarationError, match="make it a def"):
        Telemetry(on_shard=hook)
