"""Sends: delivered before their commit, in order per item, and slow only for their own handler."""

import sys

import anyio
import pytest
from structlog.testing import capture_logs

from streamkit import (
    App,
    Entity,
    Inserted,
    Modified,
    PoisonChange,
    Policy,
    Put,
    Search,
    Send,
    SqlTable,
    TableShape,
    Webhook,
)
from streamkit.core.table_shape import entities_of
from streamkit.errors import ConfigurationError, DeclarationError
from streamkit.operate.inspection import inspect_app
from streamkit.operate.redrive import redrive
from streamkit.testing import every_crash
from streamkit.testing.loop import run_virtually
from streamkit.testing.world import World
from streamkit.worker.automatic_retries import AT_ONCE
from tests.rigs import Rig
from tests.simulation.memory import Memory


class Order(Entity, pk="ORDER#{order}", sk="ORDER#{order}"):
    order: str
    step: int = 0


class Copy(Entity, pk="COPY#{order}", sk="COPY#{order}"):
    order: str
    step: int = 0


def make_app(sink, **policy):
    app = App("orders", table="Orders", entities=[Copy], policy=Policy(**policy))
    app.sink(sink)

    @app.on
    def tell(change: Inserted[Order] | Modified[Order]) -> Send:
        new = change.new
        return Send(sink, {"order": new.order, "step": new.step})

    @app.on
    def copy(change: Inserted[Order] | Modified[Order]) -> Put[Copy]:
        return Put(Copy(order=change.new.order, step=change.new.step))

    return app


def write(harness, orders=5, steps=3):
    for step in range(steps):
        harness.put(*(Order(order=str(order), step=step) for order in range(orders)))


def copies(harness):
    return {copy.order: copy.step for copy in harness.scan(Copy)}


def test_each_change_is_sent_once_and_in_order_with_a_key_of_its_own(harness_of):
    sink = Memory()
    harness = harness_of(make_app(sink))
    write(harness)
    harness.settle()
    for order in range(5):
        assert sink.steps(str(order)) == [0, 1, 2]
    assert len({delivery.key for delivery in sink.got}) == 15
    assert len({delivery.group for delivery in sink.got}) == 5
    assert max(sink.batches) > 1, "several go in one call"
    assert max(sink.batches) <= 10


def test_no_crash_loses_a_delivery_and_a_repeated_one_keeps_its_key():
    def scenario(harness):
        write(harness, orders=2, steps=2)
        harness.settle()
        assert copies(harness) == {"0": 1, "1": 1}

    sinks = []

    def make():
        sinks.append(Memory())
        return Rig(make_app(sinks[-1]))

    repeated = 0
    for _ in every_crash(scenario, make):
        pass
    for sink in sinks:
        keys = {(d.body["order"], d.body["step"]): d.key for d in sink.got}
        assert len(keys) == 4
        assert len({delivery.key for delivery in sink.got}) == 4
        repeated += len(sink.got) > 4
    assert repeated


def test_a_failing_delivery_parks_its_item_alone_and_heals(harness_of):
    sink = Memory()
    sink.trouble = lambda ds: [OSError("down") if d.body["order"] == "3" else None for d in ds]
    harness = harness_of(make_app(sink))
    write(harness)
    harness.settle()
    assert {parked.handler for parked in harness.parked()} == {"tell"}
    assert copies(harness) == {str(order): 2 for order in range(5)}
    sink.trouble = None
    harness.advance("5m")
    assert sink.steps("3") == [0, 1, 2]
    assert not harness.parked()


def test_a_slow_sink_holds_up_its_own_handler_only(harness_of):
    sink = Memory(calls=1, items=1)
    sink.trouble = lambda _: 8.0
    harness = harness_of(make_app(sink, timeout_seconds=60))
    harness.settle()
    write(harness, orders=10, steps=2)
    harness.advance("40s")
    assert copies(harness) == {str(order): 1 for order in range(10)}
    assert len(sink.batches) < 10
    sink.trouble = None
    harness.advance("10m")
    for order in range(10):
        assert sink.steps(str(order))[-2:] == [0, 1]
    assert not harness.parked()


def test_an_outage_of_a_receiver_parks_its_changes_and_opens_no_breaker(harness_of):
    """A breaker would make all handlers wait, and each change that runs would close it again."""
    sink = Memory()
    sink.trouble = lambda deliveries: [OSError("down")] * len(deliveries)
    harness = harness_of(make_app(sink))
    harness.settle()
    with capture_logs() as lines:
        for minute in range(10):
            harness.put(*(Order(order=f"{minute}-{number}") for number in range(60)))
            harness.advance("30s")
            assert len(copies(harness)) == 60 * (minute + 1)
    assert not {"breaker.opened", "breaker.closed"} & {line["event"] for line in lines}
    assert {parked.handler for parked in harness.parked()} == {"tell"}
    sink.trouble = None
    harness.advance("30m")
    assert not harness.parked()
    assert len(sink.got) == 600


def test_receivers_that_do_not_answer_are_waited_for_together(harness_of):
    app = make_app(Memory())
    silent = [app.sink(Silent(f"silent {number}")) for number in range(8)]

    def telling(sink):
        @app.on(name=f"to {sink.name}")
        def also(change: Inserted[Order] | Modified[Order]) -> Send:
            return Send(sink, {"order": change.new.order, "step": change.new.step})

    for sink in silent:
        telling(sink)
    harness = harness_of(app)
    harness.settle()
    write(harness, orders=3, steps=3)
    harness.advance("8s")
    assert copies(harness) == {str(order): 2 for order in range(3)}
    for sink in silent:
        sink.down = False
    harness.advance("10m")
    assert [sink.steps("1") for sink in silent] == [[0, 1, 2]] * 8
    assert not harness.parked()


@pytest.mark.parametrize("seconds", [5.0, 30.0])
def test_a_receiver_that_is_slower_than_a_commit_waits_gets_each_delivery_once(harness_of, seconds):
    sink = Memory(items=1)
    sink.trouble = lambda _: seconds
    harness = harness_of(make_app(sink, timeout_seconds=60))
    harness.settle()
    write(harness, orders=10, steps=2)
    harness.advance("10m")
    assert [sink.steps(str(order)) for order in range(10)] == [[0, 1]] * 10
    assert not harness.parked()


def test_a_slow_sink_keeps_no_queues_of_other_handlers_waiting(harness_of):
    sink = Memory(calls=1, items=1)
    sink.trouble = lambda _: 8.0
    app = make_app(sink, timeout_seconds=60)

    async def both(change: Inserted[Order], after: str | None):
        for number in range(0 if after is None else int(after) + 1, 2):
            yield str(number), f"{change.new.order}-{number}"

    @app.fan_out(both, inline=0)
    def each(change: Inserted[Order], to: str) -> Put[Copy]:
        return Put(Copy(order=to))

    harness = harness_of(app)
    harness.settle()
    write(harness, orders=3 * AT_ONCE, steps=1)
    harness.advance("40s")
    assert len(sink.batches) < 10
    assert len(copies(harness)) == 3 * AT_ONCE * 3


def set_aside(harness_of, sink):
    """Return a harness in which a slow sink has moved changes to queues; failures are skipped."""
    sink.trouble = lambda _: 8.0
    harness = harness_of(make_app(sink, timeout_seconds=60, on_failure="skip"))
    harness.settle()
    write(harness, orders=4, steps=1)
    harness.advance("12s")
    assert len(harness.parked()) >= 2, "they wait in their queues"
    return harness


@pytest.mark.parametrize("error", [PoisonChange("never"), OSError("down")])
def test_what_a_slow_sink_set_aside_is_skipped_where_the_policy_says_so(harness_of, error):
    sink = Memory(calls=1, items=1)
    harness = set_aside(harness_of, sink)
    sink.trouble = lambda _: error
    harness.advance("10m")
    assert not harness.parked()
    sink.trouble = None
    harness.put(*(Order(order=str(order), step=1) for order in range(4)))
    harness.settle()
    assert [sink.steps(str(order))[-1] for order in range(4)] == [1, 1, 1, 1]


def test_a_person_who_redrives_what_was_set_aside_is_told_of_a_failure_and_skips_nothing(
    harness_of,
):
    sink = Memory(calls=1, items=1)
    harness = set_aside(harness_of, sink)
    harness.stop()  # else a worker tries them meanwhile
    waiting = len(harness.parked())
    sink.trouble = lambda _: PoisonChange("never")
    reports = harness.operate(lambda aws: redrive(harness.app, aws))
    assert len(reports) >= 2
    assert all(report.failed for report in reports)
    assert len(harness.parked()) == waiting


class Silent(Memory):
    """A sink whose calls do not return while it is `down`; it remembers how many are under way."""

    def __init__(self, name="silent"):
        super().__init__(name, items=1)
        self.down, self.under_way, self.most = True, 0, 0

    async def deliver(self, deliveries):
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        try:
            if self.down:
                await anyio.sleep_forever()
            return await super().deliver(deliveries)
        finally:
            self.under_way -= 1


@pytest.mark.parametrize("policy", [{}, {"on_failure": "block"}, {"on_failure": "skip"}])
def test_a_sink_that_never_returns_keeps_no_call_for_ever_and_heals(harness_of, policy):
    silent, memory = Silent(), Memory()
    app = make_app(silent, **policy)
    app.sink(memory)

    @app.on(name="other")
    def also(change: Inserted[Order] | Modified[Order]) -> Send:
        return Send(memory, {"order": change.new.order, "step": change.new.step})

    harness = harness_of(app)
    harness.settle()
    write(harness, orders=9, steps=1)
    harness.advance("40s")
    if policy.get("on_failure") != "block":
        assert len(memory.got) == 9, "sends through other sinks go on"
        assert copies(harness) == {str(order): 0 for order in range(9)}
    assert silent.most == silent.limits.calls
    silent.down = False
    harness.advance("20m")
    assert silent.under_way == 0
    if policy.get("on_failure") != "skip":
        assert {delivery.body["order"] for delivery in silent.got} == set("012345678")
    assert not harness.parked()
    harness.put(*(Order(order=str(order), step=1) for order in range(9)))
    harness.settle()
    assert [silent.steps(str(order))[-1] for order in range(9)] == [1] * 9
    assert copies(harness) == {str(order): 1 for order in range(9)}


def test_a_call_that_is_cut_off_fails_for_each_of_its_deliveries(harness_of):
    silent = Silent()
    harness = harness_of(make_app(silent, attempts=1, timeout_seconds=300, breaker=False))
    harness.settle()
    write(harness, orders=3, steps=1)
    harness.advance("2s")
    assert silent.under_way == 3
    harness.advance("3m")  # the first call is cut off, and that of its queue
    assert {parked.error for parked in harness.parked()} == {"TimeoutError"}
    assert len(harness.parked()) == 3


def test_what_can_never_be_delivered_is_parked_at_once(harness_of):
    sink = Memory()
    sink.trouble = lambda ds: [PoisonChange("too large")] * len(ds)
    harness = harness_of(make_app(sink))
    harness.put(Order(order="1"))
    harness.settle()
    (parked,) = harness.parked()
    assert (parked.error, parked.attempts) == ("PoisonChange", 1)


def test_a_body_that_has_no_text_is_parked(harness_of):
    app, sink = App("orders", table="Orders"), Memory()
    app.sink(sink)

    @app.on
    def tell(change: Inserted[Order]) -> Send:
        return Send(sink, {"what": object()})

    harness = harness_of(app)
    harness.put(Order(order="1"))
    harness.settle()
    assert [parked.error for parked in harness.parked()] == ["PoisonChange"]


def two_sinks(one, other, registered):
    """An app whose handler sends to one of two sinks, and has registered some."""
    app = App("orders", table="Orders", entities=[Copy], policy=Policy(retry_limit=0))
    for sink in registered:
        app.sink(sink)

    @app.on
    def tell(change: Inserted[Order]) -> Send:
        named = one if change.new.order == "1" else other
        return Send(named, {"order": change.new.order, "step": change.new.step})

    return app


def test_a_handler_that_sends_is_refused_in_an_app_without_a_sink():
    with (
        pytest.raises(
            ConfigurationError, match=r"tell .*returns Send, and App\('orders'\).*no sink"
        ),
        Rig(two_sinks(Memory("one"), Memory("two"), [])) as harness,
    ):
        harness.settle()


def test_a_change_for_a_sink_that_is_not_registered_is_delivered_once_it_is(harness_of):
    """Which sink a handler names shows when it runs; the error says what to do, and that works."""
    one, two = Memory("one"), Memory("two")
    harness = harness_of(two_sinks(one, two, [one]))
    harness.put(Order(order="1"), Order(order="2"))
    harness.settle()
    (parked,) = harness.parked()
    assert (
        "no sink 'two' (but 'one'): register it there with app.sink(...), deploy" in parked.detail
    )
    harness.crash()
    harness.app = two_sinks(one, two, [one, two])
    harness.settle()
    harness.redrive()
    assert (one.steps("1"), two.steps("2")) == ([0], [0])
    assert not harness.parked()


def test_two_sinks_of_one_name_are_refused():
    app = App("orders", table="Orders")
    app.sink(Memory())
    with pytest.raises(DeclarationError, match="memory"):
        app.sink(Memory())


@pytest.mark.parametrize(
    ("sink", "missing", "said"),
    [
        (Webhook("hook", "https://example.com"), "httpx", "pip install 'streamkit[webhook]'"),
        (
            Search("found", "https://example.com", index="x"),
            "httpx",
            "pip install 'streamkit[search]'",
        ),
        (
            SqlTable("rows", "sqlite+aiosqlite:///x.db", table="rows"),
            "sqlalchemy.ext.asyncio",
            "pip install 'streamkit[sql]'",
        ),
        (
            SqlTable("rows", "sqlite+aiosqlite:///x.db", table="rows"),
            "aiosqlite",
            "its driver aiosqlite is not installed",
        ),
        (SqlTable("rows", "mysql://x/y", table="rows"), "nothing", "sink 'rows': "),
    ],
    ids=["webhook", "search", "sql", "driver", "url"],
)
@pytest.mark.parametrize("listens", [False, True], ids=["app", "listener"])
def test_check_names_the_extra_of_a_sink_that_no_worker_could_open(
    sink, missing, said, listens, monkeypatch
):
    app = App("orders", table="Orders", entities=[Order])

    @app.on
    def nothing(change: Inserted[Order]) -> None: ...

    (app.listener("other") if listens else app).sink(sink)
    if missing != "nothing":
        assert inspected(app) == ()
    monkeypatch.setitem(sys.modules, missing, None)
    found = [one for one in inspected(app) if sink.name in one.text and said in one.text]
    assert [one.severity for one in found] == ["error"]


def inspected(app, *, stream=True):
    async def main():
        world = World.create(1)
        async with world.clients() as aws:
            await TableShape().create(aws.dynamodb, "Orders", entities_of(app), stream=stream)
            found = await inspect_app(app, aws)
            return found.findings if stream else found.permissions

    return run_virtually(main, seed=1)


def test_a_call_that_check_cannot_try_says_why():
    found = {one.action: one.code for one in inspected(App("orders", table="Orders"), stream=False)}
    calls = ("DescribeStream", "GetShardIterator", "GetRecords")
    assert {found[f"dynamodb:{call}"] for call in calls} == {"without a stream"}


def test_check_opens_no_sink_of_the_users_own(harness_of):
    class Mine(Memory):
        def opened(self):
            raise AssertionError("it may connect")

    harness = harness_of(make_app(Memory()))
    app = make_app(Mine())
    assert harness.operate(lambda aws: inspect_app(app, aws)).ok


def test_check_says_how_often_a_send_is_tried_before_its_change_is_parked(harness_of):
    sink = Memory()
    app = make_app(sink, retry_limit=0)
    harness = harness_of(app)
    found = harness.operate(lambda aws: inspect_app(app, aws))
    said = {one.name: (one.attempts, one.send_attempts) for one in found.handlers}
    assert said == {"tell": (1, 3), "copy": (1, 0)}
    assert {one.timeout_seconds for one in found.handlers} == {None}  # only async ones can be cut

    sink.trouble = lambda deliveries: RuntimeError("down")
    write(harness, orders=1, steps=1)
    harness.settle()
    assert [parked.handler for parked in harness.parked()] == ["tell"]
    assert sink.batches == [1] * said["tell"][1]


@pytest.mark.parametrize("name", ["tell", "other"])
def test_check_warns_of_two_consumers_whose_deliveries_have_the_same_keys(harness_of, name):
    """A FIFO queue that both send to would drop the second delivery in silence."""
    mine, theirs = Memory("mine"), Memory("theirs")
    app = make_app(mine)
    audit = app.listener("audit")
    audit.sink(theirs)

    @audit.on(name=name)
    def also(change: Inserted[Order] | Modified[Order]) -> Send:
        return Send(theirs, {"audited": change.new.order})

    @audit.on(name="copy" if name == "tell" else "tell")  # only one of the two sends
    def silent(change: Inserted[Order]) -> None: ...

    harness = harness_of(app)
    found = harness.operate(lambda aws: inspect_app(app, aws)).findings
    said = [one.text for one in found if one.severity == "warning" and "the same keys" in one.text]
    harness.put(Order(order="1"))
    harness.settle()
    same = mine.got[0].key == theirs.got[0].key
    assert (same, len(said)) == ((True, 1) if name == "tell" else (False, 0))
    assert not same or "tell of orders and of orders.audit" in said[0]
