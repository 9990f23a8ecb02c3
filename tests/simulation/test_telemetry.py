"""Telemetry: what a worker counts is what happened, and a writer's trace goes through everything."""

from contextlib import contextmanager

import anyio
import pytest

from streamkit import (
    App,
    Entity,
    Inserted,
    Policy,
    Put,
    RetentionLost,
    Send,
    Telemetry,
)
from streamkit.observe.meters import Meters
from streamkit.observe.registry import Registry
from streamkit.operate.status_page.checks import alive, ready
from streamkit.progress.control import QueuedKey
from streamkit.progress.metering import meter
from streamkit.settings import Settings
from streamkit.stream.loss import Losses
from streamkit.testing.faults import Interceptor, inflict
from streamkit.testing.harness import table_of
from streamkit.testing.loop import VirtualClock, run_virtually
from streamkit.testing.world import Process, World
from streamkit.worker.automatic_retries import QueueRetries
from streamkit.worker.holders import Holder, Holders
from streamkit.worker.process import Workers
from streamkit.worker.redriver import QueueReport
from streamkit.worker.report import WorkerReport, sample
from tests.acceptance.deployment import cloudwatch_alarms
from tests.simulation.memory import Memory

DAY = 86_400
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
WRITER = f"00-{TRACE}-00f067aa0ba902b7-01"
SECRET = "4111-1111"


class Order(Entity, pk="ORDER#{number}", sk="ORDER"):
    number: int
    text: str = ""
    traceparent: str | None = None


class Receipt(Entity, pk="RECEIPT#{number}", sk="RECEIPT"):
    number: int


class Shop:
    """An app with two handlers in a row and a sink, and what its hooks were told."""

    def __init__(self, **policy):
        self.registry, self.spans, self.sink = Registry(), Spans(), Memory()
        self.broken = False
        telemetry = Telemetry(self.registry, self.spans, "traceparent")
        self.app = app = App("shop", table="Shop", policy=Policy(**policy), telemetry=telemetry)
        app.sink(self.sink)

        @app.on
        async def confirm(change: Inserted[Order]) -> Put[Receipt]:
            if self.broken:
                raise RuntimeError(SECRET)
            await anyio.sleep(0.2)
            return Put(Receipt(number=change.new.number))

        @app.on
        def mail(change: Inserted[Receipt]) -> Send:
            return Send(self.sink, {"number": change.new.number})

    def total(self, name, **labels):
        return self.registry.total(f"streamkit_{name}", **labels)

    def gauges(self, harness):
        sample([harness.worker.workers[0]])
        names = ("lag_seconds", "time_to_loss_seconds", "parked", "stuck", "shards")
        return {name: self.total(name) for name in names}


class Spans:
    """A tracer that remembers."""

    def __init__(self):
        self.made = []

    @contextmanager
    def span(self, name, *, parent="", links=(), attributes):
        number = len(self.made) + 1
        trace = parent[3:35] if parent else f"{number:032x}"
        own = f"00-{trace}-{number:016x}-01"
        self.made.append((name, parent, tuple(links), dict(attributes), own))
        yield own

    def named(self, name):
        return [made for made in self.made if made[0] == name]


def test_each_handler_has_its_changes_and_runs_counted_and_timed(harness_of):
    shop = Shop()
    harness = harness_of(shop.app)
    harness.put(*(Order(number=number) for number in range(5)))
    harness.settle()
    for name in ("confirm", "mail"):
        assert shop.total("changes_total", handler=name) == 5
    labels = {"consumer": "shop", "handler": "confirm"}
    spread = shop.registry.histogram("streamkit_handler_seconds", labels)
    assert spread.count == 5
    assert spread.total == pytest.approx(1.0), "each waits for a fifth of a virtual second"
    assert 2 <= shop.total("commits_total") <= 10
    assert shop.total("fenced_total") == shop.total("lost_total") == 0


def test_gauges_tell_of_shards_and_of_items_that_are_parked_and_stuck(harness_of):
    shop = Shop(retry_limit=1, retry_seconds=60)
    harness = harness_of(shop.app)
    harness.put(Order(number=1))
    harness.settle()
    assert (shop.gauges(harness)["parked"], shop.gauges(harness)["shards"]) == (0, 2)
    shop.broken = True
    harness.put(Order(number=2), Order(number=3))
    harness.settle()
    found = shop.gauges(harness)
    assert (found["parked"], found["stuck"]) == (2, 0)
    harness.advance("5m")
    found = shop.gauges(harness)
    assert (found["parked"], found["stuck"]) == (2, 2)
    shop.broken = False
    harness.redrive()
    harness.advance("20m")
    found = shop.gauges(harness)
    assert (found["parked"], found["stuck"]) == (0, 0)
    assert shop.total("changes_total", handler="confirm") == 3, (
        "a redriven change was counted before"
    )


def test_lag_grows_while_a_shard_waits_and_is_gone_when_it_has_caught_up(harness_of):
    shop = Shop(on_failure="block")
    harness = harness_of(shop.app, settings=Settings())
    harness.put(Order(number=1))
    harness.settle()
    assert shop.gauges(harness)["lag_seconds"] < 4
    shop.broken = True
    harness.put(Order(number=2))
    harness.advance("10m")
    found = shop.gauges(harness)
    assert 590 <= found["lag_seconds"] <= 610
    assert found["lag_seconds"] + found["time_to_loss_seconds"] == pytest.approx(DAY)
    (report,) = [harness.worker.workers[0].report]
    verdict = ready([report], [], 300, draining=False)
    assert verdict.reasons == (f"shop: {report.lag:.0f} s behind, and 300 s are allowed",)
    assert ready([report], [], 0, draining=False).ok, "0 allows any lag"
    shop.broken = False
    harness.settle()
    assert shop.gauges(harness)["lag_seconds"] < 4
    assert ready([harness.worker.workers[0].report], [], 300, draining=False).ok


def fired(alarms, minutes):
    """Which alarms on gauges fire in CloudWatch, of what was measured in each minute."""
    found = set()
    for name, alarm in alarms.items():
        metric, statistic = alarm.get("MetricName"), {"Maximum": max, "Minimum": min}
        if metric not in minutes[0] or alarm.get("Statistic") not in statistic:
            continue
        step, count = alarm["Period"] // 60, alarm["EvaluationPeriods"]
        values = [minute[metric] for minute in minutes]
        periods = [
            statistic[alarm["Statistic"]](values[start : start + step])
            for start in range(0, len(values) - step + 1, step)
        ]
        above = alarm["ComparisonOperator"] == "GreaterThanThreshold"
        wrong = [(v > alarm["Threshold"]) if above else (v < alarm["Threshold"]) for v in periods]
        if any(all(wrong[at : at + count]) for at in range(len(wrong) - count + 1)):
            found.add(name.removeprefix("Streamkit"))
    return found


@pytest.mark.parametrize(
    ("broken", "trouble", "policy", "expected"),
    [
        (False, None, {}, set()),
        (True, None, {}, {"Lag"}),  # its breaker is open: nothing is parked
        (True, None, {"breaker": False, "retry_limit": 1}, {"Parked", "Stuck"}),
        (False, 1e9, {}, {"Parked"}),
    ],
)
def test_what_does_not_heal_within_an_hour_fires_its_alarm(
    harness_of, broken, trouble, policy, expected
):
    """A handler that fails, and a sink that does not answer, by what is measured."""
    shop = Shop(**policy)
    rarely = {"poll_ceiling": 30, "lease": 600, "heartbeat": 60, "look_interval": 60}
    harness = harness_of(shop.app, settings=Settings().model_copy(update=rarely))
    harness.settle()
    shop.broken, shop.sink.trouble = broken, trouble and (lambda deliveries: trouble)
    minutes = []
    for minute in range(75):
        if minute < 2:
            harness.put(*(Order(number=50 * minute + number) for number in range(50)))
        harness.advance("1m")
        minutes.append({f"streamkit_{name}": v for name, v in shop.gauges(harness).items()})
    assert fired(cloudwatch_alarms(names=("monitoring/cloudwatch.yaml",)), minutes) == expected


def test_changes_that_wait_for_their_commit_count_although_pages_are_read_on(harness_of):
    registry, broken = Registry(), True
    app = App("shop", table="Shop", telemetry=Telemetry(registry), entities=[Receipt])

    @app.on(on_failure="block")
    def confirm(change: Inserted[Order]) -> Put[Receipt]:
        if broken:
            raise RuntimeError(SECRET)
        return Put(Receipt(number=change.new.number))

    harness = harness_of(app, settings=Settings())
    harness.settle()
    harness.put(Order(number=1))
    harness.advance("10m")
    assert 590 <= harness.worker.workers[0].report.lag <= 610
    broken = False
    harness.settle()
    assert harness.worker.workers[0].report.lag < 4


class Nobody:
    """A redriver that is not asked to redrive anything."""

    clock = VirtualClock()


async def test_an_item_is_stuck_until_a_person_lets_it_be_tried_again():
    retries = QueueRetries(Nobody(), Holders())
    queues = {"lane": QueuedKey("chunk")}
    retries.watch("shard", Holder(lambda: queues, lambda _: None, lambda _: None))
    counts = []
    for report in (
        QueueReport("lane", "confirm", stuck=True),
        QueueReport("lane", "confirm", due=60.0),
        QueueReport("lane", "confirm", due=60.0, serving=True),
    ):
        retries._note(report, {})
        counts.append((retries.parked, retries.stuck))
    assert counts == [(1, 1), (1, 0), (0, 0)], "a served recipient waits for nothing"


# -- AWS -------------------------------------------------------------------------------------------


class Once(Interceptor):
    """Lets the first call of an operation meet a fault."""

    def __init__(self, operation, kind):
        self.operation, self.kind = operation, kind

    async def intercept(self, call, apply):
        if call.operation != self.operation:
            return apply()
        self.operation = None
        return await inflict(self.kind, call, apply, World.create().rng)


def worked(*, faults=None):
    """Return a world after a metered worker was through, and the shop it worked for."""
    shop = Shop()

    async def work():
        world = World.create(3)
        world.engine.call("dynamodb", "CreateTable", table_of(shop.app))
        async with world.clients(Process("worker", faults=faults)) as aws:
            meter(aws)
            workers = Workers([shop.app], aws, Settings(), clock=world.clock, rng=world.rng)
            for number in range(20):
                item = {name: {"S": f"ORDER#{number}"} for name in ("PK",)}
                item |= {"SK": {"S": "ORDER"}, "number": {"N": str(number)}}
                world.engine.call("dynamodb", "PutItem", {"TableName": "Shop", "Item": item})
            await workers.run(until_idle=True)
        return world

    return run_virtually(work, seed=3), shop


def test_units_are_those_that_the_service_has_counted():
    world, shop = worked()
    for operation in ("TransactWriteItems", "UpdateItem", "BatchGetItem", "Query", "GetItem"):
        calls = [call for call in world.calls if call.operation == operation]
        billed = sum(sum(call.units.values()) for call in calls)
        assert shop.total("units_total", operation=operation) == billed > 0, operation
    reads = sum(call.operation == "GetRecords" for call in world.calls)
    assert shop.total("units_total", operation="GetRecords") == reads > 0
    assert shop.total("throttles_total") == 0


@pytest.mark.parametrize("operation", ["TransactWriteItems", "GetRecords", "UpdateItem"])
def test_a_throttled_call_is_counted_also_where_it_is_tried_again_at_once(operation):
    _, shop = worked(faults=Once(operation, "throttle"))
    assert shop.total("throttles_total", operation=operation) == 1
    assert shop.total("throttles_total") == 1
    assert shop.total("changes_total", handler="confirm") == 20


def test_a_conflict_is_counted_and_no_throttling():
    _, shop = worked(faults=Once("TransactWriteItems", "conflict"))
    assert shop.total("commit_conflicts_total") == 1
    assert shop.total("throttles_total") == 0


@pytest.mark.parametrize("policy", ["halt", "resume"])
async def test_a_loss_is_counted_whatever_the_policy(policy):
    registry = Registry()
    lost = RetentionLost("s", shard="s", after="", since=0.0, until=0.0, certain=False, gone=False)
    losses = Losses(policy, None, None, lost=Meters(registry, "shop").lost)
    if policy == "halt":
        with pytest.raises(RetentionLost):
            await losses.settle(lost)
    else:
        await losses.settle(lost)
    assert registry.total("streamkit_lost_total") == 1


# -- traces ----------------------------------------------------------------------------------------


def test_a_writers_trace_goes_on_through_handlers_effects_and_sinks(harness_of):
    shop = Shop()
    harness = harness_of(shop.app)
    harness.put(Order(number=1, traceparent=WRITER))
    harness.settle()
    ((_, parent, _, attributes, confirmed),) = shop.spans.named("handle confirm")
    assert parent == WRITER
    assert attributes == {
        "streamkit.consumer": "shop",
        "streamkit.handler": "confirm",
        "streamkit.entity": "Order",
    }
    ((_, parent, _, _, mailed),) = shop.spans.named("handle mail")
    assert parent == confirmed, "through the item that the first one wrote"
    (delivery,) = shop.sink.got
    assert delivery.traceparent == mailed
    assert mailed[3:35] == TRACE
    links = [links for _, _, links, _, _ in shop.spans.named("commit")]
    assert links == [(confirmed,), (mailed,)]


def test_a_commit_of_many_changes_links_to_their_traces_and_to_no_other(harness_of):
    shop = Shop()
    harness = harness_of(shop.app, shards=1)
    traced = [Order(number=n, traceparent=f"00-{TRACE}-{n + 1:016x}-01") for n in range(40)]
    harness.put(*traced, *(Order(number=number) for number in range(40, 60)))
    harness.settle()
    runs = [own for _, _, _, _, own in shop.spans.named("handle confirm")]
    assert len(runs) == 40
    linked = [link for _, _, links, _, _ in shop.spans.named("commit") for link in links]
    assert len(linked) == len(set(linked)) >= 60, "32 of a commit at most"
    assert set(linked) <= {own for _, _, _, _, own in shop.spans.made}


def test_what_nobody_traced_makes_no_span_and_leaves_nothing_in_items(harness_of):
    shop = Shop()
    harness = harness_of(shop.app)
    harness.put(Order(number=1), Order(number=2, traceparent="00-not-a-trace-01"))
    harness.settle()
    assert shop.spans.made == []
    assert {delivery.traceparent for delivery in shop.sink.got} == {""}
    marks = [item["_sk_by"]["S"] for item in harness.world.items("Shop") if "_sk_by" in item]
    assert len(marks) == 2
    assert not any("|" in mark for mark in marks)


def test_a_parked_change_goes_on_in_its_writers_trace_when_it_is_tried_again(harness_of):
    shop = Shop(retry_seconds=60)
    shop.broken = True
    harness = harness_of(shop.app)
    harness.put(Order(number=1, traceparent=WRITER))
    harness.settle()
    before = len(shop.spans.named("handle confirm"))
    shop.broken = False
    harness.advance("5m")
    harness.settle()
    runs = shop.spans.named("handle confirm")
    assert len(runs) == before + 1
    assert {parent for _, parent, _, _, _ in runs} == {WRITER}
    assert shop.sink.got[0].traceparent[3:35] == TRACE


def test_a_change_that_a_person_redrives_goes_on_in_its_writers_trace(harness_of):
    shop = Shop(retry_limit=0)
    shop.broken = True
    harness = harness_of(shop.app)
    harness.put(Order(number=1, traceparent=WRITER))
    harness.settle()
    before = len(shop.spans.named("handle confirm"))
    shop.broken = False
    harness.redrive()
    runs = shop.spans.named("handle confirm")
    assert len(runs) == before + 1
    assert runs[-1][1] == WRITER


# -- probes ----------------------------------------------------------------------------------------


def report(state="active", **facts):
    return WorkerReport("shop", state, **facts)


@pytest.mark.parametrize(
    ("reports", "errors", "reason"),
    [
        ([], [], "it starts"),
        ([report("starting")], [], "shop: it starts"),
        ([report("joining")], [], "shop: it joins the fleet"),
        ([report("unfit")], [], "shop: the stream does not answer"),
        ([report("ended")], [ValueError(SECRET)], "ended by ValueError"),
        ([report(unread=2)], [], "shop: 2 shards have no reader"),
        ([report(lags={"s": 4000.0})], [], "shop: 4000 s behind, and 3600 s are allowed"),
    ],
)
def test_readiness_fails_and_says_why(reports, errors, reason):
    verdict = ready(reports, errors, 3600, draining=False)
    assert not verdict.ok
    assert reason in verdict.reasons
    assert SECRET not in "".join(verdict.reasons)


def test_a_loss_and_draining_fail_readiness():
    lost = RetentionLost("s", shard="s", after="", since=0.0, until=0.0, certain=False, gone=False)
    assert (
        ready([report("ended")], [lost], 0, draining=False).reasons[0]
        == "records may have been lost"
    )
    assert ready([report()], [], 0, draining=True).reasons == ("it drains",)


@pytest.mark.parametrize(
    "fine",
    [
        report(lags={"a": 1.0, "b": float("nan")}),
        report(),
        report("waiting"),
        report(lags={"a": 9999.0}, paused=1),
    ],
    ids=["reads", "holds nothing", "stands by", "paused"],
)
def test_who_reads_or_stands_by_or_was_paused_is_ready(fine):
    assert ready([fine], [], 3600, draining=False).ok


def test_a_process_is_alive_until_all_of_its_workers_have_ended():
    assert alive([]).ok
    assert alive([report("ended"), report("unfit")]).ok
    assert not alive([report("ended"), report("ended")]).ok


def test_one_shard_of_which_nothing_is_known_does_not_hide_the_lag_of_another():
    assert report(lags={"a": float("nan"), "b": 5.0}).lag == 5.0
    unknown = report(lags={"a": float("nan")})
    assert unknown.lag != unknown.lag
    assert unknown.time_to_loss != unknown.time_to_loss
    assert (report().lag, report().time_to_loss) == (0.0, DAY)


def test_what_nobody_reads_counts_for_the_lag_and_the_time_to_loss():
    found = report(lags={"a": 5.0}, unread=1, unread_lag=3600.0)
    assert (found.lag, found.time_to_loss) == (3600.0, DAY - 3600)
    assert report(unread=1, unread_lag=float("nan"), lags={"a": 5.0}).lag == 5.0
    assert report(unread=1, unread_lag=float("nan")).lag != 0
