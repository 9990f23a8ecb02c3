"""High-water marks: what moves one, and what is read of it."""

import re

import pytest

from streamkit.aws_lambda.high_water_marks import HighWaterMarks, _before
from streamkit.changes import ItemKey
from streamkit.core.high_water_mark import KEPT_SECONDS, HighWaterMark, mark_name
from streamkit.effects import Guard
from streamkit.model.schema import TableSchema
from streamkit.progress.actions import OURS, render
from streamkit.progress.control import ControlSpace
from streamkit.progress.cursor import CursorStore

KEY = ItemKey("ORDER#1", "ORDER#1")


class Clock:
    def time(self):
        return 1_800_000_000.5


def marks_of(*, ttl=None, sk="SK"):
    schema = TableSchema("T", "PK", sk, "S", sk and "S", {}, ttl)
    space = ControlSpace.of(schema, "shop", "label")
    return HighWaterMarks(CursorStore(None, space), Clock(), "1a2b3c4d"), schema


def position(number):
    return str(number).zfill(40)


def moved(marks, schema, now, first, then):
    marks.known[KEY] = now
    (body,) = render(marks.move(KEY, first, then, marks.until()), schema).values()
    names = body["ExpressionAttributeNames"]
    assert set(names.values()) - {schema.ttl} == {
        f"_sk_{name}" for name in ("kind", "name", "position", "expires", "done", "lanes")
    }
    return body


@pytest.mark.parametrize("ttl", [None, "ttl"])
@pytest.mark.parametrize("sk", [None, "SK"])
def test_a_bare_mark_is_moved_as_any_other_with_its_own_values(ttl, sk):
    """The shape is that of another mark; it is held against one that is rendered for itself."""
    marks, schema = marks_of(ttl=ttl, sk=sk)
    moved(marks, schema, HighWaterMark(position(1)), position(2), HighWaterMark(position(3)))
    body = moved(marks, schema, HighWaterMark(position(7)), position(8), HighWaterMark(position(9)))
    rendered = marks._update(
        mark_name(KEY), HighWaterMark(position(9)), str(1_800_000_000 + KEPT_SECONDS)
    )
    rendered.guards = [(Guard(_before(HighWaterMark(position(7)), position(8))), OURS)]
    assert render(rendered, schema) == {"Update": body}
    values = [
        text for value in body["ExpressionAttributeValues"].values() for text in value.values()
    ]
    assert {position(8), position(9), mark_name(KEY), str(1_800_000_000 + KEPT_SECONDS)} <= {
        *values
    }
    assert not any(text.startswith("?") for text in values)


@pytest.mark.parametrize(
    ("now", "then"),
    [
        (HighWaterMark(position(1), queues=frozenset({"a"})), HighWaterMark(position(2))),
        (HighWaterMark(position(1)), HighWaterMark(position(2), queues=frozenset({"a", "b"}))),
        (HighWaterMark(position(1), done=frozenset({"x"})), HighWaterMark(position(2))),
        (HighWaterMark(position(1)), HighWaterMark(position(1), done=frozenset({"x"}))),
    ],
)
def test_what_else_a_mark_says_is_in_its_condition_and_in_what_is_written(now, then):
    marks, schema = marks_of()
    body = moved(marks, schema, now, position(2), then)
    sets = [set(v["SS"]) for v in body["ExpressionAttributeValues"].values() if "SS" in v]
    expected = [set(texts) for mark in (then, now) for texts in (mark.done, mark.queues) if texts]
    assert sorted(map(sorted, sets)) == sorted(map(sorted, expected))
    places = re.findall(r"#\w+", body["UpdateExpression"].partition("REMOVE ")[2])
    removed = {body["ExpressionAttributeNames"][place] for place in places}
    stays = {"done": then.done, "lanes": then.queues, "expires": not then.queues}
    assert removed == {f"_sk_{name}" for name, texts in stays.items() if not texts}


def test_a_change_is_done_if_its_items_mark_is_at_it_or_behind_it():
    marks, _ = marks_of()
    marks.known[KEY] = HighWaterMark()
    assert not marks.is_done(KEY, position(1))
    marks.known[KEY] = HighWaterMark(position(5))
    assert [marks.is_done(KEY, position(number)) for number in (4, 5, 6)] == [True, True, False]
