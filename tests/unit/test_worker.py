"""A worker's life: under which name it begins again, when it ends, and whether the stream answers."""

from dataclasses import replace
from types import SimpleNamespace

import anyio
import pytest
from structlog.testing import capture_logs

from streamkit.errors import ConfigurationError, LeaseLost
from streamkit.fleet.hosting import TAKEN, WORKERS
from streamkit.model.schema import TableSchema
from streamkit.settings import Settings
from streamkit.testing.loop import run_virtually
from streamkit.worker import worker as module
from streamkit.worker.crew import Crew
from streamkit.worker.joined_app import joined_app
from streamkit.worker.stream_change import StreamChange
from streamkit.worker.watchdog import watch_stream
from streamkit.worker.worker import Worker

# -- one life --------------------------------------------------------------------------------------


def lived(monkeypatch, *, swept="", stops=False, superseded=False):
    """Let a worker live once; return whether it is done, and what became of its crew."""
    did, stop = [], anyio.Event()

    def doing(what):
        async def do(*_):
            did.append(what)
            if what == swept:
                raise LeaseLost("its heartbeat was deleted")

        return do

    crew = SimpleNamespace(
        join=doing("join"),
        start=lambda: did.append("start"),
        leave=doing("leave"),
        shards=SimpleNamespace(abandon=lambda: did.append("abandon")),
        coordinator=SimpleNamespace(rollout=SimpleNamespace(superseded=superseded)),
    )

    async def joined(tables):
        return "app"

    async def main():
        if stops:
            stop.set()
        worker = SimpleNamespace(
            app=SimpleNamespace(name="shop", table="t"),
            name="me",
            _as_joined=joined,
            _make_dispatcher=lambda *_: None,
            _machine=None,
            _settings=None,
            _place=None,
            _objects=None,
            _until_done=doing("work"),
            _stop=stop,
        )
        done = await Worker._live(worker, None, (), None, until_idle=False)
        assert worker._crew is None
        return done

    monkeypatch.setattr(module, "assemble", lambda *_: crew)
    return run_virtually(main), did


@pytest.mark.parametrize("stops", [True, False])
@pytest.mark.parametrize("swept", ["join", "work", "leave"])
def test_a_worker_that_was_swept_comes_back_under_another_name_unless_it_was_to_stop(
    monkeypatch, swept, stops
):
    done, did = lived(monkeypatch, swept=swept, stops=stops)
    assert done is stops
    assert did[-2:] == [swept, "abandon"]


@pytest.mark.parametrize("stops", [True, False])
@pytest.mark.parametrize("superseded", [True, False])
def test_a_worker_that_is_done_begins_again_only_for_a_newer_roll_out(
    monkeypatch, stops, superseded
):
    done, did = lived(monkeypatch, stops=stops, superseded=superseded)
    assert done is (stops or not superseded)
    assert did == ["join", "start", "work", "leave"]


# -- the crew --------------------------------------------------------------------------------------


class Fleet:
    """A coordinator, a leadership and shards with nothing to do, unless they are told otherwise."""

    def __init__(self, **facts):
        self.settled, self.looked, self.did = True, True, []
        self.me = SimpleNamespace(childless=(), leads=True)
        self.rollout = SimpleNamespace(doubted=False, superseded=False)
        self.lister, self.listed = SimpleNamespace(enabled=True), True
        self.enabled, self.is_quiet = True, True
        self.retries = SimpleNamespace(busy=False)
        for name, value in facts.items():
            place, _, attribute = name.rpartition("__")
            setattr(getattr(self, place) if place else self, attribute, value)
        self.heartbeat = self

    def say(self, *, state):
        self.did.append(state)

    def idle(self, pages):
        return self.is_quiet and pages == 3

    async def lead_for_ever(self):
        try:
            await anyio.sleep_forever()
        finally:
            self.did.append("leads no more")

    async def drain(self):
        self.did.append("drained")

    async def resign(self):
        self.did.append("resigned")

    async def leave(self):
        self.did.append("left")


def crew_of(fleet):
    return Crew(fleet, fleet, fleet, None, Settings(), anyio.Event())


@pytest.mark.parametrize(
    ("facts", "idle"),
    [
        ({}, True),
        ({"settled": False}, False),  # no leader is known, or a shard is about to be taken
        ({"me__childless": ("s",)}, False),  # a shard has ended, and its child is not listed
        ({"me__childless": ("s",), "enabled": False}, True),  # and never will be
        ({"me__childless": ("s",), "lister": SimpleNamespace(enabled=False)}, True),
        ({"me__childless": ("s",), "lister": None}, False),
        ({"rollout__doubted": True}, False),
        ({"rollout__superseded": True}, False),
        ({"listed": False}, False),
        ({"listed": False, "me__leads": False}, True),  # another worker lists
        ({"is_quiet": False}, False),
        ({"retries__busy": True}, False),
    ],
)
async def test_a_crew_is_idle_when_nothing_is_left_to_do_or_to_find_out(facts, idle):
    assert crew_of(Fleet(**facts)).is_idle(3) is idle


def test_a_crew_leaves_its_lead_before_its_shards_and_its_heartbeat_last():
    """While it has a shard it beats; and nothing is listed under a lead that was given back."""
    fleet = Fleet()

    async def main():
        crew = crew_of(fleet)
        async with anyio.create_task_group() as group:
            group.start_soon(crew._lead)
            await anyio.sleep(1)
            await crew.leave()

    run_virtually(main)
    assert fleet.did == ["leaving", "leads no more", "drained", "resigned", "left"]


# -- which stream the table has ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("now", "logged"), [("arn/1", []), (None, ["stream.disabled"]), ("arn/2", None)]
)
def test_a_worker_ends_when_the_table_has_another_stream_and_only_logs_that_it_has_none(
    monkeypatch, now, logged
):
    before = TableSchema("t", "pk", None, "S", None, {}, stream_arn="arn/1")

    async def describe(aws, name, *, type_attribute):
        assert name == "t"
        return replace(before, stream_arn=now)

    monkeypatch.setattr("streamkit.worker.stream_change.describe", describe)
    look = StreamChange(None, before).look
    with capture_logs() as logs:
        if logged is None:
            with pytest.raises(ConfigurationError, match="replaced"):
                run_virtually(look)
        else:
            run_virtually(look)
            assert [log["event"] for log in logs] == logged


# -- the handlers that an app takes over -------------------------------------------------------------


@pytest.mark.parametrize(
    ("joins", "taken", "runs"),
    [
        ((), (), set()),
        (("late:taken:2",), (), {"late"}),
        (("late:taken:2",), ("early",), {"late", "early"}),  # an earlier join is over
        (("plain:taken:2",), (), set()),  # not a handler with a start of its own
        (None, ("late",), {"late"}),  # the app has not run yet, its handler has
        (None, (), set()),
    ],
)
def test_an_app_runs_the_handlers_that_it_takes_over_or_has_taken_over(
    monkeypatch, joins, taken, runs
):
    async def newest_generation(store):
        return None if joins is None else SimpleNamespace(joins=joins)

    async def host_of(store):
        return TAKEN if store in taken else WORKERS

    module = "streamkit.worker.joined_app."
    monkeypatch.setattr(module + "newest_generation", newest_generation)
    monkeypatch.setattr(module + "host_of", host_of)
    monkeypatch.setattr(module + "own_store", lambda store, name: name)
    children = {name: SimpleNamespace(exact=name != "plain") for name in ("late", "early", "plain")}
    app = SimpleNamespace(listeners=children, with_joined=lambda names: names)
    found = run_virtually(lambda: joined_app(app, None))
    assert found == (runs or app)


# -- whether the stream answers --------------------------------------------------------------------


class Cut:
    """A worker's shards and its place in the fleet; the stream may `answer`, later than it may."""

    def __init__(self, *, answers, fails_for=1e9):
        self.answers, self.fails_for = answers, fails_for
        self.read_at, self.asked, self.said, self.given = 0.0, [], [], 0
        self.tables = SimpleNamespace(table=SimpleNamespace(stream_arn="arn"))
        self.me = SimpleNamespace(state="active")
        self.heartbeat = self

    @property
    def silence(self):
        return 0.0 if self.given else anyio.current_time() - self.read_at  # no shard, no silence

    def note_read(self):
        self.read_at = anyio.current_time()

    def give_all(self):
        self.given += 1

    def say(self, *, state):
        self.me.state = state
        self.said.append((anyio.current_time(), state))

    async def stream_answers(self, arn):
        self.asked.append(anyio.current_time())
        if not self.answers and anyio.current_time() < self.fails_for:
            await anyio.sleep_forever()
        return True


def watched(cut, seconds, deadline=60.0):
    async def main():
        with anyio.move_on_after(seconds):
            await watch_stream(cut, cut, cut, deadline)

    with capture_logs() as logs:
        run_virtually(main)
    return [log["event"] for log in logs]


def test_a_stream_that_answers_and_has_no_page_for_a_worker_is_told_once_in_each_deadline():
    """It throttles, or serves other readers first."""
    cut = Cut(answers=True)
    assert watched(cut, 200.0) == ["stream.silent"] * 3
    assert cut.asked == [60.0, 120.0, 180.0]
    assert (cut.said, cut.given) == ([], 0)


def test_a_worker_that_the_stream_does_not_answer_gives_its_shards_once_and_asks_until_it_does():
    cut = Cut(answers=False, fails_for=100.0)
    assert watched(cut, 130.0) == ["worker.unfit", "worker.fit"]
    assert cut.asked == [60.0, 70.0, 80.0, 90.0, 100.0]
    assert (cut.said, cut.given) == ([(65.0, "unfit"), (100.0, "joining")], 1)


def test_nothing_is_asked_while_pages_are_read():
    cut = Cut(answers=False)
    cut.read_at = 70.0
    assert watched(cut, 129.0) == []
    assert cut.asked == []
