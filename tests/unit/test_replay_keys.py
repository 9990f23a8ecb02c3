"""The partition keys that a replay is asked for are texts, and are compared as the table has them."""

from types import SimpleNamespace

import pytest

from streamkit.model.schema import TableSchema
from streamkit.operate.replay.parts import ReplayParts, keys_of
from streamkit.operate.replay.report import ReplayRefused
from streamkit.stream.decode import Record
from streamkit.stream.decode.envelope import StreamRecord


def schema_of(kind):
    return TableSchema("Notes", "PK", "SK", kind, "S", {})


@pytest.mark.parametrize(
    ("kind", "texts", "wire", "wanted"),
    [
        ("S", ["a#1", "é"], "é", True),
        ("S", ["a#1"], "A#1", False),
        ("N", ["1.50"], "1.5", True),
        ("N", ["1e2", "007"], "7", True),
        ("N", ["1"], "10", False),
        ("B", ["a"], "YQ==", True),
        ("B", ["YQ=="], "YQ==", False),
    ],
)
def test_a_key_is_the_one_that_was_asked_for_whatever_its_type_and_place(kind, texts, wire, wanted):
    schema = schema_of(kind)
    inner = StreamRecord(keys={"SK": {"S": "x"}, "PK": {kind: wire}}, sequence_number="1")
    tables = SimpleNamespace(table=schema)
    parts = ReplayParts(None, None, tables, None, None, None, None, keys_of(schema, texts))
    assert parts.wants(Record(dynamodb=inner, event_name="INSERT")) is wanted


def test_a_text_that_is_no_number_is_refused_where_keys_are_numbers():
    with pytest.raises(ReplayRefused, match="'PK' of Notes is a number"):
        keys_of(schema_of("N"), ["1", "ORDER#7"])


def test_keys_of_which_no_change_was_read_are_named_as_they_were_given():
    wish = SimpleNamespace(keys=["1.50", "007", "8"])
    schema = schema_of("N")
    tables = SimpleNamespace(table=schema)
    parts = ReplayParts(None, None, tables, None, None, wish, None, keys_of(schema, wish.keys))
    for number in ("7", "9"):
        inner = StreamRecord(keys={"SK": {"S": "x"}, "PK": {"N": number}}, sequence_number="1")
        parts.wants(Record(dynamodb=inner, event_name="INSERT"))
    assert parts.unseen() == ["1.50", "8"]
