"""Where a replay to the end has reached it, and which command goes on with it."""

from dataclasses import replace

import pytest

from streamkit.operate.replay.report import ReplayWish, asked_for
from streamkit.operate.replay.run import is_reached
from streamkit.progress.control import START, Cursor

HALF = Cursor("s", position="5", done=frozenset({"7:labels"}))


@pytest.mark.parametrize(
    ("position", "live", "reached"),
    [
        ("5", None, True),
        ("5", Cursor("s"), True),
        (START, Cursor("s"), True),
        (START, Cursor("s", position="5"), False),
        ("4", Cursor("s", position="5"), False),
        ("5", Cursor("s", position="5"), True),
        ("6", HALF, False),
        ("7", HALF, True),
        ("9", Cursor("s", position="5", state="finished"), False),
    ],
)
def test_the_end_is_reached_where_nothing_that_the_app_has_done_is_behind(position, live, reached):
    assert is_reached(position, live) is reached


WISH = ReplayWish(since=60.0, until=90.0, handlers=["b", "a"])


def test_the_same_command_goes_on_with_a_replay():
    assert asked_for(WISH) == asked_for(replace(WISH, handlers=["a", "b"], until=99.0))
    assert asked_for(WISH) == "a, b since 1970-01-01T00:01:00+00:00"
    assert asked_for(WISH) != asked_for(replace(WISH, since=61.0))


def test_a_replay_of_other_items_is_another_one():
    some = asked_for(replace(WISH, keys=["x", "y"]))
    assert some == asked_for(replace(WISH, keys=["y", "x"]))
    assert len({some, asked_for(WISH), asked_for(replace(WISH, keys=["x", "z"]))}) == 3
    assert "x" not in some.split("since")[1]
