"""Traces: what a `traceparent` is, and whose it is that a record carries."""

import json

import pytest
from msgspec import Raw

from streamkit.core.tracing import Tracing
from streamkit.model.origin import ORIGIN, WriteOrigin, read_origin
from streamkit.observe.traces import ids_of, valid_parent

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
PARENT = f"00-{TRACE}-{SPAN}-01"
OTHER = f"00-{TRACE}-b7ad6b7169203331-00"


def image(origin=None, **attributes):
    item = {"pk": {"S": "A"}} | attributes | ({} if origin is None else {ORIGIN: {"S": origin}})
    return Raw(json.dumps(item).encode())


class Seen:
    """A record, as far as tracing looks at it."""

    def __init__(self, old, new):
        self.old_image, self.new_image = old, new


def traced(parent, **attributes):
    return image(traceparent={"S": parent}, **attributes)


def read(old, new, origin=None):
    tracing = Tracing(tracer=object(), attribute="traceparent")
    return tracing.read(Seen(old, new), origin or WriteOrigin())


def test_a_traceparent_is_two_ids_and_flags():
    assert valid_parent(PARENT) == PARENT
    assert ids_of(PARENT) == (int(TRACE, 16), int(SPAN, 16), 1)


def test_a_later_version_may_have_more_and_is_read_as_far_as_it_is_known():
    assert valid_parent(f"cc-{TRACE}-{SPAN}-01-what-the-future-brings") == PARENT


@pytest.mark.parametrize(
    "text",
    [
        "",
        "00",
        PARENT.upper(),
        f"{PARENT}-more",
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE[1:]}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-1",
        f" {PARENT}",
        f"{PARENT}\n",
        f"cc-{TRACE}-{SPAN}-01-{'x' * 600}",
        f"00-{TRACE}-{SPAN}-0\u0661",
    ],
)
def test_what_is_not_as_the_standard_says_is_no_trace(text):
    assert valid_parent(text) == ""


def test_the_trace_is_in_the_new_image():
    assert read(None, traced(PARENT)) == PARENT
    assert read(image(), traced(PARENT)) == PARENT
    assert read(traced(PARENT), None) == ""


def test_a_trace_that_the_write_has_left_as_it_was_is_of_an_earlier_one():
    assert read(traced(PARENT, n={"N": "1"}), traced(PARENT, n={"N": "2"})) == ""
    assert read(traced(PARENT), traced(OTHER)) == OTHER


@pytest.mark.parametrize("value", [{"N": "7"}, {"S": "no trace"}, {"NULL": True}, {"L": []}])
def test_an_attribute_that_holds_something_else_is_none(value):
    assert read(None, image(traceparent=value)) == ""
    assert read(None, image(text={"S": "a traceparent is not here"})) == ""


def test_a_handler_leaves_its_trace_in_the_mark_and_that_counts_first():
    text = WriteOrigin("handler", 1, PARENT).text("copy", "app/17")
    origin = read_origin(None, image(text))
    assert origin == WriteOrigin("handler", 1, PARENT)
    assert read(None, traced(OTHER), origin) == PARENT
    assert PARENT not in WriteOrigin("handler", 1).text("copy", "app/17")


def test_a_mark_whose_trace_is_broken_is_a_mark_all_the_same():
    text = WriteOrigin("handler", 1, PARENT).text("copy", "app/17")
    assert read_origin(None, image(text[:-1])) == WriteOrigin("handler", 1)


def test_a_write_that_changes_nothing_but_the_trace_in_its_mark_is_no_change():
    before = image(WriteOrigin("handler", 1, PARENT).text("copy", "app/17"), n={"N": "1"})
    after = image(WriteOrigin("handler", 1, OTHER).text("copy", "app/18"), n={"N": "1"})
    assert read_origin(before, after) is None


def test_nothing_is_read_without_a_tracer_or_an_attribute():
    broken = Raw(json.dumps({ORIGIN: 7}).encode())
    for tracing in (Tracing(attribute="traceparent"), Tracing(tracer=object()), Tracing()):
        assert not tracing.is_on
        assert tracing.read(Seen(broken, traced(PARENT)), WriteOrigin("handler", 1, PARENT)) == ""
