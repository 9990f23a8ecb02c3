"""What workers count is what the engine says that they used, and it costs no write more."""

import random

import anyio
import pytest

from streamkit import App, Inserted, Put
from streamkit.fleet.members import Member
from streamkit.observe.pricing import DOLLARS
from streamkit.observe.usage import Usage
from streamkit.operate.spending import read_spending, spending_of
from streamkit.progress.metering import meter
from streamkit.settings import Settings
from streamkit.testing.harness import table_of
from streamkit.testing.loop import run_virtually
from streamkit.testing.world import World
from streamkit.worker.worker import Worker
from tests.orders import Journal, Order

SECONDS = 120.0


def make_app():
    app = App("shop", table="shop")

    @app.on
    def note(change: Inserted[Order]) -> Put[Journal]:
        return Put(Journal(number=change.new.number))

    return app


def work(*, metered):
    """Let a worker run for a while; return it, what was counted, and the engine's calls of it."""

    async def main():
        app, world = make_app(), World.create(1, shards=2)
        async with world.clients() as aws:
            await aws.dynamodb.create_table(**table_of(app))
            for number in range(30):
                key = {"PK": {"S": f"ORDER#{number}"}, "SK": {"S": "ORDER"}}
                item = {**key, "number": {"N": str(number)}, "status": {"S": "NEW"}}
                await aws.dynamodb.put_item(TableName="shop", Item=item)
            before = len(world.calls)
            async with world.clients() as own, anyio.create_task_group() as group:
                if metered:
                    meter(own)
                worker = Worker(app, own, Settings(), clock=world.clock, rng=random.Random(1))
                group.start_soon(worker.run)
                await anyio.sleep(SECONDS)
                calls = world.calls[before:]
                used = Usage.of(worker.meters.used.text)
                (spent,) = await read_spending(app, aws)
                worker.stop()
        return used, spent, calls

    return run_virtually(main, seed=1)


@pytest.fixture(scope="module")
def metered():
    return work(metered=True)


def test_a_worker_counts_the_units_that_the_engine_says_it_used(metered):
    used, _, calls = metered
    applied = [call for call in calls if call.status == 200]
    assert used.write == pytest.approx(sum(call.units["write"] for call in applied))
    assert used.read == pytest.approx(sum(call.units["read"] for call in applied))
    assert used.stream == sum(call.operation == "GetRecords" for call in applied)
    assert used.write > 2 * 30  # the effects are in it


def test_a_consumer_spends_a_day_what_its_worker_counted_since_it_began(metered):
    used, spent, _ = metered
    assert (spent.consumer, spent.workers) == ("shop", 1)
    assert spent.seconds == pytest.approx(SECONDS, abs=5)
    assert spent.units["write"] == pytest.approx(used.write * 86_400 / SECONDS, rel=0.05)
    assert spent.units["stream"] == pytest.approx(used.stream * 86_400 / SECONDS, rel=0.05)
    assert spent.dollars == pytest.approx(sum(DOLLARS[k] * u for k, u in spent.units.items()))


def test_counting_makes_no_call_and_no_write_more(metered):
    plain = work(metered=False)
    assert plain[0] is None
    assert plain[1].workers == 0
    for name in ("UpdateItem", "TransactWriteItems", "PutItem"):
        counts = [sum(call.operation == name for call in ran[2]) for ran in (metered, plain)]
        assert counts[0] == counts[1]


def test_the_rates_of_several_workers_add_up_each_over_its_own_time():
    members = [
        Member("a", at=1_100, used=Usage(1_000, write=10.0).text),
        Member("b", at=1_100, used=Usage(1_050, write=10.0).text),
        Member("old", at=1_100, used="something else"),
        Member("silent", at=1_100),
    ]
    found = spending_of("shop", members)
    assert (found.workers, found.seconds) == (2, 100)
    assert found.units["write"] == pytest.approx(86_400 * (10 / 100 + 10 / 50))
