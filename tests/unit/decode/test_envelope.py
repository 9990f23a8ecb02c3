"""The envelope is read in one pass, tolerates what it does not know, and keeps images as bytes."""

import json
import re
from typing import Any

import pytest

from streamkit.changes import ItemKey, Kind
from streamkit.errors import InvariantError, RetryableError
from streamkit.stream.decode import Record, parse_page

IMAGE = {"PK": {"S": "a"}, "n": {"N": "1"}}


def record(**changes: Any) -> dict[str, Any]:
    inner = {
        "ApproximateCreationDateTime": 1714521600,
        "Keys": {"PK": {"S": "a"}},
        "NewImage": IMAGE,
        "OldImage": IMAGE,
        "SequenceNumber": "111000000000000000001",
        "SizeBytes": 20,
        "StreamViewType": "NEW_AND_OLD_IMAGES",
    }
    return {"eventID": "e", "eventName": "MODIFY", "dynamodb": inner} | changes


def parse(*records: dict[str, Any], **page: Any) -> list[Record]:
    return list(parse_page(json.dumps({"Records": records} | page).encode()).records)


def inner(**changes: Any) -> dict[str, Any]:
    given = {**record()["dynamodb"], **changes}
    return record(dynamodb={key: value for key, value in given.items() if value is not ...})


def test_a_record_has_everything_that_was_sent() -> None:
    (found,) = parse(record())
    assert (found.event_id, found.event_name, found.kind) == ("e", "MODIFY", Kind.MODIFIED)
    assert found.keys == {"PK": {"S": "a"}}
    assert found.sequence_number == "111000000000000000001"
    assert found.position == "0" * 19 + "111000000000000000001"
    assert found.created_at == 1714521600.0
    assert (found.size_bytes, found.view_type) == (20, "NEW_AND_OLD_IMAGES")
    assert found.new_image is not None
    assert json.loads(bytes(found.new_image)) == IMAGE
    assert found.item_key == ItemKey("a")


def test_what_is_optional_may_be_missing() -> None:
    sparse = inner(
        NewImage=...,
        OldImage=...,
        SizeBytes=...,
        StreamViewType=...,
        ApproximateCreationDateTime=...,
    )
    del sparse["eventID"]
    (found,) = parse(sparse)
    assert found.new_image is None
    assert found.old_image is None
    assert found.created_at == 0.0
    assert (found.event_id, found.size_bytes, found.view_type) == ("", 0, "")


def test_what_is_not_known_is_ignored() -> None:
    strange = inner(Future={"a": [1]}) | {"eventVersion": "9.9", "more": {"b": None}}
    assert parse(strange, Extra=1)[0].keys == {"PK": {"S": "a"}}


@pytest.mark.parametrize(
    "moment", [1714521600, 1714521600.0, "2024-05-01T00:00:00Z", "2024-05-01T00:00:00"]
)
def test_the_moment_may_be_a_number_or_a_date(moment: object) -> None:
    assert parse(inner(ApproximateCreationDateTime=moment))[0].created_at == 1714521600.0


@pytest.mark.parametrize(
    ("event", "identity", "kind"),
    [
        ("INSERT", None, Kind.INSERTED),
        ("REMOVE", None, Kind.REMOVED),
        ("REMOVE", {"Type": "Service", "PrincipalId": "dynamodb.amazonaws.com"}, Kind.EXPIRED),
        ("REMOVE", {"type": "Service", "principalId": "dynamodb.amazonaws.com"}, Kind.EXPIRED),
        (
            "REMOVE",
            {"Type": "Service", "PrincipalId": "replication.dynamodb.amazonaws.com"},
            Kind.REMOVED,
        ),
        ("REMOVE", {"Type": "User", "PrincipalId": "dynamodb.amazonaws.com"}, Kind.REMOVED),
        ("REMOVE", {}, Kind.REMOVED),
        ("MODIFY", {"Type": "Service", "PrincipalId": "dynamodb.amazonaws.com"}, Kind.MODIFIED),
    ],
)
def test_only_a_removal_by_the_ttl_service_is_an_expiry(
    event: str, identity: dict[str, str] | None, kind: Kind
) -> None:
    assert parse(record(eventName=event, userIdentity=identity))[0].kind is kind


FLAWS: dict[str, tuple[object, str]] = {
    "an unknown kind of event": (record(eventName="ARCHIVE"), "ARCHIVE.*eventName"),
    "no kind of event": ({"dynamodb": record()["dynamodb"]}, "eventName"),
    "no keys": (inner(Keys=...), "Keys"),
    "keys without attributes": (inner(Keys={}), "Keys"),
    "keys that are no map": (inner(Keys=["a"]), "Keys"),
    "a key of an unknown type": (inner(Keys={"PK": {"Q": "a"}}), "Keys"),
    "a key of two types": (inner(Keys={"PK": {"S": "a", "N": "1"}}), "Keys"),
    "a key that is no text": (inner(Keys={"PK": {"S": 1}}), "Keys"),
    "a number that is none": (inner(Keys={"PK": {"N": "one"}}), "Keys"),
    "bad base64": (inner(Keys={"PK": {"B": "?"}}), "Keys"),
    "no place": (inner(SequenceNumber=...), "SequenceNumber"),
    "a place that is no number": (inner(SequenceNumber="x1"), "SequenceNumber"),
    "a place beyond all": (inner(SequenceNumber="1" * 41), "SequenceNumber"),
    "a time that is none": (inner(ApproximateCreationDateTime="soon"), "CreationDateTime"),
    "a time beyond all": (inner(ApproximateCreationDateTime=1e300), "CreationDateTime"),
    "no change at all": ({"eventName": "INSERT"}, "dynamodb"),
    "no record at all": ("text", "Record|object"),
}


@pytest.mark.parametrize("flaw", FLAWS)
def test_a_record_that_cannot_be_read_says_why_and_leaves_the_others_as_they_are(flaw: str) -> None:
    broken, why = FLAWS[flaw]
    one, other = inner(SequenceNumber="7" * 21), inner(SequenceNumber="8" * 21)
    page = parse_page(json.dumps({"Records": [one, broken, other]}).encode())
    assert page.flawed
    first, found, last = page.records
    assert [first, last] == parse(one, other)
    assert re.search(why, found.flaw)
    assert found.new_image is not None
    assert json.loads(bytes(found.new_image)) == broken
    assert Record.from_bytes(found.to_bytes()) == found
    assert found.sequence_number, "it has a place: that of the one before, where it says none"
    assert found.created_at == 1714521600.0
    with pytest.raises(InvariantError, match="UNREADABLE"):
        _ = found.kind


def test_what_cannot_be_read_of_streamkits_own_records_is_of_no_interest() -> None:
    """To set it aside would lead to more of them, for ever."""
    keys = {"PK": {"S": "_sk#app#lane#1"}, "SK": {"S": "-"}}
    (own,) = parse(inner(Keys=keys) | {"eventName": "ARCHIVE"})
    assert (own.flaw, own.keys) == ("", keys)


def test_keys_that_are_no_text_are_sound() -> None:
    body = json.dumps({"Records": [inner(Keys={"PK": {"N": "12"}, "SK": {"B": "AAE="}})]})
    assert not parse_page(body.encode()).flawed


def test_key_values_have_their_type() -> None:
    keys = {"PK": {"N": "12"}, "SK": {"B": "AAE="}}
    assert parse(inner(Keys=keys))[0].item_key == ItemKey(12, b"\x00\x01")


def test_the_end_of_a_shard_is_no_next_iterator() -> None:
    page = parse_page(b'{"Records":[]}')
    assert page.next_iterator is None
    assert page.records == ()
    body = b'{"Records":[],"NextShardIterator":"x"}'
    assert parse_page(body).next_iterator == "x"
    assert parse_page(body).size == len(body)


def test_a_parked_record_reads_back_as_it_was() -> None:
    for original in parse(record(), inner(NewImage=...), record(userIdentity={"Type": "Service"})):
        again = Record.from_bytes(original.to_bytes())
        assert again == original
        assert again.kind is original.kind


@pytest.mark.parametrize(
    "body", [b"", b'{"Records":[{"eventNa', b"[]", b'{"Records":[{"eventName":"secret"}]}']
)
def test_a_body_that_is_no_reply_can_be_asked_for_again(body: bytes) -> None:
    with pytest.raises(RetryableError, match="cannot be read") as refusal:
        parse_page(body)
    assert "secret" not in str(refusal.value)
