"""The watchdog counts questions that the event loop leaves unanswered."""

import threading

import pytest

from streamkit.cli import watchdog
from streamkit.settings import Settings


class Blocked(Exception):
    pass


class Loop:
    """An event loop that answers after so many pauses, and the pauses themselves."""

    def __init__(self, pauses, answers_after):
        self.pauses, self.answers_after = pauses, answers_after
        self.asked, self.due, self.answer = 0, -1, None

    def wait(self, _seconds):
        if self.due == 0:
            self.answer()
        self.due -= 1
        self.pauses -= 1
        return self.pauses < 0

    def call_soon_threadsafe(self, answer):
        self.asked += 1
        self.due, self.answer = self.answers_after, answer


def questions(*, answers_after, pauses=1000):
    """Watch for so many pauses, and return how many questions were asked."""
    loop = Loop(pauses, answers_after)
    watchdog._watch(loop, loop, 30.0)
    return loop.asked


@pytest.fixture(autouse=True)
def ending(monkeypatch):
    def end(limit_seconds):
        raise Blocked(limit_seconds)

    monkeypatch.setattr(watchdog, "_end", end)


def test_a_loop_that_answers_is_asked_again_and_again():
    assert questions(answers_after=0) == 1000


def test_a_loop_that_answers_just_in_time_is_left_alone():
    assert questions(answers_after=19) == 50


def test_a_loop_that_answers_too_late_is_ended():
    with pytest.raises(Blocked):
        questions(answers_after=20)


def test_a_loop_that_never_answers_is_ended_after_as_many_pauses_as_the_limit_has():
    assert questions(answers_after=2000, pauses=20) == 1
    with pytest.raises(Blocked):
        questions(answers_after=2000, pauses=21)


@pytest.mark.parametrize(("pauses", "said"), [(0, []), (1, []), (2, [3]), (10, [15])])
def test_a_loop_that_stood_still_for_seconds_is_logged_once_it_goes_on(monkeypatch, pauses, said):
    logged = []
    monkeypatch.setattr(watchdog.log, "warning", lambda event, **more: logged.append((event, more)))
    questions(answers_after=pauses, pauses=pauses + 2)
    assert logged == [("process.stalled", {"seconds": seconds}) for seconds in said]


def test_a_stall_names_the_users_line_that_ran_meanwhile(monkeypatch, tmp_path):
    logged, inside, over = [], threading.Event(), threading.Event()
    file = tmp_path / "orders.py"
    file.write_text("def ship(inside, over):\n    inside.set()\n    over.wait()\n")
    space = {}
    exec(compile(file.read_text(), str(file), "exec"), space)
    blocked = threading.Thread(target=lambda: space["ship"](inside, over))
    blocked.start()
    inside.wait()
    monkeypatch.setattr(watchdog.log, "warning", lambda event, **more: logged.append((event, more)))
    loop = Loop(6, 3)
    watchdog._watch(loop, loop, 30.0, blocked.ident)
    over.set()
    blocked.join()
    assert logged == [("process.stalled", {"seconds": 4, "at": f"{file}:3 in ship"})]


def test_the_limit_leaves_time_for_others_to_take_the_shards():
    assert watchdog.blocked_seconds(Settings(lease=7)) == 30
    assert watchdog.blocked_seconds(Settings(lease=20)) == 80


async def test_the_thread_ends_with_the_block():
    def watching():
        return "watchdog" in {thread.name for thread in threading.enumerate()}

    with watchdog.watch_loop(30.0):
        assert watching()
    assert not watching()
