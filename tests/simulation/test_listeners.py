"""Listeners of one app: one reader for each shard, and nothing else in common."""

import re
from collections import Counter, defaultdict, deque

import anyio
import pytest

from streamkit import App, Entity, Inserted, Put, Telemetry
from streamkit.app import consumers_of
from streamkit.errors import ConfigurationError, DeclarationError, RetentionLost
from streamkit.local.iterators import ShardIterator
from streamkit.observe.exposition import render
from streamkit.observe.registry import Registry
from streamkit.operate.consumers import pause_consumer, resume_consumer
from streamkit.operate.status import read_status
from streamkit.settings import Settings
from streamkit.worker.process import Workers
from streamkit.worker.report import sample
from tests.rigs import Rig

HOUR = 3600


class Order(Entity, pk="ORDER#{number}", sk="ORDER"):
    number: int


class Seen(Entity, pk="SEEN#{by}", sk="ORDER#{number}"):
    by: str
    number: int


class Gate:
    """Lets handlers through, or not."""

    def __init__(self):
        self.open = anyio.Event()
        self.open.set()

    def shut(self):
        self.open = anyio.Event()


def make_app(listeners=("search", "mail"), gates=None, names=None):
    """An app whose listeners write down what they have seen; a listener's gate may block it."""
    app = App("shop", table="Shop", entities=[Seen])
    apps = {"shop": app} | {name: app.listener(name) for name in listeners}
    for name, consumer in apps.items():

        @consumer.on(timeout=10 * HOUR)
        async def seen(change: Inserted[Order], by=name) -> Put[Seen]:
            if gates and by in gates:
                await gates[by].open.wait()
            return Put(Seen(by=by, number=change.new.number))

    return app


@pytest.mark.parametrize("listeners", [(), ("mail",)])
def test_pages_are_shared_only_where_several_consumers_read_them(listeners):
    app = make_app(listeners)
    shared = [worker._place.reads is not None for worker in Workers([app], None).workers]
    assert shared == [bool(listeners)] * (1 + len(listeners))


class AtOnce:
    """Counts who reads a shard within any second, by the iterators: each opening is a reader."""

    def __init__(self, world):
        self.most, self.reads = 0, defaultdict(deque)
        world.watchers.append(self.see)

    def see(self, sighting):
        if sighting.actor and sighting.call.operation == "GetRecords":
            iterator = ShardIterator.parse(sighting.call.payload["ShardIterator"])
            reads, now = self.reads[iterator.shard_id], sighting.call.at
            reads.append((now, iterator.reader))
            while reads[0][0] <= now - 1:
                reads.popleft()
            self.most = max(self.most, len({reader for _, reader in reads}))


SETTINGS = Settings(heartbeat=60, lease=150, list_interval=300, look_interval=30, poll_ceiling=1)


def reads(harness, seconds):
    """Count the calls of GetRecords while time passes."""
    before = len(harness.world.calls)
    harness.advance(seconds)
    calls = harness.world.calls[before:]
    return Counter(call.operation for call in calls)["GetRecords"]


def seen_by(harness, name):
    return sorted(seen.number for seen in harness.query(Seen.query(by=name)))


def orders(*numbers):
    return [Order(number=number) for number in numbers]


def quiet_reads(app):
    with Rig(app, settings=SETTINGS) as harness:
        harness.put(*orders(1, 2, 3))
        harness.settle()
        harness.advance(60)
        return reads(harness, 600)


def test_a_quiet_shard_costs_three_consumers_as_many_reads_as_one():
    one = quiet_reads(make_app(listeners=()))
    three = quiet_reads(make_app())
    assert one >= 2 * 600 / SETTINGS.poll_ceiling * 0.9
    assert three <= one * 1.02


def test_a_blocked_listener_delays_no_other_and_catches_up_beside_them():
    gate = Gate()
    with Rig(make_app(gates={"search": gate}), settings=SETTINGS) as harness:
        readers = AtOnce(harness.world)
        harness.put(*orders(0))
        harness.settle()
        gate.shut()
        alone, worst = 0, 0.0
        for number in range(1, 61):
            harness.put(*orders(number))
            alone += reads(harness, 60)
            worst = max(worst, lag_of(harness, "shop"), lag_of(harness, "shop.mail"))
        assert seen_by(harness, "shop") == seen_by(harness, "mail") == list(range(61))
        assert seen_by(harness, "search") == [0]
        assert lag_of(harness, "shop.search") > HOUR - 120
        assert worst <= 3
        assert alone <= 2 * HOUR / SETTINGS.poll_ceiling * 1.1
        gate.open.set()
        harness.settle()
        assert seen_by(harness, "search") == list(range(61))
        assert readers.most == 2


def lag_of(harness, name):
    app = next(a for a in (harness.app, *harness.app.listeners.values()) if a.name == name)
    status = harness._run(read_status(app, harness._aws, clock=harness.world.clock))
    return status.lag_seconds or 0.0


def status_of(harness, app):
    return harness._run(read_status(app, harness._aws, clock=harness.world.clock))


def paused_for(harness, app, duration):
    """Pause "search" for some time; return its status at the end, and what it has seen by then."""
    harness._run(pause_consumer(app, harness._aws, clock=harness.world.clock))
    harness.advance(60)
    for number in range(100, 110):
        harness.put(*orders(number))
        harness.advance(duration / 10)
    status, seen = status_of(harness, app), seen_by(harness, "search")
    resumed(harness, app)
    return status, seen


def resumed(harness, app):
    """Resume a consumer, and let its workers see it."""
    harness._run(resume_consumer(app, harness._aws))
    harness.advance(60)


def test_a_listener_that_was_paused_misses_nothing_and_shows_how_long_it_may_wait():
    app = make_app(listeners=("search",))
    search = app.listeners["search"]
    with Rig(app, settings=SETTINGS) as harness:
        harness.put(*orders(1, 2, 3))
        harness.settle()
        status, seen = paused_for(harness, search, 2 * HOUR)
        assert seen == [1, 2, 3]
        assert seen_by(harness, "shop") == [1, 2, 3, *range(100, 110)]
        assert 2 * HOUR - 60 <= status.lag_seconds <= 2 * HOUR + 60
        assert status.time_to_loss_seconds == 24 * HOUR - status.lag_seconds
        assert 0 < status.paused <= harness.world.clock.time() - 2 * HOUR
        owners = {shard.owner for shard in status.shards}
        assert owners == {shard.owner for shard in status_of(harness, app).shards} != {None}
        assert status_of(harness, search).paused == 0
        harness.settle()
        assert seen_by(harness, "search") == [1, 2, 3, *range(100, 110)]


def test_a_listener_that_lost_changes_halts_alone():
    app = make_app(listeners=("search",))
    search = app.listeners["search"]
    slow = SETTINGS.model_copy(
        update={"poll_ceiling": 60, "lease": HOUR, "heartbeat": 600, "look_interval": 600}
    )
    with Rig(app, settings=slow) as harness:
        harness.put(*orders(1))
        harness.settle()
        harness._run(pause_consumer(search, harness._aws, clock=harness.world.clock))
        harness.advance("29h")
        harness._run(resume_consumer(search, harness._aws))
        harness.advance(HOUR)
        harness.put(*orders(2))
        harness.advance(HOUR)
        assert seen_by(harness, "shop") == [1, 2]
        assert seen_by(harness, "search") == [1]
        harness.settle()
        with pytest.raises(RetentionLost):
            harness.stop()


def test_a_listener_that_halted_has_no_gauges_any_more_so_that_an_alarm_fires():
    """`StreamkitWorkersDown` asks which consumer had `streamkit_shards` within a day."""
    app, registry = make_app(listeners=("search",)), Registry()
    search = app.listeners["search"]
    app.telemetry = search.telemetry = Telemetry(registry)
    slow = SETTINGS.model_copy(
        update={"poll_ceiling": 60, "lease": HOUR, "heartbeat": 600, "look_interval": 600}
    )

    def told(harness):
        sample(harness.worker.workers[0].workers)
        return set(re.findall(r'(streamkit_(?:shards|lag_seconds)).*"(.+)"', render(registry)))

    with Rig(app, settings=slow) as harness:
        harness.put(*orders(1))
        harness.settle()
        both = {(f"streamkit_{name}", "shop") for name in ("shards", "lag_seconds")}
        assert told(harness) == both | {(name, "shop.search") for name, _ in both}
        harness._run(pause_consumer(search, harness._aws, clock=harness.world.clock))
        harness.advance("29h")
        harness._run(resume_consumer(search, harness._aws))
        harness.advance(2 * HOUR)
        assert told(harness) == both
        with pytest.raises(RetentionLost):
            harness.stop()


def test_a_paused_consumer_makes_no_call_for_its_shards_and_nothing_waits_for_it():
    app = make_app(listeners=())
    with Rig(app, settings=SETTINGS) as harness:
        harness.put(*orders(1))
        harness.settle()
        harness._run(pause_consumer(app, harness._aws, clock=harness.world.clock))
        harness.advance(60)
        harness.put(*orders(2))
        assert reads(harness, 600) == 0
        harness.settle()
        assert seen_by(harness, "shop") == [1]
        harness.stop()
        harness.advance(60)
        harness.worker.ensure()
        harness.advance(600)
        assert seen_by(harness, "shop") == [1], "a worker that starts later is paused, too"
        resumed(harness, app)
        harness.settle()
        assert seen_by(harness, "shop") == [1, 2]


def test_parked_changes_wait_while_their_consumer_is_paused():
    app, tries, down = App("shop", table="Shop", entities=[Seen]), [], [True]

    @app.on(attempts=1)
    def seen(change: Inserted[Order]) -> Put[Seen]:
        tries.append(change.new.number)
        if down[0]:
            raise RuntimeError("not yet")
        return Put(Seen(by="shop", number=change.new.number))

    with Rig(app, settings=SETTINGS) as harness:
        harness.put(*orders(1))
        harness.settle()
        harness._run(pause_consumer(app, harness._aws, clock=harness.world.clock))
        harness.advance(60)
        before, down[0] = len(tries), False
        harness.advance(HOUR)
        assert len(tries) == before
        resumed(harness, app)
        harness.advance(HOUR)
        assert seen_by(harness, "shop") == [1]


def test_a_lifespan_is_run_once_for_an_app_and_its_listeners():
    opened = []

    class Mailer:
        """What handlers ask for."""

    app = App("shop", table="Shop", entities=[Seen])

    @app.lifespan
    async def mailer():
        opened.append(Mailer())
        yield opened[-1]
        opened.append("closed")

    for consumer in (app, app.listener("search")):

        @consumer.on
        async def seen(change: Inserted[Order], mail: Mailer, by=consumer.name) -> Put[Seen]:
            assert mail is opened[0]
            return Put(Seen(by=by, number=change.new.number))

    with Rig(app, settings=SETTINGS) as harness:
        harness.put(*orders(1))
        harness.settle()
        assert len(opened) == 1
        harness.stop()
        assert seen_by(harness, "shop") == seen_by(harness, "shop.search") == [1]
    assert opened[1:] == ["closed"]


@pytest.mark.parametrize("name", ["", "a.b", "search"])
def test_a_listener_has_a_name_of_its_own(name):
    app = App("shop", table="Shop")
    app.listener("search")
    with pytest.raises(DeclarationError):
        app.listener(name)


def test_a_listener_has_no_listeners():
    with pytest.raises(DeclarationError):
        App("shop", table="Shop").listener("search").listener("more")


def test_two_apps_of_one_table_with_one_name_are_refused():
    apps = [App("shop", table="Shop"), App("shop", table="Shop")]
    with pytest.raises(ConfigurationError):
        consumers_of(apps)
    assert consumers_of([apps[0], apps[0]]) == [apps[0]]
