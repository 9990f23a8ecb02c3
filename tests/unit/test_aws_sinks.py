"""The sinks of AWS against clients that fail as the services do: for entries, for calls, for sizes."""

import gzip
import json
from collections import Counter, defaultdict
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from decimal import Decimal
from functools import partial

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError
from structlog.testing import capture_logs

from streamkit.errors import ConfigurationError, DeclarationError
from streamkit.sinks import calls
from streamkit.sinks.calls import NOT_ANSWERED, BatchSender, CallEntry, Capacity, cut, failed_codes
from streamkit.sinks.eventbridge import EventBridge
from streamkit.sinks.firehose import Firehose
from streamkit.sinks.kinesis import Kinesis
from streamkit.sinks.notes import size_of
from streamkit.sinks.s3 import S3Archive, S3Sender
from streamkit.sinks.sink import Delivery, Limits
from streamkit.sinks.sns import Sns
from streamkit.sinks.sqs import Sqs

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
TOPIC = "arn:aws:sns:eu-central-1:123456789012:shop"
QUEUE = "https://sqs.eu-central-1.amazonaws.com/123456789012/shop"


class Unsendable:
    """A value without a form as text; its own is always the same, as names of tests must be."""

    def __repr__(self):
        return "unsendable"


UNSENDABLE = Unsendable()


def delivery(number, group="a", body=None, **fields):
    values = {
        "key": f"{number:032x}",
        "id": group,
        "group": group,
        "sequence": f"{number:040}",
        "body": {"number": number} if body is None else body,
        "created_at": NOON,
    }
    return Delivery(**(values | fields))


def refused(code, status=400):
    reply = {"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}
    return ClientError(reply, "Call")


class Service:
    """Takes what the senders send; fails entries and whole calls as told.

    `entry_codes` maps a delivery's number to the codes of its first, second, … try; `call_errors`
    are raised by the first calls.
    """

    def __init__(self, entry_codes=None, call_errors=()):
        self.codes = defaultdict(list, {n: list(c) for n, c in (entry_codes or {}).items()})
        self.errors = list(call_errors)
        self.calls, self.taken, self.requests = [], [], []

    def answers(self, numbers, request):
        self.calls.append(numbers)
        self.requests.append(request)
        error = self.errors.pop(0) if self.errors else None
        if error is not None:
            raise error
        codes = [self.codes[n].pop(0) if self.codes[n] else None for n in numbers]
        self.taken += [n for n, code in zip(numbers, codes, strict=True) if code is None]
        return codes

    def by_id(self, entries, text, request):
        codes = self.answers([number_of(entry[text]) for entry in entries], request)
        pairs = list(zip(entries, codes, strict=True))
        # Neither list is in the order of the request.
        return {
            "Successful": [{"Id": e["Id"]} for e, code in reversed(pairs) if code is None],
            "Failed": [{"Id": e["Id"], "Code": c, "SenderFault": True} for e, c in pairs if c],
        }

    async def send_message_batch(self, **request):
        return self.by_id(request["Entries"], "MessageBody", request)

    async def publish_batch(self, **request):
        return self.by_id(request["PublishBatchRequestEntries"], "Message", request)

    async def put_records(self, **request):
        codes = self.answers([number_of(r["Data"]) for r in request["Records"]], request)
        return {"Records": [{"ErrorCode": c} if c else {"ShardId": "s"} for c in codes]}

    async def put_record_batch(self, **request):
        codes = self.answers([number_of(r["Data"]) for r in request["Records"]], request)
        return {"RequestResponses": [{"ErrorCode": c} if c else {"RecordId": "r"} for c in codes]}

    async def put_events(self, **request):
        codes = self.answers([number_of(e["Detail"]) for e in request["Entries"]], request)
        return {"Entries": [{"ErrorCode": c} if c else {"EventId": "e"} for c in codes]}


def number_of(text):
    value = json.loads(text)
    return int(value["sequence"]) if "sequence" in value else value["number"]


SENDERS = {
    name: partial(BatchSender, sink)
    for name, sink in {
        "SQS": Sqs("orders", QUEUE),
        "SQS FIFO": Sqs("orders", QUEUE + ".fifo"),
        "SNS": Sns("orders", TOPIC),
        "SNS FIFO": Sns("orders", TOPIC + ".fifo"),
        "EventBridge": EventBridge("orders", "shop", "shop.orders", "Changed"),
        "Kinesis": Kinesis("orders", "live"),
        "Firehose": Firehose("orders", "lake"),
    }.items()
}
ORDERED = ("SQS FIFO", "SNS FIFO", "Kinesis")
UNORDERED = tuple(name for name in SENDERS if name not in ORDERED)


def kinds(errors):
    return [type(error).__name__ if error else None for error in errors]


@pytest.fixture(params=SENDERS)
def make_sender(request):
    return SENDERS[request.param]


async def test_an_entry_that_fails_is_told_from_those_that_arrive(make_sender):
    service = Service({2: ["InternalFailure"], 4: ["ThrottlingException"]})
    errors = await make_sender(service).deliver([delivery(n, f"item {n}") for n in range(6)])
    assert kinds(errors) == [None, None, "RetryableError", None, "RetryableError", None]
    assert service.taken == [0, 1, 3, 5]
    assert "ThrottlingException" in str(errors[4])


@pytest.mark.parametrize(
    "error",
    [
        refused("ThrottlingException"),
        refused("InternalFailure", status=500),
        refused("AccessDeniedException"),
        refused("ResourceNotFoundException"),
        refused("AWS.SimpleQueueService.NonExistentQueue"),
        refused("InvalidParameter"),
        EndpointConnectionError(endpoint_url="https://here"),
    ],
    ids=lambda error: type(error).__name__ + str(getattr(error, "response", {}).get("Error", "")),
)
async def test_a_call_that_fails_for_whatever_may_be_mended_loses_nothing(make_sender, error):
    service = Service(call_errors=[error] * 6)
    sender = make_sender(service)
    batch = [delivery(n, f"item {n}") for n in range(5)]
    assert kinds(await sender.deliver(batch)) == ["RetryableError"] * 5
    service.errors.clear()
    assert kinds(await sender.deliver(batch)) == [None] * 5
    assert service.taken == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("name", ORDERED)
async def test_a_call_never_holds_two_deliveries_of_an_item(name):
    service = Service()
    groups = "aabcabdda"
    errors = await SENDERS[name](service).deliver([delivery(n, g) for n, g in enumerate(groups)])
    assert errors == [None] * len(groups)
    for call in service.calls:
        assert max(Counter(groups[n] for n in call).values()) == 1
    for group in "abcd":
        own = [n for n in service.taken if groups[n] == group]
        assert own == sorted(own) == [n for n, g in enumerate(groups) if g == group]


@pytest.mark.parametrize("name", ORDERED)
async def test_nothing_of_an_item_overtakes_what_has_failed(name):
    service = Service({1: ["InternalFailure"]})
    sender = SENDERS[name](service)
    batch = [delivery(n, g) for n, g in enumerate("bababa")]
    errors = await sender.deliver(batch)
    assert kinds(errors) == [None, "RetryableError"] * 3
    assert service.taken == [0, 2, 4]
    again = [each for each, error in zip(batch, errors, strict=True) if error]
    assert await sender.deliver(again) == [None] * 3
    assert service.taken == [0, 2, 4, 1, 3, 5]


@pytest.mark.parametrize("name", ORDERED)
async def test_nothing_of_an_item_overtakes_what_can_never_be_sent(name):
    service = Service()
    batch = [delivery(0), delivery(1, body="x" * 2_000_000), delivery(2), delivery(3, "b")]
    errors = await SENDERS[name](service).deliver(batch)
    assert kinds(errors) == [None, "PoisonChange", "RetryableError", None]
    assert sorted(service.taken) == [0, 3]


@pytest.mark.parametrize("name", UNORDERED)
async def test_where_no_order_is_kept_an_item_fills_a_call(name):
    service = Service({0: ["InternalFailure"]})
    errors = await SENDERS[name](service).deliver([delivery(n) for n in range(10)])
    assert kinds(errors) == ["RetryableError"] + [None] * 9
    assert len(service.calls) == 1


ENTRIES = {"SQS": 10, "SNS FIFO": 10, "EventBridge": 10, "Kinesis": 500, "Firehose": 500}
BYTES = {
    # The limit of one entry, and of a call, as the services state them.
    "SQS": (2**20, 2**20),
    "SNS": (2**18, 2**18),
    "EventBridge": (2**18 - 1, 2**18 - 1),
    "Kinesis": (2**20, 5 * 2**20),
    "Firehose": (1_000_000, 4_000_000),
}


@pytest.mark.parametrize("name", ENTRIES)
async def test_a_call_holds_no_more_entries_than_the_service_takes(name):
    service, most = Service(), ENTRIES[name]
    errors = await SENDERS[name](service).deliver(
        [delivery(n, f"item {n}") for n in range(2 * most + 1)]
    )
    assert errors == [None] * len(errors)
    assert [len(call) for call in service.calls] == [most, most, 1]


def bytes_of(request):
    """What the services count of a call, computed from the request."""
    if "Records" in request:
        return sum(len(r["Data"]) + len(r.get("PartitionKey", "")) for r in request["Records"])
    entries = request.get("Entries") or request["PublishBatchRequestEntries"]
    texts = [
        text
        for entry in entries
        for name in ("MessageBody", "Message", "Source", "DetailType", "Detail")
        for text in [entry.get(name, "")]
    ]
    texts += [
        text
        for entry in entries
        for name, value in entry.get("MessageAttributes", {}).items()
        for text in (name, value["DataType"], value["StringValue"])
    ]
    times = sum(14 for entry in entries if "Time" in entry)
    return sum(len(text.encode()) for text in texts) + times


@pytest.mark.parametrize("name", BYTES)
async def test_a_call_holds_no_more_bytes_than_the_service_takes(name):
    service, (each, whole) = Service(), BYTES[name]
    text = "é" * (each // 7)
    batch = [delivery(n, f"item {n}", {"number": n, "text": text}) for n in range(30)]
    assert await SENDERS[name](service).deliver(batch) == [None] * 30
    sizes = [bytes_of(request) for request in service.requests]
    assert max(sizes) <= whole
    assert len(sizes) > 1
    assert sizes[0] > whole - 2 * len(text.encode()) - 1_000 or len(service.calls[0]) == 10


def test_a_call_is_filled_up_to_the_byte():
    entries = {place: CallEntry(None, 50) for place in range(5)}
    calls = cut(entries, Capacity(entries=10, size=100, each=100))
    assert [list(call) for call in calls] == [[0, 1], [2, 3], [4]]


@pytest.mark.parametrize("name", BYTES)
async def test_only_what_the_service_would_never_take_is_too_large(name):
    each = BYTES[name][0]
    service = Service()
    sender = SENDERS[name](service)
    body = {"number": 1, "text": ""}
    empty = sender.sink.entry(delivery(1, body=body)).size
    fits, larger = (
        delivery(1, body=body | {"text": "x" * (each - empty + more)}) for more in (0, 1)
    )
    assert kinds(await sender.deliver([fits, larger])) == [None, "PoisonChange"]
    assert bytes_of(service.requests[-1]) == each


async def test_the_entry_that_spoils_a_call_is_found_and_only_it_is_parked():
    spoilt = refused("AWS.SimpleQueueService.BatchRequestTooLong")
    service = Service(call_errors=[spoilt, None, spoilt, None])
    errors = await SENDERS["SQS"](service).deliver([delivery(n) for n in range(3)])
    assert kinds(errors) == [None, "PoisonChange", None]
    assert service.calls == [[0, 1, 2], [0], [1], [2]]


async def test_an_entry_that_a_whole_call_is_refused_for_keeps_back_no_other():
    error = refused("InvalidParameter")
    service = Service(call_errors=[error, None, error, None])
    errors = await SENDERS["SNS FIFO"](service).deliver(
        [delivery(n, f"item {n}") for n in range(3)]
    )
    assert kinds(errors) == [None, "RetryableError", None]


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("SQS", "InvalidMessageContents"),
        ("SQS FIFO", "InvalidParameterValue"),
        ("SNS", "InvalidParameter"),
        ("EventBridge", "MalformedDetail"),
    ],
)
async def test_an_entry_whose_content_the_service_finds_wrong_is_parked(name, code):
    service = Service({1: [code]})
    errors = await SENDERS[name](service).deliver([delivery(n, f"item {n}") for n in range(3)])
    assert kinds(errors) == [None, "PoisonChange", None]
    assert code in str(errors[1])


@pytest.mark.parametrize("code", ["KMS.AccessDeniedException", "AccessDeniedException"])
async def test_an_entry_that_a_key_or_a_policy_keeps_out_comes_again(code):
    service = Service({1: [code]})
    errors = await SENDERS["SQS"](service).deliver([delivery(n) for n in range(3)])
    assert kinds(errors) == [None, "RetryableError", None]


@pytest.mark.parametrize("name", ["SQS", "SNS"])
async def test_an_entry_that_the_reply_leaves_out_was_not_delivered(name):
    class Forgetful(Service):
        def by_id(self, entries, text, request):
            return super().by_id(entries[1:], text, request)

    class Silent(Service):
        def by_id(self, entries, text, request):
            reply = super().by_id(entries, text, request)
            return reply | {"Failed": [{"Id": one["Id"]} for one in reply["Failed"]]}

    for service in (Forgetful(), Silent({0: ["InternalError"]})):
        errors = await SENDERS[name](service).deliver([delivery(n) for n in range(3)])
        assert kinds(errors) == ["RetryableError", None, None]


def test_what_is_not_ascii_counts_as_many_bytes_as_it_is_sent_as():
    note = {"kind": {"DataType": "String", "StringValue": "é"}}
    assert size_of("é€", note) == 5 + len("kind" + "String") + 2


def test_a_failure_without_a_code_is_one():
    reply = {"Successful": [{"Id": "1"}], "Failed": [{"Id": "0"}]}
    assert failed_codes(reply, 2) == [NOT_ANSWERED, None]


@pytest.mark.parametrize("name", ["SQS FIFO", "SNS FIFO"])
async def test_fifo_has_the_item_as_group_and_the_key_as_deduplication_id(name):
    service = Service()
    one = delivery(7, "a", id="document", attributes={"kind": "sale"})
    await SENDERS[name](service).deliver([one])
    (request,) = service.requests
    (entry,) = request.get("Entries") or request["PublishBatchRequestEntries"]
    assert (entry["MessageGroupId"], entry["MessageDeduplicationId"]) == ("a", f"{7:032x}")
    values = {n: a["StringValue"] for n, a in entry["MessageAttributes"].items()}
    assert values == {
        "key": f"{7:032x}",
        "id": "document",
        "group": "a",
        "sequence": f"{7:040}",
        "kind": "sale",
    }


@pytest.mark.parametrize("name", ["SQS", "SNS"])
async def test_standard_ones_get_no_group_and_no_deduplication_id(name):
    entry = SENDERS[name](Service()).sink.entry(delivery(1))
    assert {key for key in entry.wire if "Group" in key or "Dedup" in key} == set()


@pytest.mark.parametrize(
    "fields",
    [
        {"attributes": {f"a{n}": "x" for n in range(7)}},
        {"attributes": {"sequence": "mine"}},
        {"attributes": {"kind": ""}},
        {"attributes": {"AWS.kind": "x"}},
        {"attributes": {"k nd": "x"}},
        {"attributes": {"kind": "\x00"}},
        {"body": "a\x00b"},
        {"body": "\ud800"},
        {"body": "a\ufffe"},
        {"body": ""},
        {"body": UNSENDABLE},
    ],
    ids=repr,
)
@pytest.mark.parametrize("name", ["SQS", "SNS"])
async def test_what_queues_and_topics_never_take_is_parked_unsent(name, fields):
    service = Service()
    batch = [delivery(1), delivery(2, **fields), delivery(3)]
    assert kinds(await SENDERS[name](service).deliver(batch)) == [None, "PoisonChange", None]
    assert service.taken == [1, 3]


@pytest.mark.parametrize("name", ["Kinesis", "Firehose", "EventBridge"])
async def test_a_body_without_a_form_as_text_is_parked_unsent_and_not_shown(name):
    service = Service()
    bodies = [1, "secret\ud800", UNSENDABLE, float("nan")]
    batch = [delivery(n, f"item {n}", body) for n, body in enumerate(bodies)]
    errors = await SENDERS[name](service).deliver(batch)
    assert kinds(errors) == [None] + ["PoisonChange"] * 3
    assert "secret" not in str(errors[1])


async def test_a_record_is_an_envelope_with_everything_that_a_receiver_needs():
    service = Service()
    body = {"price": Decimal("1.50"), "on": NOON, "name": "Zoë"}
    each = delivery(7, "a", body, id="7", attributes={"kind": "sale"})
    await SENDERS["Kinesis"](service).deliver([each])
    (record,) = service.requests[0]["Records"]
    assert record["PartitionKey"] == "a"
    assert json.loads(record["Data"]) == {
        "key": f"{7:032x}",
        "id": "7",
        "group": "a",
        "sequence": f"{7:040}",
        "created_at": "2026-03-01T12:00:00+00:00",
        "attributes": {"kind": "sale"},
        "body": {"price": "1.50", "on": "2026-03-01T12:00:00+00:00", "name": "Zoë"},
    }


@pytest.mark.parametrize("name", ["Kinesis", "Firehose", "EventBridge"])
async def test_a_deletion_is_an_envelope_without_a_body(name):
    service = Service()
    deletion = Delivery("k", "i", "g", f"{5:040}", None, NOON)
    assert await SENDERS[name](service).deliver([deletion]) == [None]
    request = service.requests[0]
    (entry,) = request.get("Records") or request["Entries"]
    envelope = json.loads(entry.get("Data") or entry["Detail"])
    assert envelope["body"] is None
    assert "attributes" not in envelope


async def test_a_deletion_is_null_in_a_queue():
    entry = SENDERS["SQS"](Service()).sink.entry(Delivery("k", "i", "g", "0", None, NOON))
    assert entry.wire["MessageBody"] == "null"


async def test_lines_of_firehose_end():
    service = Service()
    await SENDERS["Firehose"](service).deliver([delivery(1, body="a\nb")])
    (record,) = service.requests[0]["Records"]
    assert record["Data"].endswith(b"}\n")
    assert record["Data"].count(b"\n") == 1


async def test_events_have_no_number_beyond_64_bits():
    sender = SENDERS["EventBridge"](Service())
    body = {"small": 2**63 - 1, "low": [-(2**63)], "large": Decimal(2**63), "deep": [-(2**63) - 1]}
    wire = sender.sink.entry(delivery(1, body=body)).wire
    assert json.loads(wire["Detail"])["body"] == {
        "small": 2**63 - 1,
        "low": [-(2**63)],
        "large": str(2**63),
        "deep": [str(-(2**63) - 1)],
    }
    assert wire["Time"] == NOON


class Bucket:
    """Keeps what is put; refuses names that have a part of `refuses`."""

    def __init__(self, refuses=None):
        self.objects, self.refuses = {}, refuses

    async def put_object(self, *, Bucket, Key, Body, ContentType):
        if self.refuses and self.refuses in Key:
            raise refused("AccessDenied", status=403)
        self.objects[Key] = Body

    def rows(self):
        lines = b"".join(gzip.decompress(body) for body in self.objects.values()).splitlines()
        return [json.loads(line) for line in lines]


MIDNIGHT = [NOON.replace(hour=23, second=59), NOON.replace(day=2, hour=0)]


async def test_a_batch_that_is_archived_again_overwrites_itself():
    bucket = Bucket()
    sender = S3Sender(bucket, "archive", "sessions/")
    batch = [delivery(n, f"item {n}") for n in range(20)]
    for _ in range(2):
        assert await sender.deliver(batch) == [None] * 20
        ((name, first),) = bucket.objects.items()
    assert bucket.objects == {name: first}
    assert name.startswith("sessions/date=2026-03-01/")
    assert [row["sequence"] for row in bucket.rows()] == [each.sequence for each in batch]
    assert first[4:8] == bytes(4), "the time of compression is left out"
    await sender.deliver(batch[1:])
    await sender.deliver(batch[:-1])
    assert len(bucket.objects) == 3


async def test_an_archive_is_divided_by_the_days_of_the_changes():
    bucket = Bucket(refuses="date=2026-03-02")
    sender = S3Sender(bucket, "archive", "")
    batch = [delivery(n, created_at=MIDNIGHT[n % 2]) for n in range(4)]
    errors = await sender.deliver(batch)
    assert kinds(errors) == [None, "RetryableError", None, "RetryableError"]
    assert [row["body"]["number"] for row in bucket.rows()] == [0, 2]
    bucket.refuses = None
    assert await sender.deliver([batch[1], batch[3]]) == [None, None]
    assert sorted(name[:15] for name in bucket.objects) == ["date=2026-03-01", "date=2026-03-02"]


async def test_what_cannot_be_archived_leaves_the_rest_of_its_batch():
    bucket = Bucket()
    batch = [delivery(1), delivery(2, body=UNSENDABLE), delivery(3)]
    errors = await S3Sender(bucket, "archive", "").deliver(batch)
    assert kinds(errors) == [None, "PoisonChange", None]
    assert [row["body"]["number"] for row in bucket.rows()] == [1, 3]


class Buses:
    def __init__(self, error):
        self.error = error

    async def describe_event_bus(self, Name):
        if self.error:
            raise self.error


@pytest.fixture
def buses(monkeypatch):
    """Makes EventBridge's client one that answers `describe_event_bus` with an error, or not."""

    def answer(error=None):
        @asynccontextmanager
        async def open_client(service, **options):
            yield Buses(error)

        monkeypatch.setattr(calls, "open_client", open_client)

    return answer


BUS = EventBridge("bus", "shop", source="shop.orders", detail_type="Changed")


async def test_a_bus_that_does_not_exist_is_found_before_events_vanish_in_it(buses):
    buses(refused("ResourceNotFoundException"))
    with pytest.raises(ConfigurationError, match=r"'bus'.*no event bus 'shop'"):
        async with BUS.opened():
            pytest.fail("it opened")


@pytest.mark.parametrize("error", [None, refused("AccessDeniedException"), refused("X", 500)])
async def test_a_bus_that_cannot_be_looked_for_is_used_with_a_warning(buses, error):
    buses(error)
    with capture_logs() as logs:
        async with BUS.opened() as sender:
            assert sender.sink is BUS
    assert [each["event"] for each in logs] == (["sink.unchecked"] if error else [])


@pytest.mark.parametrize(
    "declare",
    [
        lambda: Sns("s", "arn:aws:sqs:eu-central-1:123456789012:shop"),
        lambda: Sns("s", "shop"),
        lambda: Sqs("s", "arn:aws:sqs:eu-central-1:123456789012:shop"),
        lambda: EventBridge("s", "shop", source="aws.shop", detail_type="Changed"),
        lambda: EventBridge("s", "shop", source="shop", detail_type="x" * 129),
        lambda: EventBridge("s", "shop", source="shop", detail_type=""),
    ],
)
def test_a_sink_that_could_never_work_fails_when_it_is_declared(declare):
    with pytest.raises(DeclarationError, match="sink 's'"):
        declare()


@pytest.mark.parametrize(
    ("sink", "limits"),
    [
        (Sqs("s", QUEUE), Limits(10, 2**20, 4)),
        (Sns("s", TOPIC, calls=8), Limits(10, 2**18, 8)),
        (BUS, Limits(10, 2**18 - 1, 4)),
        (Kinesis("s", "live"), Limits(500, 5 * 2**20, 4)),
        (Firehose("s", "lake", calls=1), Limits(500, 4_000_000, 1)),
        (S3Archive("s", "archive"), Limits(10_000, 8_000_000, 4)),
    ],
    ids=lambda each: type(each).__name__,
)
def test_a_batch_is_as_large_as_a_call_of_its_service(sink, limits):
    assert sink.limits == limits
