"""A delivery carries its trace where the receiver can find it, and replaces no attribute."""

from datetime import UTC, datetime

import pytest

from streamkit.sinks.envelope import to_envelope
from streamkit.sinks.notes import ATTRIBUTES_MAX, attributes_of
from streamkit.sinks.sink import Delivery
from streamkit.sinks.webhook import _headers

PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def delivery(traceparent=PARENT, **attributes):
    return Delivery("k", "i", "g", "0" * 40, {}, NOON, attributes, traceparent)


def test_it_is_a_header_of_a_webhook_a_member_of_an_envelope_and_an_attribute_of_a_note():
    assert _headers(delivery())["traceparent"] == PARENT
    assert to_envelope(delivery())["traceparent"] == PARENT
    assert attributes_of(delivery())["traceparent"] == {"DataType": "String", "StringValue": PARENT}


@pytest.mark.parametrize("form", [_headers, to_envelope, attributes_of])
def test_what_is_not_traced_carries_nothing(form):
    assert "traceparent" not in form(delivery(""))


def test_attributes_of_a_send_come_first_where_only_so_many_are_taken():
    full = attributes_of(delivery(**{f"a{number}": "x" for number in range(6)}))
    assert len(full) == ATTRIBUTES_MAX
    assert "traceparent" not in full
    assert attributes_of(delivery(traceparent="mine", a="x")).keys() >= {"a", "traceparent"}


def test_a_send_that_says_traceparent_itself_is_left_alone():
    own = Delivery("k", "i", "g", "0" * 40, {}, NOON, {"traceparent": "mine"}, PARENT)
    assert attributes_of(own)["traceparent"]["StringValue"] == "mine"
