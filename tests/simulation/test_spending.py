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


def heartbeat(usage, now):
    return Member("w", at=now, used=usage.text, lately=usage.lately(now))


def counted(rates, *, every=300):
    """Return the heartbeat of a worker that wrote at these rates (units a second), one by one."""
    usage, now = Usage(), 1_000_000
    usage.begin(now)
    for rate in rates:
        now += every
        usage.add("PutItem", rate * every)
        usage.lately(now)
    return heartbeat(usage, now)


def test_a_steady_rate_is_known_exactly_and_an_unsteady_one_with_an_error():
    steady = spending_of("shop", [counted([2.0] * 24)])
    assert (steady.seconds, steady.error) == (7200, pytest.approx(0.0, abs=1e-9))
    unsteady = spending_of("shop", [counted([1.0] * 12 + [3.0] * 12)])
    assert unsteady.units["write"] == pytest.approx(steady.units["write"])
    assert unsteady.error == pytest.approx(0.832, abs=0.001)
    young = spending_of("shop", [counted([2.0], every=60)])
    assert (young.seconds, young.error) == (60, None)
    together = spending_of("shop", [counted([1.0] * 12 + [3.0] * 12), counted([2.0], every=60)])
    assert together.error is None, "that of the young one is not known"


def test_a_worker_whose_calls_were_all_throttled_says_so():
    usage = Usage(since=5)
    assert usage.text == ""
    usage.throttle()
    assert Usage.of(usage.text).throttled == 1


@pytest.mark.parametrize(
    ("operation", "kind"),
    [
        *((name, "read") for name in ("BatchGetItem", "GetItem", "Query", "Scan")),
        ("TransactGetItems", "read"),
        ("GetRecords", "stream"),
        *((name, "write") for name in ("DeleteItem", "PutItem", "TransactWriteItems")),
        *((name, "write") for name in ("BatchWriteItem", "UpdateItem")),
    ],
)
def test_each_call_is_counted_as_what_it_is_billed_as(operation, kind):
    usage = Usage()
    usage.add(operation, 2.0)
    assert {name: getattr(usage, name) for name in DOLLARS} == dict.fromkeys(DOLLARS, 0.0) | {
        kind: 2.0
    }


def test_a_sample_begins_where_asked_as_far_as_the_worker_remembers():
    member = counted([1.0] * 12 + [3.0] * 12)
    lately = spending_of("shop", [member], since=300)
    assert (lately.seconds, lately.units["write"]) == (300, pytest.approx(3.0 * 86_400))
    hour = spending_of("shop", [member], since=600)
    assert (hour.seconds, hour.units["write"]) == (3600, pytest.approx(3.0 * 86_400))
    whole = spending_of("shop", [member], since=86_400)
    assert (whole.seconds, whole.units["write"]) == (7200, pytest.approx(2.0 * 86_400))


def test_what_a_worker_remembers_takes_little_room_for_ever():
    usage = Usage()
    usage.begin(0)
    for now in range(0, 3 * 86_400, 60):
        usage.add("PutItem", 1e6)
        said = usage.lately(now)
    assert said.count(";") == 2
    assert len(said) < 110
