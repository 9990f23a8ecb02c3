"""A worker's life: under which name it begins again, when it ends, and whether the stream answers."""

from types import SimpleNamespace

import anyio
import pytest
from structlog.testing import capture_logs

from streamkit.errors import LeaseLost
from streamkit.testing.loop import run_virtually
from streamkit.worker import worker as module
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
