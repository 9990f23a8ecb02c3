"""Events as AWS documents them are read; everything else is refused with a sentence that helps."""

import copy
import json
import random
from types import SimpleNamespace

import pytest

from streamkit import App, Change, ConfigurationError, Entity, Put
from streamkit.aws_lambda.environment import Environment, StreamReplaced, open_environment
from streamkit.aws_lambda.event import read_event
from streamkit.aws_lambda.host import process_batch
from streamkit.changes import Kind
from streamkit.core.parked.queues import list_parked, parked_queues
from streamkit.model.copies import COPY
from streamkit.model.origin import ORIGIN
from streamkit.stream.decode.images import decode_item
from streamkit.testing.loop import run_virtually
from tests.simulation.lambdas import world_of

ARN = "arn:aws:dynamodb:us-east-2:123456789012:table/my-table/stream/2024-06-10T19:26:16.525"


def documented():
    """The sample event of AWS's Lambda guide on DynamoDB streams, in its own shape."""
    keys = {"Id": {"N": "101"}}
    new = {"Message": {"S": "New item!"}, "Id": {"N": "101"}}
    changed = {"Message": {"S": "This item has changed"}, "Id": {"N": "101"}}
    images = [{"NewImage": new}, {"OldImage": new, "NewImage": changed}, {"OldImage": changed}]
    return {
        "Records": [
            {
                "eventID": str(number),
                "eventName": name,
                "eventVersion": "1.0",
                "eventSource": "aws:dynamodb",
                "awsRegion": "us-east-2",
                "dynamodb": {
                    "Keys": keys,
                    **shown,
                    "SequenceNumber": f"{number}" * 3,
                    "SizeBytes": 26 + number,
                    "StreamViewType": "NEW_AND_OLD_IMAGES",
                },
                "eventSourceARN": ARN,
            }
            for number, (name, shown) in enumerate(
                zip(("INSERT", "MODIFY", "REMOVE"), images, strict=True), 1
            )
        ]
    }


def with_record(**changes):
    event = documented()
    event["Records"] = [event["Records"][2] | changes]
    return event


def test_the_documented_sample_is_read_with_both_images():
    event = read_event(documented())
    assert event.stream == ARN
    assert (event.shard, event.state) == (None, None)
    inserted, modified, removed = event.records
    assert [record.kind for record in event.records] == [
        Kind.INSERTED,
        Kind.MODIFIED,
        Kind.REMOVED,
    ]
    assert decode_item(json.loads(bytes(modified.old_image)))["Message"] == "New item!"
    assert decode_item(json.loads(bytes(modified.new_image)))["Message"] == "This item has changed"
    assert (inserted.old_image, removed.new_image) == (None, None)
    assert modified.sequence_number == "222"
    assert modified.position == "222".zfill(40)
    assert inserted.created_at == 0, "the oldest samples have no time"


@pytest.mark.parametrize(
    ("moment", "seconds"),
    [
        (1479499740, 1479499740),
        (1479499740.0, 1479499740),
        (1479499740.25, 1479499740.25),
        ("1678831218.0", 1678831218),
        ("2016-11-18T20:09:00Z", 1479499740),
    ],
)
def test_times_are_read_as_numbers_and_as_text(moment, seconds):
    event = documented()
    event["Records"][0]["dynamodb"]["ApproximateCreationDateTime"] = moment
    assert read_event(event).records[0].created_at == seconds


@pytest.mark.parametrize(
    ("identity", "kind"),
    [
        ({"type": "Service", "principalId": "dynamodb.amazonaws.com"}, Kind.EXPIRED),
        ({"Type": "Service", "PrincipalId": "dynamodb.amazonaws.com"}, Kind.EXPIRED),
        ({"type": "Service", "principalId": "replication.dynamodb.amazonaws.com"}, Kind.REMOVED),
        (None, Kind.REMOVED),
    ],
)
def test_deletions_by_ttl_are_expiries_however_the_identity_is_spelt(identity, kind):
    (record,) = read_event(with_record(userIdentity=identity)).records
    assert record.kind is kind


def test_newer_members_are_ignored():
    event = with_record(eventVersion="9.9", something={"new": True})
    event["Records"][0]["dynamodb"]["Another"] = 1
    assert len(read_event(event).records) == 1


@pytest.mark.parametrize("view", ["KEYS_ONLY", "NEW_IMAGE", "OLD_IMAGE"])
def test_other_views_leave_images_out(view):
    event = documented()
    for record in event["Records"]:
        record["dynamodb"]["StreamViewType"] = view
        for image, shown in (("NewImage", "NEW_IMAGE"), ("OldImage", "OLD_IMAGE")):
            if view != shown:
                record["dynamodb"].pop(image, None)
    images = [(record.old_image, record.new_image) for record in read_event(event).records]
    assert any(old for old, _ in images) == (view == "OLD_IMAGE")
    assert any(new for _, new in images) == (view == "NEW_IMAGE")


def windowed(**changes):
    """The documented members of an event of a tumbling window."""
    return documented() | {
        "window": {"start": "2020-07-30T17:00:00Z", "end": "2020-07-30T17:05:00Z"},
        "state": {"1": "state1"},
        "shardId": "shard123456789",
        "eventSourceARN": ARN,
        "isFinalInvokeForWindow": False,
        "isWindowTerminatedEarly": False,
        **changes,
    }


def test_a_tumbling_window_says_its_shard_and_its_state():
    event = read_event(windowed())
    assert (event.shard, event.state) == ("shard123456789", {"1": "state1"})
    assert len(event.records) == 3


@pytest.mark.parametrize("state", [{}, None])
def test_the_end_of_a_window_may_have_no_records_and_no_state(state):
    event = read_event(windowed(Records=[], state=state, isFinalInvokeForWindow=True))
    assert (event.records, event.state, event.stream) == ((), {}, ARN)


@pytest.mark.parametrize("member", ["Keys", "SequenceNumber"])
def test_a_record_without_what_every_record_has_says_what_it_lacks(member):
    event = documented()
    del event["Records"][1]["dynamodb"][member]
    first, flawed, last = read_event(event).records
    assert member in flawed.flaw
    assert (first.flaw, last.flaw) == ("", "")


@pytest.mark.parametrize(
    ("record", "flaw"),
    [("x", "type str"), ({"eventSource": "aws:kinesis", "kinesis": {}}, "aws:kinesis")],
)
def test_a_record_of_something_else_among_those_of_a_stream_says_of_what(record, flaw):
    event = documented()
    event["Records"][1] = record
    first, flawed, last = read_event(event).records
    assert flaw in flawed.flaw
    assert (first.flaw, last.flaw) == ("", "")


@pytest.mark.parametrize(
    ("event", "text"),
    [
        ({}, "has no Records"),
        ({"Records": "x"}, "has no Records"),
        ({"Records": ["x"]}, "type str"),
        ({"Records": [{"eventSource": "aws:kinesis", "kinesis": {}}]}, "of aws:kinesis"),
        ({"Records": [{"EventSource": "aws:sns", "Sns": {}}]}, "of aws:sns"),
        ({"source": "aws.events"}, "has no Records"),
    ],
)
def test_an_event_of_something_else_is_refused_and_says_of_what(event, text):
    with pytest.raises(ConfigurationError, match=text):
        read_event(event)


class Item(Entity, pk="ITEM#{item}", sk="ITEM#{item}"):
    item: str


class Seen(Entity, pk="SEEN#{item}", sk="SEEN#{item}"):
    item: str
    shard: str


def make_app():
    app = App("items", table="my-table", entities=[Seen])

    @app.on
    def see(change: Change[Item]) -> Put[Seen]:
        return Put(Seen(item=change.new.item, shard=change.shard_id))

    return app


def record_of(arn, number=1):
    key = {"S": f"ITEM#{number}"}
    inner = {"Keys": {"SK": key, "PK": key}, "SequenceNumber": f"{number}" * 21}
    inner["NewImage"] = {"SK": key, "PK": key, "item": {"S": f"{number}"}}
    return {"eventName": "INSERT", "dynamodb": inner, "eventSourceARN": arn, "eventID": "1"}


def in_environment(check):
    async def main():
        world = world_of(make_app())
        async with open_environment(
            make_app(), connect_with=world.clients, clock=world.clock, rng=random.Random(1)
        ) as environment:
            await check(world, environment, environment.tables.table.stream_arn)

    run_virtually(main)


def test_the_state_of_a_window_comes_back_as_it_was_with_the_shard_in_the_changes():
    async def check(world, environment, arn):
        state = {"nested": [1, {"two": 2.5}], "text": "ü"}
        event = windowed(Records=[record_of(arn)], state=state, shardId="shardId-7")
        given = copy.deepcopy(state)
        response = await process_batch(environment, event)
        assert response == {"batchItemFailures": [], "state": given}
        (seen,) = (i for i in world.items("my-table") if i["PK"]["S"].startswith("SEEN#"))
        assert seen["shard"] == {"S": "shardId-7"}
        end = windowed(Records=[], state=state, isFinalInvokeForWindow=True, eventSourceARN=arn)
        assert await process_batch(environment, end) == {"batchItemFailures": [], "state": given}
        plain = await process_batch(environment, {"Records": [record_of(arn, 2)]})
        assert plain == {"batchItemFailures": []}

    in_environment(check)


def test_events_of_another_table_or_of_a_former_stream_are_refused():
    async def check(world, environment, arn):
        with pytest.raises(ConfigurationError, match="belongs to another function"):
            await process_batch(environment, {"Records": [record_of(ARN.replace("my", "x"))]})
        former = arn.rpartition("/")[0] + "/2001-01-01T00:00:00.000"
        with pytest.raises(StreamReplaced, match="delete the mapping"):
            await process_batch(environment, {"Records": [record_of(former)]})

    in_environment(check)


def test_an_unknown_kind_of_event_is_never_taken_for_done():
    async def check(world, environment, arn):
        event = {"Records": [record_of(arn) | {"eventName": "RENAME"}]}
        assert await process_batch(environment, event) == {"batchItemFailures": []}
        assert await process_batch(environment, event) == {"batchItemFailures": []}
        (parked,) = await list_parked(environment.store)
        assert (parked.error, parked.handler) == ("Unreadable", "(unreadable)")
        assert "RENAME" in parked.detail
        (queue,) = await parked_queues(environment.store)
        assert queue.stuck

    in_environment(check)


def test_records_of_two_streams_are_refused_whichever_comes_first():
    async def check(world, environment, arn):
        foreign = ARN.replace("my", "x")
        for records in ([arn, foreign], [foreign, arn], [None, arn, None, foreign]):
            event = {"Records": [record_of(one, number) for number, one in enumerate(records, 1)]}
            with pytest.raises(ConfigurationError, match="x-table"):
                await process_batch(environment, event)
        assert not [item for item in world.items("my-table") if item["PK"]["S"][:5] == "SEEN#"]
        mixed = {"Records": [record_of(None, 1), record_of(arn, 2)]}
        assert await process_batch(environment, mixed) == {"batchItemFailures": []}

    in_environment(check)


@pytest.mark.parametrize(
    ("event", "said"),
    [
        (None, "has no Records"),
        ('{"Records": []}', "has no Records"),
        ([record_of(ARN)], "EventBridge Pipes"),
        ({"Records": [record_of(5)]}, "records of 5"),
        ({"Records": [record_of({})], "eventSourceARN": ["arn"]}, "records of .'arn'.:"),
    ],
)
def test_what_is_no_event_of_a_mapping_is_refused_with_what_to_do(event, said):
    with pytest.raises(ConfigurationError, match=said):
        read_event(event)


def test_a_table_that_does_not_answer_at_all_is_named_in_the_error():
    async def check(world, environment, arn):
        with pytest.raises(TimeoutError, match=r"did not answer within 0\.0 s"):
            await process_batch(environment, {"Records": [record_of(arn)]}, 0.0)

    in_environment(check)


@pytest.mark.parametrize(("created", "taken"), [(99, False), (100, True), (101, True), (0, True)])
def test_what_was_made_before_the_consumer_began_is_not_its_own(created, taken):
    parts = dict.fromkeys(("app", "machine", "tables", "shard", "losses"))
    dispatcher = SimpleNamespace(wants=lambda _: True)
    joined = SimpleNamespace(since=100)
    environment = Environment(**parts, dispatcher=dispatcher, joined=joined)
    assert environment.takes(SimpleNamespace(created_at=created)) is taken


@pytest.mark.parametrize("image", ["OldImage", "NewImage"])
@pytest.mark.parametrize("name", [ORIGIN, COPY])
def test_an_event_says_whether_an_item_in_it_may_carry_what_streamkit_writes(image, name):
    event = documented()
    assert not read_event(event).marked
    event["Records"][1]["dynamodb"][image] |= {name: {"S": "handler:1:x:see"}}
    assert read_event(event).marked
